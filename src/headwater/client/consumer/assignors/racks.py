"""Which members run where the replicas of which partitions are. Pure."""

from collections.abc import Collection, Iterable, Mapping, Set

from headwater.client.consumer.assignors.assignor import Members, Topics
from headwater.types import TopicPartition


def racks_matter(member_racks: Set[str], partition_racks: Collection[frozenset[str]]) -> bool:
    """Whether matching racks can gain anything: some members know theirs, and not every partition is everywhere."""
    everywhere = frozenset().union(*partition_racks)
    if member_racks.isdisjoint(everywhere):
        return False
    return any(racks != everywhere for racks in partition_racks)


class Racks:
    """The racks as the sticky assignors look at them; empty where matching them gains nothing."""

    def __init__(self, topics: Topics, members: Members) -> None:
        self.of_member: Mapping[str, str] = {}
        self.of_partition: Mapping[TopicPartition, frozenset[str]] = {}
        self._members_near: dict[TopicPartition, int] = {}
        racks = {member: subscription.rack for member, subscription in members.items() if subscription.rack}
        if not racks:
            return
        members_in: dict[str, int] = {}
        for rack in racks.values():
            members_in[rack] = members_in.get(rack, 0) + 1
        partitions = {
            TopicPartition(topic, number): replicas
            for topic, counted in topics.items()
            for number, replicas in enumerate(counted)
        }
        self._members_near = {
            partition: sum(members_in.get(rack, 0) for rack in replicas) for partition, replicas in partitions.items()
        }
        if racks_matter(members_in.keys(), partitions.values()):
            self.of_member, self.of_partition = racks, partitions

    def mismatch(self, member: str, partition: TopicPartition) -> bool:
        """Whether the member knows its rack and no replica of the partition is there."""
        rack = self.of_member.get(member)
        return rack is not None and rack not in self.of_partition.get(partition, frozenset())

    def hardest_first(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Partitions with the fewest members nearby first, otherwise in their order."""
        return sorted(partitions, key=lambda partition: self._members_near.get(partition, 0))

    def next_near(self, partition: TopicPartition, members: list[str], start: int) -> int | None:
        """The index of the first member near the partition, looking from `start` once around."""
        replicas = self.of_partition.get(partition)
        if not replicas:
            return None
        for index in _around(len(members), start):
            if self.of_member.get(members[index]) in replicas:
                return index
        return None


def _around(size: int, start: int) -> Iterable[int]:
    return ((start + step) % size for step in range(size))
