"""The log dirs of a broker: who owns them, which partitions lie in them, and where everything left off.

Locks the dirs, checks that they are this broker's, opens all partitions at start and closes them at the end,
places new ones in the dir with the fewest, writes the checkpoints. Folders that are no partitions are left
alone.

Threads: `load`, `close`, `checkpoint`, `purge_deleted` are slow and may run in a thread, one at a time.
"""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID, uuid4

from headwater.config import TopicConfig
from headwater.log.checkpoints import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    META_PROPERTIES,
    RECOVERY_POINTS,
    CheckpointError,
    MetaProperties,
    read_meta_properties,
    read_offsets,
    uuid_to_text,
    write_clean_shutdown,
    write_meta_properties,
    write_offsets,
)
from headwater.log.filesystem import FileSystem
from headwater.log.folder_names import METADATA_TOPIC, is_doomed_folder, partition_of_folder
from headwater.log.log import Log
from headwater.log.open_files import OpenFiles
from headwater.types import TopicPartition

_log = logging.getLogger(__name__)

LOCK_FILE = ".lock"
_PROGRESS_EVERY = 100


class LogDirError(Exception):
    """A log dir that this broker may not or cannot use."""


class LogDirLockedError(LogDirError):
    """Another running broker has the dir."""


class LogDir:
    """One log dir, locked for this process."""

    def __init__(self, fs: FileSystem, path: str, properties: MetaProperties, lock: int) -> None:
        self.fs = fs
        self.path = path
        self.properties = properties
        self.was_clean = True
        self.partitions = 0
        self._lock: int | None = lock

    @property
    def directory_id(self) -> str:
        """The id of this dir, Kafka's 22 characters."""
        return self.properties.directory_id

    def file(self, name: str) -> str:
        """Path of a file in this dir."""
        return f"{self.path}/{name}"

    def take_clean_shutdown(self) -> bool:
        """Whether the last stop was clean; asked once, as the mark goes with it."""
        self.was_clean = self.fs.exists(self.file(CLEAN_SHUTDOWN))
        self.fs.remove(self.file(CLEAN_SHUTDOWN))
        return self.was_clean

    def offsets(self, name: str) -> dict[TopicPartition, int]:
        """A checkpoint of this dir; an unreadable one counts as empty and costs time, not data."""
        try:
            return read_offsets(self.fs, self.file(name))
        except CheckpointError as error:
            _log.warning("%s; starting without it", error)
            return {}

    def unlock(self) -> None:
        """Let other processes use the dir."""
        if self._lock is not None:
            self.fs.close(self._lock)
            self._lock = None


