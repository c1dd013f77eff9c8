"""Tells threads that work in the background whether clients are being served, so that they can make way for them."""

import time
from collections.abc import Callable
from typing import Final

_WINDOW_S: Final = 0.02


class LoopActivity:
    """Asked from any thread. `count_requests` says how many requests were served so far.

    Requests, not the loop's time on the CPU: the short steps of a cleaning run on the loop too.
    """

    def __init__(self, count_requests: Callable[[], int]) -> None:
        self._count_requests = count_requests
        self._counted = count_requests()
        self._since_s = time.monotonic()
        self._is_busy = False

    def is_busy(self) -> bool:
        """Whether a request came within the last moments."""
        now_s = time.monotonic()
        if now_s - self._since_s >= _WINDOW_S:
            counted = self._count_requests()
            self._is_busy = counted != self._counted
            self._counted, self._since_s = counted, now_s
        return self._is_busy
