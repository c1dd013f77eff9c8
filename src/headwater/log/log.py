"""One partition's log: a row of segments in a folder, appended to at the end and read from anywhere.

Assigns offsets, refuses what a producer's history does not allow, rolls segments, answers look-ups by offset,
time and leader epoch. Knows nothing of replicas: how far a reader may read is told by the caller.

Threads: one thread (the event loop's) appends, reads, rolls, truncates and looks up. `flush` and
`remove_deleted_files` may run in another thread at the same time; so may `learn_times`, `offset_for_timestamp` and
`aborted_transactions`, which only read, and the cleaner, which reads sealed segments and makes files of its own.
`truncate_to`, `truncate_fully_and_start_at` and `close` wait for a running flush.
"""

import threading
from bisect import bisect_right
from uuid import UUID

from headwater.config import TopicConfig
from headwater.log.cutting import Cutting
from headwater.log.filesystem import FileSystem
from headwater.log.folder_changes import FolderChanges
from headwater.log.folder_names import doomed_folder
from headwater.log.leader_epochs import LeaderEpochs
from headwater.log.log_types import EMPTY_SLICE, ActiveProducer, AppendInfo, LogSlice
from headwater.log.moving.relocation import Relocation
from headwater.log.open_files import OpenFiles
from headwater.log.producer_snapshots import ProducerSnapshots
from headwater.log.producer_state import Markers, ProducerStates, RememberedBatch, read_markers
from headwater.log.recovery import HOLES_ANYWHERE, LoadedLog, load_log
from headwater.log.rolling import Rolling, new_jitter_ms
from headwater.log.segment import LARGEST_RELATIVE_OFFSET, Segment
from headwater.log.segment_row import SegmentRow
from headwater.log.segment_swap import CleaningAbortedError, SegmentSwap
from headwater.log.syncing import Syncing
from headwater.log.timestamp_lookup import TimestampOffset
from headwater.log.txn_index import AbortedTxn
from headwater.protocol.errors import ApiError, ErrorCode
from headwater.protocol.records import BatchHeader, patch_append_time, patch_offsets


class UnexpectedOffsetError(ValueError):
    """A follower was given batches that do not go on where its log ends."""


