"""One run of `headwater perf latency`: one record under way at a time, from its send until a consumer has it."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import cycle

from headwater.cli.perf_figures import Latency, Throughput
from headwater.cli.perf_produce import values_of
from headwater.cli.perf_screen import live_picture
from headwater.client.blocking.consumer import Consumer
from headwater.client.blocking.producer import Producer
from headwater.client.errors import TimedOutError

_LOST_AFTER_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyJob:
    """What was asked for. `settings` are the producer's."""

    bootstrap: str
    topic: str
    records: int
    size_bytes: int
    settings: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyAccount:
    """How it went."""

    throughput: Throughput
    latency: Latency | None
    interrupted: bool


def run(job: LatencyJob) -> LatencyAccount:
    """Sends and reads one record after the other; Ctrl-C ends it early."""
    taken_ms: list[float] = []
    interrupted = False
    values = cycle(values_of(job.size_bytes))
    with (
        Producer.from_config({"bootstrap.servers": job.bootstrap, "linger.ms": 0, **job.settings}) as producer,
        Consumer.from_config({"bootstrap.servers": job.bootstrap}) as consumer,
        live_picture("latency", job.records) as picture,
    ):
        _begin_at_the_end(consumer, job.topic)
        began_s = time.perf_counter()
        try:
            while len(taken_ms) < job.records:
                value = next(values)
                sent_s = time.perf_counter()
                producer.send(job.topic, value)
                _receive(consumer, value)
                taken_ms.append((time.perf_counter() - sent_s) * 1000)
                picture.update(len(taken_ms), len(taken_ms) * job.size_bytes, taken_ms)
        except KeyboardInterrupt:
            interrupted = True
        seconds = time.perf_counter() - began_s
    return LatencyAccount(
        throughput=Throughput(records=len(taken_ms), size_bytes=len(taken_ms) * job.size_bytes, seconds=seconds),
        latency=Latency.of(taken_ms),
        interrupted=interrupted,
    )


def _begin_at_the_end(consumer: Consumer, topic: str) -> None:
    partitions = consumer.partitions_for(topic)
    consumer.assign(partitions)
    for partition, end in consumer.end_offsets(partitions).items():
        consumer.seek(partition, end)


def _receive(consumer: Consumer, value: bytes) -> None:
    gives_up_at_s = time.monotonic() + _LOST_AFTER_S
    while time.monotonic() < gives_up_at_s:
        for record in consumer.poll(timeout=1.0):
            if record.value == value:
                return
    raise TimedOutError(f"a record was sent but did not come back within {_LOST_AFTER_S:.0f} s")
