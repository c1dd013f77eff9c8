"""What an assignor on the server's side gets and gives.

An assignor is a function of the members, each with the topics that it subscribes to and the partitions that it was to
have before, and of the partition counts of the topics that exist. It returns the partitions of every member. It knows
nothing of epochs, nor of what the members hold at the moment.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from headwater.coordinator.group.consumer_partitions import NONE, Partitions, TopicKey


class Subscriber(NamedTuple):
    """A member as an assignor sees it."""

    member_id: str
    topics: frozenset[TopicKey]
    """Only topics that exist."""
    instance_id: str | None = None
    partitions: Partitions = NONE
    """What the target before gave it; may name topics that are gone or no longer subscribed to."""


PartitionCounts = Mapping[TopicKey, int]
Assignor = Callable[[Sequence[Subscriber], PartitionCounts], dict[str, Partitions]]
