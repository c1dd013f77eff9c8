"""Record batches as they lie in a request or a segment: headers read, checked and patched in place.

Magic 2 only. Nothing here looks at the records inside a batch, or decompresses, or allocates by a length
that it was told. Compiled by Cython (pure Python mode) and correct without it. The bounds checks are
written out because the compiled form has no others: each read comes after a comparison with `end`, and
`end` is within the buffer.
"""
# mypy: disallow-untyped-decorators=False

from __future__ import annotations

from typing import TYPE_CHECKING

from crc32c import crc32c

try:
    import cython
except ImportError:
    from headwater.protocol import without_cython as cython

if cython.compiled:
    from cython.cimports.cpython.buffer import PyBuffer_IsContiguous
    from cython.cimports.cpython.memoryview import PyMemoryView_GET_BUFFER

if TYPE_CHECKING:
    from typing_extensions import Buffer

HEADER_SIZE = 61
"""Bytes of a batch before its first record."""

LOG_OVERHEAD = 12
"""Bytes of a batch that its own length field does not count: base offset and length."""

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_TIMESTAMP = -1

COMPRESSION_MASK = 0x07
LOG_APPEND_TIME_FLAG = 0x08
TRANSACTIONAL_FLAG = 0x10
CONTROL_FLAG = 0x20
DELETE_HORIZON_FLAG = 0x40

# Declared so, a name is a C variable: quick, and invisible from Python. Hence a few constants have twins.
_HEADER_SIZE = cython.declare(cython.longlong, HEADER_SIZE)
_LOG_OVERHEAD = cython.declare(cython.longlong, LOG_OVERHEAD)
_COVERED_BY_CRC = cython.declare(cython.longlong, 21)
_THROUGH_MAGIC = cython.declare(cython.longlong, 17)
_COMPRESSION_MASK = cython.declare(cython.longlong, COMPRESSION_MASK)
_LOG_APPEND_TIME_FLAG = cython.declare(cython.longlong, LOG_APPEND_TIME_FLAG)
_CONTROL_FLAG = cython.declare(cython.longlong, CONTROL_FLAG)
_KNOWN_ATTRIBUTES = cython.declare(cython.longlong, 0x7F)
_LAST_KNOWN_CODEC = cython.declare(cython.longlong, 4)
_MAX_SEQUENCE = cython.declare(cython.longlong, 2**31 - 1)
_MAX_OFFSET = cython.declare(cython.longlong, 2**63 - 1)
_FARTHEST_TIME_MS = cython.declare(cython.longlong, 2**62)


class CorruptBatchError(ValueError):
    """Bytes that are not what they should be: a record batch, whole and unharmed.

    `position` is where the batch starts in the buffer that was given; `reason` is for people.
    """

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(f"corrupt record batch at byte {position}: {reason}")
        self.position = position
        self.reason = reason


class RefusedBatchError(ValueError):
    """A batch that arrived unharmed and that a client may not send; the reason is for people."""


