"""Cleaning one log: of each key only the newest record stays, at its old offset. The rules are Kafka's.

First the keys of the dirty part go into an `OffsetMap`; then the sealed segments are copied without what is superseded,
several into one where they have become small, and each copy is swapped in. A batch that loses nothing is copied as it
is. What waits in a log's cleaning for the disk is a step of its own, to be run in a thread: see `Cleaning.steps`.
"""

import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from headwater.log.cleaning.batch_cleaner import BatchCleaner
from headwater.log.cleaning.cleanable import Cleanable
from headwater.log.cleaning.cleaner_transactions import PART_OF_TRANSACTION, CleanerTransactions
from headwater.log.cleaning.offset_map import BYTES_PER_KEY, OffsetMap
from headwater.log.log import Log
from headwater.log.segment import LARGEST_RELATIVE_OFFSET, CorruptSegmentError, Segment
from headwater.log.segment_swap import CLEANED_SUFFIX, CleaningAbortedError, SegmentSwap
from headwater.log.throttle import Throttle
from headwater.protocol.records import BatchHeader, CorruptBatchError, check_batches

_SMALLEST_CHUNK_BYTES = 1 << 16
_MOST_BATCHES_AT_ONCE = 128
_MOST_BYTES_BESIDE_LOOP = 1 << 17
_REST_S = 0.00005
_LARGEST_MAP_BYTES = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanerLimits:
    """What one cleaning may use: memory for keys and how full it may get, bytes to read at once, the pace.

    While `is_loop_busy` it works in smaller pieces and rests after each: the event loop comes first.
    """

    map_bytes: int
    map_load: float
    chunk_bytes: int
    throttle: Throttle
    stopped: threading.Event
    is_loop_busy: Callable[[], bool] = lambda: False


