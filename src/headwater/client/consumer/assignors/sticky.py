"""Sticky: balanced first, then as much as possible of what everyone had. Pure; the same result as Java's.

Two kinds of input, on which Java's answer would be broken, are answered soundly here instead: an owned partition that
no longer exists is forgotten, and a partition never goes back to a former owner that does not want its topic any more.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from headwater.client.consumer.assignors.assignor import Assignments, Members, Topics, by_java_order, known
from headwater.client.consumer.assignors.racks import Racks
from headwater.client.consumer.assignors.sticky_equal import EqualSubscriptions
from headwater.client.consumer.assignors.sticky_general import UnequalSubscriptions
from headwater.client.consumer.group_protocol import (
    NO_GENERATION,
    StickyUserData,
    Subscription,
    decode_sticky_user_data,
    encode_sticky_user_data,
)
from headwater.types import TopicPartition

MemberData = Callable[[Subscription], StickyUserData]


class StickyAssignor:
    """Kafka's `sticky`: members give everything up before they join, so what they had comes as user data."""

    name = "sticky"
    cooperative = False

    def assign(self, topics: Topics, members: Members) -> Assignments:
        """A balanced assignment in which as little as possible moves."""
        return assign_sticky(topics, members, lambda subscription: decode_sticky_user_data(subscription.user_data)).all

    def user_data(self, owned: Iterable[TopicPartition], generation: int) -> bytes | None:
        """What this member was given last; nothing before its first generation."""
        return encode_sticky_user_data(owned, generation) if generation >= 0 else None


@dataclass(frozen=True, slots=True)
class StickyResult:
    """An assignment, and which partitions change hands in it; None where that was not kept track of."""

    all: Assignments
    moving: dict[TopicPartition, str] | None


@dataclass(frozen=True, slots=True)
class _Claims:
    """Who owned what, as far as it can be believed."""

    owned: Assignments
    doubly_claimed: set[TopicPartition]
    equal_subscriptions: bool


def assign_sticky(topics: Topics, members: Members, data_of: MemberData) -> StickyResult:
    """Chooses the quick way where all members want the same topics, else the general one."""
    if not members:
        return StickyResult({}, None)
    members = by_java_order(members)
    topics = known(topics, members)
    data = {member: data_of(subscription) for member, subscription in members.items()}
    claims = _claims(topics, members, data)
    racks = Racks(topics, members)
    if claims.equal_subscriptions:
        equal = EqualSubscriptions(topics, racks, claims.owned, claims.doubly_claimed)
        return StickyResult(equal.build(), equal.moving)
    return StickyResult(UnequalSubscriptions(topics, racks, claims.owned, members, data).build(), None)


def _claims(topics: Topics, members: Members, data: dict[str, StickyUserData]) -> _Claims:
    claims = _Claims({}, set(), _equal(members))
    owner_of: dict[TopicPartition, str] = {}
    for member in members:
        claims.owned[member] = []
        for partition in data[member].owned:
            if partition.topic in topics and partition.partition < len(topics[partition.topic]):
                _claim(claims, owner_of, partition, member, members, data)
    return claims


def _claim(
    claims: _Claims,
    owner_of: dict[TopicPartition, str],
    partition: TopicPartition,
    member: str,
    members: Members,
    data: dict[str, StickyUserData],
) -> None:
    """The newer generation is believed; of two members in the same one, neither."""
    other = owner_of.get(partition)
    if other is None:
        claims.owned[member].append(partition)
        owner_of[partition] = member
        return
    generation = data[member].generation
    generation = NO_GENERATION if generation is None else generation
    # The other's is that of its subscription, even where the user data says more: so does Java.
    other_generation = max(members[other].generation, NO_GENERATION)
    if generation < other_generation:
        return
    if partition in claims.owned[other]:
        claims.owned[other].remove(partition)
    owner_of[partition] = member
    if generation == other_generation:
        claims.doubly_claimed.add(partition)
    else:
        claims.owned[member].append(partition)


def _equal(members: Members) -> bool:
    first: frozenset[str] = frozenset()
    for subscription in members.values():
        if not first:
            first = frozenset(subscription.topics)
        elif len(subscription.topics) != len(first) or not first.issuperset(subscription.topics):
            return False
    return True
