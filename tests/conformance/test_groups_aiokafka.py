"""aiokafka: groups, commits and transactions on an event loop."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import CommitFailedError, ProducerFenced
from aiokafka.structs import OffsetAndMetadata

from .actions import Topic, create_topic, produce_ok, unique_name
from .batches import batch
from .conftest import Broker
from .isolation import both_views, settle, stable_offset
from .raw_groups import committed, new_group
from .wire import Wire

_PATIENCE_S = 30


class Told(ConsumerRebalanceListener):  # type: ignore[misc]
    """What a member's call-backs said."""

    def __init__(self) -> None:
        self.events: list[tuple[str, int]] = []

    def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        self.events.append(("revoked", len(list(revoked))))

    def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        self.events.append(("assigned", len(list(assigned))))


@contextlib.asynccontextmanager
async def member(broker: Broker, group: str, topic: Topic, told: Told | None = None, **more: Any) -> AsyncIterator[Any]:
    settings = {
        "heartbeat_interval_ms": 100,
        "session_timeout_ms": 10_000,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "fetch_max_wait_ms": 50,
        **more,
    }
    consumer = AIOKafkaConsumer(bootstrap_servers=broker.bootstrap, group_id=group, **settings)
    consumer.subscribe([topic.name], listener=told)
    async with consumer:
        yield consumer


async def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {_PATIENCE_S} s: {what}"
        await asyncio.sleep(0.02)


def owned(consumer: Any) -> list[int]:
    return sorted(partition.partition for partition in consumer.assignment())


@pytest.mark.parametrize("assignor", [RangePartitionAssignor, RoundRobinPartitionAssignor, StickyPartitionAssignor])
def test_members_share_a_topic(broker: Broker, wire: Wire, assignor: Any) -> None:
    topic, group = create_topic(wire, partitions=4), new_group(wire)
    told = Told()
    strategy: Any = {"partition_assignment_strategy": (assignor,)}

    async def go() -> None:
        async with member(broker, group, topic, told, client_id="ann", **strategy) as ann:
            assert owned(ann) == [0, 1, 2, 3]
            async with member(broker, group, topic, client_id="bob", **strategy) as bob:
                await until(lambda: len(owned(ann)) == len(owned(bob)) == 2, "two partitions each")
                assert sorted(owned(ann) + owned(bob)) == [0, 1, 2, 3]
            await until(lambda: len(owned(ann)) == 4, "all partitions again")

    asyncio.run(go())
    assert [event for event in told.events if event[1]] == [
        ("assigned", 4),
        ("revoked", 4),
        ("assigned", 2),
        ("revoked", 2),
        ("assigned", 4),
    ]


def test_commits_are_kept_with_their_metadata(broker: Broker, wire: Wire) -> None:
    topic, group = create_topic(wire), new_group(wire)
    produce_ok(wire, topic, batch(b"0", b"1", b"2"))
    partition = TopicPartition(topic.name, 0)

    async def go() -> tuple[Any, Any]:
        async with member(broker, group, topic) as first:
            assert [(await first.getone()).value for _ in range(3)] == [b"0", b"1", b"2"]
            await first.commit({partition: OffsetAndMetadata(2, "a note")})
        async with member(broker, group, topic) as second:
            return await second.committed(partition), (await second.getone()).value

    assert asyncio.run(go()) == (2, b"2")
    found = committed(wire, group, topic)[0]
    assert (found.committed_offset, found.metadata) == (2, "a note")


def test_automatic_commits(broker: Broker, wire: Wire) -> None:
    topic, group = create_topic(wire), new_group(wire)
    produce_ok(wire, topic, batch(b"0", b"1"))

    async def go() -> None:
        async with member(broker, group, topic, enable_auto_commit=True, auto_commit_interval_ms=50) as only:
            for _ in range(2):
                await only.getone()
            await until(lambda: committed(wire, group, topic)[0].committed_offset == 2, "the commit")

    asyncio.run(go())


