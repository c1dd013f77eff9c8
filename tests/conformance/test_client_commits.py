"""Offsets that headwater's members commit, by themselves or when asked to, and get back."""

import asyncio
import time

import confluent_kafka
import pytest

from headwater.client.consumer.membership import OffsetAndMetadata, Offsets
from headwater.client.consumer.subscription import Position
from headwater.client.errors import TimedOutError
from headwater.types import TopicPartition

from .actions import create_topic, unique_name
from .client_members import PROTOCOLS, OurMember, our_members, run
from .confluent_members import Members
from .conftest import Broker
from .raw_groups import new_group
from .test_transactions_confluent import producer_for
from .wire import Wire


@PROTOCOLS
def test_offsets_come_back_with_epoch_and_metadata(broker: Broker, wire: Wire, protocol: str) -> None:
    topic, group = create_topic(wire, partitions=2), new_group(wire)

    async def case() -> None:
        async with our_members(broker.bootstrap, group, group_protocol=protocol) as members:
            ann = members.start("ann", topic.name)
            await members.until(lambda: members.spread(2), "its partitions")
            first, second = sorted(ann.owned)
            offsets = {first: OffsetAndMetadata(5, 0, "half way")}
            await ann.membership.commit(offsets)
            assert await ann.membership.committed([first, second]) == {**offsets, second: None}

    run(case())


@PROTOCOLS
def test_asynchronous_commits_are_told_of_in_order(broker: Broker, wire: Wire, protocol: str) -> None:
    topic, group = create_topic(wire), new_group(wire)
    told: list[int] = []

    async def case() -> None:
        async with our_members(broker.bootstrap, group, group_protocol=protocol) as members:
            ann = members.start("ann", topic.name)
            await members.until(lambda: members.spread(1), "its partition")
            (place,) = ann.owned

            async def note(offsets: Offsets, error: Exception | None) -> None:
                assert error is None
                told.append(offsets[place].offset)

            for offset in range(20):
                ann.membership.commit_async({place: OffsetAndMetadata(offset)}, note)
            await ann.membership.commit({place: OffsetAndMetadata(100)})
            await members.until(lambda: len(told) == 20, "all call-backs")
            assert told == list(range(20))
            assert await ann.membership.committed([place]) == {place: OffsetAndMetadata(100)}

    run(case())


@PROTOCOLS
def test_automatic_commits_take_only_what_an_earlier_poll_handed_out(broker: Broker, wire: Wire, protocol: str) -> None:
    topic, group = create_topic(wire), new_group(wire)

    async def case() -> None:
        settings = {"group_protocol": protocol, "enable_auto_commit": True, "auto_commit_interval_ms": 100}
        async with our_members(broker.bootstrap, group, **settings) as members:
            ann = members.start("ann", topic.name)
            await members.until(lambda: members.spread(1), "its partition")
            (place,) = ann.owned
            ann.subscription.seek(place, Position(0))
            ann.subscription.handed_out(place, Position(10))
            ann.subscription.poll_begins()
            ann.subscription.handed_out(place, Position(20))

            async def settled(offset: int) -> None:
                deadline = time.monotonic() + 10
                while (await ann.membership.committed([place]))[place] != OffsetAndMetadata(offset):
                    assert time.monotonic() < deadline
                    await asyncio.sleep(0.05)

            await settled(10)
            await asyncio.sleep(0.3)
            await settled(10)
            ann.subscription.poll_begins()
            await settled(20)
            ann.subscription.handed_out(place, Position(30))
            ann.subscription.poll_begins()
            await members.stop(ann)
            bob = members.start("bob", topic.name)
            assert await bob.membership.committed([place]) == {place: OffsetAndMetadata(30)}

    run(case())


@PROTOCOLS
def test_partitions_that_go_are_committed_before(broker: Broker, wire: Wire, protocol: str) -> None:
    topic, group = create_topic(wire, partitions=2), new_group(wire)

    async def case() -> None:
        settings = {"group_protocol": protocol, "enable_auto_commit": True, "auto_commit_interval_ms": 60_000}
        async with our_members(broker.bootstrap, group, **settings) as members:
            ann = members.start("ann", topic.name)
            await members.until(lambda: members.spread(2), "its partitions")
            for place in ann.owned:
                ann.subscription.seek(place, Position(0))
                ann.subscription.handed_out(place, Position(10))
            ann.subscription.poll_begins()
            bob = members.start("bob", topic.name)
            await members.until(lambda: members.spread(1, 1), "one each")
            assert (await bob.membership.committed(bob.owned)).popitem()[1] == OffsetAndMetadata(10)

    run(case())


def test_offsets_of_an_open_transaction_are_waited_for(broker: Broker, wire: Wire) -> None:
    topic, group = create_topic(wire), new_group(wire)
    place = TopicPartition(topic.name, 0)
    with Members(broker, group) as members:
        theirs = members.start("theirs", topic.name)
        members.until(lambda: theirs.owned, "its partition")
        producer = producer_for(broker, unique_name("transaction"))
        producer.begin_transaction()
        producer.send_offsets_to_transaction(
            [confluent_kafka.TopicPartition(topic.name, 0, 5)], theirs.consumer.consumer_group_metadata(), 30
        )

        async def case() -> None:
            async with our_members(broker.bootstrap, group) as ours:
                ann = OurMember("ann", broker.bootstrap, ours.group)
                with pytest.raises(TimedOutError):
                    await ann.membership.committed([place], timeout_s=0.5)
                looking = asyncio.create_task(ann.membership.committed([place]))
                await asyncio.to_thread(producer.commit_transaction, 30)
                assert await looking == {place: OffsetAndMetadata(5)}
                await ann.stop()

        run(case())


def test_offsets_can_be_committed_without_being_a_member(broker: Broker, wire: Wire) -> None:
    topic, group = create_topic(wire), new_group(wire)
    place = TopicPartition(topic.name, 0)

    async def case() -> None:
        ann = OurMember("ann", broker.bootstrap, group)
        ann.subscription.assign([place])
        await ann.membership.poll(0)
        await ann.membership.commit({place: OffsetAndMetadata(3)})
        assert await ann.membership.committed([place]) == {place: OffsetAndMetadata(3)}
        await ann.stop()

    run(case())
