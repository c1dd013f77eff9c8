"""Lines into records."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]
LineRecord: TypeAlias = tuple[bytes | None, bytes | None, Headers]
"""Key, value and headers."""


class BadLineError(Exception):
    """A line that does not have the promised form; its text says how."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LineFormat:
    """How a line is to be read: `headers<separator>key<separator>value`, only the value must be there."""

    key_separator: bytes | None = None
    headers_separator: bytes | None = None
    headers: Headers = ()
    null_value: bytes | None = None

    @property
    def plain(self) -> bool:
        """Whether a line is a value and no more."""
        return not self.headers and (self.key_separator, self.headers_separator, self.null_value) == (None, None, None)

    def records(self, lines: Sequence[bytes]) -> list[LineRecord]:
        """One record for each line. A line without the key separator has no key."""
        headers, separator = self.headers, self.key_separator
        if self.headers_separator is not None or self.null_value is not None:
            return [self._record(line) for line in lines]
        # The usual formats come by the million, so they are spared a call for each line.
        if separator is None:
            return [(None, line, headers) for line in lines]
        return [
            (key, value, headers) if found else (None, line, headers)
            for line in lines
            for key, found, value in (line.partition(separator),)
        ]

    def _record(self, line: bytes) -> LineRecord:
        headers, key, value = self.headers, None, line
        if self.headers_separator is not None:
            text, found, value = line.partition(self.headers_separator)
            if not found:
                raise BadLineError(f"the line {_shown(line)} has no headers separator")
            headers += parse_headers(text)
        if self.key_separator is not None:
            before, found, after = value.partition(self.key_separator)
            if found:
                key, value = before, after
        return key, None if value == self.null_value else value, headers


def parse_headers(text: bytes) -> Headers:
    """`name:value,name:value` as kafka-console-producer writes it.

    >>> parse_headers(b"trace:1,empty:")
    (('trace', b'1'), ('empty', b''))
    """
    headers = []
    for part in filter(None, text.split(b",")):
        name, found, value = part.partition(b":")
        if not found:
            raise BadLineError(f"the header {_shown(part)} is not name:value")
        headers.append((name.decode("utf-8", "replace"), value))
    return tuple(headers)


def _shown(line: bytes) -> str:
    text = line[:60].decode("utf-8", "replace")
    return repr(text + ("…" if len(line) > 60 else ""))
