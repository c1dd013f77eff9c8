"""What one producer has done so far: as an object, as a dict, and for Prometheus; its connections' numbers beside it.

The numbers are counted up on the event loop's thread; read from another one they are a moment old.
"""

from collections.abc import Iterator
from typing import Any, Final

from headwater.client.producer.accumulator import Accumulator
from headwater.client.statistics import ClientStatistics, escaped, shown

_COUNTERS: Final = (
    "records_written",
    "records_failed",
    "batches_written",
    "bytes_written",
    "batches_sent_again",
    "batches_split",
)
_GAUGES: Final = ("records_pending", "buffer_bytes")


class ProducerStatistics:
    """Counts that only rise, and how much is on its way. `client` has those of the connections."""

    def __init__(self, client: ClientStatistics, accumulator: Accumulator) -> None:
        self.client = client
        self.records_written = 0
        self.records_failed = 0
        self.batches_written = 0
        self.bytes_written = 0
        """Of batches that were written, as they went over the wire."""
        self.batches_sent_again = 0
        self.batches_split = 0
        """Batches that a broker found too large."""
        self._accumulator = accumulator

    @property
    def records_pending(self) -> int:
        """Records that are neither written nor failed."""
        pending: int = self._accumulator.pending_records
        return pending

    @property
    def buffer_bytes(self) -> int:
        """How much of `buffer.memory` is taken."""
        used: int = self._accumulator.used_bytes
        return used

    def snapshot(self) -> dict[str, Any]:
        """All numbers as they are now."""
        return {
            **{name: getattr(self, name) for name in (*_COUNTERS, *_GAUGES)},
            "client": self.client.snapshot(),
        }

    def __repr__(self) -> str:
        return shown(self, self.snapshot())

    def prometheus(self) -> str:
        """All numbers in Prometheus' text format, those of the connections too."""
        return "".join(f"{line}\n" for line in self._lines()) + self.client.prometheus()

    def _lines(self) -> Iterator[str]:
        labels = f'client_id="{escaped(self.client.client_id)}"'
        for name in _COUNTERS:
            yield f"# TYPE headwater_producer_{name}_total counter"
            yield f"headwater_producer_{name}_total{{{labels}}} {getattr(self, name)}"
        for name in _GAUGES:
            yield f"# TYPE headwater_producer_{name} gauge"
            yield f"headwater_producer_{name}{{{labels}}} {getattr(self, name)}"
