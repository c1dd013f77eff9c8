"""Long work on the event loop: it is done in slices, one slice of one request in each turn of the loop.

Work is a generator that yields where others may be served; what it yields, unless it is None, is awaited for it. Its
first slice runs at once, as most work is done in it; the rest waits for its turns. All requests together get one slice
a turn, however many there are, and only a few long ones are worked on at a time: the others wait with the bytes of
their frame, not with what those become.

State may change between two slices. What must not be torn apart (a decision, its records and their replay) stays
between two yields.
"""

import asyncio
import functools
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator
from time import perf_counter
from typing import Any, Final, TypeVar

T = TypeVar("T")
Work = Generator[Awaitable[Any] | None, Any, T]

_GoOn = Callable[[], Awaitable[Any] | None]

SLICE_S: Final = 0.004
"""How long one turn of the loop may work on what is long."""
_AT_A_TIME: Final = 2


class Turns:
    """Shares one event loop among long work."""

    def __init__(self) -> None:
        self.few: Final = asyncio.Semaphore(_AT_A_TIME)
        """Held by whoever works on something long, as what it has in memory may be large."""
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_dealing = False
        self._spent_s = 0.0

    def begin(self, work: Work[T], *, is_large: bool = True) -> T | Coroutine[Any, Any, T]:
        """What `work` comes to when the slice that is left of this turn is enough for it, else the rest of it.

        The rest waits for its place among the few that are worked on, unless it is not `is_large` in memory.
        """
        started_s = perf_counter()
        until_s = started_s + SLICE_S - self._spent_s
        try:
            while True:
                awaited = next(work)
                if awaited is not None:
                    # A task, as the rest may be dropped before it begins, and what it awaits would be forgotten.
                    awaited = asyncio.ensure_future(awaited)
                if awaited is not None or perf_counter() >= until_s:
                    return self._rest(work, awaited) if is_large else self._go_on(work, awaited)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        finally:
            if not self._spent_s:
                asyncio.get_running_loop().call_soon(self._turn_ends)
            self._spent_s += perf_counter() - started_s

    def _turn_ends(self) -> None:
        self._spent_s = 0.0

    async def _rest(self, work: Work[T], awaited: Awaitable[Any] | None) -> T:
        async with self.few:
            return await self._go_on(work, awaited)

    async def _go_on(self, work: Work[T], awaited: Awaitable[Any] | None) -> T:
        return await self.finish(work, go_on=None if awaited is None else await _outcome(awaited, work))

    async def finish(self, work: Work[T], *, go_on: _GoOn | None = None) -> T:
        """What `work` comes to, slice by slice."""
        one_more = functools.partial(next, work)
        go_on = go_on or one_more
        while True:
            await self.next()
            until_s = perf_counter() + SLICE_S
            try:
                while perf_counter() < until_s:
                    awaited = go_on()
                    go_on = one_more
                    if awaited is not None:
                        go_on = await _outcome(awaited, work)
                        break
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]

    async def next(self) -> None:
        """Waits for a turn of the loop in which nobody else has a slice."""
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        if not self._is_dealing:
            self._is_dealing = True
            asyncio.get_running_loop().call_soon(self._deal)
        await turn

    def _deal(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                break
        self._is_dealing = bool(self._waiting)
        if self._is_dealing:
            asyncio.get_running_loop().call_soon(self._deal)


async def _outcome(awaited: Awaitable[Any], work: Work[Any]) -> _GoOn:
    """How the work goes on after what it awaited: with the result or with the error."""
    try:
        return functools.partial(work.send, await awaited)
    except Exception as error:
        return functools.partial(work.throw, error)


class Pace:
    """The pace of one request whose handler awaits other things as well: it pauses when its slice is over."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._until_s = 0.0

    async def pause(self) -> None:
        """Where others may be served: between two items."""
        if perf_counter() >= self._until_s:
            await self._turns.next()
            self._until_s = perf_counter() + SLICE_S
