"""What is measured, in which unit, and what must be reached: the table that run and report share."""

import statistics
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One figure of one shape; `must_ratio` and `must_below` are the floors it is held to."""

    key: str
    shape: str
    label: str
    unit: str
    better: Literal["higher", "lower"]
    must_ratio: float | None = None
    must_below: float | None = None
    decimals: int = 0

    @property
    def must_text(self) -> str:
        """The floor in words."""
        parts = []
        if self.must_below is not None:
            parts.append(f"< {self.must_below:g} {self.unit}")
        if self.must_ratio is not None:
            parts.append(f"{'≥' if self.better == 'higher' else '≤'} {self.must_ratio:g}×")
        return " and ".join(parts) or "–"

    def holds(self, ours: float, ratio: float | None) -> bool:
        """Whether this value and this ratio keep the floor."""
        if self.must_below is not None and not ours < self.must_below:
            return False
        if self.must_ratio is None:
            return True
        if ratio is None:
            return False
        return ratio >= self.must_ratio if self.better == "higher" else ratio <= self.must_ratio

    def text(self, value: float) -> str:
        """The value with its unit."""
        return f"{value:,.{self.decimals}f} {self.unit}".strip()


BROKER = (
    Metric(key="produce_100", shape="a", label="produce, 100 B", unit="msg/s", better="higher", must_ratio=1.2),
    Metric(key="produce_1k", shape="a", label="produce, 1 KiB", unit="MB/s", better="higher", must_ratio=1.2),
    Metric(key="fetch_100", shape="b", label="fetch, 100 B", unit="msg/s", better="higher", must_ratio=1.0),
    Metric(key="fetch_1k", shape="b", label="fetch, 1 KiB", unit="MB/s", better="higher", must_ratio=1.0),
    Metric(
        key="small_rate",
        shape="c",
        label="64 connections, rate",
        unit="req/s",
        better="higher",
        must_ratio=1.4,
    ),
    Metric(key="small_p50", shape="c", label="64 connections, p50", unit="ms", better="lower", decimals=2),
    Metric(
        key="small_p99",
        shape="c",
        label="64 connections, p99",
        unit="ms",
        better="lower",
        must_ratio=1.0,
        decimals=2,
    ),
    Metric(
        key="e2e_p50",
        shape="d",
        label="end to end, p50",
        unit="ms",
        better="lower",
        must_ratio=0.8,
        decimals=2,
    ),
    Metric(
        key="e2e_p99",
        shape="d",
        label="end to end, p99",
        unit="ms",
        better="lower",
        must_ratio=0.5,
        decimals=2,
    ),
    Metric(key="cpu_in", shape="e", label="CPU in", unit="s/GB", better="lower", must_ratio=0.6, decimals=2),
    Metric(key="cpu_out", shape="e", label="CPU out", unit="s/GB", better="lower", must_ratio=0.8, decimals=2),
    Metric(key="memory", shape="f", label="memory after the load", unit="MB", better="lower", must_ratio=0.1),
    Metric(
        key="start",
        shape="g",
        label="start to first answer",
        unit="s",
        better="lower",
        must_ratio=0.25,
        must_below=0.7,
        decimals=2,
    ),
    Metric(
        key="many_start",
        shape="h",
        label="5,000 partitions, start",
        unit="s",
        better="lower",
        must_below=5.0,
        decimals=2,
    ),
    Metric(key="many_memory", shape="h", label="5,000 partitions, memory", unit="MB", better="lower"),
    Metric(key="many_files", shape="h", label="5,000 partitions, open files", unit="", better="lower"),
)


GROUPS = (
    Metric(key="form_classic", shape="a", label="form a group of 100", unit="ms", better="lower", must_ratio=1.0),
    Metric(
        key="form_consumer", shape="b", label="form a group of 100, KIP-848", unit="ms", better="lower", must_ratio=1.0
    ),
    Metric(
        key="join_eager", shape="c", label="one joins, eager", unit="ms", better="lower", must_ratio=1.0, decimals=1
    ),
    Metric(
        key="join_cooperative",
        shape="d",
        label="one joins, cooperative",
        unit="ms",
        better="lower",
        must_ratio=1.0,
        decimals=1,
    ),
    Metric(
        key="join_consumer",
        shape="e",
        label="one joins, KIP-848",
        unit="ms",
        better="lower",
        must_ratio=1.0,
        decimals=1,
    ),
    Metric(key="commits", shape="f", label="64 members commit", unit="commits/s", better="higher", must_ratio=1.0),
    Metric(key="commits_p99", shape="f", label="64 members commit, p99", unit="ms", better="lower", decimals=2),
    Metric(
        key="commits_rd",
        shape="f",
        label="librdkafka commits, one by one",
        unit="commits/s",
        better="higher",
        must_ratio=1.0,
    ),
    Metric(
        key="transactions",
        shape="g",
        label="16 producers, 100 records each",
        unit="txn/s",
        better="higher",
        must_ratio=1.0,
    ),
    Metric(
        key="transactions_rd",
        shape="g",
        label="librdkafka, 100 records each",
        unit="txn/s",
        better="higher",
        must_ratio=1.0,
    ),
    Metric(key="form_default", shape="h", label="form, default delay", unit="ms", better="lower"),
)


LOG_LIFE = (
    Metric(key="clean_plain", shape="a", label="cleaner", unit="MB/s", better="higher", must_ratio=1.0),
    Metric(key="clean_lz4", shape="a", label="cleaner, lz4", unit="MB/s", better="higher", must_ratio=1.0),
    Metric(key="clean_cpu_plain", shape="a", label="cleaner, CPU", unit="s/GB", better="lower", decimals=2),
    Metric(key="clean_cpu_lz4", shape="a", label="cleaner, lz4, CPU", unit="s/GB", better="lower", decimals=2),
    Metric(
        key="recover_one",
        shape="b",
        label="recovery, one thread",
        unit="s/GB",
        better="lower",
        must_ratio=1.0,
        decimals=2,
    ),
    Metric(key="recover", shape="b", label="recovery", unit="s/GB", better="lower", must_ratio=1.0, decimals=2),
    Metric(
        key="recover_one_cpu", shape="b", label="recovery, one thread, CPU", unit="s/GB", better="lower", decimals=2
    ),
    Metric(key="recover_cpu", shape="b", label="recovery, CPU", unit="s/GB", better="lower", decimals=2),
    Metric(key="lookup_p50_ms", shape="c", label="look-up by time, p50", unit="ms", better="lower", decimals=3),
    Metric(key="lookup_p99_ms", shape="c", label="look-up by time, p99", unit="ms", better="lower", decimals=3),
    Metric(key="lookup_rate", shape="c", label="look-ups by time", unit="a second", better="higher"),
    Metric(
        key="lookup_growth",
        shape="c",
        label="p50 in 10× the segments",
        unit="×",
        better="lower",
        must_below=2.0,
        decimals=2,
    ),
)


def _of_clients(shape: str, key: str, label: str, must_ratio: float | None = None) -> tuple[Metric, Metric]:
    """A figure at both sizes of records: rates, and memory in shape g."""
    memory = shape == "g"
    return tuple(  # type: ignore[return-value]
        Metric(
            key=f"{key}_{size}",
            shape=shape,
            label=f"{label}, {words}",
            unit="MB" if memory else "msg/s",
            better="lower" if memory else "higher",
            must_ratio=must_ratio,
        )
        for size, words in (("100", "100 B"), ("1k", "1 KiB"))
    )


CLIENTS = (
    *_of_clients("a", "rows_in", "send : confluent-kafka", 1.5),
    *_of_clients("a", "rows_in_kp", "send : kafka-python"),
    *_of_clients("b", "rows_out", "poll : confluent-kafka", 3.0),
    *_of_clients("b", "rows_out_default", "poll : confluent-kafka, its defaults"),
    *_of_clients("b", "rows_out_kp", "poll : kafka-python"),
    *_of_clients("c", "arrow_out", "poll_arrow : confluent-kafka", 10.0),
    *_of_clients("c", "arrow_out_default", "poll_arrow : confluent-kafka, its defaults"),
    *_of_clients("d", "arrow_in", "send_arrow : confluent-kafka", 5.0),
    *_of_clients("e", "aio_in", "aio send : aiokafka", 3.0),
    *_of_clients("f", "aio_out", "aio poll : aiokafka", 3.0),
    *_of_clients("g", "mb_in", "peak memory, send : confluent-kafka"),
    *_of_clients("g", "mb_out", "peak memory, poll : confluent-kafka"),
    *_of_clients("g", "mb_arrow_in", "peak memory, send_arrow : confluent-kafka"),
    *_of_clients("g", "mb_arrow_out", "peak memory, poll_arrow : confluent-kafka"),
    *_of_clients("g", "mb_aio_in", "peak memory, aio send : aiokafka"),
    *_of_clients("g", "mb_aio_out", "peak memory, aio poll : aiokafka"),
)


def _of_the_lake(shape: str, key: str, label: str, must_ratio: float) -> tuple[Metric, ...]:
    """How fast a job is, and what it takes."""
    return (
        Metric(key=key, shape=shape, label=label, unit="records/s", better="higher", must_ratio=must_ratio),
        Metric(key=f"{key}_cpu", shape=shape, label=f"{label}, CPU", unit="s/million", better="lower", decimals=2),
        Metric(key=f"{key}_mb", shape=shape, label=f"{label}, memory", unit="MB", better="lower"),
    )


def _of_the_tuned(shape: str, key: str, label: str) -> tuple[Metric, ...]:
    """The same beside a peer with the settings that suit it best."""
    return (
        Metric(key=key, shape=shape, label=f"{label}, tuned peer", unit="records/s", better="higher"),
        Metric(
            key=f"{key}_cpu",
            shape=shape,
            label=f"{label}, tuned peer, CPU",
            unit="s/million",
            better="lower",
            decimals=2,
        ),
    )


LAKE = (
    *_of_the_lake("a", "scan_4", "scan, 4 partitions", 3.0),
    *_of_the_lake("a", "scan_1", "scan, one partition", 3.0),
    *_of_the_tuned("a", "scan_tuned", "scan, 4 partitions"),
    *_of_the_lake("b", "load", "raw load", 2.0),
    *_of_the_tuned("b", "load_tuned", "raw load"),
    *_of_the_lake("c", "json", "JSON load", 1.5),
    *_of_the_tuned("c", "json_tuned", "JSON load"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A metric over all rounds; ratios are taken within each round, headwater's figure by the peer's.

    `peer` is None and there are no ratios where the peer was left out.
    """

    metric: Metric
    ours: float
    peer: float | None
    ratios: tuple[float, ...]

    @property
    def ratio(self) -> float | None:
        """The median ratio."""
        return statistics.median(self.ratios) if self.ratios else None

    @property
    def ratio_text(self) -> str:
        """The median ratio with its sign."""
        return "–" if self.ratio is None else f"{self.ratio:.2f}×"

    @property
    def spread_text(self) -> str:
        """Smallest to largest ratio."""
        return f"{min(self.ratios):.2f}–{max(self.ratios):.2f}" if len(self.ratios) > 1 else "–"

    @property
    def peer_text(self) -> str:
        """The peer's median with its unit."""
        return "–" if self.peer is None else self.metric.text(self.peer)

    @property
    def reached(self) -> bool | None:
        """Whether the medians keep the floor; None where there is none."""
        if self.metric.must_ratio is None and self.metric.must_below is None:
            return None
        return self.metric.holds(self.ours, self.ratio)

    @property
    def verdict(self) -> str:
        """The word for the table."""
        return {None: "–", True: "reached", False: "missed"}[self.reached]


@dataclass(slots=True)
class Samples:
    """Every figure taken: per metric a list of (ours, peer's) in the order of the rounds."""

    metrics: tuple[Metric, ...]
    pairs: dict[str, list[tuple[float, float | None]]] = field(default_factory=dict)

    def add(self, ours: dict[str, float], peer: dict[str, float]) -> None:
        """One round of one shape on both sides; what only our side has stands without a peer."""
        for key, value in ours.items():
            self.pairs.setdefault(key, []).append((value, peer.get(key)))

    def summaries(self, shapes: str) -> list[Summary]:
        """What the rounds come to, in the order of the table."""
        return [
            _summary(metric, self.pairs[metric.key])
            for metric in self.metrics
            if metric.shape in shapes and metric.key in self.pairs
        ]


def _summary(metric: Metric, pairs: list[tuple[float, float | None]]) -> Summary:
    both = [(ours, peer) for ours, peer in pairs if peer is not None]
    return Summary(
        metric=metric,
        ours=statistics.median(ours for ours, _ in pairs),
        peer=statistics.median(peer for _, peer in both) if both else None,
        ratios=tuple(ours / peer for ours, peer in both),
    )
