"""Snapshots of the producer state (`<offset>.snapshot`): Kafka's format, version 1, and the files.

A snapshot named by an offset holds the state before that offset. One is written when a segment rolls, so
there is one for every segment's base offset, and one at a clean close. At open the newest good one is loaded
and the log after it replayed; one that is damaged is removed and the next older one taken.
"""

import logging
import struct

from crc32c import crc32c

from headwater.log.filesystem import FileSystem
from headwater.log.producer_state import NO_OFFSET, NO_SEQUENCE, ProducerEntry, RememberedBatch

_log = logging.getLogger(__name__)

_HEAD = struct.Struct(">hIi")
_ENTRY = struct.Struct(">qhiqiqiq")
_CRC_START = 6
_VERSION = 1
SUFFIX = ".snapshot"


class CorruptSnapshotError(ValueError):
    """A snapshot file that cannot be trusted."""


def encode_snapshot(entries: list[ProducerEntry]) -> bytes:
    """The bytes of a snapshot file."""
    content = bytearray(_HEAD.pack(_VERSION, 0, len(entries)))
    for entry in entries:
        last = entry.batches[-1] if entry.batches else None
        content += _ENTRY.pack(
            entry.producer_id,
            entry.epoch,
            entry.last_sequence,
            last.last_offset if last else NO_OFFSET,
            last.offset_delta if last else 0,
            entry.last_timestamp_ms,
            entry.coordinator_epoch,
            entry.txn_first_offset,
        )
    struct.pack_into(">I", content, 2, crc32c(bytes(content[_CRC_START:])))
    return bytes(content)


def decode_snapshot(content: bytes) -> list[ProducerEntry]:
    """The producers in a snapshot file; of the five remembered batches it has the last."""
    if len(content) < _HEAD.size:
        raise CorruptSnapshotError(f"{len(content)} bytes are too few")
    version, crc, count = _HEAD.unpack_from(content)
    if version != _VERSION:
        raise CorruptSnapshotError(f"version {version} is not known")
    if len(content) != _HEAD.size + count * _ENTRY.size:
        raise CorruptSnapshotError(f"{count} producers announced, {len(content)} bytes found")
    if crc32c(content[_CRC_START:]) != crc:
        raise CorruptSnapshotError("its checksum does not match")
    return [_decode_entry(fields) for fields in _ENTRY.iter_unpack(content[_HEAD.size :])]


def _decode_entry(fields: tuple[int, int, int, int, int, int, int, int]) -> ProducerEntry:
    (
        producer_id,
        epoch,
        last_sequence,
        last_offset,
        delta,
        timestamp_ms,
        coordinator_epoch,
        txn_first_offset,
    ) = fields
    entry = ProducerEntry(producer_id)
    entry.epoch = epoch
    entry.coordinator_epoch = coordinator_epoch
    entry.last_timestamp_ms = timestamp_ms
    entry.txn_first_offset = txn_first_offset if txn_first_offset >= 0 else NO_OFFSET
    entry.last_sequence = NO_SEQUENCE
    if last_offset >= 0:
        entry.last_sequence = last_sequence
        entry.batches.append(RememberedBatch(last_sequence, last_offset, delta, timestamp_ms))
    return entry


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
