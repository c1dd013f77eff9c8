"""The `uniform` assignor: members have equally many partitions, and as few as possible change hands.

When all members subscribe to the same topics, shares differ by one at most, and a partition moves only when its member
has more than its share. When subscriptions differ, a partition moves only from a member to another subscriber of its
topic that has at least two fewer: once no such move is left, no move of one partition could even things out.
"""

import functools
import heapq
from collections.abc import Sequence
from typing import Final

from headwater.coordinator.group.assignor import PartitionCounts, Subscribers
from headwater.coordinator.group.consumer_partitions import NONE, Partition, Partitions, TopicKey, all_of

_MAX_ROUNDS: Final = 50
"""Loads spread through overlapping subscriptions like heat in a rod; one end of a long rod may be left warmer."""
_NOBODY: Final = -1


def assign_uniformly(members: Subscribers, counts: PartitionCounts) -> dict[str, Partitions]:
    """Each member's partitions."""
    alike = set(members.topics)
    if len(alike) == 1:
        every = _every(tuple([(topic, counts[topic]) for topic in alike.pop()]))
        return dict(zip(members.member_ids, _equal_shares(members.partitions, every), strict=True))
    return _Levelling(members, counts).result()


def _equal_shares(had: Sequence[Partitions], every: Partitions) -> list[Partitions]:
    """Shares out all partitions among as many members as `had` names the partitions of."""
    kept = list(had)
    held = NONE.union(*kept)
    if len(held) != sum(map(len, kept)) or not held <= every:
        kept = _share_out(kept, every)
        held = NONE.union(*kept)
    unassigned = [] if len(held) == len(every) else list(every - held)
    sizes = list(map(len, kept))
    share, rest = divmod(len(every), len(kept))
    quotas = [share] * len(kept)
    # The larger shares go to those who have most already: so the fewest partitions move.
    for index in sorted(range(len(kept)), key=sizes.__getitem__, reverse=True)[:rest]:
        quotas[index] += 1
    short = []
    for index, (size, quota) in enumerate(zip(sizes, quotas, strict=True)):
        if size > quota:
            surplus = [max(kept[index])] if size == quota + 1 else sorted(kept[index])[quota:]
            unassigned += surplus
            kept[index] = kept[index].difference(surplus)
        elif size < quota:
            short.append(index)
    unassigned.sort(reverse=True)
    for index in short:
        missing = quotas[index] - sizes[index]
        kept[index] = kept[index].union(unassigned[-missing:])
        del unassigned[-missing:]
    return kept


@functools.lru_cache(maxsize=100)
def _every(topics: tuple[tuple[TopicKey, int], ...]) -> Partitions:
    """All partitions of topics with their counts."""
    return frozenset([partition for topic, count in topics for partition in all_of(topic, count)])


def _share_out(kept: Sequence[Partitions], every: Partitions) -> list[Partitions]:
    """Takes from members what there is no longer, and lets only the first of several keep a partition."""
    taken: set[Partition] = set()
    shared = []
    for partitions in kept:
        left = partitions & every if taken.isdisjoint(partitions) else (partitions & every) - taken
        shared.append(left)
        taken |= left
    return shared


class _Levelling:
    """Subscriptions differ: members are numbers, each with a load; each topic knows the owner of each partition."""

    def __init__(self, members: Subscribers, counts: PartitionCounts) -> None:
        self._members = members
        self._loads = [0] * len(members.member_ids)
        self._subscribers: dict[TopicKey, list[int]] = {}
        for index, topics in enumerate(members.topics):
            for topic in topics:
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
        held: list[list[Partition]] = [[] for _ in self._loads]
        for topic, owners in self._owners.items():
            for number, owner in enumerate(owners):
                held[owner].append(Partition(topic, number))
        return dict(zip(self._members.member_ids, map(frozenset, held), strict=True))

    def _weight(self, topic: TopicKey) -> tuple[float, int, TopicKey]:
        subscribers = len(self._subscribers[topic])
        return -len(self._owners[topic]) / subscribers, subscribers, topic

    def _keep(self) -> None:
        for index, (topics, had) in enumerate(zip(self._members.topics, self._members.partitions, strict=True)):
            for topic, number in had:
                owners = self._owners.get(topic, ()) if topic in topics else ()
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
