"""The thread behind a blocking client: an event loop of its own, on which the asyncio client lives.

Any thread may have a coroutine run there and wait for it. Ctrl-C ends the wait and the coroutine, never the client. A
process that was forked off has no such thread: whoever uses the client there gets an error that says so. Nothing here
knows what a client does.
"""

import asyncio
import contextlib
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

import uvloop

from headwater.client.blocking.turns import Turn, TurnLoop
from headwater.client.blocking.waiting import Call
from headwater.client.errors import ClosedError, ForkedError, TimedOutError, WrongThreadError

T = TypeVar("T")

_CANCELLED_WITHIN_S: Final = 1.0
_ENDED_WITHIN_S: Final = 5.0


class IoThread:
    """One daemon thread with an event loop, for one client, which `name` says the kind of.

    With `in_turns` other threads may call plain functions of the client while they hold the `turn`, without waking the
    thread: nothing on the loop happens meanwhile. See `turns.py`.
    """

    def __init__(self, name: str, *, in_turns: bool = False) -> None:
        self.name = name
        self.turn = Turn()
        self.on_fork: Callable[[], None] | None = None
        """Called in a child process right after a fork."""
        self._loop: asyncio.AbstractEventLoop = TurnLoop(self.turn) if in_turns else uvloop.new_event_loop()
        self._calls: list[Call[Any]] = []
        self._refusal: type[ClosedError] | type[ForkedError] | None = None
        # The thread knows the loop and the calls, not this object: a client that nobody holds any more can go.
        self._thread = threading.Thread(
            target=_serve, args=(self._loop, self._calls, self.turn), name=f"headwater-{name}", daemon=True
        )
        self._thread.start()
        _all.add(self)

    @property
    def closed(self) -> bool:
        """Whether nothing can be run any more: ended, or in a child process."""
        return self._refusal is not None

    @property
    def forked(self) -> bool:
        """Whether this is a child process, which has the client's memory but not its thread."""
        return self._refusal is ForkedError

    @property
    def is_current(self) -> bool:
        """Whether the caller is this thread: a callback of the client, which may not wait for the client."""
        return threading.get_ident() == self._thread.ident

    def run(self, coroutine: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Runs a coroutine on the loop and waits for its result; what it raises is raised here.

        An exception in the waiting thread, as by Ctrl-C, cancels the coroutine and waits until it has ended, so that
        nothing of it goes on behind the caller's back. So does a timeout, which is a `TimedOutError`.
        """
        call = Call(coroutine)
        try:
            self.check_usable()
            self._calls.append(call)
        except BaseException:
            coroutine.close()
            raise
        try:
            self._post(call.begin)
            call.wait(timeout_s)
        except BaseException:
            self._cancel(call)
            raise
        finally:
            self._calls.remove(call)
        try:
            return call.result()
        except asyncio.CancelledError:
            raise ClosedError(f"the {self.name} was closed by another thread while this call waited") from None

    def check_usable(self) -> None:
        """Raises when nothing can be run from here: closed, forked, or called by the client's own thread."""
        if self._refusal is not None:
            raise self.refusal()
        if self.is_current:
            raise WrongThreadError(
                f"a callback of the {self.name} cannot wait for the {self.name}, which waits for the callback; "
                "do it after the callback, or in another thread"
            )

    def refusal(self) -> ClosedError | ForkedError:
        """Why this client cannot be used any more, here."""
        if self.forked:
            return ForkedError(
                f"this {self.name} belongs to the parent process, where its connections are; "
                "make a new one in the child process, after the fork"
            )
        return ClosedError(f"the {self.name} is closed; make a new one")

    async def in_callers_thread(self, function: Callable[[], T]) -> T:
        """Awaited on the loop: calls `function` in the thread that waits in `run`, and gives its result.

        The function may use the client: the thread that waits for the client is its own. Where no thread waits, it is
        called in one that the loop keeps for such things.
        """
        for call in reversed(self._calls):
            if call.under_way:
                found: T = await call.in_its_thread(function)
                return found
        return await asyncio.to_thread(function)

    def interrupt(self) -> None:
        """Ends every call that a thread waits for now: it gets a `ClosedError`."""
        for call in list(self._calls):
            self._post(call.cancel)

    def abandon(self) -> None:
        """Ends the thread without a word to the cluster. Does nothing when it has ended, or in a child process."""
        if self._refusal is not None:
            return
        self._refusal = ClosedError
        self._loop.call_soon_threadsafe(self._loop.stop)
        if not self.is_current:
            self._thread.join(_ENDED_WITHIN_S)

    def _post(self, function: Callable[[], None]) -> None:
        try:
            self._loop.call_soon_threadsafe(function)
        except RuntimeError:  # the loop has been closed since this was checked
            raise self.refusal() from None

    def _cancel(self, call: Call[Any]) -> None:
        if self._refusal is not None:
            return
        self._post(call.cancel)
        with contextlib.suppress(TimedOutError):
            call.wait(_CANCELLED_WITHIN_S)

    def _forked(self) -> None:
        self._refusal = ForkedError
        # Never freed in the child: a loop that believes to be running cannot be taken apart.
        _of_parent.append(self._loop)
        if self.on_fork is not None:
            self.on_fork()


def _serve(loop: asyncio.AbstractEventLoop, calls: list[Call[Any]], turn: Turn) -> None:
    """Runs the loop until it is stopped, then ends what is left on it and whoever waits."""
    asyncio.set_event_loop(loop)
    try:
        with turn.lock:
            loop.run_forever()
            while left := asyncio.all_tasks(loop):
                for task in left:
                    task.cancel()
                loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()
        for call in calls:
            call.end()


_all: "weakref.WeakSet[IoThread]" = weakref.WeakSet()
_of_parent: list[object] = []


def _tell_child() -> None:
    for thread in list(_all):
        thread._forked()


os.register_at_fork(after_in_child=_tell_child)
