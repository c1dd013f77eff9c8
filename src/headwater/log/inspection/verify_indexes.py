"""Checks of a segment's indexes against its batches, which go by once, in the order of the file.

A check opens its file, is shown every batch, and says at the end what it still misses. Faults are plain triples: path,
position in that file, words. Entries of zeros at the end are the room that Apache Kafka makes ahead: they are none.
"""

import struct
from collections.abc import Iterator
from typing import Final, TypeAlias

from headwater.log.filesystem import FileSystem
from headwater.log.producer_state import read_marker
from headwater.log.segment import StoredBatch
from headwater.protocol.records import CorruptBatchError

FaultFields: TypeAlias = tuple[str, int, str]

_OFFSET_ENTRY: Final = struct.Struct(">ii")
_TIME_ENTRY: Final = struct.Struct(">qi")
_TXN_ENTRY: Final = struct.Struct(">hqqqq")
_NO_TIMESTAMP: Final = -1


class _IndexCheck:
    """What the checks share: the entries of a file, and the one that is due next."""

    layout = _OFFSET_ENTRY
    is_optional = False

    def __init__(self, fs: FileSystem, path: str, base_offset: int) -> None:
        self._fs = fs
        self._path = path
        self._base_offset = base_offset
        self._entries: list[tuple[int, ...]] = []
        self._next = 0

    def open(self, *, missing_is_fine: bool) -> Iterator[FaultFields]:
        """Read the file and check what it says by itself."""
        try:
            content = self._fs.read_file(self._path)
        except FileNotFoundError:
            if not missing_is_fine:
                yield self._path, 0, "it is missing"
            return
        size = self.layout.size
        if len(content) % size:
            yield self._path, len(content) - len(content) % size, f"{len(content)} bytes are no whole entries"
        used = -(-len(content.rstrip(b"\0")) // size) * size
        self._entries = list(self.layout.iter_unpack(content[: min(used, len(content) - len(content) % size)]))
        yield from self._disorder()

    def _disorder(self) -> Iterator[FaultFields]:
        for slot in range(1, len(self._entries)):
            before, after = self._entries[slot - 1], self._entries[slot]
            if not self._follows(before, after):
                yield self._path, self._at(slot), f"{self._words(after)} follows {self._words(before)}"

    def _follows(self, before: tuple[int, ...], after: tuple[int, ...]) -> bool:
        raise NotImplementedError

    def _at(self, slot: int) -> int:
        return slot * self.layout.size

    def compare(self, stored: StoredBatch) -> Iterator[FaultFields]:
        """Check the entries that are about this batch, or should be."""
        raise NotImplementedError

    def finish(self, *, is_sealed: bool, reached: bool) -> Iterator[FaultFields]:
        """All batches went by, if `reached`; entries that are left point to nothing."""
        if reached:
            for slot in range(self._next, len(self._entries)):
                yield self._path, self._at(slot), f"{self._words(self._entries[slot])} is not in the log"

    def _words(self, entry: tuple[int, ...]) -> str:
        raise NotImplementedError


class OffsetIndexCheck(_IndexCheck):
    """Every entry is the last offset and the position of a batch, both rising."""

    layout = _OFFSET_ENTRY

    def _words(self, entry: tuple[int, ...]) -> str:
        return f"offset {self._base_offset + entry[0]} at position {entry[1]}"

    def _follows(self, before: tuple[int, ...], after: tuple[int, ...]) -> bool:
        return before[0] < after[0] and before[1] < after[1]

    def compare(self, stored: StoredBatch) -> Iterator[FaultFields]:
        """Entries point to where batches begin."""
        while self._next < len(self._entries) and self._entries[self._next][1] <= stored.position:
            entry = self._entries[self._next]
            if entry[1] < stored.position:
                yield self._path, self._at(self._next), f"{self._words(entry)}: no batch begins there"
            elif self._base_offset + entry[0] != stored.header.last_offset:
                what = f"{self._words(entry)}: the batch there ends with {stored.header.last_offset}"
                yield self._path, self._at(self._next), what
            self._next += 1


class TimeIndexCheck(_IndexCheck):
    """Every entry is the largest timestamp so far and the last offset of the batch that brought it, both rising."""

    layout = _TIME_ENTRY

    def __init__(self, fs: FileSystem, path: str, base_offset: int) -> None:
        super().__init__(fs, path, base_offset)
        self._largest_ms = _NO_TIMESTAMP

    def _words(self, entry: tuple[int, ...]) -> str:
        return f"timestamp {entry[0]} at offset {self._base_offset + entry[1]}"

    def _follows(self, before: tuple[int, ...], after: tuple[int, ...]) -> bool:
        return before[0] < after[0] and before[1] < after[1]

    def compare(self, stored: StoredBatch) -> Iterator[FaultFields]:
        """Entries name batches by their last offset."""
        header = stored.header
        self._largest_ms = max(self._largest_ms, header.max_timestamp_ms)
        while self._next < len(self._entries):
            entry = self._entries[self._next]
            offset = self._base_offset + entry[1]
            if offset > header.last_offset:
                return
            if offset < header.last_offset:
                yield self._path, self._at(self._next), f"{self._words(entry)}: no batch ends there"
            elif entry[0] != header.max_timestamp_ms:
                what = f"{self._words(entry)}: the batch there has {header.max_timestamp_ms}"
                yield self._path, self._at(self._next), what
            elif entry[0] < self._largest_ms:
                yield self._path, self._at(self._next), f"{self._words(entry)}: {self._largest_ms} came before it"
            self._next += 1

    def finish(self, *, is_sealed: bool, reached: bool) -> Iterator[FaultFields]:
        """A sealed segment's largest timestamp is its last entry."""
        yield from super().finish(is_sealed=is_sealed, reached=reached)
        last_ms = self._entries[-1][0] if self._entries else _NO_TIMESTAMP
        if is_sealed and reached and last_ms != self._largest_ms:
            yield (
                self._path,
                self._at(len(self._entries)),
                f"the segment's largest timestamp {self._largest_ms} is missing",
            )


class TxnIndexCheck(_IndexCheck):
    """Every entry's last offset is that of an abort marker of its producer. Most segments have no such file."""

    layout = _TXN_ENTRY
    is_optional = True

    def _words(self, entry: tuple[int, ...]) -> str:
        _, producer_id, first_offset, last_offset, _ = entry
        return f"the abort of producer {producer_id} from {first_offset} to {last_offset}"

    def _follows(self, before: tuple[int, ...], after: tuple[int, ...]) -> bool:
        return before[3] < after[3]

    def compare(self, stored: StoredBatch) -> Iterator[FaultFields]:
        """Entries name markers by their offset."""
        header = stored.header
        while self._next < len(self._entries) and self._entries[self._next][3] <= header.last_offset:
            entry = self._entries[self._next]
            if entry[3] < header.last_offset or header.producer_id != entry[1] or not _is_abort(stored):
                yield self._path, self._at(self._next), f"{self._words(entry)}: there is no such marker"
            self._next += 1


def _is_abort(stored: StoredBatch) -> bool:
    try:
        marker = read_marker(stored.buffer, stored.header) if stored.header.is_control else None
    except CorruptBatchError:
        # The batch itself is a fault already.
        return True
    return marker is not None and marker.is_abort
