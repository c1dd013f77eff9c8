"""An event loop that another thread may stop between two of its steps, to do something with what lives on it.

Whoever holds the turn is the only one that does anything: the loop holds it while it works, and lets go of it while
it waits for sockets and timers. uvloop has no place to do that, so this is asyncio's own loop.
"""

import asyncio
import selectors
import threading
from typing import Any


class Turn:
    """Who may do something. A thread takes it by `with turn.lock`, unless the loop wants it: then that goes first."""

    __slots__ = ("lock", "wanted")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.wanted = False
        """Whether the loop has something to do and waits for its turn. Locks are not fair: politeness is asked for."""


class TurnSelector(selectors.EpollSelector):
    """Waits without the turn, returns with it."""

    def __init__(self, turn: Turn) -> None:
        super().__init__()
        self._turn = turn

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, Any]]:
        """What is ready; by the time it is told, the turn is the loop's again."""
        self._turn.lock.release()
        try:
            return super().select(timeout)
        finally:
            self._turn.wanted = True
            self._turn.lock.acquire()
            self._turn.wanted = False


def loop_with_turns(turn: Turn) -> asyncio.AbstractEventLoop:
    """A loop to be run by a thread that holds the turn."""
    return asyncio.SelectorEventLoop(TurnSelector(turn))
