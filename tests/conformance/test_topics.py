"""CreateTopics, DeleteTopics and CreatePartitions."""

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from .actions import (
    create_topic,
    describe_topic,
    eventually,
    fetch_all,
    produce_ok,
    unique_name,
    wait_for_partitions,
)
from .batches import batch, values
from .wire import Wire

# A config's source in answers: set on the topic, set in the broker's file, or the default.
FROM_TOPIC, FROM_FILE, FROM_DEFAULT = 1, 4, 5


def create(
    wire: Wire,
    name: str,
    *,
    partitions: int = 1,
    replication_factor: int = 1,
    assignments: Sequence[Mapping[str, Any]] = (),
    configs: Mapping[str, str | None] | None = None,
    validate_only: bool = False,
    version: int | None = None,
) -> Any:
    topic = {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": replication_factor,
        "assignments": assignments,
        "configs": [{"name": key, "value": value} for key, value in (configs or {}).items()],
    }
    return wire.send("create_topics", version, topics=[topic], validate_only=validate_only).topics[0]


def exists(wire: Wire, name: str) -> bool:
    return describe_topic(wire, name).error_code is ErrorCode.none


def node_id(wire: Wire) -> int:
    node: int = wire.send("metadata", topics=[]).brokers[0].node_id
    return node


def test_the_answer_describes_the_new_topic(wire: Wire) -> None:
    name = unique_name()
    answer = create(wire, name, partitions=3, configs={"retention.ms": "12345"})
    assert (answer.error_code, answer.error_message) == (ErrorCode.none, None)
    assert (answer.name, answer.num_partitions, answer.replication_factor) == (name, 3, 1)
    assert answer.topic_id not in (None, uuid.UUID(int=0))
    configs = {config.name: config for config in answer.configs}
    assert (configs["retention.ms"].value, configs["retention.ms"].config_source) == ("12345", FROM_TOPIC)
    assert (configs["segment.ms"].value, configs["segment.ms"].config_source) == ("604800000", FROM_DEFAULT)
    assert len(wait_for_partitions(wire, name, 3).partitions) == 3


def test_validate_only_tells_but_does_not_make(wire: Wire) -> None:
    name = unique_name()
    answer = create(wire, name, partitions=3, validate_only=True)
    assert (answer.error_code, answer.num_partitions, answer.replication_factor) == (ErrorCode.none, 3, 1)
    assert not exists(wire, name)


@pytest.mark.parametrize("name", ["", ".", "..", "with space", "a/b", "ünïcode", "x" * 250])
def test_a_bad_name_is_refused(wire: Wire, name: str) -> None:
    answer = create(wire, name)
    assert answer.error_code is ErrorCode.invalid_topic_exception
    assert answer.error_message


def test_the_longest_name_is_taken(wire: Wire) -> None:
    name = unique_name().ljust(249, "x")
    assert create(wire, name).error_code is ErrorCode.none


def test_an_existing_topic_is_refused(wire: Wire) -> None:
    topic = create_topic(wire)
    answer = create(wire, topic.name)
    assert answer.error_code is ErrorCode.topic_already_exists
    assert topic.name in answer.error_message


def test_names_that_differ_only_in_dot_and_underscore_collide(wire: Wire) -> None:
    stem = unique_name()
    create_topic(wire, name=f"{stem}.a")
    assert create(wire, f"{stem}_a").error_code is ErrorCode.invalid_topic_exception


def test_the_same_name_twice_in_a_request_is_an_invalid_request(wire: Wire) -> None:
    name = unique_name()
    entry = {"name": name, "num_partitions": 1, "replication_factor": 1}
    answer = wire.send("create_topics", topics=[entry, entry])
    assert {topic.error_code for topic in answer.topics} == {ErrorCode.invalid_request}
    assert not exists(wire, name)


def test_minus_1_means_the_brokers_default(wire: Wire) -> None:
    name = unique_name()
    answer = create(wire, name, partitions=-1, replication_factor=-1)
    assert (answer.error_code, answer.num_partitions, answer.replication_factor) == (ErrorCode.none, 2, 1)


@pytest.mark.parametrize("partitions", [0, -2])
def test_a_number_of_partitions_below_1_is_refused(wire: Wire, partitions: int) -> None:
    answer = create(wire, unique_name(), partitions=partitions)
    assert answer.error_code is ErrorCode.invalid_partitions
    assert answer.error_message


