"""The moves made so far in one sticky assignment, so that no two partitions of a topic cross each other. Pure."""

from headwater.client.consumer.assignors.java_order import HashedSet, partition_hash
from headwater.types import TopicPartition

_Way = tuple[str, str]


class Moves:
    """For every moved partition: from whom, to whom."""

    def __init__(self) -> None:
        self._way_of: dict[TopicPartition, _Way] = {}
        self._on_way: dict[tuple[str, _Way], HashedSet[TopicPartition]] = {}

    def note(self, partition: TopicPartition, owner: str, member: str) -> None:
        """Writes down a move; several of one partition become one, and one that goes home none."""
        if partition in self._way_of:
            owner = self._forget(partition)
            if owner == member:
                return
        way = owner, member
        self._way_of[partition] = way
        self._on_way.setdefault((partition.topic, way), HashedSet(partition_hash)).add(partition)

    def instead_of(self, partition: TopicPartition, owner: str, member: str) -> TopicPartition:
        """The partition to move so that `member` gets one more: one that went the other way goes back first."""
        if partition in self._way_of:
            owner = self._way_of[partition][0]
        back = self._on_way.get((partition.topic, (member, owner)))
        return back.first() if back else partition

    def _forget(self, partition: TopicPartition) -> str:
        way = self._way_of.pop(partition)
        others = self._on_way[partition.topic, way]
        others.remove(partition)
        if not others:
            del self._on_way[partition.topic, way]
        return way[0]
