"""kafka-python: groups, commits, administration of groups, and transactions."""

import gc
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest
from kafka import ConsumerRebalanceListener, KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.errors import ProducerFencedError
from kafka.structs import OffsetAndMetadata

from .actions import Topic, create_topic, produce_ok, unique_name
from .batches import batch
from .conftest import Broker
from .isolation import both_views, settle
from .raw_groups import committed, new_group
from .wire import Wire

# The client leaves a socket to the garbage collector when it is closed while it connects.
pytestmark = pytest.mark.filterwarnings("ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning")
_PATIENCE_S = 30


@pytest.fixture(autouse=True)
def _sockets_that_the_client_left() -> Iterator[None]:
    """Collected here, where the warning is expected, and not in the middle of another test."""
    yield
    gc.collect()


def member(broker: Broker, group: str, topic: Topic, **more: Any) -> Any:
    settings = {
        "heartbeat_interval_ms": 100,
        "session_timeout_ms": 10_000,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "fetch_max_wait_ms": 50,
        **more,
    }
    consumer = KafkaConsumer(topic.name, bootstrap_servers=broker.bootstrap, group_id=group, **settings)
    # A leader that has joined before it knows the topic shares out nothing, and does not notice later.
    deadline = time.monotonic() + _PATIENCE_S
    while not consumer.partitions_for_topic(topic.name):
        assert time.monotonic() < deadline, "the client hears nothing of the topic"
    return closing(consumer)


def until(condition: Callable[[], object], what: str, *consumers: Any) -> list[Any]:
    """Polls all until the condition holds; the records that came meanwhile.

    The client begins its join anew when a poll ends before the join does. So all are polled at the same time, as in
    programs of their own, and each time for longer: else two members on a busy machine rejoin without end.
    """
    deadline = time.monotonic() + _PATIENCE_S
    got: list[Any] = []
    timeout_ms = 20
    with ThreadPoolExecutor(len(consumers)) as threads:
        while not condition():
            assert time.monotonic() < deadline, f"not within {_PATIENCE_S} s: {what}"
            polls = [threads.submit(consumer.poll, timeout_ms=timeout_ms) for consumer in consumers]
            got += [record for poll in polls for records in poll.result().values() for record in records]
            timeout_ms = min(2 * timeout_ms, 2_000)
    return got


def read(consumer: Any, count: int) -> list[bytes]:
    got: list[bytes] = []
    deadline = time.monotonic() + _PATIENCE_S
    while len(got) < count:
        assert time.monotonic() < deadline, f"{len(got)} of {count} records"
        for records in consumer.poll(timeout_ms=2_000).values():
            got += [record.value for record in records]
    return got


def owned(consumer: Any) -> list[int]:
    return sorted(partition.partition for partition in consumer.assignment())


@pytest.mark.parametrize("assignor", [RangePartitionAssignor, RoundRobinPartitionAssignor, CooperativeStickyAssignor])
def test_members_share_a_topic(broker: Broker, wire: Wire, assignor: Any) -> None:
    topic, group = create_topic(wire, partitions=4), new_group(wire)
    strategy = {"partition_assignment_strategy": (assignor,)}
    with member(broker, group, topic, client_id="ann", **strategy) as ann:
        until(lambda: owned(ann) == [0, 1, 2, 3], "all partitions", ann)
        with member(broker, group, topic, client_id="bob", **strategy) as bob:
            until(lambda: len(owned(ann)) == len(owned(bob)) == 2, "two partitions each", ann, bob)
            assert sorted(owned(ann) + owned(bob)) == [0, 1, 2, 3]
        until(lambda: owned(ann) == [0, 1, 2, 3], "all partitions again", ann)


