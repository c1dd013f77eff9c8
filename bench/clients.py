"""Runs our clients and those of others side by side on one broker and writes how they compare: part of `make bench`.

    .venv/bin/python bench/clients.py                  all shapes, under 12 minutes, into docs/benchmarks
    .venv/bin/python bench/clients.py --quick          all shapes, under 3 minutes, into build/benchmarks
    .venv/bin/python bench/clients.py --only a,c       single shapes

What the letters mean is on the page that it writes (`report.py`) and in `metrics.py`.
"""

import json
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

import metrics
import report
import rounds
from rounds import Figures, Rounds
from servers import Headwater, Running
from shapes import ShapeError, topic

SHAPES = "abcdefg"
SIZES_BYTES = {"100": 100, "1k": 1024}
SLOW_CLIENTS = ("aiokafka", "kafka_python")
_WORKER = Path(__file__).with_name("client_worker.py")
_PATIENCE_S = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much load makes one figure; slow clients get a part of it."""

    rounds: int
    small_records: int
    large_records: int
    slow_share: float

    def records(self, load: str, value_bytes: int) -> int:
        """How many records a load has."""
        all_of_them = self.small_records if value_bytes == 100 else self.large_records
        slow = load.startswith(SLOW_CLIENTS)
        return int(all_of_them * self.slow_share) if slow else all_of_them


FULL = Sizes(rounds=5, small_records=3_000_000, large_records=600_000, slow_share=0.1)
QUICK = Sizes(rounds=2, small_records=1_000_000, large_records=200_000, slow_share=0.1)
TINY = Sizes(rounds=1, small_records=20_000, large_records=5_000, slow_share=0.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """Our load and the peer's that it is held against; the metric is `key`, with a size."""

    shape: str
    key: str
    ours: str
    peer: str


MATCHES = (
    Match(shape="a", key="rows_in", ours="headwater_rows_in", peer="confluent_rows_in"),
    Match(shape="a", key="rows_in_kp", ours="headwater_rows_in", peer="kafka_python_rows_in"),
    Match(shape="b", key="rows_out", ours="headwater_rows_out", peer="confluent_rows_out"),
    Match(shape="b", key="rows_out_default", ours="headwater_rows_out", peer="confluent_default_rows_out"),
    Match(shape="b", key="rows_out_kp", ours="headwater_rows_out", peer="kafka_python_rows_out"),
    Match(shape="c", key="arrow_out", ours="headwater_arrow_out", peer="confluent_rows_out"),
    Match(shape="c", key="arrow_out_default", ours="headwater_arrow_out", peer="confluent_default_rows_out"),
    Match(shape="d", key="arrow_in", ours="headwater_arrow_in", peer="confluent_rows_in"),
    Match(shape="e", key="aio_in", ours="headwater_aio_rows_in", peer="aiokafka_rows_in"),
    Match(shape="f", key="aio_out", ours="headwater_aio_rows_out", peer="aiokafka_rows_out"),
)
MEMORY = (
    Match(shape="g", key="mb_in", ours="headwater_rows_in", peer="confluent_rows_in"),
    Match(shape="g", key="mb_out", ours="headwater_rows_out", peer="confluent_rows_out"),
    Match(shape="g", key="mb_arrow_in", ours="headwater_arrow_in", peer="confluent_rows_in"),
    Match(shape="g", key="mb_arrow_out", ours="headwater_arrow_out", peer="confluent_rows_out"),
    Match(shape="g", key="mb_aio_in", ours="headwater_aio_rows_in", peer="aiokafka_rows_in"),
    Match(shape="g", key="mb_aio_out", ours="headwater_aio_rows_out", peer="aiokafka_rows_out"),
)


