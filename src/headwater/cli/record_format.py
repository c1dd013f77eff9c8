"""Records as text: kcat's format letters, the console consumer's columns, JSON."""

import base64
import json
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

from headwater.cli.options import unescaped
from headwater.terminal_text import printable_json


class RecordView(Protocol):
    """What a formatter reads of a record."""

    @property
    def topic(self) -> str: ...  # noqa: D102
    @property
    def partition(self) -> int: ...  # noqa: D102
    @property
    def offset(self) -> int: ...  # noqa: D102
    @property
    def timestamp_ms(self) -> int: ...  # noqa: D102
    @property
    def timestamp_type(self) -> int: ...  # noqa: D102
    @property
    def key(self) -> bytes | None: ...  # noqa: D102
    @property
    def value(self) -> bytes | None: ...  # noqa: D102
    @property
    def headers(self) -> tuple[tuple[str, bytes | None], ...]: ...  # noqa: D102


Formatter: TypeAlias = Callable[[RecordView], bytes]
Clean: TypeAlias = Callable[[bytes], bytes]
"""What is done to all that comes from a record before it is printed: nothing, or for a terminal `escaped_bytes`."""

_Part: TypeAlias = Callable[[RecordView], bytes]


def as_it_is(data: bytes) -> bytes:
    """Every byte, for pipes and files."""
    return data


def format_string(text: str, null: bytes, clean: Clean = as_it_is) -> Formatter:
    r"""A formatter for kcat's letters: %t %p %o %k %K %s %S %R %h %T and %%, with escapes as `\n`.

    >>> format_string(r"%t [%p] at offset %o: key %k: %s\n", b"NULL")  # doctest: +ELLIPSIS
    <function ...>
    """
    letters = _letters(null, clean)
    parts: list[_Part] = []
    for piece in re.split(r"(%.)", text, flags=re.DOTALL):
        if len(piece) == 2 and piece[0] == "%":
            if piece[1] not in letters:
                raise ValueError(f"{piece} is none of {' '.join('%' + letter for letter in letters)}")
            parts.append(letters[piece[1]])
        elif piece:
            parts.append(_constant(unescaped(piece)))

    def apply(record: RecordView) -> bytes:
        return b"".join([part(record) for part in parts])

    return apply


def _letters(null: bytes, clean: Clean) -> dict[str, _Part]:
    return {
        "t": lambda record: clean(record.topic.encode()),
        "p": lambda record: b"%d" % record.partition,
        "o": lambda record: b"%d" % record.offset,
        "k": lambda record: null if record.key is None else clean(record.key),
        "K": lambda record: b"%d" % _size(record.key),
        "s": lambda record: null if record.value is None else clean(record.value),
        "S": lambda record: b"%d" % _size(record.value),
        "R": lambda record: clean(struct.pack(">i", _size(record.value))),
        "h": lambda record: _joined_headers(record, b"=", null, clean),
        "T": lambda record: b"%d" % record.timestamp_ms,
        "%": _constant(b"%"),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """What the console consumer prints before the value, in its order."""

    timestamp: bool = False
    partition: bool = False
    offset: bool = False
    headers: bool = False
    key: bool = False

    @property
    def any(self) -> bool:
        """Whether there is anything but the value."""
        return self.timestamp or self.partition or self.offset or self.headers or self.key


def columns(wanted: Columns, separator: bytes, null: bytes, line_end: bytes, clean: Clean = as_it_is) -> Formatter:
    """A formatter for what kafka-console-consumer's `print.…` properties give."""
    parts: list[_Part] = []
    if wanted.timestamp:
        parts.append(lambda record: b"%b:%d" % (_timestamp_type(record).encode(), record.timestamp_ms))
    if wanted.partition:
        parts.append(lambda record: b"Partition:%d" % record.partition)
    if wanted.offset:
        parts.append(lambda record: b"Offset:%d" % record.offset)
    if wanted.headers:
        parts.append(lambda record: _joined_headers(record, b":", null, clean) or b"NO_HEADERS")
    letters = _letters(null, clean)
    if wanted.key:
        parts.append(letters["k"])
    parts.append(letters["s"])

    def apply(record: RecordView) -> bytes:
        return separator.join([part(record) for part in parts]) + line_end

    return apply


def json_line_for_terminals(record: RecordView) -> bytes:
    """The same object with no character in it that a terminal would obey."""
    return printable_json(json_line(record)[:-1].decode()).encode() + b"\n"


def json_line(record: RecordView) -> bytes:
    """One JSON object on one line. Bytes that are not UTF-8 become {"base64": …}."""
    document: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "timestamp_type": _timestamp_type(record),
        "headers": [[name, _json_value(value)] for name, value in record.headers],
        "key": _json_value(record.key),
        "value": _json_value(record.value),
    }
    return _DUMPS(document).encode() + b"\n"


_DUMPS: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def _json_value(data: bytes | None) -> object:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _joined_headers(record: RecordView, separator: bytes, null: bytes, clean: Clean) -> bytes:
    return b",".join(
        [clean(name.encode()) + separator + (null if value is None else clean(value)) for name, value in record.headers]
    )


def _timestamp_type(record: RecordView) -> str:
    """Kafka's name for what the timestamp means."""
    return "LogAppendTime" if record.timestamp_type else "CreateTime"


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _constant(data: bytes) -> _Part:
    return lambda record: data
