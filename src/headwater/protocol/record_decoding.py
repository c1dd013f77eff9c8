"""Batches into records: one at a time for a person or a rule, or all at once as columns.

Compiled by Cython (pure Python mode) and correct without it. Every length here was written by a stranger:
nothing is read before it was compared with the end of the records, and no room is made for what they cannot
hold.
"""
# mypy: disallow-untyped-decorators=False

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from headwater.protocol import compression as codecs
from headwater.protocol.batches import HEADER_SIZE, NO_TIMESTAMP, BatchHeader, CorruptBatchError, octets

try:
    import cython
except ImportError:
    from headwater.protocol import without_cython as cython

if cython.compiled:
    from cython.cimports.cpython.array import array as c_array
    from cython.cimports.cpython.bytearray import PyByteArray_FromStringAndSize
    from cython.cimports.cpython.memoryview import PyMemoryView_GET_BUFFER
    from cython.cimports.libc.string import memcpy

if TYPE_CHECKING:
    from typing_extensions import Buffer

    # Data, offsets, validity and null count of one column.
    BinaryParts: TypeAlias = tuple[bytearray, array[int], bytearray | None, int]

RecordHeaders: TypeAlias = tuple[tuple[str, bytes | None], ...]

DECOMPRESSED_LIMIT_BYTES: Final = 128 << 20
"""The most that the records of one batch may take when decompressed, unless the caller says otherwise."""

# Declared so, a name is a C variable: quick, and invisible from Python.
_LARGEST_COLUMN_BYTES = cython.declare(cython.longlong, 2**31 - 1)
_SMALLEST_RECORD_BYTES = cython.declare(cython.longlong, 7)
_NO_TIMESTAMP = cython.declare(cython.longlong, NO_TIMESTAMP)
_EARLIEST_MS = cython.declare(cython.longlong, 1 - 2**63)
_LATEST_MS = cython.declare(cython.longlong, 2**63 - 1)
# A delta beyond this is nonsense, and added to a base that is below it too it never overflows.
_FARTHEST_TIME_MS = cython.declare(cython.longlong, 2**62)


@cython.final
@cython.cclass
class Record:
    """One record, with its place and time in the partition."""

    offset: int = cython.declare(cython.longlong, visibility="public")
    timestamp_ms: int = cython.declare(cython.longlong, visibility="public")
    key: bytes | None = cython.declare(object, visibility="public")
    value: bytes | None = cython.declare(object, visibility="public")
    headers: RecordHeaders = cython.declare(object, visibility="public")

    def __init__(
        self,
        offset: int,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: RecordHeaders = (),
    ) -> None:
        self.offset = offset
        self.timestamp_ms = timestamp_ms
        self.key = key
        self.value = value
        self.headers = headers

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Record):
            return NotImplemented
        return (self.offset, self.timestamp_ms, self.key, self.value, self.headers) == (
            other.offset,
            other.timestamp_ms,
            other.key,
            other.value,
            other.headers,
        )

    def __hash__(self) -> int:
        return hash((self.offset, self.timestamp_ms, self.key, self.value))

    def __repr__(self) -> str:
        return (
            f"Record(offset={self.offset}, timestamp_ms={self.timestamp_ms}, key={self.key!r}, "
            f"value={self.value!r}, headers={self.headers!r})"
        )


class RecordProblem(NamedTuple):
    """Why the record at `batch_index` in its batch is refused; `reason` is 'null key' or 'timestamp'."""

    batch_index: int
    reason: str
    message: str


def decode_records(buffer: Buffer, header: BatchHeader, *, limit_bytes: int = DECOMPRESSED_LIMIT_BYTES) -> list[Record]:
    """The records of one batch; CorruptBatchError if they are not what the header promises."""
    reader: _RecordReader = _open_batch(octets(buffer), header, limit_bytes)
    record: Record
    records: list[Record] = []
    while reader.advance():
        record = Record.__new__(Record)
        record.offset = reader.offset()
        record.timestamp_ms = reader.timestamp_ms()
        record.key = _octets(reader.data, reader.key_at, reader.key_size)
        record.value = _octets(reader.data, reader.value_at, reader.value_size)
        record.headers = _headers(reader) if reader.headers_count else ()
        records.append(record)
    reader.finish()
    return records


