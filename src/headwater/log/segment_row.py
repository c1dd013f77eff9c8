"""The segments of a log in order, and what is looked up in them: offsets, times, aborted transactions.

Knows where segments begin, and nothing of what is appended, flushed or deleted. The lists are replaced, never
changed in place, so another thread may go through those it got hold of.
"""

from array import array
from bisect import bisect_left, bisect_right

from headwater.log.log_types import EMPTY_SLICE, LogSlice
from headwater.log.segment import Segment
from headwater.log.timestamp_lookup import TimestampOffset, find_max_timestamp, find_timestamp
from headwater.log.txn_index import AbortedTxn


class SegmentRow:
    """At least one segment; the last one is `active`. `truncations` counts how often the end was cut."""

    __slots__ = ("_largest", "active", "bases", "segments", "truncations")

    def __init__(self, segments: list[Segment]) -> None:
        self.segments = segments
        self.bases = [segment.base_offset for segment in segments]
        self.active = segments[-1]
        self.truncations = 0
        self._largest: tuple[list[Segment], array[int]] = ([], array("q"))

    def add(self, segment: Segment) -> None:
        """A new active segment."""
        self.segments = [*self.segments, segment]
        self.bases = [*self.bases, segment.base_offset]
        self.active = segment

    def drop_from_start(self, count: int) -> list[Segment]:
        """Take out the oldest segments; they are returned in the order in which their files are to go."""
        dropped = self.segments[:count]
        self._replace(self.segments[count:])
        return dropped

    def drop_from_end(self, count: int, then: Segment | None = None) -> list[Segment]:
        """Take out the newest segments, and go on with `then` when given; the newest is the first to go."""
        self.truncations += 1
        keep = len(self.segments) - count
        dropped = self.segments[keep:]
        self._replace(self.segments[:keep] + ([then] if then else []))
        return dropped[::-1]

    def holds(self, segments: list[Segment]) -> bool:
        """Whether these very segments are in the row, one after the other, and none of them is the active one."""
        first = bisect_left(self.bases, segments[0].base_offset)
        return self.segments[first : first + len(segments)] == segments and segments[-1] is not self.active

    def replace(self, old: list[Segment], new: Segment) -> None:
        """Put one segment in the place of several that the row `holds`."""
        first = bisect_left(self.bases, old[0].base_offset)
        self._replace([*self.segments[:first], new, *self.segments[first + len(old) :]])

    def _replace(self, segments: list[Segment]) -> None:
        self.segments = segments
        self.bases = [segment.base_offset for segment in segments]
        self.active = segments[-1]

    def between(self, start_offset: int, end_offset: int) -> list[Segment]:
        """The segments that may hold offsets of [start, end)."""
        first = max(bisect_right(self.bases, start_offset) - 1, 0)
        return self.segments[first : bisect_left(self.bases, end_offset)]

    def find_slice(
        self, offset: int, max_bytes: int, up_to_offset: int, end_offset: int, min_one_batch: bool
    ) -> LogSlice:
        """The bytes from the batch with `offset` on; `Log.read` says what the limits mean."""
        bases, segment = self.bases, self.active
        slot = len(bases) - 1
        if offset < segment.base_offset:
            slot = bisect_right(bases, offset) - 1
            segment = self.segments[slot]
        position = segment.position_of(offset)
        while position >= segment.size:
            # Compaction can empty the end of a segment; the next batch is then in a later one.
            slot += 1
            if slot == len(bases) or bases[slot] >= up_to_offset:
                return EMPTY_SLICE
            segment, position = self.segments[slot], 0
        size = self._end_position(slot, segment, up_to_offset, end_offset) - position
        if size > max_bytes:
            first_size = segment.batch_size_at(position)
            if first_size <= max_bytes:
                # Readers throw half a batch away: end at a batch that the index knows, if there is one in the slice.
                indexed = segment.offset_index.position_at_most(position + max_bytes)
                size = indexed - position if indexed > position else max_bytes
            elif min_one_batch:
                size = first_size
            else:
                return EMPTY_SLICE
        if size <= 0:
            return EMPTY_SLICE
        return LogSlice(segment.open_file(), position, size, segment.base_offset)

    def _end_position(self, slot: int, segment: Segment, up_to_offset: int, end_offset: int) -> int:
        if slot + 1 < len(self.bases):
            return segment.size if up_to_offset >= self.bases[slot + 1] else segment.position_of(up_to_offset)
        if up_to_offset < end_offset:
            return segment.position_of(up_to_offset)
        # A reader at the tail comes back for exactly this offset.
        segment.remember_position(end_offset, segment.size)
        return segment.size

    def offset_beyond(self, piece: LogSlice) -> int | None:
        """An offset that no record of a slice reaches; None when only the log's end is such a one."""
        slot = bisect_left(self.bases, piece.segment_base_offset)
        if slot < len(self.bases):
            beyond = self.segments[slot].offset_beyond(piece.position + piece.size)
            if beyond is not None:
                return beyond
            if slot + 1 < len(self.bases):
                return self.bases[slot + 1]
        return None

    def aborted_transactions(self, fetch_offset: int, upper_offset: int) -> list[AbortedTxn]:
        """The aborted transactions that wrote to the offsets [fetch, upper)."""
        found: list[AbortedTxn] = []
        for segment in self.segments[max(bisect_right(self.bases, fetch_offset) - 1, 0) :]:
            overlapping, complete = segment.txn_index.overlapping(fetch_offset, upper_offset)
            found += overlapping
            if complete:
                break
        return found

    def find_timestamp(self, timestamp_ms: int, start_offset: int) -> TimestampOffset | None:
        """The first record from `start_offset` on whose timestamp is not smaller."""
        segments = self.segments
        for slot in range(self._first_slot_reaching(segments, timestamp_ms), len(segments)):
            if segments[slot].max_timestamp_ms >= timestamp_ms:
                found = find_timestamp(segments[slot], timestamp_ms, start_offset)
                if found is not None:
                    return found
        return None

    def _first_slot_reaching(self, segments: list[Segment], timestamp_ms: int) -> int:
        """Binary search over the largest timestamps up to each sealed segment, which rise by their nature."""
        known, largest = self._largest
        if known is not segments:
            largest = self._learn_times(segments)
        return bisect_left(largest, timestamp_ms)

    @property
    def knows_times(self) -> bool:
        """Whether a look-up by time need not read the time index of every segment first."""
        return self._largest[0] is self.segments or len(self.segments) == 1

    def learn_times(self) -> None:
        """Read what look-ups by time need of every segment; may run in a thread."""
        self._learn_times(self.segments)

    def _learn_times(self, segments: list[Segment]) -> "array[int]":
        largest, so_far = array("q"), -1
        for segment in segments[:-1]:
            so_far = max(so_far, segment.max_timestamp_ms)
            largest.append(so_far)
        self._largest = (segments, largest)
        return largest

    def find_max_timestamp(self, start_offset: int) -> TimestampOffset | None:
        """The first record from `start_offset` on that has the largest timestamp."""
        first, *others = self.segments
        best = find_max_timestamp(first, start_offset)
        latest = max(others, key=lambda segment: segment.max_timestamp_ms, default=None)
        if latest is not None and latest.max_timestamp_ms > (best.timestamp_ms if best else -1):
            best = find_max_timestamp(latest, latest.base_offset)
        return best
