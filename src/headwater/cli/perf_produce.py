"""One run of `headwater perf produce`: records of random letters, and how long each took to be acknowledged."""

import random
import string
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle, islice
from typing import Any, Final

from headwater.cli.perf_figures import Latency, Throughput
from headwater.cli.perf_screen import Picture, live_picture
from headwater.client.blocking.producer import Producer

_DIFFERENT_VALUES: Final = 100
_SAMPLES: Final = 100_000
_ROWS_AT_ONCE: Final = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceJob:
    """What was asked for. Without a rate it goes as fast as it can."""

    bootstrap: str
    topic: str
    records: int
    size_bytes: int
    records_per_s: int | None
    arrow: bool
    settings: Mapping[str, object]


@dataclass(slots=True, kw_only=True)
class ProduceAccount:
    """How it went. `error` is what the first record failed of that failed."""

    throughput: Throughput
    latency: Latency | None
    failed: int
    error: str | None
    interrupted: bool


@dataclass(slots=True)
class _Deliveries:
    """What is known of the records; written by the producer's thread, read by ours."""

    taken_ms: list[float] = field(default_factory=list)
    failed: int = 0
    error: str | None = None

    def note(self, began_s: float, error: Exception | None, _metadata: object) -> None:
        """One record is settled."""
        if error is not None:
            self.failed += 1
            self.error = self.error or str(error)
        else:
            self.taken_ms.append((time.perf_counter() - began_s) * 1000)


def run(job: ProduceJob) -> ProduceAccount:
    """Sends all, waits until all are acknowledged, and says how it went; Ctrl-C ends it early."""
    deliveries = _Deliveries()
    interrupted = False
    sent = 0
    with (
        Producer.from_config({"bootstrap.servers": job.bootstrap, **job.settings}) as producer,
        live_picture("produce", job.records) as picture,
    ):
        producer.partitions_for(job.topic)  # so that connecting is not part of what is timed
        began_s = time.perf_counter()
        try:
            for sent in _send(producer, job, deliveries, began_s):
                _show(picture, job, sent, deliveries)
            producer.flush()
        except KeyboardInterrupt:
            interrupted = True
        waiting = producer.pending_records
        seconds = time.perf_counter() - began_s
    written = sent - deliveries.failed - waiting
    return ProduceAccount(
        throughput=Throughput(records=written, size_bytes=written * job.size_bytes, seconds=seconds),
        latency=Latency.of(deliveries.taken_ms),
        failed=deliveries.failed,
        error=deliveries.error,
        interrupted=interrupted,
    )


def _send(producer: Producer, job: ProduceJob, deliveries: _Deliveries, began_s: float) -> Iterator[int]:
    """Sends all records, as fast as is asked for; yields how many have been sent."""
    steps = _columns(producer, job, deliveries) if job.arrow else _rows(producer, job, deliveries)
    for sent in steps:
        yield sent
        if job.records_per_s is not None:
            ahead_s = sent / job.records_per_s - (time.perf_counter() - began_s)
            if ahead_s > 0:
                time.sleep(ahead_s)


def _rows(producer: Producer, job: ProduceJob, deliveries: _Deliveries) -> Iterator[int]:
    # Of a large number only some are timed, every batch among them: a call for each would slow what it measures.
    step = max(1, min(job.records // _SAMPLES, 1000))
    values = cycle(values_of(job.size_bytes))
    send, topic = producer.send, job.topic
    sent = 0
    while sent < job.records:
        count = min(step, job.records - sent)
        send(topic, next(values), on_delivery=partial(deliveries.note, time.perf_counter()))
        for value in islice(values, count - 1):
            send(topic, value)
        sent += count
        yield sent


def _columns(producer: Producer, job: ProduceJob, deliveries: _Deliveries) -> Iterator[int]:
    """Tables; each is timed as a whole, until its last row is acknowledged, by a thread that waits for one by one."""
    import pyarrow

    step = min(_ROWS_AT_ONCE, job.records, job.records_per_s or _ROWS_AT_ONCE)
    table = pyarrow.table({"value": list(islice(cycle(values_of(job.size_bytes)), step))})
    sent = 0
    with ThreadPoolExecutor(1) as waiting:
        while sent < job.records:
            count = min(step, job.records - sent)
            began_s = time.perf_counter()
            handle = producer.send_arrow(job.topic, table.slice(0, count), value="value")
            waiting.submit(_note_table, deliveries, began_s, handle, count)
            sent += count
            yield sent


def _note_table(deliveries: _Deliveries, began_s: float, handle: Any, rows: int) -> None:
    error = handle.exception()
    deliveries.note(began_s, error, None)
    if error is not None:
        deliveries.failed += rows - 1


def _show(picture: Picture, job: ProduceJob, sent: int, deliveries: _Deliveries) -> None:
    picture.update(sent, sent * job.size_bytes, deliveries.taken_ms)


def values_of(size_bytes: int) -> list[bytes]:
    """Random letters, always the same, as Kafka's own tool sends them: compression finds something, not everything."""
    chance = random.Random(0)  # noqa: S311 (nothing is kept secret by it)
    letters = string.ascii_uppercase
    return ["".join(chance.choices(letters, k=size_bytes)).encode() for _ in range(_DIFFERENT_VALUES)]
