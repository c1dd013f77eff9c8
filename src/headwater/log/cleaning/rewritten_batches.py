"""Batches that lost some or all of their records to the cleaner. What is left has the offsets, times and fields it had.

First and last offset, sequence and producer of the batch stay, so neither readers nor idempotent producers notice.
"""

import struct

from crc32c import crc32c

from headwater.log.cleaning.raw_records import shift_timestamps
from headwater.protocol import compression
from headwater.protocol.records import HEADER_SIZE, LOG_OVERHEAD, NO_TIMESTAMP, BatchHeader

_FROM_ATTRIBUTES = struct.Struct(">hiqqqhii")
_UP_TO_CRC = struct.Struct(">qiibI")
_CRC_END = 21
_COMPRESSION, _DELETE_HORIZON = 0x07, 0x40


def with_records(
    header: BatchHeader,
    records: memoryview,
    count: int,
    *,
    max_timestamp_ms: int,
    delete_horizon_ms: int | None = None,
) -> bytes:
    """The batch with only these of its records, given uncompressed.

    With `delete_horizon_ms`, the time from which its tombstones or its marker may go is noted in it: as Kafka does it,
    in the field of the base timestamp, so the records' times are written anew.
    """
    attributes, base_timestamp_ms = header.attributes, header.base_timestamp_ms
    if delete_horizon_ms is not None:
        records = memoryview(shift_timestamps(records, count, base_timestamp_ms - delete_horizon_ms))
        attributes, base_timestamp_ms = attributes | _DELETE_HORIZON, delete_horizon_ms
    if header.compression:
        records = compression.compress(header.compression, records)
    if header.is_log_append_time:
        max_timestamp_ms = header.max_timestamp_ms
    return _batch(header, attributes, base_timestamp_ms, max_timestamp_ms, count, records)


def without_records(header: BatchHeader) -> bytes:
    """Only the header of the batch: its offsets and its producer's sequence remain known."""
    attributes = header.attributes & ~(_COMPRESSION | _DELETE_HORIZON)
    return _batch(header, attributes, NO_TIMESTAMP, header.max_timestamp_ms, 0, memoryview(b""))


def _batch(
    header: BatchHeader,
    attributes: int,
    base_timestamp_ms: int,
    max_timestamp_ms: int,
    count: int,
    records: memoryview,
) -> bytes:
    covered = _FROM_ATTRIBUTES.pack(
        attributes,
        header.last_offset_delta,
        base_timestamp_ms,
        max_timestamp_ms,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        count,
    )
    length = HEADER_SIZE - LOG_OVERHEAD + len(records)
    crc = crc32c(records, crc32c(covered))
    return b"".join((_UP_TO_CRC.pack(header.base_offset, length, header.leader_epoch, 2, crc), covered, records))
