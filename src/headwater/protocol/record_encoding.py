"""Records into batches: what a producer sends, and a batch of others compressed anew.

Compiled by Cython (pure Python mode) and correct without it. The size of a record is worked out, and room
made, before a byte of it is written; only `bytes`, which cannot change meanwhile, are written.
"""
# mypy: disallow-untyped-decorators=False

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from crc32c import crc32c

from headwater.protocol import compression as codecs
from headwater.protocol.batches import (
    COMPRESSION_MASK,
    CONTROL_FLAG,
    HEADER_SIZE,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD,
    NO_TIMESTAMP,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    octets,
)
from headwater.protocol.record_decoding import records_section

try:
    import cython
except ImportError:
    from headwater.protocol import without_cython as cython

if cython.compiled:
    from cython.cimports.libc.string import memcpy

if TYPE_CHECKING:
    from typing_extensions import Buffer

RecordToWrite: TypeAlias = "tuple[bytes | None, bytes | None, Sequence[tuple[str, bytes | None]], int]"
"""Key, value, headers, timestamp in ms."""

_HEADER = struct.Struct(">qiibIhiqqqhii")
_COVERED_BY_CRC = 21
_LARGEST_BATCH_BYTES = 2**31 - 1
# Declared so, a name is a C variable: quick, and invisible from Python.
_HEADER_SIZE = cython.declare(cython.longlong, HEADER_SIZE)
_FARTHEST_TIME_MS = cython.declare(cython.longlong, 2**62)


def encode_batch(
    records: Sequence[RecordToWrite],
    *,
    base_offset: int = 0,
    compression: int = 0,
    compression_level: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    leader_epoch: int = -1,
    transactional: bool = False,
    log_append_time_ms: int | None = None,
    control: bool = False,
) -> bytearray:
    """One batch of these records, in this order, at consecutive offsets.

    >>> batch = encode_batch([(b"key", b"value", [("header", b"content")], 1_700_000_000_000)])
    """
    writer: _RecordWriter = _write_records(records)
    batch = writer.batch
    if compression != codecs.NONE:
        packed = codecs.compress(compression, bytes(batch[HEADER_SIZE:]), compression_level)
        batch[HEADER_SIZE:] = packed
    attributes = compression
    if transactional:
        attributes |= TRANSACTIONAL_FLAG
    if control:
        attributes |= CONTROL_FLAG
    if log_append_time_ms is not None:
        attributes |= LOG_APPEND_TIME_FLAG
    _HEADER.pack_into(
        batch,
        0,
        base_offset,
        _length(batch),
        leader_epoch,
        2,
        0,
        attributes,
        max(writer.count - 1, 0),
        writer.base_timestamp_ms,
        writer.max_timestamp_ms if log_append_time_ms is None else log_append_time_ms,
        producer_id,
        producer_epoch,
        base_sequence,
        writer.count,
    )
    _seal(batch)
    return batch


def recompress(buffer: Buffer, header: BatchHeader, compression: int, level: int | None = None) -> bytearray:
    """The batch with the same records and fields, but its records compressed by another codec, or by none."""
    start = header.position
    batch = bytearray(octets(buffer)[start : start + HEADER_SIZE])
    batch += codecs.compress(compression, records_section(buffer, header), level)
    struct.pack_into(">i", batch, 8, _length(batch))
    struct.pack_into(">h", batch, 21, header.attributes & ~COMPRESSION_MASK | compression)
    _seal(batch)
    return batch


def _length(batch: bytearray) -> int:
    """What the length field of the batch says."""
    if len(batch) > _LARGEST_BATCH_BYTES:
        raise ValueError(f"{len(batch)} bytes are too many for one batch; put the records into several")
    return len(batch) - LOG_OVERHEAD


def _seal(batch: bytearray) -> None:
    struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[_COVERED_BY_CRC:]))


