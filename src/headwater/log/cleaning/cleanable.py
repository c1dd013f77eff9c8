"""How much of a compacted log waits to be cleaned, and whether it is enough to begin. The rules are Kafka's."""

from bisect import bisect_right
from dataclasses import dataclass

from headwater.log.log import Log
from headwater.log.segment import Segment


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleanable:
    """The dirty part of a log: from the first offset never cleaned to the first that may not be cleaned yet."""

    first_dirty_offset: int
    first_uncleanable_offset: int
    dirty_bytes: int
    clean_bytes: int
    is_overdue: bool
    """Whether `max.compaction.lag.ms` demands cleaning, however little there is."""

    @property
    def dirty_ratio(self) -> float:
        """The share of dirty bytes in all that would be read."""
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0


def find_cleanable(log: Log, *, stable_offset: int, now_ms: int) -> Cleanable | None:
    """What can be cleaned of a log, if that is enough by the topic's settings.

    Never the active segment, nothing at or beyond `stable_offset` (open transactions, the high watermark), and nothing
    younger than `min.compaction.lag.ms`.
    """
    segments, config = log.segments, log.config
    active = segments[-1]
    first_dirty = max(log.cleaned_until, log.log_start_offset)
    if first_dirty >= active.base_offset or first_dirty >= stable_offset:
        return None
    bases = [segment.base_offset for segment in segments]
    dirty = segments[_floor(bases, first_dirty) : -1]
    limit = min(stable_offset, active.base_offset)
    if config.min_compaction_lag_ms > 0:
        limit = min(limit, _first_younger_than(dirty, now_ms - config.min_compaction_lag_ms, limit))
    # A segment is cleaned whole or not at all.
    first_uncleanable = bases[_floor(bases, max(limit, first_dirty))]
    cleanable = Cleanable(
        first_dirty_offset=first_dirty,
        first_uncleanable_offset=first_uncleanable,
        dirty_bytes=sum(segment.size for segment in dirty if segment.base_offset < first_uncleanable),
        clean_bytes=sum(segment.size for segment in segments if segment.base_offset < first_dirty),
        is_overdue=_is_overdue(dirty, now_ms - config.max_compaction_lag_ms),
    )
    if cleanable.dirty_ratio > config.min_cleanable_dirty_ratio or (cleanable.is_overdue and cleanable.dirty_bytes):
        return cleanable
    return None


def _floor(bases: list[int], offset: int) -> int:
    return max(bisect_right(bases, offset) - 1, 0)


def _first_younger_than(segments: tuple[Segment, ...], time_ms: int, otherwise: int) -> int:
    for segment in segments:
        if segment.last_change_ms > time_ms:
            return segment.base_offset
    return otherwise


def _is_overdue(segments: tuple[Segment, ...], time_ms: int) -> bool:
    # The default lag is longer than time itself.
    return time_ms > 0 and any(0 < segment.first_timestamp_ms < time_ms for segment in segments)
