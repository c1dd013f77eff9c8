"""What `headwater demo` shows: colours and bars on a terminal, plain lines elsewhere, nothing beside JSON."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.text import Text

from headwater.cli.output import bytes_for_people

_NAME_WIDTH: Final = 8
_BAR_WIDTH: Final = 24
_REDRAW_INTERVAL_S: Final = 0.05
_PLAIN_INTERVAL_S: Final = 5.0


class Screen:
    """Prints the demo's steps one below the other."""

    def __init__(self, *, quiet: bool) -> None:
        self.pretty = sys.stdout.isatty()
        self.quiet = quiet
        self._console = Console(quiet=quiet, force_terminal=self.pretty, highlight=False)

    def title(self, text: str) -> None:
        """A heading with air around it."""
        self._print(Text(f"\n{text}\n", style="bold"))

    def step(self, name: str, text: str) -> None:
        """Something that was done, and how it went."""
        line = Text.assemble(("✓ ", "bold green") if self.pretty else "", (name.ljust(_NAME_WIDTH), "bold"), text)
        self._print(line)

    def more(self, text: str) -> None:
        """Goes on with the step above."""
        self._print(Text(" " * (_NAME_WIDTH + 2 * self.pretty) + text))

    def command(self, line: str) -> None:
        """A command as it would be typed; its output is to follow."""
        self._print(Text.assemble("\n", ("$ ", "dim"), (line, "cyan")))

    def line(self, *parts: str | tuple[str, str]) -> None:
        """A line of texts, some with a style."""
        self._print(Text.assemble(*parts))

    def pairs(self, rows: Sequence[tuple[str, str]]) -> None:
        """Two columns: what is typed, and what it does."""
        width = max(len(left) for left, _ in rows)
        for left, right in rows:
            self.line("  ", (left.ljust(width if right else 0), "cyan"), (f"  {right}".rstrip(), "dim"))

    @contextmanager
    def bar(self, name: str, total: int, bytes_each: int) -> Iterator[Callable[[int], None]]:
        """A progress bar with rates; call what you get with the number that is done. It stays when all is."""
        if self.quiet:
            yield lambda _done: None
        elif self.pretty:
            with _rich_bar(self._console, name, total, bytes_each) as update:
                yield update
        else:
            yield _PlainProgress(name, total)

    def _print(self, text: Text) -> None:
        self._console.print(text, soft_wrap=True)


@contextmanager
def _rich_bar(console: Console, name: str, total: int, bytes_each: int) -> Iterator[Callable[[int], None]]:
    columns = (
        TextColumn("[bold green]{task.fields[mark]}[/] [bold]{task.description}[/]"),
        BarColumn(_BAR_WIDTH, complete_style="cyan", finished_style="cyan"),
        TextColumn("{task.fields[figures]}"),
    )
    with Progress(*columns, console=console, refresh_per_second=20) as progress:
        task = progress.add_task(name.ljust(_NAME_WIDTH - 1), total=total, mark=" ", figures="")
        width = len(f"{total:,}")
        started_s = shown_s = time.perf_counter()

        def update(done: int) -> None:
            nonlocal shown_s
            now_s = time.perf_counter()
            if now_s - shown_s < _REDRAW_INTERVAL_S and done < total:
                return
            shown_s = now_s
            rate = done / max(now_s - started_s, 1e-9)
            progress.update(
                task,
                completed=done,
                mark="✓" if done >= total else " ",
                figures=f"{done:>{width},}  {rate:>9,.0f}/s  {bytes_for_people(rate * bytes_each):>9}/s",
            )

        yield update


class _PlainProgress:
    """A line now and then, for whoever waits for a long run without a terminal."""

    def __init__(self, name: str, total: int) -> None:
        self._name = name
        self._total = total
        self._told_s = time.perf_counter()

    def __call__(self, done: int) -> None:
        now_s = time.perf_counter()
        if now_s - self._told_s >= _PLAIN_INTERVAL_S and done < self._total:
            self._told_s = now_s
            print(f"{self._name.ljust(_NAME_WIDTH)}{done:,} of {self._total:,} …", flush=True)
