"""A bound on bytes a second, shared by several threads. Who spends more than there is waits."""

import threading
import time
from collections.abc import Callable

_LONGEST_WAIT_S = 0.2


class Throttle:
    """`bytes_per_second` is asked anew all the time, so a changed setting takes effect at once."""

    def __init__(self, bytes_per_second: Callable[[], float], stopped: threading.Event) -> None:
        self._bytes_per_second = bytes_per_second
        self._stopped = stopped
        self._lock = threading.Lock()
        self._owed_bytes = 0.0
        self._paid_s = time.monotonic()

    def spend(self, size: int) -> None:
        """Account for bytes that were read or written; returns when they are paid for, or at a stop."""
        with self._lock:
            self._pay()
            self._owed_bytes += size
        while True:
            with self._lock:
                rate = self._pay()
                owed = self._owed_bytes
            if owed <= 0 or self._stopped.wait(min(owed / rate, _LONGEST_WAIT_S)):
                return

    def piece_bytes(self, most_bytes: int) -> int:
        """How much to spend at once, so that nobody is held up for long by it."""
        return int(min(most_bytes, max(self._bytes_per_second() * _LONGEST_WAIT_S, 1)))

    def _pay(self) -> float:
        rate, now_s = max(self._bytes_per_second(), 1.0), time.monotonic()
        self._owed_bytes = max(self._owed_bytes - (now_s - self._paid_s) * rate, 0.0)
        self._paid_s = now_s
        return rate
