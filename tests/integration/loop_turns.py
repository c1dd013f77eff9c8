"""How long the event loop of a broker is held by one turn, in CPU time: a busy machine does not change it."""

import asyncio
import gc
import threading
import time
from types import TracebackType
from typing import Self

from headwater.testing import LocalBroker


class LoopTurns:
    """Measures the turns of a broker's loop while it is entered.

    >>> with LoopTurns(broker) as turns:
    ...     client.ask(request)
    >>> turns.worst_s
    """

    def __init__(self, broker: LocalBroker) -> None:
        assert broker._loop is not None
        self._loop: asyncio.AbstractEventLoop = broker._loop
        self._running = False
        self.worst_s = 0.0

    def __enter__(self) -> Self:
        # As in a broker's own process (`broker/app.py`): this one is full of the test's requests.
        self._thresholds = gc.get_threshold()
        gc.freeze()
        gc.set_threshold(50_000, 20, 100)
        self._running = True
        self._loop.call_soon_threadsafe(self._next, None)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # The turn that sent an answer may go on after it has come.
        ended = threading.Event()
        self._loop.call_soon_threadsafe(self._loop.call_soon, ended.set)
        ended.wait()
        self._running = False
        gc.set_threshold(*self._thresholds)
        gc.unfreeze()

    def _next(self, since_s: float | None) -> None:
        now_s = time.thread_time()
        if since_s is not None:
            self.worst_s = max(self.worst_s, now_s - since_s)
        if self._running:
            self._loop.call_soon(self._next, time.thread_time())
