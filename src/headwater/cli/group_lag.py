"""How far a group has come: for each partition its committed offset, the log's end, and the member that reads it."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.types import TopicPartition

if TYPE_CHECKING:
    from headwater.client import Client
    from headwater.client.admin.group_descriptions import Group


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLag:
    """One partition of a group; None is what nobody knows."""

    topic: str
    partition: int
    current_offset: int | None
    log_end_offset: int | None
    lag: int | None
    consumer_id: str | None
    host: str | None
    client_id: str | None


async def partition_lags(client: "Client", group: "Group") -> list[PartitionLag]:
    """Every partition that a member has or that an offset is committed for, by topic and number."""
    from headwater.client.admin.group_offsets import list_groups_offsets
    from headwater.client.admin.records import Spot, list_offsets

    owners = {partition: member for member in group.members for partition in member.assignment}
    committed = (await list_groups_offsets(client, [group.group_id])).one(group.group_id)
    partitions = sorted(owners.keys() | committed.keys())
    ends = (await list_offsets(client, await known_partitions(client, partitions), Spot.LATEST)).or_raise()
    lags = []
    for partition in partitions:
        current, end, owner = committed.get(partition), ends.get(partition), owners.get(partition)
        lags.append(
            PartitionLag(
                topic=partition.topic,
                partition=partition.partition,
                current_offset=None if current is None else current.offset,
                log_end_offset=None if end is None else end.offset,
                lag=None if current is None or end is None else end.offset - current.offset,
                consumer_id=owner.member_id if owner else None,
                host=owner.host if owner else None,
                client_id=owner.client_id if owner else None,
            )
        )
    return lags


async def known_partitions(client: "Client", partitions: Collection[TopicPartition]) -> list[TopicPartition]:
    """Those of `partitions` that exist and have a leader to ask, in order."""
    if not partitions:
        return []
    answer = await client.metadata(sorted({partition.topic for partition in partitions}))
    led = {
        TopicPartition(topic.name or "", int(partition.partition_index))
        for topic in answer.topics
        for partition in topic.partitions
        if partition.leader_id >= 0
    }
    return sorted(led & set(partitions))
