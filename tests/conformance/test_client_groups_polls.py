"""How long a member may stay away: heartbeats keep its place between polls, and a missed poll interval ends it."""

import asyncio

import pytest

from headwater.client.consumer.consumer import Consumer
from headwater.client.consumer.group_errors import CommitFailedError
from headwater.client.consumer.membership import OffsetAndMetadata

from .actions import create_topic
from .client_members import PROTOCOLS, all_of, our_members, run
from .conftest import Broker
from .raw_groups import new_group
from .wire import Wire


@PROTOCOLS
def test_a_long_pause_between_polls_keeps_the_membership(broker: Broker, wire: Wire, protocol: str) -> None:
    topic, group = create_topic(wire, partitions=2), new_group(wire)
    # The coordinator keeps the session of a member of the consumer protocol: six seconds, in these tests.
    session = {"session_timeout_ms": 700} if protocol == "classic" else {}
    pause_s = 1.5 if protocol == "classic" else 6.5

    async def case() -> None:
        async with our_members(broker.bootstrap, group, group_protocol=protocol, **session) as members:
            ann = members.start("ann", topic.name)
            bob = members.start("bob", topic.name)
            await members.until(lambda: members.spread(1, 1), "one each")
            ann.polls = False
            seen = len(ann.events), len(bob.events)
            await asyncio.sleep(pause_s)
            assert (len(ann.events), len(bob.events)) == seen
            assert members.spread(1, 1)
            ann.polls = True

    run(case())


@PROTOCOLS
def test_who_misses_the_poll_interval_leaves_and_may_come_back(
    broker: Broker, wire: Wire, protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    topic, group = create_topic(wire, partitions=2), new_group(wire)

    async def case() -> None:
        settings = {"group_protocol": protocol, "max_poll_interval_ms": 1500}
        if protocol == "classic":
            settings["session_timeout_ms"] = 1000
        async with our_members(broker.bootstrap, group, **settings) as members:
            ann = members.start("ann", topic.name)
            bob = members.start("bob", topic.name)
            await members.until(lambda: members.spread(1, 1), "one each")
            had = sorted(ann.owned)
            ann.polls = False
            await members.until(lambda: bob.owned == all_of(topic, 2), "bob has everything")
            with pytest.raises(CommitFailedError):
                await ann.membership.commit({had[0]: OffsetAndMetadata(1)})
            ann.polls = True
            await members.until(lambda: members.spread(1, 1) and ann.of("lost"), "ann is back")
            assert ann.of("lost") == [had]

    run(case())
    assert "max.poll.interval.ms" in caplog.text


@PROTOCOLS
def test_a_poll_that_waits_longer_than_the_interval_is_no_silence(
    broker: Broker, wire: Wire, protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    topic, group = create_topic(wire), new_group(wire)

    async def case() -> None:
        settings = {"group_protocol": protocol, "max_poll_interval_ms": 800}
        if protocol == "classic":
            settings |= {"session_timeout_ms": 700, "heartbeat_interval_ms": 100}
        async with Consumer(broker.bootstrap, group, [topic.name], **settings) as consumer:
            await consumer.poll(1.8)
            assert consumer.assignment() == all_of(topic, 1)

    run(case())
    assert "max.poll.interval.ms" not in caplog.text
