"""What one consumer has done so far: as an object, as a dict, and for Prometheus; its connections' numbers beside it.

The numbers are counted up on the event loop's thread; read from another one they are a moment old.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from headwater.client.consumer.group_statistics import COUNTERS, GAUGES, LATENCIES, GroupStatistics
from headwater.client.statistics import ClientStatistics, escaped, histogram_lines, shown
from headwater.types import TopicPartition

_COUNTERS: Final = (
    "polls",
    "records",
    "fetches",
    "fetch_failures",
    "sessions_lost",
    "bytes_fetched",
    "corrupt_batches",
    "corrupt_bytes",
)


class ConsumerStatistics:
    """Counts that only rise, and the lag of each partition where it is known.

    `group` has what happened in the consumer's group, and nothing without one; `client` what its connections did.
    """

    def __init__(
        self,
        client: ClientStatistics,
        lags: Callable[[], Mapping[TopicPartition, int]],
        count_assigned: Callable[[], int],
    ) -> None:
        self.client = client
        self.group = GroupStatistics()
        self.polls = 0
        self.records = 0
        """Records that were handed out."""
        self.fetches = 0
        self.fetch_failures = 0
        self.sessions_lost = 0
        """Fetch sessions that a broker had forgotten or did not agree about."""
        self.bytes_fetched = 0
        self.corrupt_batches = 0
        """Batches that were skipped, or of which some records were."""
        self.corrupt_bytes = 0
        self._lags = lags
        self._count_assigned = count_assigned

    @property
    def assigned_partitions(self) -> int:
        """How many partitions are being read, assigned by the group or by hand."""
        return self._count_assigned()

    def snapshot(self) -> dict[str, Any]:
        """All numbers as they are now; lags by partition."""
        return {
            **{name: getattr(self, name) for name in _COUNTERS},
            "assigned_partitions": self.assigned_partitions,
            "lag": {str(partition): lag for partition, lag in self._lags().items()},
            "group": self.group.snapshot(),
            "client": self.client.snapshot(),
        }

    def __repr__(self) -> str:
        found = self.snapshot()
        return shown(self, found | {"lag": sum(found["lag"].values())})

    def prometheus(self) -> str:
        """All numbers in Prometheus' text format, those of the connections too."""
        return "".join(f"{line}\n" for line in self._lines()) + self.client.prometheus()

    def _lines(self) -> Iterator[str]:
        client = f'client_id="{escaped(self.client.client_id)}"'
        for name in _COUNTERS:
            yield f"# TYPE headwater_consumer_{name}_total counter"
            yield f"headwater_consumer_{name}_total{{{client}}} {getattr(self, name)}"
        yield "# TYPE headwater_consumer_assigned_partitions gauge"
        yield f"headwater_consumer_assigned_partitions{{{client}}} {self.assigned_partitions}"
        yield "# TYPE headwater_consumer_lag gauge"
        for (topic, number), lag in self._lags().items():
            labels = f'{client},topic="{escaped(topic)}",partition="{number}"'
            yield f"headwater_consumer_lag{{{labels}}} {lag}"
        yield from self._group_lines(client)

    def _group_lines(self, client: str) -> Iterator[str]:
        for name in COUNTERS:
            yield f"# TYPE headwater_consumer_{name}_total counter"
            yield f"headwater_consumer_{name}_total{{{client}}} {getattr(self.group, name)}"
        for name in GAUGES:
            metric = f"headwater_consumer_{name.removesuffix('_s')}_seconds"
            yield f"# TYPE {metric} gauge"
            yield f"{metric}{{{client}}} {getattr(self.group, name)}"
        for name in LATENCIES:
            metric = f"headwater_consumer_{name}_seconds"
            yield f"# TYPE {metric} histogram"
            yield from histogram_lines(metric, client, getattr(self.group, name))
