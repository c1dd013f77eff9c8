"""What a client's connections have done so far: as an object, as a dict, and for Prometheus.

The numbers are plain attributes that the connections count up themselves, on the event loop's thread; reading them from
another thread gives numbers that are a moment old. They belong to an address and outlive its connections.

The text for Prometheus is written by hand: the format is a dozen lines of code, while prometheus_client would be one
more dependency with one registry for the whole process, and a process may have many clients.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from headwater.client.addresses import Address
from headwater.client.latency import LatencyHistogram


class ConnectionStatistics:
    """What went over the connections to one address."""

    __slots__ = ("answers", "bytes_in", "bytes_out", "connects", "failures", "in_flight", "latency", "requests")

    def __init__(self) -> None:
        self.requests = 0
        self.answers = 0
        self.in_flight = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.connects = 0
        """Connections that were opened and answered; all but the first are reconnects, or further lanes."""
        self.failures = 0
        """Attempts that failed, and connections that were lost."""
        self.latency = LatencyHistogram()

    def snapshot(self) -> dict[str, Any]:
        """The numbers as they are now."""
        return {
            "requests": self.requests,
            "answers": self.answers,
            "in_flight": self.in_flight,
            "bytes_in": self.bytes_in,
            "bytes_out": self.bytes_out,
            "connects": self.connects,
            "reconnects": max(0, self.connects - 1),
            "failures": self.failures,
            "latency_average_ms": self.latency.average_s * 1e3,
            "latency_p99_ms": self.latency.quantile_s(0.99) * 1e3,
            "latency_max_ms": self.latency.largest_s * 1e3,
        }

    def __repr__(self) -> str:
        return shown(self, self.snapshot())


class ClientStatistics:
    """What one client has done so far.

    >>> statistics = ClientStatistics("billing")
    >>> statistics.metadata_refreshes += 1
    >>> statistics.snapshot()
    {'client_id': 'billing', 'metadata_refreshes': 1, 'metadata_failures': 0, 'connections': {}}
    """

    def __init__(self, client_id: str) -> None:
        self.client_id = client_id
        self.metadata_refreshes = 0
        self.metadata_failures = 0
        self._connections: dict[Address, ConnectionStatistics] = {}

    def of(self, address: Address) -> ConnectionStatistics:
        """The numbers of one address; made when they are asked for first."""
        found = self._connections.get(address)
        if found is None:
            found = self._connections[address] = ConnectionStatistics()
        return found

    def snapshot(self) -> dict[str, Any]:
        """All numbers as they are now; connections by address."""
        return {
            "client_id": self.client_id,
            "metadata_refreshes": self.metadata_refreshes,
            "metadata_failures": self.metadata_failures,
            "connections": {str(address): one.snapshot() for address, one in list(self._connections.items())},
        }

    def __repr__(self) -> str:
        return shown(self, self.snapshot() | {"connections": len(self._connections)})

    def prometheus(self) -> str:
        """All numbers in Prometheus' text format; `# TYPE` once for each metric."""
        return "".join(f"{line}\n" for line in self._lines())

    def _lines(self) -> Iterator[str]:
        client = f'client_id="{escaped(self.client_id)}"'
        yield from _metric("metadata_refreshes_total", "counter", [(client, self.metadata_refreshes)])
        yield from _metric("metadata_failures_total", "counter", [(client, self.metadata_failures)])
        by_labels = {
            f'{client},broker="{escaped(str(address))}"': one for address, one in list(self._connections.items())
        }
        for name, kind, attribute in (
            ("requests_total", "counter", "requests"),
            ("answers_total", "counter", "answers"),
            ("requests_in_flight", "gauge", "in_flight"),
            ("received_bytes_total", "counter", "bytes_in"),
            ("sent_bytes_total", "counter", "bytes_out"),
            ("connects_total", "counter", "connects"),
            ("connection_failures_total", "counter", "failures"),
        ):
            yield from _metric(name, kind, [(labels, getattr(one, attribute)) for labels, one in by_labels.items()])
        yield f"# TYPE {_PREFIX}request_latency_seconds histogram"
        for labels, one in by_labels.items():
            yield from histogram_lines(f"{_PREFIX}request_latency_seconds", labels, one.latency)


def shown(statistics: object, snapshot: Mapping[str, Any]) -> str:
    """One line for people: the numbers of a snapshot, but for those by partition or broker and those of others.

    >>> ClientStatistics("billing")
    ClientStatistics(client_id='billing', metadata_refreshes=0, metadata_failures=0, connections=0)
    """
    numbers = {
        name: round(value, 3) if isinstance(value, float) else value
        for name, value in snapshot.items()
        if not isinstance(value, Mapping)
    }
    return f"{type(statistics).__name__}({', '.join(f'{name}={value!r}' for name, value in numbers.items())})"


_PREFIX = "headwater_client_"


def _metric(name: str, kind: str, samples: Iterable[tuple[str, int]]) -> Iterator[str]:
    yield f"# TYPE {_PREFIX}{name} {kind}"
    for labels, value in samples:
        yield f"{_PREFIX}{name}{{{labels}}} {value}"


def histogram_lines(name: str, labels: str, latency: LatencyHistogram) -> Iterator[str]:
    """The lines of a histogram, but for its `# TYPE`."""
    for bound_s, count in latency.cumulative():
        yield f'{name}_bucket{{{labels},le="{bound_s:g}"}} {count}'
    yield f'{name}_bucket{{{labels},le="+Inf"}} {latency.count}'
    yield f"{name}_sum{{{labels}}} {latency.total_s}"
    yield f"{name}_count{{{labels}}} {latency.count}"


def escaped(value: str) -> str:
    """A value as it stands in a label."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
