"""Transactions on confluent-kafka: all or nothing, over partitions and offsets, with older instances fenced out."""

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from .actions import LATEST, Topic, create_topic, eventually, list_offset, list_offsets, produce_ok, unique_name
from .batches import batch
from .confluent_members import Members, one_member
from .conftest import Broker
from .isolation import both_views, read, settle, stable_offset
from .raw_groups import committed, new_group
from .wire import Wire

BOTH = pytest.mark.parametrize(
    "protocol", [{"group.protocol": "classic"}, {"group.protocol": "consumer"}], ids=["classic", "consumer"]
)


def producer_for(broker: Broker, transactional_id: str | None = None, **settings: Any) -> Producer:
    """A transactional producer that is ready to begin."""
    transactional_id = transactional_id or unique_name("transactional-id")
    named = {"bootstrap.servers": broker.bootstrap, "transactional.id": transactional_id}
    producer = Producer({**named, "linger.ms": 1, "log_level": 0, **settings})
    producer.init_transactions(30)
    return producer


def send(producer: Producer, topic: Topic, *values: bytes, partition: int = 0) -> None:
    """Sends and waits: the records are in the log, their transaction still open."""
    for value in values:
        producer.produce(topic.name, value, partition=partition)
    assert producer.flush(30) == 0


@contextlib.contextmanager
def transaction(producer: Producer, *, commits: bool = True) -> Iterator[None]:
    producer.begin_transaction()
    yield
    if commits:
        producer.commit_transaction(30)
    else:
        producer.abort_transaction(30)


def code_of(failure: pytest.ExceptionInfo[KafkaException]) -> int:
    code: int = failure.value.args[0].code()
    return code


def test_a_committed_transaction_is_seen_as_a_whole(broker: Broker, wire: Wire) -> None:
    topic = create_topic(wire, partitions=2)
    producer = producer_for(broker)
    with transaction(producer):
        for partition in range(2):
            send(producer, topic, b"a", b"b", partition=partition)
        assert [read(broker, topic, "read_committed", partition=partition) for partition in range(2)] == [[], []]
    settle(wire, topic, partitions=2)
    for partition in range(2):
        assert read(broker, topic, "read_committed", partition=partition) == [b"a", b"b"]


def test_trap_aborted_records_are_never_seen_by_read_committed(broker: Broker, wire: Wire) -> None:
    topic = create_topic(wire)
    producer = producer_for(broker)
    for number, commits in enumerate((True, False, True, False, False, True)):
        with transaction(producer, commits=commits):
            send(producer, topic, b"%d" % number, b"%d again" % number)
    settle(wire, topic)
    committed_view, whole_view = both_views(broker, topic)
    assert committed_view == [b"0", b"0 again", b"2", b"2 again", b"5", b"5 again"]
    assert whole_view == [line for number in range(6) for line in (b"%d" % number, b"%d again" % number)]


def test_two_producers_interleave_and_each_has_its_own_fate(broker: Broker, wire: Wire) -> None:
    topic = create_topic(wire)
    good, bad = producer_for(broker), producer_for(broker)
    good.begin_transaction()
    bad.begin_transaction()
    for number in range(3):
        send(good, topic, b"good %d" % number)
        send(bad, topic, b"bad %d" % number)
    good.commit_transaction(30)
    eventually(lambda: stable_offset(wire, topic) == 1, "the commit")
    assert read(broker, topic, "read_committed") == [b"good 0"], "the rest is behind a transaction that is still open"
    bad.abort_transaction(30)
    settle(wire, topic)
    assert read(broker, topic, "read_committed") == [b"good 0", b"good 1", b"good 2"]


def test_an_open_transaction_holds_the_last_stable_offset(broker: Broker, wire: Wire) -> None:
    topic = create_topic(wire)
    produce_ok(wire, topic, batch(b"before"))
    producer = producer_for(broker)
    producer.begin_transaction()
    send(producer, topic, b"within")
    produce_ok(wire, topic, batch(b"behind"))
    assert stable_offset(wire, topic) == 1
    assert list_offset(wire, topic, LATEST).offset == 3
    assert both_views(broker, topic) == ([b"before"], [b"before", b"within", b"behind"])
    producer.commit_transaction(30)
    settle(wire, topic)
    assert stable_offset(wire, topic) == 4, "its end takes an offset too"
    assert read(broker, topic, "read_committed") == [b"before", b"within", b"behind"]


def test_a_new_instance_fences_the_older_one_and_ends_its_transaction(broker: Broker, wire: Wire) -> None:
    topic = create_topic(wire)
    transactional_id = unique_name("transactional-id")
    older = producer_for(broker, transactional_id)
    older.begin_transaction()
    send(older, topic, b"unfinished")
    newer = producer_for(broker, transactional_id)
    assert stable_offset(wire, topic) == 2, "aborted before the new instance may begin"
    with transaction(newer):
        send(newer, topic, b"new")
    with pytest.raises(KafkaException) as refused:
        older.commit_transaction(30)
    assert refused.value.args[0].fatal()
    assert code_of(refused) in (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH)
    settle(wire, topic)
    assert read(broker, topic, "read_committed") == [b"new"]