@cython.final
@cython.cclass
class BatchHeader:
    """The 61 bytes before the records of a batch, and where in its buffer the batch starts (`position`).

    `size` counts the whole batch, header and overhead included. The attributes are a copy: to change the
    batch itself, use `patch_offsets` and `patch_append_time`.
    """

    position: int = cython.declare(cython.Py_ssize_t, visibility="public")
    size: int = cython.declare(cython.Py_ssize_t, visibility="public")
    base_offset: int = cython.declare(cython.longlong, visibility="public")
    leader_epoch: int = cython.declare(cython.int, visibility="public")
    magic: int = cython.declare(cython.schar, visibility="public")
    crc: int = cython.declare(cython.uint, visibility="public")
    attributes: int = cython.declare(cython.short, visibility="public")
    last_offset_delta: int = cython.declare(cython.int, visibility="public")
    base_timestamp_ms: int = cython.declare(cython.longlong, visibility="public")
    max_timestamp_ms: int = cython.declare(cython.longlong, visibility="public")
    producer_id: int = cython.declare(cython.longlong, visibility="public")
    producer_epoch: int = cython.declare(cython.short, visibility="public")
    base_sequence: int = cython.declare(cython.int, visibility="public")
    records_count: int = cython.declare(cython.int, visibility="public")

    @property
    def last_offset(self) -> int:
        """The offset of the last record, or of the last that there was before compaction."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The first offset after this batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """The producer's sequence number of the last record, or -1 for a producer that counts none.

        Sequences go from 2**31 - 1 back to 0.
        """
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        room: int = _MAX_SEQUENCE - self.base_sequence
        if self.last_offset_delta > room:
            return self.last_offset_delta - room - 1
        return self.base_sequence + self.last_offset_delta

    @property
    def compression(self) -> int:
        """The id of the codec of the records: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."""
        return self.attributes & COMPRESSION_MASK

    @property
    def is_log_append_time(self) -> bool:
        """Whether the broker's clock (`max_timestamp_ms`) stands for the time of every record."""
        return self.attributes & LOG_APPEND_TIME_FLAG != 0

    @property
    def is_transactional(self) -> bool:
        """Whether the batch is part of a transaction."""
        return self.attributes & TRANSACTIONAL_FLAG != 0

    @property
    def is_control(self) -> bool:
        """Whether the batch holds a marker of the broker (commit, abort, …) and no user's records."""
        return self.attributes & CONTROL_FLAG != 0

    @property
    def delete_horizon_ms(self) -> int | None:
        """When the cleaner may drop the tombstones of this batch; None before it has seen them once."""
        return self.base_timestamp_ms if self.attributes & DELETE_HORIZON_FLAG else None

    def layout(self) -> tuple[int, int, int, int, int, int, int, int | None]:
        """What a reader of the records needs, in one call, and checked so that no offset or time overflows.

        Where the records start and end, their codec, their number, base offset, last offset delta, base
        timestamp, and the timestamp of all of them or None.
        """
        _check_header(self, False)
        if self.base_timestamp_ms > _FARTHEST_TIME_MS or self.base_timestamp_ms < -_FARTHEST_TIME_MS:
            raise CorruptBatchError(self.position, f"there is no time {self.base_timestamp_ms}")
        return (
            self.position + _HEADER_SIZE,
            self.position + self.size,
            self.attributes & _COMPRESSION_MASK,
            self.records_count,
            self.base_offset,
            self.last_offset_delta,
            self.base_timestamp_ms,
            self.max_timestamp_ms if self.attributes & _LOG_APPEND_TIME_FLAG else None,
        )

    def __repr__(self) -> str:
        return (
            f"BatchHeader(position={self.position}, size={self.size}, "
            f"offsets={self.base_offset}..{self.last_offset}, records_count={self.records_count}, "
            f"attributes={self.attributes:#x}, leader_epoch={self.leader_epoch}, "
            f"producer={self.producer_id}/{self.producer_epoch}, base_sequence={self.base_sequence})"
        )


@cython.ccall
def octets(buffer: Buffer) -> memoryview:
    """A view of the buffer as single bytes in a row, or ValueError: nothing else may be read by address."""
    view = buffer if isinstance(buffer, memoryview) else memoryview(buffer)
    if cython.compiled:
        plain = PyMemoryView_GET_BUFFER(view).ndim == 1 and PyMemoryView_GET_BUFFER(view).itemsize == 1
        plain = plain and PyBuffer_IsContiguous(PyMemoryView_GET_BUFFER(view), b"C")
    else:
        plain = view.ndim == 1 and view.itemsize == 1 and view.c_contiguous
    if not plain:
        raise ValueError("record batches are read from plain bytes; this buffer has wider items, rows or gaps")
    return view


