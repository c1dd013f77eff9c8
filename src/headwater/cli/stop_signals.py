"""Ctrl-C and SIGTERM for a command that runs on an event loop and writes to whoever reads it, or does not."""

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class StopSignals:
    """Ends the command at once, even while a slow reader of our output holds it up.

    On the event loop the command's task is cancelled: an exception out of nowhere would hit whatever task runs just
    then. Only what is `breakable`, and what runs before there is a loop, ends by a KeyboardInterrupt.
    """

    def __init__(self) -> None:
        self._task: asyncio.Task[object] | None = None
        self._breakable = False

    @contextmanager
    def caught(self) -> Iterator[None]:
        """Takes the signals over, for as long as the process lives."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._stop)
        yield

    def cancel_this_task(self) -> None:
        """From now on it is the running task that is cancelled."""
        self._task = asyncio.current_task()

    @contextmanager
    def breakable(self) -> Iterator[None]:
        """What may block, of the task that is cancelled; it must not await."""
        self._breakable = True
        try:
            yield
        finally:
            self._breakable = False

    def _stop(self, _number: int, _frame: FrameType | None) -> None:
        if self._task is None or self._task.done() or self._breakable:
            raise KeyboardInterrupt
        self._task.get_loop().call_soon_threadsafe(self._task.cancel)
