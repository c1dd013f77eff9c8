"""The sticky assignment of members that all want the same topics: everyone gets its fair number. Pure.

1. Everyone keeps what it had, up to its fair number; with racks, only what is near.
2. With racks: what is left goes to members near it, as far as they have room.
3. The rest goes round the members that have room.
"""

from collections import deque

from headwater.client.consumer.assignors.assignor import Assignments, Topics
from headwater.client.consumer.assignors.racks import Racks
from headwater.types import TopicPartition


class EqualSubscriptions:
    """One assignment in the making. `least` is the fair number; `_with_one_more` members get one beyond it."""

    def __init__(self, topics: Topics, racks: Racks, owned: Assignments, doubly_claimed: set[TopicPartition]) -> None:
        self.moving: dict[TopicPartition, str] = {}
        self._topics = topics
        self._racks = racks
        self._owned = owned
        self._doubly_claimed = doubly_claimed
        self._given_up_by: dict[TopicPartition, str] = {}
        self._assignments: Assignments = {member: [] for member in owned}
        self._below_least: list[str] = []
        self._at_least: list[str] = []
        self._least, self._with_one_more = divmod(sum(map(len, topics.values())), len(owned))
        self._most = self._least + (self._with_one_more > 0)
        self._already_above = 0

    def build(self) -> Assignments:
        """The assignment."""
        for member in self._owned:
            self._keep(member)
        taken = {partition for kept in self._assignments.values() for partition in kept}
        free = [
            partition
            for topic in sorted(self._topics)
            for number in range(len(self._topics[topic]))
            if (partition := TopicPartition(topic, number)) not in taken
        ]
        self._below_least.sort()
        self._at_least.sort()
        self._go_round(self._assign_near(self._racks.hardest_first(free)))
        return self._assignments

    def _keep(self, member: str) -> None:
        owned = []
        for partition in sorted(self._owned[member], key=lambda owned: (owned.partition, owned.topic)):
            if self._racks.mismatch(member, partition):
                self._given_up_by[partition] = member
            elif partition not in self._doubly_claimed:
                owned.append(partition)
        if len(owned) < self._least:
            kept = len(owned)
            self._below_least.append(member)
        elif len(owned) >= self._most and self._already_above < self._with_one_more:
            kept = self._most
            self._above_least()
        else:
            kept = self._least
            if self._already_above < self._with_one_more:
                self._at_least.append(member)
        self._assignments[member] += owned[:kept]
        self._given_up_by.update((partition, member) for partition in owned[kept:])

    def _above_least(self) -> None:
        """One more member has more than the fair number; when that is all that may, nobody else is waiting for it."""
        self._already_above += 1
        if self._already_above == self._with_one_more:
            self._at_least.clear()

    def _assign_near(self, free: list[TopicPartition]) -> list[TopicPartition]:
        """Gives partitions to members near them; returns those that are left."""
        if not self._racks.of_member:
            return free
        left = []
        turn = 0
        for partition in free:
            found = self._racks.next_near(partition, self._below_least, turn)
            if found is not None:
                member = self._below_least[found]
                if len(self._assignments[member]) + 1 >= self._least:
                    del self._below_least[found]
                    if len(self._assignments[member]) + 1 < self._most and self._already_above < self._with_one_more:
                        self._at_least.append(member)
                else:
                    found += 1
                turn = found % len(self._below_least) if self._below_least else 0
                self._give(partition, member)
            elif (above := self._racks.next_near(partition, self._at_least, 0)) is not None:
                member = self._at_least[above]
                if len(self._assignments[member]) + 1 == self._most:
                    del self._at_least[above]
                    self._above_least()
                self._give(partition, member)
            else:
                left.append(partition)
        return left

    def _go_round(self, free: list[TopicPartition]) -> None:
        below, waiting = self._below_least, deque(self._at_least)
        turn = 0
        for partition in free:
            if turn >= len(below):
                turn = 0
            member = below[turn] if below else waiting.popleft()
            self._give(partition, member)
            if below and len(self._assignments[member]) == self._least:
                del below[turn]
                waiting.append(member)
            else:
                turn += 1

    def _give(self, partition: TopicPartition, member: str) -> None:
        self._assignments[member].append(partition)
        former = self._given_up_by.get(partition, member)
        if former != member or partition in self._doubly_claimed:
            self.moving[partition] = member