def parse_header(buffer: Buffer, position: int, end: int) -> BatchHeader:
    """The header of the batch at `position`, which must lie whole before `end`. The CRC is not checked."""
    view = octets(buffer)
    header: BatchHeader = _read_header(_part_of(view, position, end), position, end)
    return header


def check_batches(buffer: Buffer, start: int, end: int, *, strict: bool = True) -> list[BatchHeader]:
    """The headers of the batches that fill `[start, end)`: each whole, sane and with the right checksum.

    Anything else is a CorruptBatchError. A producer's batch has a record for every offset, and `strict`
    demands that; what a leader hands to its followers may have holes since compaction, or no records at
    all.
    """
    at: cython.Py_ssize_t = start
    stop: cython.Py_ssize_t = end
    header: BatchHeader
    view = octets(buffer)
    data: cython.p_uchar = _part_of(view, at, stop)
    headers: list[BatchHeader] = []
    while at < stop:
        header = _read_header(data, at, stop)
        _check_header(header, strict)
        if crc32c(view[at + _COVERED_BY_CRC : at + header.size]) != header.crc:
            raise CorruptBatchError(at, "the checksum does not match the bytes")
        headers.append(header)
        at += header.size
    return headers


def check_produced(buffer: Buffer, start: int, end: int) -> BatchHeader:
    """The header of the one batch that a client sends for a partition, between `start` and `end`.

    CorruptBatchError unless it is whole and unharmed, RefusedBatchError when it holds what only a broker may write:
    the rules are Apache's.
    """
    at: cython.Py_ssize_t = start
    stop: cython.Py_ssize_t = end
    header: BatchHeader
    view = octets(buffer)
    data: cython.p_uchar = _part_of(view, at, stop)
    if at == stop:
        raise RefusedBatchError("a partition without a record batch")
    if stop - at >= _THROUGH_MAGIC and data[at + 16] < 2:
        raise RefusedBatchError(f"message format {data[at + 16]} is no longer served")
    header = _read_header(data, at, stop)
    if crc32c(view[at + _COVERED_BY_CRC : at + header.size]) != header.crc:
        raise CorruptBatchError(at, "the checksum does not match the bytes")
    if header.records_count != header.last_offset_delta + 1 or header.records_count < 1:
        raise RefusedBatchError(f"{header.records_count} records for {header.last_offset_delta + 1} offsets")
    if header.attributes & _COMPRESSION_MASK > _LAST_KNOWN_CODEC:
        raise RefusedBatchError(f"compression codec {header.compression} is unknown")
    if header.base_offset != 0:
        raise RefusedBatchError(f"a base offset of {header.base_offset}; the broker gives offsets, clients send 0")
    _check_header(header, True)
    if header.attributes & _CONTROL_FLAG:
        raise RefusedBatchError("clients may not write control records")
    if header.producer_id >= 0 and header.base_sequence < 0:
        raise RefusedBatchError(f"producer id {header.producer_id} without a sequence number")
    if at + header.size != stop:
        raise RefusedBatchError("more than one record batch for one partition")
    return header


def scan_headers(buffer: Buffer, start: int, end: int) -> list[BatchHeader]:
    """The headers of as many whole batches as there are in `[start, end)`; a partial tail ends the scan.

    Checksums are not looked at. A whole batch with a header that makes no sense is a CorruptBatchError.
    """
    at: cython.Py_ssize_t = start
    stop: cython.Py_ssize_t = end
    header: BatchHeader
    view = octets(buffer)
    data: cython.p_uchar = _part_of(view, at, stop)
    headers: list[BatchHeader] = []
    while _is_whole(data, at, stop):
        header = _read_header(data, at, stop)
        headers.append(header)
        at += header.size
    return headers


def next_header(buffer: Buffer, start: int, end: int) -> BatchHeader | None:
    """The header of the batch at `start`, or None where no whole batch is left before `end`.

    CorruptBatchError if it makes no sense; the checksum is not looked at.
    """
    header: BatchHeader
    view = octets(buffer)
    data: cython.p_uchar = _part_of(view, start, end)
    if not _is_whole(data, start, end):
        return None
    header = _read_header(data, start, end)
    _check_header(header, False)
    return header