@cython.cfunc
def _write_records(records: Sequence[RecordToWrite]) -> _RecordWriter:
    """Room for the header of a batch, then the records, uncompressed."""
    writer: _RecordWriter = _RecordWriter.__new__(_RecordWriter)
    writer.batch = bytearray(HEADER_SIZE + 64 * len(records))
    writer.at = _HEADER_SIZE
    writer.count = 0
    writer.base_timestamp_ms = NO_TIMESTAMP
    writer.max_timestamp_ms = NO_TIMESTAMP
    for key, value, headers, timestamp_ms in records:
        encoded = _with_encoded_names(headers) if headers else []
        writer.add(_as_bytes(key), _as_bytes(value), encoded, timestamp_ms)
    del writer.batch[writer.at :]
    return writer


@cython.cfunc
@cython.inline
def _as_bytes(content: Buffer | None) -> bytes | None:
    if content is None or type(content) is bytes:
        return content
    # Through a view, because bytes(7) would be seven zeros and not an error.
    return bytes(memoryview(content))


def _with_encoded_names(headers: Sequence[tuple[str, bytes | None]]) -> list[tuple[bytes, bytes | None]]:
    return [(name.encode(), _as_bytes(content)) for name, content in headers]


@cython.final
@cython.cclass
class _RecordWriter:
    """Appends records to a batch that is made large enough before anything is written."""

    batch: bytearray
    at: cython.longlong
    count: cython.longlong
    base_timestamp_ms: cython.longlong
    max_timestamp_ms: cython.longlong

    @cython.cfunc
    def add(
        self,
        key: bytes | None,
        value: bytes | None,
        headers: list[tuple[bytes, bytes | None]],
        timestamp_ms: cython.longlong,
    ) -> cython.bint:
        target: cython.p_uchar
        at: cython.longlong
        size: cython.longlong
        delta_ms: cython.longlong
        if timestamp_ms > _FARTHEST_TIME_MS or timestamp_ms < -_FARTHEST_TIME_MS:
            raise ValueError(f"{timestamp_ms} ms is no time that a record can have")
        if self.count == 0:
            self.base_timestamp_ms = self.max_timestamp_ms = timestamp_ms
        elif timestamp_ms > self.max_timestamp_ms:
            self.max_timestamp_ms = timestamp_ms
        delta_ms = timestamp_ms - self.base_timestamp_ms
        size = 1 + _size_of_number(delta_ms) + _size_of_number(self.count) + _size_of_number(len(headers))
        size += _size_of_field(key) + _size_of_field(value)
        for name, content in headers:
            size += _size_of_field(name) + _size_of_field(content)
        self.reserve(_size_of_number(size) + size)
        target = self.batch
        at = _put_number(target, self.at, size)
        # The attributes of a record, of which none is in use.
        target[at] = 0
        at = _put_number(target, at + 1, delta_ms)
        at = _put_number(target, at, self.count)
        at = _put_field(target, at, key)
        at = _put_field(target, at, value)
        at = _put_number(target, at, len(headers))
        for name, content in headers:
            at = _put_field(target, at, name)
            at = _put_field(target, at, content)
        self.at = at
        self.count += 1
        return True

    @cython.cfunc
    def reserve(self, size: cython.longlong) -> cython.bint:
        missing: cython.longlong = self.at + size - len(self.batch)
        if missing > 0:
            self.batch += bytes(missing + len(self.batch))
        return True


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _zig_zag(value: cython.longlong) -> cython.ulonglong:
    return (value << 1) ^ (value >> 63)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _size_of_number(value: cython.longlong) -> cython.longlong:
    raw: cython.ulonglong = _zig_zag(value)
    size: cython.longlong = 1
    while raw >= 0x80:
        raw >>= 7
        size += 1
    return size


@cython.cfunc
@cython.inline
def _size_of_field(content: bytes | None) -> cython.longlong:
    """Of a length and its bytes; a null is the length -1."""
    return 1 if content is None else _size_of_number(len(content)) + len(content)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put_number(target: cython.p_uchar, at: cython.longlong, value: cython.longlong) -> cython.longlong:
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
        return _put_number(target, at, -1)
    at = _put_number(target, at, len(content))
    source = content
    if cython.compiled:
        memcpy(target + at, source, len(content))
    else:
        target[at : at + len(content)] = source
    return at + len(content)