@pytest.mark.parametrize("replication_factor", [0, -2, 2])
def test_a_replication_factor_that_cannot_be_is_refused(wire: Wire, replication_factor: int) -> None:
    name = unique_name()
    answer = create(wire, name, replication_factor=replication_factor)
    assert answer.error_code is ErrorCode.invalid_replication_factor
    assert answer.error_message
    assert not exists(wire, name)


def test_partitions_can_be_assigned_by_hand(wire: Wire) -> None:
    name = unique_name()
    assignments = [{"partition_index": index, "broker_ids": [node_id(wire)]} for index in (1, 0)]
    answer = create(wire, name, partitions=-1, replication_factor=-1, assignments=assignments)
    assert (answer.error_code, answer.num_partitions, answer.replication_factor) == (ErrorCode.none, 2, 1)
    wait_for_partitions(wire, name, 2)


def test_an_assignment_to_an_unknown_broker_is_refused(wire: Wire) -> None:
    assignments = [{"partition_index": 0, "broker_ids": [7654]}]
    answer = create(wire, unique_name(), partitions=-1, replication_factor=-1, assignments=assignments)
    assert answer.error_code is ErrorCode.invalid_replica_assignment


def test_an_assignment_with_a_gap_is_refused(wire: Wire) -> None:
    assignments = [{"partition_index": index, "broker_ids": [node_id(wire)]} for index in (0, 2)]
    answer = create(wire, unique_name(), partitions=-1, replication_factor=-1, assignments=assignments)
    assert answer.error_code is ErrorCode.invalid_replica_assignment


def test_an_assignment_and_a_number_contradict_each_other(wire: Wire) -> None:
    assignments = [{"partition_index": 0, "broker_ids": [node_id(wire)]}]
    answer = create(wire, unique_name(), partitions=1, replication_factor=-1, assignments=assignments)
    assert answer.error_code is ErrorCode.invalid_request


@pytest.mark.parametrize(
    ("config", "value"),
    [
        ("no.such.config", "1"),
        ("retention.ms", "soon"),
        ("cleanup.policy", "burn"),
        ("max.message.bytes", "-5"),
        ("min.cleanable.dirty.ratio", "1.5"),
        ("segment.bytes", "10"),
        ("retention.ms", None),
    ],
)
def test_a_bad_config_is_refused(wire: Wire, config: str, value: str | None) -> None:
    name = unique_name()
    answer = create(wire, name, configs={config: value})
    assert answer.error_code is ErrorCode.invalid_config
    assert config in answer.error_message
    assert not exists(wire, name)


def delete(wire: Wire, **topic: Any) -> Any:
    return wire.send("delete_topics", topics=[topic], timeout=10_000).responses[0]


def test_a_topic_is_deleted_by_name(wire: Wire) -> None:
    topic = create_topic(wire)
    answer = delete(wire, name=topic.name, topic_id=None)
    assert (answer.error_code, answer.name, answer.topic_id) == (ErrorCode.none, topic.name, topic.id)
    eventually(lambda: not exists(wire, topic.name), "the deletion")


def test_a_topic_is_deleted_by_id(wire: Wire) -> None:
    topic = create_topic(wire)
    answer = delete(wire, name=None, topic_id=topic.id)
    assert (answer.error_code, answer.name, answer.topic_id) == (ErrorCode.none, topic.name, topic.id)
    eventually(lambda: not exists(wire, topic.name), "the deletion")


def test_an_unknown_topic_cannot_be_deleted(wire: Wire) -> None:
    assert delete(wire, name=unique_name(), topic_id=None).error_code is ErrorCode.unknown_topic_or_partition
    assert delete(wire, name=None, topic_id=uuid.uuid4()).error_code is ErrorCode.unknown_topic_id


def test_both_name_and_id_or_neither_are_an_invalid_request(wire: Wire) -> None:
    topic = create_topic(wire)
    with_both = wire.send("delete_topics", topics=[{"name": topic.name, "topic_id": topic.id}], timeout=10_000)
    assert with_both.responses[0].error_code is ErrorCode.invalid_request
    with_neither = wire.send("delete_topics", topics=[{"name": None, "topic_id": None}], timeout=10_000)
    assert with_neither.responses[0].error_code is ErrorCode.invalid_request


