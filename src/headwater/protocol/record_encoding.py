"""Records into batches all at once, and a batch of others compressed anew.

A producer that gathers records does it in `client/producer/batch_building.py`; both write them with `record_writing`.
Compiled by Cython (pure Python mode) and correct without it.
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
    TRANSACTIONAL_FLAG,
    BatchHeader,
    octets,
)
from headwater.protocol.record_decoding import records_section
from headwater.protocol.record_writing import encoded_headers

try:
    import cython
except ImportError:
    from headwater.protocol import without_cython as cython

if TYPE_CHECKING or not cython.compiled:
    from headwater.protocol.record_writing import RecordWriter, as_bytes
else:
    from cython.cimports.headwater.protocol.record_writing import RecordWriter, as_bytes

if TYPE_CHECKING:
    from typing_extensions import Buffer

RecordToWrite: TypeAlias = "tuple[bytes | None, bytes | None, Sequence[tuple[str, bytes | None]], int]"
"""Key, value, headers, timestamp in ms."""

_HEADER = struct.Struct(">qiibIhiqqqhii")
_COVERED_BY_CRC = 21
_LARGEST_BATCH_BYTES = 2**31 - 1


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
    writer: RecordWriter = RecordWriter(HEADER_SIZE + 64 * len(records))
    for key, value, headers, timestamp_ms in records:
        writer.add(as_bytes(key), as_bytes(value), encoded_headers(headers) if headers else None, timestamp_ms)
    writer.resize(writer.at)
    batch = writer.buffer
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
