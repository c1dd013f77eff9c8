"""Checks one partition's folder: every batch, and everything else there against the batches, in one pass over them."""

import posixpath
from bisect import bisect_right
from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import NamedTuple

from headwater.log.checkpoints import LEADER_EPOCHS, CheckpointError, read_leader_epochs
from headwater.log.filesystem import FileSystem
from headwater.log.inspection.file_batches import DamagedFileError, read_batches
from headwater.log.inspection.verify_indexes import OffsetIndexCheck, TimeIndexCheck, TxnIndexCheck
from headwater.log.producer_snapshots import SUFFIX as SNAPSHOT_SUFFIX
from headwater.log.producer_snapshots import CorruptSnapshotError, decode_snapshot
from headwater.log.producer_state import RememberedBatch
from headwater.log.segment import (
    INDEX_SUFFIX,
    LARGEST_RELATIVE_OFFSET,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    StoredBatch,
)
from headwater.protocol.records import BatchHeader, CorruptBatchError, check_batches, check_stored_records

_OFFSET_DIGITS = 20


class Fault(NamedTuple):
    """Something wrong in a file, and where; `position` is None when it is about the file as a whole."""

    path: str
    position: int | None
    what: str

    def __str__(self) -> str:
        place = self.path if self.position is None else f"{self.path}:{self.position}"
        return f"{place}: {self.what}"


