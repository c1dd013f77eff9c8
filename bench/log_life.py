"""The log's whole life, headwater's and Apache Kafka's side by side, on the same files: part of `make bench`.

    .venv/bin/python bench/log_life.py                all shapes, under 6 minutes, into docs/benchmarks
    .venv/bin/python bench/log_life.py --quick        all shapes, about a minute, into build/benchmarks
    .venv/bin/python bench/log_life.py --only a       single shapes

What the letters mean is on the page that it writes (`report.py`) and in `metrics.py`.
"""

import os
import statistics
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import compiled
import log_life_data as data
import metrics
import report
import rounds
from log_life_data import PreparedLog
from log_life_shapes import (
    CODECS,
    FEW,
    MANY,
    RECOVERED,
    RECOVERED_PARTITIONS,
    clean,
    cleaned_topic,
    look_up,
    make_template,
    wait_until_served,
)
from rounds import Figures, Rounds, Sides
from servers import Running
from shapes import Load, ShapeError

SHAPES = "abc"
_TRIES = 3
RECOVERY_THREADS = "num.recovery.threads.per.data.dir"
# Same memory and pace for both, as by default; a cleaner that is idle looks for work at once.
CLEANER = {
    "log.cleaner.threads": 1,
    "log.cleaner.dedupe.buffer.size": 128 << 20,
    "log.cleaner.backoff.ms": 20,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much load makes one figure."""

    rounds: int
    warm_cleanings: int
    idle_starts: int
    log_bytes: int
    segments: int
    lookup_seconds: float


FULL = Sizes(rounds=3, warm_cleanings=3, idle_starts=3, log_bytes=512 << 20, segments=10_000, lookup_seconds=2)
QUICK = Sizes(rounds=1, warm_cleanings=1, idle_starts=1, log_bytes=128 << 20, segments=2_000, lookup_seconds=0.5)


class Run(Rounds):
    """All shapes of a log's life."""

    def __init__(self, sides: Sides, one_thread: Sides, shapes: str, sizes: Sizes, work: Path) -> None:
        self.sizes = sizes
        super().__init__(sides, shapes, metrics.LOG_LIFE, work)
        self._one_thread = one_thread
        self._load = Load(compiled.build())
        self._logs: dict[str, PreparedLog] = {}

    def steps(self) -> int:
        """As many as are announced with `step`."""
        sizes = self.sizes
        cleanings = 2 * len(CODECS) * (sizes.rounds + sizes.warm_cleanings)
        starts = 2 * (sizes.idle_starts + 2 * sizes.rounds)
        lookups = 2 + 4 * sizes.rounds
        return 2 + cleanings * self.wants("a") + starts * self.wants("b") + lookups * self.wants("c")

    def measure(self) -> None:
        """The logs are written, then each shape runs on folders of its own."""
        self._prepare()
        if self.wants("a"):
            self._cleanings()
        if self.wants("b"):
            self._recoveries()
        if self.wants("c"):
            self._lookups()

    def _prepare(self) -> None:
        sizes = self.sizes
        with self.step("writing the logs"):
            for name, codec in CODECS.items():
                if self.wants("a") or (self.wants("b") and not codec):
                    folder = self.work / f"log-{name}"
                    self._logs[name] = data.write_changes(folder, size_bytes=sizes.log_bytes, compression=codec)
            if self.wants("c"):
                for name, segments in ((MANY, sizes.segments), (FEW, sizes.segments // 10)):
                    self._logs[name] = data.write_history(self.work / f"log-{name}", segments=segments)
        with self.step("making the topics"):
            for index, side in enumerate(self.sides):
                make_template(side, self._template(index), sizes.rounds + sizes.warm_cleanings)
        # What is still on its way to the disk would be in the way of both.
        os.sync()

    def _template(self, side: int) -> Path:
        return self.work / f"template-{side}"

    @contextmanager
    def _pair_with(self, name: str, logs: dict[str, str]) -> Iterator[list[Running]]:
        """Both brokers, running on folders in which these partitions have these logs."""
        brokers = []
        for index, side in enumerate(self.sides):
            folder = self.work / f"{name}-{index}"
            data.copy_folder(self._template(index), folder)
            for partition, log in logs.items():
                data.put_in(self._logs[log], folder / partition)
            brokers.append(self.start(side, folder.name))
        for broker in brokers:
            broker.wait_until_led(RECOVERED, RECOVERED_PARTITIONS)
        yield brokers
        for broker in brokers:
            broker.kill()

    def _cleanings(self) -> None:
        self.console.rule("(a) the cleaner")
        warm, cleanings = self.sizes.warm_cleanings, self.sizes.warm_cleanings + self.sizes.rounds
        partitions = {f"{cleaned_topic(codec, number)}-0": codec for codec in CODECS for number in range(cleanings)}
        with self._pair_with("clean", partitions) as brokers:
            for number in range(warm):
                for codec in CODECS:
                    for broker in brokers:
                        with self.step(f"warming {broker.name}: cleaning {number + 1}, {codec}"):
                            clean(broker, codec, number, self._logs[codec])
            for number in range(self.sizes.rounds):
                for codec in CODECS:

                    def measure(side: int, codec: str = codec, number: int = warm + number) -> Figures:
                        return clean(brokers[side], codec, number, self._logs[codec])

                    self.pair(f"cleaning, {codec}", number, measure)

    def _recoveries(self) -> None:
        self.console.rule("(b) recovery after kill -9")
        gigabytes = RECOVERED_PARTITIONS * self._logs["plain"].size_bytes / 1e9
        idle: dict[int, list[tuple[float, float]]] = {0: [], 1: []}

        def start_idle(side: int) -> Figures:
            idle[side].append(self._start_after_kill(self.sides, side, filled=False))
            return {}

        def recover(key: str, kinds: Sides, side: int) -> Figures:
            """What a start takes without anything to recover is taken off: the median, as starts vary."""
            idle_s = statistics.median(seconds for seconds, _ in idle[side])
            idle_cpu_s = statistics.median(cpu_seconds for _, cpu_seconds in idle[side])
            for _ in range(_TRIES):
                seconds, cpu_seconds = self._start_after_kill(kinds, side, filled=True)
                if seconds > idle_s and cpu_seconds > idle_cpu_s:
                    return {
                        key: (seconds - idle_s) / gigabytes,
                        f"{key}_cpu": (cpu_seconds - idle_cpu_s) / gigabytes,
                    }
            raise ShapeError("starts vary by more than a recovery takes: the machine is too busy")

        for number in range(self.sizes.idle_starts):
            self.pair("start without data", number, start_idle)
        for number in range(self.sizes.rounds):
            self.pair("recovery, one thread", number, lambda side: recover("recover_one", self._one_thread, side))
            self.pair("recovery, default threads", number, lambda side: recover("recover", self.sides, side))

    def _start_after_kill(self, kinds: Sides, side: int, *, filled: bool) -> tuple[float, float]:
        """Seconds and CPU-seconds until all partitions are served."""
        folder = self.work / f"recovery-{side}"
        data.copy_folder(self._template(side), folder)
        log = self._logs["plain"]
        if filled:
            for partition in range(RECOVERED_PARTITIONS):
                data.put_in(log, folder / f"{RECOVERED}-{partition}")
        data.forget_clean_stop(folder)
        os.sync()
        broker = self.start(kinds[side], folder.name)
        taken = wait_until_served(broker, log.end_offset if filled else 0)
        broker.kill()
        return taken

    def _lookups(self) -> None:
        self.console.rule("(c) look-ups by time")
        seconds = self.sizes.lookup_seconds
        with self._pair_with("lookups", {f"{MANY}-0": MANY, f"{FEW}-0": FEW}) as brokers:

            def measure(side: int, topic: str, seed: int) -> Figures:
                return look_up(self._load, brokers[side], topic, self._logs[topic], seconds, seed)

            for side, broker in enumerate(brokers):
                with self.step(f"warming {broker.name}: look-ups"):
                    measure(side, FEW, -2)
                    measure(side, MANY, -1)
            for number in range(self.sizes.rounds):
                few: dict[int, Figures] = {}

                def measure_few(side: int, few: dict[int, Figures] = few, seed: int = number) -> Figures:
                    few[side] = measure(side, FEW, seed)
                    return {}

                def measure_many(side: int, few: dict[int, Figures] = few, seed: int = number) -> Figures:
                    many = measure(side, MANY, seed)
                    growth = many["p50_ms"] / few[side]["p50_ms"]
                    return {**{f"lookup_{key}": value for key, value in many.items()}, "lookup_growth": growth}

                self.pair(f"{self.sizes.segments // 10:,} segments", number, measure_few)
                self.pair(f"{self.sizes.segments:,} segments", number, measure_many)

    def setting(self) -> report.Setting:
        """How this run was done, for the page."""
        sizes = self.sizes
        return report.Setting(
            names=(self.sides[0].name, self.sides[1].name),
            versions=(self.sides[0].version(), self.sides[1].version()),
            rounds=f"{sizes.rounds} rounds; logs of {sizes.log_bytes >> 20} MiB",
            warming=f"{sizes.warm_cleanings} cleanings of each log, {5 * sizes.lookup_seconds:g} s of look-ups",
        )


def main() -> int:
    """Runs the benchmark as asked for."""
    asked = rounds.arguments("the life of a log in headwater and Apache Kafka side by side", SHAPES)
    sizes = QUICK if asked.quick else FULL
    if asked.rounds:
        sizes = replace(sizes, rounds=asked.rounds)

    def begin(work: Path) -> Run:
        sides = rounds.sides(asked, work, CLEANER)
        one_thread = rounds.sides(asked, work, {**CLEANER, RECOVERY_THREADS: 1})
        return Run(sides, one_thread, asked.only, sizes, work)

    return rounds.main(asked, report.LOG_LIFE, begin)


if __name__ == "__main__":
    sys.exit(main())
