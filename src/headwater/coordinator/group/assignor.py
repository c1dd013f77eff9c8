"""What an assignor on the server's side gets and gives.

An assignor is a function of the members, each with the topics that it subscribes to and the partitions that it was to
have before, and of the partition counts of the topics that exist. It returns the partitions of every member. It knows
nothing of epochs, nor of what the members hold at the moment.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from headwater.coordinator.group.consumer_partitions import Partitions, TopicKey


class Subscribers(NamedTuple):
    """The members as an assignor sees them, in the order of their ids.

    Column by column, not row by row: every join makes them anew, and rows would take longer to make than to assign.
    """

    member_ids: Sequence[str]
    topics: Sequence[frozenset[TopicKey]]
    """Only topics that exist."""
    instance_ids: Sequence[str | None]
    partitions: Sequence[Partitions]
    """What the target before gave each; may name topics that are gone or no longer subscribed to."""


PartitionCounts = Mapping[TopicKey, int]
Assignor = Callable[[Subscribers, PartitionCounts], dict[str, Partitions]]
