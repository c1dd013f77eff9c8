"""A coordinator that goes away and comes back finds its members as they were: nobody rebalances, nothing is lost."""

import asyncio
from pathlib import Path

import pytest

from headwater.client.consumer.membership import OffsetAndMetadata
from peers.headwater import HeadwaterProcess

from .actions import create_topic
from .client_members import PROTOCOLS, our_members, run
from .raw_groups import new_group
from .wire import Wire

PROMPT = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.min.heartbeat.interval.ms": "100",
}


@PROTOCOLS
@pytest.mark.parametrize("ending", ["stop", "kill"])
def test_members_outlive_a_restart_of_their_coordinator(tmp_path: Path, protocol: str, ending: str) -> None:
    with HeadwaterProcess(tmp_path, PROMPT) as broker:
        with Wire(broker.bootstrap) as wire:
            topic, group = create_topic(wire, partitions=4), new_group(wire)

        async def case() -> None:
            async with our_members(broker.bootstrap, group, group_protocol=protocol) as members:
                ann = members.start("ann", topic.name)
                bob = members.start("bob", topic.name)
                await members.until(lambda: members.spread(2, 2), "two each")
                await asyncio.sleep(0.3)
                before = [list(member.events) for member in (ann, bob)]
                await asyncio.to_thread(getattr(broker, ending))
                place = sorted(ann.owned)[0]
                committing = asyncio.create_task(ann.membership.commit({place: OffsetAndMetadata(9)}))
                await asyncio.sleep(0.5)
                await asyncio.to_thread(broker.start)
                await committing
                assert await bob.membership.committed([place]) == {place: OffsetAndMetadata(9)}
                await asyncio.sleep(0.5)
                assert [list(member.events) for member in (ann, bob)] == before
                assert not ann.errors + bob.errors
                # Those who come later are let in.
                members.start("cat", topic.name)
                await members.until(lambda: members.spread(1, 1, 2), "three share")

        run(case())
