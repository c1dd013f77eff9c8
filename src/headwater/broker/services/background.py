"""What a broker does beside answering: checkpoints, flushes, retention, forgetting what is idle, removing files.

Each job runs at its own interval, in a thread where it touches the disk. A job that fails says so in the log and runs
again at its next turn.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from headwater.broker.services.partition import Partition
from headwater.broker.services.retention import enforce_retention
from headwater.log.log import Log
from headwater.protocol.errors import ApiError

if TYPE_CHECKING:
    from headwater.broker.broker import Broker

logger = logging.getLogger(__name__)

_LONGEST_SLEEP_S: Final = 3600.0
_FLUSH_CHECK_MS: Final = 1000
_PURGE_CHECK_MS: Final = 1000
_INDEX_PUBLISH_MS: Final = 1000
_JOURNAL_CHECK_MS: Final = 1000
_NEVER_MS: Final = 2**63 - 1

Job = Callable[[], Awaitable[None]]


class BackgroundJobs:
    """The jobs of one broker, from `start` to `stop`."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._tasks: set[asyncio.Task[None]] = set()
        self._flushing: set[Log] = set()

    def start(self) -> None:
        """Starts every job; the first run is one interval away."""
        config = self._broker.config
        self._every(config.log_flush_offset_checkpoint_interval_ms, self._checkpoint)
        self._every(min(config.log_flush_scheduler_interval_ms, _FLUSH_CHECK_MS), self._flush_overdue)
        self._every(config.producer_id_expiration_check_interval_ms, self._expire_producers)
        self._every(_PURGE_CHECK_MS, self._purge)
        self._every(_INDEX_PUBLISH_MS, self._publish_indexes)
        self._every(_JOURNAL_CHECK_MS, self._compact_journal)
        self._every(config.log_retention_check_interval_ms, self._enforce_retention)
        self._every(config.offsets_retention_check_interval_ms, self._expire_offsets)
        self._every(config.transaction_abort_timed_out_transaction_cleanup_interval_ms, self._abort_timed_out)
        self._every(config.transaction_remove_expired_transaction_cleanup_interval_ms, self._expire_transactional_ids)

    async def stop(self) -> None:
        """Ends the jobs; one that is in a thread is waited for."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def flush_soon(self, log: Log) -> None:
        """Brings a log to the device in the background, once however often it is asked for: a segment was finished."""
        if log in self._flushing:
            return
        self._flushing.add(log)

        async def flush() -> None:
            try:
                await asyncio.to_thread(log.flush)
            except OSError as error:
                self._broker.failures.storage_error(log, "flush", error)
            finally:
                self._flushing.discard(log)

        self._run(flush())

    def remove_files_later(self, partition: Partition) -> None:
        """Segments were dropped: their files go when `file.delete.delay.ms` is over."""
        if partition.is_offline:
            return
        log = partition.log
        files = log.take_deleted_files()
        if not files:
            return

        async def remove() -> None:
            await asyncio.sleep(partition.topic.config.file_delete_delay_ms / 1000)
            if partition.is_offline:
                return
            try:
                await asyncio.to_thread(log.remove_files, files)
            except OSError as error:
                self._broker.failures.storage_error(log, "remove files of", error)

        self._run(remove())

    def _every(self, interval_ms: int, job: Job) -> None:
        async def repeat() -> None:
            while True:
                await asyncio.sleep(min(interval_ms / 1000, _LONGEST_SLEEP_S))
                try:
                    await asyncio.shield(asyncio.ensure_future(job()))
                except Exception:
                    logger.exception("a background job failed; it runs again in %d ms", interval_ms)

        self._run(repeat())

    def _run(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _checkpoint(self) -> None:
        # What cannot be written was said by the dirs themselves.
        with contextlib.suppress(OSError):
            await asyncio.to_thread(self._broker.log_dirs.checkpoint, self._broker.topics.high_watermarks())

    async def _flush_overdue(self) -> None:
        """Flushes the logs whose `flush.ms` is over since their last flush."""
        now_s = time.monotonic()
        for partition in self._broker.topics.partitions():
            flush_ms = partition.topic.config.flush_ms
            if (
                flush_ms == _NEVER_MS
                or partition.is_offline
                or partition.log.recovery_point >= partition.log.log_end_offset
            ):
                continue
            if (now_s - partition.flushed_s) * 1000 >= flush_ms:
                partition.flushed_s = now_s
                with contextlib.suppress(ApiError):
                    await self._broker.failures.flush(partition)

    async def _expire_producers(self) -> None:
        now_ms = int(time.time() * 1000)
        for partition in self._broker.topics.partitions():
            partition.log.remove_expired_producers(now_ms)

    async def _expire_offsets(self) -> None:
        await self._broker.groups.each_in_turns(lambda shard, now_ms: shard.expire_offsets(now_ms))

    async def _abort_timed_out(self) -> None:
        self._broker.transactions.each(lambda shard, now_ms: shard.abort_timed_out(now_ms))

    async def _expire_transactional_ids(self) -> None:
        self._broker.transactions.each(lambda shard, now_ms: shard.expire_ids(now_ms))

    async def _enforce_retention(self) -> None:
        await enforce_retention(self._broker)

    async def _publish_indexes(self) -> None:
        if self._broker.log_dirs.files.unpublished:
            await asyncio.to_thread(self._broker.log_dirs.publish_indexes)

    async def _compact_journal(self) -> None:
        journal = self._broker.failures.journal
        if journal.is_long:
            await asyncio.to_thread(journal.compact, self._broker.log_dirs)

    async def _purge(self) -> None:
        await asyncio.to_thread(self._broker.log_dirs.purge_deleted, int(time.time() * 1000))
