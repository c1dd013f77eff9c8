"""Moves of partitions between the log dirs of this broker: begins, runs and stops them.

The work itself is `headwater.log.moving.replica_move`'s; it runs in threads, as many at a time as
`num.replica.alter.log.dirs.threads` says, and its short steps on the event loop. A move that a stop or a crash
interrupts begins anew at the next start, as its folder tells of it. One that fails is given up, and says so once.
"""

import asyncio
import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.broker.services.threads import run_to_end
from headwater.log.folder_names import future_folder
from headwater.log.log import Log
from headwater.log.log_dir import LogDir
from headwater.log.moving.replica_copy import CopyStoppedError
from headwater.log.moving.replica_move import ReplicaMove
from headwater.log.segment import CorruptSegmentError
from headwater.log.throttle import Throttle
from headwater.protocol.errors import ApiError, ErrorCode
from headwater.types import TopicPartition

if TYPE_CHECKING:
    from headwater.broker.broker import Broker

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _UnderWay:
    move: ReplicaMove
    task: asyncio.Task[None]
    is_waiting: bool = True
    """For its turn; nothing is copied yet."""


class ReplicaMoves:
    """The moves of one broker, from `start` to `stop`."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._log_dirs = broker.log_dirs
        self._stopped = threading.Event()
        self._throttle = Throttle(lambda: broker.config.replica_alter_log_dirs_io_max_bytes_per_second, self._stopped)
        at_once = max(broker.config.num_replica_alter_log_dirs_threads or len(broker.log_dirs.dirs), 1)
        self._turns = asyncio.Semaphore(at_once)
        self._threads = ThreadPoolExecutor(at_once, "replica-move")
        self._under_way: dict[TopicPartition, _UnderWay] = {}

    async def start(self) -> None:
        """Begins anew what an earlier run of the broker did not complete."""
        self._broker.topics.listeners.append(self._topics_changed)
        async with self._broker.topics.changing:
            for partition, target, folder in self._log_dirs.interrupted_moves:
                await self._resume(partition, target, folder)

    async def _resume(self, partition: TopicPartition, target: LogDir, folder: str) -> None:
        log = self._log_dirs.logs.get(partition)
        if target.failed is not None or (log is None and self._a_dir_is_offline()):
            # The log may be in the dir that is offline. Then the move goes on once that dir is back.
            return
        if log is None or _lies_in(log, target) or partition in self._under_way:
            await asyncio.to_thread(self._log_dirs.discard, folder, partition)
            return
        try:
            await self._begin(log, target, folder)
        except OSError as error:
            logger.error("the move of %s to %s cannot go on: %s", partition, target.path, error)

    async def stop(self) -> None:
        """Ends at the next piece whatever is being copied; the folders stay for the next start."""
        self._stopped.set()
        for partition in self._under_way:
            self._stop(partition)
        await asyncio.gather(*(each.task for each in self._under_way.values()), return_exceptions=True)
        self._threads.shutdown()

    def is_under_way(self, log: Log) -> bool:
        """Whether a log is on its way to another dir."""
        found = self._under_way.get(log.topic_partition)
        return found is not None and found.move.log is log

    def all(self) -> list[ReplicaMove]:
        """The moves whose copy has not taken over yet."""
        return [each.move for each in self._under_way.values() if not each.move.has_switched]

    async def assign(self, partition: TopicPartition, path: str) -> None:
        """Lets a partition lie in the log dir at `path`: begins a move, or ends the one that goes elsewhere.

        Returns when that has begun. ApiError when it cannot be. The caller holds `Topics.changing`.
        """
        name = future_folder(partition)
        if name is None:
            raise ApiError(ErrorCode.invalid_topic_exception, "The topic name is too long.")
        target = self._dir_at(path)
        if target.failed is not None:
            raise ApiError(ErrorCode.kafka_storage_error, f"the log dir {path} is offline: {target.failed}")
        if not self._broker.topics.has_partition(*partition):
            self._log_dirs.prefer(partition, target)
        if self._broker.topics.partition(*partition).is_offline:
            raise ApiError(ErrorCode.kafka_storage_error, f"the log dir of {partition} is offline")
        log = self._broker.topics.partition(*partition).log
        under_way = self._under_way.get(partition)
        if under_way is not None:
            if under_way.move.target is target and under_way.move.log is log:
                return
            self._stop(partition)
            await asyncio.wait([under_way.task])
        if _lies_in(log, target):
            return
        if self._a_dir_is_offline():
            # A copy of it may lie in the dir that is offline, and there must not be two.
            raise ApiError(ErrorCode.kafka_storage_error, "partitions are not moved while a log dir is offline")
        try:
            await self._begin(log, target, target.file(name))
        except OSError as error:
            raise ApiError(ErrorCode.kafka_storage_error, f"{partition} cannot be moved to {path}: {error}") from error

    def _dir_at(self, path: str) -> LogDir:
        for log_dir in self._log_dirs.dirs:
            if log_dir.path == path:
                return log_dir
        raise ApiError(ErrorCode.log_dir_not_found, f"{path!r} is none of this broker's log.dirs")

    def _a_dir_is_offline(self) -> bool:
        return len(self._log_dirs.working) < len(self._log_dirs.dirs)

    async def _begin(self, log: Log, target: LogDir, folder: str) -> None:
        move = ReplicaMove(self._log_dirs, log, target, folder, throttle=self._throttle)
        await run_to_end(move.begin)
        logger.info("moving %s to %s", log.path, target.path)
        self._under_way[log.topic_partition] = _UnderWay(move, asyncio.ensure_future(self._run(move)))

    def _stop(self, partition: TopicPartition) -> None:
        """Lets a move end soon; what its thread has begun cannot be cancelled."""
        under_way = self._under_way[partition]
        under_way.move.stopped.set()
        if under_way.is_waiting:
            under_way.task.cancel()

    def _topics_changed(self, deleted: str | None) -> None:
        for partition in self._under_way:
            if partition.topic == deleted:
                self._stop(partition)

    async def _run(self, move: ReplicaMove) -> None:
        log = move.log
        try:
            async with self._turns:
                await self._broker.cleaning.wait_for(log)
                self._under_way[log.topic_partition].is_waiting = False
                await self._take_steps(move)
        except (CopyStoppedError, asyncio.CancelledError):
            # Else the broker stops or the log's dir failed: the next start sees what becomes of the copy.
            if move.stopped.is_set() and not self._stopped.is_set():
                logger.info("%s is not moved to %s after all", log.topic_partition, move.target.path)
                await self._give_up(move)
        except (OSError, CorruptSegmentError) as error:
            logger.error("%s could not be moved to %s: %s", log.topic_partition, move.target.path, error)
            await self._give_up(move)
            if move.has_switched and isinstance(error, OSError):
                self._log_dirs.notice(log, error)
        except Exception:
            logger.exception("the move of %s failed; this is a bug in headwater", log.topic_partition)
            await self._give_up(move)
        else:
            logger.info("moved %s to %s", log.topic_partition, move.target.path)
        finally:
            del self._under_way[log.topic_partition]

    async def _take_steps(self, move: ReplicaMove) -> None:
        try:
            with closing(move.steps()) as steps:
                for step in steps:
                    await asyncio.get_running_loop().run_in_executor(self._threads, step)
        finally:
            move.abandon()

    async def _give_up(self, move: ReplicaMove) -> None:
        if not move.has_switched:
            # Not in the threads that copy: one of them may be at it for long, and somebody may wait for this.
            await asyncio.to_thread(self._log_dirs.discard, move.folder, move.log.topic_partition)


def _lies_in(log: Log, log_dir: LogDir) -> bool:
    return log.path == log_dir.file(str(log.topic_partition))
