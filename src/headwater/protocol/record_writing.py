"""Records written one after the other into a growing buffer: the inside of every batch that headwater makes.

They come one at a time, or as rows of columns that lie in memory as Arrow has them (nothing here needs Arrow). Compiled
by Cython (pure Python mode) and correct without it; `record_writing.pxd` is its C side. The size of a record is worked
out, and room made, before a byte of it is written; what is written is `bytes`, which cannot change meanwhile, or a
column, which must not.
"""
# mypy: disallow-untyped-decorators=False

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from headwater.protocol.batches import HEADER_SIZE, NO_TIMESTAMP

try:
    import cython
except ImportError:
    from headwater.protocol import without_cython as cython

if cython.compiled:
    from cython.cimports.cpython.bytearray import PyByteArray_FromStringAndSize, PyByteArray_Resize
    from cython.cimports.cpython.memoryview import PyMemoryView_GET_BUFFER
    from cython.cimports.libc.string import memcpy

if TYPE_CHECKING:
    from typing_extensions import Buffer

EncodedHeaders: TypeAlias = "list[tuple[bytes, bytes | None]]"
"""Names in UTF-8 and contents."""

Picks: TypeAlias = "memoryview | None"
"""The numbers of rows, as 64-bit integers; None for rows in a row."""

# Declared so, a name is a C variable: quick, and invisible from Python.
_HEADER_SIZE = cython.declare(cython.longlong, HEADER_SIZE)
_FARTHEST_TIME_MS = cython.declare(cython.longlong, 2**62)


class RecordWriter:
    """A buffer that begins with room for a batch's header; `at` is where the next record will begin.

    A record is measured, room is made for it by whoever accounts for memory, and then it is written. The C attributes
    and methods are declared in `record_writing.pxd`.

    >>> writer = RecordWriter(1024)
    >>> body_bytes = writer.measure(b"key", b"value", [], 1_700_000_000_000)
    >>> writer.write(body_bytes, b"key", b"value", [], 1_700_000_000_000)
    """

    def __init__(self, capacity_bytes: int) -> None:
        self.buffer: bytearray = _unset_bytes(max(capacity_bytes, HEADER_SIZE))
        self.at: int = HEADER_SIZE
        self.count: int = 0
        self.base_timestamp_ms: int = NO_TIMESTAMP
        self.max_timestamp_ms: int = NO_TIMESTAMP

    def measure(
        self, key: bytes | None, value: bytes | None, headers: EncodedHeaders | None, timestamp_ms: cython.longlong
    ) -> cython.longlong:
        """The bytes of the record, if it is the next one, without the number before it that tells them."""
        delta_ms: cython.longlong
        size: cython.longlong
        if timestamp_ms > _FARTHEST_TIME_MS or timestamp_ms < -_FARTHEST_TIME_MS:
            raise ValueError(f"{timestamp_ms} ms is no time that a record can have")
        delta_ms = timestamp_ms - self.base_timestamp_ms if self.count else 0
        size = (
            1 + size_of_number(delta_ms) + size_of_number(self.count) + _size_of_content(key) + _size_of_content(value)
        )
        if headers is None:
            return size + 1
        size += size_of_number(len(headers))
        for name, content in headers:
            size += _size_of_content(name) + _size_of_content(content)
        return size

    def end_after(self, body_bytes: cython.longlong) -> cython.longlong:
        """Where the buffer must at least reach for a record of this size."""
        return self.at + size_of_number(body_bytes) + body_bytes

    def resize(self, capacity_bytes: cython.Py_ssize_t) -> cython.bint:
        """Makes the buffer so large; True for the C side's sake."""
        if cython.compiled:
            PyByteArray_Resize(self.buffer, capacity_bytes)
        elif capacity_bytes > len(self.buffer):
            self.buffer += bytes(capacity_bytes - len(self.buffer))
        else:
            del self.buffer[capacity_bytes:]
        return True

    def release(self) -> None:
        """Lets go of the buffer; what is known about the records stays."""
        self.buffer = bytearray()

    def add(
        self, key: bytes | None, value: bytes | None, headers: EncodedHeaders | None, timestamp_ms: cython.longlong
    ) -> cython.bint:
        """Writes a record and makes the room for it; True for the C side's sake."""
        body_bytes: cython.longlong = self.measure(key, value, headers, timestamp_ms)
        end: cython.longlong = self.end_after(body_bytes)
        if end > len(self.buffer):
            self.resize(end + len(self.buffer))
        return self.write(body_bytes, key, value, headers, timestamp_ms)

    def write(
        self,
        body_bytes: cython.longlong,
        key: bytes | None,
        value: bytes | None,
        headers: EncodedHeaders | None,
        timestamp_ms: cython.longlong,
    ) -> cython.bint:
        """Writes the record that was just measured, for which there is room; True for the C side's sake."""
        target: cython.p_uchar
        at: cython.longlong
        if self.end_after(body_bytes) > len(self.buffer):
            raise ValueError(f"no room for a record of {body_bytes} bytes at {self.at} of {len(self.buffer)}")
        if self.count == 0:
            self.base_timestamp_ms = self.max_timestamp_ms = timestamp_ms
        elif timestamp_ms > self.max_timestamp_ms:
            self.max_timestamp_ms = timestamp_ms
        target = self.buffer
        at = put_number(target, self.at, body_bytes)
        # The attributes of a record, of which none is in use.
        target[at] = 0
        at = put_number(target, at + 1, timestamp_ms - self.base_timestamp_ms)
        at = put_number(target, at, self.count)
        at = _put_field(target, at, key)
        at = _put_field(target, at, value)
        if headers is None:
            target[at] = 0
            at += 1
        else:
            at = put_number(target, at, len(headers))
            for name, content in headers:
                at = _put_field(target, at, name)
                at = _put_field(target, at, content)
        self.at = at
        self.count += 1
        return True


