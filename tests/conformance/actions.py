"""What most cases do first or look at last, as plain calls over the wire: make a topic, produce, fetch.

Apache applies changes of metadata a moment after it has answered; what must be visible before a case goes on
is waited for here, so that the cases read the same for both brokers.
"""

import itertools
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from kio.schema.errors import ErrorCode

from .wire import Wire

T = TypeVar("T")
EARLIEST, LATEST, MAX_TIMESTAMP = -2, -1, -3
TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)
_WAIT_S = 60
_names = itertools.count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic as requests name it."""

    name: str
    id: uuid.UUID


def unique_name(prefix: str = "topic") -> str:
    """A topic name that no other case uses."""
    return f"{prefix}-{next(_names)}-{uuid.uuid4().hex[:8]}"


def eventually(condition: Callable[[], T], what: str = "the condition", within_s: float = _WAIT_S) -> T:
    """Waits for a true value and returns it."""
    deadline = time.monotonic() + within_s
    while not (value := condition()):
        assert time.monotonic() < deadline, f"{what} did not come within {within_s:g} s"
        time.sleep(0.02)
    return value


def create_topic(
    wire: Wire, *, partitions: int = 1, name: str | None = None, configs: Mapping[str, str] | None = None
) -> Topic:
    """Makes a topic and waits until all its partitions have a leader."""
    name = name or unique_name()
    answer = wire.send(
        "create_topics",
        topics=[
            {
                "name": name,
                "num_partitions": partitions,
                "replication_factor": 1,
                "configs": [{"name": key, "value": value} for key, value in (configs or {}).items()],
            }
        ],
    )
    assert answer.topics[0].error_code is ErrorCode.none, answer
    wait_for_partitions(wire, name, partitions)
    return Topic(name=name, id=answer.topics[0].topic_id)


def describe_topic(wire: Wire, name: str) -> Any:
    """The topic's entry in Metadata, without making it."""
    return wire.send("metadata", topics=[{"name": name}], allow_auto_topic_creation=False).topics[0]


def wait_for_partitions(wire: Wire, name: str, partitions: int) -> Any:
    """Waits until the topic has so many partitions with a leader that takes requests."""

    def ready() -> Any:
        found = describe_topic(wire, name)
        if found.error_code is not ErrorCode.none or len(found.partitions) != partitions:
            return None
        offsets = list_offsets(wire, name, {part.partition_index: LATEST for part in found.partitions})
        return found if all(part.error_code is ErrorCode.none for part in offsets.values()) else None

    return eventually(ready, f"{name} with {partitions} partitions")


def produce(
    wire: Wire,
    topic: Topic,
    records: bytes | None,
    *,
    partition: int = 0,
    acks: int = -1,
    version: int | None = None,
) -> Any:
    """Sends these bytes to one partition and returns that partition's answer."""
    answer = wire.send("produce", version, **produce_values(topic, records, partition=partition, acks=acks))
    return answer.responses[0].partition_responses[0]


def produce_values(topic: Topic, records: bytes | None, *, partition: int = 0, acks: int = -1) -> dict[str, Any]:
    """A Produce request for one partition, for any version."""
    data = {"index": partition, "records": records}
    entry = {"name": topic.name, "topic_id": topic.id, "partition_data": [data]}
    return {"acks": acks, "timeout": 10_000, "topic_data": [entry]}


def produce_ok(wire: Wire, topic: Topic, records: bytes, *, partition: int = 0) -> int:
    """Produces with acks=all, which must succeed, and returns the base offset."""
    answer = produce(wire, topic, records, partition=partition)
    assert answer.error_code is ErrorCode.none, answer
    base_offset: int = answer.base_offset
    return base_offset


def fetch(
    wire: Wire,
    topic: Topic,
    offset: int,
    *,
    partition: int = 0,
    version: int | None = None,
    max_wait: int = 0,
    min_bytes: int = 0,
    max_bytes: int = 50_000_000,
    partition_max_bytes: int = 1_048_576,
    isolation_level: int = 0,
    current_leader_epoch: int = -1,
) -> Any:
    """Fetches from one partition without a session and returns that partition's answer."""
    answer = wire.send(
        "fetch",
        version,
        max_wait=max_wait,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        topics=[
            fetch_topic(
                topic,
                {partition: offset},
                partition_max_bytes=partition_max_bytes,
                current_leader_epoch=current_leader_epoch,
            )
        ],
    )
    assert getattr(answer, "error_code", ErrorCode.none) is ErrorCode.none, answer
    return answer.responses[0].partitions[0]