def test_a_fenced_instance_cannot_write(broker: Broker, wire: Wire) -> None:
    topic = create_topic(wire)
    transactional_id = unique_name("transactional-id")
    older = producer_for(broker, transactional_id)
    older.begin_transaction()
    send(older, topic, b"older")
    newer = producer_for(broker, transactional_id)
    older.produce(topic.name, b"too late", partition=0)
    with pytest.raises(KafkaException) as refused:
        older.flush(30)
    assert code_of(refused) == KafkaError._FENCED
    with transaction(newer):
        send(newer, topic, b"newer")
    settle(wire, topic)
    assert both_views(broker, topic) == ([b"newer"], [b"older", b"newer"])


def test_a_transaction_that_takes_too_long_is_aborted_by_the_broker(broker: Broker, wire: Wire) -> None:
    topic = create_topic(wire)
    producer = producer_for(broker, None, **{"transaction.timeout.ms": 1000, "message.timeout.ms": 1000})
    producer.begin_transaction()
    send(producer, topic, b"slow")
    assert stable_offset(wire, topic) == 0
    eventually(lambda: stable_offset(wire, topic) == 2, "the abort by the broker")
    with pytest.raises(KafkaException) as refused:
        producer.commit_transaction(30)
    assert code_of(refused) in (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED)
    assert both_views(broker, topic) == ([], [b"slow"])


def test_trap_a_timeout_above_the_brokers_maximum_is_refused(broker: Broker) -> None:
    with pytest.raises(KafkaException) as refused:
        producer_for(broker, None, **{"transaction.timeout.ms": 900_001})
    assert code_of(refused) == KafkaError.INVALID_TRANSACTION_TIMEOUT


@BOTH
def test_offsets_are_committed_with_the_records_made_of_them(broker: Broker, wire: Wire, protocol: Any) -> None:
    source, target = create_topic(wire), create_topic(wire)
    produce_ok(wire, source, batch(b"one", b"two"))
    producer = producer_for(broker)
    with one_member(broker, new_group(wire), source.name, **protocol) as (members, only):
        members.until(lambda: len(only.received) == 2, "the input")
        with transaction(producer):
            for message in only.received:
                send(producer, target, (message.value() or b"").upper())
            position = [TopicPartition(source.name, 0, 2, metadata="upper")]
            producer.send_offsets_to_transaction(position, only.consumer.consumer_group_metadata(), 30)
            assert committed(wire, members.group, source)[0].committed_offset == -1
        (after,) = only.consumer.committed([TopicPartition(source.name, 0)], timeout=10)
        assert after.offset == 2
        settle(wire, target)
        assert read(broker, target, "read_committed") == [b"ONE", b"TWO"]


@BOTH
def test_offsets_of_an_aborted_transaction_are_not_committed(broker: Broker, wire: Wire, protocol: Any) -> None:
    source, target = create_topic(wire), create_topic(wire)
    produce_ok(wire, source, batch(b"one", b"two"))
    producer = producer_for(broker)
    with one_member(broker, new_group(wire), source.name, **protocol) as (members, only):
        members.until(lambda: len(only.received) == 2, "the input")
        only.consumer.commit(message=only.received[0], asynchronous=False)
        with transaction(producer, commits=False):
            send(producer, target, b"ONE")
            position = [TopicPartition(source.name, 0, 2)]
            producer.send_offsets_to_transaction(position, only.consumer.consumer_group_metadata(), 30)
        (after,) = only.consumer.committed([TopicPartition(source.name, 0)], timeout=10)
        assert after.offset == 1
        settle(wire, target)
        assert read(broker, target, "read_committed") == []


def test_a_member_of_an_old_generation_cannot_send_offsets(broker: Broker, wire: Wire) -> None:
    topic = create_topic(wire, partitions=2)
    producer = producer_for(broker)
    with Members(broker, new_group(wire), **{"partition.assignment.strategy": "range"}) as members:
        first = members.start("first", topic.name)
        members.until_spread(topic, 2)
        before = first.consumer.consumer_group_metadata()
        members.start("second", topic.name)
        members.until_spread(topic, 1, 1)
        producer.begin_transaction()
        with pytest.raises(KafkaException) as refused:
            producer.send_offsets_to_transaction([TopicPartition(topic.name, 0, 1)], before, 30)
        assert code_of(refused) in (KafkaError.ILLEGAL_GENERATION, KafkaError.UNKNOWN_MEMBER_ID)
        producer.abort_transaction(30)


def test_one_transactional_id_goes_on_over_many_transactions(broker: Broker, wire: Wire) -> None:
    topic = create_topic(wire, partitions=3)
    producer = producer_for(broker)
    for number in range(30):
        with transaction(producer, commits=number % 3 != 2):
            send(producer, topic, b"%d" % number, partition=number % 2)
    settle(wire, topic, partitions=3)
    for partition in range(2):
        expected = [b"%d" % number for number in range(30) if number % 2 == partition and number % 3 != 2]
        assert read(broker, topic, "read_committed", partition=partition) == expected
    ends = list_offsets(wire, topic.name, dict.fromkeys(range(3), LATEST))
    assert [ends[partition].offset for partition in range(3)] == [30, 30, 0], "each end takes an offset"


def test_an_empty_transaction_is_no_trouble(broker: Broker, wire: Wire) -> None:
    topic = create_topic(wire)
    producer = producer_for(broker)
    for commits in (True, False):
        with transaction(producer, commits=commits):
            pass
    with transaction(producer):
        send(producer, topic, b"value")
    settle(wire, topic)
    assert read(broker, topic, "read_committed") == [b"value"]
