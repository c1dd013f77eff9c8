"""Groups for assignors: any members with any subscriptions, and the same group after something happened to it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import NamedTuple

from hypothesis import strategies as st

from headwater.coordinator.group.assignor import Assignor, Subscribers
from headwater.coordinator.group.consumer_partitions import NONE, Partition, Partitions, TopicKey

TOPICS = [TopicKey(number) for number in range(1, 6)]


class Subscriber(NamedTuple):
    """A member."""

    member_id: str
    topics: frozenset[TopicKey]
    instance_id: str | None = None
    partitions: Partitions = NONE


def assign(assignor: Assignor, members: Sequence[Subscriber], counts: dict[TopicKey, int]) -> dict[str, Partitions]:
    """What the assignor gives the members."""
    rows = sorted(members, key=attrgetter("member_id"))
    return assignor(
        Subscribers(
            member_ids=[row.member_id for row in rows],
            topics=[row.topics for row in rows],
            instance_ids=[row.instance_id for row in rows],
            partitions=[row.partitions for row in rows],
        ),
        counts,
    )


@dataclass(frozen=True, slots=True)
class Group:
    """What an assignor gets."""

    members: Sequence[Subscriber]
    counts: dict[TopicKey, int]

    def assigned_by(self, assignor: Assignor) -> dict[str, Partitions]:
        return assign(assignor, self.members, self.counts)

    def after(self, assignor: Assignor) -> "Group":
        """The same group, with what the assignor gave each member."""
        given = self.assigned_by(assignor)
        return replace(self, members=[member._replace(partitions=given[member.member_id]) for member in self.members])


def member(name: str, *topics: TopicKey, instance: str | None = None, has: Partitions = frozenset()) -> Subscriber:
    """A member that subscribes to these topics."""
    return Subscriber(member_id=name, instance_id=instance, topics=frozenset(topics), partitions=has)


def partitions(topic: TopicKey, *numbers: int) -> Partitions:
    """Partitions of one topic."""
    return frozenset(Partition(topic, number) for number in numbers)


@st.composite
def groups(draw: st.DrawFn, *, same_topics: bool = False) -> Group:
    """Any group: members come with whatever they had before, topics that are gone among it."""
    counts = draw(st.dictionaries(st.sampled_from(TOPICS[:4]), st.integers(1, 12), min_size=1))
    subscriptions = st.frozensets(st.sampled_from(sorted(counts)))
    everybodys = draw(subscriptions)
    names = draw(st.lists(st.sampled_from("abcdefgh"), min_size=1, unique=True))
    members = []
    for name in names:
        static = draw(st.booleans())
        members.append(
            member(name, *(everybodys if same_topics else draw(subscriptions)), instance=f"i{name}" if static else None)
        )
    held = draw(
        st.dictionaries(
            st.builds(Partition, st.sampled_from(TOPICS), st.integers(0, 14)), st.sampled_from(names), max_size=40
        )
    )
    return Group(
        [
            one._replace(partitions=frozenset(partition for partition, owner in held.items() if owner == one.member_id))
            for one in members
        ],
        counts,
    )


def check_complete(group: Group, given: dict[str, Partitions]) -> None:
    """Every partition that somebody subscribes to has one owner, who subscribes to it."""
    subscribed = {topic for one in group.members for topic in one.topics}
    owned = [partition for held in given.values() for partition in held]
    assert sorted(owned) == sorted(
        Partition(topic, number) for topic in subscribed for number in range(group.counts[topic])
    )
    for one in group.members:
        assert {partition.topic for partition in given[one.member_id]} <= one.topics
