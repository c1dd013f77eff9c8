"""Where requests wait for something to happen to a partition.

A waiting request costs one object, one timer and a place in the sets of its partitions; nothing is polled. Whoever
changes a partition says so with `touched`; the requests that watch it are tried again in the same turn of the loop,
after the replies that are being made.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence

from headwater.broker.services.partition import Partition

logger = logging.getLogger(__name__)

Attempt = Callable[[bool], bool]
"""Tries to complete a request; the argument says that time is up, when it must succeed."""


class Waiter:
    """One waiting request."""

    __slots__ = ("attempt", "partitions", "timer")

    def __init__(self, partitions: Sequence[Partition], attempt: Attempt) -> None:
        self.partitions = partitions
        self.attempt = attempt
        self.timer: asyncio.TimerHandle | None = None


class Purgatory:
    """All waiting requests of one broker."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._touched: set[Partition] = set()
        self._waiting = 0

    def __len__(self) -> int:
        return self._waiting

    def wait(self, partitions: Sequence[Partition], timeout_s: float, attempt: Attempt) -> Waiter:
        """Calls `attempt(False)` after each change of one of `partitions` until it returns True, and `attempt(True)`
        when `timeout_s` is over."""
        waiter = Waiter(partitions, attempt)
        waiter.timer = self._loop.call_later(timeout_s, self._expired, waiter)
        for partition in partitions:
            partition.waiters.add(waiter)
        self._waiting += 1
        return waiter

    def cancel(self, waiter: Waiter) -> None:
        """Forgets a waiter, if it still waits."""
        if waiter.timer is None:
            return
        waiter.timer.cancel()
        waiter.timer = None
        for partition in waiter.partitions:
            partition.waiters.discard(waiter)
        self._waiting -= 1

    def touched(self, partition: Partition) -> None:
        """`partition` has changed: more records, another end, or it is gone."""
        if partition.waiters:
            if not self._touched:
                self._loop.call_soon(self._try_again)
            self._touched.add(partition)

    def _try_again(self) -> None:
        touched, self._touched = self._touched, set()
        for partition in touched:
            for waiter in list(partition.waiters):
                if waiter.timer is not None and self._attempt(waiter, False):
                    self.cancel(waiter)

    def _expired(self, waiter: Waiter) -> None:
        self.cancel(waiter)
        self._attempt(waiter, True)

    def _attempt(self, waiter: Waiter, time_is_up: bool) -> bool:
        """One request's failure is its own: it ends, and the others are tried all the same."""
        try:
            return waiter.attempt(time_is_up)
        except Exception:
            logger.exception("a waiting request failed; this is a bug in headwater or a broken disk")
            return True
