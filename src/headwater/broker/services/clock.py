"""The time as coordinators see it: begins at the wall clock's and then only goes forward, at an even pace.

Sessions must not end because someone set the clock. Time that the machine slept counts, where the system can tell.
"""

import time
from typing import Final

_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_BEGAN_NS: Final = time.time_ns() - time.clock_gettime_ns(_CLOCK)


def now_ms() -> int:
    """Milliseconds since 1970."""
    return (_BEGAN_NS + time.clock_gettime_ns(_CLOCK)) // 1_000_000