class Run(Rounds):
    """All shapes of the clients' benchmark, on one broker."""

    def __init__(self, shapes: str, sizes: Sizes, work: Path) -> None:
        self.sizes = sizes
        broker = Headwater()
        self._matches = [match for match in (*MATCHES, *MEMORY) if match.shape in shapes]
        self._loads = list(dict.fromkeys(load for match in self._matches for load in (match.ours, match.peer)))
        super().__init__((broker, broker), shapes, metrics.CLIENTS, work)

    def steps(self) -> int:
        """As many as are announced with `step`."""
        return len(SIZES_BYTES) * (1 + self.sizes.rounds * len(self._loads))

    def measure(self) -> None:
        """Each round has every client once, another one first; consumers read logs that are written before."""
        broker = self.start(self.sides[0], "clients")
        broker.wait_until_it_answers()
        with ExitStack() as stack:
            logs = {name: stack.enter_context(topic(broker, partitions=1)) for name in SIZES_BYTES}
            for name, log in logs.items():
                with self.step(f"writing the log that consumers read, {name}"):
                    records = max(self.sizes.records("", SIZES_BYTES[name]), 1)
                    self._ran(broker, "headwater_rows_in", log, name, records)
            for number in range(self.sizes.rounds):
                for name, log in logs.items():
                    self._round(broker, number, name, log)
        broker.stop()

    def _round(self, broker: Running, number: int, size: str, log: str) -> None:
        turn = number % len(self._loads)
        found: dict[str, Figures] = {}
        for load in self._loads[turn:] + self._loads[:turn]:
            with self.step(f"round {number + 1}: {load}, {size}"):
                records = self.sizes.records(load, SIZES_BYTES[size])
                if load.endswith("_out"):
                    found[load] = self._ran(broker, load, log, size, records)
                else:
                    with topic(broker, partitions=1) as fresh:
                        found[load] = self._ran(broker, load, fresh, size, records)
        for match in self._matches:
            figure = "peak_mb" if match.shape == "g" else "rate"
            key = f"{match.key}_{size}"
            self.samples.add({key: found[match.ours][figure]}, {key: found[match.peer][figure]})
        self._show(number, size)

    def _ran(self, broker: Running, load: str, log: str, size: str, records: int) -> Figures:
        task = {
            "load": load,
            "bootstrap": f"127.0.0.1:{broker.port}",
            "topic": log,
            "value_bytes": SIZES_BYTES[size],
            "records": records,
        }
        ran = subprocess.run(
            [sys.executable, str(_WORKER), json.dumps(task)],
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
            check=False,
        )
        if ran.returncode:
            last_lines = "\n".join(ran.stderr.splitlines()[-6:])
            raise ShapeError(f"'{load}' failed:\n{last_lines}\nthe broker said:\n{broker.last_words()}")
        figures: Figures = json.loads(ran.stdout.splitlines()[-1])
        return figures

    def _show(self, number: int, size: str) -> None:
        for metric in self.samples.metrics:
            if metric.key.endswith(f"_{size}") and metric.key in self.samples.pairs:
                ours, peer = self.samples.pairs[metric.key][-1]
                assert peer is not None
                self.console.print(
                    f"  round {number + 1}  ({metric.shape}) {metric.label:<44} {metric.text(ours):>18}  "
                    f"against {metric.text(peer):>18}   [bold]{ours / peer:5.2f}×[/]",
                    highlight=False,
                )

    def setting(self) -> report.Setting:
        """How this run was done, for the page."""
        peers = ", ".join(f"{name} {version(name)}" for name in ("confluent-kafka", "aiokafka", "kafka-python"))
        return report.Setting(
            names=("headwater", "the peer"),
            versions=(self.sides[0].version(), peers),
            rounds=f"{self.sizes.rounds} rounds",
            warming=f"{self.sizes.small_records:,} records of 100 B, {self.sizes.large_records:,} of 1 KiB; "
            f"aiokafka and kafka-python {self.sizes.slow_share:.0%} of that",
        )


def main() -> int:
    """Runs the benchmark as asked for."""
    asked = rounds.arguments("the clients of headwater and of others side by side", SHAPES)
    sizes = QUICK if asked.quick else FULL
    if asked.tiny:
        sizes, asked.whole = TINY, False
    if asked.rounds:
        sizes = replace(sizes, rounds=asked.rounds)
    return rounds.main(asked, report.CLIENTS, lambda work: Run(asked.only, sizes, work))


if __name__ == "__main__":
    sys.exit(main())
