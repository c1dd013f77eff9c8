"""Groups that mix headwater's members with confluent-kafka's and Java's: all partitions, each with one of them."""

import asyncio
from pathlib import Path

import pytest

from headwater.types import TopicPartition
from peers.presence import require_apache
from peers.verifiable import VerifiableConsumer

from .actions import create_topic
from .client_members import all_of, our_members, run
from .confluent_members import Members
from .conftest import Broker
from .raw_groups import new_group
from .wire import Wire

ASSIGNORS = pytest.mark.parametrize("assignor", ["range", "roundrobin", "cooperative-sticky"])


@ASSIGNORS
def test_a_group_mixes_our_members_and_confluents(broker: Broker, wire: Wire, assignor: str) -> None:
    topic, group = create_topic(wire, partitions=7), new_group(wire)
    settings = {"partition.assignment.strategy": assignor}

    async def case(theirs: Members) -> None:
        settings = {"partition_assignment_strategy": [assignor]}

        def shared(*counts: int) -> bool:
            shares: list[list[TopicPartition]] = [list(member.owned) for member in ours.running]
            shares += [[TopicPartition(*partition) for partition in member.owned] for member in theirs.running]
            owned = [partition for share in shares for partition in share]
            return sorted(map(len, shares)) == sorted(counts) and sorted(owned) == sorted(all_of(topic, 7))

        def poll_theirs() -> None:
            for member in theirs.running:
                member.poll()

        async with our_members(broker.bootstrap, group, **settings) as ours:
            # Whoever is first leads the group: once ours, once theirs.
            ann = ours.start("ann", topic.name)
            await ours.until(lambda: shared(7), "ours has everything")
            bob = theirs.start("bob", topic.name)
            await ours.until(lambda: shared(4, 3), "one of each", poll_theirs)
            ours.start("cat", topic.name)
            await ours.until(lambda: shared(3, 2, 2), "two of ours", poll_theirs)
            await ours.stop(ann)
            await ours.until(lambda: shared(4, 3), "without our first", poll_theirs)
            theirs.start("dan", topic.name)
            await ours.until(lambda: shared(3, 2, 2), "two of theirs", poll_theirs)
            await asyncio.to_thread(theirs.stop, bob)
            await ours.until(lambda: shared(4, 3), "without their first", poll_theirs)

    with Members(broker, group, **settings) as theirs:
        run(case(theirs))


@pytest.mark.peer
@pytest.mark.parametrize("strategy", ["RangeAssignor", "CooperativeStickyAssignor"])
def test_a_group_mixes_our_member_and_javas(broker: Broker, wire: Wire, tmp_path: Path, strategy: str) -> None:
    require_apache()
    name = {"RangeAssignor": "range", "CooperativeStickyAssignor": "cooperative-sticky"}[strategy]
    topic, group = create_topic(wire, partitions=5), new_group(wire)
    assignor = f"org.apache.kafka.clients.consumer.{strategy}"

    async def case(java: VerifiableConsumer) -> None:
        async with our_members(broker.bootstrap, group, partition_assignment_strategy=[name]) as ours:
            ann = ours.start("ann", topic.name)

            def shared() -> bool:
                theirs = {TopicPartition(*partition) for partition in java.owned}
                return {len(theirs), len(ann.owned)} == {2, 3} and theirs | ann.owned == all_of(topic, 5)

            await ours.until(shared, "ours and Java's share", java.follow)

    with VerifiableConsumer(broker.bootstrap, group, topic.name, tmp_path, "--assignment-strategy", assignor) as java:
        run(case(java))
