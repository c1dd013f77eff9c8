"""Runs headwater and Apache Kafka side by side and writes how they compare: `make bench`.

    .venv/bin/python bench/broker.py                  all shapes, under 12 minutes, into docs/benchmarks
    .venv/bin/python bench/broker.py --quick          all shapes, under 3 minutes, into build/benchmarks
    .venv/bin/python bench/broker.py --only c,d       single shapes

Rounds alternate between the two, so that a noisy machine is noisy for both; the claim is the ratio with its
spread.
"""

import argparse
import json
import resource
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

import compiled
import report
from metrics import METRICS, Samples
from servers import ApacheKafka, Headwater, Kind, Running, ServerError
from shapes import FULL, QUICK, Load, ShapeError, Sizes, fill_many, many_after_start

REPOSITORY = Path(__file__).resolve().parent.parent
SHAPES = "abcdefgh"
LOAD_SHAPES = "abcdef"

Figures = dict[str, float]


class Run:
    """One benchmark run: both brokers, the shapes asked for, the samples taken so far."""

    def __init__(self, sides: tuple[Kind, Kind], shapes: str, sizes: Sizes, work: Path, *, quick: bool) -> None:
        self.sides = sides
        self.shapes = shapes
        self.sizes = sizes
        self.work = work
        self.quick = quick
        self.samples = Samples()
        self.console = Console(width=None if sys.stdout.isatty() else 120)
        self._load = Load(compiled.build())
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
        self._task = self._progress.add_task("", total=self._steps())

    def _wants(self, shapes: str) -> bool:
        return any(shape in self.shapes for shape in shapes)

    def _steps(self) -> int:
        steps = 2 * self.sizes.start_rounds * self._wants("g")
        if self._wants(LOAD_SHAPES):
            groups = 2 * self._wants("abef") + self._wants("cf") + self._wants("df")
            steps += 2 * self.sizes.rounds * groups
            steps += 2 * (1 + self.sizes.warm_gigabytes) * self._wants("abef") + 2 * self._wants("cdf")
        return steps + 4 * self.sizes.many_rounds * self._wants("h")

    def run(self) -> Samples:
        """All shapes, in the order that lets nothing disturb what is timed."""
        try:
            with self._progress:
                if self._wants("g"):
                    self._starts()
                if self._wants(LOAD_SHAPES):
                    self._loads()
                if self._wants("h"):
                    self._many_partitions()
        finally:
            for broker in self._brokers:
                broker.kill()
        return self.samples

    @contextmanager
    def _step(self, text: str) -> Iterator[None]:
        self._progress.update(self._task, description=text)
        if not self.console.is_terminal:
            print(text, flush=True)
        yield
        self._progress.advance(self._task)

    def _start(self, side: Kind, data: str) -> Running:
        broker = side.start(self.work / data)
        self._brokers.append(broker)
        return broker

    def _pair(self, title: str, number: int, measure: Callable[[int], Figures]) -> None:
        """Measures both sides, the one that begins alternating from round to round, and shows the figures."""
        figures: dict[int, Figures] = {}
        for side in (0, 1) if number % 2 == 0 else (1, 0):
            with self._step(f"round {number + 1}: {title}, {self.sides[side].name}"):
                figures[side] = measure(side)
        self.samples.add(figures[0], figures[1])
        for metric in METRICS:
            if metric.shape in self.shapes and metric.key in figures[0]:
                ours, peer = figures[0][metric.key], figures[1][metric.key]
                self.console.print(
                    f"  round {number + 1}  ({metric.shape}) {metric.label:<24} {metric.text(ours):>18}  "
                    f"against {metric.text(peer):>18}   [bold]{ours / peer:5.2f}×[/]",
                    highlight=False,
                )

    def _starts(self) -> None:
        self.console.rule("(g) from process start to the first answer")

        def start(side: int, number: int) -> Figures:
            broker = self._start(self.sides[side], f"start-{side}-{number}")
            seconds = broker.wait_until_it_answers()
            broker.stop()
            return {"start": seconds}

        for side in (0, 1):
            # Programs and libraries come from the page cache from here on, for both.
            start(side, -1)
        for number in range(self.sizes.start_rounds):
            self._pair("start", number, lambda side, number=number: start(side, number))  # type: ignore[misc]

    def _loads(self) -> None:
        brokers = [self._start(side, f"load-{index}") for index, side in enumerate(self.sides)]
        for broker in brokers:
            broker.wait_until_it_answers()
        self.console.rule("warming up: a cold JVM is no peer")
        for broker in brokers:
            self._warm(broker)
        self.console.rule("(a) to (f) under load")
        sizes, load = self.sizes, self._load
        for number in range(sizes.rounds):
            if self._wants("abef"):
                for title, messages, value_bytes in (
                    ("produce and fetch, 100 B", sizes.small_messages, 100),
                    ("produce and fetch, 1 KiB", sizes.large_messages, 1024),
                ):
                    self._pair(
                        title,
                        number,
                        lambda side, messages=messages, value_bytes=value_bytes: load.bulk(  # type: ignore[misc]
                            brokers[side], messages=messages, value_bytes=value_bytes
                        ),
                    )
            if self._wants("cf"):
                self._pair(
                    "64 connections",
                    number,
                    lambda side: load.small_requests(brokers[side], seconds=sizes.request_seconds),
                )
            if self._wants("df"):
                self._pair(
                    "end to end at 1,000 msg/s",
                    number,
                    lambda side: load.end_to_end(brokers[side], seconds=sizes.latency_seconds),
                )
            if self._wants("f"):
                self.samples.add(load.memory(brokers[0]), load.memory(brokers[1]))
        for broker in brokers:
            broker.stop()
            shutil.rmtree(broker.data)

    def _warm(self, broker: Running) -> None:
        if self._wants("abef"):
            for gigabyte in range(self.sizes.warm_gigabytes):
                with self._step(f"warming {broker.name}: GB {gigabyte + 1} in and out"):
                    done = self._load.bulk(broker, messages=1_000_000, value_bytes=1024)
                self.console.print(
                    f"  {broker.name}, GB {gigabyte + 1}: {done['cpu_in']:.2f} CPU-s in, {done['cpu_out']:.2f} out"
                )
            with self._step(f"warming {broker.name}: small messages in and out"):
                self._load.bulk(broker, messages=self.sizes.small_messages, value_bytes=100)
        if self._wants("cdf"):
            seconds = self.sizes.warm_request_seconds
            with self._step(f"warming {broker.name}: {seconds} s of small requests"):
                done = self._load.small_requests(broker, seconds=seconds)
                self._load.end_to_end(broker, seconds=self.sizes.latency_seconds)
            self.console.print(f"  {broker.name}, small requests: {done['small_rate']:,.0f} a second")

    def _many_partitions(self) -> None:
        partitions = self.sizes.many_partitions
        self.console.rule(f"(h) {partitions:,} partitions")
        for number in range(self.sizes.many_rounds):
            figures: list[Figures] = [{}, {}]
            # The floor is ours alone, and 5,000 partitions take Apache minutes: too long for a quick look.
            for index, side in enumerate(self.sides[: 1 if self.quick else 2]):
                with self._step(f"{side.name}: making {partitions:,} partitions, clean stop"):
                    broker = self._start(side, f"many-{index}-{number}")
                    broker.wait_until_it_answers()
                    fill_many(broker, partitions)
                    broker.stop()
                with self._step(f"{side.name}: starting on {partitions:,} partitions"):
                    broker = self._start(side, f"many-{index}-{number}")
                    figures[index] = many_after_start(broker, partitions)
                self.console.print(
                    f"  {side.name}: {figures[index]['many_start']:.2f} s, "
                    f"{figures[index]['many_memory']:.0f} MB, {figures[index]['many_files']:,.0f} open files"
                )
                broker.stop()
                shutil.rmtree(broker.data)
            self.samples.add(figures[0], figures[1])

    def setting(self) -> report.Setting:
        """How this run was done, for the page."""
        sizes = self.sizes
        return report.Setting(
            names=(self.sides[0].name, self.sides[1].name),
            versions=(self.sides[0].version(), self.sides[1].version()),
            rounds=f"{sizes.rounds} rounds of load, {sizes.start_rounds} starts each",
            warming=(
                f"{sizes.warm_gigabytes} GB and {sizes.small_messages / 1e6:g} million small messages\n"
                f"  in and out, and {sizes.warm_request_seconds} s of small requests; headwater gets the same"
            ),
        )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="headwater and Apache Kafka side by side")
    parser.add_argument("--quick", action="store_true", help="less load and fewer rounds: under 3 minutes")
    parser.add_argument("--only", default=",".join(SHAPES), metavar="a,c", help="the shapes to run (default: all)")
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
    arguments = parser.parse_args()
    arguments.only = "".join(arguments.only.lower().replace(",", "").split())
    unknown = set(arguments.only) - set(SHAPES)
    if unknown or not arguments.only:
        parser.error(f"--only takes letters of {', '.join(SHAPES)}, not {arguments.only!r}")
    if arguments.rounds is not None and arguments.rounds < 1:
        parser.error("--rounds must be at least 1")
    return arguments


