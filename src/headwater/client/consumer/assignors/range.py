"""Range: each topic's partitions are cut into one run for each of its members. Pure; the same result as Java's.

Where members and replicas know their racks, partitions go to members nearby as far as everyone still gets its fair
number, and topics with equally many partitions and the same members stay partitioned alike.
"""

from collections.abc import Callable, Iterable
from itertools import islice

from headwater.client.consumer.assignors.assignor import (
    Assignments,
    Members,
    PartitionRacks,
    Topics,
    by_java_order,
    known,
)
from headwater.client.consumer.assignors.racks import racks_matter
from headwater.client.consumer.assignors.round_robin import in_member_order
from headwater.types import TopicPartition


class RangeAssignor:
    """Kafka's `range`."""

    name = "range"
    cooperative = False

    def assign(self, topics: Topics, members: Members) -> Assignments:
        """Runs of partitions, topic by topic."""
        members = by_java_order(members)
        states = [_TopicState(topic, racks, members) for topic, racks in known(topics, members).items()]
        assignments: Assignments = {member: [] for member in members}
        rack_aware = any(state.racks_matter for state in states)
        if rack_aware:
            _assign_near(states, assignments)
        for state in states:
            _assign_runs(state, assignments, lambda _, __: True)
        if rack_aware:
            for partitions in assignments.values():
                partitions.sort()
        return assignments

    def user_data(self, owned: Iterable[TopicPartition], generation: int) -> bytes | None:
        """None: who had what does not matter."""
        return None


class _TopicState:
    """One topic while its partitions are given out."""

    def __init__(self, topic: str, racks: PartitionRacks, members: Members) -> None:
        self.topic = topic
        subscribed = in_member_order({id_: sub for id_, sub in members.items() if topic in sub.topics})
        self.members = {member: members[member].rack or None for member in subscribed}
        self.racks = racks if any(self.members.values()) else ()
        self.racks_matter = racks_matter({rack for rack in self.members.values() if rack}, self.racks)
        self.unassigned = dict.fromkeys(range(len(racks)))
        self._given = dict.fromkeys(self.members, 0)
        self._each, self._with_one_more = divmod(len(racks), len(self.members))

    def is_near(self, member: str, partition: int) -> bool:
        """Whether a replica is in the member's rack; one without a rack is near to all."""
        rack = self.members[member]
        return rack is None or rack in self.racks[partition]

    def room(self, member: str) -> int:
        """How many more partitions the member may get."""
        return max(0, self._each + (self._with_one_more > 0) - self._given[member])

    def give(self, member: str, partitions: list[int], assignments: Assignments) -> None:
        """Writes down that the member gets these."""
        assignments[member] += (TopicPartition(self.topic, partition) for partition in partitions)
        self._given[member] += len(partitions)
        if self._given[member] > self._each:
            self._with_one_more -= 1
        for partition in partitions:
            del self.unassigned[partition]


def _assign_runs(state: _TopicState, assignments: Assignments, may: Callable[[str, int], bool]) -> None:
    for member in state.members:
        if not state.unassigned:
            return
        free = (partition for partition in state.unassigned if may(member, partition))
        if run := list(islice(free, state.room(member))):
            state.give(member, run, assignments)


def _assign_near(states: list[_TopicState], assignments: Assignments) -> None:
    alike: dict[tuple[object, int], list[_TopicState]] = {}
    for state in states:
        alike.setdefault((tuple(state.members.items()), len(state.racks)), []).append(state)
    for together in alike.values():
        if len(together) > 1:
            _assign_copartitioned(together, assignments)
        elif together[0].racks_matter:
            _assign_runs(together[0], assignments, together[0].is_near)


def _assign_copartitioned(states: list[_TopicState], assignments: Assignments) -> None:
    """Gives partition n of all these topics to one member that is near to all of them, if there is one."""
    remaining = dict.fromkeys(states[0].members)
    for partition in range(len(states[0].racks)):
        for member in remaining:
            if all(state.is_near(member, partition) and state.room(member) for state in states):
                break
        else:
            continue
        for state in states:
            state.give(member, [partition], assignments)
        if not any(state.room(member) for state in states):
            del remaining[member]
            if not remaining:
                return