def validate_records(
    buffer: Buffer,
    header: BatchHeader,
    *,
    require_keys: bool,
    min_timestamp_ms: int | None,
    max_timestamp_ms: int | None,
    limit_bytes: int = DECOMPRESSED_LIMIT_BYTES,
) -> list[RecordProblem]:
    """What a topic's rules have against the records of a producer's batch; nothing if they may be appended.

    CorruptBatchError if they do not parse or do not take one offset after the other. A record without a time
    passes.
    """
    index: cython.longlong = 0
    time_ms: cython.longlong
    needs_key: cython.bint = require_keys
    earliest_ms: cython.longlong = _EARLIEST_MS if min_timestamp_ms is None else min_timestamp_ms
    latest_ms: cython.longlong = _LATEST_MS if max_timestamp_ms is None else max_timestamp_ms
    problems: list[RecordProblem] = []
    reader: _RecordReader = _open_batch(octets(buffer), header, limit_bytes)
    while reader.advance():
        if reader.offset_delta != index:
            raise CorruptBatchError(header.position, f"record {index} has offset delta {reader.offset_delta}")
        if needs_key and reader.key_size < 0:
            problems.append(RecordProblem(index, "null key", "a compacted topic takes only records with keys"))
        time_ms = reader.timestamp_ms()
        if time_ms != _NO_TIMESTAMP and (time_ms < earliest_ms or time_ms > latest_ms):
            words = _out_of_range(time_ms, min_timestamp_ms, max_timestamp_ms)
            problems.append(RecordProblem(index, "timestamp", words))
        index += 1
    reader.finish()
    return problems


def decode_headers(section: bytes) -> RecordHeaders:
    """The headers of a record from their bytes, which a ColumnsBuilder has copied and checked."""
    headers: RecordHeaders = _headers(_read_section(memoryview(section))) if section else ()
    return headers


def records_section(buffer: Buffer, header: BatchHeader, *, limit_bytes: int = DECOMPRESSED_LIMIT_BYTES) -> memoryview:
    """The bytes of the records of a batch, decompressed where needed."""
    reader: _RecordReader = _open_batch(octets(buffer), header, limit_bytes)
    return reader.view


def unpack_section(
    buffer: Buffer,
    header: BatchHeader,
    target: bytearray,
    at: int,
    *,
    limit_bytes: int = DECOMPRESSED_LIMIT_BYTES,
) -> int:
    """Decompress the records of a batch into a buffer from `at` on, which is made longer where needed; their end there.

    For whoever goes through many batches: `records_section` takes new memory for each.
    """
    section = octets(buffer)[header.position + HEADER_SIZE : header.position + header.size]
    try:
        return codecs.decompress_onto(header.compression, section, target, at, limit_bytes)
    except codecs.DecompressionError as error:
        raise CorruptBatchError(header.position, str(error)) from error


def _out_of_range(time_ms: int, min_timestamp_ms: int | None, max_timestamp_ms: int | None) -> str:
    earliest = "-" if min_timestamp_ms is None else min_timestamp_ms
    latest = "-" if max_timestamp_ms is None else max_timestamp_ms
    return f"timestamp {time_ms} is out of the range that the topic takes, [{earliest}, {latest}]"