def fetch_topic(topic: Topic, offsets: Mapping[int, int], **more: Any) -> dict[str, Any]:
    """The part of a Fetch request for one topic: partition to offset."""
    limits = {"partition_max_bytes": 1_048_576, **more}
    return {
        "topic": topic.name,
        "topic_id": topic.id,
        "partitions": [
            {"partition": partition, "fetch_offset": offset, **limits} for partition, offset in offsets.items()
        ],
    }


def fetch_all(wire: Wire, topic: Topic, *, partition: int = 0, offset: int = 0) -> bytes:
    """All bytes of a partition from this offset's batch on, up to the end of the log."""
    return bytes(fetch(wire, topic, offset, partition=partition, partition_max_bytes=50_000_000).records or b"")


def list_offsets(
    wire: Wire,
    name: str,
    timestamps: Mapping[int, int],
    *,
    version: int | None = None,
    isolation_level: int = 0,
    current_leader_epoch: int = -1,
) -> dict[int, Any]:
    """Asks for one timestamp per partition, and returns the answers by partition."""
    partitions = [
        {"partition_index": partition, "timestamp": timestamp, "current_leader_epoch": current_leader_epoch}
        for partition, timestamp in timestamps.items()
    ]
    answer = wire.send(
        "list_offsets",
        version,
        replica_id=-1,
        isolation_level=isolation_level,
        topics=[{"name": name, "partitions": partitions}],
        timeout=10_000,
    )
    return {part.partition_index: part for part in answer.topics[0].partitions}


def list_offset(wire: Wire, topic: Topic, timestamp: int, **more: Any) -> Any:
    """The same for partition 0 alone."""
    return list_offsets(wire, topic.name, {0: timestamp}, **more)[0]


def topic_configs(wire: Wire, name: str, *keys: str) -> dict[str, Any]:
    """The entries of DescribeConfigs for a topic, by config name."""
    return describe_configs(wire, TOPIC_RESOURCE, name, *keys)


def describe_configs(wire: Wire, resource_type: int, name: str, *keys: str) -> dict[str, Any]:
    """The entries of DescribeConfigs by config name, with synonyms and documentation."""
    resource = {"resource_type": resource_type, "resource_name": name, "configuration_keys": keys or None}
    answer = wire.send(
        "describe_configs", resources=[resource], include_synonyms=True, include_documentation=True
    ).results[0]
    assert answer.error_code is ErrorCode.none, answer
    return {entry.name: entry for entry in answer.configs}


def alter_incrementally(
    wire: Wire,
    name: str,
    *changes: tuple[str, int, str | None],
    resource_type: int = TOPIC_RESOURCE,
    validate_only: bool = False,
    version: int | None = None,
) -> Any:
    """IncrementalAlterConfigs for one resource, each change as (config, operation, value)."""
    configs = [{"name": key, "config_operation": operation, "value": value} for key, operation, value in changes]
    resource = {"resource_type": resource_type, "resource_name": name, "configs": configs}
    answer = wire.send("incremental_alter_configs", version, resources=[resource], validate_only=validate_only)
    return answer.responses[0]


def wait_for_config(wire: Wire, name: str, config: str, value: str, *, resource_type: int = TOPIC_RESOURCE) -> None:
    """Waits until DescribeConfigs shows this value."""
    eventually(
        lambda: describe_configs(wire, resource_type, name, config)[config].value == value,
        f"{config}={value}",
    )


def new_producer(wire: Wire) -> tuple[int, int]:
    """A producer id and epoch from the broker."""

    def answer() -> Any:
        given = wire.send("init_producer_id", transactional_id=None, transaction_timeout=60_000)
        # A broker that has just started says this until it has its first block of ids.
        return None if given.error_code is ErrorCode.coordinator_load_in_progress else given

    given = eventually(answer, "a producer id")
    assert given.error_code is ErrorCode.none, given
    return given.producer_id, given.producer_epoch
