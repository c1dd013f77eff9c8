"""The lines of index files, snapshots and transaction indexes in a dump, and what contradicts the data file.

The words are Kafka's. An index is read as it is: one that would be rebuilt at a start is shown, not mended.
"""

import posixpath
import struct
from bisect import bisect_right
from collections.abc import Iterator
from operator import itemgetter
from typing import Final

from headwater.log.filesystem import FileSystem
from headwater.log.index import CorruptIndexError
from headwater.log.inspection.dump_batches import optional
from headwater.log.inspection.file_batches import DamagedFileError, read_batches
from headwater.log.producer_snapshots import decode_snapshot
from headwater.log.producer_state import NO_OFFSET, ProducerEntry, RememberedBatch
from headwater.log.segment import INDEX_SUFFIX, LOG_SUFFIX, StoredBatch
from headwater.log.txn_index import TxnIndex
from headwater.protocol.records import decode_records

_OFFSET_ENTRY: Final = struct.Struct(">ii")
_TIME_ENTRY: Final = struct.Struct(">qi")
_NOT_FOUND: Final = -1
_NO_TIMESTAMP: Final = -1


class IndexDump:
    """Dumps offset and time indexes, and gathers where they contradict the data."""

    def __init__(self, fs: FileSystem, *, sanity_only: bool, verify_only: bool, max_batch_bytes: int) -> None:
        self._fs = fs
        self._sanity_only = sanity_only
        self._verify_only = verify_only
        self._max_batch_bytes = max_batch_bytes
        self._wrong_offsets: dict[str, list[tuple[int, int]]] = {}
        self._wrong_times: dict[str, list[tuple[int, int]]] = {}
        self._disordered: dict[str, list[tuple[int, int]]] = {}
        self._not_found: dict[str, list[tuple[int, int]]] = {}

    def offset_index_lines(self, path: str) -> Iterator[str]:
        """Offset and position of each entry; the batch there has to end with that offset."""
        base_offset, data = base_offset_of(path), _sibling(path, LOG_SUFFIX)
        size = self._fs.size_of(path)
        entries = self._offset_entries(path, base_offset)
        if not entries:
            yield f"{path} is empty."
            return
        if self._sanity_only:
            _check_sanity(path, size, _OFFSET_ENTRY.size, base_offset, entries[-1][0])
            yield f"{path} passed sanity check."
            return
        for number, (offset, position) in enumerate(entries):
            if offset == base_offset and number > 0:
                return
            found = self._first_batch(data, position, position + self._max_batch_bytes)
            last_offset = found.header.last_offset if found else _NOT_FOUND
            if last_offset != offset:
                self._wrong_offsets.setdefault(path, []).append((offset, last_offset))
            if not self._verify_only:
                yield f"offset: {offset} position: {position}"

    def time_index_lines(self, path: str) -> Iterator[str]:
        """Timestamp and offset of each entry; the batch that ends with that offset has to hold that time."""
        base_offset = base_offset_of(path)
        content = self._fs.read_file(path)
        entries = [(time, base_offset + relative) for time, relative in _entries(_TIME_ENTRY, content)]
        if self._sanity_only:
            if entries:
                _check_sanity(path, len(content), _TIME_ENTRY.size, base_offset, entries[-1][1])
                if entries[-1][0] < entries[0][0]:
                    raise CorruptIndexError(f"{path} ends with an earlier timestamp than it begins with")
            yield f"{path} passed sanity check."
            return
        positions = self._offset_entries(_sibling(path, INDEX_SUFFIX), base_offset)
        previous_ms = _NO_TIMESTAMP
        for number, (timestamp_ms, offset) in enumerate(entries):
            if offset == base_offset and number > 0:
                return
            self._check_time(path, timestamp_ms, offset, previous_ms, positions)
            if not self._verify_only:
                yield f"timestamp: {timestamp_ms} offset: {offset}"
            previous_ms = timestamp_ms

    def _check_time(
        self, path: str, timestamp_ms: int, offset: int, previous_ms: int, positions: list[tuple[int, int]]
    ) -> None:
        slot = bisect_right(positions, offset, key=itemgetter(0))
        start = positions[slot - 1][1] if slot else 0
        stored = self._batch_reaching(_sibling(path, LOG_SUFFIX), start, offset)
        last_offset = stored.header.last_offset if stored else _NOT_FOUND
        if stored is None or last_offset != offset:
            self._not_found.setdefault(path, []).append((offset, last_offset))
            return
        times = (record.timestamp_ms for record in decode_records(stored.buffer, stored.header))
        largest_ms = max(times, default=_NO_TIMESTAMP)
        if largest_ms != timestamp_ms:
            self._wrong_times.setdefault(path, []).append((timestamp_ms, largest_ms))
        if previous_ms >= timestamp_ms:
            self._disordered.setdefault(path, []).append((timestamp_ms, previous_ms))

    def _offset_entries(self, path: str, base_offset: int) -> list[tuple[int, int]]:
        content = self._fs.read_file(path)
        return [(base_offset + relative, position) for relative, position in _entries(_OFFSET_ENTRY, content)]

    def _first_batch(self, data: str, start: int, end: int) -> StoredBatch | None:
        try:
            return next(iter(read_batches(self._fs, data, start, end)), None)
        except DamagedFileError:
            return None

    def _batch_reaching(self, data: str, start: int, offset: int) -> StoredBatch | None:
        try:
            batches = read_batches(self._fs, data, start)
            return next((stored for stored in batches if stored.header.last_offset >= offset), None)
        except DamagedFileError:
            return None

    def problems(self) -> Iterator[str]:
        """Where the indexes so far contradict the data, in Kafka's words and order."""
        for path, pairs in self._wrong_offsets.items():
            yield f"Mismatches in :{self._fs.absolute(path)}"
            # Kafka tells the last one first.
            for indexed, found in reversed(pairs):
                yield f"  Index offset: {indexed}, log offset: {found}"
        for path, pairs in self._wrong_times.items():
            yield f"Found timestamp mismatch in :{self._fs.absolute(path)}"
            yield from (f"  Index timestamp: {indexed}, log timestamp: {found}" for indexed, found in pairs)
        for path, pairs in self._disordered.items():
            yield f"Found out of order timestamp in :{self._fs.absolute(path)}"
            for indexed, previous in pairs:
                yield f"  Index timestamp: {indexed}, Previously indexed timestamp: {previous}"
        for pairs in self._not_found.values():
            yield "The following indexed offsets are not found in the log."
            yield from (f"Indexed offset: {indexed}, found log offset: {found}" for indexed, found in pairs)


