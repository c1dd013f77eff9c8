"""One log dir: whose it is, its lock, its checkpoints, and whether it still works.

Knows nothing of the logs in it.
"""

import logging
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final
from uuid import uuid4

from headwater.log.checkpoints import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSETS,
    META_PROPERTIES,
    CheckpointError,
    MetaProperties,
    read_meta_properties,
    read_offsets,
    uuid_to_text,
    write_clean_shutdown,
    write_meta_properties,
    write_offsets,
)
from headwater.log.disk_errors import OUT_OF_FILES, reason
from headwater.log.filesystem import FileSystem
from headwater.types import TopicPartition

_log = logging.getLogger(__name__)

LOCK_FILE = ".lock"
_UNKNOWN: Final = MetaProperties(version=1, cluster_id="", node_id=None, directory_id="")


class LogDirError(Exception):
    """A log dir that this broker may not or cannot use."""


class LogDirLockedError(LogDirError):
    """Another running broker has the dir."""


class LogDir:
    """One log dir, locked for this process; made by `LogDir.take`.

    `failed` is why it is offline, None while it works.
    """

    def __init__(self, fs: FileSystem, path: str) -> None:
        self.fs = fs
        self.path = path
        self.properties = _UNKNOWN
        self.failed: str | None = None
        self.was_clean = True
        self.partitions = 0
        self._lock: int | None = None
        self._cleaned: dict[TopicPartition, int] | None = None

    @classmethod
    def take(cls, fs: FileSystem, path: str) -> "LogDir":
        """Lock the dir at `path`, which is made when absent, and read whose it is.

        One that the system does not let us use is offline from the start. LogDirLockedError when another broker has
        it, LogDirError when it does not say whose it is.
        """
        log_dir = cls(fs, path)
        try:
            with log_dir.failing_at_start():
                _make_durably(fs, path)
                log_dir._lock = fs.lock(log_dir.file(LOCK_FILE))
                if log_dir._lock is None:
                    raise LogDirLockedError(
                        f"the log dir {path} is in use by another broker: stop that one or give this one another"
                        " log.dirs"
                    )
                log_dir.properties = read_meta_properties(fs, log_dir.file(META_PROPERTIES)) or _UNKNOWN
        except BaseException as error:
            log_dir.unlock()
            if isinstance(error, CheckpointError):
                raise LogDirError(f"{error}; restore the file or use an empty log dir") from error
            raise
        return log_dir

    @property
    def directory_id(self) -> str:
        """The id of this dir, Kafka's 22 characters; empty while it is not known."""
        return self.properties.directory_id

    def file(self, name: str) -> str:
        """Path of a file in this dir."""
        return f"{self.path}/{name}"

    @contextmanager
    def failing_at_start(self) -> Iterator[None]:
        """What goes wrong within takes the dir offline, a full disk too: the start goes on without it."""
        try:
            yield
        except OSError as error:
            if error.errno in OUT_OF_FILES:
                raise
            self.failed = reason(error)

    def claim(self, cluster_id: str, node_id: int) -> None:
        """See that the dir is this node's, and write that down where it is new; LogDirError when it is another's."""
        found = self.properties
        if found.cluster_id and found.cluster_id != cluster_id:
            raise LogDirError(
                f"the log dir {self.path} is of the cluster {found.cluster_id}, not {cluster_id}: use another dir"
            )
        if found.node_id is not None and found.node_id != node_id:
            raise LogDirError(
                f"the log dir {self.path} is of the node {found.node_id}, not {node_id}: set node.id or use another dir"
            )
        if found.version == 1 and found.directory_id and found.node_id is not None:
            return
        claimed = MetaProperties(
            version=1,
            cluster_id=cluster_id,
            node_id=node_id,
            directory_id=found.directory_id or uuid_to_text(uuid4()),
        )
        with self.failing_at_start():
            write_meta_properties(self.fs, self.file(META_PROPERTIES), claimed)
            self.properties = claimed

    def take_clean_shutdown(self) -> None:
        """Find out whether the last stop was clean; asked once, as the mark goes with it."""
        self.was_clean = self.fs.exists(self.file(CLEAN_SHUTDOWN))
        self.fs.remove(self.file(CLEAN_SHUTDOWN))
        self.fs.sync_dir(self.path)

    def leave_clean_shutdown(self) -> None:
        """Say that all logs of this dir were closed in order."""
        write_clean_shutdown(self.fs, self.file(CLEAN_SHUTDOWN))

    def offsets(self, name: str) -> dict[TopicPartition, int]:
        """A checkpoint of this dir; an unreadable one counts as empty and costs time, not data."""
        try:
            return read_offsets(self.fs, self.file(name))
        except CheckpointError as error:
            _log.warning("%s; starting without it", error)
            return {}

    def checkpoint_cleaned(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Write down how far partitions were cleaned, those that ever were; nothing to do when nothing changed."""
        cleaned = {tp: offset for tp, offset in offsets.items() if offset > 0}
        if cleaned != self._cleaned:
            write_offsets(self.fs, self.file(CLEANER_OFFSETS), cleaned)
            self._cleaned = cleaned

    def unlock(self) -> None:
        """Let other processes use the dir."""
        if self._lock is not None:
            self.fs.close(self._lock)
            self._lock = None


def check_any_works(dirs: Sequence[LogDir]) -> None:
    """LogDirError when all of `dirs` are offline: there is nothing to serve."""
    if all(log_dir.failed is not None for log_dir in dirs):
        raise _unusable(dirs)


def agreed_cluster_id(dirs: Sequence[LogDir]) -> str:
    """The cluster that the dirs say they are of, or a new id when all of them are new."""
    ids = sorted({log_dir.properties.cluster_id for log_dir in dirs if log_dir.properties.cluster_id})
    if len(ids) > 1:
        raise LogDirError(f"the log dirs are of different clusters: {', '.join(ids)}")
    if not ids and any(log_dir.failed is not None for log_dir in dirs):
        # One that is offline may be of a cluster, and the others would be made another's.
        raise _unusable(dirs)
    return ids[0] if ids else uuid_to_text(uuid4())


def _unusable(dirs: Sequence[LogDir]) -> LogDirError:
    failed = [f"the log dir {each.path} cannot be used: {each.failed}" for each in dirs if each.failed is not None]
    return LogDirError(f"{'; '.join(failed)}; check log.dirs and its rights")


def _make_durably(fs: FileSystem, path: str) -> None:
    """Make a dir and those above it; their names are on the device when this returns."""
    if not fs.exists(path):
        parent = posixpath.dirname(path)
        _make_durably(fs, parent)
        fs.make_dirs(path)
        fs.sync_dir(parent)
