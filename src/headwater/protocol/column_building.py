"""Records into columns, in the layout of Arrow: the inner loops behind `record_columns`.

Compiled by Cython (pure Python mode) and correct without it. Room is made before anything is written, and never for
more than the bytes at hand can fill.
"""
# mypy: disallow-untyped-decorators=False

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, TypeAlias

try:
    import cython
except ImportError:
    from headwater.protocol import without_cython as cython

if cython.compiled:
    from cython.cimports.cpython.array import resize_smart
    from cython.cimports.cpython.bytearray import PyByteArray_Resize
    from cython.cimports.headwater.protocol.raw_memory import copy, ints, longs
    from cython.cimports.headwater.protocol.record_reading import (
        HeaderReader,
        RecordReader,
        address,
        octets_at,
        open_batch,
    )
else:
    from headwater.protocol.raw_memory import copy, ints, longs
    from headwater.protocol.record_reading import HeaderReader, RecordReader, address, octets_at, open_batch

if TYPE_CHECKING:
    from headwater.protocol.batches import BatchHeader

BinaryData: TypeAlias = bytearray | memoryview
BinaryParts: TypeAlias = "tuple[BinaryData, array[int], bytearray | None, int]"
"""Data, offsets, validity and null count of one column."""

LARGEST_COLUMN_BYTES = 2**31 - 1
"""What the offsets of a column can reach."""

# Declared so, a name is a C variable: quick, and invisible from Python.
_LARGEST_COLUMN_BYTES = cython.declare(cython.longlong, LARGEST_COLUMN_BYTES)


@cython.final
@cython.cclass
class BinaryBuilder:
    """A BinaryColumn in the making. Room for items is reserved before they are appended; that for bytes grows.

    With `memory` the bytes go there, and the column has a view of it: who lent it sees when it is free again.
    """

    data: bytearray
    offsets: array[int]
    validity: bytearray
    target: cython.p_uchar
    ends: cython.p_int
    bits: cython.p_uchar
    count: cython.longlong
    room: cython.longlong
    used: cython.longlong
    capacity: cython.longlong
    null_count: cython.longlong
    lent: cython.bint

    def __init__(self, memory: bytearray | None = None) -> None:
        self.lent = memory is not None
        self.data = bytearray() if memory is None else memory
        self.offsets = array("i", bytes(4))
        self.validity = bytearray()
        self.target = self.data
        self.ends = ints(self.offsets)
        self.bits = self.validity
        self.count = self.room = self.used = self.null_count = 0
        self.capacity = len(self.data)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def reserve(self, items: cython.longlong, size: cython.longlong) -> cython.int:
        """Makes room for so many items more, and for so many bytes."""
        room: cython.longlong = self.count + items
        if room > self.room:
            if room < self.room * 2:
                room = self.room * 2
            # Every bit is set until a null clears it.
            self.validity += b"\xff" * (((room + 7) >> 3) - len(self.validity))
            self.bits = self.validity
            _resize_array(self.offsets, room + 1)
            self.ends = ints(self.offsets)
            self.room = room
        if self.used + size > self.capacity:
            self.grow(size)
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def grow(self, size: cython.longlong) -> cython.int:
        """Makes room for so many bytes more, and for some to come."""
        capacity: cython.longlong = self.used + size
        if capacity > _LARGEST_COLUMN_BYTES:
            raise ValueError(f"{capacity} bytes are too many for one column; decode fewer records")
        if capacity < self.capacity * 2:
            capacity = min(self.capacity * 2, _LARGEST_COLUMN_BYTES)
        _resize_bytes(self.data, capacity)
        self.capacity = capacity
        self.target = self.data
        return 0

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def append(self, source: cython.p_uchar, at: cython.longlong, size: cython.longlong) -> cython.int:
        """Copies one item, for which there is room; one of a size below 0 is a null."""
        if size > 0:
            if self.used + size > self.capacity:
                with cython.gil:
                    self.grow(size)
            copy(self.target, self.used, source, at, size)
            self.used += size
        elif size < 0:
            self.bits[self.count >> 3] ^= 1 << (self.count & 7)
            self.null_count += 1
        self.count += 1
        self.ends[self.count] = self.used
        return 0

    def extend(self, data: BinaryData, offsets: array[int], validity: bytearray | None, null_count: int) -> None:
        """Appends all items of a column."""
        items: cython.longlong = len(offsets) - 1
        size: cython.longlong = len(data)
        row: cython.longlong
        view = memoryview(data)
        source: cython.p_uchar = address(view)
        ends: cython.p_int = ints(offsets)
        bits: cython.p_uchar
        self.reserve(items, size)
        copy(self.target, self.used, source, 0, size)
        for row in range(items):
            self.ends[self.count + row + 1] = self.used + ends[row + 1]
        if validity is not None:
            bits = validity
            for row in range(items):
                if not bits[row >> 3] >> (row & 7) & 1:
                    self.bits[(self.count + row) >> 3] ^= 1 << ((self.count + row) & 7)
        self.count += items
        self.used += size
        self.null_count += null_count

    @cython.ccall
    def parts(self) -> BinaryParts:
        """The column; nothing may be appended any more."""
        data: BinaryData = self.data
        if self.lent:
            data = memoryview(self.data)[: self.used]
        else:
            del self.data[self.used :]
        del self.offsets[self.count + 1 :]
        del self.validity[(self.count + 7) >> 3 :]
        return data, self.offsets, self.validity if self.null_count else None, self.null_count