class Log:
    """The log of one partition; made by `Log.open`.

    `log_start_offset` and `log_end_offset` bound what can be read; everything before `recovery_point` is on
    the device; what is before `cleaned_until` was compacted. Who holds `flush_gate` keeps the recovery point in place.
    """

    __slots__ = (
        "_changes",
        "_closed",
        "_config",
        "_cutting",
        "_flush_lock",
        "_flush_messages",
        "_index_limit",
        "_opened_clean",
        "_opened_end_offset",
        "_producers",
        "_rolling",
        "_row",
        "_segment_bytes",
        "_segment_ms",
        "_snapshots",
        "_swap",
        "_syncing",
        "_uses_append_time",
        "cleaned_until",
        "cuts",
        "files",
        "flush_gate",
        "fs",
        "leader_epochs",
        "log_end_offset",
        "log_start_offset",
        "path",
        "producer_id_expiration_ms",
        "recovery_point",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self,
        files: OpenFiles,
        loaded: LoadedLog,
        *,
        config: TopicConfig,
        cleaned_until: int = 0,
        producer_id_expiration_ms: int,
    ) -> None:
        self.fs: FileSystem = files.fs
        self.files = files
        self.topic_partition = loaded.topic_partition
        self.path = loaded.path
        self.topic_id: UUID | None = loaded.topic_id
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = self._opened_end_offset = loaded.log_end_offset
        self._opened_clean = loaded.was_clean
        self.recovery_point = loaded.recovery_point
        self.cleaned_until = cleaned_until
        self.cuts = 0
        self.producer_id_expiration_ms = producer_id_expiration_ms
        self.leader_epochs: LeaderEpochs = loaded.leader_epochs
        self._producers: ProducerStates = loaded.producers
        self._snapshots: ProducerSnapshots = loaded.snapshots
        self._row = SegmentRow(loaded.segments)
        self._flush_lock = threading.Lock()
        self.flush_gate = threading.Lock()
        self._changes = FolderChanges(self.fs, loaded.snapshots, is_new=loaded.is_new)
        self._swap: SegmentSwap | None = None
        self._rolling = Rolling(
            files,
            loaded.path,
            row=self._row,
            producers=loaded.producers,
            snapshots=loaded.snapshots,
            changes=self._changes,
        )
        self._cutting = Cutting(
            self.fs,
            row=self._row,
            rolling=self._rolling,
            producers=loaded.producers,
            snapshots=loaded.snapshots,
            changes=self._changes,
        )
        self._syncing = Syncing(self.fs, self._row, self.leader_epochs, self._changes)
        self._closed = False
        self.config = config
        self._row.active.jitter_ms = new_jitter_ms(config)

    @classmethod
    def open(
        cls,
        fs: FileSystem,
        path: str,
        *,
        config: TopicConfig,
        topic_id: UUID | None = None,
        clean: bool = True,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        cleaned_until: int = 0,
        now_ms: int,
        producer_id_expiration_ms: int = 86_400_000,
        files: OpenFiles | None = None,
    ) -> "Log":
        """Open the log in the folder `path` (`<topic>-<partition>`), or make it.

        Unless the last stop was `clean`, the segments from the recovery point on are checked batch by batch,
        a torn tail is cut and the indexes are rebuilt. `files` bounds open files and is shared by all logs of
        a process.
        """
        files = OpenFiles(fs) if files is None else files
        loaded = load_log(
            files,
            path,
            index_interval_bytes=config.index_interval_bytes,
            topic_id=topic_id,
            clean=clean,
            holes_until=HOLES_ANYWHERE if config.compacts else cleaned_until,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            now_ms=now_ms,
            producer_id_expiration_ms=producer_id_expiration_ms,
        )
        if cleaned_until > loaded.log_end_offset:
            # It lost its end and may get other records there: all of it is cleaned anew.
            cleaned_until = 0
        return cls(
            files,
            loaded,
            config=config,
            cleaned_until=cleaned_until,
            producer_id_expiration_ms=producer_id_expiration_ms,
        )

    @property
    def config(self) -> TopicConfig:
        """The topic's configs; may be replaced while the log is in use."""
        return self._config

    @config.setter
    def config(self, config: TopicConfig) -> None:
        self._config = config
        # The hot path reads plain attributes.
        self._uses_append_time = config.message_timestamp_type == "LogAppendTime"
        self._segment_bytes = config.segment_bytes
        # A record must become cleanable within max.compaction.lag.ms, and the active segment is never cleaned.
        self._segment_ms = min(
            config.segment_ms, config.max_compaction_lag_ms if config.compacts else config.segment_ms
        )
        self._flush_messages = config.flush_messages
        self._index_limit = min(config.segment_index_bytes // 8, config.segment_index_bytes // 12 - 1)

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The segments, oldest first; the last is the active one."""
        return tuple(self._row.segments)

    @property
    def is_closed(self) -> bool:
        """Whether it was closed or deleted: nothing in its folder is its own any more."""
        return self._closed

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments' data."""
        return sum(segment.size for segment in self._row.segments)

    def append_as_leader(
        self,
        buffer: memoryview,
        start: int,
        end: int,
        headers: list[BatchHeader],
        *,
        leader_epoch: int,
        now_ms: int,
        verify_producer: bool = True,
    ) -> AppendInfo:
        """Append whole, checked batches that lie in [start, end) of a writable buffer; `headers` are theirs.

        Offsets, leader epoch and, where the topic asks for it, the append time are set in the buffer and in
        the headers. ProducerStateError (an ApiError) when a producer's history forbids a batch; a repeated
        batch is answered with the original's offsets. Without `verify_producer` (a coordinator's own writes)
        sequences are not looked at.
        """
        offset = self.log_end_offset
        markers: Markers | None = None
        largest_timestamp_ms = -1
        for header in headers:
            if header.producer_id >= 0:
                if len(headers) == 1 and not header.is_control:
                    duplicate = self._producers.check(header, offset, sequences=verify_producer)
                else:
                    markers = read_markers(buffer, headers)
                    duplicate = self._producers.check_all(headers, markers, offset, sequences=verify_producer)
                if duplicate is not None:
                    return self._duplicate_info(duplicate)
                break
        for header in headers:
            patch_offsets(buffer, header.position, offset, leader_epoch)
            header.base_offset = offset
            header.leader_epoch = leader_epoch
            if self._uses_append_time:
                patch_append_time(buffer, header, now_ms)
            if header.max_timestamp_ms > largest_timestamp_ms:
                largest_timestamp_ms = header.max_timestamp_ms
            offset += header.last_offset_delta + 1
        if leader_epoch != self.leader_epochs.latest and leader_epoch >= 0:
            self.leader_epochs.assign(leader_epoch, self.log_end_offset)
        return self._append(buffer, start, end, headers, markers, largest_timestamp_ms, now_ms)

    def append_as_follower(
        self, buffer: memoryview, start: int, end: int, headers: list[BatchHeader], *, now_ms: int
    ) -> AppendInfo:
        """Append batches as the leader sent them: offsets, epochs and times are kept."""
        next_offset = self.log_end_offset
        markers = None
        for header in headers:
            if header.base_offset < next_offset:
                raise UnexpectedOffsetError(
                    f"{self.path} ends at {self.log_end_offset} and cannot take a batch with the offsets "
                    f"{header.base_offset}..{header.last_offset}: truncate first"
                )
            next_offset = header.next_offset
            if header.producer_id >= 0:
                markers = read_markers(buffer, headers)
        for header in headers:
            if header.leader_epoch > self.leader_epochs.latest:
                self.leader_epochs.assign(header.leader_epoch, header.base_offset)
        largest_timestamp_ms = max(header.max_timestamp_ms for header in headers)
        return self._append(buffer, start, end, headers, markers, largest_timestamp_ms, now_ms)

    def _append(
        self,
        buffer: memoryview,
        start: int,
        end: int,
        headers: list[BatchHeader],
        markers: Markers | None,
        largest_timestamp_ms: int,
        now_ms: int,
    ) -> AppendInfo:
        segment = self._row.active
        first_offset, last_offset = headers[0].base_offset, headers[-1].last_offset
        rolled = (
            self._rolling.half_done is not None
            or segment.size + end - start > self._segment_bytes
            or (
                segment.size > 0
                and segment.ms_since_first_batch(largest_timestamp_ms, now_ms) > self._segment_ms - segment.jitter_ms
            )
            or (segment.bytes_since_entry > segment.interval_bytes and len(segment.offset_index) >= self._index_limit)
            or last_offset - segment.base_offset > LARGEST_RELATIVE_OFFSET
        )
        if rolled:
            rolled = self._roll_before(first_offset, end - start, now_ms)
            segment = self._row.active
        segment.append(buffer[start:end], headers)
        self.log_end_offset = last_offset + 1
        if markers is None:
            for header in headers:
                if header.producer_id >= 0:
                    self._producers.record(header, header.last_offset, header.max_timestamp_ms)
        else:
            self._record_with_markers(headers, markers)
        return AppendInfo(
            first_offset,
            last_offset,
            now_ms if self._uses_append_time else -1,
            self.log_start_offset,
            False,
            last_offset + 1 - self.recovery_point >= self._flush_messages,
            rolled,
        )

    def _duplicate_info(self, original: RememberedBatch) -> AppendInfo:
        append_time_ms = original.timestamp_ms if self._uses_append_time else -1
        first_offset, last_offset = original.first_offset, original.last_offset
        # Who repeats a batch may have lost the answer that was waiting for the flush.
        flush_needed = last_offset + 1 - self.recovery_point >= self._flush_messages
        return AppendInfo(first_offset, last_offset, append_time_ms, self.log_start_offset, True, flush_needed, False)

    def _record_with_markers(self, headers: list[BatchHeader], markers: Markers) -> None:
        for header, marker in zip(headers, markers, strict=True):
            if marker is not None:
                aborted = self._producers.record_marker(header, marker, header.base_offset)
                if aborted is not None:
                    self._row.active.txn_index.append(aborted)
            elif header.producer_id >= 0 and not header.is_control:
                self._producers.record(header, header.last_offset, header.max_timestamp_ms)

    def _roll_before(self, first_offset: int, size: int, now_ms: int) -> bool:
        if size > self._segment_bytes:
            raise ApiError(
                ErrorCode.record_list_too_large,
                f"a batch of {size} bytes does not fit a segment of {self.topic_partition}: segment.bytes is "
                f"{self._segment_bytes}",
            )
        if self._row.active.size == 0 and first_offset - self._row.active.base_offset <= LARGEST_RELATIVE_OFFSET:
            return False
        self.roll(now_ms, base_offset=first_offset)
        return True

    def roll(self, now_ms: int, *, base_offset: int | None = None) -> None:
        """Start a new segment at the log's end, or at a larger `base_offset`, unless the active one is empty.

        Writes to the page cache only; a `flush` in the background brings the finished segment to the device.
        """
        base_offset = max(self.log_end_offset, base_offset or 0)
        old = self._row.active
        if old.size == 0 and old.base_offset == base_offset:
            return
        self._rolling.roll(base_offset, now_ms, self._config)

    def read(self, offset: int, max_bytes: int, *, up_to_offset: int, min_one_batch: bool = True) -> LogSlice:
        """The bytes from the batch with `offset` on, at most `max_bytes` and never beyond `up_to_offset`.

        The slice may end within a batch, though mostly it does not. With `min_one_batch` a first batch larger than
        `max_bytes` comes whole and alone; without it the slice is then empty. ApiError OFFSET_OUT_OF_RANGE outside of
        the log's offsets.
        """
        end_offset = self.log_end_offset
        if offset < self.log_start_offset or offset > end_offset:
            raise ApiError(
                ErrorCode.offset_out_of_range,
                f"offset {offset} of {self.topic_partition} is not in {self.log_start_offset}..{end_offset}",
            )
        if offset >= up_to_offset or offset == end_offset:
            if offset == end_offset:
                active = self._row.active
                active.remember_position(offset, active.size)
            return EMPTY_SLICE
        return self._row.find_slice(offset, max_bytes, up_to_offset, end_offset, min_one_batch)

    def upper_bound_offset(self, piece: LogSlice) -> int:
        """An offset that no record of a slice reaches, for `aborted_transactions`."""
        beyond = self._row.offset_beyond(piece)
        return self.log_end_offset if beyond is None else beyond

    def aborted_transactions(self, fetch_offset: int, upper_offset: int) -> list[AbortedTxn]:
        """The aborted transactions that wrote to the offsets [fetch, upper)."""
        return self._row.aborted_transactions(fetch_offset, upper_offset)

    def last_data_offsets(self) -> dict[int, tuple[int, int]]:
        """For each producer id the last offset that it wrote, -1 when only a marker is known, and its epoch."""
        return self._producers.last_data_offsets()

    @property
    def last_stable_offset(self) -> int:
        """Where the oldest open transaction begins, or the log's end; replication is not considered."""
        undecided = self._producers.first_undecided_offset
        return self.log_end_offset if undecided is None else undecided

    def last_stable_offset_below(self, high_watermark: int) -> int:
        """The last stable offset for consumers: a marker counts once the high watermark is past it."""
        return self._producers.last_stable_offset(high_watermark)

    def offset_for_timestamp(self, timestamp_ms: int, up_to_offset: int) -> TimestampOffset | None:
        """The first record whose timestamp is not smaller, None when there is none before `up_to_offset`."""
        found = self._row.find_timestamp(timestamp_ms, self.log_start_offset)
        return found if found is not None and found.offset < up_to_offset else None

    @property
    def knows_times(self) -> bool:
        """Whether a look-up by time is quick: the first one after a start reads a little of every segment."""
        return self._row.knows_times

    def learn_times(self) -> None:
        """Read what look-ups by time need. May run in a thread."""
        self._row.learn_times()

    def offset_of_max_timestamp(self) -> TimestampOffset | None:
        """The first record that has the largest timestamp of the log."""
        return self._row.find_max_timestamp(self.log_start_offset)

    @property
    def latest_epoch(self) -> int:
        """The newest leader epoch, -1 when there is none."""
        return self.leader_epochs.latest

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest epoch not beyond `epoch` and the offset at which it ended; (-1, -1) when unknown."""
        return self.leader_epochs.end_offset(epoch, self.log_end_offset)

    def active_producers(self) -> list[ActiveProducer]:
        """The producers that this partition remembers."""
        return self._producers.active()

    def has_open_transaction(self, producer_id: int, producer_epoch: int | None = None) -> bool:
        """Whether a producer, in this epoch if one is given, has a transaction open here."""
        return self._producers.has_open_transaction(producer_id, producer_epoch)

    def knows_producer(self, producer_id: int) -> bool:
        """Whether a producer wrote here before and is not forgotten."""
        return producer_id in self._producers.entries

    def remove_expired_producers(self, now_ms: int) -> None:
        """Forget the producers that wrote nothing for `producer.id.expiration.ms`."""
        self._producers.remove_expired(now_ms, self.producer_id_expiration_ms)

    def truncate_to(self, offset: int, *, now_ms: int) -> None:
        """Make the log end at `offset`; a batch that reaches beyond it goes whole.

        The recovery point moves back with it: write the checkpoint before new records are acknowledged.
        """
        if offset >= self.log_end_offset:
            # An epoch that began at the end without a batch may contradict the new leader's.
            self.leader_epochs.truncate_from_end(self.log_end_offset)
            return
        if offset < self._row.bases[0]:
            self.truncate_fully_and_start_at(offset, now_ms=now_ms)
            return
        self._note_cut()
        self._rolling.undo()
        with self._flush_lock:
            self.recovery_point = min(self.recovery_point, offset)
            self.cleaned_until = min(self.cleaned_until, offset)
            self._cutting.cut_end(self.path, offset, now_ms)
            self.log_end_offset = offset
            self.log_start_offset = min(self.log_start_offset, offset)
            self.leader_epochs.truncate_from_end(offset)
        self._cutting.reload_producers(
            self.log_start_offset, self.log_end_offset, now_ms=now_ms, expiration_ms=self.producer_id_expiration_ms
        )

    def truncate_fully_and_start_at(self, offset: int, *, now_ms: int) -> None:
        """Drop everything and go on at `offset`."""
        self._note_cut()
        self._rolling.undo()
        with self._flush_lock:
            self.recovery_point = min(self.recovery_point, offset)
            self.cleaned_until = min(self.cleaned_until, offset)
            self._cutting.start_anew(self.path, offset, now_ms, self._config)
            self.leader_epochs.clear()
            self._cutting.forget_producers()
            self.log_start_offset = self.log_end_offset = self.recovery_point = offset

    def delete_records_before(self, offset: int) -> int:
        """Move the log's start to `offset` (-1: to the end) and drop the segments before it.

        The files wait under another name for `remove_deleted_files`. ApiError OFFSET_OUT_OF_RANGE beyond the end.
        """
        if offset == -1:
            offset = self.log_end_offset
        if offset > self.log_end_offset or offset < 0:
            raise ApiError(
                ErrorCode.offset_out_of_range,
                f"records of {self.topic_partition} cannot be deleted up to {offset}: "
                f"the log ends at {self.log_end_offset}",
            )
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.leader_epochs.truncate_from_start(offset)
        whole = bisect_right(self._row.bases, self.log_start_offset) - 1
        if whole > 0:
            self._note_cut()
            self._changes.drop(self._row.drop_from_start(whole))
        return self.log_start_offset

    def swap(self, old: list[Segment], new: Segment) -> SegmentSwap:
        """The replacement of sealed segments by a cleaned one, to be taken through its steps."""
        if self._closed:
            raise CleaningAbortedError(f"{self.topic_partition} is closed")
        self._swap = SegmentSwap(self._row, self._changes, old, new)
        return self._swap

    @property
    def half_done_swap(self) -> SegmentSwap | None:
        """One that an error ended after readers had its new segment: it is done before the next begins."""
        return self._swap if self._swap is not None and self._swap.is_half_done else None

    def relocation(self) -> Relocation:
        """What knows where the log lies, for whoever moves it to another folder."""
        return Relocation(self._row, self._rolling, self._snapshots, self.leader_epochs, self._changes)

    def _note_cut(self) -> None:
        """Segments are about to be dropped or cut: what a cleaner found out about them holds no longer."""
        self.cuts += 1
        if self._swap is not None:
            self._swap.cancel()
            self._swap = self.half_done_swap

    def remove_deleted_files(self) -> int:
        """Unlink the files of dropped segments; how many there were. May run in a thread."""
        return self.remove_files(self.take_deleted_files())

    def remove_files(self, paths: list[str]) -> int:
        """Unlink files that `take_deleted_files` gave out; how many there were. May run in a thread."""
        for path in paths:
            self.fs.remove(path)
        return len(paths)

    def take_deleted_files(self) -> list[str]:
        """The files of segments dropped since the last call, for whoever unlinks them when their time has come."""
        return self._changes.take_deleted_files()

    def flush(self, up_to: int | None = None) -> None:
        """Bring the log to the device up to an offset, by default its end, and move the recovery point there.

        May run in a thread while the loop appends; what is appended meanwhile is left for the next flush. After
        an error the recovery point stays where it is until a restart. Waits for whoever holds `flush_gate`.
        """
        with self.flush_gate, self._flush_lock:
            end_offset = self.log_end_offset
            target = end_offset if up_to is None else min(up_to, end_offset)
            if target <= self.recovery_point or (self._closed and self._syncing.failure is None):
                return
            self._syncing.sync(self.path, self.recovery_point, target)
            self.recovery_point = target

    @property
    def has_unsynced_names(self) -> bool:
        """Whether names of files may be lost with the power."""
        return self._changes.has_unsynced_names

    def close(self) -> None:
        """Flush, write a snapshot of the producers, complete the index files and let go of all files."""
        self.flush()
        with self._flush_lock:
            if self.log_end_offset > 0:
                self._snapshots.take(list(self._producers.entries.values()), self.log_end_offset)
            for segment in self._row.segments:
                segment.close()
            if self._opened_clean and not self.cuts and self.log_end_offset == self._opened_end_offset:
                # Idle, as most of thousands of partitions are: at most it is new.
                self._changes.sync(self.path)
            else:
                self._syncing.sync_for_clean_stop(self.path, self._snapshots.path(self.log_end_offset))
            self._closed = True
        self.remove_deleted_files()

    def abandon(self, failure: OSError | None = None) -> None:
        """Let go of all files as they are, as a crash would; a flush from here on raises the `failure` of the dir."""
        self._syncing.failure = self._syncing.failure or failure
        self._closed = True
        for segment in self._row.segments:
            segment.let_go()

    def delete(self) -> str:
        """Rename the folder so that it is no partition any more; the new path, for `FileSystem.remove_tree`.

        Slices that are being sent stay readable.
        """
        new_path = f"{self.path.rpartition('/')[0]}/{doomed_folder(self.topic_partition)}"
        self._note_cut()
        with self._flush_lock:
            self.abandon()
            self.fs.rename(self.path, new_path)
            self.path = new_path
        return new_path
