"""Runs headwater and Apache Kafka side by side and writes how they compare: `make bench`.

    .venv/bin/python bench/broker.py                  all shapes, under 12 minutes, into docs/benchmarks
    .venv/bin/python bench/broker.py --quick          all shapes, under 3 minutes, into build/benchmarks
    .venv/bin/python bench/broker.py --only c,d       single shapes

Groups and transactions have a program of their own, `groups.py`.
"""

import shutil
import sys
from dataclasses import replace
from pathlib import Path

import compiled
import metrics
import report
import rounds
from rounds import Figures, Rounds, Sides
from servers import Running
from shapes import FULL, QUICK, Load, Sizes, fill_many, many_after_start

SHAPES = "abcdefgh"
LOAD_SHAPES = "abcdef"


class Run(Rounds):
    """All shapes of the broker's benchmark."""

    def __init__(self, sides: Sides, shapes: str, sizes: Sizes, work: Path, *, quick: bool) -> None:
        self.sizes = sizes
        self.quick = quick
        super().__init__(sides, shapes, metrics.BROKER, work)
        self._load = Load(compiled.build())

    def steps(self) -> int:
        """As many as are announced with `step`."""
        steps = 2 * self.sizes.start_rounds * self.wants("g")
        if self.wants(LOAD_SHAPES):
            groups = 2 * self.wants("abef") + self.wants("cf") + self.wants("df")
            steps += 2 * self.sizes.rounds * groups
            steps += 2 * (1 + self.sizes.warm_gigabytes) * self.wants("abef") + 2 * self.wants("cdf")
        return steps + 4 * self.sizes.many_rounds * self.wants("h")

    def measure(self) -> None:
        """All shapes, in the order that lets nothing disturb what is timed."""
        if self.wants("g"):
            self._starts()
        if self.wants(LOAD_SHAPES):
            self._loads()
        if self.wants("h"):
            self._many_partitions()

    def _starts(self) -> None:
        self.console.rule("(g) from process start to the first answer")

        def start(side: int, number: int) -> Figures:
            broker = self.start(self.sides[side], f"start-{side}-{number}")
            seconds = broker.wait_until_it_answers()
            broker.stop()
            return {"start": seconds}

        for side in (0, 1):
            # Programs and libraries come from the page cache from here on, for both.
            start(side, -1)
        for number in range(self.sizes.start_rounds):
            self.pair("start", number, lambda side, number=number: start(side, number))  # type: ignore[misc]

    def _loads(self) -> None:
        brokers = [self.start(side, f"load-{index}") for index, side in enumerate(self.sides)]
        for broker in brokers:
            broker.wait_until_it_answers()
        self.console.rule("warming up: a cold JVM is no peer")
        for broker in brokers:
            self._warm(broker)
        self.console.rule("(a) to (f) under load")
        sizes, load = self.sizes, self._load
        for number in range(sizes.rounds):
            if self.wants("abef"):
                for title, messages, value_bytes in (
                    ("produce and fetch, 100 B", sizes.small_messages, 100),
                    ("produce and fetch, 1 KiB", sizes.large_messages, 1024),
                ):
                    self.pair(
                        title,
                        number,
                        lambda side, messages=messages, value_bytes=value_bytes: load.bulk(  # type: ignore[misc]
                            brokers[side], messages=messages, value_bytes=value_bytes
                        ),
                    )
            if self.wants("cf"):
                self.pair(
                    "64 connections",
                    number,
                    lambda side: load.small_requests(brokers[side], seconds=sizes.request_seconds),
                )
            if self.wants("df"):
                self.pair(
                    "end to end at 1,000 msg/s",
                    number,
                    lambda side: load.end_to_end(brokers[side], seconds=sizes.latency_seconds),
                )
            if self.wants("f"):
                self.samples.add(load.memory(brokers[0]), load.memory(brokers[1]))
        for broker in brokers:
            broker.stop()
            shutil.rmtree(broker.data)

    def _warm(self, broker: Running) -> None:
        if self.wants("abef"):
            for gigabyte in range(self.sizes.warm_gigabytes):
                with self.step(f"warming {broker.name}: GB {gigabyte + 1} in and out"):
                    done = self._load.bulk(broker, messages=1_000_000, value_bytes=1024)
                self.console.print(
                    f"  {broker.name}, GB {gigabyte + 1}: {done['cpu_in']:.2f} CPU-s in, {done['cpu_out']:.2f} out"
                )
            with self.step(f"warming {broker.name}: small messages in and out"):
                self._load.bulk(broker, messages=self.sizes.small_messages, value_bytes=100)
        if self.wants("cdf"):
            seconds = self.sizes.warm_request_seconds
            with self.step(f"warming {broker.name}: {seconds} s of small requests"):
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
                with self.step(f"{side.name}: making {partitions:,} partitions, clean stop"):
                    broker = self.start(side, f"many-{index}-{number}")
                    broker.wait_until_it_answers()
                    fill_many(broker, partitions)
                    broker.stop()
                with self.step(f"{side.name}: starting on {partitions:,} partitions"):
                    broker = self.start(side, f"many-{index}-{number}")
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


def main() -> int:
    """Runs the benchmark as asked for."""
    asked = rounds.arguments("headwater and Apache Kafka side by side", SHAPES)
    sizes = QUICK if asked.quick else FULL
    if asked.rounds:
        sizes = replace(sizes, rounds=asked.rounds, start_rounds=asked.rounds)

    def begin(work: Path) -> Run:
        return Run(rounds.sides(asked, work), asked.only, sizes, work, quick=asked.quick)

    return rounds.main(asked, report.BROKER, begin)


if __name__ == "__main__":
    sys.exit(main())