def test_a_member_that_was_left_behind_cannot_commit(broker: Broker, wire: Wire) -> None:
    """It is put out by an operator while it still believes to be a member."""
    topic, group = create_topic(wire), new_group(wire)
    produce_ok(wire, topic, batch(b"0"))

    async def go() -> None:
        async with member(broker, group, topic, heartbeat_interval_ms=9_000) as only:
            await only.getone()
            (described,) = wire.send("describe_groups", groups=[group]).groups
            gone = [{"member_id": found.member_id} for found in described.members]
            wire.send("leave_group", group_id=group, members=gone)
            with pytest.raises(CommitFailedError):
                await only.commit({TopicPartition(topic.name, 0): 1})

    asyncio.run(go())
    assert committed(wire, group, topic)[0].committed_offset == -1


def test_transactions_with_offsets(broker: Broker, wire: Wire) -> None:
    source, target, group = create_topic(wire), create_topic(wire), new_group(wire)
    produce_ok(wire, source, batch(b"one", b"two"))
    partition = TopicPartition(source.name, 0)

    async def go() -> None:
        settings = {"transactional_id": unique_name("transactional-id"), "bootstrap_servers": broker.bootstrap}
        async with AIOKafkaProducer(**settings) as producer, member(broker, group, source) as consumer:
            for _ in range(2):
                record = await consumer.getone()
                async with producer.transaction():
                    await producer.send_and_wait(target.name, record.value.upper(), partition=0)
                    await producer.send_offsets_to_transaction({partition: record.offset + 1}, group)
            await producer.begin_transaction()
            await producer.send_and_wait(target.name, b"WRONG", partition=0)
            await producer.send_offsets_to_transaction({partition: 99}, group)
            await producer.abort_transaction()

    asyncio.run(go())
    settle(wire, target)
    assert both_views(broker, target) == ([b"ONE", b"TWO"], [b"ONE", b"TWO", b"WRONG"])
    assert committed(wire, group, source, require_stable=True)[0].committed_offset == 2


def test_an_older_instance_is_fenced(broker: Broker, wire: Wire) -> None:
    topic = create_topic(wire)
    transactional_id = unique_name("transactional-id")

    async def go() -> None:
        settings = {"transactional_id": transactional_id, "bootstrap_servers": broker.bootstrap}
        async with AIOKafkaProducer(**settings) as older:
            await older.begin_transaction()
            await older.send_and_wait(topic.name, b"older", partition=0)
            async with AIOKafkaProducer(**settings) as newer, newer.transaction():
                await newer.send_and_wait(topic.name, b"newer", partition=0)
            with pytest.raises(ProducerFenced):
                await older.commit_transaction()

    asyncio.run(go())
    settle(wire, topic)
    assert both_views(broker, topic) == ([b"newer"], [b"older", b"newer"])


def test_read_committed_waits_for_the_end_of_a_transaction(broker: Broker, wire: Wire) -> None:
    topic = create_topic(wire)
    partition = TopicPartition(topic.name, 0)

    async def go() -> None:
        settings = {"transactional_id": unique_name("transactional-id"), "bootstrap_servers": broker.bootstrap}
        reading = {"isolation_level": "read_committed", "fetch_max_wait_ms": 50, "auto_offset_reset": "earliest"}
        async with (
            AIOKafkaProducer(**settings) as producer,
            AIOKafkaConsumer(bootstrap_servers=broker.bootstrap, **reading) as consumer,
        ):
            consumer.assign([partition])
            await producer.begin_transaction()
            await producer.send_and_wait(topic.name, b"value", partition=0)
            assert stable_offset(wire, topic) == 0
            assert await consumer.getmany(partition, timeout_ms=200) == {}
            await producer.commit_transaction()
            record = await asyncio.wait_for(consumer.getone(), _PATIENCE_S)
            assert record.value == b"value"

    asyncio.run(go())


def test_administration_of_groups(broker: Broker, wire: Wire) -> None:
    topic, group = create_topic(wire), new_group(wire)

    async def go() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
        await admin.start()
        try:
            async with member(broker, group, topic, client_id="ann") as only:
                await only.commit({TopicPartition(topic.name, 0): 0})
                assert (group, "consumer") in await admin.list_consumer_groups()
                (answer,) = await admin.describe_consumer_groups([group])
                described = answer.to_object()["groups"][0]
                assert (described["group"], described["state"]) == (group, "Stable")
                assert [found["client_id"] for found in described["members"]] == ["ann"]
                offsets = await admin.list_consumer_group_offsets(group)
                assert offsets[TopicPartition(topic.name, 0)].offset == 0
        finally:
            await admin.close()

    asyncio.run(go())
