"""The log cleaner: picks the dirtiest compacted log, has it cleaned in a thread, and so on.

The work itself is `headwater.log.cleaning`'s; it runs in up to `log.cleaner.threads` threads, and its short steps on
the event loop. Settings are read anew for every log and take effect with the next. A log that cannot be cleaned is left
alone until the next start, and said so once.
"""

import asyncio
import contextlib
import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from headwater.broker.services.loop_activity import LoopActivity
from headwater.broker.services.partition import Partition
from headwater.log.cleaning.cleanable import Cleanable, find_cleanable
from headwater.log.cleaning.cleaner import CleanerLimits, Cleaning
from headwater.log.log import Log
from headwater.log.segment_swap import CleaningAbortedError
from headwater.log.throttle import Throttle

if TYPE_CHECKING:
    from headwater.broker.broker import Broker

logger = logging.getLogger(__name__)

_MOST_THREADS: Final = 256
_LONGEST_WAIT_S: Final = 1.0
_LOOK_AT_ONCE: Final = 100
_READ_COMMITTED: Final = 1


class LogCleaning:
    """The cleaner of one broker, from `start` to `stop`."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._stopped = threading.Event()
        self._throttle = Throttle(lambda: broker.config.log_cleaner_io_max_bytes_per_second, self._stopped)
        self._threads = ThreadPoolExecutor(_MOST_THREADS, "log-cleaner")
        self._under_way: dict[Log, asyncio.Task[None]] = {}
        self._uncleanable: set[Log] = set()
        self._resting_until_s: dict[Log, float] = {}
        self._one_is_done = asyncio.Event()
        self._loop_activity = LoopActivity(lambda: broker.dispatcher.requests)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begins to look for logs to clean, unless `log.cleaner.enable` says no."""
        if self._broker.config.log_cleaner_enable:
            self._task = asyncio.ensure_future(self._run())

    async def stop(self) -> None:
        """Ends at the next chunk whatever is being cleaned, and returns when nothing of it is left."""
        self._stopped.set()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, *self._under_way.values(), return_exceptions=True)
        self._threads.shutdown()

    def is_under_way(self, log: Log) -> bool:
        """Whether a log is being cleaned."""
        return log in self._under_way

    async def wait_for(self, log: Log) -> None:
        """Returns when a log is not being cleaned any more; whoever asks sees to it that it does not begin again."""
        if log in self._under_way:
            await asyncio.wait([self._under_way[log]])

    async def _run(self) -> None:
        while True:
            self._one_is_done.clear()
            try:
                await self._begin_all()
            except Exception:
                logger.exception("the log cleaner failed; this is a bug in headwater")
            await self._wait()

    async def _begin_all(self) -> None:
        """Begins with the dirtiest logs, as many as there may be threads."""
        while len(self._under_way) < self._broker.config.log_cleaner_threads:
            found = await self._dirtiest()
            if found is None:
                return
            partition, cleanable = found
            if partition.is_offline or self._broker.moves.is_under_way(partition.log):
                continue
            self._under_way[partition.log] = asyncio.ensure_future(self._clean(partition, cleanable))

    async def _wait(self) -> None:
        """Until a cleaning is done, or for `log.cleaner.backoff.ms`, which may change meanwhile."""
        began_s = time.monotonic()
        while (left_s := began_s + self._broker.config.log_cleaner_backoff_ms / 1000 - time.monotonic()) > 0:
            with contextlib.suppress(TimeoutError):
                # Not `wait_for`: it forgets that it was cancelled when what it waits for comes at the same moment.
                async with asyncio.timeout(min(left_s, _LONGEST_WAIT_S)):
                    await self._one_is_done.wait()
                    return

    async def _dirtiest(self) -> tuple[Partition, Cleanable] | None:
        best: tuple[Partition, Cleanable] | None = None
        now_s, now_ms = time.monotonic(), int(time.time() * 1000)
        partitions = self._broker.topics.partitions()
        self._uncleanable &= {partition.log for partition in partitions}
        self._resting_until_s = {log: until_s for log, until_s in self._resting_until_s.items() if until_s > now_s}
        for count, partition in enumerate(partitions, 1):
            if count % _LOOK_AT_ONCE == 0:
                await asyncio.sleep(0)
            cleanable = self._cleanable(partition, now_ms)
            if cleanable is not None and (best is None or cleanable.dirty_ratio > best[1].dirty_ratio):
                best = (partition, cleanable)
        return best

    def _cleanable(self, partition: Partition, now_ms: int) -> Cleanable | None:
        log = partition.log
        if partition.is_offline or not log.config.compacts or log.is_closed:
            return None
        if log in self._under_way or log in self._uncleanable or log in self._resting_until_s:
            return None
        if self._broker.moves.is_under_way(log):
            return None
        try:
            return find_cleanable(log, stable_offset=partition.readable_up_to(_READ_COMMITTED), now_ms=now_ms)
        except OSError as error:
            self._broker.failures.storage_error(log, "read", error)
            self._rest(log)
            return None
        except Exception as error:
            self._give_up(log, error)
            return None

    async def _clean(self, partition: Partition, cleanable: Cleanable) -> None:
        log, began_s = partition.log, time.monotonic()
        cleaning = Cleaning(log, cleanable, self._limits(), now_ms=int(time.time() * 1000))
        try:
            await self._take_steps(cleaning, partition)
        except CleaningAbortedError as aborted:
            logger.info("%s", aborted)
            self._rest(log)
        except OSError as error:
            if not log.is_closed:
                logger.error("the cleaning of %s failed, it is tried again: %s", log.path, error)
            # A file that is not there was dropped meanwhile.
            if not isinstance(error, FileNotFoundError):
                self._broker.failures.storage_error(log, "clean", error)
            self._rest(log)
        except Exception as error:
            self._give_up(log, error)
        else:
            logger.info(
                "cleaned %s up to %d in %.1f s: %.1f MB read, %.1f MB written",
                log.topic_partition,
                log.cleaned_until,
                time.monotonic() - began_s,
                cleaning.bytes_read / 1e6,
                cleaning.bytes_written / 1e6,
            )
        finally:
            del self._under_way[log]
            self._one_is_done.set()

    async def _take_steps(self, cleaning: Cleaning, partition: Partition) -> None:
        run, log = asyncio.get_running_loop().run_in_executor, partition.log
        try:
            for step in cleaning.steps():
                await run(self._threads, step)
            await run(self._threads, self._broker.log_dirs.checkpoint_cleaned, log.topic_partition)
        finally:
            await run(self._threads, cleaning.abandon)
            self._broker.jobs.remove_files_later(partition)

    def _limits(self) -> CleanerLimits:
        config = self._broker.config
        threads = max(config.log_cleaner_threads, 1)
        return CleanerLimits(
            map_bytes=config.log_cleaner_dedupe_buffer_size // threads,
            map_load=config.log_cleaner_io_buffer_load_factor,
            chunk_bytes=config.log_cleaner_io_buffer_size // threads // 2,
            throttle=self._throttle,
            stopped=self._stopped,
            is_loop_busy=self._loop_activity.is_busy,
        )

    def _rest(self, log: Log) -> None:
        self._resting_until_s[log] = time.monotonic() + self._broker.config.log_cleaner_backoff_ms / 1000

    def _give_up(self, log: Log, error: Exception) -> None:
        """What one bad segment costs: its partition is cleaned no more; every other is."""
        if log.is_closed:
            return
        self._uncleanable.add(log)
        logger.error(
            "%s cannot be cleaned and grows from now on: %s. The other partitions are cleaned as before. It is tried"
            " again after a restart of the broker",
            log.topic_partition,
            error,
            exc_info=error,
        )
