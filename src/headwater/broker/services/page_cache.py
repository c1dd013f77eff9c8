"""Keeps the event loop off the disk: tells whether a byte range is in the page cache, and brings it there.

`os.sendfile` of a cold range would stop every connection until the disk has answered. Where the system cannot tell
(no `RWF_NOWAIT`), everything counts as warm.
"""

import os
from typing import Final

from headwater.net.connection import FileRange

_RWF_NOWAIT: Final = getattr(os, "RWF_NOWAIT", 0)
_PROBE_EVERY_BYTES: Final = 256 * 1024
_READ_BYTES: Final = 1024 * 1024


def is_cold(part: FileRange) -> bool:
    """Whether some of the range would have to come from the disk; looks at a page every 256 KiB."""
    if not _RWF_NOWAIT:
        return False
    probe = [bytearray(1)]
    descriptor, end = part.file.fileno(), part.position + part.size
    for position in range(end - 1, part.position - 1, -_PROBE_EVERY_BYTES):
        try:
            os.preadv(descriptor, probe, position, _RWF_NOWAIT)
        except BlockingIOError:
            return True
        except OSError:
            return False  # a file system that does not know the flag
    return False


def warm(part: FileRange) -> None:
    """Reads the range once, so that it is in the page cache. Runs in a thread."""
    descriptor, end = part.file.fileno(), part.position + part.size
    scratch = bytearray(min(_READ_BYTES, part.size))
    for position in range(part.position, end, _READ_BYTES):
        os.preadv(descriptor, [scratch], position)
