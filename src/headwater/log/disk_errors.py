"""What an error of the system says about a disk: that it passes, or that the log dir on it is not to be trusted."""

import errno
from typing import Final

NO_ROOM: Final = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
"""Nothing is broken: the same call succeeds when there is room again."""

OUT_OF_FILES: Final = frozenset((errno.EMFILE, errno.ENFILE))
"""It is the process or the machine that has too many files open; the disk was not even asked."""


def is_passing(error: OSError) -> bool:
    """Whether the call can succeed later with nothing lost; every other error takes a log dir offline."""
    return error.errno in NO_ROOM or error.errno in OUT_OF_FILES


def reason(error: OSError, where: str = "") -> str:
    """An error in words, with the file it was about, or else `where` it came up."""
    what = error.strerror or str(error)
    at = error.filename or where
    return f"{what} ({at})" if at else what


def sync_failure(error: OSError) -> OSError:
    """A sync that failed, as an I/O error whatever it was called: the system has dropped what it could not write."""
    return OSError(errno.EIO, f"a sync failed: {error.strerror or error}")
