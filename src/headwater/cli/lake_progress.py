"""What a person sees while the lake works: the step it is at, since when, and how far Spark has come with it."""

import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

_AMOUNT: Final = re.compile(r"([\d,]+) (offsets|rows)")


class LakeProgress:
    """Shows nothing. What scripts get."""

    def tell(self, words: str) -> None:
        """Says which step begins."""

    def watch(self, done: int, total: int) -> None:
        """Says how many of Spark's tasks are done."""


class _Line(LakeProgress):
    """A line with a bar; where the step says how many records there are, with how many of them are through."""

    def __init__(self, progress: Any, task: Any) -> None:
        self._progress = progress
        self._task = task
        self._records = 0
        self._since_s = time.monotonic()

    def tell(self, words: str) -> None:
        amount = _AMOUNT.search(words)
        self._records = int(amount[1].replace(",", "")) if amount else 0
        self._since_s = time.monotonic()
        self._progress.reset(self._task, total=None, description=words, figures="")

    def watch(self, done: int, total: int) -> None:
        figures = f"{done:,} of {total:,} tasks"
        if self._records:
            through = self._records * done // max(total, 1)
            figures += f"  ~{through:,} records  {through / max(time.monotonic() - self._since_s, 1e-6):,.0f}/s"
        self._progress.update(self._task, total=total, completed=done, figures=figures)


@contextmanager
def lake_progress() -> Iterator[LakeProgress]:
    """A line on stderr, where that is a terminal."""
    if not sys.stderr.isatty():
        yield LakeProgress()
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(20),
        TextColumn("{task.fields[figures]}"),
        TimeElapsedColumn(),
    )
    # What is printed meanwhile goes above the line, but not where it is to be read by a program.
    redirect = sys.stdout.isatty()
    with Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=redirect) as progress:
        yield _Line(progress, progress.add_task("", total=None, figures=""))
