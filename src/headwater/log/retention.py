"""Which segments of a log are too old or too many, and their removal. The rules are Kafka's.

A segment goes whole or not at all, the oldest first. It is as old as its youngest record. What the high watermark has
not passed stays. Runs on the thread that appends.
"""

import logging

from headwater.log.log import Log
from headwater.log.segment import Segment

_log = logging.getLogger(__name__)


def delete_old_segments(log: Log, *, high_watermark: int, now_ms: int) -> int:
    """Drop the segments that the topic's settings do not keep; how many. Their files wait to be unlinked.

    Before the log's start everything goes; by size and age only where the cleanup policy says delete. An active
    segment that is too old as a whole is finished and goes too.
    """
    count = count_old_segments(log, high_watermark=high_watermark, now_ms=now_ms)
    if count == 0:
        return 0
    if count == len(log.segments):
        log.roll(now_ms)
    start_offset = log.segments[count].base_offset
    log.delete_records_before(max(start_offset, log.log_start_offset))
    _log.info("deleted %d segments of %s: it begins at %d", count, log.topic_partition, log.log_start_offset)
    return count


def count_old_segments(log: Log, *, high_watermark: int, now_ms: int) -> int:
    """How many segments, from the oldest on, are not to be kept. Only reads, so it may run in any thread."""
    segments, config = log.segments, log.config
    ends = [segment.base_offset for segment in segments[1:]]
    # Without data, the active segment has nothing to delete.
    if segments[-1].size > 0:
        ends.append(log.log_end_offset)
    deletable = sum(1 for end in ends if end <= high_watermark)
    before_start = sum(1 for end in ends[: len(segments) - 1] if end <= log.log_start_offset)
    count = min(before_start, deletable)
    if config.deletes:
        if config.retention_bytes >= 0:
            count += _too_many(segments[count:], config.retention_bytes, deletable - count)
        if config.retention_ms >= 0:
            count += _too_old(segments[count:deletable], now_ms - config.retention_ms)
    return count


def _too_many(segments: tuple[Segment, ...], retention_bytes: int, deletable: int) -> int:
    """How many can go so that at least `retention_bytes` are left."""
    surplus = sum(segment.size for segment in segments) - retention_bytes
    count = 0
    for segment in segments[:deletable]:
        surplus -= segment.size
        if surplus < 0:
            break
        count += 1
    return count


def _too_old(segments: tuple[Segment, ...], earliest_ms: int) -> int:
    count = 0
    for segment in segments:
        if segment.last_change_ms >= earliest_ms:
            break
        count += 1
    return count
