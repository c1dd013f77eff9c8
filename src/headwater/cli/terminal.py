r"""Records as a terminal gets to see them; pipes and files get every byte as it is.

What a topic holds may move the cursor, hide text, change the title or type for the user. Line ends and tabs pass.
"""

import re
import sys
from typing import Final

from headwater.terminal_text import printable

_SUSPICIOUS: Final = re.compile(rb"[^\t\n\x20-\x7e]")


def is_terminal() -> bool:
    """Whether a person looks at what is written to stdout."""
    try:
        return sys.stdout.isatty()
    except ValueError:  # closed
        return False


def escaped_bytes(data: bytes) -> bytes:
    r"""Bytes with what a terminal would obey escaped; they are UTF-8 or become `\xNN`."""
    if _SUSPICIOUS.search(data) is None:
        return data
    return printable(data.decode("utf-8", "backslashreplace"), keep="\n\t").encode()