class PartitionCheck:
    """The check of one partition; `end_offset` and the counts hold when `faults` is through."""

    def __init__(self, fs: FileSystem, folder: str, *, in_use: bool, progress: Callable[[int], None]) -> None:
        self._fs = fs
        self._folder = folder
        self._in_use = in_use
        self._progress = progress
        self._epochs: list[tuple[int, int]] = []
        self._remembered: dict[int, list[tuple[str, int, RememberedBatch]]] = {}
        self._largest_epoch = -1
        self.end_offset = 0
        self.segments = self.batches = self.size_bytes = 0

    def faults(self) -> Iterator[Fault]:
        """Everything that is wrong in the folder."""
        names = set(self._fs.list_dir(self._folder))
        yield from self._read_epochs()
        yield from self._read_snapshots(names)
        bases = sorted(int(name[:_OFFSET_DIGITS]) for name in names if _is_of(name, LOG_SUFFIX))
        for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX):
            for name in sorted(names):
                if _is_of(name, suffix) and int(name[:_OFFSET_DIGITS]) not in bases:
                    yield Fault(self._path(name), None, "it belongs to no segment")
        for slot, base_offset in enumerate(bases):
            next_base = bases[slot + 1] if slot + 1 < len(bases) else None
            try:
                yield from self._check_segment(base_offset, next_base, names)
            except FileNotFoundError:
                # Retention or the cleaner may take a segment away meanwhile.
                if not self._in_use:
                    raise
        yield from self._check_epochs(bases)

    def _path(self, name: str) -> str:
        return posixpath.join(self._folder, name)

    def _read_epochs(self) -> Iterator[Fault]:
        path = self._path(LEADER_EPOCHS)
        try:
            self._epochs = read_leader_epochs(self._fs, path)
        except CheckpointError as error:
            yield Fault(path, None, error.reason)
        for before, after in zip(self._epochs, self._epochs[1:], strict=False):
            if after[0] <= before[0] or after[1] < before[1]:
                yield Fault(path, None, f"epoch {after[0]} at {after[1]} follows epoch {before[0]} at {before[1]}")

    def _read_snapshots(self, names: set[str]) -> Iterator[Fault]:
        for name in sorted(name for name in names if _is_of(name, SNAPSHOT_SUFFIX)):
            path = self._path(name)
            try:
                entries = decode_snapshot(self._fs.read_file(path))
            except CorruptSnapshotError as error:
                yield Fault(path, None, str(error))
                continue
            except FileNotFoundError:
                continue
            for entry in entries:
                for batch in entry.batches:
                    if batch.last_offset >= int(name[:_OFFSET_DIGITS]):
                        what = f"producer {entry.producer_id} has offset {batch.last_offset}, which comes after it"
                        yield Fault(path, None, what)
                    self._remembered.setdefault(batch.last_offset, []).append((path, entry.producer_id, batch))

    def _check_segment(self, base_offset: int, next_base: int | None, names: set[str]) -> Iterator[Fault]:
        stem = self._path(f"{base_offset:020d}")
        path = stem + LOG_SUFFIX
        is_active = next_base is None
        size = self._fs.size_of(path)
        checks = (
            OffsetIndexCheck(self._fs, stem + INDEX_SUFFIX, base_offset),
            TimeIndexCheck(self._fs, stem + TIME_INDEX_SUFFIX, base_offset),
            TxnIndexCheck(self._fs, stem + TXN_INDEX_SUFFIX, base_offset),
        )
        for check in checks:
            missing_is_fine = check.is_optional or (is_active and self._in_use)
            yield from (Fault(*fault) for fault in check.open(missing_is_fine=missing_is_fine))
        next_offset, end = base_offset, 0
        try:
            for stored in read_batches(self._fs, path):
                header = stored.header
                for what in self._batch_faults(stored, base_offset, next_offset, next_base):
                    yield Fault(path, stored.position, what)
                for check in checks:
                    yield from (Fault(*fault) for fault in check.compare(stored))
                yield from self._check_remembered(header)
                next_offset = max(next_offset, header.next_offset)
                self._largest_epoch = max(self._largest_epoch, header.leader_epoch)
                self.batches += 1
                self._progress(stored.position + header.size - end)
                end = stored.position + header.size
            if end < size and not (is_active and self._in_use):
                yield Fault(path, end, f"{size - end} bytes that are no whole batch")
        except DamagedFileError as error:
            yield Fault(path, error.position, f"{error.reason}; what follows is not checked")
        for check in checks:
            yield from (Fault(*fault) for fault in check.finish(is_sealed=not is_active, reached=end >= size))
        self._progress(max(size - end, 0))
        self.segments += 1
        self.size_bytes += size
        self.end_offset = max(self.end_offset, next_offset)

    def _batch_faults(
        self, stored: StoredBatch, base_offset: int, next_offset: int, next_base: int | None
    ) -> Iterator[str]:
        header = stored.header
        start = header.position
        try:
            check_batches(stored.buffer, start, start + header.size, strict=False)
        except CorruptBatchError as error:
            yield error.reason
        else:
            yield from _record_faults(stored)
        if header.base_offset < next_offset:
            yield f"offset {header.base_offset} where {next_offset} or more should follow"
        if header.last_offset - base_offset > LARGEST_RELATIVE_OFFSET:
            yield f"offset {header.last_offset} is too far from the segment's first"
        elif next_base is not None and header.last_offset >= next_base:
            yield f"offset {header.last_offset} belongs to the next segment, which begins at {next_base}"
        if 0 <= header.leader_epoch < self._largest_epoch:
            yield f"leader epoch {header.leader_epoch} after {self._largest_epoch}"
        elif header.leader_epoch >= 0 and self._epochs:
            slot = bisect_right(self._epochs, header.base_offset, key=itemgetter(1))
            if slot and self._epochs[slot - 1][0] != header.leader_epoch:
                yield f"leader epoch {header.leader_epoch}, but {LEADER_EPOCHS} says {self._epochs[slot - 1][0]}"

    def _check_remembered(self, header: BatchHeader) -> Iterator[Fault]:
        for path, producer_id, batch in self._remembered.get(header.last_offset, ()):
            if (header.producer_id, header.last_sequence) != (producer_id, batch.last_sequence):
                what = (
                    f"offset {batch.last_offset} is of producer {producer_id} with sequence {batch.last_sequence}, "
                    f"in the log of {header.producer_id} with {header.last_sequence}"
                )
                yield Fault(path, None, what)

    def _check_epochs(self, bases: list[int]) -> Iterator[Fault]:
        if bases and self._epochs and self._epochs[-1][1] > self.end_offset:
            epoch, start_offset = self._epochs[-1]
            what = f"epoch {epoch} starts at {start_offset}, but the log ends at {self.end_offset}"
            yield Fault(self._path(LEADER_EPOCHS), None, what)


def _record_faults(stored: StoredBatch) -> Iterator[str]:
    header = stored.header
    try:
        largest_ms = check_stored_records(stored.buffer, header)
    except CorruptBatchError as error:
        yield f"{error.reason}: offsets {header.base_offset} to {header.last_offset} cannot be read"
        return
    if header.records_count and not header.is_log_append_time and header.max_timestamp_ms != largest_ms:
        yield f"its largest timestamp is said to be {header.max_timestamp_ms}, but is {largest_ms}: retention is misled"


def _is_of(name: str, suffix: str) -> bool:
    return name.endswith(suffix) and len(name) == _OFFSET_DIGITS + len(suffix) and name[:_OFFSET_DIGITS].isdigit()