class BinaryRows:
    """A column of byte strings, some of them null, as Arrow lays them out.

    Row `i` is `data[offsets[first + i]:offsets[first + i + 1]]`; the offsets are 64-bit numbers if `wide`, else 32-bit.
    It is null where the bit `first + i` of `validity`, counted from the lowest, is 0.

    >>> rows = BinaryRows(b"onetwo", array("i", [0, 3, 6]), None, count=2)
    """

    def __init__(
        self,
        data: Buffer | None,
        offsets: Buffer,
        validity: Buffer | None = None,
        *,
        count: int,
        first: int = 0,
        wide: bool = False,
    ) -> None:
        self.count: int = count
        self.first: int = first
        self.wide: bool = wide
        self.data = _bytes_of(b"" if data is None else data)
        self.offsets = _bytes_of(offsets)
        self.validity = None if validity is None else _bytes_of(validity)
        width = 8 if wide else 4
        if count < 0 or first < 0 or (count > 0 and len(self.offsets) < (first + count + 1) * width):
            raise ValueError(f"{len(self.offsets)} bytes of offsets are too few for {count} rows from row {first} on")
        if self.validity is not None and len(self.validity) * 8 < first + count:
            raise ValueError(f"{len(self.validity)} bytes of validity are too few for {count} rows from row {first} on")
        if not cython.compiled:
            self.narrow_offsets = self.offsets[: len(self.offsets) & ~3].cast("i")
            self.wide_offsets = self.offsets[: len(self.offsets) & ~7].cast("q")
            self.octets = self.data
            self.bits = memoryview(b"") if self.validity is None else self.validity
        else:
            self.narrow_offsets = cython.cast(cython.p_int, PyMemoryView_GET_BUFFER(self.offsets).buf)
            self.wide_offsets = cython.cast(cython.p_longlong, PyMemoryView_GET_BUFFER(self.offsets).buf)
            self.octets = cython.cast(cython.p_uchar, PyMemoryView_GET_BUFFER(self.data).buf)
            self.bits = cython.NULL
            if self.validity is not None:
                self.bits = cython.cast(cython.p_uchar, PyMemoryView_GET_BUFFER(self.validity).buf)
        self._check()

    def __len__(self) -> int:
        return self.count

    def _check(self) -> None:
        """No row may begin before the one before it ends, nor end after the data."""
        row: cython.longlong
        last: cython.longlong = 0
        end: cython.longlong = len(self.data)
        if self.count == 0:
            return
        for row in range(self.count + 1):
            at: cython.longlong = self.offset(row)
            if at < last or at > end:
                raise ValueError(f"row {row} of a column begins at {at}, before {last} or behind {end}")
            last = at

    def offset(self, row: cython.longlong) -> cython.longlong:
        """Where a row begins."""
        return self.wide_offsets[self.first + row] if self.wide else self.narrow_offsets[self.first + row]

    def size(self, row: cython.longlong) -> cython.longlong:
        """The bytes of a row; -1 for null."""
        at: cython.longlong = self.first + row
        if self.validity is not None and not self.bits[at >> 3] >> (at & 7) & 1:
            return -1
        if self.wide:
            return self.wide_offsets[at + 1] - self.wide_offsets[at]
        return self.narrow_offsets[at + 1] - self.narrow_offsets[at]


