"""Latencies in a fixed number of buckets: cheap to note, good enough for a p99. No clock of its own."""

from collections.abc import Iterator
from typing import Final

_STEPS_A_DOUBLING: Final = 4
_LARGEST_US: Final = 2**31 - 1
"""More than half an hour: what takes longer counts as that."""


def _bucket(latency_us: int) -> int:
    """Which bucket a latency falls into: four to each doubling, so a bucket is at most a quarter wide."""
    bits = latency_us.bit_length()
    return latency_us if bits < 3 else (bits << 2 | latency_us >> bits - 3 & 3) - 8


def _upper_bound_us(bucket: int) -> int:
    """The first microsecond behind a bucket."""
    if bucket < _STEPS_A_DOUBLING:
        return bucket + 1
    bits, step = divmod(bucket + 8, _STEPS_A_DOUBLING)
    return (_STEPS_A_DOUBLING + step + 1) << bits - 3


_BUCKETS: Final = _bucket(_LARGEST_US) + 1


class LatencyHistogram:
    """Counts by latency. A quantile is exact to a quarter of its value, the average and the largest are exact.

    >>> histogram = LatencyHistogram()
    >>> for latency_s in [0.001] * 99 + [0.2]:
    ...     histogram.add(latency_s)
    >>> histogram.count, round(histogram.average_s, 5), round(histogram.quantile_s(0.99), 4)
    (100, 0.00299, 0.001)
    """

    __slots__ = ("_counts", "count", "largest_s", "total_s")

    def __init__(self) -> None:
        self._counts = [0] * _BUCKETS
        self.count = 0
        self.total_s = 0.0
        self.largest_s = 0.0

    def add(self, latency_s: float) -> None:
        """Notes one latency."""
        self.count += 1
        self.total_s += latency_s
        if latency_s > self.largest_s:
            self.largest_s = latency_s
        latency_us = int(latency_s * 1e6)
        self._counts[_bucket(latency_us if 0 <= latency_us <= _LARGEST_US else _LARGEST_US)] += 1

    @property
    def average_s(self) -> float:
        """The mean of all; 0 before the first."""
        return self.total_s / self.count if self.count else 0.0

    def quantile_s(self, quantile: float) -> float:
        """A latency that this share of all stayed below or at; 0 before the first."""
        wanted, seen = quantile * self.count, 0
        for bucket, count in enumerate(self._counts):
            seen += count
            if count and seen >= wanted:
                return min(_upper_bound_us(bucket) / 1e6, self.largest_s)
        return self.largest_s

    def cumulative(self) -> Iterator[tuple[float, int]]:
        """Pairs of a bound in seconds and how many stayed below it, a pair for each doubling from 64 µs to 67 s."""
        seen = 0
        for bucket, count in enumerate(self._counts):
            seen += count
            bound_us = _upper_bound_us(bucket)
            if 2**6 <= bound_us <= 2**26 and bound_us & bound_us - 1 == 0:
                yield bound_us / 1e6, seen
