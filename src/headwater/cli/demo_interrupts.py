"""Ctrl-C, SIGTERM and a closed terminal for `headwater demo`: all end it the same way, none at a bad moment."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """Turns the first signal into KeyboardInterrupt; later ones cannot disturb the cleaning up."""

    def __init__(self) -> None:
        self._held = False
        self._came = False

    @contextmanager
    def caught(self) -> Iterator[None]:
        """Signals are ours in here, except those that whoever started us wants ignored, as nohup does."""
        wanted = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
        before = {number: signal.signal(number, self._handle) for number in wanted}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextmanager
    def held(self) -> Iterator[None]:
        """A signal that comes in here counts at the end: what is made inside is known before anything ends."""
        self._held = True
        try:
            yield
        finally:
            self._held = False
        if self._came:
            raise KeyboardInterrupt

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        if self._came:
            return
        self._came = True
        if not self._held:
            raise KeyboardInterrupt