def test_several_topics_are_deleted_in_one_old_request(wire: Wire) -> None:
    topics = [create_topic(wire) for _ in range(2)]
    names = [topic.name for topic in topics] + [unique_name("absent")]
    answer = wire.send("delete_topics", 5, topic_names=names, timeout=10_000)
    assert {found.name: found.error_code for found in answer.responses} == {
        names[0]: ErrorCode.none,
        names[1]: ErrorCode.none,
        names[2]: ErrorCode.unknown_topic_or_partition,
    }


def test_a_topic_made_anew_is_empty(wire: Wire) -> None:
    topic = create_topic(wire)
    produce_ok(wire, topic, batch(b"old"))
    delete(wire, name=topic.name, topic_id=None)
    eventually(lambda: not exists(wire, topic.name), "the deletion")
    again = create_topic(wire, name=topic.name)
    assert produce_ok(wire, again, batch(b"new")) == 0
    assert values(fetch_all(wire, again)) == [b"new"]


def add_partitions(
    wire: Wire,
    name: str,
    count: int,
    *,
    assignments: Sequence[Mapping[str, Any]] | None = None,
    validate_only: bool = False,
) -> Any:
    topic = {"name": name, "count": count, "assignments": assignments}
    answer = wire.send("create_partitions", topics=[topic], timeout=10_000, validate_only=validate_only)
    (result,) = answer.results
    assert result.name == name
    return result


def test_trap_create_partitions_answers_for_each_topic_and_adds_them(wire: Wire) -> None:
    topic = create_topic(wire)
    produce_ok(wire, topic, batch(b"kept"))
    answer = add_partitions(wire, topic.name, 4)
    assert (answer.error_code, answer.error_message) == (ErrorCode.none, None)
    wait_for_partitions(wire, topic.name, 4)
    assert produce_ok(wire, topic, batch(b"new"), partition=3) == 0
    assert values(fetch_all(wire, topic)) == [b"kept"]


@pytest.mark.parametrize("count", [2, 1, 0, -1])
def test_partitions_are_never_taken_away(wire: Wire, count: int) -> None:
    topic = create_topic(wire, partitions=2)
    answer = add_partitions(wire, topic.name, count)
    assert answer.error_code is ErrorCode.invalid_partitions
    assert answer.error_message
    assert len(describe_topic(wire, topic.name).partitions) == 2


def test_adding_partitions_can_be_tried_without_doing_it(wire: Wire) -> None:
    topic = create_topic(wire)
    assert add_partitions(wire, topic.name, 3, validate_only=True).error_code is ErrorCode.none
    assert len(describe_topic(wire, topic.name).partitions) == 1


def test_new_partitions_can_be_assigned_by_hand(wire: Wire) -> None:
    topic = create_topic(wire)
    answer = add_partitions(wire, topic.name, 3, assignments=[{"broker_ids": [node_id(wire)]}] * 2)
    assert answer.error_code is ErrorCode.none
    wait_for_partitions(wire, topic.name, 3)


def test_assignments_must_be_as_many_as_new_partitions(wire: Wire) -> None:
    topic = create_topic(wire)
    answer = add_partitions(wire, topic.name, 3, assignments=[{"broker_ids": [node_id(wire)]}])
    assert answer.error_code is ErrorCode.invalid_replica_assignment


def test_new_partitions_on_an_unknown_broker_are_refused(wire: Wire) -> None:
    topic = create_topic(wire)
    answer = add_partitions(wire, topic.name, 2, assignments=[{"broker_ids": [7654]}])
    assert answer.error_code is ErrorCode.invalid_replica_assignment


def test_partitions_of_an_unknown_topic_are_refused(wire: Wire) -> None:
    assert add_partitions(wire, unique_name("absent"), 3).error_code is ErrorCode.unknown_topic_or_partition


def test_the_same_topic_twice_in_a_request_for_partitions_is_an_invalid_request(wire: Wire) -> None:
    topic = create_topic(wire)
    entry = {"name": topic.name, "count": 3, "assignments": None}
    answer = wire.send("create_partitions", topics=[entry, entry], timeout=10_000)
    assert {result.error_code for result in answer.results} == {ErrorCode.invalid_request}
