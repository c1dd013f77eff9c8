"""The sticky assignment of members that want different topics. Pure.

Everyone keeps what it had and may still have; what is free goes to whoever has least; then partitions move from members
with many to members with few until no move makes it more balanced. If all that moving gained nothing, it is undone.
"""

from bisect import bisect_left, insort
from itertools import accumulate

from headwater.client.consumer.assignors.assignor import Assignments, Members, Topics
from headwater.client.consumer.assignors.racks import Racks
from headwater.client.consumer.assignors.sticky_moves import Moves
from headwater.client.consumer.group_protocol import NO_GENERATION, StickyUserData
from headwater.types import TopicPartition


class UnequalSubscriptions:
    """One assignment in the making."""

    def __init__(
        self,
        topics: Topics,
        racks: Racks,
        owned: Assignments,
        members: Members,
        data: dict[str, StickyUserData],
    ) -> None:
        self._topics = topics
        self._racks = racks
        self._assignments = owned
        self._wanted = {
            member: [topic for topic in subscription.topics if topic in topics]
            for member, subscription in members.items()
        }
        self._wanting: dict[str, list[str]] = {topic: [] for topic in topics}
        for member, wanted in self._wanted.items():
            for topic in wanted:
                self._wanting[topic].append(member)
        self._former_owners = self._find_former_owners(data)
        self._owner: dict[TopicPartition, str] = {}
        self._moves = Moves()
        self._must_give_up = False
        self._by_load: list[tuple[int, str]] = []

    def build(self) -> Assignments:
        """The assignment."""
        self._keep_what_may_be_kept()
        by_demand = sorted(self._topics, key=lambda topic: (len(self._wanting[topic]), topic))
        everything = [
            TopicPartition(topic, number) for topic in by_demand for number in range(len(self._topics[topic]))
        ]
        free = [partition for partition in everything if partition not in self._owner]
        self._by_load = sorted((len(partitions), member) for member, partitions in self._assignments.items())
        nobody_had_any = self._by_load[-1][0] == 0
        self._assign_free(free)
        self._balance(everything, free, nobody_had_any)
        return self._assignments

    def _find_former_owners(self, data: dict[str, StickyUserData]) -> dict[TopicPartition, str]:
        """Who had a partition in an older generation than the newest that any member names."""
        generations = [NO_GENERATION if told.generation is None else told.generation for told in data.values()]
        newest = max([NO_GENERATION, *generations])
        found: dict[TopicPartition, tuple[int, str]] = {}
        for (member, told), generation in zip(data.items(), generations, strict=True):
            if generation >= newest:
                continue
            for partition in told.owned:
                if partition not in found or generation > found[partition][0]:
                    found[partition] = generation, member
        return {
            partition: member
            for partition, (_, member) in found.items()
            if member in self._wanting.get(partition.topic, ())
        }

    def _keep_what_may_be_kept(self) -> None:
        for member, partitions in self._assignments.items():
            kept = []
            for partition in partitions:
                if partition.topic not in self._wanted[member] or self._racks.mismatch(member, partition):
                    self._must_give_up = True
                else:
                    kept.append(partition)
                    self._owner[partition] = member
            partitions[:] = kept

    def _assign_free(self, free: list[TopicPartition]) -> None:
        """To the least loaded member that wants it; with racks, first all that have one nearby."""
        left = free
        if self._racks.of_member:
            left = [partition for partition in free if not self._assign_to_least(partition, near=True)]
        for partition in left:
            self._assign_to_least(partition, near=False)

    def _assign_to_least(self, partition: TopicPartition, *, near: bool) -> bool:
        for _, member in self._by_load:
            if partition.topic in self._wanted[member] and not (near and self._racks.mismatch(member, partition)):
                self._change(member, partition, add=True)
                self._owner[partition] = member
                return True
        return False

    def _balance(self, everything: list[TopicPartition], free: list[TopicPartition], nobody_had_any: bool) -> None:
        everything = [partition for partition in everything if self._may_move(partition.topic)]
        free = [partition for partition in free if self._may_move(partition.topic)]
        fixed = {member: self._assignments.pop(member) for member in self._wanted if not self._may_change(member)}
        self._by_load = [(size, member) for size, member in self._by_load if member not in fixed]
        before = {member: list(partitions) for member, partitions in self._assignments.items()}
        # New partitions are moved first: with luck nobody has to give up what it had.
        if not self._must_give_up:
            self._reassign(free)
        if self._reassign(everything) and not nobody_had_any and _imbalance(self._assignments) >= _imbalance(before):
            self._assignments.update(before)
        self._assignments.update(fixed)

    def _may_move(self, topic: str) -> bool:
        return len(self._wanting[topic]) >= 2

    def _may_change(self, member: str) -> bool:
        partitions = self._assignments[member]
        return len(partitions) < self._most_possible(member) or any(self._may_move(p.topic) for p in partitions)

    def _most_possible(self, member: str) -> int:
        return sum(len(self._topics[topic]) for topic in self._wanted[member])

    def _reassign(self, partitions: list[TopicPartition]) -> bool:
        """Moves partitions until a whole round moves none; whether any moved."""
        moved = False
        while self._reassign_round(partitions):
            moved = True
        return moved

    def _reassign_round(self, partitions: list[TopicPartition]) -> bool:
        moved = False
        for partition in partitions:
            if self._balanced():
                break
            load = len(self._assignments[self._owner[partition]])
            former = self._former_owners.get(partition)
            if former is not None and load > len(self._assignments[former]) + 1:
                self._move(partition, former)
                moved = True
            elif any(load > len(self._assignments[other]) + 1 for other in self._wanting[partition.topic]):
                self._move(partition, next(m for _, m in self._by_load if partition.topic in self._wanted[m]))
                moved = True
        return moved

    def _balanced(self) -> bool:
        """Whether no member could take a partition from one that has at least two more."""
        if not self._by_load or self._by_load[0][0] >= self._by_load[-1][0] - 1:
            return True
        for load, member in self._by_load:
            if load == self._most_possible(member):
                continue
            for topic in self._wanted[member]:
                for number in range(len(self._topics[topic])):
                    owner = self._owner[TopicPartition(topic, number)]
                    if owner != member and load + 1 < len(self._assignments[owner]):
                        return False
        return True

    def _move(self, partition: TopicPartition, member: str) -> None:
        """Moves the partition, or one of the same topic that would otherwise cross it on the way back."""
        partition = self._moves.instead_of(partition, self._owner[partition], member)
        owner = self._owner[partition]
        self._moves.note(partition, owner, member)
        self._change(owner, partition, add=False)
        self._change(member, partition, add=True)
        self._owner[partition] = member

    def _change(self, member: str, partition: TopicPartition, *, add: bool) -> None:
        """Gives or takes one partition and keeps the order by load."""
        partitions = self._assignments[member]
        del self._by_load[bisect_left(self._by_load, (len(partitions), member))]
        if add:
            partitions.append(partition)
        else:
            partitions.remove(partition)
        insort(self._by_load, (len(partitions), member))


def _imbalance(assignments: Assignments) -> int:
    """The sum of the differences in load between all pairs of members."""
    loads = sorted(map(len, assignments.values()))
    sums = accumulate(loads, initial=0)
    return sum(index * load - below for index, (load, below) in enumerate(zip(loads, sums, strict=False)))
