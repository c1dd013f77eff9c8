"""Snapshots of the producer state (`<offset>.snapshot`): Kafka's format, version 1, and the files.

A snapshot named by an offset holds the state before that offset. One is written when a segment rolls, so
there is one for every segment's base offset, and one at a clean close. At open the newest good one is loaded
and the log after it replayed; one that is damaged is removed and the next older one taken.

Apache writes one row a producer, with its last batch. We write a row for each of the last five, oldest first: reading,
Apache lets a later row of a producer replace an earlier one and so sees what it would have written itself.
"""

import logging
import struct
from typing import TypeAlias

from crc32c import crc32c

from headwater.log.filesystem import FileSystem
from headwater.log.producer_state import (
    NO_OFFSET,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    REMEMBERED_BATCHES,
    ProducerEntry,
    RememberedBatch,
)

_log = logging.getLogger(__name__)

_HEAD = struct.Struct(">hIi")
_ENTRY = struct.Struct(">qhiqiqiq")
_Row: TypeAlias = tuple[int, int, int, int, int, int, int, int]
_CRC_START = 6
_VERSION = 1
SUFFIX = ".snapshot"


class CorruptSnapshotError(ValueError):
    """A snapshot file that cannot be trusted."""


def encode_snapshot(entries: list[ProducerEntry]) -> bytes:
    """The bytes of a snapshot file."""
    rows = [row for entry in entries for row in _rows(entry)]
    content = bytearray(_HEAD.pack(_VERSION, 0, len(rows)))
    for row in rows:
        content += _ENTRY.pack(*row)
    struct.pack_into(">I", content, 2, crc32c(bytes(content[_CRC_START:])))
    return bytes(content)


def _rows(entry: ProducerEntry) -> list[_Row]:
    """One row for each remembered batch, the newest last: it alone says whether a transaction is open."""
    producer_id, epoch, coordinator_epoch = entry.producer_id, entry.epoch, entry.coordinator_epoch
    rows = [
        (producer_id, epoch, last_sequence, last_offset, delta, timestamp_ms, coordinator_epoch, NO_OFFSET)
        for last_sequence, last_offset, delta, timestamp_ms in entry.batches[:-1]
    ]
    last = entry.batches[-1] if entry.batches else RememberedBatch(NO_SEQUENCE, NO_OFFSET, 0, NO_TIMESTAMP)
    rows.append(
        (
            producer_id,
            epoch,
            entry.last_sequence,
            last.last_offset,
            last.offset_delta,
            entry.last_timestamp_ms,
            coordinator_epoch,
            entry.txn_first_offset,
        )
    )
    return rows


def decode_snapshot(content: bytes) -> list[ProducerEntry]:
    """The producers in a snapshot file; one that Apache wrote has the last of the five batches of each."""
    if len(content) < _HEAD.size:
        raise CorruptSnapshotError(f"{len(content)} bytes are too few")
    version, crc, count = _HEAD.unpack_from(content)
    if version != _VERSION:
        raise CorruptSnapshotError(f"version {version} is not known")
    if len(content) != _HEAD.size + count * _ENTRY.size:
        raise CorruptSnapshotError(f"{count} entries announced, {len(content)} bytes found")
    if crc32c(content[_CRC_START:]) != crc:
        raise CorruptSnapshotError("its checksum does not match")
    entries: dict[int, ProducerEntry] = {}
    for row in _ENTRY.iter_unpack(content[_HEAD.size :]):
        _take_row(entries, row)
    return list(entries.values())


def _take_row(entries: dict[int, ProducerEntry], row: _Row) -> None:
    producer_id, epoch, last_sequence, last_offset, delta, timestamp_ms, coordinator_epoch, txn_first_offset = row
    entry = entries.get(producer_id)
    if entry is None:
        entry = entries[producer_id] = ProducerEntry(producer_id)
    entry.start_epoch(epoch)
    entry.coordinator_epoch = coordinator_epoch
    entry.last_timestamp_ms = timestamp_ms
    entry.txn_first_offset = txn_first_offset if txn_first_offset >= 0 else NO_OFFSET
    if last_offset >= 0:
        entry.last_sequence = last_sequence
        entry.batches = [
            *entry.batches[1 - REMEMBERED_BATCHES :],
            RememberedBatch(last_sequence, last_offset, delta, timestamp_ms),
        ]


class ProducerSnapshots:
    """The snapshot files of one partition."""

    __slots__ = ("folder", "fs", "offsets")

    def __init__(self, fs: FileSystem, folder: str, offsets: list[int]) -> None:
        self.fs = fs
        self.folder = folder
        self.offsets = sorted(offsets)

    def path(self, offset: int) -> str:
        """The file of the snapshot at an offset."""
        return f"{self.folder}/{offset:020d}{SUFFIX}"

    def take(self, entries: list[ProducerEntry], offset: int) -> None:
        """Write the state before `offset`, unless that is there; not forced to the device."""
        if offset in self.offsets:
            return
        self.fs.replace_file(self.path(offset), encode_snapshot(entries), durable=False)
        self.offsets.append(offset)
        self.offsets.sort()

    def load_newest(self) -> tuple[list[ProducerEntry], int] | None:
        """The newest snapshot that can be read, with its offset; damaged ones are removed on the way."""
        while self.offsets:
            offset = self.offsets[-1]
            try:
                return decode_snapshot(self.fs.read_file(self.path(offset))), offset
            except (CorruptSnapshotError, FileNotFoundError) as error:
                _log.warning("removed the producer snapshot %s: %s", self.path(offset), error)
                self.remove(offset)
        return None

    def remove(self, offset: int) -> None:
        """Remove the snapshot at an offset, if there is one."""
        if offset in self.offsets:
            self.offsets.remove(offset)
            self.fs.remove(self.path(offset))

    def keep_within(self, log_start_offset: int, log_end_offset: int) -> None:
        """Remove snapshots of offsets that the log does not reach (any more)."""
        for offset in list(self.offsets):
            if offset > log_end_offset or offset < log_start_offset:
                self.remove(offset)

    def remove_strays(self, base_offsets: list[int]) -> None:
        """Keep the snapshots of base offsets, and of the others the newest if it is beyond all of those."""
        bases = set(base_offsets)
        strays = [offset for offset in self.offsets if offset not in bases]
        newest_base = max(base_offsets, default=-1)
        kept = strays[-1] if strays and strays[-1] >= newest_base else None
        for offset in strays:
            if offset != kept:
                self.remove(offset)
