"""Progress bars with rates on stderr, where stderr is a terminal and the input is none."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from headwater.cli.line_input import total_bytes

_INTERVAL_S: Final = 0.1


class Progress:
    """Shows nothing. What scripts get, and whoever types the records."""

    def update(self, bytes_read: int, acknowledged: int) -> None:
        """Tells how far the work has come."""


class _Bar(Progress):
    def __init__(self, progress: Any, task: Any) -> None:
        self._progress = progress
        self._task = task
        self._started = self._shown = time.monotonic()

    def update(self, bytes_read: int, acknowledged: int) -> None:
        now = time.monotonic()
        if now - self._shown >= _INTERVAL_S:
            self._shown = now
            rate = acknowledged / max(now - self._started, 1e-6)
            self._progress.update(self._task, completed=bytes_read, records=f"{acknowledged:,} records  {rate:,.0f}/s")


@contextmanager
def progress_for(paths: Sequence[str]) -> Iterator[Progress]:
    """A progress bar over the files at `paths`, or nothing where nobody looks at one."""
    if not sys.stderr.isatty() or ("-" in paths and sys.stdin.isatty()):
        if sys.stderr.isatty():
            print("Type records, one a line. Ctrl-D ends.", file=sys.stderr)
        yield Progress()
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TransferSpeedColumn
    from rich.progress import Progress as RichProgress

    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TextColumn("{task.fields[records]}"))
    with RichProgress(*columns, console=Console(stderr=True), transient=True) as progress:
        yield _Bar(progress, progress.add_task("produce", total=total_bytes(paths), records=""))


@contextmanager
def byte_progress(total_bytes: int) -> Iterator[Callable[[int], None]]:
    """A bar over so many bytes, where somebody looks at it; call what you get with how many are done."""
    if not sys.stderr.isatty():
        yield lambda done_bytes: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=total_bytes)
        yield lambda done_bytes: progress.update(task, completed=done_bytes)
