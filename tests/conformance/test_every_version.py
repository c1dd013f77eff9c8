"""Every version of every served API: the same request to both brokers brings the same answer, field by field.

Only what must differ is masked: names and ids given by chance, addresses, the moment, the words of errors.
"""

import contextlib
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from peers.apache import ApacheKafka
from peers.headwater import HeadwaterProcess

from . import group_version_cases, transaction_version_cases
from .actions import (
    APPEND,
    BROKER_RESOURCE,
    DELETE,
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    SET,
    SUBTRACT,
    TOPIC_RESOURCE,
    Topic,
    create_topic,
    eventually,
    fetch_topic,
    new_producer,
    produce_ok,
    produce_values,
    topic_configs,
    unique_name,
)
from .batches import AN_HOUR_AGO_MS, Record, batch
from .comparing import CASES, case, comparable, differences
from .wire import APIS, Wire

# Importing them registers their cases.
MORE_CASES = (group_version_cases, transaction_version_cases)


def timed_topic(wire: Wire) -> Topic:
    topic = create_topic(wire)
    for first in (0, 2):
        records = (Record(key=b"k", value=b"%d" % n, timestamp_ms=AN_HOUR_AGO_MS + n) for n in (first, first + 1))
        produce_ok(wire, topic, batch(*records))
    return topic


@case
def produce(wire: Wire, version: int) -> Any:
    topic = create_topic(wire)
    answers = []
    for records, acks in [(batch(b"v"), -1), (batch(b"w", b"x"), 1), (batch(b"y", crc=1), -1)]:
        answers.append(wire.send("produce", version, **produce_values(topic, records, acks=acks)))
    answers.append(wire.send("produce", version, **produce_values(topic, batch(b"v"), partition=9)))
    return [comparable(answer, topic) for answer in answers]


@case
def fetch(wire: Wire, version: int) -> Any:
    topic = timed_topic(wire)
    limits = {"max_wait": 0, "min_bytes": 0, "max_bytes": 10_000_000}
    answers = [
        wire.send("fetch", version, **limits, isolation_level=isolation, topics=[fetch_topic(topic, offsets)])
        for isolation in (0, 1)
        for offsets in ({0: 0}, {0: 3}, {0: 4}, {0: 99}, {0: 0, 5: 0})
    ]
    return [comparable(answer, topic) for answer in answers]


@case
def list_offsets(wire: Wire, version: int) -> Any:
    topic = timed_topic(wire)
    answers = []
    times = [AN_HOUR_AGO_MS + after_ms for after_ms in (-5, 1, 99)]
    for timestamp in (EARLIEST, LATEST, *times, MAX_TIMESTAMP, -4, -5):
        partitions = [{"partition_index": index, "timestamp": timestamp} for index in (0, 7)]
        topics = [{"name": topic.name, "partitions": partitions}]
        answer = wire.send("list_offsets", version, replica_id=-1, topics=topics, timeout=1000)
        answers.append(comparable(answer, topic))
        answers[-1]["topics"][0]["partitions"].sort(key=lambda found: found["partition_index"])
    return answers


@case
def metadata(wire: Wire, version: int) -> Any:
    topic = create_topic(wire)
    asked = [{"name": topic.name, "topic_id": None}]
    if version >= 4:
        asked.append({"name": "absent-topic", "topic_id": None})
    answer = wire.send("metadata", version, topics=asked, allow_auto_topic_creation=False)
    result = comparable(answer, topic)
    result["topics"].sort(key=lambda found: found["name"])
    return result


@case
def api_versions(wire: Wire, version: int) -> Any:
    answer = wire.send("api_versions", version, client_software_name="wire", client_software_version="1.0")
    served = {key: (low, high) for key, low, high in APIS.values()}
    listed = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
    # Apache lists Produce from 0 for the sake of old clients, although it takes it from 3 on.
    result = [answer.error_code.name, {key: listed.get(key) for key in served}]
    if version >= 3:
        # Java clients look here for whether a transaction's end raises the epoch, and for the new group protocol.
        levels = {one.name: (one.min_version_level, one.max_version_level) for one in answer.finalized_features}
        result.append({name: levels.get(name) for name in ("group.version", "transaction.version")})
    return result


@case
def create_topics(wire: Wire, version: int) -> Any:
    taken = create_topic(wire)
    name = unique_name()
    entry = {"name": name, "num_partitions": 2, "replication_factor": 1}
    entry["configs"] = [{"name": "flush.ms", "value": "5"}]
    bad = {"name": "bad name", "num_partitions": 1, "replication_factor": 1}
    again = {"name": taken.name, "num_partitions": 1, "replication_factor": 1}
    answers = [
        wire.send("create_topics", version, topics=[one], validate_only=trial, timeout=10_000)
        for one, trial in [(entry, True), (entry, False), (bad, False), (again, False)]
    ]
    results = [comparable(answer, taken) for answer in answers]
    for result in results:
        for topic in result["topics"]:
            topic["name"] = topic["name"].replace(name, "<new>")
            topic.pop("topic_id", None)
            # Which configs exist is compared elsewhere; here, that they are listed, and how a set one looks.
            listed = topic.pop("configs", None)
            topic["flush.ms"] = [config for config in listed or () if config["name"] == "flush.ms"]
    return results


