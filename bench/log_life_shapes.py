"""The shapes of a log's life: cleaning, recovery and look-ups by time, each on one broker that was given its data."""

import time
from pathlib import Path

from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from confluent_kafka.cimpl import NewTopic

import procstat
import wire
from log_life_data import SEGMENT_BYTES, PreparedLog, cleaned_up_to, log_bytes
from servers import Kind, Running
from shapes import Load, ShapeError, admin, settle

CODECS = {"plain": 0, "lz4": 3}
RECOVERED, RECOVERED_PARTITIONS = "recovered", 8
MANY, FEW = "many", "few"
_DIRTY_RATIO = "min.cleanable.dirty.ratio"
_GIVE_UP_S = 120.0
_LOOKUP_CONNECTIONS = 16

Figures = dict[str, float]


def cleaned_topic(codec: str, number: int) -> str:
    """The topic that the cleaning with this number cleans."""
    return f"{codec}-{number}"


def make_template(kind: Kind, data: Path, cleanings: int) -> Running:
    """A broker that has all topics, empty, and was stopped cleanly: its folder is the template of all others.

    The topics to be cleaned are not dirty enough yet, however dirty they are.
    """
    compacted = {"cleanup.policy": "compact", _DIRTY_RATIO: "1", "segment.bytes": str(SEGMENT_BYTES)}
    kept = {"retention.ms": "-1"}
    new = [
        NewTopic(cleaned_topic(codec, number), 1, 1, config=compacted)
        for codec in CODECS
        for number in range(cleanings)
    ]
    new += [NewTopic(RECOVERED, RECOVERED_PARTITIONS, 1, config=kept)]
    new += [NewTopic(name, 1, 1, config=kept) for name in (MANY, FEW)]
    broker = kind.start(data)
    try:
        broker.wait_until_it_answers()
        _create(broker, new)
        broker.wait_until_led("", len(new) - 1 + RECOVERED_PARTITIONS)
        broker.stop()
    finally:
        broker.kill()
    return broker


def _create(broker: Running, topics: list[NewTopic]) -> None:
    # The client goes before the broker does, else it complains.
    client = admin(broker)
    settle(broker, client.create_topics(topics, operation_timeout=60, request_timeout=60))


def begin_cleaning(broker: Running, topic: str) -> None:
    """Makes a topic that is at all dirty dirty enough; returns when the broker has answered."""
    entry = ConfigEntry(_DIRTY_RATIO, "0.01", incremental_operation=AlterConfigOpType.SET)
    client = admin(broker)
    changed = client.incremental_alter_configs([ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])])
    settle(broker, dict(zip([topic], changed.values(), strict=True)))


def clean(broker: Running, codec: str, number: int, prepared: PreparedLog) -> Figures:
    """One topic becomes dirty enough: from the answer to that until the broker notes that it was cleaned."""
    topic = cleaned_topic(codec, number)
    cpu_seconds = procstat.cpu_seconds(broker.pid)
    begin_cleaning(broker, topic)
    begin = time.perf_counter()
    while cleaned_up_to(broker.data, topic) < prepared.active_offset:
        if time.perf_counter() - begin > _GIVE_UP_S:
            raise ShapeError(f"{broker.name} has not cleaned {topic} within {_GIVE_UP_S:.0f} s:\n{broker.last_words()}")
        time.sleep(0.002)
    seconds = time.perf_counter() - begin
    cpu_seconds = procstat.cpu_seconds(broker.pid) - cpu_seconds
    left_bytes = log_bytes(broker.data / f"{topic}-0")
    if left_bytes > prepared.size_bytes / 3:
        raise ShapeError(f"{broker.name} has left {left_bytes} of {prepared.size_bytes} bytes of {topic}")
    return {
        f"clean_{codec}": prepared.size_bytes / 1e6 / seconds,
        f"clean_cpu_{codec}": cpu_seconds / (prepared.size_bytes / 1e9),
    }


def wait_until_served(broker: Running, end_offset: int) -> tuple[float, float]:
    """Seconds, and CPU-seconds, from the process's start until all partitions of the topic answer with their end."""
    broker.wait_until_it_answers()
    for partition in range(RECOVERED_PARTITIONS):
        while not _ends_at(broker.port, partition, end_offset):
            broker.fail_if_gone(_GIVE_UP_S)
            time.sleep(0.002)
    return time.perf_counter() - broker.begin, procstat.cpu_seconds(broker.pid)


def _ends_at(port: int, partition: int, offset: int) -> bool:
    try:
        answer = wire.ask(port, wire.list_offsets_request(RECOVERED, partition, -1), timeout_s=30.0)
        return wire.listed_offset(answer) == offset
    except OSError:
        return False


def look_up(load: Load, broker: Running, topic: str, prepared: PreparedLog, seconds: float, seed: int) -> Figures:
    """Random times: one connection for the latencies, several for the rate."""
    return load.measure(
        broker,
        "lookups",
        topic=topic,
        first_ms=prepared.first_ms,
        records=prepared.end_offset,
        connections=_LOOKUP_CONNECTIONS,
        warm_s=seconds / 2,
        run_s=seconds,
        seed=seed,
    )
