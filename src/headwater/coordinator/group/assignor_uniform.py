"""The `uniform` assignor: members have equally many partitions, and as few as possible change hands.

When all members subscribe to the same topics, shares differ by one at most, and a partition moves only when its member
has more than its share. When subscriptions differ, a partition moves only from a member to another subscriber of its
topic that has at least two fewer: once no such move is left, no move of one partition could even things out.
"""

import functools
import heapq
from collections.abc import Sequence
from operator import attrgetter
from typing import Final

from headwater.coordinator.group.assignor import PartitionCounts, Subscriber
from headwater.coordinator.group.consumer_partitions import Partition, Partitions, TopicKey, all_of

_MAX_ROUNDS: Final = 50
"""Loads spread through overlapping subscriptions like heat in a rod; one end of a long rod may be left warmer."""
_NOBODY: Final = -1


def assign_uniformly(members: Sequence[Subscriber], counts: PartitionCounts) -> dict[str, Partitions]:
    """Each member's partitions."""
    if not members:
        return {}
    members = sorted(members, key=attrgetter("member_id"))
    if len({member.topics for member in members}) == 1:
        return _equal_shares(members, counts)
    return _Levelling(members, counts).result()


def _equal_shares(members: Sequence[Subscriber], counts: PartitionCounts) -> dict[str, Partitions]:
    topics = tuple([(topic, counts[topic]) for topic in sorted(members[0].topics)])
    every, _ = _numbered(topics)
    kept = [list(_places(member.partitions, topics)) for member in members]
    free = set(range(len(every))).difference(*kept)
    if len(free) + sum(map(len, kept)) != len(every):
        _share_out(kept)
    unchanged = [len(places) == len(member.partitions) for member, places in zip(members, kept, strict=True)]
    share, rest = divmod(len(every), len(members))
    quotas = [share] * len(members)
    # The larger shares go to those who have most already: so the fewest partitions move.
    for index in sorted(range(len(members)), key=list(map(len, kept)).__getitem__, reverse=True)[:rest]:
        quotas[index] += 1
    unassigned = list(free)
    for index, (places, quota) in enumerate(zip(kept, quotas, strict=True)):
        if len(places) > quota:
            places.sort()
            unassigned.extend(places[quota:])
            del places[quota:]
            unchanged[index] = False
    unassigned.sort(reverse=True)
    for index, (places, quota) in enumerate(zip(kept, quotas, strict=True)):
        if len(places) < quota:
            missing = quota - len(places)
            places += unassigned[: -missing - 1 : -1]
            del unassigned[-missing:]
            unchanged[index] = False
    return {
        member.member_id: member.partitions if same else frozenset([every[place] for place in places])
        for member, places, same in zip(members, kept, unchanged, strict=True)
    }


@functools.lru_cache(maxsize=100)
def _numbered(topics: tuple[tuple[TopicKey, int], ...]) -> tuple[list[Partition], dict[Partition, int]]:
    """All partitions of topics with their counts, and the place of each; neither is changed by who asks."""
    every = [partition for topic, count in topics for partition in all_of(topic, count)]
    return every, {partition: place for place, partition in enumerate(every)}


@functools.lru_cache(maxsize=10_000)
def _places(partitions: Partitions, topics: tuple[tuple[TopicKey, int], ...]) -> list[int]:
    """The places of those partitions that there are. Most members keep what they have: it is asked again and again."""
    _, places_of = _numbered(topics)
    return [places_of[partition] for partition in partitions if partition in places_of]


def _share_out(kept: list[list[int]]) -> None:
    """Lets only the first of several members keep a place."""
    taken: set[int] = set()
    for places in kept:
        places[:] = [place for place in places if place not in taken]
        taken.update(places)


class _Levelling:
    """Subscriptions differ: members are numbers, each with a load; each topic knows the owner of each partition."""

    def __init__(self, members: Sequence[Subscriber], counts: PartitionCounts) -> None:
        self._members = members
        self._loads = [0] * len(members)
        self._subscribers: dict[TopicKey, list[int]] = {}
        for index, member in enumerate(members):
            for topic in member.topics:
                self._subscribers.setdefault(topic, []).append(index)
        self._owners = {topic: [_NOBODY] * counts[topic] for topic in self._subscribers}
        # Topics that weigh most on few members come first: the others can still even out what those leave.
        self._topics = sorted(self._subscribers, key=self._weight)

    def result(self) -> dict[str, Partitions]:
        self._keep()
        for topic in self._topics:
            self._give_out(topic)
        for _ in range(_MAX_ROUNDS):
            if not sum(self._level(topic) for topic in self._topics):
                break
        held: list[list[Partition]] = [[] for _ in self._members]
        for topic, owners in self._owners.items():
            for number, owner in enumerate(owners):
                held[owner].append(Partition(topic, number))
        return {member.member_id: frozenset(held[index]) for index, member in enumerate(self._members)}

    def _weight(self, topic: TopicKey) -> tuple[float, int, TopicKey]:
        subscribers = len(self._subscribers[topic])
        return -len(self._owners[topic]) / subscribers, subscribers, topic

    def _keep(self) -> None:
        for index, member in enumerate(self._members):
            for topic, number in member.partitions:
                owners = self._owners.get(topic, ()) if topic in member.topics else ()
                if number < len(owners) and owners[number] == _NOBODY:
                    self._own(topic, number, index)

    def _own(self, topic: TopicKey, number: int, index: int) -> None:
        before = self._owners[topic][number]
        if before != _NOBODY:
            self._loads[before] -= 1
        self._owners[topic][number] = index
        self._loads[index] += 1

    def _give_out(self, topic: TopicKey) -> None:
        """Each partition that nobody has goes to the subscriber with the least."""
        least = [(self._loads[index], index) for index in self._subscribers[topic]]
        heapq.heapify(least)
        for number, owner in enumerate(self._owners[topic]):
            if owner == _NOBODY:
                load, index = least[0]
                self._own(topic, number, index)
                heapq.heapreplace(least, (load + 1, index))

    def _level(self, topic: TopicKey) -> int:
        """Moves partitions of a topic from those who have most to those who have least; how many."""
        loads, subscribers = self._loads, self._subscribers[topic]
        lowest = min(loads[index] for index in subscribers)
        if max(loads[index] for index in subscribers) - lowest < 2:
            return 0
        held: dict[int, list[int]] = {}
        for number, owner in enumerate(self._owners[topic]):
            held.setdefault(owner, []).append(number)
        least = [(loads[index], index) for index in subscribers]
        most = [(-loads[index], index) for index in held]
        heapq.heapify(least)
        heapq.heapify(most)
        moved = 0
        while most:
            load, giver = -most[0][0], most[0][1]
            taker_load, taker = least[0]
            if load - taker_load < 2:
                break
            self._own(topic, held[giver].pop(), taker)
            moved += 1
            heapq.heapreplace(least, (taker_load + 1, taker))
            if held[giver]:
                heapq.heapreplace(most, (1 - load, giver))
            else:
                heapq.heappop(most)
        return moved