@case
def delete_topics(wire: Wire, version: int) -> Any:
    topic = create_topic(wire)
    names = [topic.name, "absent-topic"]
    asked: dict[str, Any] = {"topic_names": names}
    if version >= 6:
        asked = {"topics": [{"name": name, "topic_id": None} for name in names]}
    result = comparable(wire.send("delete_topics", version, **asked, timeout=10_000), topic)
    result["responses"].sort(key=lambda found: found["name"])
    return result


@case
def delete_records(wire: Wire, version: int) -> Any:
    topic = timed_topic(wire)
    partitions = [{"partition_index": 0, "offset": 3}, {"partition_index": 6, "offset": 0}]
    answer = wire.send("delete_records", version, topics=[{"name": topic.name, "partitions": partitions}], timeout=5000)
    result = comparable(answer, topic)
    result["topics"][0]["partitions"].sort(key=lambda found: found["partition_index"])
    return result


@case
def offset_for_leader_epoch(wire: Wire, version: int) -> Any:
    topic = timed_topic(wire)
    partitions = [{"partition": index, "leader_epoch": epoch} for index, epoch in ((0, 0), (5, 0))]
    answers = [
        wire.send(
            "offset_for_leader_epoch",
            version,
            replica_id=-1,
            topics=[{"topic": topic.name, "partitions": partitions}],
        )
    ]
    return [comparable(answer, topic) for answer in answers]


COMPARED_CONFIGS = (
    "cleanup.policy",
    "compression.type",
    "flush.ms",
    "max.message.bytes",
    "message.timestamp.type",
    "min.cleanable.dirty.ratio",
    "preallocate",
    "segment.bytes",
)


@case
def describe_configs(wire: Wire, version: int) -> Any:
    topic = create_topic(wire, configs={"flush.ms": "77"})
    asked = {
        "resource_type": TOPIC_RESOURCE,
        "resource_name": topic.name,
        "configuration_keys": COMPARED_CONFIGS,
    }
    absent = {"resource_type": TOPIC_RESOURCE, "resource_name": "absent-topic", "configuration_keys": None}
    of_broker = {
        "resource_type": BROKER_RESOURCE,
        "resource_name": "1",
        "configuration_keys": ["num.partitions", "message.max.bytes", "log.cleanup.policy"],
    }
    answer = wire.send(
        "describe_configs",
        version,
        resources=[asked, absent, of_broker],
        include_synonyms=True,
        include_documentation=True,
    )
    result = comparable(answer, topic)
    for found in result["results"]:
        found["configs"].sort(key=lambda config: config["name"])
    result["results"].sort(key=lambda found: (found["resource_type"], found["resource_name"]))
    return result


def alter_request(topic: Topic, *configs: Mapping[str, Any]) -> dict[str, Any]:
    resources = [
        {"resource_type": TOPIC_RESOURCE, "resource_name": name, "configs": list(configs)}
        for name in (topic.name, "absent-topic")
    ]
    return {"resources": resources, "validate_only": False}


@case
def alter_configs(wire: Wire, version: int) -> Any:
    topic = create_topic(wire, configs={"flush.ms": "77"})
    answer = wire.send("alter_configs", version, **alter_request(topic, {"name": "segment.ms", "value": "12345"}))
    eventually(lambda: topic_configs(wire, topic.name, "segment.ms")["segment.ms"].value == "12345", "the change")
    return comparable(answer, topic), own_configs(wire, topic)


@case
def incremental_alter_configs(wire: Wire, version: int) -> Any:
    topic = create_topic(wire, configs={"flush.ms": "77", "cleanup.policy": "compact"})
    change = alter_request(
        topic,
        {"name": "segment.ms", "value": "12345", "config_operation": SET},
        {"name": "flush.ms", "value": None, "config_operation": DELETE},
        {"name": "cleanup.policy", "value": "delete", "config_operation": APPEND},
    )
    first = wire.send("incremental_alter_configs", version, **change)
    eventually(lambda: topic_configs(wire, topic.name, "segment.ms")["segment.ms"].value == "12345", "the change")
    minus = {"name": "cleanup.policy", "value": "compact", "config_operation": SUBTRACT}
    second = wire.send("incremental_alter_configs", version, **alter_request(topic, minus))
    eventually(lambda: topic_configs(wire, topic.name, "cleanup.policy")["cleanup.policy"].value == "delete", "that")
    results = [comparable(first, topic), comparable(second, topic)]
    for result in results:
        result["responses"].sort(key=lambda found: found["resource_name"])
    return results, own_configs(wire, topic)