class LogDirs:
    """All log dirs of a broker and the logs in them; made by `LogDirs.open`."""

    def __init__(self, files: OpenFiles, dirs: list[LogDir]) -> None:
        self.fs: FileSystem = files.fs
        self.files = files
        self.dirs = dirs
        self.logs: dict[TopicPartition, Log] = {}
        self._dir_of: dict[TopicPartition, LogDir] = {}
        self._doomed: dict[str, int] = {}
        """Folders that are to go, and from when on; more may come from another thread while some are removed."""
        self._fully_loaded = False
        self._checkpoint_lock = threading.Lock()

    @classmethod
    def open(
        cls,
        fs: FileSystem,
        paths: Sequence[str],
        *,
        node_id: int,
        cluster_id: str | None = None,
        open_files_limit: int = 4096,
    ) -> "LogDirs":
        """Lock the dirs and check that they are this node's; new ones are made and marked as its own.

        Without `cluster_id` the dirs say which cluster they are of, or a new id is made when all are new.
        LogDirLockedError, LogDirError when a dir cannot be used.
        """
        dirs: list[LogDir] = []
        locks: list[int] = []
        try:
            found = []
            for path in map(fs.absolute, paths):
                locks.append(_lock_dir(fs, path))
                found.append((path, _read_properties(fs, path)))
            cluster_id = cluster_id or _agreed_cluster_id([properties for _, properties in found])
            for lock, (path, properties) in zip(locks, found, strict=True):
                dirs.append(LogDir(fs, path, _claim(fs, path, properties, cluster_id, node_id), lock))
        except BaseException:
            for lock in locks:
                fs.close(lock)
            raise
        return cls(OpenFiles(fs, open_files_limit), dirs)

    @property
    def cluster_id(self) -> str:
        """The cluster that the dirs belong to."""
        return self.dirs[0].properties.cluster_id

    def load(
        self,
        config_for: Callable[[str], TopicConfig],
        *,
        now_ms: int,
        producer_id_expiration_ms: int = 86_400_000,
        threads_per_dir: int = 1,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        """Open every partition in the dirs, with recovery where the last stop was not clean.

        `config_for` is asked by topic name; `progress` is told how many of how many are done, from any
        thread.
        """
        for log_dir in self.dirs:
            log_dir.take_clean_shutdown()
        folders = [(log_dir, self._partition_folders(log_dir)) for log_dir in self.dirs]
        count = _Counter(sum(len(names) for _, names in folders), progress)
        for log_dir, names in folders:
            loader = _DirLoader(self.files, log_dir, config_for, now_ms, producer_id_expiration_ms, count)
            if log_dir.was_clean or threads_per_dir <= 1:
                opened = [loader.open(name) for name in names]
            else:
                with ThreadPoolExecutor(threads_per_dir, "log-recovery") as pool:
                    opened = list(pool.map(loader.open, names))
            for log in opened:
                self._register(log, log_dir)
        self._fully_loaded = True

    def _partition_folders(self, log_dir: LogDir) -> list[str]:
        names = []
        for name in self.fs.list_folders(log_dir.path):
            if is_doomed_folder(name):
                self._doomed[log_dir.file(name)] = 0
            elif (partition := partition_of_folder(name)) and partition.topic != METADATA_TOPIC:
                names.append(name)
        return names

    def _register(self, log: Log, log_dir: LogDir) -> None:
        partition = log.topic_partition
        if partition in self.logs:
            raise LogDirError(
                f"{partition} is in {self.logs[partition].path} and in {log.path}: move the older of the two away"
            )
        self.logs[partition] = log
        self._dir_of[partition] = log_dir
        log_dir.partitions += 1

    def create(
        self,
        partition: TopicPartition,
        *,
        topic_id: UUID | None,
        config: TopicConfig,
        now_ms: int,
        producer_id_expiration_ms: int = 86_400_000,
    ) -> Log:
        """Make a partition's log in the dir that holds the fewest; one that is there already is returned."""
        existing = self.logs.get(partition)
        if existing is not None:
            return existing
        log_dir = min(self.dirs, key=lambda candidate: candidate.partitions)
        log = Log.open(
            self.fs,
            log_dir.file(str(partition)),
            config=config,
            topic_id=topic_id,
            now_ms=now_ms,
            producer_id_expiration_ms=producer_id_expiration_ms,
            files=self.files,
        )
        self._register(log, log_dir)
        return log

    def dir_of(self, partition: TopicPartition) -> LogDir:
        """The dir that a partition lies in."""
        return self._dir_of[partition]

    def delete(self, partition: TopicPartition, *, remove_from_ms: int = 0) -> None:
        """Take a partition away at once; its files go with a `purge_deleted` that is not before `remove_from_ms`."""
        log = self.logs.pop(partition)
        self._dir_of.pop(partition).partitions -= 1
        self._doomed[log.delete()] = remove_from_ms

    def purge_deleted(self, now_ms: int) -> int:
        """Remove the folders of deleted partitions whose time has come, those left from earlier runs too; how many."""
        due = [path for path, remove_from_ms in list(self._doomed.items()) if remove_from_ms <= now_ms]
        for path in due:
            self.fs.remove_tree(path)
            del self._doomed[path]
        return len(due)

    def checkpoint(self, high_watermarks: Mapping[TopicPartition, int] | None = None) -> None:
        """Write recovery points and log start offsets of every dir, and the high watermarks when given."""
        with self._checkpoint_lock:
            for log_dir in self.dirs:
                logs = [(tp, log) for tp, log in list(self.logs.items()) if self._dir_of.get(tp) is log_dir]
                write_offsets(self.fs, log_dir.file(RECOVERY_POINTS), {tp: log.recovery_point for tp, log in logs})
                # Kafka leaves out what the first segment's name says already.
                starts = {
                    tp: log.log_start_offset for tp, log in logs if log.log_start_offset > log.segments[0].base_offset
                }
                write_offsets(self.fs, log_dir.file(LOG_START_OFFSETS), starts)
                if high_watermarks is not None:
                    known = {tp: high_watermarks[tp] for tp, _ in logs if tp in high_watermarks}
                    write_offsets(self.fs, log_dir.file(HIGH_WATERMARKS), known)

    def high_watermarks(self) -> dict[TopicPartition, int]:
        """The checkpointed high watermarks of all dirs."""
        return {tp: offset for log_dir in self.dirs for tp, offset in log_dir.offsets(HIGH_WATERMARKS).items()}

    def cleaner_offsets(self) -> dict[TopicPartition, int]:
        """How far each partition was cleaned, by the checkpoints of all dirs."""
        return {tp: offset for log_dir in self.dirs for tp, offset in log_dir.offsets(CLEANER_OFFSETS).items()}

    def close(self, high_watermarks: Mapping[TopicPartition, int] | None = None, *, threads_per_dir: int = 1) -> None:
        """Close all logs, write the checkpoints and the mark of a clean stop, unlock the dirs."""
        try:
            with ThreadPoolExecutor(max(len(self.dirs) * threads_per_dir, 1), "log-closing") as pool:
                list(pool.map(Log.close, self.logs.values()))
            self.checkpoint(high_watermarks)
            if self._fully_loaded:
                for log_dir in self.dirs:
                    write_clean_shutdown(self.fs, log_dir.file(CLEAN_SHUTDOWN))
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Unlock the dirs and let go of all files as they are, as a crash would."""
        for log in self.logs.values():
            log.abandon()
        for log_dir in self.dirs:
            log_dir.unlock()


class _DirLoader:
    """Opens the partitions of one dir with what its checkpoints say; several threads may share it."""

    def __init__(
        self,
        files: OpenFiles,
        log_dir: LogDir,
        config_for: Callable[[str], TopicConfig],
        now_ms: int,
        producer_id_expiration_ms: int,
        count: "_Counter",
    ) -> None:
        self._files = files
        self._dir = log_dir
        self._config_for = config_for
        self._now_ms = now_ms
        self._expiration_ms = producer_id_expiration_ms
        self._count = count
        self._recovery_points = log_dir.offsets(RECOVERY_POINTS)
        self._start_offsets = log_dir.offsets(LOG_START_OFFSETS)

    def open(self, name: str) -> Log:
        partition = partition_of_folder(name)
        if partition is None:
            raise LogDirError(f"{self._dir.file(name)} is no partition's folder")
        log = Log.open(
            self._files.fs,
            self._dir.file(name),
            config=self._config_for(partition.topic),
            clean=self._dir.was_clean,
            recovery_point=self._recovery_points.get(partition, 0),
            log_start_offset=self._start_offsets.get(partition, 0),
            now_ms=self._now_ms,
            producer_id_expiration_ms=self._expiration_ms,
            files=self._files,
        )
        self._count.step()
        return log


class _Counter:
    """Tells a callback now and then how far the work is; steps may come from several threads."""

    def __init__(self, total: int, callback: Callable[[int, int], None] | None) -> None:
        self._total = total
        self._done = 0
        self._callback = callback
        self._lock = threading.Lock()

    def step(self) -> None:
        with self._lock:
            self._done += 1
            done = self._done
        if self._callback is not None and (done % _PROGRESS_EVERY == 0 or done == self._total):
            self._callback(done, self._total)


def _lock_dir(fs: FileSystem, path: str) -> int:
    try:
        fs.make_dirs(path)
        lock = fs.lock(f"{path}/{LOCK_FILE}")
    except OSError as error:
        raise LogDirError(
            f"the log dir {path} cannot be used: {error.strerror}; check log.dirs and its rights"
        ) from error
    if lock is None:
        raise LogDirLockedError(
            f"the log dir {path} is in use by another broker: stop that one or give this one another log.dirs"
        )
    return lock


def _read_properties(fs: FileSystem, path: str) -> MetaProperties | None:
    try:
        return read_meta_properties(fs, f"{path}/{META_PROPERTIES}")
    except CheckpointError as error:
        raise LogDirError(f"{error}; restore the file or use an empty log dir") from error


def _agreed_cluster_id(found: list[MetaProperties | None]) -> str:
    ids = sorted({properties.cluster_id for properties in found if properties and properties.cluster_id})
    if len(ids) > 1:
        raise LogDirError(f"the log dirs are of different clusters: {', '.join(ids)}")
    return ids[0] if ids else uuid_to_text(uuid4())


def _claim(
    fs: FileSystem, path: str, properties: MetaProperties | None, cluster_id: str, node_id: int
) -> MetaProperties:
    if properties is not None:
        if properties.cluster_id and properties.cluster_id != cluster_id:
            raise LogDirError(
                f"the log dir {path} is of the cluster {properties.cluster_id}, not {cluster_id}: use another dir"
            )
        if properties.node_id is not None and properties.node_id != node_id:
            raise LogDirError(
                f"the log dir {path} is of the node {properties.node_id}, not {node_id}: set node.id or use another dir"
            )
        if properties.version == 1 and properties.directory_id and properties.node_id is not None:
            return properties
    claimed = MetaProperties(
        version=1,
        cluster_id=cluster_id,
        node_id=node_id,
        directory_id=(properties.directory_id if properties else "") or uuid_to_text(uuid4()),
    )
    write_meta_properties(fs, f"{path}/{META_PROPERTIES}", claimed)
    return claimed
