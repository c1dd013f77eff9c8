"""The quick lane of parsing: JSON records straight into columns, with no object of Python between.

Compiled by Cython (pure Python mode) and correct without it. A record that it cannot make out leaves a row of nulls,
and the plain lane (`parsing.parse_records`) gets it. What merely does not fit a column is rescued here.
"""
# mypy: disallow-untyped-decorators=False, disallow-subclassing-any=False

from __future__ import annotations

from array import array

import pyarrow as pa

from headwater.lake.shapes.paths import join
from headwater.lake.shapes.policies import Policies
from headwater.lake.shapes.scalars import double_of, integer_of

try:
    import cython
except ImportError:
    from headwater.protocol import without_cython as cython

if cython.compiled:
    from cython.cimports.headwater.lake.shapes.json_column import JsonColumn
    from cython.cimports.headwater.lake.shapes.json_reading import JsonReader
    from cython.cimports.headwater.protocol.raw_memory import doubles, longs
else:
    from headwater.lake.shapes.json_column import JsonColumn
    from headwater.lake.shapes.json_reading import JsonReader
    from headwater.protocol.raw_memory import doubles, longs

# What a step says. After a MISFIT the reader may stand anywhere, and the column is as before.
_OK = cython.declare(cython.int, 0)
_MISFIT = cython.declare(cython.int, 1)
_UNCLEAR = cython.declare(cython.int, 2)

# What columns hold, as in `json_column`.
_BOOL = cython.declare(cython.int, 1)
_INT = cython.declare(cython.int, 2)
_LONG = cython.declare(cython.int, 3)
_DOUBLE = cython.declare(cython.int, 4)
_STRING = cython.declare(cython.int, 5)
_DATE = cython.declare(cython.int, 6)
_DATETIME = cython.declare(cython.int, 8)
_STRUCT = cython.declare(cython.int, 9)
_LIST = cython.declare(cython.int, 10)
_MAP = cython.declare(cython.int, 11)

# DATE, INSTANT and DATETIME stand in the same order among kinds of values.
_TO_KIND = cython.declare(cython.int, 4)
_MAX_DEPTH = cython.declare(cython.int, 100)
_MANY_ITEMS = cython.declare(cython.longlong, 2**31 - 2)


