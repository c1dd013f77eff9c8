"""How long to wait before the next attempt. No clock and no chance of its own: both are passed in."""

from dataclasses import dataclass
from typing import Final

JITTER: Final = 0.2
"""Waits are spread by a fifth to both sides, so that clients that failed together do not come back together."""
_LARGEST_EXPONENT: Final = 32


@dataclass(frozen=True, slots=True)
class BackOff:
    """Waits that double with each failure in a row, from the first to the longest, with jitter.

    >>> [BackOff(50, 1000).delay_ms(failures, 0.5) for failures in (1, 2, 3, 10)]
    [50.0, 100.0, 200.0, 1000.0]
    """

    first_ms: float
    longest_ms: float

    def delay_ms(self, failures: int, chance: float) -> float:
        """The wait after `failures` in a row; `chance` in [0, 1) places it within the jitter."""
        if failures <= 0:
            return 0.0
        doubled_ms = self.first_ms * 2.0 ** min(failures - 1, _LARGEST_EXPONENT)
        plain_ms = min(doubled_ms, max(self.first_ms, self.longest_ms))
        return float(plain_ms * (1 - JITTER + 2 * JITTER * chance))


class ReconnectSchedule:
    """When one broker may be connected to again.

    A connection that works makes it forget the failures; one that is lost counts as a failure like one not made.
    """

    __slots__ = ("_back_off", "_not_before_ms", "failures")

    def __init__(self, back_off: BackOff) -> None:
        self._back_off = back_off
        self._not_before_ms = 0.0
        self.failures = 0

    def failed(self, now_ms: float, chance: float) -> None:
        """An attempt failed, or a connection was lost."""
        self.failures += 1
        self._not_before_ms = now_ms + self._back_off.delay_ms(self.failures, chance)

    def succeeded(self) -> None:
        """A connection is open and answers."""
        self.failures = 0
        self._not_before_ms = 0.0

    def wait_ms(self, now_ms: float) -> float:
        """How long to wait before the next attempt; 0 when it may be made at once."""
        return max(0.0, self._not_before_ms - now_ms)
