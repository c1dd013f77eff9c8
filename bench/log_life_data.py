"""Logs to measure on: written once with headwater's log code, in Kafka's formats, and then given to both brokers.

The data files are linked into the brokers' folders, so that both read the same pages; everything that a broker changes
in place (indexes, snapshots) is copied.
"""

import os
import random
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from headwater.config import BrokerConfig, TopicConfig
from headwater.log.filesystem import FileSystem
from headwater.log.log import Log
from headwater.protocol.record_encoding import RecordToWrite
from headwater.protocol.records import check_batches, encode_batch

SEGMENT_BYTES = 64 << 20
LIVE_SHARE = 0.1
PRODUCERS = 4
_BATCH_BYTES = 16 << 10
_SMALLEST_VALUE_BYTES, _LARGEST_VALUE_BYTES = 100, 1024
_BATCHES_A_SEGMENT, _RECORDS_A_BATCH = 8, 20
# What a broker makes of its own, for a topic of its own.
_NOT_OURS = {"partition.metadata"}
_CLEAN_STOP = ".kafka_cleanshutdown"
_RECOVERY_POINTS = "recovery-point-offset-checkpoint"


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedLog:
    """A partition's folder. What is before `active_offset` is in sealed segments; record n has time `first_ms` + n."""

    folder: Path
    size_bytes: int
    end_offset: int
    active_offset: int
    first_ms: int


class _Unsynced(FileSystem):
    """Nobody needs these files after a loss of power."""

    def sync(self, descriptor: int) -> None:
        """Does nothing."""

    def sync_file(self, path: str) -> None:
        """Does nothing."""

    def sync_dir(self, path: str) -> None:
        """Does nothing."""


class _Writer:
    """A log to fill, with a record a millisecond."""

    def __init__(self, folder: Path) -> None:
        config = TopicConfig.from_values({"segment.bytes": str(SEGMENT_BYTES)}, BrokerConfig.from_values({}))
        # Recent, and over before the benchmark is: nothing is too old or from the future.
        self.first_ms = int(time.time() * 1000) - 12 * 3_600_000
        self.log = Log.open(_Unsynced(), str(folder / "prepared-0"), config=config, now_ms=self.first_ms)

    @property
    def next_ms(self) -> int:
        """The time of the next record."""
        return self.first_ms + self.log.log_end_offset

    def append(self, batch: bytearray) -> None:
        """Appends one batch."""
        view = memoryview(batch)
        headers = check_batches(view, 0, len(view))
        self.log.append_as_leader(view, 0, len(view), headers, leader_epoch=0, now_ms=self.next_ms)

    def finish(self) -> PreparedLog:
        """Closes the log."""
        log = self.log
        log.close()
        return PreparedLog(
            folder=Path(log.path),
            size_bytes=log.size_bytes,
            end_offset=log.log_end_offset,
            active_offset=log.segments[-1].base_offset,
            first_ms=self.first_ms,
        )


def write_changes(folder: Path, *, size_bytes: int, compression: int) -> PreparedLog:
    """A log of changes to keys, of which a tenth are the newest of their key, from a few idempotent producers.

    Values have 100 to 1,024 bytes of words in no order; `size_bytes` is that of the records before compression.
    """
    chance = random.Random(5)
    words = [bytes(chance.choices(b"abcdefghijklmnopqrstuvwxyz", k=chance.randint(2, 9))) for _ in range(2000)]
    text = b" ".join(chance.choices(words, k=200_000))
    mean_bytes = (_SMALLEST_VALUE_BYTES + _LARGEST_VALUE_BYTES) / 2 + 25
    keys = int(size_bytes / mean_bytes * LIVE_SHARE)
    writer = _Writer(folder)
    sequences = [0] * PRODUCERS
    written_bytes = number = 0
    while written_bytes < size_bytes:
        records: list[RecordToWrite] = []
        batch_bytes, next_ms = 0, writer.next_ms
        while batch_bytes < _BATCH_BYTES:
            value_bytes = chance.randint(_SMALLEST_VALUE_BYTES, _LARGEST_VALUE_BYTES)
            start = chance.randrange(len(text) - value_bytes)
            key = b"user-%08d" % chance.randrange(keys)
            records.append((key, text[start : start + value_bytes], (), next_ms + len(records)))
            batch_bytes += value_bytes + 25
        producer = number % PRODUCERS
        writer.append(
            encode_batch(
                records,
                compression=compression,
                producer_id=producer,
                producer_epoch=0,
                base_sequence=sequences[producer],
            )
        )
        sequences[producer] += len(records)
        written_bytes += batch_bytes
        number += 1
    writer.log.roll(writer.next_ms)
    return writer.finish()


def write_history(folder: Path, *, segments: int) -> PreparedLog:
    """A log of many small segments, each of several batches, so that its indexes have entries."""
    writer = _Writer(folder)
    value = bytes(100)
    for number in range(segments):
        if number:
            writer.log.roll(writer.next_ms)
        for _ in range(_BATCHES_A_SEGMENT):
            next_ms = writer.next_ms
            writer.append(encode_batch([(None, value, (), next_ms + slot) for slot in range(_RECORDS_A_BATCH)]))
    prepared = writer.finish()
    for snapshot in sorted(prepared.folder.glob("*.snapshot"))[:-1]:
        snapshot.unlink()
    return prepared


def copy_folder(template: Path, data: Path) -> None:
    """A broker's data folder as a copy of another; what was there is gone."""
    shutil.rmtree(data, ignore_errors=True)
    shutil.copytree(template, data)


def put_in(prepared: PreparedLog, partition: Path) -> None:
    """Gives a broker's partition, which is empty and not in use, this log."""
    for name in _segment_files(partition):
        (partition / name).unlink()
    for name in _segment_files(prepared.folder):
        if name.endswith(".log"):
            os.link(prepared.folder / name, partition / name)
        else:
            shutil.copyfile(prepared.folder / name, partition / name)


def _segment_files(folder: Path) -> Iterator[str]:
    return (name for name in os.listdir(folder) if name not in _NOT_OURS)


def forget_clean_stop(data: Path) -> None:
    """Makes a folder look as a kill -9 leaves it when nothing was flushed: all of it has to be checked."""
    (data / _CLEAN_STOP).unlink(missing_ok=True)
    (data / _RECOVERY_POINTS).unlink(missing_ok=True)


def log_bytes(partition: Path) -> int:
    """Bytes of the data files that count."""
    return sum(entry.stat().st_size for entry in os.scandir(partition) if entry.name.endswith(".log"))


def cleaned_up_to(data: Path, topic: str) -> int:
    """How far partition 0 of a topic was cleaned, by the broker's own checkpoint."""
    try:
        lines = (data / "cleaner-offset-checkpoint").read_text().splitlines()
    except FileNotFoundError:
        return 0
    for line in lines[2:]:
        name, partition, offset = line.split()
        if name == topic and partition == "0":
            return int(offset)
    return 0
