"""What a group reads when topics and subscriptions change under it."""

import re

from .actions import create_topic, unique_name
from .client_members import PROTOCOLS, all_of, our_members, run
from .conftest import Broker
from .raw_groups import new_group
from .wire import Wire


def test_the_leader_notices_new_partitions(broker: Broker, wire: Wire) -> None:
    topic, group = create_topic(wire, partitions=2), new_group(wire)

    async def case() -> None:
        async with our_members(broker.bootstrap, group) as members:
            members.start("ann", topic.name)
            members.start("bob", topic.name)
            await members.until(lambda: members.spread(1, 1), "one each")
            wire.send("create_partitions", topics=[{"name": topic.name, "count": 5}], timeout=5_000)
            await members.until(lambda: members.spread(2, 3), "the new ones too")

    run(case())


def test_a_topic_that_is_made_later_is_read_then(broker: Broker, wire: Wire) -> None:
    name, group = unique_name(), new_group(wire)

    async def case() -> None:
        async with our_members(broker.bootstrap, group, allow_auto_create_topics=False) as members:
            ann = members.start("ann", name)
            await members.until(lambda: ann.membership.metadata.generation_id > 0, "a member without partitions")
            create_topic(wire, partitions=3, name=name)
            await members.until(lambda: members.spread(3), "all partitions")

    run(case())


@PROTOCOLS
def test_a_pattern_finds_topics_of_today_and_tomorrow(broker: Broker, wire: Wire, protocol: str) -> None:
    prefix, group = unique_name("pattern"), new_group(wire)
    create_topic(wire, partitions=2, name=f"{prefix}-a")
    create_topic(wire, partitions=2, name=f"other-{prefix}-a")

    async def case() -> None:
        async with our_members(broker.bootstrap, group, group_protocol=protocol) as members:
            ann = members.start("ann", pattern=re.compile(f"{prefix}-.*"))
            await members.until(lambda: members.spread(2), "the first topic")
            create_topic(wire, partitions=3, name=f"{prefix}-b")
            await members.until(lambda: members.spread(5), "the second topic")
            assert {partition.topic for partition in ann.owned} == {f"{prefix}-a", f"{prefix}-b"}

    run(case())


@PROTOCOLS
def test_a_changed_subscription_changes_the_assignment(broker: Broker, wire: Wire, protocol: str) -> None:
    first, second, group = create_topic(wire, partitions=2), create_topic(wire, partitions=3), new_group(wire)

    async def case() -> None:
        async with our_members(broker.bootstrap, group, group_protocol=protocol) as members:
            ann = members.start("ann", first.name)
            await members.until(lambda: ann.owned == all_of(first, 2), "the first topic")
            ann.subscription.subscribe([second.name])
            await members.until(lambda: ann.owned == all_of(second, 3), "the second topic")
            assert ann.of("revoked") == [sorted(all_of(first, 2))]

    run(case())


def test_the_leader_looks_for_topics_that_only_others_want(broker: Broker, wire: Wire) -> None:
    topic, later, group = create_topic(wire, partitions=2), unique_name(), new_group(wire)

    async def case() -> None:
        async with our_members(broker.bootstrap, group, allow_auto_create_topics=False) as members:
            ann = members.start("ann", topic.name)
            await members.until(lambda: ann.owned == all_of(topic, 2), "its topic")
            bob = members.start("bob", later)
            await members.until(lambda: bob.membership.metadata.generation_id > 0, "a member without partitions")
            made = create_topic(wire, partitions=3, name=later)
            await members.until(
                lambda: (bob.owned, ann.owned) == (all_of(made, 3), all_of(topic, 2)), "each its own topic"
            )

    run(case())