@cython.final
@cython.cclass
class ColumnsBuilder:
    """Turns the records of batch after batch into the arrays behind `record_columns`.

    `expected_bytes` of records are made room for at once. `size_bytes` is at least what the longest column holds.
    Values go into `memory` if there is some.
    """

    rows: int = cython.declare(cython.longlong, visibility="readonly")
    size_bytes: int = cython.declare(cython.longlong, visibility="readonly")
    expected_bytes: cython.longlong
    offsets: array[int]
    timestamps_ms: array[int]
    keys: BinaryBuilder
    values: BinaryBuilder
    headers: BinaryBuilder

    def __init__(self, expected_bytes: int = 0, memory: bytearray | None = None) -> None:
        self.rows = self.size_bytes = 0
        self.expected_bytes = min(expected_bytes, LARGEST_COLUMN_BYTES)
        self.offsets = array("q")
        self.timestamps_ms = array("q")
        self.keys = BinaryBuilder()
        self.values = BinaryBuilder(memory)
        self.headers = BinaryBuilder()

    def append_batch(self, view: memoryview, header: BatchHeader, limit_bytes: int, from_offset: int) -> None:
        """Takes all records of a batch from this offset on; CorruptBatchError if they are not what it promises."""
        reader: RecordReader = open_batch(view, header, limit_bytes)
        self.append(reader, from_offset, reader.remaining)
        reader.finish()

    def append(self, reader: RecordReader, from_offset: int, max_rows: int) -> int:
        """Takes up to so many rows, from this offset on; the offset behind the last one.

        It ends early where the bytes make no sense: whoever opened the reader asks it how it went.
        """
        next_offset: cython.longlong = from_offset
        offset: cython.longlong
        behind: int
        row: cython.longlong = self.rows
        limit: cython.longlong = max_rows
        stop: cython.longlong = row + min(limit, reader.remaining)
        keys: BinaryBuilder = self.keys
        values: BinaryBuilder = self.values
        headers: BinaryBuilder = self.headers
        to_offsets: cython.p_longlong
        to_timestamps_ms: cython.p_longlong
        self.reserve(stop, reader.end - reader.at)
        to_offsets = longs(self.offsets)
        to_timestamps_ms = longs(self.timestamps_ms)
        # Nothing of Python is needed from here on, and other threads have something to do: they receive the next.
        with cython.nogil:
            while row < stop and reader.advance():
                offset = reader.base_offset + reader.offset_delta
                if offset < next_offset:
                    continue
                next_offset = offset + 1
                to_offsets[row] = offset
                if reader.takes_append_time:
                    to_timestamps_ms[row] = reader.append_time_ms
                else:
                    to_timestamps_ms[row] = reader.base_timestamp_ms + reader.timestamp_delta
                row += 1
                keys.append(reader.data, reader.key_at, reader.key_size)
                values.append(reader.data, reader.value_at, reader.value_size)
                headers.append(
                    reader.data, reader.headers_at, reader.at - reader.headers_at if reader.headers_count else 0
                )
        self.rows = row
        behind = next_offset
        return behind

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def reserve(self, rows: cython.longlong, size: cython.longlong) -> cython.int:
        """Makes room for so many rows in all, and for so many bytes of records more."""
        more: cython.longlong = rows - self.rows
        room: cython.longlong = size
        self.size_bytes += size
        if self.expected_bytes > size > 0:
            # Until it is known better, all are like the first.
            more = more * self.expected_bytes // size
            room = self.expected_bytes
        self.expected_bytes = 0
        if rows > len(self.offsets):
            rows = max(self.rows + more, 2 * len(self.offsets))
            _resize_array(self.offsets, rows)
            _resize_array(self.timestamps_ms, rows)
        self.keys.reserve(more, 0)
        # Most bytes are those of values. To ask for as many for the rest would cost more than to let it grow.
        self.values.reserve(more, room)
        self.headers.reserve(more, 0)
        return 0

    def columns(self) -> tuple[array[int], array[int], BinaryParts, BinaryParts, BinaryParts]:
        """Offsets, timestamps in ms, keys, values and undecoded headers; nothing may be appended any more."""
        del self.offsets[self.rows :]
        del self.timestamps_ms[self.rows :]
        return self.offsets, self.timestamps_ms, self.keys.parts(), self.values.parts(), self.headers.parts()


