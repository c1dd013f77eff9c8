"""Finds records of a segment by their timestamps: its time index leads close to them, its batches tell the rest."""

from typing import Final, NamedTuple

from headwater.log.index import NO_TIMESTAMP
from headwater.log.segment import Segment
from headwater.protocol.records import decode_records

_SHORT_BYTES: Final = 1 << 16


class TimestampOffset(NamedTuple):
    """A record found by time; `leader_epoch` is -1 when the batch has none."""

    timestamp_ms: int
    offset: int
    leader_epoch: int


def find_timestamp(segment: Segment, timestamp_ms: int, start_offset: int) -> TimestampOffset | None:
    """The first record from `start_offset` on whose timestamp is not smaller."""
    relative_offset = segment.time_index.lookup(timestamp_ms)
    relative_offset = max(relative_offset, start_offset - segment.base_offset)
    # The indexes lead close to it: reading far beyond would be most of the work.
    for batch in segment.batches(segment.offset_index.lookup(relative_offset), _SHORT_BYTES):
        header = batch.header
        if header.max_timestamp_ms >= timestamp_ms and header.last_offset >= start_offset:
            for record in decode_records(batch.buffer, header):
                if record.timestamp_ms >= timestamp_ms and record.offset >= start_offset:
                    return TimestampOffset(record.timestamp_ms, record.offset, header.leader_epoch)
    return None


def find_max_timestamp(segment: Segment, start_offset: int) -> TimestampOffset | None:
    """The first record from `start_offset` on that has the largest timestamp from there on."""
    largest_ms = segment.max_timestamp_ms
    if start_offset > segment.base_offset:
        largest_ms = _largest_timestamp_from(segment, start_offset)
    return find_timestamp(segment, largest_ms, start_offset) if largest_ms >= 0 else None


def _largest_timestamp_from(segment: Segment, start_offset: int) -> int:
    largest_ms = NO_TIMESTAMP
    for batch in segment.batches(segment.position_of(start_offset)):
        header = batch.header
        if header.max_timestamp_ms > largest_ms and header.base_offset >= start_offset:
            largest_ms = header.max_timestamp_ms
        elif header.max_timestamp_ms > largest_ms:
            kept = [r.timestamp_ms for r in decode_records(batch.buffer, header) if r.offset >= start_offset]
            largest_ms = max(largest_ms, max(kept, default=largest_ms))
    return largest_ms