class RecordRows:
    """Records by column: keys and values, of which either may be missing, and their times.

    Without a column of times all records have `timestamp_ms`.
    """

    def __init__(
        self,
        keys: BinaryRows | None,
        values: BinaryRows | None,
        *,
        timestamp_ms: int,
        timestamps_ms: Buffer | None = None,
    ) -> None:
        if keys is None and values is None:
            raise ValueError("records need keys, values or both")
        self.keys = keys
        self.values = values
        self.count: int = values.count if values is not None else keys.count if keys is not None else 0
        self.timestamp_ms: int = timestamp_ms
        self.times = None if timestamps_ms is None else _bytes_of(timestamps_ms)
        if keys is not None and keys.count != self.count:
            raise ValueError(f"{keys.count} keys do not fit {self.count} values")
        if self.times is not None and len(self.times) < 8 * self.count:
            raise ValueError(f"{len(self.times)} bytes of timestamps are too few for {self.count} records")
        self.fitting: int = 0
        if not cython.compiled:
            self.longs = memoryview(b"") if self.times is None else self.times[: 8 * self.count].cast("q")
        elif self.times is not None:
            self.longs = cython.cast(cython.p_longlong, PyMemoryView_GET_BUFFER(self.times).buf)

    def __len__(self) -> int:
        return self.count

    def time_ms(self, picks: Picks, place: cython.longlong) -> cython.longlong:
        """The timestamp of a row."""
        if self.times is None:
            return self.timestamp_ms
        return self.longs[place] if picks is None else self.longs[picks[place]]

    def measure(
        self,
        writer: RecordWriter,
        picks: Picks,
        start: cython.longlong,
        stop: cython.longlong,
        limit_bytes: cython.longlong,
    ) -> cython.longlong:
        """How far into its buffer the writer would come with as many of the rows as stay below the limit.

        `fitting` says how many that are. The rows are those from `start` to `stop`, or `picks[start:stop]`: see
        `picked_rows`.
        """
        chosen: cython.p_longlong = _longs_of(picks)
        place: cython.longlong
        row: cython.longlong
        time_ms: cython.longlong
        body: cython.longlong
        at: cython.longlong = writer.at
        end: cython.longlong
        base_ms: cython.longlong = writer.base_timestamp_ms
        count: cython.longlong = writer.count
        self.fitting = 0
        for place in range(start, stop):
            row = place if picks is None else chosen[place]
            if row < 0 or row >= self.count:
                raise IndexError(f"there is no row {row} in columns of {self.count}")
            time_ms = self.timestamp_ms if self.times is None else self.longs[row]
            if time_ms > _FARTHEST_TIME_MS or time_ms < 0:
                raise ValueError(f"row {row} has the timestamp {time_ms} ms, which no record can have")
            if count == 0:
                base_ms = time_ms
            body = 2 + size_of_number(time_ms - base_ms) + size_of_number(count)
            body += 1 if self.keys is None else _size_of_field(self.keys.size(row))
            body += 1 if self.values is None else _size_of_field(self.values.size(row))
            end = at + size_of_number(body) + body
            if end > limit_bytes:
                break
            at = end
            count += 1
        self.fitting = count - writer.count
        return at

    def write(
        self,
        writer: RecordWriter,
        picks: Picks,
        start: cython.longlong,
        stop: cython.longlong,
    ) -> cython.bint:
        """Writes rows that were measured and for which the writer's buffer has room; True for the C side's sake."""
        chosen: cython.p_longlong = _longs_of(picks)
        target: cython.p_uchar = writer.buffer
        place: cython.longlong
        row: cython.longlong
        time_ms: cython.longlong
        key_size: cython.longlong = -1
        value_size: cython.longlong = -1
        delta_size: cython.longlong
        at: cython.longlong = writer.at
        for place in range(start, stop):
            row = place if picks is None else chosen[place]
            time_ms = self.timestamp_ms if self.times is None else self.longs[row]
            if writer.count == 0:
                writer.base_timestamp_ms = writer.max_timestamp_ms = time_ms
            elif time_ms > writer.max_timestamp_ms:
                writer.max_timestamp_ms = time_ms
            if self.keys is not None:
                key_size = self.keys.size(row)
            if self.values is not None:
                value_size = self.values.size(row)
            delta_size = size_of_number(time_ms - writer.base_timestamp_ms) + size_of_number(writer.count)
            at = put_number(target, at, 2 + delta_size + _size_of_field(key_size) + _size_of_field(value_size))
            # The attributes of a record, of which none is in use.
            target[at] = 0
            at = put_number(target, at + 1, time_ms - writer.base_timestamp_ms)
            at = put_number(target, at, writer.count)
            at = _put_row(target, at, self.keys, row, key_size)
            at = _put_row(target, at, self.values, row, value_size)
            # No headers.
            target[at] = 0
            at += 1
            writer.count += 1
        writer.at = at
        return True


