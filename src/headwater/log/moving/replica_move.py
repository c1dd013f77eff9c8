"""Moving a partition's log to another log dir of the same broker, while it is written to and read.

A copy grows in the folder `<topic>-<partition>.<id>-future`. When little is missing, flushes are held back, the copy is
brought to the device as far as the log is, and gets the mark that `interrupted_moves` looks for; then, in one turn of
the event loop, the last bytes are copied, the folder gets the partition's name and the log goes on in it. The old
folder is renamed once that name is on the device. So at any moment one folder is complete, and a start knows which.
"""

import contextlib
import errno
import threading
import time
from collections.abc import Callable, Generator, Iterator
from functools import partial

from headwater.log.checkpoints import PARTITION_METADATA, write_topic_id
from headwater.log.filesystem import CREATE
from headwater.log.log import Log
from headwater.log.log_dir import LogDir
from headwater.log.log_dirs import LogDirs
from headwater.log.moving.interrupted_moves import MOVED_HERE
from headwater.log.moving.replica_copy import LogTruncatedError, ReplicaCopy, Survey
from headwater.log.throttle import Throttle

_CLOSE_BYTES = 8 << 20
_LAST_BYTES = 1 << 20
_MOST_ROUNDS = 20
_PAUSE_S = 0.2


class ReplicaMove:
    """One move, from `begin` over the `steps` to `abandon`. `target` is the dir that the log is to lie in."""

    def __init__(self, log_dirs: LogDirs, log: Log, target: LogDir, folder: str, *, throttle: Throttle) -> None:
        self.log = log
        self.target = target
        self.folder = folder
        self.stopped = threading.Event()
        self.has_switched = False
        self._log_dirs = log_dirs
        self._fs = log.fs
        self._throttle = throttle
        self._old_folder = log.path
        self._source = log_dirs.home_of(log.path)
        self._holds_flushes = False
        self._copy = self._new_copy()

    def _new_copy(self) -> ReplicaCopy:
        return ReplicaCopy(self.log, self.folder, throttle=self._throttle, stopped=self.stopped)

    @property
    def size_bytes(self) -> int:
        """Bytes of the log that are copied."""
        return self._copy.size_bytes

    @property
    def offset_lag(self) -> int:
        """How many offsets the copy is behind the log."""
        return max(self.log.log_end_offset - self._copy.end_offset, 0)

    def begin(self) -> None:
        """Make the copy's folder, empty: from here on a start of the broker knows of the move. May run in a thread."""
        self._fs.remove_tree(self.folder)
        self._fs.make_dirs(self.folder)
        if self.log.topic_id is not None:
            write_topic_id(self._fs, f"{self.folder}/{PARTITION_METADATA}", self.log.topic_id)
        self._fs.sync_dir(self.target.path)

    def steps(self) -> Generator[Callable[[], object], None, None]:
        """The work, piece by piece: each piece may take long and runs in any thread, what is between runs on the loop.

        CopyStoppedError when it is stopped or the log closed. In any case call `abandon` at the end.
        """
        self._log_dirs.arriving[self.log.topic_partition] = self.target
        yield self._forget_last_move
        while not self.has_switched:
            try:
                yield from self._come_close()
                yield from self._try_to_switch()
                if not self.has_switched:
                    # Something in the log does not come to rest: too many rolls, or one that fails.
                    yield partial(self.stopped.wait, _PAUSE_S)
            except LogTruncatedError:
                self._copy = self._new_copy()
                yield self.begin
        # A thread that has just looked up the path of a file still finds it.
        yield partial(time.sleep, _PAUSE_S)
        yield self._retire_old_folder
        yield self._write_checkpoints

    def _forget_last_move(self) -> None:
        """The folder may have a mark from when it was moved there, and two marks would say nothing."""
        mark = f"{self.log.path}/{MOVED_HERE}"
        if self._fs.exists(mark):
            self._fs.remove(mark)
            self._fs.sync_dir(self.log.path)

    def _come_close(self) -> Iterator[Callable[[], object]]:
        while True:
            survey = self._copy.survey()
            yield partial(self._copy.catch_up, survey)
            if self._copy.missing_bytes(self._copy.survey()) <= _CLOSE_BYTES:
                break
        # The dir needs to know where the log starts, and from where on to check it, before the log is there.
        yield partial(self._log_dirs.checkpoint_dir, self.target)

    def _try_to_switch(self) -> Iterator[Callable[[], object]]:
        """What was flushed must not be lost with the power: no flush comes between the copy's last sync and the end."""
        try:
            yield self._hold_flushes
            yield partial(self._settle, self._copy.survey())
            for _ in range(_MOST_ROUNDS):
                survey = self._copy.survey()
                self._check_target()
                if self._copy.is_close(survey, _LAST_BYTES):
                    self._switch(survey)
                    return
                yield partial(self._copy.catch_up, survey, throttled=False)
        finally:
            self._let_flushes_go()

    def _settle(self, survey: Survey) -> None:
        """Bring the copy to the device up to the survey's end, with the mark that says so."""
        self._copy.catch_up(survey, throttled=False)
        mark = f"{self.folder}/{MOVED_HERE}"
        self._fs.close(self._fs.open(mark, CREATE))
        self._fs.sync_file(mark)
        self._copy.sync_tail(survey)

    def _switch(self, survey: Survey) -> None:
        path = self.target.file(str(self.log.topic_partition))
        self._copy.copy_rest(survey)
        self._fs.rename(self.folder, path)
        self.folder = path
        self._copy.take_over(path)
        self._log_dirs.moved(self.log.topic_partition, self.target)
        self.has_switched = True

    def _retire_old_folder(self) -> None:
        self._fs.sync_dir(self.target.path)
        remove_from_ms = int(time.time() * 1000) + self.log.config.file_delete_delay_ms
        if self._log_dirs.discard(self._old_folder, self.log.topic_partition, remove_from_ms=remove_from_ms):
            self._fs.remove(f"{self.folder}/{MOVED_HERE}")

    def _write_checkpoints(self) -> None:
        self._log_dirs.checkpoint_dir(self.target)
        if self._source.failed is None:
            # What the old dir says of a partition that it does not hold harms nothing.
            with contextlib.suppress(OSError):
                self._log_dirs.checkpoint_dir(self._source)

    def _check_target(self) -> None:
        if self.target.failed is not None:
            raise OSError(errno.EIO, f"the log dir {self.target.path} is offline: {self.target.failed}")

    def _hold_flushes(self) -> None:
        self.log.flush_gate.acquire()
        self._holds_flushes = True

    def _let_flushes_go(self) -> None:
        if self._holds_flushes:
            self._holds_flushes = False
            self.log.flush_gate.release()

    def abandon(self) -> None:
        """Let go of the log, at the end of the steps and after an error; the copy's folder stays as it is."""
        self._let_flushes_go()
        self._log_dirs.arriving.pop(self.log.topic_partition, None)
