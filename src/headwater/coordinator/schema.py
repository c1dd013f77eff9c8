"""The bytes of records in internal topics: a version, then field after field, as Kafka's generator lays them out.

A `Struct` is a table of fields of one dataclass. It reads every version that there ever was and writes the one it is
told. Damaged bytes raise `CorruptRecordError`, what cannot be written `ApiError`; nothing here knows what fields mean.
"""

import itertools
import struct
from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final, Generic, TypeVar
from uuid import UUID

from headwater.protocol.errors import ApiError, ErrorCode

T = TypeVar("T")
_OCTETS: Final = [bytes((value,)) for value in range(0x80)]


class CorruptRecordError(ValueError):
    """Bytes that are no record of their kind."""


class Reader:
    """A cursor over the bytes of one record."""

    __slots__ = ("_data", "position")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.position = 0

    def take(self, size: int) -> bytes:
        """The next bytes."""
        end = self.position + size
        if size < 0 or end > len(self._data):
            raise CorruptRecordError(f"{size} bytes wanted at {self.position}, {len(self._data)} are there")
        taken = self._data[self.position : end]
        self.position = end
        return taken

    def varint(self) -> int:
        """An unsigned number in groups of seven bits, the lowest first."""
        value = shift = 0
        while True:
            (octet,) = self.take(1)
            value |= (octet & 0x7F) << shift
            if octet < 0x80:
                return value
            shift += 7
            if shift > 28:
                raise CorruptRecordError(f"a length before {self.position} is too long")


def varint(value: int) -> bytes:
    """`value` in groups of seven bits, the lowest first."""
    if value <= 0x7F:
        return _OCTETS[value]
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


@dataclass(frozen=True, slots=True)
class Kind:
    """How values of one type are read and written; `flexible` chooses the compact form."""

    read: Callable[[Reader, int, bool], Any]
    write: Callable[[Any, int, bool], bytes]
    code: str = ""
    """What `struct` calls it, for numbers."""


def _fixed(layout: str) -> Kind:
    packer = struct.Struct(layout)
    return Kind(
        lambda reader, version, flexible: packer.unpack(reader.take(packer.size))[0],
        lambda value, version, flexible: packer.pack(value),
        layout[1:],
    )


def _sized(layout: str, into: Callable[[bytes], Any], out_of: Callable[[Any], bytes]) -> Kind:
    """A length, then that many bytes; -1 (0 in the compact form, which counts from 1) stands for None."""
    packer = struct.Struct(layout)

    def read(reader: Reader, version: int, flexible: bool) -> Any:
        size = reader.varint() - 1 if flexible else packer.unpack(reader.take(packer.size))[0]
        return None if size == -1 else into(reader.take(size))

    def write(value: Any, version: int, flexible: bool) -> bytes:
        content = b"" if value is None else out_of(value)
        size = -1 if value is None else len(content)
        if flexible:
            return varint(size + 1) + content
        try:
            return packer.pack(size) + content
        except struct.error:
            # Requests may hold longer texts than old record layouts, which keys still have.
            raise ApiError(ErrorCode.invalid_request, f"{size} bytes are too long to be kept") from None

    return Kind(read, write)


