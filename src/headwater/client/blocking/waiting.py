"""One coroutine on an event loop and the thread that waits for it, which can be asked to do something meanwhile."""

import asyncio
import math
import time
from collections.abc import Callable, Coroutine
from queue import Empty, SimpleQueue
from typing import Any, Final, Generic, TypeVar

from headwater.client.errors import TimedOutError

T = TypeVar("T")
R = TypeVar("R")

# A signal that comes right before Python begins to wait for a lock does not end the wait; it is seen in the next one.
_LONGEST_WAIT_S: Final = 0.1


class Call(Generic[T]):
    """A coroutine that a thread waits for. A wait in the main thread ends with Ctrl-C."""

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self._coroutine = coroutine
        self._task: asyncio.Task[T] | None = None
        self._cancelled = False
        # What the waiting thread is asked to do; None when the coroutine has ended.
        self._inbox: SimpleQueue[Callable[[], None] | None] = SimpleQueue()

    @property
    def under_way(self) -> bool:
        """On the loop: whether the coroutine has begun and not ended."""
        return self._task is not None and not self._task.done()

    def begin(self) -> None:
        """On the loop: starts the coroutine."""
        if not self._cancelled:
            self._task = asyncio.get_running_loop().create_task(self._coroutine)
            self._task.add_done_callback(lambda _: self.end())

    def cancel(self) -> None:
        """On the loop: ends the coroutine, begun or not."""
        if self._cancelled:
            return
        self._cancelled = True
        if self._task is not None:
            self._task.cancel()
        else:
            self._coroutine.close()
            self.end()

    def end(self) -> None:
        """Lets the waiting thread go on; harmless when it has."""
        self._inbox.put(None)

    def wait(self, timeout_s: float | None) -> None:
        """In the waiting thread: does what it is asked to, until the coroutine has ended."""
        left_s = math.inf if timeout_s is None else timeout_s
        gives_up_at_s = time.monotonic() + left_s
        while True:
            try:
                work = self._inbox.get(timeout=min(max(left_s, 0.0), _LONGEST_WAIT_S))
                if work is None:
                    return
                work()
            except Empty:
                if left_s <= 0:
                    raise TimedOutError(f"not done within {timeout_s:g} s") from None
            left_s = gives_up_at_s - time.monotonic()

    def result(self) -> T:
        """What the coroutine returned, or raises what it raised; `CancelledError` when it was ended."""
        if self._task is None or not self._task.done():
            raise asyncio.CancelledError
        return self._task.result()

    async def in_its_thread(self, function: Callable[[], R]) -> R:
        """On the loop: has the waiting thread call `function`."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[R] = loop.create_future()

        def work() -> None:
            try:
                result = function()
            except Exception as error:
                loop.call_soon_threadsafe(_fail, answer, error)
            except BaseException:
                # Ctrl-C and the like belong to the thread that they came to; the coroutine is cancelled by it.
                loop.call_soon_threadsafe(answer.cancel)
                raise
            else:
                loop.call_soon_threadsafe(_succeed, answer, result)

        self._inbox.put(work)
        return await answer


def _succeed(answer: "asyncio.Future[R]", result: R) -> None:
    if not answer.done():
        answer.set_result(result)


def _fail(answer: "asyncio.Future[R]", error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)
