"""Opening a partition's folder: leftovers of interrupted work, segments, what a crash tore, producer state.

After a clean stop it reads as little as possible. After any other, the segments from the recovery point on
are read batch by batch: the first batch that is not whole and unharmed ends the log, and everything beyond is
dropped. Old segments are never cut here.
"""

import logging
import posixpath
from dataclasses import dataclass
from uuid import UUID

from headwater.log.checkpoints import (
    LEADER_EPOCHS,
    PARTITION_METADATA,
    CheckpointError,
    read_topic_id,
    write_topic_id,
)
from headwater.log.filesystem import FileSystem
from headwater.log.index import read_last_offset_entry
from headwater.log.leader_epochs import LeaderEpochs
from headwater.log.leftovers import settle_leftovers
from headwater.log.open_files import OpenFiles
from headwater.log.producer_snapshots import SUFFIX as SNAPSHOT_SUFFIX
from headwater.log.producer_snapshots import ProducerSnapshots
from headwater.log.producer_state import ProducerStates, is_expired, read_marker
from headwater.log.segment import (
    INDEX_SUFFIX,
    LARGEST_RELATIVE_OFFSET,
    LOG_SUFFIX,
    SUFFIXES,
    TXN_INDEX_SUFFIX,
    CorruptSegmentError,
    Segment,
)
from headwater.log.txn_index import AbortedTxn
from headwater.protocol.records import BatchHeader, CorruptBatchError, check_batches
from headwater.types import TopicPartition

_log = logging.getLogger(__name__)

HOLES_ANYWHERE = 2**63 - 1
_OFFSET_DIGITS = 20


@dataclass(slots=True, kw_only=True)
class LoadedLog:
    """A folder's content, ready to become a `Log`."""

    topic_partition: TopicPartition
    path: str
    topic_id: UUID | None
    segments: list[Segment]
    leader_epochs: LeaderEpochs
    producers: ProducerStates
    snapshots: ProducerSnapshots
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    is_new: bool
    was_clean: bool


def load_log(
    files: OpenFiles,
    path: str,
    *,
    index_interval_bytes: int,
    topic_id: UUID | None,
    clean: bool,
    holes_until: int,
    recovery_point: int,
    log_start_offset: int,
    now_ms: int,
    producer_id_expiration_ms: int,
) -> LoadedLog:
    """Read the folder at `path`, or make it, and repair what a crash left.

    Cleaning may have left holes between segments that begin up to `holes_until`; beyond, one tells of lost data.
    """
    loader = _Loader(files, path, index_interval_bytes, log_start_offset, now_ms, producer_id_expiration_ms)
    loader.holes_until = holes_until
    loader.read_folder(topic_id)
    if not clean:
        loader.recover_from(recovery_point)
    end_offset = loader.find_end()
    loader.settle(end_offset)
    for segment in loader.segments:
        # Thousands of partitions are opened at start and few of them are used soon.
        segment.abandon()
    return LoadedLog(
        topic_partition=loader.topic_partition,
        path=path,
        topic_id=loader.topic_id,
        segments=loader.segments,
        leader_epochs=loader.leader_epochs,
        producers=loader.producers,
        snapshots=loader.snapshots,
        log_start_offset=loader.log_start_offset,
        log_end_offset=loader.log_end_offset,
        recovery_point=loader.log_end_offset if clean else min(recovery_point, loader.log_end_offset),
        # What an earlier life named and did not sync is still to be synced.
        is_new=loader.is_new or not clean,
        was_clean=clean,
    )


