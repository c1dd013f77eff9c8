"""Messages of every API and version with values drawn by chance, and their bytes with what strangers do to them.

What is written here owes nothing to the product's own writer but the shapes of the entities: a test compares the two.
"""

import dataclasses
import random
import struct
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple
from uuid import UUID

from headwater.protocol.apis import SERVED, Api
from headwater.protocol.entity_shapes import Shape, shapes
from headwater.protocol.kafka_types import ErrorCode

EVERY_VERSION: Final = [
    (api, version) for api in SERVED.values() for version in range(api.min_version, api.max_version + 1)
]  # fmt: skip
_BITS: Final = {"int8": 8, "int16": 16, "int32": 32, "int64": 64, "timedelta_i32": 32}
_LAYOUTS: Final = {"bool": "?", "int8": "b", "int16": "h", "int32": "i", "int64": "q", "uint16": "H", "error_code": "h"}


class Length(NamedTuple):
    """A length in the bytes of a message: where it stands, in which form, and of what it is."""

    start: int
    end: int
    compact: bool
    what: str


def some_entity(entity: type[Any], chance: random.Random, largest: int = 150) -> Any:
    """An entity with values that its fields may have; no array of numbers or texts is longer than `largest`."""
    values = {}
    for field, shape in zip(dataclasses.fields(entity), shapes(entity), strict=True):
        if field.default is not dataclasses.MISSING and chance.random() < 0.3:
            continue
        value = _some(shape, chance, largest)
        # kio cannot write a tagged field that is None unless that is its default.
        if value is None and shape.tag is not None and field.default is not None:
            continue
        values[field.name] = value
    return entity(**values)


def _some(shape: Shape, chance: random.Random, largest: int) -> Any:
    if shape.nullable and chance.random() < 0.3:
        return None
    if not shape.is_array:
        return _one(shape, chance, largest)
    # An array of 150 needs two bytes for its length; of entities, which may hold arrays again, a few must do.
    count = chance.choice((0, 1, 3) if shape.nested is not None else (0, 1, 3, largest))
    return tuple(_one(shape, chance, largest) for _ in range(count))


def _one(shape: Shape, chance: random.Random, largest: int) -> Any:
    if shape.nested is not None:
        return some_entity(shape.nested, chance, largest)
    kind = shape.kind
    if kind in _BITS:
        number = chance.choice((0, -1, 1, chance.randrange(-(2 ** (_BITS[kind] - 1)), 2 ** (_BITS[kind] - 1))))
        return timedelta(milliseconds=number) if kind.startswith("timedelta") else number
    match kind:
        case "uint16":
            return chance.randrange(2**16)
        case "bool":
            return chance.random() < 0.5
        case "error_code":
            return chance.choice(list(ErrorCode))
        case "string":
            return chance.choice(("", "orders", "ü" * largest, "x" * largest * 130))
        case "bytes" | "records":
            return chance.randbytes(chance.choice((0, 5, 2 * largest)))
        case "uuid":
            return UUID(int=chance.randrange(2**128))
        case "datetime_i64":
            return datetime.fromtimestamp(chance.randrange(2_000_000_000), UTC)
        case "timedelta_i64":
            return timedelta(milliseconds=chance.randrange(-(2**40), 2**40))
    raise AssertionError(f"what is a {kind}?")


