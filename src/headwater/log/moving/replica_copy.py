"""A copy of a log in another folder, file by file, that runs after the log until it has caught up.

Bytes are copied as they are; damage is copied too and is no worse there than here. The log is appended to meanwhile,
rolls, and loses old segments to retention: a round of copying takes what a `Survey` found, and the next round the rest.
What a truncation cut cannot be followed: the copy is made anew then. The cleaner has to leave the log alone.
"""

import threading
from dataclasses import dataclass

from headwater.log.checkpoints import LEADER_EPOCHS, PARTITION_METADATA, write_leader_epochs
from headwater.log.filesystem import CREATE, TRUNCATE
from headwater.log.log import Log
from headwater.log.open_files import OpenFile
from headwater.log.producer_snapshots import SUFFIX as SNAPSHOT_SUFFIX
from headwater.log.segment import LOG_SUFFIX, SUFFIXES, CorruptSegmentError, Segment
from headwater.log.throttle import Throttle

_PIECE_BYTES = 1 << 18
# Dirty pages by the gigabyte would make the log's own writes wait for the disk.
_SYNC_EVERY_BYTES = 32 << 20


class CopyStoppedError(Exception):
    """The copy is not wanted any more, or the log is closed."""


class LogTruncatedError(Exception):
    """The log was cut at its end: what was copied may be of another history."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What a log holds at one moment: everything before `end_offset` is in the segments, the last is the active one."""

    end_offset: int
    segments: tuple[Segment, ...]
    active_bytes: int
    snapshots: tuple[int, ...]
    epochs: tuple[tuple[int, int], ...]


@dataclass(slots=True)
class _Copied:
    size: int = 0
    has_files: bool = False
    is_complete: bool = False


