"""What an assignor is: a pure function from topics and subscriptions to who gets which partitions.

Kafka's own four live beside this module. Another one only has to look like `Assignor`.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from headwater.client.consumer.assignors.java_order import hash_ordered
from headwater.client.consumer.group_protocol import Subscription
from headwater.types import TopicPartition

# The racks of each partition's replicas, by partition number; a topic has as many partitions as there are entries.
PartitionRacks = Sequence[frozenset[str]]
Topics = Mapping[str, PartitionRacks]
Members = Mapping[str, Subscription]
Assignments = dict[str, list[TopicPartition]]


class Assignor(Protocol):
    """Shares the partitions of a group's topics among its members. It holds no state of the group.

    `cooperative` assignors never give a partition away that its owner has not been asked to give up first.
    """

    @property
    def name(self) -> str:
        """How the group's members call it: all must have one in common."""

    @property
    def cooperative(self) -> bool:
        """Whether members keep their partitions while the group rebalances."""

    def assign(self, topics: Topics, members: Members) -> Assignments:
        """Every member with what it gets. `members` come in the order in which the coordinator names them."""

    def user_data(self, owned: Iterable[TopicPartition], generation: int) -> bytes | None:
        """What this member tells the leader beside its subscription: what it was given in `generation`."""


def known(topics: Topics, members: Members) -> dict[str, PartitionRacks]:
    """The subscribed topics that exist, in the order of Java's tables."""
    subscribed = hash_ordered(topic for subscription in members.values() for topic in subscription.topics)
    return {topic: topics[topic] for topic in hash_ordered(topic for topic in subscribed if topics.get(topic))}


def by_java_order(members: Members) -> dict[str, Subscription]:
    """The members in the order in which Java's leader goes over them."""
    return {member: members[member] for member in hash_ordered(members)}
