"""What every benchmark program shares: two kinds of broker, rounds that alternate between them, and the way a run ends.

Rounds alternate, so that a noisy machine is noisy for both; the claim is the ratio with its spread.
"""

import argparse
import json
import resource
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

import report
from metrics import Metric, Samples
from servers import ApacheKafka, Headwater, Kind, Running, ServerError, Settings
from shapes import ShapeError

REPOSITORY = Path(__file__).resolve().parent.parent

Figures = dict[str, float]
Sides = tuple[Kind, Kind]


class Rounds:
    """One benchmark run: both brokers, the shapes asked for, the samples taken so far."""

    def __init__(self, sides: Sides, shapes: str, metrics: tuple[Metric, ...], work: Path) -> None:
        self.sides = sides
        self.shapes = shapes
        self.work = work
        self.samples = Samples(metrics)
        self.console = Console(width=None if sys.stdout.isatty() else 120)
        self._brokers: list[Running] = []
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            TimeElapsedColumn(),
            console=self.console,
            # Drawing costs the clients and the broker their cores.
            refresh_per_second=2,
            disable=not self.console.is_terminal,
        )
        self._task = self._progress.add_task("", total=self.steps())

    def run(self) -> Samples:
        """Runs all shapes; no broker is left, however it ends."""
        try:
            with self._progress:
                self.measure()
        finally:
            for broker in self._brokers:
                broker.kill()
        return self.samples

    def steps(self) -> int:
        """How many steps the run has."""
        raise NotImplementedError

    def measure(self) -> None:
        """The shapes of this benchmark, in the order that lets nothing disturb what is timed."""
        raise NotImplementedError

    def setting(self) -> report.Setting:
        """How this run was done, for the page."""
        raise NotImplementedError

    def wants(self, shapes: str) -> bool:
        """Whether one of these shapes was asked for."""
        return any(shape in self.shapes for shape in shapes)

    @contextmanager
    def step(self, text: str) -> Iterator[None]:
        """One step of the progress that the person who waits can see."""
        self._progress.update(self._task, description=text)
        if not self.console.is_terminal:
            print(text, flush=True)
        yield
        self._progress.advance(self._task)

    def start(self, side: Kind, data: str) -> Running:
        """Starts a broker on this folder of the run; it is ended with the run at the latest."""
        broker = side.start(self.work / data)
        self._brokers.append(broker)
        return broker

    def pair(self, title: str, number: int, measure: Callable[[int], Figures]) -> None:
        """Measures both sides, the one that begins alternating from round to round, and shows the figures."""
        figures: dict[int, Figures] = {}
        for side in (0, 1) if number % 2 == 0 else (1, 0):
            with self.step(f"round {number + 1}: {title}, {self.sides[side].name}"):
                figures[side] = measure(side)
        self.samples.add(figures[0], figures[1])
        for metric in self.samples.metrics:
            if metric.shape in self.shapes and metric.key in figures[0]:
                ours, peer = figures[0][metric.key], figures[1][metric.key]
                self.console.print(
                    f"  round {number + 1}  ({metric.shape}) {metric.label:<28} {metric.text(ours):>18}  "
                    f"against {metric.text(peer):>18}   [bold]{ours / peer:5.2f}×[/]",
                    highlight=False,
                )


def arguments(description: str, shapes: str) -> argparse.Namespace:
    """What was asked for on the command line; `only` comes as a string of letters."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="less load and fewer rounds: under 3 minutes")
    parser.add_argument("--tiny", action="store_true", help="next to no load: whether it runs (clients and lake only)")
    parser.add_argument("--only", default=",".join(shapes), metavar="a,c", help="the shapes to run (default: all)")
    parser.add_argument("--rounds", type=int, metavar="N", help="rounds of load and of starts")
    parser.add_argument("--out", type=Path, help="folder of the table and the plot")
    parser.add_argument(
        "--kafka-libs",
        type=Path,
        default=REPOSITORY / ".peers" / "kafka-4.1.0" / "libs",
        help="folder of Apache Kafka's jars",
    )
    parser.add_argument("--work", type=Path, default=REPOSITORY / "build", help="where the brokers' data go")
    parser.add_argument(
        "--null",
        action="store_true",
        help="Apache Kafka against itself: shows how far noise alone moves a ratio",
    )
    found = parser.parse_args()
    found.only = "".join(found.only.lower().replace(",", "").split())
    unknown = set(found.only) - set(shapes)
    if unknown or not found.only:
        parser.error(f"--only takes letters of {', '.join(shapes)}, not {found.only!r}")
    if found.rounds is not None and found.rounds < 1:
        parser.error("--rounds must be at least 1")
    found.whole = not found.quick and set(found.only) == set(shapes) and not found.null
    return found


def sides(asked: argparse.Namespace, work: Path, settings: Settings | None = None) -> Sides:
    """Our side and the peer's, with the same settings."""
    libs = asked.kafka_libs.resolve()
    apache = ApacheKafka(libs, work, settings=settings)
    if asked.null:
        return ApacheKafka(libs, work, name="Apache Kafka itself", settings=settings), apache
    return Headwater(settings=settings), apache


def main(asked: argparse.Namespace, page: report.Page, begin: Callable[[Path], Rounds]) -> int:
    """Runs what `begin` makes; exit code 2 when it cannot run. A missed floor is a result like any other."""
    out = asked.out or REPOSITORY / ("docs" if asked.whole else "build") / "benchmarks"
    _, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))
    asked.work.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="bench-", dir=asked.work))
    try:
        run = begin(work)
        samples = run.run()
        summaries = samples.summaries(asked.only)
        setting = run.setting()
        run.console.print(report.terminal_table(summaries, setting))
        report.write(out, page, summaries, setting)
        (REPOSITORY / "build" / f"bench-{page.name}-samples.json").write_text(json.dumps(samples.pairs, indent=1))
        run.console.print(f"written: {out / page.name}.md, {out / page.name}.png")
    except (ServerError, ShapeError) as error:
        print(f"the benchmark cannot go on: {error}", file=sys.stderr)
        return 2
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return 0