class Written:
    """The bytes of an entity, and where lengths stand in them.

    With `newer` every structure ends with tagged fields that nobody knows, before, between and behind those that are
    known; these come in reverse, and once with another value before the one that counts.
    """

    def __init__(self, entity: Any, *, newer: bool = False) -> None:
        self.data = bytearray()
        self.lengths: list[Length] = []
        self._newer = newer
        self._entity(entity)

    def replaced(self, length: Length, by: bytes) -> bytes:
        """The bytes with another length in the place of one of them."""
        return bytes(self.data[: length.start] + by + self.data[length.end :])

    def _entity(self, value: Any) -> None:
        flexible = type(value).__flexible__
        tagged: list[tuple[int, Shape, Any]] = []
        for shape in shapes(type(value)):
            given = getattr(value, shape.name)
            if shape.tag is None:
                self._field(shape, given, flexible)
            elif given != shape.default:
                tagged.append((shape.tag, shape, given))
        if flexible:
            self._tags(sorted(tagged, key=lambda row: row[0]))

    def _tags(self, tagged: list[tuple[int, Shape, Any]]) -> None:
        if not self._newer:
            self._varint(len(tagged), "tagged fields")
            for tag, shape, given in tagged:
                self._tag(tag, shape, given)
            return
        self._varint(3 * len(tagged) + 1, "tagged fields")
        self._unknown(2**31 - 1)
        for tag, shape, given in reversed(tagged):
            self._tag(tag, shape, given)
            self._tag(tag, shape, given)
            self._unknown(1000 + tag)

    def _unknown(self, tag: int) -> None:
        self.data += _varint(tag)
        self._varint(7, "an unknown tagged field")
        self.data += b"\xff" * 7

    def _tag(self, tag: int, shape: Shape, given: Any) -> None:
        self.data += _varint(tag)
        content = Written.__new__(Written)
        content.data, content.lengths, content._newer = bytearray(), [], self._newer
        content._field(shape, given, True)
        self._varint(len(content.data), f"tagged field {shape.name}")
        at = len(self.data)
        self.lengths += [one._replace(start=one.start + at, end=one.end + at) for one in content.lengths]
        self.data += content.data

    def _field(self, shape: Shape, given: Any, flexible: bool) -> None:
        if not shape.is_array:
            self._value(shape, given, flexible)
            return
        self._length(given, flexible, "i", f"array {shape.name}")
        for item in given or ():
            self._value(dataclasses.replace(shape, nullable=False), item, flexible)

    def _value(self, shape: Shape, given: Any, flexible: bool) -> None:
        kind = shape.kind
        if shape.nested is not None:
            if shape.nullable:
                self.data += b"\xff" if given is None else b"\1"
            if given is not None:
                self._entity(given)
        elif kind in _LAYOUTS:
            self.data += struct.pack(">" + _LAYOUTS[kind], given)
        elif kind in ("string", "bytes", "records"):
            content = given.encode() if isinstance(given, str) else given
            self._length(content, flexible, "h" if kind == "string" else "i", f"{kind} {shape.name}")
            self.data += content or b""
        elif kind == "uuid":
            self.data += bytes(16) if given is None else given.bytes
        elif kind == "timedelta_i32":
            self.data += struct.pack(">i", given // timedelta(milliseconds=1))
        elif kind == "timedelta_i64":
            self.data += struct.pack(">q", given // timedelta(milliseconds=1))
        else:
            assert kind == "datetime_i64", kind
            self.data += struct.pack(">q", -1 if given is None else round(given.timestamp() * 1000))

    def _length(self, content: Any, flexible: bool, layout: str, what: str) -> None:
        count = -1 if content is None else len(content)
        if flexible:
            self._varint(count + 1, what)
            return
        start = len(self.data)
        self.data += struct.pack(">" + layout, count)
        self.lengths.append(Length(start, len(self.data), False, what))

    def _varint(self, number: int, what: str) -> None:
        start = len(self.data)
        self.data += _varint(number)
        self.lengths.append(Length(start, len(self.data), True, what))


def wrong_lengths(length: Length, data: bytes | bytearray) -> list[bytes]:
    """What a stranger writes in the place of a length: too much, less than nothing, and numbers that never end."""
    if length.compact:
        compact = (0, 1, 2, 0x7F, 0x4000, 2**21, 2**28, 2**31 - 1, 2**31, 2**32 - 1, 2**35 - 1)
        return [*map(_varint, compact), b"\xff" * 5, b"\x80" * 9, b"\xff" * 10 + b"\1", b"\x80\x80\x80\x80\x00"]
    bits = 8 * (length.end - length.start)
    now = int.from_bytes(data[length.start : length.end], "big", signed=True)
    top = 2 ** (bits - 1)
    numbers = (-1, 0, 1, now + 1, now - 1, top - 1, top // 2, top // 256, -2, -top)
    return [number.to_bytes(bits // 8, "big", signed=True) for number in numbers if -top <= number < top]


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def name_of(value: object) -> str:
    """How pytest calls an API or a version."""
    return value.name if isinstance(value, Api) else str(value)
