"""The log dirs of a broker: which partitions lie in them, where everything left off, and which of them still work.

Takes the dirs, opens all partitions at start and closes them at the end, places new ones in the dir with the fewest,
writes the checkpoints. Folders that are no partitions are left alone. A dir that fails is let go of with its logs, and
nothing in it is touched again; whoever serves them is told by `on_failure`.

Threads: `load`, `close`, `checkpoint`, `purge_deleted` are slow and may run in a thread, one at a time. A dir may fail
in any thread.
"""

import contextlib
import errno
import logging
import posixpath
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

from headwater.config import TopicConfig
from headwater.log.checkpoints import (
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    PARTITION_METADATA,
    RECOVERY_POINTS,
    CheckpointError,
    read_topic_id,
    write_offsets,
)
from headwater.log.dir_loading import Counter, DirLoader
from headwater.log.disk_errors import is_passing, reason
from headwater.log.filesystem import FileSystem
from headwater.log.folder_names import (
    METADATA_TOPIC,
    doomed_folder,
    is_doomed_folder,
    partition_of_folder,
    partition_of_future,
)
from headwater.log.log import Log
from headwater.log.log_dir import (
    LOCK_FILE,
    LogDir,
    LogDirError,
    LogDirLockedError,
    agreed_cluster_id,
    check_any_works,
)
from headwater.log.moving.interrupted_moves import settle_moves
from headwater.log.open_files import OpenFiles
from headwater.types import TopicPartition

__all__ = ["LOCK_FILE", "LogDir", "LogDirError", "LogDirLockedError", "LogDirs"]

_log = logging.getLogger(__name__)

_MOST_PREFERRED = 10_000


