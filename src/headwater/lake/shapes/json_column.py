"""A column in the making, in the layout of Arrow: what the quick lane of parsing writes to.

Compiled by Cython (pure Python mode) and correct without it; `json_column.pxd` is its C side. Rows can be taken back,
down to the children, as long as the column is not finished.
"""
# mypy: disallow-untyped-decorators=False

from __future__ import annotations

from array import array
from typing import Final

import pyarrow as pa
import pyarrow.types as pt

from headwater.lake.shapes.fitting import is_text
from headwater.lake.shapes.paths import elements, join
from headwater.lake.shapes.policies import Policies

try:
    import cython
except ImportError:
    from headwater.protocol import without_cython as cython

if cython.compiled:
    from cython.cimports.headwater.protocol.raw_memory import copy, doubles, ints, longs
else:
    from headwater.protocol.raw_memory import copy, doubles, ints, longs

# What a column holds. The lane that fills it has the same numbers.
NOTHING: Final = 0
BOOL: Final = 1
INT: Final = 2
LONG: Final = 3
DOUBLE: Final = 4
STRING: Final = 5
DATE: Final = 6
INSTANT: Final = 7
DATETIME: Final = 8
STRUCT: Final = 9
LIST: Final = 10
MAP: Final = 11

_DOUBLE = cython.declare(cython.int, 4)
_STRING = cython.declare(cython.int, 5)
_STRUCT = cython.declare(cython.int, 9)
_LIST = cython.declare(cython.int, 10)
_MAP = cython.declare(cython.int, 11)

_SCALARS: Final = {
    pa.bool_(): BOOL,
    pa.int32(): INT,
    pa.int64(): LONG,
    pa.float64(): DOUBLE,
    pa.string(): STRING,
    pa.date32(): DATE,
    pa.timestamp("us"): DATETIME,
}


def kind_of(type_: pa.DataType) -> int:
    """What a column of a type holds; NOTHING: its values are for the plain lane."""
    if pt.is_struct(type_):
        return STRUCT
    if pt.is_list(type_):
        return LIST
    if pt.is_map(type_) and type_.key_type == pa.string():
        return MAP
    if pt.is_timestamp(type_) and type_.unit == "us" and type_.tz is not None:
        return INSTANT
    return _SCALARS.get(type_, NOTHING)


