"""Kafka's four assignors, pure, with the results of Java's on the same input."""

from collections.abc import Sequence
from typing import Final

from headwater.client.consumer.assignors.assignor import Assignments, Assignor, Members, PartitionRacks, Topics
from headwater.client.consumer.assignors.cooperative_sticky import CooperativeStickyAssignor
from headwater.client.consumer.assignors.range import RangeAssignor
from headwater.client.consumer.assignors.round_robin import RoundRobinAssignor
from headwater.client.consumer.assignors.sticky import StickyAssignor

__all__ = [
    "ASSIGNORS",
    "Assignments",
    "Assignor",
    "CooperativeStickyAssignor",
    "Members",
    "PartitionRacks",
    "RangeAssignor",
    "RoundRobinAssignor",
    "StickyAssignor",
    "Topics",
    "all_cooperative",
    "named",
]

_ALL: Final = (RangeAssignor(), RoundRobinAssignor(), StickyAssignor(), CooperativeStickyAssignor())
ASSIGNORS: Final[dict[str, Assignor]] = {assignor.name: assignor for assignor in _ALL}


def named(assignors: Sequence[str | Assignor]) -> tuple[Assignor, ...]:
    """Assignors by their names, or given as they are.

    >>> [assignor.name for assignor in named(["cooperative-sticky", "range"])]
    ['cooperative-sticky', 'range']
    """
    found = []
    for assignor in assignors:
        if not isinstance(assignor, str):
            found.append(assignor)
        elif assignor in ASSIGNORS:
            found.append(ASSIGNORS[assignor])
        else:
            raise ValueError(f"no assignor is named {assignor!r}; there are {', '.join(ASSIGNORS)}")
    return tuple(found)


def all_cooperative(assignors: Sequence[Assignor]) -> bool:
    """Whether members keep their partitions while the group rebalances: all assignors must be able to do so."""
    return bool(assignors) and all(assignor.cooperative for assignor in assignors)
