"""Groups over a network that loses requests, answers and connections: nobody is given what another still has."""

import asyncio
import random
from collections.abc import Iterator

import pytest

from headwater.client.consumer.membership import OffsetAndMetadata
from headwater.testing import LocalBroker
from headwater.testing.flaky_proxy import FlakyProxy

from .actions import create_topic
from .client_members import OurMember, OurMembers, our_members, run
from .raw_groups import new_group
from .wire import Wire

PROMPT = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.min.heartbeat.interval.ms": "100",
}
CLASSIC = ("find_coordinator", "join_group", "sync_group", "heartbeat", "offset_commit", "offset_fetch", "leave_group")
KINDS = [
    {"partition_assignment_strategy": ["range"]},
    {"partition_assignment_strategy": ["cooperative-sticky"]},
    {"group_protocol": "consumer"},
]


@pytest.fixture(scope="module")
def proxy() -> Iterator[FlakyProxy]:
    with FlakyProxy() as proxy:
        config = {**PROMPT, "advertised.listeners": f"PLAINTEXT://{proxy.address}"}
        with LocalBroker(config=config) as broker:
            proxy.forward_to(broker.port)
            yield proxy


@pytest.fixture
def wire(proxy: FlakyProxy) -> Iterator[Wire]:
    with Wire(proxy.address) as connection:
        yield connection


@pytest.mark.parametrize("fault", ["lose_requests", "lose_answers"])
@pytest.mark.parametrize("api", [*CLASSIC, "consumer_group_heartbeat"])
def test_a_group_gets_over_what_is_lost(proxy: FlakyProxy, wire: Wire, api: str, fault: str) -> None:
    topic, group = create_topic(wire, partitions=4), new_group(wire)
    settings: dict[str, object] = {"group_protocol": "consumer"}
    if api in CLASSIC:
        # A member of whom nobody heard again holds the group up until its session ends.
        settings = {"session_timeout_ms": 2000}

    async def case() -> None:
        lost = proxy.lost
        getattr(proxy, fault)(api, times=2)
        async with our_members(proxy.address, group, **settings) as members:
            ann = members.start("ann", topic.name)
            bob = members.start("bob", topic.name)
            await members.until(lambda: members.spread(2, 2), "two each")
            (place, *_) = ann.owned
            await ann.membership.commit({place: OffsetAndMetadata(8)})
            assert await bob.membership.committed([place]) == {place: OffsetAndMetadata(8)}
            assert not ann.errors + bob.errors
            await members.stop(ann)
            # Where the good-bye was lost, the group waits for the session to end.
            if api != "leave_group":
                await members.until(lambda: members.spread(4), "bob has everything")
                await members.until(lambda: proxy.lost == lost + 2, "both faults took place")

    run(case())


@pytest.mark.parametrize("kind", KINDS, ids=["range", "cooperative-sticky", "consumer"])
def test_in_all_the_unrest_no_partition_has_two_owners(proxy: FlakyProxy, wire: Wire, kind: dict[str, object]) -> None:
    topics = {create_topic(wire, partitions=partitions).name: partitions for partitions in (5, 4, 3)}
    group, seed = new_group(wire), random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)

    async def case() -> None:
        async with our_members(proxy.address, group, **kind) as members:
            for step in range(30):
                await _something_happens(chance, members, list(topics), step)
                if chance.random() < 0.2:
                    await asyncio.to_thread(proxy.cut)
                for _ in range(chance.randint(1, 15)):
                    await asyncio.sleep(0.01)
                    owned = [place for member in members.running for place in member.owned]
                    assert len(owned) == len(set(owned)), members.story()

            def settled() -> bool:
                wanted = {topic for member in members.running for topic in member.subscription.subscribed_topics}
                owned = [(place, member) for member in members.running for place in member.owned]
                fits = all(place.topic in member.subscription.subscribed_topics for place, member in owned)
                return fits and len(owned) == sum(topics[topic] for topic in wanted)

            await members.until(settled, "everything that is wanted has an owner that wants it")

    run(case())


async def _something_happens(chance: random.Random, members: OurMembers, topics: list[str], step: int) -> None:
    wanted = chance.sample(topics, chance.randint(1, len(topics)))
    what = chance.choice(("join", "join", "leave", "subscribe", "nothing"))
    if not members.running or (what == "join" and len(members.running) < 5):
        members.start(f"member-{step}", *wanted, kind=chance.choice((OurMember, Impatient)))
    elif what == "leave" and len(members.running) > 1:
        await members.stop(chance.choice(members.running))
    elif what == "subscribe":
        chance.choice(members.running).subscription.subscribe(wanted)


class Impatient(OurMember):
    """Gives up most polls before they are done."""

    async def poll(self) -> None:
        try:
            async with asyncio.timeout(0.005):
                await super().poll()
        except TimeoutError:
            pass
