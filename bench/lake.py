"""Runs headwater's lake beside Spark with its own Kafka connector and writes how they compare: part of `make bench`.

    .venv/bin/python bench/lake.py                  all shapes, 12 to 20 minutes, into docs/benchmarks
    .venv/bin/python bench/lake.py --quick          all shapes, about 3 minutes, into build/benchmarks
    .venv/bin/python bench/lake.py --only a,c       single shapes

What the letters mean is on the page that it writes (`report.py`) and in `metrics.py`.
"""

import os
import sys
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import lake_data
import metrics
import report
import rounds
from headwater.catalog.server import EmbeddedCatalog
from lake_data import Written
from lake_jobs import CONNECTOR, CORES, LOAD, LOAD_JSON, OURS, PEER, SCAN, TUNED_PEER
from lake_sides import RunningSide
from rounds import Figures, Rounds
from servers import Headwater, Running
from shapes import topic

SHAPES = "abc"
Kind = tuple[bool, int, int]
"""Of a topic: whether its records are JSON, how many there are, and in how many partitions."""
WARMINGS = 2
"""How often each job is done before it counts: Java goes on compiling for gigabytes."""
CONNECTOR_NAME = "Spark's connector"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much load makes one figure."""

    rounds: int
    scanned: int
    loaded: int
    json_loaded: int


FULL = Sizes(rounds=3, scanned=8_000_000, loaded=2_000_000, json_loaded=500_000)
QUICK = Sizes(rounds=2, scanned=1_000_000, loaded=400_000, json_loaded=100_000)
TINY = Sizes(rounds=1, scanned=10_000, loaded=5_000, json_loaded=2_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A job on a topic; its metrics begin with `key`."""

    shape: str
    key: str
    job: str
    title: str
    partitions: int
    peer: str = PEER

    def kind(self, sizes: Sizes) -> Kind:
        """Cases of one kind read the same topic."""
        records = {SCAN: sizes.scanned, LOAD: sizes.loaded, LOAD_JSON: sizes.json_loaded}[self.job]
        return self.job == LOAD_JSON, records, self.partitions


CASES = (
    Case(shape="a", key="scan_4", job=SCAN, title="scan of 4 partitions", partitions=4),
    Case(shape="a", key="scan_1", job=SCAN, title="scan of one partition", partitions=1),
    Case(shape="a", key="scan_tuned", job=SCAN, title="scan, tuned peer", partitions=4, peer=TUNED_PEER),
    Case(shape="b", key="load", job=LOAD, title="raw load", partitions=4),
    Case(shape="b", key="load_tuned", job=LOAD, title="raw load, tuned peer", partitions=4, peer=TUNED_PEER),
    Case(shape="c", key="json", job=LOAD_JSON, title="JSON into a typed table", partitions=4),
    Case(shape="c", key="json_tuned", job=LOAD_JSON, title="JSON, tuned peer", partitions=4, peer=TUNED_PEER),
)


class Run(Rounds):
    """All shapes of the lake's benchmark: one broker, one catalog, and a Spark for each side."""

    def __init__(self, shapes: str, sizes: Sizes, work: Path) -> None:
        self.sizes = sizes
        self._cases = [case for case in CASES if case.shape in shapes]
        self._spark_version = ""
        ours, peer = Headwater(), Headwater()
        # There is one broker; what differs is who reads from it.
        peer.name = CONNECTOR_NAME
        super().__init__((ours, peer), shapes, metrics.LAKE, work)

    def steps(self) -> int:
        """As many as are announced with `step`."""
        topics = len({case.kind(self.sizes) for case in self._cases})
        return topics + 2 + 2 * len(self._cases) * (WARMINGS + self.sizes.rounds)

    def measure(self) -> None:
        """Each case without counting, for both sides, then all cases round by round."""
        broker = self.start(self.sides[0], "broker")
        broker.wait_until_it_answers()
        with ExitStack() as stack:
            kinds = dict.fromkeys(case.kind(self.sizes) for case in self._cases)
            written = {kind: self._written(stack, broker, kind) for kind in kinds}
            warehouse = self.work / "warehouse"
            warehouse.mkdir()
            catalog = stack.enter_context(EmbeddedCatalog(f"sqlite:///{self.work}/catalog.db", warehouse.as_uri()))
            running = []
            for name in (OURS, PEER):
                with self.step(f"starting Spark: {name}"):
                    side = RunningSide(name, self.work, catalog=catalog.uri, bootstrap=f"127.0.0.1:{broker.port}")
                    running.append(stack.enter_context(side))
                    self._spark_version = side.spark_version
            self._warm(running, written)
            self.console.rule("rounds that count")
            for number in range(self.sizes.rounds):
                for case in self._cases:

                    def measure(side: int, case: Case = case) -> Figures:
                        return self._ran(running, side, case, written[case.kind(self.sizes)])

                    self.pair(case.title, number, measure)
        broker.stop()

    def _warm(self, running: list[RunningSide], written: dict[Kind, Written]) -> None:
        self.console.rule("warming up: a cold JVM is no peer")
        for case in self._cases * WARMINGS:
            for side, kind in enumerate(self.sides):
                with self.step(f"warming {kind.name}: {case.title}"):
                    ran = self._ran(running, side, case, written[case.kind(self.sizes)])
                self.console.print(f"  {kind.name}: {case.title}, {ran[case.key]:,.0f} records/s")

    def _written(self, stack: ExitStack, broker: Running, kind: Kind) -> Written:
        is_json, records, partitions = kind
        name = stack.enter_context(topic(broker, partitions=partitions))
        make = lake_data.json_records if is_json else lake_data.plain_records
        with self.step(f"writing {records:,} {'JSON ' if is_json else ''}records to {partitions} partition(s)"):
            return lake_data.write(f"127.0.0.1:{broker.port}", name, make, records=records, partitions=partitions)

    def _ran(self, running: list[RunningSide], side: int, case: Case, written: Written) -> Figures:
        # What is still on its way to the disk would be in the way of both.
        os.sync()
        done = running[side].run((OURS, case.peer)[side], case.job, written)
        return {
            case.key: written.records / done.seconds,
            f"{case.key}_cpu": done.cpu_seconds / written.records * 1e6,
            f"{case.key}_mb": done.peak_bytes / 1e6,
        }

    def setting(self) -> report.Setting:
        """How this run was done, for the page."""
        sizes = self.sizes
        connector = ", ".join(f"{jar.artifact} {jar.version}" for jar in CONNECTOR)
        return report.Setting(
            names=("headwater", CONNECTOR_NAME),
            versions=(self.sides[0].version(), f"Spark {self._spark_version} with {connector}"),
            rounds=f"{sizes.rounds} rounds; {sizes.scanned:,} records of {lake_data.VALUE_BYTES} B scanned, "
            f"{sizes.loaded:,} loaded, {sizes.json_loaded:,} of JSON; Spark on {CORES} cores",
            warming=f"each job {WARMINGS} times at its full size",
        )


def main() -> int:
    """Runs the benchmark as asked for."""
    asked = rounds.arguments("headwater's lake and Spark's own Kafka connector side by side", SHAPES)
    sizes = QUICK if asked.quick else FULL
    if asked.tiny:
        sizes, asked.whole = TINY, False
    if asked.rounds:
        sizes = replace(sizes, rounds=asked.rounds)
    return rounds.main(asked, report.LAKE, lambda work: Run(asked.only, sizes, work))


if __name__ == "__main__":
    sys.exit(main())
