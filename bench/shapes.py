"""The shapes of load: each runs against one broker, in a worker process, and returns figures by metric."""

import json
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

import procstat
from servers import Running

MANY_PREFIX = "many"
_WORKER = Path(__file__).with_name("worker.py")


class ShapeError(RuntimeError):
    """A shape could not be run to its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much load makes one figure."""

    rounds: int
    small_messages: int
    large_messages: int
    request_seconds: float
    latency_seconds: float
    warm_gigabytes: int
    warm_request_seconds: int
    start_rounds: int
    many_rounds: int
    many_partitions: int = 5000


FULL = Sizes(
    rounds=5,
    small_messages=4_000_000,
    large_messages=1_000_000,
    request_seconds=6,
    latency_seconds=6,
    warm_gigabytes=4,
    warm_request_seconds=30,
    start_rounds=5,
    many_rounds=1,
)
QUICK = Sizes(
    rounds=2,
    small_messages=1_500_000,
    large_messages=500_000,
    request_seconds=3,
    latency_seconds=3,
    warm_gigabytes=1,
    warm_request_seconds=8,
    start_rounds=2,
    many_rounds=1,
)


class Load:
    """Runs shapes against brokers; `compiled` is the folder of the compiled load generator, if any."""

    def __init__(self, compiled: Path | None) -> None:
        self._compiled = str(compiled) if compiled else None

    def measure(self, broker: Running, kind: str, **task: object) -> dict[str, float]:
        """Runs a task of `worker.py` in a process of its own."""
        request = json.dumps({"kind": kind, "compiled": self._compiled, "port": broker.port, **task})
        ran = subprocess.run(
            [sys.executable, str(_WORKER), request], capture_output=True, text=True, timeout=300, check=False
        )
        if ran.returncode:
            last_lines = "\n".join(ran.stderr.splitlines()[-6:])
            raise ShapeError(f"'{kind}' failed:\n{last_lines}\n{broker.name} said:\n{broker.last_words()}")
        result: dict[str, float] = json.loads(ran.stdout.splitlines()[-1])
        return result

    def bulk(self, broker: Running, *, messages: int, value_bytes: int) -> dict[str, float]:
        """Shapes (a), (b) and (e): librdkafka in, then the same data out; twice, of which the second time counts.

        Without the first time, whichever broker is first in a round was seen to take up to four times the CPU for the
        same work. The cause is not established; see docs/benchmarks/notes.md.
        """
        self._bulk_once(broker, messages=messages, value_bytes=value_bytes)
        return self._bulk_once(broker, messages=messages, value_bytes=value_bytes)

    def _bulk_once(self, broker: Running, *, messages: int, value_bytes: int) -> dict[str, float]:
        figures: dict[str, float] = {}
        gigabytes = messages * value_bytes / 1e9
        with topic(broker, partitions=1) as name:
            for direction, word in (("produce", "in"), ("fetch", "out")):
                ran = self.measure(
                    broker,
                    direction,
                    topic=name,
                    messages=messages,
                    value_bytes=value_bytes,
                    broker_pid=broker.pid,
                    settings={},
                )
                if value_bytes == 100:
                    figures[f"{direction}_100"] = messages / ran["seconds"]
                else:
                    figures[f"{direction}_1k"] = gigabytes * 1000 / ran["seconds"]
                    figures[f"cpu_{word}"] = ran["cpu_seconds"] / gigabytes
        return figures

    def small_requests(self, broker: Running, *, seconds: float) -> dict[str, float]:
        """Shape (c): 64 connections over 8 partitions, one 100 B record at a time each."""
        with topic(broker, partitions=8) as name:
            ran = self.measure(
                broker,
                "small_requests",
                topic=name,
                partitions=8,
                connections=64,
                value_bytes=100,
                warm_s=0.5,
                run_s=seconds,
            )
        return {"small_rate": ran["rate"], "small_p50": ran["p50_ms"], "small_p99": ran["p99_ms"]}

    def end_to_end(self, broker: Running, *, seconds: float) -> dict[str, float]:
        """Shape (d): 1,000 records of 100 B a second, a long poll waiting for them."""
        with topic(broker, partitions=1) as name:
            ran = self.measure(
                broker,
                "end_to_end",
                topic=name,
                rate=1000,
                value_bytes=100,
                warm_s=0.5,
                run_s=seconds,
            )
        return {"e2e_p50": ran["p50_ms"], "e2e_p99": ran["p99_ms"]}

    def memory(self, broker: Running) -> dict[str, float]:
        """Shape (f): what the process holds now."""
        return {"memory": procstat.memory_bytes(broker.pid) / 1e6}


def admin(broker: Running) -> AdminClient:
    """A client for topics and settings; it must outlive its futures."""
    return AdminClient({"bootstrap.servers": f"127.0.0.1:{broker.port}", "socket.timeout.ms": 120_000, "log_level": 3})


def settle(broker: Running, futures: "dict[str, Future[None]]") -> None:
    """Waits until topics are made, changed or deleted."""
    for name, future in futures.items():
        try:
            future.result()
        except KafkaException as error:
            said = broker.last_words()
            raise ShapeError(f"topic {name} was not made or changed: {error}\n{broker.name} said:\n{said}") from None


def _create(broker: Running, topics: dict[str, int]) -> None:
    new = [NewTopic(name, num_partitions=count, replication_factor=1) for name, count in topics.items()]
    client = admin(broker)
    settle(broker, client.create_topics(new, operation_timeout=60, request_timeout=120))


@contextmanager
def topic(broker: Running, *, partitions: int) -> Iterator[str]:
    """A fresh topic; afterwards it is deleted, and its files are gone before the next figure is taken."""
    name = f"bench-{uuid.uuid4().hex[:8]}"
    _create(broker, {name: partitions})
    yield name
    client = admin(broker)
    settle(broker, client.delete_topics([name], operation_timeout=30))
    give_up = time.monotonic() + 30
    while any(broker.data.glob(f"{name}-*")):
        if time.monotonic() > give_up:
            raise ShapeError(f"{broker.name} still has the files of deleted topic {name} after 30 s")
        time.sleep(0.05)


def fill_many(broker: Running, partitions: int) -> None:
    """Shape (h), before the stop: topics of 100 partitions, one small record in each partition."""
    from confluent_kafka import Producer

    per_topic = 100
    names = [f"{MANY_PREFIX}-{number:02}" for number in range(partitions // per_topic)]
    # In portions, as one request for thousands of partitions outlasts some time limits.
    for first in range(0, len(names), 10):
        _create(broker, dict.fromkeys(names[first : first + 10], per_topic))
    broker.wait_until_led(MANY_PREFIX, partitions)
    failures: list[str] = []
    producer = Producer({"bootstrap.servers": f"127.0.0.1:{broker.port}", "acks": "all", "linger.ms": 50})
    for name in names:
        for partition in range(per_topic):
            producer.produce(
                name,
                b"x" * 100,
                partition=partition,
                on_delivery=lambda error, _: failures.append(str(error)) if error else None,
            )
        producer.poll(0)
    if producer.flush(120) or failures:
        raise ShapeError(f"the {partitions} partitions were not all filled: {failures[:1]}")


def many_after_start(broker: Running, partitions: int) -> dict[str, float]:
    """Shape (h), after the clean stop: until all partitions are served again, and what that holds."""
    seconds = broker.wait_until_led(MANY_PREFIX, partitions)
    return {
        "many_start": seconds,
        "many_memory": procstat.memory_bytes(broker.pid) / 1e6,
        "many_files": procstat.open_files(broker.pid),
    }
