"""Opening the partitions of a log dir at the start, with what its checkpoints say."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from headwater.config import TopicConfig
from headwater.log.checkpoints import CLEANER_OFFSETS, LOG_START_OFFSETS, RECOVERY_POINTS
from headwater.log.folder_names import partition_of_folder
from headwater.log.log import Log
from headwater.log.log_dir import LogDir, LogDirError
from headwater.log.open_files import OpenFiles

_PROGRESS_EVERY = 100


class DirLoader:
    """Opens the partitions of one dir; several threads may share it."""

    def __init__(
        self,
        files: OpenFiles,
        log_dir: LogDir,
        config_for: Callable[[str], TopicConfig],
        now_ms: int,
        producer_id_expiration_ms: int,
        count: "Counter",
    ) -> None:
        self._files = files
        self._dir = log_dir
        self._config_for = config_for
        self._now_ms = now_ms
        self._expiration_ms = producer_id_expiration_ms
        self._count = count
        self._recovery_points = log_dir.offsets(RECOVERY_POINTS)
        self._start_offsets = log_dir.offsets(LOG_START_OFFSETS)
        self._cleaner_offsets = log_dir.offsets(CLEANER_OFFSETS)

    def open_all(self, names: list[str], threads: int) -> list[Log]:
        """The logs in the folders called `names`; those to be recovered are so in several threads."""
        if self._dir.was_clean or threads <= 1:
            return [self._open(name) for name in names]
        with ThreadPoolExecutor(threads, "log-recovery") as pool:
            return list(pool.map(self._open, names))

    def _open(self, name: str) -> Log:
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
            cleaned_until=self._cleaner_offsets.get(partition, 0),
            now_ms=self._now_ms,
            producer_id_expiration_ms=self._expiration_ms,
            files=self._files,
        )
        self._count.step()
        return log


class Counter:
    """Tells a callback now and then how far the work is; steps may come from several threads."""

    def __init__(self, total: int, callback: Callable[[int, int], None] | None) -> None:
        self._total = total
        self._done = 0
        self._callback = callback
        self._lock = threading.Lock()

    def step(self) -> None:
        """One more is done."""
        with self._lock:
            self._done += 1
            done = self._done
        if self._callback is not None and (done % _PROGRESS_EVERY == 0 or done == self._total):
            self._callback(done, self._total)