class _Loader:
    """The steps of opening one folder, in the order of the methods."""

    def __init__(
        self,
        files: OpenFiles,
        path: str,
        interval_bytes: int,
        log_start_offset: int,
        now_ms: int,
        expiration_ms: int,
    ) -> None:
        name = posixpath.basename(path)
        topic, _, partition = name.rpartition("-")
        self.topic_partition = TopicPartition(topic, int(partition))
        self.files = files
        self.fs: FileSystem = files.fs
        self.path = path
        self.interval_bytes = interval_bytes
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_start_offset
        self.now_ms = now_ms
        self.expiration_ms = expiration_ms
        self.topic_id: UUID | None = None
        self.segments: list[Segment] = []
        self.leader_epochs = LeaderEpochs(self.fs, f"{path}/{LEADER_EPOCHS}")
        self.producers = ProducerStates(name)
        self.snapshots = ProducerSnapshots(self.fs, path, [])
        self.is_new = False
        self.holes_until = 0
        self._producers_end: int | None = None

    def read_folder(self, topic_id: UUID | None) -> None:
        """Segments, snapshots, epochs and topic id from the names in the folder; makes an absent folder."""
        try:
            names = self.fs.list_dir(self.path)
        except FileNotFoundError:
            self.fs.make_dirs(self.path)
            self.is_new = True
            names = []
        names = settle_leftovers(self.fs, self.path, names)
        present = set(names)
        for name in names:
            stem, dot, _ = name.partition(".")
            if not dot or len(stem) != _OFFSET_DIGITS or not stem.isdigit():
                continue
            if name.endswith(SNAPSHOT_SUFFIX):
                self.snapshots.offsets.append(int(stem))
            elif name.endswith(LOG_SUFFIX):
                self.segments.append(self._segment(int(stem), has_txn_index=stem + TXN_INDEX_SUFFIX in present))
            elif name.endswith(SUFFIXES) and stem + LOG_SUFFIX not in present:
                _log.warning("removed %s/%s: it belongs to no segment", self.path, name)
                self.fs.remove(f"{self.path}/{name}")
        self.snapshots.offsets.sort()
        self.segments.sort(key=lambda segment: segment.base_offset)
        for segment in self.segments[:-1]:
            segment.sealed = True
        self._read_topic_id(topic_id, exists=PARTITION_METADATA in present)
        if LEADER_EPOCHS in present:
            self._read_leader_epochs()

    def _segment(self, base_offset: int, *, has_txn_index: bool) -> Segment:
        path = f"{self.path}/{base_offset:020d}{LOG_SUFFIX}"
        return Segment(
            self.files,
            self.path,
            base_offset,
            size=self.fs.size_of(path),
            created_ms=self.now_ms,
            interval_bytes=self.interval_bytes,
            has_txn_index=has_txn_index,
        )

    def _read_topic_id(self, topic_id: UUID | None, *, exists: bool) -> None:
        path = f"{self.path}/{PARTITION_METADATA}"
        if exists:
            try:
                self.topic_id = read_topic_id(self.fs, path)
            except CheckpointError as error:
                _log.warning("%s", error)
        if topic_id is not None and self.topic_id != topic_id:
            if self.topic_id is not None:
                raise TopicIdMismatchError(self.path, self.topic_id, topic_id)
            write_topic_id(self.fs, path, topic_id)
            self.topic_id = topic_id

    def _read_leader_epochs(self) -> None:
        try:
            self.leader_epochs.load()
        except CheckpointError as error:
            _log.warning("%s; the leader epochs are taken from the batches", error)
            self._gather_leader_epochs()

    def _gather_leader_epochs(self) -> None:
        try:
            for segment in self.segments:
                for batch in segment.batches():
                    if batch.header.leader_epoch > self.leader_epochs.latest:
                        self.leader_epochs.assign(batch.header.leader_epoch, batch.header.base_offset)
        except CorruptSegmentError as error:
            # Recovery, which comes next, decides what becomes of that segment.
            _log.warning("%s", error)

    def recover_from(self, recovery_point: int) -> None:
        """Check the segments that may not be on the device, cut what is torn, rebuild the rest."""
        first = 0
        for slot, segment in enumerate(self.segments):
            # One that begins just there may have been made after it, so the one before has indexes that are not synced.
            if segment.base_offset < recovery_point:
                first = slot
        if not self.segments:
            return
        unchecked = self.segments[first:]
        base_offset = unchecked[0].base_offset
        self.snapshots.keep_within(self.log_start_offset, base_offset)
        self._replay(self.segments[:first], base_offset)
        self._producers_end = base_offset
        self.leader_epochs.truncate_from_end(base_offset)
        for slot, segment in enumerate(unchecked):
            if slot and segment.base_offset != self._producers_end and segment.base_offset > self.holes_until:
                # The one before has lost its tail, which no batch there can tell.
                self._drop(unchecked[slot:])
                self.segments = self.segments[: first + slot]
                break
            if segment.base_offset > base_offset:
                self.snapshots.take(list(self.producers.entries.values()), segment.base_offset)
            end_offset = self._recover_segment(segment)
            if end_offset is not None:
                self._drop(unchecked[slot + 1 :])
                self.segments = self.segments[: first + slot + 1]
                break
        self.segments[-1].sealed = False

    def _recover_segment(self, segment: Segment) -> int | None:
        """Check and index one segment; where it was cut, None when it was whole."""
        size, good_bytes = segment.size, 0
        next_offset = segment.base_offset
        segment.reset_indexes()
        segment.txn_index.reset()
        try:
            for chunk, headers, position in segment.chunks():
                good, problem = _good_batches(chunk, headers, segment.base_offset, next_offset)
                if good:
                    self._replay_chunk(segment, chunk, good)
                    segment.index_batches(good, position)
                    next_offset = good[-1].next_offset
                    good_bytes = position + good[-1].position + good[-1].size
                if problem:
                    raise CorruptSegmentError(segment.path, good_bytes, problem)
        except CorruptSegmentError as error:
            # A tail that a crash left behind is cut as well: this log alone cannot tell it from damage.
            _log.warning("cut %s from %d to %d bytes: %s", segment.path, size, good_bytes, error.reason)
        self._producers_end = next_offset
        segment.cut_to(good_bytes)
        segment.finish_time_index()
        # The last segment's indexes are rebuilt at every such start; the others are trusted once they are
        # flushed.
        segment.write_indexes(sync=segment is not self.segments[-1])
        return next_offset if good_bytes < size else None

    def _replay_chunk(self, segment: Segment, chunk: bytes, headers: list[BatchHeader]) -> None:
        for header in headers:
            if header.leader_epoch > self.leader_epochs.latest:
                self.leader_epochs.assign(header.leader_epoch, header.base_offset)
            if header.producer_id >= 0:
                aborted = replay_batch(self.producers, chunk, header)
                if aborted is not None:
                    segment.txn_index.append(aborted)

    def _drop(self, segments: list[Segment]) -> None:
        for segment in reversed(segments):
            _log.warning("removed %s: the log ends before it", segment.path)
            self.snapshots.remove(segment.base_offset)
            for path in segment.rename_files(".deleted"):
                self.fs.remove(path)
        # New records may end just where a dropped segment begins: it must not come back.
        self.fs.sync_dir(self.path)

    def find_end(self) -> int:
        """The offset after the last batch; the log's start when there is none."""
        if not self.segments:
            return self.log_start_offset
        segment = self.segments[-1]
        if self._producers_end is not None:
            return self._producers_end
        try:
            return self._end_of(segment)
        except CorruptSegmentError as error:
            _log.warning("%s; recovering it although the last stop was clean", error)
            self.recover_from(segment.base_offset)
            return self._producers_end or segment.base_offset

    def _end_of(self, segment: Segment) -> int:
        last = read_last_offset_entry(self.fs, segment.stem + INDEX_SUFFIX)
        if last is None or last[1] >= max(segment.size, 1):
            last = (0, segment.offset_index.positions[-1] if len(segment.offset_index) else 0)
        return segment.end_offset_from(last[1])

    def settle(self, end_offset: int) -> None:
        """Make start, end, epochs and producers agree; there is an active segment afterwards."""
        if self.segments and end_offset < self.log_start_offset:
            _log.warning(
                "%s ends at %d, before its start %d: it begins anew there",
                self.path,
                end_offset,
                self.log_start_offset,
            )
            self._drop(self.segments)
            self.segments = []
            self.leader_epochs.clear()
            for snapshot in list(self.snapshots.offsets):
                self.snapshots.remove(snapshot)
            self.producers.clear()
            self._producers_end = end_offset = self.log_start_offset
        if not self.segments:
            end_offset = self.log_start_offset
            self.segments = [
                Segment.create(
                    self.files,
                    self.path,
                    end_offset,
                    now_ms=self.now_ms,
                    interval_bytes=self.interval_bytes,
                )
            ]
            self._producers_end = end_offset
        self.log_end_offset = end_offset
        self.log_start_offset = max(self.log_start_offset, self.segments[0].base_offset)
        # An epoch in which nothing was written is forgotten; but that of a log without records is all that it has.
        is_empty = end_offset == self.log_start_offset
        self.leader_epochs.truncate_from_end(end_offset + 1 if is_empty else end_offset)
        self.leader_epochs.truncate_from_start(self.log_start_offset)
        self.snapshots.remove_strays([segment.base_offset for segment in self.segments])
        if self._producers_end is None:
            self.snapshots.keep_within(self.log_start_offset, end_offset)
            self._replay(self.segments, end_offset)

    def _replay(self, segments: list[Segment], end_offset: int) -> None:
        replay_producers(
            self.producers,
            self.snapshots,
            segments,
            log_start_offset=self.log_start_offset,
            log_end_offset=end_offset,
            now_ms=self.now_ms,
            expiration_ms=self.expiration_ms,
        )