def snapshot_lines(fs: FileSystem, path: str) -> Iterator[str]:
    """A line for each row of a producer snapshot; CorruptSnapshotError when it is none."""
    for entry in decode_snapshot(fs.read_file(path)):
        for batch in entry.batches[:-1]:
            yield _producer_line(entry, batch, batch.timestamp_ms, NO_OFFSET)
        last = entry.batches[-1] if entry.batches else None
        yield _producer_line(entry, last, entry.last_timestamp_ms, entry.txn_first_offset)


def _producer_line(entry: ProducerEntry, batch: RememberedBatch | None, timestamp_ms: int, txn_offset: int) -> str:
    line = (
        f"producerId: {entry.producer_id} producerEpoch: {entry.epoch} coordinatorEpoch: {entry.coordinator_epoch}"
        f" currentTxnFirstOffset: {optional(None if txn_offset == NO_OFFSET else txn_offset)}"
        f" lastTimestamp: {timestamp_ms} "
    )
    if batch is not None:
        line += (
            f"firstSequence: {batch.first_sequence} lastSequence: {batch.last_sequence}"
            f" lastOffset: {batch.last_offset} offsetDelta: {batch.offset_delta} timestamp: {timestamp_ms}"
        )
    return line


def txn_index_lines(fs: FileSystem, path: str) -> Iterator[str]:
    """A line for each aborted transaction."""
    for txn in TxnIndex(fs, path, exists=True).entries:
        yield (
            f"version: 0 producerId: {txn.producer_id} firstOffset: {txn.first_offset}"
            f" lastOffset: {txn.last_offset} lastStableOffset: {txn.last_stable_offset}"
        )


def base_offset_of(path: str) -> int:
    """The offset that a file is named by; ValueError when it is none."""
    digits = posixpath.basename(path).partition(".")[0]
    if not digits.isascii() or not digits.isdigit():
        raise ValueError(f"{path} is not named by an offset, as 00000000000000000000.log is")
    return int(digits)


def _sibling(path: str, suffix: str) -> str:
    return posixpath.join(posixpath.dirname(path), posixpath.basename(path).partition(".")[0] + suffix)


def _entries(layout: struct.Struct, content: bytes) -> Iterator[tuple[int, int]]:
    return iter(layout.iter_unpack(content[: len(content) - len(content) % layout.size]))


def _check_sanity(path: str, size: int, entry_bytes: int, base_offset: int, last_offset: int) -> None:
    """What Kafka asks of an index at a start before it trusts it."""
    if last_offset < base_offset:
        raise CorruptIndexError(f"{path} ends with offset {last_offset}, before its first possible one {base_offset}")
    if size % entry_bytes:
        raise CorruptIndexError(f"{path} has {size} bytes, no multiple of {entry_bytes}")