@cython.final
@cython.cclass
class _RecordReader:
    """Goes from record to record over bytes that may hold anything; describes the record that it stands on.

    A size of -1 is a null; nothing else below 0 gets through.
    """

    position: cython.longlong
    view: memoryview
    data: cython.p_uchar
    at: cython.longlong
    end: cython.longlong
    records_count: cython.longlong
    remaining: cython.longlong
    base_offset: cython.longlong
    last_offset_delta: cython.longlong
    base_timestamp_ms: cython.longlong
    append_time_ms: cython.longlong
    takes_append_time: cython.bint
    failed: cython.bint
    timestamp_delta: cython.longlong
    offset_delta: cython.longlong
    key_at: cython.longlong
    key_size: cython.longlong
    value_at: cython.longlong
    value_size: cython.longlong
    headers_at: cython.longlong
    headers_count: cython.longlong

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def advance(self) -> cython.bint:
        """Steps to the next record. False at the end or where the bytes make no sense; `finish` knows."""
        data: cython.p_uchar = self.data
        at: cython.longlong
        end: cython.longlong
        size: cython.longlong
        if self.remaining <= 0:
            return False
        self.failed = True
        size, at = _number(data, self.at, self.end, 5)
        end = at + size
        if size < 0 or end > self.end:
            return False
        # One byte of attributes, of which none is in use, comes first.
        self.timestamp_delta, at = _number(data, at + 1, end, 10)
        self.offset_delta, at = _number(data, at, end, 5)
        self.key_size, at = _number(data, at, end, 5)
        self.key_at = at
        if self.key_size > 0:
            at += self.key_size
        self.value_size, at = _number(data, at, end, 5)
        self.value_at = at
        if self.value_size > 0:
            at += self.value_size
        self.headers_at = at
        self.headers_count, at = _number(data, at, end, 5)
        if self.headers_count != 0:
            at = _skip_headers(data, at, end, self.headers_count)
        # A number that could not be read has left `at` behind the end, and so have sizes that lie.
        if at != end or self.key_size < -1 or self.value_size < -1:
            return False
        if self.offset_delta < 0 or self.offset_delta > self.last_offset_delta:
            return False
        if self.timestamp_delta > _FARTHEST_TIME_MS or self.timestamp_delta < -_FARTHEST_TIME_MS:
            return False
        self.failed = False
        self.at = at
        self.remaining -= 1
        return True

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def offset(self) -> cython.longlong:
        return self.base_offset + self.offset_delta

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def timestamp_ms(self) -> cython.longlong:
        if self.takes_append_time:
            return self.append_time_ms
        return self.base_timestamp_ms + self.timestamp_delta

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def headers_size(self) -> cython.longlong:
        """Of the headers with their number, or 0 if there are none."""
        return self.at - self.headers_at if self.headers_count else 0

    @cython.cfunc
    def finish(self) -> cython.bint:
        """CorruptBatchError unless every record was read and nothing is left."""
        if self.failed:
            index = self.records_count - self.remaining
            raise CorruptBatchError(self.position, f"record {index} of {self.records_count} does not parse")
        if self.at != self.end:
            raise CorruptBatchError(self.position, f"{self.end - self.at} bytes are left behind the last record")
        return True


@cython.cfunc
def _read_section(section: memoryview) -> _RecordReader:
    """A reader of these bytes, which stands before the first."""
    reader: _RecordReader = _RecordReader.__new__(_RecordReader)
    reader.view = section
    reader.data = _address(section)
    reader.at = 0
    reader.end = len(section)
    reader.headers_at = 0
    reader.failed = False
    return reader


@cython.cfunc
def _open_batch(view: memoryview, header: BatchHeader, limit_bytes: int) -> _RecordReader:
    """A reader that stands before the first record of the batch, decompressed where needed."""
    start, end, codec, records_count, base_offset, last_delta, base_time_ms, append_time_ms = header.layout()
    if end > len(view):
        raise ValueError(f"a buffer of {len(view)} bytes does not hold {header!r}")
    section = view[start:end]
    if codec:
        section = _decompress(codec, section, limit_bytes, header)
    reader: _RecordReader = _read_section(section)
    reader.position = header.position
    reader.records_count = reader.remaining = records_count
    reader.base_offset = base_offset
    reader.last_offset_delta = last_delta
    reader.base_timestamp_ms = base_time_ms
    reader.takes_append_time = append_time_ms is not None
    reader.append_time_ms = append_time_ms or 0
    if reader.records_count * _SMALLEST_RECORD_BYTES > reader.end:
        raise CorruptBatchError(header.position, f"{records_count} records in {reader.end} bytes")
    return reader


def _decompress(codec: int, section: memoryview, limit_bytes: int, header: BatchHeader) -> memoryview:
    try:
        return codecs.decompress(codec, section, limit_bytes)
    except codecs.DecompressionError as error:
        raise CorruptBatchError(header.position, str(error)) from error