class Cleaning:
    """One round over one log: from `first_dirty_offset` as far as the map reaches."""

    def __init__(self, log: Log, cleanable: Cleanable, limits: CleanerLimits, *, now_ms: int) -> None:
        self._log = log
        self._cleanable = cleanable
        self._limits = limits
        self._now_ms = now_ms
        self._chunk_bytes = self._piece_bytes = max(limits.chunk_bytes, _SMALLEST_CHUNK_BYTES)
        self._map = _new_map(limits)
        self._swap: SegmentSwap | None = None
        self._unfinished: Segment | None = None
        self._cuts = log.cuts
        self._reading = (log.path, 0)
        self._groups: list[list[Segment]] = []
        self._transactions = CleanerTransactions(())
        self.bytes_read = 0
        self.bytes_written = 0

    def steps(self) -> Iterator[Callable[[], object]]:
        """The work, piece by piece: each piece may take long and runs in any thread, what is between runs on the loop.

        CleaningAbortedError when the log changes under it, CorruptSegmentError for data that cannot be read. In any
        case call `abandon` at the end.
        """
        log, end_offset = self._log, self._cleanable.first_uncleanable_offset
        if (swap := log.half_done_swap) is not None:
            # What begins now must not be taken for a part of it.
            swap.drop_old()
            yield from self._name_new(swap)
            self._check_uncut()
        # A record may only go for one that is on the device: else a loss of power could take both.
        yield partial(log.flush, end_offset)
        yield self._map_keys
        self._check_uncut()
        segments = [segment for segment in log.segments[:-1] if segment.base_offset < self._map.latest_offset + 1]
        self._transactions = CleanerTransactions(log.aborted_transactions(segments[0].base_offset, end_offset))
        yield lambda: self._groups.extend(group_segments(segments, log, end_offset))
        for group in self._groups:
            yield partial(self._write_cleaned, group, log.last_data_offsets())
            self._check_uncut()
            yield from self._swap_in(group)
        log.cleaned_until = self._map.latest_offset + 1

    def _swap_in(self, group: list[Segment]) -> Iterator[Callable[[], object]]:
        assert self._unfinished is not None
        log = self._log
        self._swap = swap = log.swap(group, self._unfinished)
        swap.begin()
        yield partial(log.fs.sync_dir, log.path)
        swap.replace()
        self._swap = self._unfinished = None
        yield from self._name_new(swap)

    def _name_new(self, swap: SegmentSwap) -> Iterator[Callable[[], object]]:
        yield partial(self._log.fs.sync_dir, self._log.path)
        if not self._log.is_closed:
            swap.finish()

    def _check_uncut(self) -> None:
        if self._log.is_closed or self._log.cuts != self._cuts:
            raise CleaningAbortedError(f"segments of {self._log.topic_partition} were dropped while it was cleaned")

    def abandon(self) -> None:
        """Remove the files of an unfinished segment, after an error or a stop; nothing to do after success.

        May run in a thread.
        """
        # The folder of a log that was deleted may be that of a new topic of the same name by now.
        unfinished = self._unfinished if not self._log.is_closed else None
        if unfinished is not None and unfinished not in self._log.segments:
            if self._swap is not None:
                self._swap.cancel()
                # Without the `.cleaned` files a `.swap` that comes back with the power would count.
                self._log.fs.sync_dir(self._log.path)
            unfinished.remove_files()
        self._swap = self._unfinished = None

    @contextmanager
    def _locating_damage(self) -> Iterator[None]:
        try:
            yield
        except CorruptBatchError as error:
            path, position = self._reading
            raise CorruptSegmentError(path, position + error.position, error.reason) from error

    def _map_keys(self) -> None:
        """Note the newest offset of every key in the dirty part, as far as the map reaches."""
        self._map_segments()
        self._map.settle(self._cleanable.first_dirty_offset)

    def _map_segments(self) -> None:
        start, end = self._cleanable.first_dirty_offset, self._cleanable.first_uncleanable_offset
        segments = [s for s in self._log.segments if s.base_offset < end]
        transactions = CleanerTransactions(self._log.aborted_transactions(start, end))
        ends = [segment.base_offset for segment in segments[1:]] + [end]
        for segment, segment_end in zip(segments, ends, strict=True):
            if segment_end <= start:
                continue
            position = segment.offset_index.lookup(max(start - segment.base_offset, 0))
            with self._locating_damage():
                if self._map_segment(segment, position, transactions):
                    return
            # The end of a segment may have been emptied by an earlier cleaning.
            self._map.latest_offset = segment_end - 1

    def _map_segment(self, segment: Segment, position: int, transactions: CleanerTransactions) -> bool:
        """Note the keys of a segment from a position on; True when the map is full."""
        for chunk, headers in self._chunks(segment, position):
            passed_by = bytearray(len(headers))
            for slot, header in enumerate(headers):
                if header.attributes & PART_OF_TRANSACTION:
                    if header.is_control:
                        transactions.marker_is_done(chunk, header)
                    passed_by[slot] = header.is_control or transactions.is_aborted(header)
            if self._map.add(memoryview(chunk), headers, passed_by, self._cleanable.first_dirty_offset):
                return True
        return False

    def _chunks(self, segment: Segment, position: int = 0) -> Iterator[tuple[bytes, list[BatchHeader]]]:
        """The batches of a segment, many at a time, with right checksums: damage is not copied as if it were good."""
        while position < segment.size:
            if self._limits.stopped.is_set():
                raise CleaningAbortedError(f"the cleaning of {self._log.topic_partition} was stopped")
            chunk, headers, _ = next(segment.chunks(position, self._piece_bytes))
            size = headers[-1].position + headers[-1].size
            loop_is_busy = self._limits.is_loop_busy()
            most_bytes = min(self._chunk_bytes, _MOST_BYTES_BESIDE_LOOP) if loop_is_busy else self._chunk_bytes
            # What is done batch by batch holds the interpreter's lock, for which the loop has to wait.
            self._piece_bytes = min(most_bytes, size * _MOST_BATCHES_AT_ONCE // len(headers))
            self.bytes_read += size
            self._limits.throttle.spend(size)
            self._reading = (segment.path, position)
            yield chunk, check_batches(chunk, 0, size, strict=False)
            position += size
            if loop_is_busy:
                # Else the loop may have to wait until this thread's turn on a core is over.
                time.sleep(_REST_S)

    def _write_cleaned(self, group: list[Segment], last_offsets: dict[int, tuple[int, int]]) -> None:
        """Copy what stays of some segments to a new one; it is on the device when this returns."""
        log = self._log
        batches = BatchCleaner(
            self._map,
            self._transactions,
            last_offsets,
            end_offset=self._cleanable.first_uncleanable_offset,
            delete_retention_ms=log.config.delete_retention_ms,
            now_ms=self._now_ms,
        )
        # Names of an earlier swap that are lost with the power must not meet a `.cleaned` file: see `leftovers`.
        log.fs.sync_dir(log.path)
        cleaned = self._unfinished = Segment.create(
            log.files,
            log.path,
            group[0].base_offset,
            now_ms=self._now_ms,
            interval_bytes=log.config.index_interval_bytes,
            suffix=CLEANED_SUFFIX,
        )
        with self._locating_damage():
            for segment in group:
                for chunk, headers in self._chunks(segment):
                    self._copy_survivors(batches, chunk, headers, cleaned)
        cleaned.seal()
        cleaned.fs.set_modified_ms(cleaned.path, group[-1].fs.modified_ms(group[-1].path))
        cleaned.flush()
        cleaned.sync_indexes()

    def _copy_survivors(
        self, batches: BatchCleaner, chunk: bytes, headers: list[BatchHeader], cleaned: Segment
    ) -> None:
        content, written = batches.clean(chunk, headers)
        for txn in self._transactions.take_still_aborted():
            cleaned.txn_index.append(txn)
        if written:
            cleaned.append(memoryview(content), written)
            self.bytes_written += len(content)
            self._limits.throttle.spend(len(content))


def group_segments(segments: Iterable[Segment], log: Log, end_offset: int) -> list[list[Segment]]:
    """The segments in groups, each to become one: within the sizes of a segment and its indexes, and of offsets.

    Sizes before cleaning count, so a group may come out small; it is joined with others the next time.
    """
    row = list(segments)
    ends = [segment.base_offset for segment in row[1:]] + [end_offset]
    groups: list[list[Segment]] = []
    size = offset_bytes = time_bytes = 0
    for segment, end in zip(row, ends, strict=True):
        more_offset_bytes, more_time_bytes = segment.index_sizes
        fits = (
            groups
            and size + segment.size <= log.config.segment_bytes
            and offset_bytes + more_offset_bytes <= log.config.segment_index_bytes
            and time_bytes + more_time_bytes <= log.config.segment_index_bytes
            and (segment.size == 0 or end - 1 - groups[-1][0].base_offset <= LARGEST_RELATIVE_OFFSET)
        )
        if not fits:
            groups.append([])
            size = offset_bytes = time_bytes = 0
        groups[-1].append(segment)
        size += segment.size
        offset_bytes += more_offset_bytes
        time_bytes += more_time_bytes
    return groups


def _new_map(limits: CleanerLimits) -> OffsetMap:
    slots = min(limits.map_bytes, _LARGEST_MAP_BYTES) // BYTES_PER_KEY
    return OffsetMap(slots=max(slots, 2), limit=max(int(slots * limits.map_load), 2), secret=secrets.token_bytes(16))


def clean(log: Log, cleanable: Cleanable, limits: CleanerLimits, *, now_ms: int) -> Cleaning:
    """Take a log through one cleaning in the calling thread, which must be the one that appends."""
    cleaning = Cleaning(log, cleanable, limits, now_ms=now_ms)
    try:
        for step in cleaning.steps():
            step()
    finally:
        cleaning.abandon()
    return cleaning
