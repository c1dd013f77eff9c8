"""Groups of headwater's own members: the same promises on headwater and on Apache Kafka."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from headwater.client.consumer.group_errors import FencedInstanceError
from headwater.client.consumer.listeners import ListenerError, RebalanceListener
from headwater.client.consumer.membership import OffsetAndMetadata
from headwater.client.errors import ClientError
from headwater.types import TopicPartition

from .actions import create_topic
from .client_members import PROTOCOLS, OurMember, all_of, our_members, run
from .conftest import Broker
from .raw_groups import new_group
from .wire import Wire


@PROTOCOLS
def test_members_share_the_partitions_and_take_over_from_one_that_leaves(
    broker: Broker, wire: Wire, protocol: str
) -> None:
    topic, group = create_topic(wire, partitions=6), new_group(wire)

    async def case() -> None:
        async with our_members(broker.bootstrap, group, group_protocol=protocol) as members:
            members.start("ann", topic.name)
            await members.until(lambda: members.spread(6), "one member has everything")
            bob = members.start("bob", topic.name)
            await members.until(lambda: members.spread(3, 3), "two have a half each")
            members.start("cat", topic.name)
            await members.until(lambda: members.spread(2, 2, 2), "three have a third each")
            await members.stop(bob)
            assert bob.of("revoked")
            await members.until(lambda: members.spread(3, 3), "the others have what bob had")

    run(case())


def test_an_eager_rebalance_takes_everything_and_a_cooperative_one_only_what_moves(broker: Broker, wire: Wire) -> None:
    topic = create_topic(wire, partitions=4)

    async def taken_from_the_first(assignor: str) -> int:
        settings = {"partition_assignment_strategy": [assignor]}
        async with our_members(broker.bootstrap, new_group(wire), **settings) as members:
            ann = members.start("ann", topic.name)
            await members.until(lambda: members.spread(4), "all to one")
            members.start("bob", topic.name)
            await members.until(lambda: members.spread(2, 2), "two each")
            return sum(map(len, ann.of("revoked")))

    async def case() -> None:
        assert await taken_from_the_first("sticky") == 4
        assert await taken_from_the_first("cooperative-sticky") == 2

    run(case())


@PROTOCOLS
def test_a_static_member_finds_its_partitions_after_a_restart(broker: Broker, wire: Wire, protocol: str) -> None:
    topic, group = create_topic(wire, partitions=4), new_group(wire)

    async def case() -> None:
        async with our_members(broker.bootstrap, group, group_protocol=protocol) as members:
            ann = members.start("ann", topic.name, group_instance_id="first")
            bob = members.start("bob", topic.name, group_instance_id="second")
            await members.until(lambda: members.spread(2, 2), "two each")
            had, seen = ann.owned, len(bob.events)
            await members.stop(ann)
            back = members.start("ann", topic.name, group_instance_id="first")
            await members.until(lambda: back.owned == had, "the same as before")
            assert [event for event, partitions in bob.events[seen:] if partitions] == []

    run(case())


def test_a_second_consumer_with_the_same_instance_id_puts_the_first_out(broker: Broker, wire: Wire) -> None:
    topic, group = create_topic(wire, partitions=1), new_group(wire)

    async def case() -> None:
        async with our_members(broker.bootstrap, group, group_instance_id="only") as members:
            ann = members.start("ann", topic.name)
            await members.until(lambda: ann.owned, "its partition")
            ann.raises_end_polling = True
            bob = members.start("bob", topic.name)
            await members.until(lambda: bob.owned and ann.errors, "the second took its place")
            assert isinstance(ann.errors[0], FencedInstanceError)

    run(case())


@PROTOCOLS
def test_a_member_that_the_group_has_put_out_loses_its_partitions_and_joins_again(
    broker: Broker, wire: Wire, protocol: str
) -> None:
    topic, group = create_topic(wire, partitions=2), new_group(wire)

    async def case() -> None:
        async with our_members(broker.bootstrap, group, group_protocol=protocol) as members:
            ann = members.start("ann", topic.name)
            await members.until(lambda: ann.owned == all_of(topic, 2), "its partitions")
            before = ann.membership.metadata
            if protocol == "classic":
                wire.send("leave_group", 5, group_id=group, members=[{"member_id": before.member_id}])
            else:
                wire.send("consumer_group_heartbeat", group_id=group, member_id=before.member_id, member_epoch=-1)
            await members.until(lambda: ann.of("lost") and ann.owned == all_of(topic, 2), "all of it again")
            assert ann.of("lost") == [sorted(all_of(topic, 2))]
            assert len(ann.of("assigned")) == 2

    run(case())


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_the_coordinators_assignor_can_be_chosen(broker: Broker, wire: Wire, assignor: str) -> None:
    topic, group = create_topic(wire, partitions=4), new_group(wire)

    async def case() -> None:
        settings = {"group_protocol": "consumer", "group_remote_assignor": assignor}
        async with our_members(broker.bootstrap, group, **settings) as members:
            members.start("ann", topic.name)
            members.start("bob", topic.name)
            await members.until(lambda: members.spread(2, 2), "two each")
            described = wire.send("consumer_group_describe", group_ids=[group]).groups[0]
            assert described.assignor_name == assignor

    run(case())


@pytest.mark.parametrize(
    "settings",
    [
        {"group_protocol": "consumer", "group_remote_assignor": "no-such-one"},
        {"session_timeout_ms": 31 * 60_000, "heartbeat_interval_ms": 3000},
    ],
)
def test_what_the_group_refuses_for_good_is_raised_by_poll(
    broker: Broker, wire: Wire, settings: dict[str, Any]
) -> None:
    topic, group = create_topic(wire), new_group(wire)

    async def case() -> None:
        async with our_members(broker.bootstrap, group, **settings) as members:
            ann = members.start("ann", topic.name)
            await members.until(lambda: ann.errors, "the refusal")
            assert isinstance(ann.errors[0], ClientError)
            assert group in str(ann.errors[0])

    run(case())


def test_a_listener_that_fails_is_heard_of_when_the_rebalance_is_done(broker: Broker, wire: Wire) -> None:
    topic, group = create_topic(wire, partitions=2), new_group(wire)

    class Fails(RebalanceListener):
        def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
            raise RuntimeError("out of paper")

    async def case() -> None:
        async with our_members(broker.bootstrap, group) as members:
            ann = members.start("ann", topic.name)
            ann.membership.listener = Fails()
            await members.until(lambda: ann.errors, "the failure")
            assert isinstance(ann.errors[0], ListenerError)
            assert "out of paper" in str(ann.errors[0])
            assert ann.owned == all_of(topic, 2)

    run(case())


def test_a_slow_listener_keeps_the_membership(broker: Broker, wire: Wire) -> None:
    topic, group = create_topic(wire, partitions=2), new_group(wire)

    class Slow(OurMember):
        async def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
            await asyncio.sleep(1.2)
            await self.membership.commit({partition: OffsetAndMetadata(7) for partition in partitions})
            await super().on_revoked(partitions)

    async def case() -> None:
        async with our_members(broker.bootstrap, group, session_timeout_ms=700) as members:
            ann = members.start("ann", topic.name, kind=Slow)
            await members.until(lambda: members.spread(2), "all to one")
            members.start("bob", topic.name)
            await members.until(lambda: members.spread(1, 1), "one each")
            assert not ann.errors
            assert not ann.of("lost")
            found = await ann.membership.committed(all_of(topic, 2))
            assert {each and each.offset for each in found.values()} == {7}

    run(case())
