"""When the picture of the cluster is asked for anew: by age, and when somebody needs it; one request at a time.

A task that starts with the first need and ends with the client. Attempts that fail are repeated with back-off for as
long as the need lasts; whoever waits hears of each failure and may wait again.
"""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Collection, Iterable
from random import Random

from headwater.client.back_off import BackOff
from headwater.client.errors import ClientError, ClosedError
from headwater.client.settings import ConnectionSettings

logger = logging.getLogger(__name__)

Ask = Callable[[Collection[str] | None], Awaitable[None]]
"""Asks the cluster about these topics, None: all, and applies the answer."""


class MetadataRefresh:
    """See the module's docstring. All methods run on the event loop's thread."""

    def __init__(self, ask: Ask, settings: ConnectionSettings, chance: Random) -> None:
        self._ask = ask
        self._chance = chance
        self._back_off = BackOff(settings.retry_backoff_ms, settings.retry_backoff_max_ms)
        self._max_age_s = settings.metadata_max_age_ms / 1000
        self._watched: set[str] = set()
        self._watches_all = False
        self._once: set[str] = set()
        self._asked_before: set[str] = set()
        self._is_needed = True
        self._failures = 0
        self._not_before_s = 0.0
        self._too_old_s = math.inf
        self._waiting: list[asyncio.Future[None]] = []
        self._waiting_for_current: list[asyncio.Future[None]] | None = None
        self._woken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False

    @property
    def active(self) -> bool:
        """Whether anybody has needed a picture yet."""
        return self._task is not None

    def watch(self, topics: Iterable[str] | None) -> None:
        """Keeps topics in every refresh, and asks about new ones at once; None stands for all topics."""
        if topics is None:
            if not self._watches_all:
                self._watches_all = True
                self._not_before_s = 0.0
                self.need(())
            return
        fresh = set(topics) - self._watched
        self._watched |= fresh
        if fresh:
            self.need(fresh)

    def unwatch(self, topics: Iterable[str] | None) -> None:
        """Leaves topics out of the refreshes to come; None ends the watch over all topics."""
        if topics is None:
            self._watches_all = False
            return
        gone = set(topics)
        self._watched -= gone
        self._asked_before -= gone

    def need(self, topics: Collection[str]) -> None:
        """Asks for a new picture soon, with these topics in it; for topics never asked about before at once."""
        self._start()
        if not self._asked_before.issuperset(topics):
            self._not_before_s = 0.0
            self._asked_before.update(topics)
        self._once.update(topics)
        self._is_needed = True
        self._woken.set()

    async def fresh(self) -> None:
        """Returns once the picture is no older than the last need; raises what the attempt failed with."""
        self._start()
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._is_needed:
            self._waiting.append(waiter)
        elif self._waiting_for_current is not None:
            self._waiting_for_current.append(waiter)
        else:
            return
        await waiter

    async def close(self) -> None:
        """Ends the task; whoever waits hears `ClosedError`."""
        self._is_closed = True
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        _settle([*self._waiting, *(self._waiting_for_current or ())], ClosedError("the client was closed"))

    def _start(self) -> None:
        if self._is_closed:
            raise ClosedError("the client is closed")
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="metadata refresh")

    async def _run(self) -> None:
        while True:
            await self._until_due()
            await self._refresh()

    async def _until_due(self) -> None:
        now_s = asyncio.get_running_loop().time
        while (due_s := min(self._too_old_s, self._not_before_s if self._is_needed else math.inf)) > now_s():
            self._woken.clear()
            try:
                async with asyncio.timeout_at(due_s if due_s < math.inf else None):
                    await self._woken.wait()
            except TimeoutError:
                pass

    async def _refresh(self) -> None:
        now_s = asyncio.get_running_loop().time
        once, self._once = self._once, set()
        waiting, self._waiting = self._waiting, []
        self._waiting_for_current = waiting
        self._is_needed = False
        failure: Exception | None = None
        try:
            await self._ask(None if self._watches_all else sorted(self._watched | once))
        except Exception as error:
            failure = error
            if not isinstance(error, ClientError):
                logger.exception("the answer about the cluster could not be taken in")
            self._failures += 1
            self._is_needed = True
            self._once |= once
        else:
            self._failures = 0
            self._too_old_s = now_s() + self._max_age_s
        self._waiting_for_current = None
        # A picture that is needed again right after it came is not had at once: that would be a storm of requests.
        self._not_before_s = now_s() + self._back_off.delay_ms(max(self._failures, 1), self._chance.random()) / 1000
        if self._once - once:
            self._not_before_s = 0.0
        _settle(waiting, failure)


def _settle(waiting: Iterable["asyncio.Future[None]"], failure: Exception | None) -> None:
    for waiter in waiting:
        if waiter.done():
            continue
        if failure is None:
            waiter.set_result(None)
        else:
            waiter.set_exception(failure)