def split_headers(sections: BinaryData, section_ends: array[int]) -> tuple[array[int], BinaryParts, BinaryParts]:
    """A column of undecoded headers as lists: their offsets, and the names and contents of all headers in a row.

    Names that are not UTF-8 are made so, as well as possible.
    """
    rows: cython.longlong = len(section_ends) - 1
    row: cython.longlong
    view = memoryview(sections)
    data: cython.p_uchar = address(view)
    ends: cython.p_int = ints(section_ends)
    names: BinaryBuilder = BinaryBuilder()
    contents: BinaryBuilder = BinaryBuilder()
    header: HeaderReader = HeaderReader()
    lists = array("i", bytes(4)) * (rows + 1)
    list_ends: cython.p_int = ints(lists)
    for row in range(rows):
        if ends[row] < ends[row + 1]:
            header.start(data, ends[row], ends[row + 1])
            names.reserve(header.remaining, 0)
            contents.reserve(header.remaining, 0)
            while header.advance():
                _append_text(names, data, header.name_at, header.name_size)
                contents.append(data, header.content_at, header.content_size)
        list_ends[row + 1] = names.count
    return lists, names.parts(), contents.parts()


@cython.cfunc
@cython.exceptval(-1, check=False)
def _append_text(names: BinaryBuilder, data: cython.p_uchar, at: cython.longlong, size: cython.longlong) -> cython.int:
    index: cython.longlong
    for index in range(at, at + size):
        if data[index] >= 0x80:
            break
    else:
        names.append(data, at, size)
        return 0
    raw: bytes = octets_at(data, at, size)
    text: bytes = raw.decode("utf-8", "replace").encode()
    source: cython.p_uchar = text
    names.append(source, 0, len(text))
    return 0


@cython.cfunc
@cython.exceptval(-1, check=False)
def _resize_bytes(room: bytearray, size: cython.Py_ssize_t) -> cython.int:
    """Makes it larger. Compiled, the new part is not even cleared: what is never written costs no memory."""
    if cython.compiled:
        PyByteArray_Resize(room, size)
    else:
        room += bytes(size - len(room))
    return 0


@cython.cfunc
@cython.exceptval(-1, check=False)
def _resize_array(numbers: array[int], size: cython.Py_ssize_t) -> cython.int:
    """The same for an array."""
    if cython.compiled:
        resize_smart(numbers, size)
    else:
        numbers.frombytes(bytes(numbers.itemsize * (size - len(numbers))))
    return 0
