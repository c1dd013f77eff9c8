"""Tells threads that work in the background whether the event loop is busy, so that they can make way for it."""

import threading
import time
from typing import Final

_AT_WORK_S: Final = 20e-6
_LATELY_S: Final = 0.1


class LoopActivity:
    """Made on the loop's thread, asked from any other.

    Goes by the CPU time of the loop's thread, so serving requests costs nothing for it.
    """

    def __init__(self) -> None:
        self._clock = time.pthread_getcpuclockid(threading.get_ident())
        self._used_s = time.clock_gettime(self._clock)
        self._busy_until_s = 0.0

    def is_busy(self) -> bool:
        """Whether the loop has had work within the last moments."""
        used_s, now_s = time.clock_gettime(self._clock), time.monotonic()
        if used_s - self._used_s > _AT_WORK_S:
            self._busy_until_s = now_s + _LATELY_S
        self._used_s = used_s
        return now_s < self._busy_until_s
