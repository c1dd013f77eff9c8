"""One run of `headwater perf consume`: a topic read from its beginning by one member of a group."""

import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from headwater.cli.perf_figures import Throughput
from headwater.cli.perf_screen import live_picture
from headwater.client.blocking.consumer import Consumer


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeJob:
    """What was asked for. Without a number of records: those that are there at the start."""

    bootstrap: str
    topic: str
    records: int | None
    group: str | None
    timeout_s: float
    arrow: bool
    settings: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeAccount:
    """How it went. What came before the first record, joining the group above all, is `join_s`."""

    throughput: Throughput
    group: str
    join_s: float
    interrupted: bool


def run(job: ConsumeJob) -> ConsumeAccount:
    """Reads until it has enough, or nothing new comes; Ctrl-C ends it early."""
    group = job.group or f"headwater-perf-{uuid.uuid4().hex[:8]}"
    settings = {"auto.offset.reset": "earliest", "enable.auto.commit": False, **job.settings}
    records = size_bytes = 0
    interrupted = False
    asked_s = began_s = ended_s = time.perf_counter()
    with Consumer.from_config({"bootstrap.servers": job.bootstrap, "group.id": group, **settings}) as consumer:
        wanted = _there_are(consumer, job.topic) if job.records is None else job.records
        poll = _columns(consumer) if job.arrow else _rows(consumer)
        consumer.subscribe([job.topic])
        try:
            with live_picture("consume", wanted) as picture:
                while records < wanted and time.perf_counter() - ended_s < job.timeout_s:
                    found, found_bytes = poll()
                    if not found:
                        continue
                    if not records:
                        began_s = time.perf_counter()
                    records += found
                    size_bytes += found_bytes
                    ended_s = time.perf_counter()
                    picture.update(records, size_bytes)
        except KeyboardInterrupt:
            interrupted = True
    return ConsumeAccount(
        throughput=Throughput(records=records, size_bytes=size_bytes, seconds=ended_s - began_s),
        group=group,
        join_s=began_s - asked_s,
        interrupted=interrupted,
    )


def _there_are(consumer: Consumer, topic: str) -> int:
    partitions = consumer.partitions_for(topic)
    first, end = consumer.beginning_offsets(partitions), consumer.end_offsets(partitions)
    return sum(end[partition] - first[partition] for partition in partitions)


def _rows(consumer: Consumer) -> Callable[[], tuple[int, int]]:
    def poll() -> tuple[int, int]:
        records = consumer.poll(timeout=1.0)
        return len(records), sum([len(record.value or b"") + len(record.key or b"") for record in records])

    return poll


def _columns(consumer: Consumer) -> Callable[[], tuple[int, int]]:
    from pyarrow import compute

    def size(column: Any) -> int:
        return compute.sum(compute.binary_length(column)).as_py() or 0

    def poll() -> tuple[int, int]:
        table = consumer.poll_arrow(timeout=1.0)
        return table.num_rows, size(table["key"]) + size(table["value"])

    return poll