class ReplicaCopy:
    """The copy of `log` in `folder`. `end_offset` is how far it surely reaches: in a half copied segment, its base."""

    def __init__(self, log: Log, folder: str, *, throttle: Throttle, stopped: threading.Event) -> None:
        self.folder = folder
        self.end_offset = log.log_start_offset
        self._log = log
        self._fs = log.fs
        self._throttle = throttle
        self._stopped = stopped
        self._parts = log.relocation()
        self._truncations = self._parts.row.truncations
        self._segments: dict[Segment, _Copied] = {}
        self._snapshots: set[int] = set()
        self._epochs: tuple[tuple[int, int], ...] = ()

    @property
    def size_bytes(self) -> int:
        """Bytes of data copied so far."""
        return sum(copied.size for copied in list(self._segments.values()))

    def survey(self) -> Survey:
        """What there is to copy now. On the event loop, as is everything but `catch_up` and `sync_tail`."""
        self._check()
        if self._parts.row.truncations != self._truncations:
            raise LogTruncatedError(f"{self._log.topic_partition} was truncated while it was copied")
        return Survey(
            end_offset=self._log.log_end_offset,
            segments=self._log.segments,
            active_bytes=self._log.segments[-1].size,
            snapshots=tuple(self._parts.snapshots.offsets),
            epochs=tuple(self._parts.leader_epochs.entries),
        )

    def missing_bytes(self, survey: Survey) -> int:
        """Bytes of data that are not copied yet."""
        return sum(segment.size - self._copied(segment).size for segment in survey.segments)

    def _copied(self, segment: Segment) -> _Copied:
        return self._segments.get(segment) or _Copied()

    def catch_up(self, survey: Survey, *, throttled: bool = True) -> None:
        """Copy what is missing; sealed segments and everything small are on the device when this returns."""
        self._drop_all_but(survey.segments)
        *sealed, active = survey.segments
        for segment in sealed:
            self.end_offset = max(self.end_offset, segment.base_offset)
            self._copy_sealed(segment, throttled=throttled)
        self._copy_active(active, survey.active_bytes, throttled=throttled)
        self._copy_snapshots(survey.snapshots)
        if survey.epochs != self._epochs:
            write_leader_epochs(self._fs, f"{self.folder}/{LEADER_EPOCHS}", survey.epochs)
            self._fs.sync_file(f"{self.folder}/{LEADER_EPOCHS}")
            self._epochs = survey.epochs
        self.end_offset = max(self.end_offset, survey.end_offset)

    def sync_tail(self, survey: Survey) -> None:
        """Bring what a `catch_up` left to the device: the active segment, whose folder it is, and all names."""
        self._fs.sync_file(f"{self.folder}/{PARTITION_METADATA}")
        self._fs.sync_file(self._path(survey.segments[-1], LOG_SUFFIX))
        self._fs.sync_dir(self.folder)

    def is_close(self, survey: Survey, most_bytes: int) -> bool:
        """Whether nothing is missing but so many bytes at the end, which `copy_rest` would bring."""
        *sealed, active = survey.segments
        return (
            set(survey.segments) == self._segments.keys()
            and all(self._segments[segment].is_complete for segment in sealed)
            and self._segments[active].has_files
            and survey.active_bytes - self._segments[active].size <= most_bytes
            and set(survey.snapshots) == self._snapshots
            and survey.epochs == self._epochs
            and self._parts.rolling.half_done is None
        )

    def copy_rest(self, survey: Survey) -> None:
        """Copy the last bytes of a copy that `is_close`: not to the device, as the log itself does not at an append."""
        self._copy_data(survey.segments[-1], survey.active_bytes, throttled=False)
        self.end_offset = survey.end_offset

    def take_over(self, folder: str) -> None:
        """The log goes on in the copy, which has the name `folder` by now."""
        self._parts.take_place(folder)
        self._log.path = self.folder = folder
        # What was found out about its files holds no longer, and it is not what a clean stop left.
        self._log.cuts += 1

    def _check(self) -> None:
        if self._stopped.is_set() or self._log.is_closed:
            raise CopyStoppedError(f"the copy of {self._log.topic_partition} was stopped")

    def _path(self, segment: Segment, kind: str) -> str:
        return f"{self.folder}/{segment.base_offset:020d}{kind}"

    def _drop_all_but(self, segments: tuple[Segment, ...]) -> None:
        for segment in self._segments.keys() - set(segments):
            for kind in SUFFIXES:
                self._fs.remove(self._path(segment, kind))
            del self._segments[segment]

    def _copy_sealed(self, segment: Segment, *, throttled: bool) -> None:
        copied = self._segments.setdefault(segment, _Copied())
        if copied.is_complete:
            return
        try:
            modified_ms = self._fs.modified_ms(segment.path)
            self._copy_data(segment, segment.size, throttled=throttled)
            self._fs.set_modified_ms(self._path(segment, LOG_SUFFIX), modified_ms)
            self._fs.sync_file(self._path(segment, LOG_SUFFIX))
            self._copy_indexes(segment)
        except FileNotFoundError:
            if segment in self._log.segments:
                raise
            # Dropped meanwhile; the next round takes the copy away.
            return
        copied.is_complete = copied.size == segment.size

    def _copy_active(self, segment: Segment, size: int, *, throttled: bool) -> None:
        copied = self._segments.setdefault(segment, _Copied())
        if not copied.has_files:
            # Those of an idle log; one that is written to has its indexes in memory, and writes them when it rolls.
            self._copy_indexes(segment)
            self._fs.close(self._fs.open(self._path(segment, LOG_SUFFIX), CREATE))
            copied.has_files = True
        self._copy_data(segment, size, throttled=throttled)

    def _copy_indexes(self, segment: Segment) -> None:
        for source, kind in zip(segment.index_paths, SUFFIXES[1:], strict=True):
            self._copy_file(source, self._path(segment, kind))

    def _copy_data(self, segment: Segment, size: int, *, throttled: bool) -> None:
        copied = self._segments[segment]
        if copied.size >= size and copied.has_files:
            return
        source = segment.open_file()
        target = self._fs.open(self._path(segment, LOG_SUFFIX), CREATE)
        unsynced_bytes, copied.has_files = 0, True
        try:
            while copied.size < size:
                piece = self._read_piece(segment, source, copied.size, size)
                if not piece:
                    return
                self._fs.write_all(target, piece, copied.size)
                copied.size += len(piece)
                unsynced_bytes += len(piece)
                if unsynced_bytes >= _SYNC_EVERY_BYTES:
                    self._fs.sync(target)
                    unsynced_bytes = 0
                if throttled:
                    self._throttle.spend(len(piece))
        finally:
            self._fs.close(target)

    def _read_piece(self, segment: Segment, source: OpenFile, position: int, end: int) -> bytes:
        self._check()
        piece = source.read_at(position, min(self._throttle.piece_bytes(_PIECE_BYTES), end - position))
        # A truncation shows at the next survey.
        if not piece and self._parts.row.truncations == self._truncations:
            raise CorruptSegmentError(segment.path, position, f"it should have {end} bytes")
        return piece

    def _copy_snapshots(self, offsets: tuple[int, ...]) -> None:
        for offset in self._snapshots - set(offsets):
            self._fs.remove(f"{self.folder}/{offset:020d}{SNAPSHOT_SUFFIX}")
        self._snapshots.intersection_update(offsets)
        for offset in set(offsets) - self._snapshots:
            # One that was removed meanwhile is not in the next survey.
            self._copy_file(self._parts.snapshots.path(offset), f"{self.folder}/{offset:020d}{SNAPSHOT_SUFFIX}")
            self._snapshots.add(offset)

    def _copy_file(self, source: str, target: str) -> None:
        """Copy a small file, if there is one, to the device."""
        try:
            content = self._fs.read_file(source)
        except FileNotFoundError:
            return
        descriptor = self._fs.open(target, CREATE | TRUNCATE)
        try:
            self._fs.write_all(descriptor, content, 0)
            self._fs.sync(descriptor)
        finally:
            self._fs.close(descriptor)