class JsonColumn:
    """The column of a field at a path of the schema. Its C attributes and methods are declared in the pxd.

    A struct has a child for each field; `index_of` and `names` know those that a key may have, and `spills` the second
    column of each child, or None. A list has one child, a map one for keys and one for values.
    """

    def __init__(self, type_: pa.DataType, path: str, policies: Policies) -> None:
        self.kind = kind_of(type_)
        self.path = path
        self.any_text = self.kind == STRING and policies.of(path) == "string"
        self.children = []
        self.names: list[bytes] = []
        self.index_of: dict[bytes, int] = {}
        self.spills: list[JsonColumn | None] = []
        if self.kind == STRUCT:
            self._add_fields(type_.fields, policies)
        elif self.kind == LIST:
            self.children.append(JsonColumn(type_.value_type, elements(path), policies))
        elif self.kind == MAP:
            self.children.append(JsonColumn(pa.string(), path, Policies()))
            self.children.append(JsonColumn(type_.item_type, elements(path), policies))
        self.valid = bytearray()
        self.numbers = array("d" if self.kind == DOUBLE else "i" if self.kind in (STRING, LIST, MAP) else "q")
        self.data = bytearray()
        self.data_at = self.data
        self.count = self.room = self.used = self.capacity = 0
        self.grow()

    def _add_fields(self, fields: list[pa.Field], policies: Policies) -> None:
        columns = {field.name: JsonColumn(field.type, join(self.path, field.name), policies) for field in fields}
        texts = {field.name for field in fields if is_text(field.type)}
        for index, (name, column) in enumerate(columns.items()):
            spill = policies.spill_of(self.path, name)
            reserved = policies.is_spill(self.path, name)
            # A name that no key can have keeps the place.
            self.names.append(b"\xff" if reserved else name.encode())
            if not reserved:
                self.index_of[name.encode()] = index
            self.children.append(column)
            self.spills.append(columns[spill] if spill is not None and spill in texts and not reserved else None)

    def grow(self) -> cython.int:
        """Makes room for twice as many rows."""
        room: cython.longlong = max(2 * self.room, 64)
        self.valid += bytes(room - len(self.valid))
        self.valid_at = self.valid
        if self.kind in (_STRING, _LIST, _MAP):
            self.numbers.frombytes(bytes(4 * (room + 1 - len(self.numbers))))
            self.ends_at = ints(self.numbers)
        elif self.kind == _DOUBLE:
            self.numbers.frombytes(bytes(8 * (room - len(self.numbers))))
            self.doubles_at = doubles(self.numbers)
        elif self.kind != _STRUCT:
            self.numbers.frombytes(bytes(8 * (room - len(self.numbers))))
            self.longs_at = longs(self.numbers)
        self.room = room
        return 0

    def append_null(self) -> cython.int:
        """A row without a value."""
        child: JsonColumn
        index: cython.longlong
        if self.count >= self.room:
            self.grow()
        self.valid_at[self.count] = 0
        if self.kind == _STRUCT:
            for index in range(len(self.children)):
                child = self.children[index]
                child.append_null()
        elif self.kind in (_STRING, _LIST, _MAP):
            self.ends_at[self.count + 1] = self.ends_at[self.count]
        elif self.kind == _DOUBLE:
            self.doubles_at[self.count] = 0
        else:
            self.longs_at[self.count] = 0
        self.count += 1
        return 0

    def append_long(self, number: cython.longlong) -> cython.int:
        """A row with an integer, or what is one underneath."""
        if self.count >= self.room:
            self.grow()
        self.valid_at[self.count] = 1
        self.longs_at[self.count] = number
        self.count += 1
        return 0

    def append_double(self, number: cython.double) -> cython.int:
        """A row with a double."""
        if self.count >= self.room:
            self.grow()
        self.valid_at[self.count] = 1
        self.doubles_at[self.count] = number
        self.count += 1
        return 0

    def append_inside(self) -> cython.int:
        """A row whose children have what belongs to it."""
        child: JsonColumn
        if self.count >= self.room:
            self.grow()
        self.valid_at[self.count] = 1
        if self.kind != _STRUCT:
            child = self.children[0]
            self.ends_at[self.count + 1] = child.count
        self.count += 1
        return 0

    def append_text(self, source: cython.p_uchar, at: cython.longlong, size: cython.longlong) -> cython.int:
        """A row with a copy of these bytes."""
        self.make_room(size)
        copy(self.data_at, self.used, source, at, size)
        return self.end_text(self.used + size)

    def make_room(self, size: cython.longlong) -> cython.int:
        """So many bytes may be written at `data_at`, from `used` on."""
        if self.used + size > self.capacity:
            self.capacity = max(2 * self.capacity, self.used + size, 1024)
            self.data += bytes(self.capacity - len(self.data))
            self.data_at = self.data
        return 0

    def end_text(self, end: cython.longlong) -> cython.int:
        """A row with the bytes that were written up to there."""
        if self.count >= self.room:
            self.grow()
        self.valid_at[self.count] = 1
        self.used = end
        self.count += 1
        self.ends_at[self.count] = end
        return 0

    def truncate(self, count: cython.longlong) -> cython.int:
        """Takes back all rows but so many, and what children have of a row that is not complete."""
        child: JsonColumn
        index: cython.longlong
        self.count = min(self.count, count)
        if self.kind == _STRING:
            self.used = self.ends_at[self.count]
        for index in range(len(self.children)):
            child = self.children[index]
            child.truncate(self.count if self.kind == _STRUCT else self.ends_at[self.count])
        return 0

    def finish(self, type_: pa.DataType) -> pa.Array:
        """The column as an array of its type; nothing may be appended any more."""
        rows = self.count
        nulls = self.valid.count(0, 0, rows)
        validity = pa.py_buffer(packed(self.valid, rows)) if nulls else None
        numbers = pa.py_buffer(self.numbers)
        if self.kind == NOTHING:
            return pa.nulls(rows, type_)
        if self.kind == STRUCT:
            below = [child.finish(field.type) for child, field in zip(self.children, type_.fields, strict=True)]
            return pa.Array.from_buffers(type_, rows, [validity], nulls, 0, below)
        if self.kind == LIST:
            below = [self.children[0].finish(type_.value_type)]
            return pa.Array.from_buffers(type_, rows, [validity, numbers], nulls, 0, below)
        if self.kind == MAP:
            key, item = self.children[0].finish(type_.key_type), self.children[1].finish(type_.item_type)
            entries = pa.StructArray.from_arrays([key, item], fields=[type_.key_field, type_.item_field])
            return pa.Array.from_buffers(type_, rows, [validity, numbers], nulls, 0, [entries])
        if self.kind == STRING:
            return pa.Array.from_buffers(type_, rows, [validity, numbers, pa.py_buffer(self.data)], nulls)
        if self.kind == BOOL:
            bits = pa.py_buffer(packed_numbers(self.numbers, rows))
            return pa.Array.from_buffers(type_, rows, [validity, bits], nulls)
        if self.kind in (INT, DATE):
            narrow = pa.Array.from_buffers(pa.int64(), rows, [validity, numbers], nulls).cast(pa.int32())
            return narrow.view(type_)
        return pa.Array.from_buffers(type_, rows, [validity, numbers], nulls)


def packed(flags: bytearray, count: cython.longlong) -> bytearray:
    """A bit for each byte that is 0 or 1."""
    bits = bytearray((count + 7) >> 3)
    source: cython.p_uchar = flags
    target: cython.p_uchar = bits
    index: cython.longlong
    for index in range(count):
        target[index >> 3] |= source[index] << (index & 7)
    return bits


def packed_numbers(flags: array[int], count: cython.longlong) -> bytearray:
    """A bit for each number that is 0 or 1."""
    bits = bytearray((count + 7) >> 3)
    source: cython.p_longlong = longs(flags)
    target: cython.p_uchar = bits
    index: cython.longlong
    for index in range(count):
        target[index >> 3] |= source[index] << (index & 7)
    return bits