def crc_is_valid(buffer: Buffer, header: BatchHeader) -> bool:
    """Whether the checksum in `header` is that of the bytes at its position."""
    at: cython.Py_ssize_t = header.position
    view = octets(buffer)
    _part_of(view, at, at + header.size)
    checksum: int = crc32c(view[at + _COVERED_BY_CRC : at + header.size])
    return checksum == header.crc


def patch_offsets(buffer: Buffer, position: int, base_offset: int, leader_epoch: int) -> None:
    """Gives the batch at `position` its place in the log. The checksum does not cover these two fields."""
    at: cython.Py_ssize_t = position
    view = octets(buffer)
    data: cython.p_uchar = _writable_part_of(view, at, at + _HEADER_SIZE)
    _write_int64(data, at, base_offset)
    _write_int32(data, at + 12, leader_epoch)


def patch_append_time(buffer: Buffer, header: BatchHeader, timestamp_ms: int) -> None:
    """Stamps the batch, and `header` with it, with the broker's time; the checksum is made anew."""
    at: cython.Py_ssize_t = header.position
    view = octets(buffer)
    data: cython.p_uchar = _writable_part_of(view, at, at + header.size)
    header.attributes |= LOG_APPEND_TIME_FLAG
    header.max_timestamp_ms = timestamp_ms
    _write_int16(data, at + 21, header.attributes)
    _write_int64(data, at + 35, timestamp_ms)
    header.crc = crc32c(view[at + _COVERED_BY_CRC : at + header.size])
    _write_int32(data, at + 17, header.crc)


def patch_max_timestamp(buffer: Buffer, header: BatchHeader, timestamp_ms: int) -> None:
    """Gives the batch, and `header` with it, the largest time of its records, which are the producer's; as Apache does.

    The checksum is recomputed.
    """
    at: cython.Py_ssize_t = header.position
    view = octets(buffer)
    data: cython.p_uchar = _writable_part_of(view, at, at + header.size)
    header.attributes &= _KNOWN_ATTRIBUTES & ~_LOG_APPEND_TIME_FLAG
    header.max_timestamp_ms = timestamp_ms
    _write_int16(data, at + 21, header.attributes)
    _write_int64(data, at + 35, timestamp_ms)
    header.crc = crc32c(view[at + _COVERED_BY_CRC : at + header.size])
    _write_int32(data, at + 17, header.crc)


