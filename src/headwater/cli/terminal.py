r"""What strangers wrote, made harmless before a terminal gets to see it; pipes and files get every byte as it is.

A topic's records, and the names of topics, groups and clients, may hold sequences that move the cursor, hide text,
change the title or type for the user. Line ends and tabs pass.

>>> escaped("red \x1b[31malert")
'red \\x1b[31malert'
"""

import re
import sys
from typing import Final, TextIO

_HARMFUL: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Control characters, and those that turn the direction of text or end a line without looking like it."""

_SUSPICIOUS: Final = re.compile(rb"[^\t\n\x20-\x7e]")


def is_terminal(stream: TextIO | None = None) -> bool:
    """Whether a person looks at what is written there; without a stream, to stdout."""
    try:
        return (sys.stdout if stream is None else stream).isatty()
    except ValueError:  # closed
        return False


def escaped(text: str) -> str:
    """The text with its harmful characters as Python writes them."""
    return _HARMFUL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def escaped_bytes(data: bytes) -> bytes:
    r"""The same for bytes, which are UTF-8 or become `\xNN`."""
    if _SUSPICIOUS.search(data) is None:
        return data
    return escaped(data.decode("utf-8", "backslashreplace")).encode()


def escaped_json(text: str) -> str:
    """The same for a JSON document, which stays one with the same meaning: all of these are inside of its strings."""
    return _HARMFUL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def shown(text: str, stream: TextIO | None = None) -> str:
    """The text as it may be written to a stream: escaped for a terminal, else as it is."""
    return escaped(text) if is_terminal(stream) else text


def say(text: str = "", *, end: str = "\n", file: TextIO | None = None, flush: bool = False) -> None:
    """`print` for text that may hold what strangers wrote."""
    print(shown(text, file), end=end, file=file, flush=flush)
