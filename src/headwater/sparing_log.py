"""A log that strangers cannot fill: of each kind of line it has a few a minute, and then how many more there were.

Lines are of one kind when the same place in the code wrote them. Nobody's first lines are lost, and what happened is
still known from the sum; only the details of each of a thousand bad connections are not.
"""

import logging
import threading
import time
from typing import Final, TextIO

LINES: Final = 100
"""Of one kind, in each window: a line for each partition of a disk that failed is still told in full, mostly."""
WINDOW_S: Final = 60.0

_Place = tuple[str, int]
_LeftOut = tuple[int, str, int, str]
"""How many lines, and of the last: logger, level, message. Not the record, whose traceback would hold a request."""


class SparingHandler(logging.StreamHandler[TextIO]):
    """Writes to a stream, stderr unless another is given. May be used in any thread, as all handlers."""

    def __init__(self, stream: TextIO | None = None, *, window_s: float = WINDOW_S) -> None:
        super().__init__(stream)
        self._window_s = window_s
        self._until_s = 0.0
        self._written: dict[_Place, int] = {}
        self._left_out: dict[_Place, _LeftOut] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Writes the line unless there were many like it. The caller has the lock."""
        if time.monotonic() >= self._until_s:
            self._begin_window()
        place = record.pathname, record.lineno
        written = self._written.get(place, 0)
        if written < LINES:
            self._written[place] = written + 1
            super().emit(record)
            return
        if not self._left_out:
            # The sum is told without another line to follow.
            timer = threading.Timer(max(self._until_s - time.monotonic(), 0.0), self.flush_sums)
            timer.daemon = True
            timer.start()
        count = self._left_out[place][0] if place in self._left_out else 0
        self._left_out[place] = count + 1, record.name, record.levelno, record.getMessage()

    def flush_sums(self) -> None:
        """Writes how many lines were left out so far."""
        self.acquire()
        try:
            self._sum_up()
        finally:
            self.release()

    def close(self) -> None:
        """Writes what is left to say."""
        self.flush_sums()
        super().close()

    def _begin_window(self) -> None:
        self._sum_up()
        self._written.clear()
        self._until_s = time.monotonic() + self._window_s

    def _sum_up(self) -> None:
        left_out, self._left_out = self._left_out, {}
        for (pathname, lineno), (count, name, level, last) in left_out.items():
            words = "%d more lines like the ones before were left out, the last: %s"
            super().emit(logging.LogRecord(name, level, pathname, lineno, words, (count, last), None))