@cython.cfunc
def _part_of(view: memoryview, start: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.p_uchar:
    """The bytes behind the view, once it is sure that it has those from `start` to `end`."""
    if start < 0 or end < start or end > len(view):
        raise ValueError(f"[{start}, {end}) is not a range of a buffer of {len(view)} bytes")
    return _address(view)


@cython.cfunc
def _writable_part_of(view: memoryview, start: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.p_uchar:
    if view.readonly:
        raise TypeError("a record batch can only be patched in a writable buffer")
    return _part_of(view, start, end)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _address(view: memoryview) -> cython.p_uchar:
    """The bytes behind a view: a C pointer when compiled, else the view itself. Both are indexed alike."""
    if cython.compiled:
        return cython.cast(cython.p_uchar, PyMemoryView_GET_BUFFER(view).buf)
    else:  # noqa: RET505
        return view


@cython.cfunc
def _is_whole(data: cython.p_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.bint:
    """Whether all the bytes of the next batch are there. Nonsense counts as whole: its reader complains."""
    size: cython.longlong
    if end - at < _THROUGH_MAGIC:
        return False
    size = _int32(data, at + 8) + _LOG_OVERHEAD
    return size < _HEADER_SIZE or size <= end - at


@cython.cfunc
def _read_header(data: cython.p_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> BatchHeader:
    header: BatchHeader
    size: cython.Py_ssize_t
    if end - at < _THROUGH_MAGIC:
        raise CorruptBatchError(at, f"{end - at} bytes are left, too few for a header")
    size = _int32(data, at + 8) + _LOG_OVERHEAD
    if data[at + 16] != 2:
        raise CorruptBatchError(at, f"magic {data[at + 16]} is not supported, only 2")
    if size < _HEADER_SIZE:
        raise CorruptBatchError(at, f"a size of {size} bytes is less than that of a header")
    if size > end - at:
        raise CorruptBatchError(at, f"it says that it has {size} bytes, but {end - at} are left")
    header = BatchHeader.__new__(BatchHeader)
    header.position = at
    header.size = size
    header.base_offset = _int64(data, at)
    header.leader_epoch = _int32(data, at + 12)
    header.magic = 2
    header.crc = _uint32(data, at + 17)
    header.attributes = _int16(data, at + 21)
    header.last_offset_delta = _int32(data, at + 23)
    header.base_timestamp_ms = _int64(data, at + 27)
    header.max_timestamp_ms = _int64(data, at + 35)
    header.producer_id = _int64(data, at + 43)
    header.producer_epoch = _int16(data, at + 51)
    header.base_sequence = _int32(data, at + 53)
    header.records_count = _int32(data, at + 57)
    return header


@cython.cfunc
def _check_header(header: BatchHeader, strict: cython.bint) -> cython.bint:
    """Raises CorruptBatchError for a header that no producer and no broker would write."""
    delta: cython.longlong = header.last_offset_delta
    if header.attributes & _COMPRESSION_MASK > _LAST_KNOWN_CODEC:
        raise CorruptBatchError(header.position, f"compression codec {header.compression} is unknown")
    if delta < 0 or header.base_offset < 0 or header.base_offset > _MAX_OFFSET - 1 - delta:
        raise CorruptBatchError(header.position, f"there is no offset {header.base_offset} + {delta}")
    if header.records_count < 0 or header.records_count > delta + 1:
        raise CorruptBatchError(header.position, f"{header.records_count} records in {delta + 1} offsets")
    if strict and header.records_count != delta + 1:
        raise CorruptBatchError(header.position, f"only {header.records_count} records for {delta + 1} offsets")
    return True


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _uint32(data: cython.p_uchar, at: cython.Py_ssize_t) -> cython.longlong:
    first: cython.longlong = data[at]
    return first << 24 | data[at + 1] << 16 | data[at + 2] << 8 | data[at + 3]


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _int16(data: cython.p_uchar, at: cython.Py_ssize_t) -> cython.longlong:
    return ((data[at] << 8 | data[at + 1]) ^ 0x8000) - 0x8000


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _int32(data: cython.p_uchar, at: cython.Py_ssize_t) -> cython.longlong:
    return ((data[at] ^ 0x80) - 0x80) * 0x1000000 + (data[at + 1] << 16 | data[at + 2] << 8 | data[at + 3])


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _int64(data: cython.p_uchar, at: cython.Py_ssize_t) -> cython.longlong:
    high: cython.longlong = _int32(data, at)
    # A literal beyond 31 bits would be a Python object in the compiled form.
    return high * 0x10000 * 0x10000 + _uint32(data, at + 4)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _write_int16(data: cython.p_uchar, at: cython.Py_ssize_t, value: cython.longlong) -> cython.void:
    data[at] = value >> 8 & 0xFF
    data[at + 1] = value & 0xFF


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _write_int32(data: cython.p_uchar, at: cython.Py_ssize_t, value: cython.longlong) -> cython.void:
    _write_int16(data, at, value >> 16)
    _write_int16(data, at + 2, value)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _write_int64(data: cython.p_uchar, at: cython.Py_ssize_t, value: cython.longlong) -> cython.void:
    _write_int32(data, at, value >> 32)
    _write_int32(data, at + 4, value)