def test_a_static_member_is_back_in_time_and_nobody_notices(broker: Broker, wire: Wire) -> None:
    topic, group = create_topic(wire, partitions=2), new_group(wire)
    told: list[str] = []

    class Told(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_revoked(self, _: Any) -> None:
            told.append("revoked")

        def on_partitions_assigned(self, _: Any) -> None:
            told.append("assigned")

    with member(broker, group, topic, group_instance_id="a") as ann:
        ann.subscribe([topic.name], listener=Told())
        with member(broker, group, topic, group_instance_id="b") as bob:
            until(lambda: len(owned(ann)) == len(owned(bob)) == 1, "one partition each", ann, bob)
            had, heard = owned(bob), list(told)
        with member(broker, group, topic, group_instance_id="b") as again:
            until(lambda: owned(again) == had, "the same partition", ann, again)
            assert told == heard


def test_commits_are_kept_with_their_metadata(broker: Broker, wire: Wire) -> None:
    topic, group = create_topic(wire), new_group(wire)
    produce_ok(wire, topic, batch(b"0", b"1", b"2"))
    partition = TopicPartition(topic.name, 0)
    with member(broker, group, topic) as first:
        assert read(first, 3) == [b"0", b"1", b"2"]
        first.commit({partition: OffsetAndMetadata(2, "a note", -1)})
    with member(broker, group, topic) as second:
        assert second.committed(partition, metadata=True).metadata == "a note"
        assert read(second, 1) == [b"2"]
    assert committed(wire, group, topic)[0].metadata == "a note"


def test_automatic_commits(broker: Broker, wire: Wire) -> None:
    topic, group = create_topic(wire), new_group(wire)
    produce_ok(wire, topic, batch(b"0", b"1"))
    with member(broker, group, topic, enable_auto_commit=True, auto_commit_interval_ms=50) as only:
        assert read(only, 2) == [b"0", b"1"]
        until(lambda: committed(wire, group, topic)[0].committed_offset == 2, "the commit", only)


@pytest.fixture
def admin(broker: Broker) -> Iterator[KafkaAdminClient]:
    with closing(KafkaAdminClient(bootstrap_servers=broker.bootstrap)) as client:
        yield client


def test_administration_of_groups(broker: Broker, wire: Wire, admin: Any) -> None:
    topic, group = create_topic(wire), new_group(wire)
    partition = TopicPartition(topic.name, 0)
    produce_ok(wire, topic, batch(b"0", b"1", b"2"))
    with member(broker, group, topic, client_id="ann") as only:
        read(only, 3)
        only.commit({partition: OffsetAndMetadata(1, "", -1)})
        assert [found["group_state"] for found in admin.list_groups() if found["group_id"] == group] == ["Stable"]
        described = admin.describe_groups([group])[group]
        assert [found["client_id"] for found in described["members"]] == ["ann"]
        assert admin.delete_groups([group]) == {group: "NonEmptyGroupError"}
    admin.alter_group_offsets(group, {partition: OffsetAndMetadata(2, "moved", -1)})
    assert committed(wire, group, topic)[0].committed_offset == 2
    admin.delete_group_offsets(group, [partition])
    assert committed(wire, group, topic)[0].committed_offset == -1
    assert admin.delete_groups([group]) == {group: "OK"}
    assert admin.delete_groups([group]) == {group: "GroupIdNotFoundError"}


def producer_for(broker: Broker, transactional_id: str) -> Any:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=transactional_id, linger_ms=1)
    producer.init_transactions()
    return closing(producer)


def test_transactions_with_offsets(broker: Broker, wire: Wire) -> None:
    source, target, group = create_topic(wire), create_topic(wire), new_group(wire)
    produce_ok(wire, source, batch(b"one", b"two"))
    partition = TopicPartition(source.name, 0)
    with (
        producer_for(broker, unique_name("transactional-id")) as producer,
        member(broker, group, source) as consumer,
    ):
        read(consumer, 2)
        for value, offset, commits in ((b"ONE", 1, True), (b"WRONG", 9, False), (b"TWO", 2, True)):
            producer.begin_transaction()
            producer.send(target.name, value, partition=0)
            producer.send_offsets_to_transaction(
                {partition: OffsetAndMetadata(offset, "", -1)}, consumer.group_metadata()
            )
            if commits:
                producer.commit_transaction()
            else:
                producer.flush(10)
                producer.abort_transaction()
    settle(wire, target)
    assert both_views(broker, target) == ([b"ONE", b"TWO"], [b"ONE", b"WRONG", b"TWO"])
    assert committed(wire, group, source, require_stable=True)[0].committed_offset == 2


def test_an_older_instance_is_fenced(broker: Broker, wire: Wire) -> None:
    topic = create_topic(wire)
    transactional_id = unique_name("transactional-id")
    with producer_for(broker, transactional_id) as older:
        older.begin_transaction()
        older.send(topic.name, b"older", partition=0).get(timeout=10)
        with producer_for(broker, transactional_id) as newer:
            newer.begin_transaction()
            newer.send(topic.name, b"newer", partition=0).get(timeout=10)
            newer.commit_transaction()
        with pytest.raises(ProducerFencedError):
            older.commit_transaction()
    settle(wire, topic)
    assert both_views(broker, topic) == ([b"newer"], [b"older", b"newer"])