def _text(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise CorruptRecordError(str(error)) from error


INT8: Final = _fixed(">b")
INT16: Final = _fixed(">h")
INT32: Final = _fixed(">i")
INT64: Final = _fixed(">q")
STRING: Final = _sized(">h", _text, str.encode)
BYTES: Final = _sized(">i", bytes, bytes)
ID: Final = Kind(
    lambda reader, version, flexible: UUID(bytes=reader.take(16)), lambda value, version, flexible: value.bytes
)


def array(item: Kind) -> Kind:
    """Items in a row, as a tuple; None where Kafka has null."""

    def read(reader: Reader, version: int, flexible: bool) -> Any:
        count = reader.varint() - 1 if flexible else INT32.read(reader, version, flexible)
        if count < -1:
            raise CorruptRecordError(f"{count} items before {reader.position}")
        return None if count == -1 else tuple(item.read(reader, version, flexible) for _ in range(count))

    def write(value: Any, version: int, flexible: bool) -> bytes:
        count = -1 if value is None else len(value)
        head = varint(count + 1) if flexible else INT32.write(count, version, flexible)
        if item.code and value:
            return head + struct.pack(f">{count}{item.code}", *value)
        return head + b"".join([item.write(one, version, flexible) for one in value]) if value else head

    return Kind(read, write)


def nullable(item: Kind) -> Kind:
    """A structure in a tagged field that may be null: 1 before it says that it is there, 0 that it is not."""

    def read(reader: Reader, version: int, flexible: bool) -> Any:
        return item.read(reader, version, flexible) if reader.varint() else None

    def write(value: Any, version: int, flexible: bool) -> bytes:
        return varint(0) if value is None else varint(1) + item.write(value, version, flexible)

    return Kind(read, write)


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a structure: in which versions it stands, and under which tag if it is a tagged one."""

    name: str
    kind: Kind
    since: int = 0
    until: int = 99
    tag: int | None = None
    absent: Any = None
    """What a tagged field that is left out stands for, if that is not the dataclass's default."""


class Struct(Generic[T]):
    """The layout of a dataclass. Fields that a version does not have keep the dataclass's defaults.

    Tagged fields are left out when they are what an absent one stands for.
    """

    def __init__(self, made: type[T], *fields: Field, flexible_since: int = 99) -> None:
        self._made = made
        self._plain = [field for field in fields if field.tag is None]
        self._steps: dict[int, list[Callable[[T], bytes]]] = {}
        self._tagged = {field.tag: field for field in fields if field.tag is not None}
        self._absent = {
            field.name: made.__dataclass_fields__[field.name].default  # type: ignore[attr-defined]
            if field.absent is None
            else field.absent
            for field in self._tagged.values()
        }
        self._optional = [(tag, field, self._absent[field.name]) for tag, field in sorted(self._tagged.items())]
        self._flexible_since = flexible_since
        self.kind = Kind(
            lambda reader, version, flexible: self._read(reader, version),
            lambda value, version, flexible: self._write(value, version),
        )

    def decode(self, data: bytes, newest_version: int) -> T:
        """The value whose version stands in its first two bytes."""
        reader = Reader(data)
        version = INT16.read(reader, 0, False)
        if not 0 <= version <= newest_version:
            raise CorruptRecordError(f"version {version} of {self._made.__name__} is not known")
        return self._read(reader, version)

    def encode(self, value: T, version: int) -> bytes:
        """The version, then the fields."""
        return version.to_bytes(2, "big", signed=True) + self._write(value, version)

    def _read(self, reader: Reader, version: int) -> T:
        flexible = version >= self._flexible_since
        values = {
            field.name: field.kind.read(reader, version, flexible)
            for field in self._plain
            if field.since <= version <= field.until
        }
        if flexible:
            values.update(self._absent)
            for _ in range(reader.varint()):
                tag, size = reader.varint(), reader.varint()
                content = Reader(reader.take(size))
                if tag in self._tagged:
                    field = self._tagged[tag]
                    values[field.name] = field.kind.read(content, version, flexible)
        return self._made(**values)

    def _write(self, value: T, version: int) -> bytes:
        steps = self._steps.get(version)
        if steps is None:
            steps = self._steps[version] = self._make_steps(version)
        return b"".join([step(value) for step in steps])

    def _make_steps(self, version: int) -> list[Callable[[T], bytes]]:
        """What writes the fields of a version one after another; numbers that stand side by side go in one step."""
        flexible = version >= self._flexible_since
        written = [field for field in self._plain if field.since <= version <= field.until]
        steps: list[Callable[[T], bytes]] = []
        for is_number, neighbours in itertools.groupby(written, key=lambda field: bool(field.kind.code)):
            if is_number:
                steps.append(_numbers_step(list(neighbours)))
            else:
                steps += [_field_step(field, version, flexible) for field in neighbours]
        if flexible:
            steps.append((lambda value: self._tags(value, version)) if self._tagged else lambda value: b"\0")
        return steps

    def _tags(self, value: T, version: int) -> bytes:
        count, out = 0, b""
        for tag, field, absent in self._optional:
            given = getattr(value, field.name)
            if given != absent:
                content = field.kind.write(given, version, True)
                out += varint(tag) + varint(len(content)) + content
                count += 1
        return varint(count) + out


def _numbers_step(fields: list[Field]) -> Callable[[Any], bytes]:
    pack = struct.Struct(">" + "".join(field.kind.code for field in fields)).pack
    get = attrgetter(*(field.name for field in fields))
    return (lambda value: pack(*get(value))) if len(fields) > 1 else lambda value: pack(get(value))


def _field_step(field: Field, version: int, flexible: bool) -> Callable[[Any], bytes]:
    get, write = attrgetter(field.name), field.kind.write
    return lambda value: write(get(value), version, flexible)
