"""Log dirs that fail while the broker runs: their partitions go offline, and the others are served on.

Whoever gets an error of the system from a log hands it in here and has the answer for the client. An error that passes
by itself, a full disk above all, costs the request alone. Every other one takes the log dir offline until the next
start; without any dir, or without the metadata, the broker gives up.
"""

import asyncio
import logging
import posixpath
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

from headwater.broker.services.journal import Journal
from headwater.broker.services.partition import Partition
from headwater.broker.services.threads import run_to_end
from headwater.cluster.changes import LeaderEpochRaised
from headwater.cluster.embedded import EmbeddedStore
from headwater.log.disk_errors import is_passing
from headwater.log.log import Log
from headwater.log.log_dirs import LogDir
from headwater.protocol.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from headwater.broker.broker import Broker

logger = logging.getLogger(__name__)

_SAY_AGAIN_AFTER_S: Final = 30.0

T = TypeVar("T")


class LogDirFailures:
    """What becomes of a broker's partitions when its disks fail. `storage_error` may be called in any thread."""

    def __init__(self, broker: "Broker", store: EmbeddedStore) -> None:
        self._broker = broker
        self._store = store
        self._said_s: dict[str, float] = {}
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        self.journal = Journal(store, lambda error: self._on_loop(self._journal_failed, error))

    def watch(self) -> None:
        """Says which dirs are offline from the start, and what that costs; from now on each that fails is seen to."""
        self._broker.log_dirs.on_failure = lambda log_dir: self._on_loop(self._take_offline, log_dir)
        for partition in self._broker.topics.partitions():
            if partition.log.is_closed:
                partition.go_offline()
        topics = self._broker.topics.by_name.values()
        missing = sum(partition.is_offline for topic in topics for partition in topic.partitions)
        for log_dir in self._broker.log_dirs.dirs:
            if log_dir.failed is not None:
                logger.error(
                    "the log dir %s is offline, as it cannot be used: %s. The %d partitions that are in no other dir"
                    " are offline too, the others are served. Repair it and start the broker again",
                    log_dir.path,
                    log_dir.failed,
                    missing,
                )

    def storage_error(self, log: Log, action: str, error: OSError) -> ApiError:
        """What a client hears when `action` failed in the files of `log`; its dir goes offline unless that passes."""
        self._broker.log_dirs.notice(log, error)
        if is_passing(error):
            self._say_sometimes(log, action, error)
        return ApiError(ErrorCode.kafka_storage_error, f"cannot {action} the log: {error.strerror}")

    async def flush(self, partition: Partition) -> None:
        """Brings a partition's log to the device; ApiError KAFKA_STORAGE_ERROR when that cannot be."""
        log = partition.log
        try:
            await asyncio.to_thread(log.flush)
        except OSError as error:
            raise self.storage_error(log, "flush", error) from error

    def _say_sometimes(self, log: Log, action: str, error: OSError) -> None:
        """Producers try again at once; a full disk must not be filled with lines that say so."""
        folder, now_s = posixpath.dirname(log.path), time.monotonic()
        if now_s - self._said_s.get(folder, -_SAY_AGAIN_AFTER_S) >= _SAY_AGAIN_AFTER_S:
            self._said_s[folder] = now_s
            logger.error(
                "cannot %s %s: %s. Clients are told to try again, until there is room or whatever else is missing",
                action,
                log.path,
                error,
            )

    def _on_loop(self, step: Callable[[T], None], subject: T) -> None:
        """Takes a step on the event loop: at once where it was the loop that noticed, so before the next request."""
        if threading.get_ident() == self._thread:
            step(subject)
        else:
            self._loop.call_soon_threadsafe(step, subject)

    def _take_offline(self, log_dir: LogDir) -> None:
        broker = self._broker
        gone = [each for each in broker.topics.partitions() if posixpath.dirname(each.log.path) == log_dir.path]
        for partition in gone:
            partition.go_offline()
            broker.purgatory.touched(partition)
            for coordinator in (broker.groups, broker.transactions):
                if partition.topic.name == coordinator.topic:
                    coordinator.unload(partition.index)
        logger.error(
            "the log dir %s has failed: %s. It is offline with its %d partitions, those in other dirs are served."
            " Repair it and start the broker again: what was flushed is there then",
            log_dir.path,
            log_dir.failed,
            len(gone),
        )
        if not broker.log_dirs.working:
            broker.give_up("all log dirs have failed")
        elif str(self._store.path.parent) == log_dir.path:
            broker.in_background(self._try_journal())

    async def _try_journal(self) -> None:
        """The metadata lies in a dir that failed: whether it can still be written is found out now, not in a week."""
        nothing_new = LeaderEpochRaised(leader_epoch=self._store.image.leader_epoch)
        try:
            await run_to_end(lambda: self.journal.append(nothing_new))
        except ApiError as error:
            logger.error("%s", error)

    def _journal_failed(self, error: OSError) -> None:
        self._broker.give_up(f"its metadata cannot be written to {self._store.path}: {error.strerror}")
