"""What a performance test comes to: rates, and latencies with their percentiles. Counts and divides, nothing else."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """How long records took, in milliseconds."""

    samples: int
    avg_ms: float
    max_ms: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    p999_ms: float

    @classmethod
    def of(cls, taken_ms: Sequence[float]) -> "Latency | None":
        """The figures of these; None when there are none.

        >>> Latency.of([5, 1, 2, 3, 4]).p50_ms
        3
        """
        if not taken_ms:
            return None
        ordered = sorted(taken_ms)
        return cls(
            samples=len(ordered),
            avg_ms=sum(ordered) / len(ordered),
            max_ms=ordered[-1],
            p50_ms=percentile(ordered, 0.5),
            p95_ms=percentile(ordered, 0.95),
            p99_ms=percentile(ordered, 0.99),
            p999_ms=percentile(ordered, 0.999),
        )

    def lines(self) -> dict[str, object]:
        """For people."""
        return {
            "Latency": f"avg {milliseconds(self.avg_ms)}, max {milliseconds(self.max_ms)}",
            "Percentiles": f"50th {milliseconds(self.p50_ms)}, 95th {milliseconds(self.p95_ms)}, "
            f"99th {milliseconds(self.p99_ms)}, 99.9th {milliseconds(self.p999_ms)}",
        }

    def json(self) -> dict[str, Any]:
        """For machines."""
        return {name: round(value, 3) for name, value in asdict(self).items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """How much went through in how long."""

    records: int
    size_bytes: int
    seconds: float

    @property
    def records_per_s(self) -> float:
        """Records in a second."""
        return self.records / max(self.seconds, 1e-9)

    @property
    def mib_per_s(self) -> float:
        """Keys and values in a second, in MiB, which Kafka's tools call MB."""
        return self.size_bytes / _MIB / max(self.seconds, 1e-9)

    def lines(self, did: str) -> dict[str, object]:
        """For people."""
        return {
            "Records": f"{self.records:,} {did} in {self.seconds:.2f} s",
            "Rate": f"{self.records_per_s:,.0f} records/s, {self.mib_per_s:,.2f} MiB/s",
        }

    def json(self) -> dict[str, Any]:
        """For machines."""
        return {
            "records": self.records,
            "bytes": self.size_bytes,
            "seconds": round(self.seconds, 6),
            "records_per_s": round(self.records_per_s, 1),
            "mib_per_s": round(self.mib_per_s, 3),
        }


def percentile(ordered: Sequence[float], share: float) -> float:
    """What this share of the ordered values stays within.

    >>> percentile([1, 2, 3, 4], 0.5), percentile([1, 2, 3, 4], 0.99)
    (2, 4)
    """
    return ordered[max(0, -(-len(ordered) * round(share * 1000) // 1000) - 1)]


def milliseconds(value_ms: float) -> str:
    """A duration with as many digits as it deserves.

    >>> milliseconds(0.1234), milliseconds(12.34), milliseconds(1234.5)
    ('0.12 ms', '12.3 ms', '1,234 ms')
    """
    digits = 2 if value_ms < 10 else 1 if value_ms < 100 else 0
    return f"{value_ms:,.{digits}f} ms"