class TopicIdMismatchError(Exception):
    """A partition's folder that belongs to an earlier topic of the same name."""

    def __init__(self, path: str, found: UUID, expected: UUID) -> None:
        super().__init__(
            f"{path} belongs to the topic id {found}, not {expected}: "
            "it is left from a deleted topic of that name, move it away"
        )


def replay_producers(
    producers: ProducerStates,
    snapshots: ProducerSnapshots,
    segments: list[Segment],
    *,
    log_start_offset: int,
    log_end_offset: int,
    now_ms: int,
    expiration_ms: int,
) -> None:
    """Bring the producer state to the log's end: the newest snapshot, then the batches after it."""
    producers.clear()
    from_offset = log_start_offset
    loaded = snapshots.load_newest()
    if loaded is not None:
        entries, from_offset = loaded
        producers.load([entry for entry in entries if not is_expired(entry, now_ms, expiration_ms)])
        from_offset = max(from_offset, log_start_offset)
    for slot, segment in enumerate(segments):
        ends_before = slot + 1 < len(segments) and segments[slot + 1].base_offset <= from_offset
        if from_offset >= log_end_offset or ends_before:
            continue
        for batch in segment.batches(segment.position_of(from_offset)):
            if batch.header.base_offset >= log_end_offset:
                return
            replay_batch(producers, batch.buffer, batch.header)


