"""Runs headwater's and Apache Kafka's coordinators side by side and writes how they compare: part of `make bench`.

    .venv/bin/python bench/groups.py                  all shapes, under 12 minutes, into docs/benchmarks
    .venv/bin/python bench/groups.py --quick          all shapes, under 3 minutes, into build/benchmarks
    .venv/bin/python bench/groups.py --only c,d       single shapes

What the letters mean is on the page that it writes (`report.py`) and in `metrics.py`.
"""

import sys
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import compiled
import metrics
import report
import rounds
from rounds import Figures, Rounds, Sides
from servers import Running
from shapes import Load, topic

SHAPES = "abcdefgh"
MEMBERS, PARTITIONS = 100, 300
COMMITTERS, COMMITTED_PARTITIONS = 64, 192
PRODUCERS, RECORDS = 16, 100
DELAY = "group.initial.rebalance.delay.ms"
DEFAULT_DELAY_MS = 3000


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much load makes one figure."""

    rounds: int
    warm_rounds: int
    default_delay_rounds: int
    joins: int
    seconds: float


FULL = Sizes(rounds=5, warm_rounds=3, default_delay_rounds=2, joins=5, seconds=5)
QUICK = Sizes(rounds=2, warm_rounds=1, default_delay_rounds=1, joins=3, seconds=2)


class Run(Rounds):
    """All shapes of the coordinators' benchmark."""

    def __init__(self, sides: Sides, patient_sides: Sides, shapes: str, sizes: Sizes, work: Path) -> None:
        self.sizes = sizes
        super().__init__(sides, shapes, metrics.GROUPS, work)
        self._patient_sides = patient_sides
        self._load = Load(compiled.build())

    def steps(self) -> int:
        """As many as are announced with `step`."""
        shapes = sum(self.wants(shape) for shape in "abcde") + 2 * self.wants("f") + 2 * self.wants("g")
        turns = 2 * (self.sizes.rounds + self.sizes.warm_rounds) * shapes
        return turns + 2 * self.sizes.default_delay_rounds * self.wants("h")

    def measure(self) -> None:
        """Everything without delay on one pair of brokers, then the default delay on another."""
        if self.wants("abcdefg"):
            self._without_delay()
        if self.wants("h"):
            self._with_default_delay()

    def _shapes(self) -> dict[str, tuple[str, dict[str, str], Mapping[str, object]]]:
        """By letter and title: the worker's shape, which of its figures is which metric, and its task."""
        group = {"partitions": PARTITIONS, "members": MEMBERS}
        joins = {**group, "times": self.sizes.joins}
        timed = {"run_s": self.sizes.seconds}
        warmed = {"warm_s": 0.5, **timed}
        committers = {"partitions": COMMITTED_PARTITIONS, "members": COMMITTERS}
        return {
            "a form": ("form_classic", {"ms": "form_classic"}, group),
            "b form, KIP-848": ("form_consumer", {"ms": "form_consumer"}, group),
            "c join, eager": ("one_joins_classic", {"ms": "join_eager"}, {**joins, "protocol": "range"}),
            "d join, cooperative": (
                "one_joins_classic",
                {"ms": "join_cooperative"},
                {**joins, "protocol": "cooperative-sticky"},
            ),
            "e join, KIP-848": ("one_joins_consumer", {"ms": "join_consumer"}, joins),
            "f commits": ("commits", {"rate": "commits", "p99_ms": "commits_p99"}, {**committers, **warmed}),
            "f commits, librdkafka": ("commits_by_librdkafka", {"rate": "commits_rd"}, timed),
            "g transactions": (
                "transactions",
                {"rate": "transactions"},
                {"producers": PRODUCERS, "records": RECORDS, **warmed},
            ),
            "g transactions, librdkafka": (
                "transactions_by_librdkafka",
                {"rate": "transactions_rd"},
                {"records": RECORDS, **timed},
            ),
        }

    def _measure_shape(self, broker: Running, name: str, title: str) -> Figures:
        shape, figures, task = self._shapes()[title]
        ran = self._load.measure(broker, "group", shape=shape, topic=name, **task)
        return {key: ran[figure] for figure, key in figures.items()}

    def _without_delay(self) -> None:
        brokers = [self.start(side, f"groups-{index}") for index, side in enumerate(self.sides)]
        for broker in brokers:
            broker.wait_until_it_answers()
        titles = [title for title in self._shapes() if self.wants(title[0])]
        with ExitStack() as stack:
            topics = {
                (side, partitions): stack.enter_context(topic(broker, partitions=partitions))
                for side, broker in enumerate(brokers)
                for partitions in (PARTITIONS, COMMITTED_PARTITIONS)
            }

            def measure(side: int, title: str) -> Figures:
                partitions = COMMITTED_PARTITIONS if title[0] in "fg" else PARTITIONS
                return self._measure_shape(brokers[side], topics[side, partitions], title)

            self.console.rule("warming up: a cold JVM is no peer")
            for number in range(self.sizes.warm_rounds):
                for side, broker in enumerate(brokers):
                    for title in titles:
                        with self.step(f"warming {broker.name}, round {number + 1}: {title[2:]}"):
                            measure(side, title)
            self.console.rule("(a) to (g)")
            for number in range(self.sizes.rounds):
                for title in titles:
                    self.pair(title[2:], number, lambda side, title=title: measure(side, title))  # type: ignore[misc]
        for broker in brokers:
            broker.stop()

    def _with_default_delay(self) -> None:
        self.console.rule(f"(h) {DELAY}={DEFAULT_DELAY_MS}")
        brokers = [self.start(side, f"patient-{index}") for index, side in enumerate(self._patient_sides)]
        for broker in brokers:
            broker.wait_until_it_answers()

        def form(side: int) -> Figures:
            group = {"partitions": PARTITIONS, "members": MEMBERS}
            with topic(brokers[side], partitions=PARTITIONS) as name:
                ran = self._load.measure(brokers[side], "group", shape="form_classic", topic=name, **group)
            return {"form_default": ran["ms"]}

        for number in range(self.sizes.default_delay_rounds):
            self.pair("form, default delay", number, form)
        for broker in brokers:
            broker.stop()

    def setting(self) -> report.Setting:
        """How this run was done, for the page."""
        sizes = self.sizes
        return report.Setting(
            names=(self.sides[0].name, self.sides[1].name),
            versions=(self.sides[0].version(), self.sides[1].version()),
            rounds=f"{sizes.rounds} rounds",
            warming=f"{sizes.warm_rounds} rounds of all shapes; headwater gets the same",
        )


def main() -> int:
    """Runs the benchmark as asked for."""
    asked = rounds.arguments("groups and transactions of headwater and Apache Kafka side by side", SHAPES)
    sizes = QUICK if asked.quick else FULL
    if asked.rounds:
        sizes = replace(sizes, rounds=asked.rounds)

    def begin(work: Path) -> Run:
        sides = rounds.sides(asked, work, {DELAY: 0})
        patient = rounds.sides(asked, work, {DELAY: DEFAULT_DELAY_MS})
        return Run(sides, patient, asked.only, sizes, work)

    return rounds.main(asked, report.GROUPS, begin)


if __name__ == "__main__":
    sys.exit(main())
