"""Checks the files of a log dir, or of one partition, against each other: nothing is changed, nothing is locked.

What a start would repair by itself (a torn tail, a bad index) is a fault here as well: it says that something happened.
A broker may be running: then the newest segment of a partition is still being written, and files may go meanwhile.
"""

import posixpath
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from uuid import UUID

from headwater.log.checkpoints import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    META_PROPERTIES,
    PARTITION_METADATA,
    RECOVERY_POINTS,
    CheckpointError,
    read_meta_properties,
    read_offsets,
    read_topic_id,
)
from headwater.log.filesystem import FileSystem
from headwater.log.folder_names import partition_of_folder
from headwater.log.inspection.verify_partition import Fault, PartitionCheck
from headwater.log.segment import LOG_SUFFIX
from headwater.types import TopicPartition

_CHECKPOINTS = (RECOVERY_POINTS, LOG_START_OFFSETS, HIGH_WATERMARKS, CLEANER_OFFSETS)


@dataclass(slots=True)
class Verified:
    """How much was looked at."""

    partitions: int = 0
    segments: int = 0
    batches: int = 0
    size_bytes: int = 0


@dataclass(slots=True)
class _Known:
    """What the partitions of a dir are compared with each other for."""

    end_offsets: dict[TopicPartition, int] = field(default_factory=dict)
    topic_ids: dict[str, tuple[UUID, str]] = field(default_factory=dict)


class Verification:
    """The check of one folder: a log dir with its partitions, or a partition's own.

    `in_use` says that a broker is running on it. `progress` is told how many more bytes were checked.
    """

    def __init__(
        self,
        fs: FileSystem,
        path: str,
        *,
        in_use: bool = False,
        progress: Callable[[int], None] = lambda size_bytes: None,
    ) -> None:
        self._fs = fs
        self._path = path
        self._in_use = in_use
        self._progress = progress
        self.verified = Verified()

    def partition_folders(self) -> list[str]:
        """The folders to check, by name; FileNotFoundError or NotADirectoryError when there is no such folder."""
        if self._is_partition():
            return [self._path]
        names = sorted(name for name in self._fs.list_folders(self._path) if partition_of_folder(name))
        return [posixpath.join(self._path, name) for name in names]

    def total_bytes(self) -> int:
        """Bytes of data that there are to check now."""
        return sum(
            self._fs.size_of(posixpath.join(folder, name))
            for folder in self.partition_folders()
            for name in self._fs.list_dir(folder)
            if name.endswith(LOG_SUFFIX)
        )

    def faults(self) -> Iterator[Fault]:
        """Everything that is wrong, as it is found."""
        known = _Known()
        if self._is_partition():
            yield from self._check_partition(self._path, known)
            return
        yield from self._check_properties()
        # Read before the logs: what they say now holds for the logs from now on.
        checkpoints = []
        for name in _CHECKPOINTS:
            path = posixpath.join(self._path, name)
            if self._fs.exists(path) and not self._fs.size_of(path):
                # Apache Kafka makes them so at its first start.
                continue
            try:
                checkpoints.append((path, read_offsets(self._fs, path)))
            except CheckpointError as error:
                yield Fault(path, None, error.reason)
        for folder in self.partition_folders():
            yield from self._check_partition(folder, known)
        for path, offsets in checkpoints:
            yield from _check_offsets(path, offsets, known.end_offsets)

    def _is_partition(self) -> bool:
        return any(name.endswith(LOG_SUFFIX) for name in self._fs.list_dir(self._path))

    def _check_properties(self) -> Iterator[Fault]:
        path = posixpath.join(self._path, META_PROPERTIES)
        try:
            read_meta_properties(self._fs, path)
        except CheckpointError as error:
            yield Fault(path, None, error.reason)

    def _check_partition(self, folder: str, known: _Known) -> Iterator[Fault]:
        check = PartitionCheck(self._fs, folder, in_use=self._in_use, progress=self._progress)
        yield from check.faults()
        yield from self._check_topic_id(folder, known)
        self.verified.partitions += 1
        self.verified.segments += check.segments
        self.verified.batches += check.batches
        self.verified.size_bytes += check.size_bytes
        partition = partition_of_folder(posixpath.basename(folder))
        if partition is not None:
            known.end_offsets[partition] = check.end_offset

    def _check_topic_id(self, folder: str, known: _Known) -> Iterator[Fault]:
        path = posixpath.join(folder, PARTITION_METADATA)
        partition = partition_of_folder(posixpath.basename(folder))
        try:
            topic_id = read_topic_id(self._fs, path)
        except CheckpointError as error:
            yield Fault(path, None, error.reason)
            return
        if topic_id is not None and partition is not None:
            first, where = known.topic_ids.setdefault(partition.topic, (topic_id, path))
            if first != topic_id:
                yield Fault(path, None, f"the topic id {topic_id} is not the {first} of {where}")


def _check_offsets(
    path: str, offsets: dict[TopicPartition, int], end_offsets: dict[TopicPartition, int]
) -> Iterator[Fault]:
    for partition, offset in offsets.items():
        end_offset = end_offsets.get(partition)
        if end_offset is not None and not 0 <= offset <= end_offset:
            yield Fault(path, None, f"{partition} stands at {offset}, but its log ends at {end_offset}")
