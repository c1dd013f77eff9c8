"""The `range` assignor: of each topic, every subscriber gets a run of neighbouring partitions.

Topics with equally many partitions and the same subscribers fall alike: whoever has partition 3 of one has partition 3
of the other, so that streams can be joined. Members stand in the order of their ids, static ones first and by instance
id: a static member that comes back with another member id gets the same run. Nothing else is sticky, as in Apache.
"""

from operator import itemgetter

from headwater.coordinator.group.assignor import PartitionCounts, Subscribers
from headwater.coordinator.group.consumer_partitions import Partition, Partitions, TopicKey


def assign_ranges(members: Subscribers, counts: PartitionCounts) -> dict[str, Partitions]:
    """Each member's runs; where a topic does not divide evenly, the first members get one partition more."""
    subscribers: dict[TopicKey, list[str]] = {}
    ranks = map(_rank, members.member_ids, members.instance_ids)
    for _, member_id, topics in sorted(zip(ranks, members.member_ids, members.topics, strict=True), key=itemgetter(0)):
        for topic in topics:
            subscribers.setdefault(topic, []).append(member_id)
    runs: dict[str, list[Partition]] = {member_id: [] for member_id in members.member_ids}
    for topic, member_ids in subscribers.items():
        share, rest = divmod(counts[topic], len(member_ids))
        begin = 0
        for place, member_id in enumerate(member_ids[: counts[topic]]):
            end = begin + share + (place < rest)
            runs[member_id].extend(Partition(topic, number) for number in range(begin, end))
            begin = end
    return {member_id: frozenset(run) for member_id, run in runs.items()}


def _rank(member_id: str, instance_id: str | None) -> tuple[bool, str]:
    return (True, member_id) if instance_id is None else (False, instance_id)