@cython.final
@cython.cclass
class _BinaryBuilder:
    """A BinaryColumn in the making, with room for so many items; that for their bytes grows when needed."""

    data: bytearray
    offsets: array[int]
    validity: bytearray
    target: cython.p_uchar
    ends: cython.p_int
    bits: cython.p_uchar
    count: cython.longlong
    used: cython.longlong
    capacity: cython.longlong
    null_count: cython.longlong

    def __init__(self, count: int, size: int) -> None:
        self.data = _unset_bytes(size)
        self.offsets = array("i", bytes(4)) * (count + 1)
        self.validity = bytearray(b"\xff") * ((count + 7) >> 3)
        self.target = self.data
        self.ends = _ints(self.offsets)
        self.bits = self.validity
        self.count = 0
        self.used = 0
        self.capacity = size
        self.null_count = 0

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1, check=False)
    def append(self, source: cython.p_uchar, at: cython.longlong, size: cython.longlong) -> cython.int:
        if size > 0:
            if self.used + size > self.capacity:
                self.grow(size)
            _copy(self.target, self.used, source, at, size)
            self.used += size
        elif size < 0:
            self.bits[self.count >> 3] ^= 1 << (self.count & 7)
            self.null_count += 1
        self.count += 1
        self.ends[self.count] = self.used
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def grow(self, size: cython.longlong) -> cython.int:
        self.data += bytes(self.capacity + size)
        self.capacity = len(self.data)
        self.target = self.data
        return 0

    @cython.cfunc
    def parts(self) -> BinaryParts:
        del self.data[self.used :]
        del self.offsets[self.count + 1 :]
        del self.validity[(self.count + 7) >> 3 :]
        return self.data, self.offsets, self.validity if self.null_count else None, self.null_count


@cython.final
@cython.cclass
class ColumnsBuilder:
    """Turns batches into the arrays behind `record_columns`: all are opened first, so the room is known."""

    readers: list[_RecordReader]
    from_offset: cython.longlong
    records_count: cython.longlong
    size: cython.longlong

    def __init__(self, from_offset: int) -> None:
        self.readers = []
        self.from_offset = from_offset
        self.records_count = 0
        self.size = 0

    def open(self, view: memoryview, header: BatchHeader, limit_bytes: int) -> None:
        """Takes one batch in; `view` is what `octets` gave."""
        reader: _RecordReader = _open_batch(view, header, limit_bytes)
        self.records_count += reader.remaining
        self.size += reader.end
        if self.size > _LARGEST_COLUMN_BYTES:
            raise ValueError(f"{self.size} bytes of records are too many for one set of columns; decode fewer")
        self.readers.append(reader)

    def decode(self) -> tuple[array[int], array[int], BinaryParts, BinaryParts, BinaryParts]:
        """Offsets, timestamps in ms, keys, values and undecoded headers of all records from the offset on."""
        reader: _RecordReader
        row: cython.longlong = 0
        offsets = array("q", bytes(8)) * self.records_count
        timestamps_ms = array("q", bytes(8)) * self.records_count
        to_offsets: cython.p_longlong = _longs(offsets)
        to_timestamps_ms: cython.p_longlong = _longs(timestamps_ms)
        # Most bytes are those of values. To ask for as many for the rest would cost more than to let it grow.
        keys: _BinaryBuilder = _BinaryBuilder(self.records_count, 0)
        values: _BinaryBuilder = _BinaryBuilder(self.records_count, self.size)
        headers: _BinaryBuilder = _BinaryBuilder(self.records_count, 0)
        readers, self.readers = self.readers, []
        for reader in readers:
            while reader.advance():
                if reader.offset() < self.from_offset:
                    continue
                to_offsets[row] = reader.offset()
                to_timestamps_ms[row] = reader.timestamp_ms()
                row += 1
                keys.append(reader.data, reader.key_at, reader.key_size)
                values.append(reader.data, reader.value_at, reader.value_size)
                headers.append(reader.data, reader.headers_at, reader.headers_size())
            reader.finish()
        del offsets[row:]
        del timestamps_ms[row:]
        return offsets, timestamps_ms, keys.parts(), values.parts(), headers.parts()