def own_configs(wire: Wire, topic: Topic) -> dict[str, str]:
    return {name: entry.value for name, entry in topic_configs(wire, topic.name).items() if entry.config_source == 1}


@case
def describe_log_dirs(wire: Wire, version: int) -> Any:
    topic = timed_topic(wire)
    asked = [{"topic": topic.name, "partitions": [0]}]
    return comparable(wire.send("describe_log_dirs", version, topics=asked), topic)


@case
def alter_replica_log_dirs(wire: Wire, version: int) -> Any:
    topic = create_topic(wire)
    ours = wire.send("describe_log_dirs", topics=[]).results[0].log_dir
    answers = []
    for path, name, partitions in [
        (ours, topic.name, [0]),
        (ours, topic.name, [9]),
        (ours, "absent-topic", [0]),
        ("/nowhere", topic.name, [0]),
        ("relative", topic.name, [0]),
    ]:
        entry = {"path": path, "topics": [{"name": name, "partitions": partitions}]}
        answers.append(comparable(wire.send("alter_replica_log_dirs", version, dirs=[entry]), topic))
    return answers


@case
def create_partitions(wire: Wire, version: int) -> Any:
    topic = create_topic(wire)
    answers = []
    for name, count in [(topic.name, 3), (topic.name, 1), ("absent-topic", 2)]:
        entry = {"name": name, "count": count, "assignments": None}
        answers.append(wire.send("create_partitions", version, topics=[entry], timeout=5000, validate_only=True))
        answers.append(wire.send("create_partitions", version, topics=[entry], timeout=5000, validate_only=False))
    return [comparable(answer, topic) for answer in answers]


@case
def describe_cluster(wire: Wire, version: int) -> Any:
    return comparable(wire.send("describe_cluster", version, include_cluster_authorized_operations=True))


@case
def describe_producers(wire: Wire, version: int) -> Any:
    topic = create_topic(wire)
    producer_id, epoch = new_producer(wire)
    produce_ok(wire, topic, batch(b"a", b"b", producer_id=producer_id, producer_epoch=epoch, base_sequence=0))
    asked = [{"name": topic.name, "partition_indexes": [0, 3]}]
    result = comparable(wire.send("describe_producers", version, topics=asked), topic)
    result["topics"][0]["partitions"].sort(key=lambda found: found["partition_index"])
    return result


@case
def describe_topic_partitions(wire: Wire, version: int) -> Any:
    topic = create_topic(wire, partitions=3)
    asked = [{"name": topic.name}, {"name": "absent-topic"}]
    return comparable(wire.send("describe_topic_partitions", version, topics=asked, response_partition_limit=2), topic)


EVERY_VERSION = [(api, version) for api, (_, oldest, newest) in APIS.items() for version in range(oldest, newest + 1)]


def test_every_api_has_its_case() -> None:
    assert set(CASES) == set(APIS)


@pytest.mark.peer
@pytest.mark.parametrize(("api", "version"), EVERY_VERSION)
def test_the_answer_is_apaches(apache: ApacheKafka, headwater: HeadwaterProcess, api: str, version: int) -> None:
    with Wire(headwater.bootstrap) as ours, Wire(apache.bootstrap) as theirs:
        got, expected = CASES[api](ours, version), CASES[api](theirs, version)
    assert "\n".join(differences(got, expected)) == ""


def test_headwater_advertises_exactly_the_apis_it_serves(headwater: HeadwaterProcess) -> None:
    with Wire(headwater.bootstrap) as wire:
        answer = wire.send("api_versions", client_software_name="wire", client_software_version="1")
        listed = {api.api_key for api in answer.api_keys}
    assert listed == {key for key, _, _ in APIS.values()}


@contextlib.contextmanager
def connected(broker: Any) -> Iterator[Wire]:
    with Wire(broker.bootstrap, timeout_s=5) as wire:
        yield wire


def test_unknown_topic_ids_look_alike(apache: ApacheKafka, headwater: HeadwaterProcess) -> None:
    absent = Topic(name="absent-topic", id=uuid.UUID(int=12345))
    answers = []
    for broker in (apache, headwater):
        with connected(broker) as wire:
            fetched = wire.send("fetch", max_wait=0, min_bytes=0, topics=[fetch_topic(absent, {0: 0})])
            produced = wire.send("produce", **produce_values(absent, batch(b"v")))
            answers.append([comparable(fetched), comparable(produced)])
    assert "\n".join(differences(answers[1], answers[0])) == ""
    assert answers[0][0]["responses"][0]["partitions"][0]["error_code"] == ErrorCode.unknown_topic_id.name
