r"""Text from elsewhere as it may be shown: no character of it moves a cursor, hides text or begins another line.

Names, errors and records may hold anything, escape sequences of terminals too. They are shown as `\x1b` and the like.
Knows nothing of who prints it.
"""

import logging
import re
from typing import Final

_HARMFUL: Final = re.compile(
    "["
    "\x00-\x1f\x7f-\x9f"  # control characters, those of eight bits too
    "\u200e\u200f\u202a-\u202e\u2066-\u2069"  # those that change the direction of text
    "\u2028\u2029"  # separators of lines and paragraphs
    "\ud800-\udfff"  # halves of a character, which cannot be written at all
    "]"
)

LONGEST_LINE: Final = 4_000
"""Of a log, in characters: names may be long, and complaints quote several."""


def printable(text: str, *, keep: str = "") -> str:
    r"""`text` with what is no plain character escaped as Python would; those in `keep` stay as they are.

    >>> printable("a\x1b[2Jb\n"), printable("two\nlines", keep="\n")
    ('a\\x1b[2Jb\\n', 'two\nlines')
    """
    return text if text.isprintable() else _HARMFUL.sub(lambda found: _escaped(found[0], keep), text)


def _escaped(character: str, keep: str) -> str:
    return character if character in keep else character.encode("unicode_escape").decode()


def printable_json(text: str) -> str:
    r"""A JSON document that means the same and holds no such character; only line ends between its parts stay.

    >>> printable_json('{"name": "\x9b2J"}')
    '{"name": "\\u009b2J"}'
    """
    return _HARMFUL.sub(lambda found: found[0] if found[0] == "\n" else f"\\u{ord(found[0]):04x}", text)


class PrintableFormatter(logging.Formatter):
    """Lines of a log in which nobody else's text can look like another line, or do something to a terminal."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 (logging's name)
        """The line, with the message escaped, as its line ends are not ours, and cut when it is very long."""
        message = printable(record.message)
        if len(message) > LONGEST_LINE:
            message = f"{message[:LONGEST_LINE]}... ({len(message)} characters)"
        record.message = message
        return super().formatMessage(record)

    def formatException(self, ei: object) -> str:  # noqa: N802 (logging's name)
        """The traceback, whose line ends are ours."""
        return printable(super().formatException(ei), keep="\n\t")  # type: ignore[arg-type]

    def formatStack(self, stack_info: str) -> str:  # noqa: N802 (logging's name)
        """The stack, whose line ends are ours."""
        return printable(stack_info, keep="\n\t")
