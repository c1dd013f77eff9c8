"""Offsets and the administration of groups on confluent-kafka: commits of each kind, and what others see of them."""

from collections.abc import Iterator
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from .actions import Topic, create_topic, eventually, produce_ok
from .batches import batch
from .confluent_members import Member, Members, one_member
from .conftest import Broker
from .raw_groups import committed, new_group
from .wire import Wire

# Its type hints do not export what the module offers.
kafka_api: Any = confluent_kafka
NEW: Any = {"group.protocol": "consumer"}
CLASSIC: Any = {"group.protocol": "classic"}
BOTH = pytest.mark.parametrize("protocol", [CLASSIC, NEW], ids=["classic", "consumer"])


@pytest.fixture
def admin(broker: Broker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


def result_of(futures: dict[Any, Any]) -> Any:
    (future,) = futures.values()
    return future.result(20)


def error_of(futures: dict[Any, Any]) -> int:
    with pytest.raises(KafkaException) as failure:
        result_of(futures)
    code: int = failure.value.args[0].code()
    return code


def offset_of(wire: Wire, group: str, topic: Topic, partition: int = 0) -> int:
    offset: int = committed(wire, group, topic, [partition])[partition].committed_offset
    return offset


@pytest.fixture
def three_records(wire: Wire) -> Topic:
    topic = create_topic(wire)
    produce_ok(wire, topic, batch(b"0", b"1", b"2"))
    return topic


@pytest.fixture
def simple_group(broker: Broker, wire: Wire, three_records: Topic) -> Iterator[str]:
    """A group without members: offset 2 was committed by hand."""
    group = new_group(wire)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group, "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition(three_records.name, 0, 2)], asynchronous=False)
    yield group
    consumer.close()


@BOTH
def test_a_synchronous_commit_is_there_when_it_returns(
    broker: Broker, wire: Wire, three_records: Topic, protocol: Any
) -> None:
    with one_member(broker, new_group(wire), three_records.name, **protocol) as (members, only):
        members.until(lambda: len(only.received) == 3, "the records")
        (done,) = only.consumer.commit(message=only.received[1], asynchronous=False)
        assert (done.offset, done.error) == (2, None)
        assert offset_of(wire, members.group, three_records) == 2
        (asked,) = only.consumer.committed([TopicPartition(three_records.name, 0)], timeout=10)
        assert asked.offset == 2


@BOTH
def test_an_asynchronous_commit_calls_back(broker: Broker, wire: Wire, three_records: Topic, protocol: Any) -> None:
    told: list[Any] = []
    settings = {"on_commit": lambda error, partitions: told.append((error, [one.offset for one in partitions]))}
    with one_member(broker, new_group(wire), three_records.name, **protocol, **settings) as (members, only):
        members.until(lambda: len(only.received) == 3, "the records")
        only.consumer.commit(message=only.received[2], asynchronous=True)
        members.until(lambda: told, "the call-back")
        assert told[0] == (None, [3])
        assert offset_of(wire, members.group, three_records) == 3


@BOTH
def test_automatic_commits_follow_what_was_read(
    broker: Broker, wire: Wire, three_records: Topic, protocol: Any
) -> None:
    settings = {"enable.auto.commit": True, "auto.commit.interval.ms": 100}
    with one_member(broker, new_group(wire), three_records.name, **protocol, **settings) as (members, only):
        members.until(lambda: len(only.received) == 3, "the records")
        members.until(lambda: offset_of(wire, members.group, three_records) == 3, "the commit")


@BOTH
def test_closing_commits_what_was_read(broker: Broker, wire: Wire, three_records: Topic, protocol: Any) -> None:
    settings = {"enable.auto.commit": True, "auto.commit.interval.ms": 60_000}
    with one_member(broker, new_group(wire), three_records.name, **protocol, **settings) as (members, only):
        members.until(lambda: len(only.received) == 3, "the records")
        assert offset_of(wire, members.group, three_records) == -1
        members.stop(only)
        assert offset_of(wire, members.group, three_records) == 3


@BOTH
def test_trap_the_metadata_of_a_commit_is_kept(broker: Broker, wire: Wire, three_records: Topic, protocol: Any) -> None:
    note = "read by été, 100 %"
    with one_member(broker, new_group(wire), three_records.name, **protocol) as (members, only):
        given = TopicPartition(three_records.name, 0, 1, metadata=note)
        only.consumer.commit(offsets=[given], asynchronous=False)
        (asked,) = only.consumer.committed([TopicPartition(three_records.name, 0)], timeout=10)
        assert (asked.offset, asked.metadata) == (1, note)
        # The client sends the end of a C string with it: whatever it sends is kept.
        assert committed(wire, members.group, three_records)[0].metadata == f"{note}\0"


def test_the_leader_epoch_of_a_commit_is_kept(wire: Wire, three_records: Topic) -> None:
    group = new_group(wire)
    entry = {"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": 5, "committed_metadata": None}
    wire.send("offset_commit", group_id=group, topics=[{"name": three_records.name, "partitions": [entry]}])
    found = committed(wire, group, three_records)[0]
    assert (found.committed_leader_epoch, found.metadata) == (5, "")


@BOTH
def test_a_restarted_member_goes_on_where_its_group_was(
    broker: Broker, wire: Wire, three_records: Topic, protocol: Any
) -> None:
    with one_member(broker, new_group(wire), three_records.name, **protocol) as (members, first):
        members.until(lambda: first.received, "a record")
        first.consumer.commit(message=first.received[0], asynchronous=False)
        members.stop(first)
        second = members.start("second", three_records.name)
        members.until(lambda: len(second.received) == 2, "the rest")
        assert second.values() == [b"1", b"2"]


def test_a_member_that_was_left_behind_cannot_commit(broker: Broker, wire: Wire) -> None:
    topic = create_topic(wire, partitions=2)
    for partition in range(2):
        produce_ok(wire, topic, batch(b"v"), partition=partition)
    settings = {"session.timeout.ms": 1000, "max.poll.interval.ms": 1000, "partition.assignment.strategy": "range"}
    with Members(broker, new_group(wire), **settings) as members:
        behind: Member = members.start("behind", topic.name)
        members.until(lambda: len(behind.received) == 2, "its records")
        members.running.remove(behind)
        other = members.start("other", topic.name)
        members.until(lambda: len(other.owned) == 2, "the other has all")
        with pytest.raises(KafkaException) as refused:
            behind.consumer.commit(message=behind.received[0], asynchronous=False)
        code = refused.value.args[0].code()
        assert code in (KafkaError.UNKNOWN_MEMBER_ID, KafkaError.ILLEGAL_GENERATION, KafkaError._ASSIGNMENT_LOST)
        assert offset_of(wire, members.group, topic) == -1
        members.running.append(behind)


def test_offsets_of_a_group_are_listed_and_altered(
    broker: Broker, wire: Wire, admin: AdminClient, simple_group: str, three_records: Topic
) -> None:
    request = kafka_api.ConsumerGroupTopicPartitions(simple_group)
    (listed,) = result_of(admin.list_consumer_group_offsets([request])).topic_partitions
    assert (listed.topic, listed.partition, listed.offset) == (three_records.name, 0, 2)
    moved = TopicPartition(three_records.name, 0, 1, metadata="moved")
    change = kafka_api.ConsumerGroupTopicPartitions(simple_group, [moved])
    result_of(admin.alter_consumer_group_offsets([change]))
    found = committed(wire, simple_group, three_records)[0]
    assert (found.committed_offset, found.metadata) == (1, "moved\0")


def test_offsets_of_a_group_in_use_are_not_altered(broker: Broker, wire: Wire, admin: AdminClient) -> None:
    topic = create_topic(wire)
    with one_member(broker, new_group(wire), topic.name) as (members, _):
        change = kafka_api.ConsumerGroupTopicPartitions(members.group, [TopicPartition(topic.name, 0, 1)])
        (refused,) = result_of(admin.alter_consumer_group_offsets([change])).topic_partitions
        assert refused.error.code() == KafkaError.UNKNOWN_MEMBER_ID


@BOTH
def test_groups_are_listed_described_and_deleted(
    broker: Broker, wire: Wire, admin: AdminClient, three_records: Topic, protocol: Any
) -> None:
    with one_member(broker, new_group(wire), three_records.name, **protocol) as (members, only):
        members.until(lambda: only.received, "a record")
        only.consumer.commit(message=only.received[0], asynchronous=False)
        eventually(lambda: listed(admin, members.group).state == kafka_api.ConsumerGroupState.STABLE, "stable")
        found = result_of(admin.describe_consumer_groups([members.group], include_authorized_operations=True))
        (member,) = found.members
        assert found.state == kafka_api.ConsumerGroupState.STABLE
        assert (member.client_id, member.host) == ("only", "/127.0.0.1")
        assert [(one.topic, one.partition) for one in member.assignment.topic_partitions] == [(three_records.name, 0)]
        assert {operation.name for operation in found.authorized_operations} >= {"READ", "DELETE", "DESCRIBE"}
        assert error_of(admin.delete_consumer_groups([members.group])) == KafkaError.NON_EMPTY_GROUP
        members.stop(only)
        eventually(lambda: listed(admin, members.group).state == kafka_api.ConsumerGroupState.EMPTY, "empty")
        result_of(admin.delete_consumer_groups([members.group]))
        assert listed(admin, members.group) is None
        assert offset_of(wire, members.group, three_records) == -1
        assert error_of(admin.delete_consumer_groups([members.group])) == KafkaError.GROUP_ID_NOT_FOUND


def listed(admin: AdminClient, group: str) -> Any:
    """The group's entry in the list of all groups, or None."""
    answer = admin.list_consumer_groups().result(20)
    assert answer.errors == []
    return next((found for found in answer.valid if found.group_id == group), None)


def test_groups_are_listed_by_state_and_type(broker: Broker, wire: Wire, admin: AdminClient, simple_group: str) -> None:
    topic = create_topic(wire)
    state, kind = kafka_api.ConsumerGroupState, kafka_api.ConsumerGroupType

    def groups(**asked: Any) -> set[str]:
        return {found.group_id for found in admin.list_consumer_groups(**asked).result(20).valid}

    with one_member(broker, new_group(wire), topic.name, **NEW) as (members, _):
        assert {members.group, simple_group} <= groups()
        assert members.group in groups(types={kind.CONSUMER})
        assert simple_group not in groups(types={kind.CONSUMER})
        assert simple_group in groups(types={kind.CLASSIC}, states={state.EMPTY})
        assert members.group not in groups(states={state.EMPTY})