def main() -> int:
    """Runs the benchmark; exit code 2 when it cannot run. A missed floor is a result like any other."""
    arguments = _arguments()
    sizes = QUICK if arguments.quick else FULL
    if arguments.rounds:
        sizes = replace(sizes, rounds=arguments.rounds, start_rounds=arguments.rounds)
    whole = not arguments.quick and set(arguments.only) == set(SHAPES) and not arguments.null
    out = arguments.out or REPOSITORY / ("docs" if whole else "build") / "benchmarks"
    _, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))
    arguments.work.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="bench-", dir=arguments.work))
    try:
        apache = ApacheKafka(arguments.kafka_libs.resolve(), work)
        ours: Kind = Headwater()
        if arguments.null:
            ours = ApacheKafka(arguments.kafka_libs.resolve(), work, name="Apache Kafka itself")
        run = Run((ours, apache), arguments.only, sizes, work, quick=arguments.quick)
        samples = run.run()
        summaries = samples.summaries(arguments.only)
        setting = run.setting()
        run.console.print(report.terminal_table(summaries, setting))
        report.write(out, summaries, setting)
        (REPOSITORY / "build" / "bench-samples.json").write_text(json.dumps(samples.pairs, indent=1))
        run.console.print(f"written: {out / 'broker.md'}, {out / 'broker.png'}")
    except (ServerError, ShapeError) as error:
        print(f"the benchmark cannot go on: {error}", file=sys.stderr)
        return 2
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
