"""Ctrl-C and SIGTERM for loads in rounds: the load in work is finished first; a second signal ends it at once."""

import os
import signal
from types import FrameType, TracebackType
from typing import Final, Self

from headwater.cli.waiting import readable

_WORDS: Final = b"headwater: stopping after the load in work; once more stops it at once\n"
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class StopAfterLoad:
    """Takes both signals over for as long as it is entered.

    A load that is ended at once leaves nothing behind: what it wrote counts only with its commit.
    """

    def __enter__(self) -> Self:
        # A pipe, because waiting on it ends at once when the signal's handler writes to it.
        self._stopped, self._stop = os.pipe()
        self._before = [(number, signal.signal(number, self._caught)) for number in _SIGNALS]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        for number, handler in self._before:
            signal.signal(number, handler)
        os.close(self._stopped)
        os.close(self._stop)

    def wait(self, seconds: float) -> bool:
        """Waits for so long, and says whether it is time to stop; with 0 it only says so."""
        return readable(self._stopped, seconds)

    def _caught(self, _number: int, _frame: FrameType | None) -> None:
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        os.write(self._stop, b"!")
        # Not by print: the signal may have come in the middle of one.
        os.write(2, _WORDS)