def encoded_headers(headers: Sequence[tuple[str, Buffer | None]]) -> EncodedHeaders:
    """Headers as they are written; a name that is not `str`, or a content that has no bytes, is an error."""
    return [(name.encode(), as_bytes(content)) for name, content in headers]


def as_bytes(content: Buffer | None) -> bytes | None:
    """The content of anything that has bytes, and null as it is."""
    if content is None or type(content) is bytes:
        return content
    # Through a view, because bytes(7) would be seven zeros and not an error.
    return bytes(memoryview(content))


@cython.cfunc
def _unset_bytes(size: cython.Py_ssize_t) -> bytearray:
    """Room to write to. Compiled, it is not even cleared: what is never written costs no memory."""
    if cython.compiled:
        room: bytearray = PyByteArray_FromStringAndSize(cython.NULL, size)
        return room
    else:  # noqa: RET505
        return bytearray(size)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _zig_zag(value: cython.longlong) -> cython.ulonglong:
    return (value << 1) ^ (value >> 63)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def size_of_number(value: cython.longlong) -> cython.longlong:
    """The bytes of a zig-zag number."""
    raw: cython.ulonglong = _zig_zag(value)
    size: cython.longlong = 1
    while raw >= 0x80:
        raw >>= 7
        size += 1
    return size


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _size_of_field(size: cython.longlong) -> cython.longlong:
    """Of a length and so many bytes; a null is the length -1."""
    return 1 if size < 0 else size_of_number(size) + size


@cython.cfunc
@cython.inline
def _size_of_content(content: bytes | None) -> cython.longlong:
    return 1 if content is None else _size_of_field(len(content))


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def put_number(target: cython.p_uchar, at: cython.longlong, value: cython.longlong) -> cython.longlong:
    """Writes a zig-zag number; the index after it."""
    raw: cython.ulonglong = _zig_zag(value)
    while raw >= 0x80:
        target[at] = raw & 0x7F | 0x80
        raw >>= 7
        at += 1
    target[at] = raw
    return at + 1


@cython.cfunc
@cython.inline
def _put_field(target: cython.p_uchar, at: cython.longlong, content: bytes | None) -> cython.longlong:
    """Writes a length and its bytes; the index after them."""
    source: cython.p_uchar
    if content is None:
        return put_number(target, at, -1)
    at = put_number(target, at, len(content))
    source = content
    if cython.compiled:
        memcpy(target + at, source, len(content))
    else:
        target[at : at + len(content)] = source
    return at + len(content)


def _bytes_of(buffer: Buffer) -> memoryview:
    """The buffer as single bytes in a row."""
    view = memoryview(buffer)
    # Empty views of wider items cannot be cast.
    return memoryview(b"") if view.nbytes == 0 else view.cast("B")


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _longs_of(numbers: memoryview | None) -> cython.p_longlong:
    """The 64-bit numbers behind a view: a C pointer when compiled, else the view itself."""
    if cython.compiled:
        return cython.NULL if numbers is None else cython.cast(cython.p_longlong, PyMemoryView_GET_BUFFER(numbers).buf)
    else:  # noqa: RET505
        return numbers


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put_row(
    target: cython.p_uchar, at: cython.longlong, column: BinaryRows | None, row: cython.longlong, size: cython.longlong
) -> cython.longlong:
    """Writes a length and the bytes of a row; the index after them."""
    at = put_number(target, at, size)
    if column is None or size <= 0:
        return at
    if cython.compiled:
        memcpy(target + at, column.octets + column.offset(row), size)
    else:
        start = column.offset(row)
        target[at : at + size] = column.octets[start : start + size]
    return at + size
