"""Cooperative sticky: sticky, but nobody is given a partition that its owner still holds. Pure; as Java's.

What moves is left out of the assignment at first; its owner gives it up and rejoins, and then it has no owner.
"""

from collections.abc import Iterable

from headwater.client.consumer.assignors.assignor import Assignments, Members, Topics
from headwater.client.consumer.assignors.sticky import assign_sticky
from headwater.client.consumer.group_protocol import (
    StickyUserData,
    Subscription,
    decode_generation,
    encode_generation,
)
from headwater.types import TopicPartition


class CooperativeStickyAssignor:
    """Kafka's `cooperative-sticky`."""

    name = "cooperative-sticky"
    cooperative = True

    def assign(self, topics: Topics, members: Members) -> Assignments:
        """What each member gets now; partitions that must be given up first come in the next generation."""
        result = assign_sticky(topics, members, _data_of)
        moving = _changing_hands(members, result.all) if result.moving is None else result.moving
        for partition, member in moving.items():
            result.all[member].remove(partition)
        return result.all

    def user_data(self, owned: Iterable[TopicPartition], generation: int) -> bytes | None:
        """The generation, for leaders that do not know it as a field of the subscription."""
        return encode_generation(generation)


def _data_of(subscription: Subscription) -> StickyUserData:
    if subscription.generation >= 0:
        return StickyUserData(subscription.owned, subscription.generation)
    return StickyUserData(subscription.owned, decode_generation(subscription.user_data))


def _changing_hands(members: Members, assignments: Assignments) -> dict[TopicPartition, str]:
    """Partitions that one member is to get and another still owns."""
    added: dict[TopicPartition, str] = {}
    revoked: set[TopicPartition] = set()
    for member, assigned in assignments.items():
        owned = set(members[member].owned)
        added.update((partition, member) for partition in assigned if partition not in owned)
        revoked |= owned.difference(assigned)
    return {partition: member for partition, member in added.items() if partition in revoked}