class LogDirs:
    """All log dirs of a broker and the logs in those that work; made by `LogDirs.open`."""

    def __init__(self, files: OpenFiles, dirs: list[LogDir], cluster_id: str) -> None:
        self.fs: FileSystem = files.fs
        self.files = files
        self.dirs = dirs
        self.cluster_id = cluster_id
        self.logs: dict[TopicPartition, Log] = {}
        self.on_failure: Callable[[LogDir], object] = lambda log_dir: None
        """Called once when a dir has failed after the start, in whatever thread noticed it."""
        self.arriving: dict[TopicPartition, LogDir] = {}
        """Where partitions are being moved to: that dir's checkpoints tell of them as well."""
        self.interrupted_moves: list[tuple[TopicPartition, LogDir, str]] = []
        """What the start found: a partition, the dir it was on its way to, and the folder of its copy."""
        self._preferred: dict[TopicPartition, LogDir] = {}
        self._dir_of: dict[TopicPartition, LogDir] = {}
        self._doomed: dict[str, int] = {}
        """Folders that are to go, and from when on; more may come from another thread while some are removed."""
        self._fully_loaded = False
        self._checkpoint_lock = threading.Lock()
        self._failing_lock = threading.Lock()

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

        Without `cluster_id` the dirs say which cluster they are of, or a new id is made when all are new. A dir that
        the system does not let us use is offline from the start. LogDirLockedError, LogDirError when one is somebody
        else's, or none can be used.
        """
        dirs: list[LogDir] = []
        try:
            for path in map(fs.absolute, paths):
                dirs.append(LogDir.take(fs, path))  # noqa: PERF401 -- they are let go of when a later one fails
            cluster_id = cluster_id or agreed_cluster_id(dirs)
            for log_dir in dirs:
                if log_dir.failed is None:
                    log_dir.claim(cluster_id, node_id)
            check_any_works(dirs)
        except BaseException:
            for log_dir in dirs:
                log_dir.unlock()
            raise
        return cls(OpenFiles(fs, open_files_limit), dirs, cluster_id)

    @property
    def working(self) -> list[LogDir]:
        """The dirs that have not failed."""
        return [log_dir for log_dir in self.dirs if log_dir.failed is None]

    def load(
        self,
        config_for: Callable[[str], TopicConfig],
        *,
        now_ms: int,
        producer_id_expiration_ms: int = 86_400_000,
        threads_per_dir: int = 1,
        deleted_ids: Collection[UUID] = (),
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        """Open every partition in the dirs, with recovery where the last stop was not clean.

        `config_for` is asked by topic name; folders of topics in `deleted_ids` are what is left of a deletion, and go;
        `progress` is told how many of how many are done, from any thread. LogDirError when no dir can be used.
        """
        folders: list[tuple[LogDir, list[str]]] = []
        for log_dir in self.working:
            with log_dir.failing_at_start():
                log_dir.take_clean_shutdown()
                folders.append((log_dir, self._partition_folders(log_dir, deleted_ids)))
        self._doomed.update(dict.fromkeys(settle_moves(self.fs, folders), 0))
        count = Counter(sum(len(names) for _, names in folders), progress)
        for log_dir, names in folders:
            with log_dir.failing_at_start():
                loader = DirLoader(self.files, log_dir, config_for, now_ms, producer_id_expiration_ms, count)
                for log in loader.open_all(names, threads_per_dir):
                    self._register(log, log_dir)
        self._fully_loaded = True
        if not all(log_dir.was_clean for log_dir in self.working):
            # A log may end before its old recovery point now: what it gets from here on is not on the device yet.
            for log_dir in self.working:
                with log_dir.failing_at_start():
                    self._checkpoint_dir(log_dir, None)
        for log_dir in self.dirs:
            if log_dir.failed is not None:
                self._let_go(log_dir)
        check_any_works(self.dirs)

    def _partition_folders(self, log_dir: LogDir, deleted_ids: Collection[UUID]) -> list[str]:
        names = []
        for name in self.fs.list_folders(log_dir.path):
            partition = partition_of_folder(name) or partition_of_future(name)
            if is_doomed_folder(name):
                self._doomed[log_dir.file(name)] = 0
            elif partition is not None and partition.topic != METADATA_TOPIC:
                if deleted_ids and self._topic_id_in(log_dir.file(name)) in deleted_ids:
                    doomed = log_dir.file(doomed_folder(partition))
                    self.fs.rename(log_dir.file(name), doomed)
                    self._doomed[doomed] = 0
                elif partition_of_future(name):
                    self.interrupted_moves.append((partition, log_dir, log_dir.file(name)))
                else:
                    names.append(name)
        return names

    def _topic_id_in(self, folder: str) -> UUID | None:
        try:
            return read_topic_id(self.fs, f"{folder}/{PARTITION_METADATA}")
        except CheckpointError:
            return None

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
        """Make a partition's log in the working dir that holds the fewest; one that is there already is returned.

        OSError when that dir cannot take it, which has failed then unless the error passes.
        """
        existing = self.logs.get(partition)
        if existing is not None:
            return existing
        log_dir = self._preferred.pop(partition, None)
        if log_dir is None or log_dir.failed is not None:
            log_dir = min(self.working, key=lambda candidate: candidate.partitions, default=None)
        if log_dir is None:
            raise OSError(errno.EIO, "all log dirs are offline")
        path = log_dir.file(str(partition))
        is_new = not self.fs.exists(path)
        try:
            log = Log.open(
                self.fs,
                path,
                config=config,
                topic_id=topic_id,
                now_ms=now_ms,
                producer_id_expiration_ms=producer_id_expiration_ms,
                files=self.files,
            )
        except OSError as error:
            self.notice_in(log_dir, error)
            if is_new and is_passing(error):
                with contextlib.suppress(OSError):
                    self.fs.remove_tree(path)
            raise
        self._register(log, log_dir)
        return log

    def dir_of(self, partition: TopicPartition) -> LogDir:
        """The dir that a partition lies in."""
        return self._dir_of[partition]

    def home_of(self, folder: str) -> LogDir:
        """The dir that a folder lies in."""
        return next(log_dir for log_dir in self.dirs if log_dir.path == posixpath.dirname(folder))

    def prefer(self, partition: TopicPartition, log_dir: LogDir) -> None:
        """Let a partition that is not there yet be made in this dir, if it ever is; the oldest of many such wishes go.

        It is not remembered over a restart, as in Kafka.
        """
        self._preferred[partition] = log_dir
        if len(self._preferred) > _MOST_PREFERRED:
            del self._preferred[next(iter(self._preferred))]

    def moved(self, partition: TopicPartition, target: LogDir) -> None:
        """A partition's log goes on in another dir from now on."""
        source = self._dir_of.get(partition)
        if source is not None:
            source.partitions -= 1
            target.partitions += 1
            self._dir_of[partition] = target

    def discard(self, folder: str, partition: TopicPartition, *, remove_from_ms: int = 0) -> bool:
        """Take a folder that is no longer needed, or was never completed, out of sight, durably; whether that was done.

        It goes with a `purge_deleted` that is not before `remove_from_ms`. One in a failed dir stays.
        """
        log_dir = self.home_of(folder)
        if log_dir.failed is not None:
            return False
        doomed = log_dir.file(doomed_folder(partition))
        try:
            self.fs.rename(folder, doomed)
            self.fs.sync_dir(log_dir.path)
        except OSError as error:
            _log.error("%s is left to the next start, as it could not be renamed: %s", folder, error)
            self.notice_in(log_dir, error)
            return False
        self._doomed[doomed] = remove_from_ms
        return True

    def notice(self, log: Log, error: OSError) -> None:
        """A call for a log's files failed: unless that passes, its dir goes offline.

        A log that was closed or deleted meanwhile tells nothing about its dir.
        """
        if not log.is_closed:
            parent = posixpath.dirname(log.path)
            for log_dir in self.dirs:
                if log_dir.path == parent:
                    self.notice_in(log_dir, error, log.path)

    def notice_in(self, log_dir: LogDir, error: OSError, where: str = "") -> None:
        """The same for a call that failed in a dir for no log that is served."""
        if is_passing(error):
            return
        with self._failing_lock:
            if log_dir.failed is not None:
                return
            log_dir.failed = reason(error, where)
        self._let_go(log_dir)
        self.on_failure(log_dir)

    def _let_go(self, log_dir: LogDir) -> None:
        """Nothing in a failed dir is touched any more, and nobody gets to hear that it was brought to the device."""
        for partition, log in list(self.logs.items()):
            if self._dir_of.get(partition) is log_dir:
                log.abandon(OSError(errno.EIO, f"the log dir {log_dir.path} is offline"))
                self.logs.pop(partition, None)
                self._dir_of.pop(partition, None)
        log_dir.partitions = 0

    def open_to_others(self) -> list[str]:
        """The dirs of which other users may look into the dir and a partition in it. What is made here is not so."""
        look = self.fs.others_may_look_into
        open_dirs = [log_dir for log_dir in self.working if look(log_dir.path)]
        return [
            log_dir.path
            for log_dir in open_dirs
            if any(self._dir_of[name] is log_dir and look(log.path) for name, log in self.logs.items())
        ]

    def sync_names(self) -> None:
        """Return when no loss of power brings back a folder that was renamed. OSError when a dir cannot say so."""
        for log_dir in self.dirs:
            if log_dir.failed is not None:
                raise OSError(errno.EIO, f"the log dir {log_dir.path} is offline")
            self.fs.sync_dir(log_dir.path)

    def delete(self, partition: TopicPartition, *, remove_from_ms: int = 0) -> bool:
        """Take a partition away at once; its files go with a `purge_deleted` that is not before `remove_from_ms`.

        What lies in a dir that has failed, or fails now, is left to the next start; false then, or if that may be.
        """
        log = self.logs.pop(partition, None)
        if log is None:
            return len(self.working) == len(self.dirs)
        log_dir = self._dir_of.pop(partition)
        log_dir.partitions -= 1
        try:
            self._doomed[log.delete()] = remove_from_ms
        except FileNotFoundError:
            _log.warning("%s was gone before it was deleted", log.path)
        except OSError as error:
            _log.error("%s is left to the next start, as it could not be deleted: %s", log.path, error)
            self.notice_in(log_dir, error)
            return False
        return True

    def purge_deleted(self, now_ms: int) -> int:
        """Remove the folders of deleted partitions whose time has come, those left from earlier runs too; how many."""
        due = [path for path, remove_from_ms in list(self._doomed.items()) if remove_from_ms <= now_ms]
        for path in due:
            log_dir = self.home_of(path)
            if log_dir.failed is None:
                try:
                    self.fs.remove_tree(path)
                except OSError as error:
                    _log.error("%s could not be removed: %s", path, error)
                    self.notice_in(log_dir, error)
                    if is_passing(error):
                        continue
            del self._doomed[path]
        return len(due)

    def publish_indexes(self) -> None:
        """Let other programs find what was appended since the last call in the index files; costs what was dirty only.

        Runs in a thread. A full disk is left to the appends, which say so; what is not written comes with the next.
        """
        unpublished = self.files.unpublished
        for _ in range(len(unpublished)):
            try:
                segment = unpublished.pop()
            except KeyError:
                return
            try:
                segment.publish_indexes()
            except FileNotFoundError:
                continue
            except OSError as error:
                self._notice_at(segment.stem, error)

    def _notice_at(self, path: str, error: OSError) -> None:
        folder = posixpath.dirname(path)
        for log_dir in self.dirs:
            if log_dir.path == posixpath.dirname(folder):
                self.notice_in(log_dir, error, folder)

    def checkpoint(self, high_watermarks: Mapping[TopicPartition, int] | None = None) -> None:
        """Write recovery points and log start offsets of every dir, and the high watermarks when given.

        OSError when one of the dirs could not take them; the others did.
        """
        with self._checkpoint_lock:
            errors = [self._try_checkpoint(log_dir, high_watermarks) for log_dir in self.working]
        for error in filter(None, errors):
            raise error

    def checkpoint_dir(self, log_dir: LogDir) -> None:
        """The same for one dir alone, without high watermarks."""
        with self._checkpoint_lock:
            error = self._try_checkpoint(log_dir, None)
        if error is not None:
            raise error

    def _try_checkpoint(self, log_dir: LogDir, high_watermarks: Mapping[TopicPartition, int] | None) -> OSError | None:
        """Why it could not be written, None when it was; the dir fails when it could not for good."""
        try:
            self._checkpoint_dir(log_dir, high_watermarks)
        except OSError as error:
            if is_passing(error):
                _log.error("the checkpoints of the log dir %s could not be written: %s", log_dir.path, error)
            self.notice_in(log_dir, error)
            return error
        return None

    def _checkpoint_dir(self, log_dir: LogDir, high_watermarks: Mapping[TopicPartition, int] | None) -> None:
        logs = [
            (tp, log) for tp, log in list(self.logs.items()) if log_dir in (self._dir_of.get(tp), self.arriving.get(tp))
        ]
        write_offsets(self.fs, log_dir.file(RECOVERY_POINTS), {tp: log.recovery_point for tp, log in logs})
        # Kafka leaves out what the first segment's name says already.
        starts = {
            tp: log.log_start_offset
            for tp, log in logs
            if log.log_start_offset > (0 if log.has_unsynced_names else log.segments[0].base_offset)
        }
        write_offsets(self.fs, log_dir.file(LOG_START_OFFSETS), starts)
        if high_watermarks is not None:
            known = {tp: high_watermarks[tp] for tp, _ in logs if tp in high_watermarks}
            write_offsets(self.fs, log_dir.file(HIGH_WATERMARKS), known)
        log_dir.checkpoint_cleaned({tp: log.cleaned_until for tp, log in logs})

    def checkpoint_cleaned(self, partition: TopicPartition) -> None:
        """Write down how far a partition was cleaned, and the others in its dir with it."""
        with self._checkpoint_lock:
            log_dir = self._dir_of.get(partition)
            if log_dir is not None:
                logs = list(self.logs.items())
                cleaned = {tp: log.cleaned_until for tp, log in logs if self._dir_of.get(tp) is log_dir}
                log_dir.checkpoint_cleaned(cleaned)

    def high_watermarks(self) -> dict[TopicPartition, int]:
        """The checkpointed high watermarks of all dirs that work."""
        return {tp: offset for log_dir in self.working for tp, offset in log_dir.offsets(HIGH_WATERMARKS).items()}

    def close(self, high_watermarks: Mapping[TopicPartition, int] | None = None, *, threads_per_dir: int = 1) -> None:
        """Close all logs, write the checkpoints and the mark of a clean stop, unlock the dirs.

        A dir that failed, or with a log that cannot be brought to the device, does not get the mark.
        """
        try:
            with ThreadPoolExecutor(max(len(self.dirs) * threads_per_dir, 1), "log-closing") as pool:
                # A copy, as a topic may still be in the making.
                unclean = {log_dir for log_dir in pool.map(self._close_log, list(self.logs.values())) if log_dir}
            for log_dir in self.working:
                error = self._try_checkpoint(log_dir, high_watermarks)
                if error is None and self._fully_loaded and log_dir not in unclean:
                    self._mark_clean(log_dir)
        finally:
            self.abandon()

    def _close_log(self, log: Log) -> LogDir | None:
        """Close one log; its dir when that failed."""
        log_dir = self._dir_of.get(log.topic_partition)
        try:
            log.close()
        except OSError as error:
            _log.error("%s is checked at the next start, as it could not be closed: %s", log.path, error)
            log.abandon()
            return log_dir
        return None

    def _mark_clean(self, log_dir: LogDir) -> None:
        try:
            log_dir.leave_clean_shutdown()
        except OSError as error:
            _log.error("the logs in %s are checked at the next start, as its mark failed: %s", log_dir.path, error)

    def abandon(self) -> None:
        """Unlock the dirs and let go of all files as they are, as a crash would."""
        for log in self.logs.values():
            log.abandon()
        for log_dir in self.dirs:
            log_dir.unlock()