@cython.final
@cython.cclass
class ColumnReader(JsonReader):
    """Reads the records of one block of bytes into columns."""

    root: JsonColumn
    powers: array[float]
    powers_at: cython.p_double
    row: cython.longlong
    in_arrays: cython.longlong
    in_maps: cython.longlong
    seen: set[tuple[int, bytes]]
    rescued: list[tuple[int, str, str]]

    def __init__(self, view: memoryview, type_: pa.DataType, policies: Policies) -> None:
        JsonReader.__init__(self, view)
        self.root = JsonColumn(type_, "", policies)
        self.powers = array("d", [10.0**power for power in range(23)])
        self.powers_at = doubles(self.powers)
        self.row = self.in_arrays = self.in_maps = 0
        self.seen = set()
        self.rescued = []

    def read(self, offsets: array[int], count: int, rows: array[int]) -> list[int]:
        """Makes `count` rows, of nulls except for these; those of them that are for the plain lane."""
        ends: cython.p_longlong = longs(offsets)
        wanted: cython.p_longlong = longs(rows)
        index: cython.longlong
        before: cython.longlong
        plain: list[int] = []
        for index in range(len(rows)):
            self.row = wanted[index]
            while self.root.count < self.row:
                self.root.append_null()
            self.at = ends[self.row]
            self.end = ends[self.row + 1]
            self.in_arrays = self.in_maps = 0
            if self.seen:
                self.seen.clear()
            before = len(self.rescued)
            if self.record():
                self.root.truncate(self.row)
                del self.rescued[before:]
                self.root.append_null()
                plain.append(self.row)
        while self.root.count < count:
            self.root.append_null()
        return plain

    def columns(self, schema: pa.Schema) -> list[pa.Array]:
        """What was read."""
        return [column.finish(field.type) for column, field in zip(self.root.children, schema, strict=True)]

    def rescues(self) -> list[tuple[int, str, str]]:
        """Row, path and text of all that was rescued, in the order of rows."""
        return self.rescued

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def record(self) -> cython.int:
        """Reads one record."""
        self.space()
        if self.at >= self.end or self.data[self.at] != 123:
            return _UNCLEAR
        if self.members(self.root, 1):
            return _UNCLEAR
        self.space()
        return _OK if self.at == self.end else _UNCLEAR

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def value(self, column: JsonColumn, depth: cython.int) -> cython.int:
        """Reads the value that is here into a column."""
        first: cython.int
        kind: cython.int = column.kind
        literal: cython.int
        start: cython.longlong = self.at
        if self.at >= self.end:
            return _UNCLEAR
        first = self.data[self.at]
        if first == 110:
            if self.literal() != 0:
                return _UNCLEAR
            return column.append_null()
        if kind == _STRING:
            if first == 34:
                return self.text(column)
            if not column.any_text:
                return _MISFIT
            if self.skip(depth):
                return _UNCLEAR
            return column.append_text(self.data, start, self.at - start)
        if kind in (_LONG, _INT):
            return self.integer(column) if first == 45 or 48 <= first <= 57 else _MISFIT
        if kind == _DOUBLE:
            return self.floating(column) if first == 45 or 48 <= first <= 57 else _MISFIT
        if kind == _STRUCT:
            return self.members(column, depth) if first == 123 else _MISFIT
        if kind == _LIST:
            return self.items(column, depth) if first == 91 else _MISFIT
        if kind == _BOOL:
            literal = self.literal()
            return _MISFIT if literal < 0 else column.append_long(literal == 1)
        if _DATE <= kind <= _DATETIME:
            if first != 34:
                return _MISFIT
            if self.string() or self.escaped:
                return _UNCLEAR
            return column.append_long(self.moment) if self.temporal() == kind + _TO_KIND else _MISFIT
        if kind == _MAP:
            return self.entries(column, depth) if first == 123 else _MISFIT
        return _UNCLEAR

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def text(self, column: JsonColumn) -> cython.int:
        """Reads a string."""
        if self.string():
            return _UNCLEAR
        if not self.escaped:
            return column.append_text(self.data, self.text_at, self.text_size)
        column.make_room(self.text_size)
        return column.end_text(self.unescape(column.data_at, column.used))

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def integer(self, column: JsonColumn) -> cython.int:
        """Reads a number into a column of integers."""
        start: cython.longlong = self.at
        number: cython.longlong
        if self.number():
            return _UNCLEAR
        if not self.is_integer:
            found = integer_of(self.octets(start, self.at - start).decode())
            if found is None or not -(2**63) <= found < 2**63:
                return _MISFIT
            number = found
        elif self.digits <= 18:
            if self.negative and self.digits == 0:
                return _MISFIT
            number = self.mantissa
            if self.negative:
                number = -number
        elif self.digits > 19 or self.mantissa > 9223372036854775807:
            # The lowest of all has no positive twin: the plain lane knows it.
            return _UNCLEAR if self.digits == 19 else _MISFIT
        else:
            number = self.mantissa
            if self.negative:
                number = -number
        if column.kind == _INT and (number < -2147483648 or number > 2147483647):
            return _MISFIT
        return column.append_long(number)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def floating(self, column: JsonColumn) -> cython.int:
        """Reads a number into a column of doubles."""
        start: cython.longlong = self.at
        number: cython.double
        if self.number():
            return _UNCLEAR
        if self.digits == 0:
            return column.append_double(-0.0 if self.negative else 0.0)
        if (self.digits <= 19 and self.mantissa < 1_000_000_000_000_000 and -22 <= self.power <= 22) or (
            self.power == 0 and self.digits <= 16 and self.mantissa <= 9007199254740992
        ):
            # Both operands are exact, so the result is the nearest double.
            number = self.mantissa
            if self.power < 0:
                number = number / self.powers_at[-self.power]
            elif self.power > 0:
                number = number * self.powers_at[self.power]
            return column.append_double(-number if self.negative else number)
        said: cython.int = self.shortest()
        if said == _OK:
            return column.append_double(-self.real if self.negative else self.real)
        if said == _MISFIT:
            return _MISFIT
        found = double_of(self.octets(start, self.at - start).decode())
        return _MISFIT if found is None else column.append_double(found)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def members(self, column: JsonColumn, depth: cython.int) -> cython.int:
        """Reads an object into a struct."""
        data: cython.p_uchar = self.data
        row: cython.longlong = column.count
        start: cython.longlong = self.at
        index: cython.longlong = -1
        found: cython.longlong
        filled: cython.longlong = 0
        said: cython.int
        if depth > _MAX_DEPTH:
            return _UNCLEAR
        self.at += 1
        self.space()
        if self.at < self.end and data[self.at] == 125:
            self.at += 1
            return self.end_members(column, row, 0)
        while True:
            if self.at >= self.end or data[self.at] != 34 or self.string():
                return _UNCLEAR
            found = self.field_index(column, index + 1)
            if found < 0:
                said = self.stranger(column, depth, start)
            else:
                index = found
                filled += 1
                said = self.field(column, index, row, depth)
            if said:
                return said
            self.space()
            if self.at >= self.end:
                return _UNCLEAR
            if data[self.at] == 125:
                self.at += 1
                return self.end_members(column, row, filled)
            if data[self.at] != 44:
                return _UNCLEAR
            self.at += 1
            self.space()

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def end_members(self, column: JsonColumn, row: cython.longlong, filled: cython.longlong) -> cython.int:
        """The row of a struct is complete: fields that were not there are null."""
        child: JsonColumn
        index: cython.longlong
        if filled < len(column.children):
            for index in range(len(column.children)):
                child = column.children[index]
                if child.count == row:
                    child.append_null()
        return column.append_inside()

    @cython.cfunc
    @cython.exceptval(-2, check=False)
    def field_index(self, column: JsonColumn, guess: cython.longlong) -> cython.longlong:
        """Which child of a struct has the key that was stepped over; most often it is one of the next. -1: none."""
        index: cython.longlong
        if not self.escaped:
            for index in range(guess, min(guess + 4, len(column.names))):
                if self.says(column.names[index]):
                    return index
        known = column.index_of.get(self.content())
        return -1 if known is None else known

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def colon(self) -> cython.int:
        """Steps from a key to its value."""
        self.space()
        if self.at >= self.end or self.data[self.at] != 58:
            return _UNCLEAR
        self.at += 1
        self.space()
        return _OK

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def field(self, column: JsonColumn, index: cython.longlong, row: cython.longlong, depth: cython.int) -> cython.int:
        """Reads the value of a known field."""
        child: JsonColumn = column.children[index]
        start: cython.longlong
        said: cython.int
        # Of a key that is repeated the last counts, which nobody knows yet.
        if child.count > row or self.colon():
            return _UNCLEAR
        start = self.at
        said = self.value(child, depth + 1)
        if said != _MISFIT:
            return said
        self.at = start
        child.truncate(row)
        child.append_null()
        spill = column.spills[index]
        if spill is not None:
            return self.spilled(spill, depth + 1)
        if self.in_arrays:
            return _MISFIT
        return self.rescue(child.path, depth + 1)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def spilled(self, column: JsonColumn, depth: cython.int) -> cython.int:
        """Reads a value of any kind as text."""
        start: cython.longlong = self.at
        if self.data[self.at] == 34:
            return self.text(column)
        if self.skip(depth):
            return _UNCLEAR
        return column.append_text(self.data, start, self.at - start)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def stranger(self, column: JsonColumn, depth: cython.int, start: cython.longlong) -> cython.int:
        """Rescues the value of a field that has no column."""
        key: bytes = self.content()
        place: tuple[int, bytes] = (start, key)
        # A key that is repeated is a matter of the plain lane.
        if place in self.seen:
            return _UNCLEAR
        self.seen.add(place)
        if self.colon() or self.at >= self.end:
            return _UNCLEAR
        if self.data[self.at] == 110:
            return _OK if self.literal() == 0 else _UNCLEAR
        if self.in_arrays:
            return _MISFIT
        return self.rescue(join(column.path, key.decode()), depth + 1)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def rescue(self, path: str, depth: cython.int) -> cython.int:
        """Keeps the text of the value that is here. Paths that lead through a map are a matter of the plain lane."""
        start: cython.longlong = self.at
        if self.in_maps or self.skip(depth):
            return _UNCLEAR
        self.rescued.append((self.row, path, self.octets(start, self.at - start).decode()))
        return _OK

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def items(self, column: JsonColumn, depth: cython.int) -> cython.int:
        """Reads an array into a list: whole, or not at all."""
        data: cython.p_uchar = self.data
        child: JsonColumn = column.children[0]
        before: cython.longlong = child.count
        said: cython.int = _OK
        if depth > _MAX_DEPTH:
            return _UNCLEAR
        self.at += 1
        self.space()
        if self.at < self.end and data[self.at] == 93:
            self.at += 1
            return column.append_inside()
        self.in_arrays += 1
        while True:
            said = self.value(child, depth + 1)
            if said:
                break
            self.space()
            if self.at >= self.end or (data[self.at] != 44 and data[self.at] != 93):
                said = _UNCLEAR
                break
            self.at += 1
            if data[self.at - 1] == 93:
                break
            self.space()
        self.in_arrays -= 1
        if said:
            child.truncate(before)
            return said
        return column.append_inside() if child.count < _MANY_ITEMS else _UNCLEAR

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def entries(self, column: JsonColumn, depth: cython.int) -> cython.int:
        """Reads an object into a map. One with an entry that does not fit is a matter of the plain lane."""
        data: cython.p_uchar = self.data
        keys: JsonColumn = column.children[0]
        values: JsonColumn = column.children[1]
        before: cython.longlong = keys.count
        start: cython.longlong = self.at
        said: cython.int = _OK
        if depth > _MAX_DEPTH:
            return _UNCLEAR
        self.at += 1
        self.space()
        if self.at < self.end and data[self.at] == 125:
            self.at += 1
            return column.append_inside()
        self.in_maps += 1
        while True:
            if self.at >= self.end or data[self.at] != 34 or self.text(keys):
                return _UNCLEAR
            place: tuple[int, bytes] = (start, self.content())
            if place in self.seen:
                return _UNCLEAR
            self.seen.add(place)
            if self.colon():
                return _UNCLEAR
            said = self.value(values, depth + 1)
            if said:
                break
            self.space()
            if self.at >= self.end or (data[self.at] != 44 and data[self.at] != 125):
                return _UNCLEAR
            self.at += 1
            if data[self.at - 1] == 125:
                break
            self.space()
        self.in_maps -= 1
        if said == _MISFIT and self.in_arrays:
            keys.truncate(before)
            values.truncate(before)
            return _MISFIT
        if said:
            return _UNCLEAR
        return column.append_inside() if keys.count < _MANY_ITEMS else _UNCLEAR