def replay_batch(producers: ProducerStates, buffer: bytes, header: BatchHeader) -> AbortedTxn | None:
    """Let a batch of the log act on the producer state as it did when it was written."""
    if header.producer_id < 0:
        return None
    if not header.is_control:
        producers.record(header, header.last_offset, header.max_timestamp_ms)
        return None
    try:
        marker = read_marker(buffer, header)
    except CorruptBatchError as error:
        _log.warning("offset %d of a log has a marker that ends no transaction: %s", header.base_offset, error.reason)
        return None
    return None if marker is None else producers.record_marker(header, marker, header.base_offset)


def _good_batches(
    chunk: bytes, headers: list[BatchHeader], base_offset: int, next_offset: int
) -> tuple[list[BatchHeader], str]:
    """The batches before the first that is damaged or out of place, and what is wrong with that one."""
    problem = ""
    try:
        check_batches(chunk, 0, headers[-1].position + headers[-1].size, strict=False)
    except CorruptBatchError as error:
        problem = error.reason
        headers = [header for header in headers if header.position < error.position]
    for slot, header in enumerate(headers):
        if header.base_offset < next_offset or header.last_offset - base_offset > LARGEST_RELATIVE_OFFSET:
            return headers[:slot], f"offset {header.base_offset} where {next_offset} should follow"
        if header.is_control:
            try:
                read_marker(chunk, header)
            except CorruptBatchError as error:
                return headers[:slot], error.reason
        next_offset = header.next_offset
    return headers, problem