@cython.cfunc
def _headers(reader: _RecordReader) -> RecordHeaders:
    """The headers of the record that the reader stands on, which has checked them."""
    at: cython.longlong
    size: cython.longlong
    count: cython.longlong
    headers = []
    count, at = _number(reader.data, reader.headers_at, reader.end, 5)
    for _ in range(count):
        size, at = _number(reader.data, at, reader.end, 5)
        name: bytes = _octets(reader.data, at, size)
        size, at = _number(reader.data, at + size, reader.end, 5)
        headers.append((name.decode("utf-8", "replace"), _octets(reader.data, at, size)))
        if size > 0:
            at += size
    return tuple(headers)


@cython.cfunc
@cython.exceptval(check=False)
def _skip_headers(
    data: cython.p_uchar, at: cython.longlong, end: cython.longlong, count: cython.longlong
) -> cython.longlong:
    """The index after so many headers, or one behind the end when they are not sound."""
    size: cython.longlong
    while count > 0:
        size, at = _number(data, at, end, 5)
        if size < 0:
            return end + 1
        size, at = _number(data, at + size, end, 5)
        if size < -1 or at > end:
            return end + 1
        if size > 0:
            at += size
        count -= 1
    return at if count == 0 else end + 1


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _number(
    data: cython.p_uchar, at: cython.longlong, end: cython.longlong, longest: cython.int
) -> tuple[cython.longlong, cython.longlong]:
    """The zig-zag number at `at`, of at most `longest` bytes, and the index after it.

    The index is behind the end when there is no sound number before `end`; to read on from there fails
    again, so a row of numbers needs one check, at its end.
    """
    raw: cython.ulonglong
    byte: cython.ulonglong
    length: cython.int
    if at >= end:
        return 0, end + 1
    raw = data[at]
    if raw >= 0x80:
        raw &= 0x7F
        length = 1
        while True:
            if length == longest or at + length >= end:
                return 0, end + 1
            byte = data[at + length]
            # The last byte has room for the last bits of 32 or of 64, and no more.
            if length == longest - 1 and byte > (0x0F if longest == 5 else 0x01):
                return 0, end + 1
            raw |= (byte & 0x7F) << (7 * length)
            length += 1
            if byte < 0x80:
                break
        at += length - 1
    return (raw >> 1) ^ -(raw & 1), at + 1


@cython.cfunc
@cython.inline
def _octets(data: cython.p_uchar, at: cython.longlong, size: cython.longlong) -> object:
    """A copy of the bytes there; None for the size of a null."""
    if size < 0:
        return None
    if cython.compiled:
        return data[at : at + size]
    else:  # noqa: RET505
        return bytes(data[at : at + size])


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _copy(
    target: cython.p_uchar,
    to: cython.longlong,
    source: cython.p_uchar,
    at: cython.longlong,
    size: cython.longlong,
) -> cython.void:
    if cython.compiled:
        memcpy(target + to, source + at, size)
    else:
        target[to : to + size] = source[at : at + size]


@cython.cfunc
def _unset_bytes(size: cython.Py_ssize_t) -> bytearray:
    """Room to write to. Compiled, it is not even cleared: what is never written costs no memory."""
    if cython.compiled:
        room: bytearray = PyByteArray_FromStringAndSize(cython.NULL, size)
        return room
    else:  # noqa: RET505
        return bytearray(size)


# The three below give C pointers when compiled and otherwise the objects themselves: both are indexed alike.


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _address(view: memoryview) -> cython.p_uchar:
    if cython.compiled:
        return cython.cast(cython.p_uchar, PyMemoryView_GET_BUFFER(view).buf)
    else:  # noqa: RET505
        return view


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _longs(numbers: array[int]) -> cython.p_longlong:
    if cython.compiled:
        return cython.cast(c_array, numbers).data.as_longlongs
    else:  # noqa: RET505
        return numbers


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _ints(numbers: array[int]) -> cython.p_int:
    if cython.compiled:
        return cython.cast(c_array, numbers).data.as_ints
    else:  # noqa: RET505
        return numbers
