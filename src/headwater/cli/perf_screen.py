"""The live picture of a performance test: a bar, and how rate and latency went, on stderr where that is a terminal."""

import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from headwater.cli.output import bytes_for_people
from headwater.cli.perf_figures import milliseconds, percentile

_TICK_S: Final = 0.25
_TICKS_SHOWN: Final = 48
_STEPS: Final = "▁▂▃▄▅▆▇█"


class Picture:
    """Shows nothing. What scripts get."""

    def update(self, records: int, size_bytes: int, taken_ms: Sequence[float] = ()) -> None:
        """Tells how far the test has come; `taken_ms` are all latencies so far, oldest first."""


class _Live(Picture):
    def __init__(self, live: Any, progress: Any, task: Any, total: int | None) -> None:
        self._live = live
        self._progress = progress
        self._task = task
        self._total = total
        self._rates: deque[float] = deque(maxlen=_TICKS_SHOWN)
        self._slowest: deque[float] = deque(maxlen=_TICKS_SHOWN)
        self._at_s = time.monotonic()
        self._records = self._bytes = self._samples = 0

    def update(self, records: int, size_bytes: int, taken_ms: Sequence[float] = ()) -> None:
        now_s = time.monotonic()
        passed_s = now_s - self._at_s
        if passed_s < _TICK_S:
            return
        self._rates.append((records - self._records) / passed_s)
        bytes_per_s = (size_bytes - self._bytes) / passed_s
        seen = len(taken_ms)
        fresh = sorted(taken_ms[self._samples : seen])
        if fresh:
            self._slowest.append(percentile(fresh, 0.99))
        self._at_s, self._records, self._bytes, self._samples = now_s, records, size_bytes, seen
        self._progress.update(self._task, completed=records, figures=f"{records:,}")
        self._draw(bytes_per_s)

    def _draw(self, bytes_per_s: float) -> None:
        from rich.console import Group
        from rich.text import Text

        rate = f" {self._rates[-1]:,.0f} records/s  {bytes_for_people(bytes_per_s)}/s"
        rows: list[Any] = [self._progress, Text.assemble("  rate  ", (sparkline(self._rates), "cyan"), rate)]
        if self._slowest:
            late = f" {milliseconds(self._slowest[-1])}"
            rows.append(Text.assemble("  p99   ", (sparkline(self._slowest), "yellow"), late))
        self._live.update(Group(*rows))


@contextmanager
def live_picture(name: str, total: int | None) -> Iterator[Picture]:
    """A picture over `total` records (None: unknown), or nothing where nobody looks at one."""
    if not sys.stderr.isatty():
        yield Picture()
        return
    from rich.console import Console
    from rich.live import Live
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[figures]}"), TimeElapsedColumn())
    progress = Progress(*columns)
    task = progress.add_task(name, total=total, figures="")
    # Drawing costs the clients that are measured a part of their core.
    with Live(progress, console=Console(stderr=True), refresh_per_second=4, transient=True) as live:
        yield _Live(live, progress, task, total)


def sparkline(values: Sequence[float]) -> str:
    """Heights from zero to the largest.

    >>> sparkline([0, 4, 8])
    '▁▅█'
    """
    largest = max(values, default=0) or 1
    return "".join(_STEPS[min(int(value / largest * len(_STEPS)), len(_STEPS) - 1)] for value in values)
