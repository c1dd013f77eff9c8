"""Ctrl-C, SIGTERM and a closed terminal for `headwater demo`: all end it the same way, none at a bad moment."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class InterruptedDemoError(Exception):
    """A signal asks the demo to end."""


class Interrupts:
    """Notes signals, which count when the demo asks: whatever it makes is known before anything ends it."""

    def __init__(self) -> None:
        self._came = False

    def check(self) -> None:
        """Raises InterruptedDemoError if a signal has come. Call it a few times a second."""
        if self._came:
            raise InterruptedDemoError

    @contextmanager
    def caught(self) -> Iterator[None]:
        """Signals are ours in here, except those that whoever started us wants ignored, as nohup does."""
        wanted = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
        before = {number: signal.signal(number, self._note) for number in wanted}
        try:
            yield
            self.check()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        self._came = True
