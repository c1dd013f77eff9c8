"""An event loop that another thread may stop between two of its steps, to do something with what lives on it.

Whoever holds the turn is the only one that does anything: the loop holds it while it works, and lets go of it while
it waits for sockets and timers, and while it receives. uvloop has no place to do that, so this is asyncio's own loop.
"""

import asyncio
import selectors
import threading
from typing import Any, Final

from headwater.client.receiving import Receivers

_STEPS_IN_A_TURN: Final = 3
"""What one step of the loop leads to is done in the same turn: an answer, say, is taken in and the next one asked for.
More than that would keep others waiting."""


class Turn:
    """Who may do something. A thread takes it by `turn.let_the_loop_go_first()` and `with turn.lock`."""

    __slots__ = ("_gate", "lock")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        # Locks are not fair: a thread that takes the turn again and again would never let the loop have it.
        self._gate = threading.Lock()

    def let_the_loop_go_first(self) -> None:
        """Returns at once, unless the loop waits for its turn: then when it has got it."""
        with self._gate:
            pass

    def take_for_the_loop(self) -> None:
        """Waits for the turn, as the next one to have it."""
        with self._gate:
            self.lock.acquire()


class TurnSelector(selectors.EpollSelector):
    """Waits and receives without the turn, returns with it."""

    def __init__(self, turn: Turn) -> None:
        super().__init__()
        self._turn = turn
        self._steps_kept = 0
        self.receivers: Receivers = {}

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, Any]]:
        """What is ready and was not received here; by the time it is told, the turn is the loop's again."""
        if timeout == 0 and self._steps_kept < _STEPS_IN_A_TURN:
            self._steps_kept += 1
            return []
        self._steps_kept = 0
        self._turn.lock.release()
        try:
            ready = super().select(timeout)
            if self.receivers:
                ready = [(key, events) for key, events in ready if not self._received(key.fd, events)]
            return ready
        finally:
            self._turn.take_for_the_loop()

    def _received(self, fd: int, events: int) -> bool:
        """Whether all that is ready was something to receive, and is received."""
        receive = self.receivers.get(fd)
        return receive is not None and events == selectors.EVENT_READ and receive()


class TurnLoop(asyncio.SelectorEventLoop):
    """A loop to be run by a thread that holds the turn. Connections put into `receivers` how they receive."""

    def __init__(self, turn: Turn) -> None:
        selector = TurnSelector(turn)
        super().__init__(selector)
        self.receivers = selector.receivers
