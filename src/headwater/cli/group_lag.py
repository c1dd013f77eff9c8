"""How far a group has come: for each partition its committed offset, the log's end, and the member that reads it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headwater.client import Client
    from headwater.client.thin.groups import Group


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
    from headwater.client.thin.group_offsets import committed_offsets, log_ends

    owners = {partition: member for member in group.members for partition in member.assignment}
    committed = await committed_offsets(client, group.group_id)
    partitions = sorted(owners.keys() | committed.keys())
    ends = await log_ends(client, partitions)
    lags = []
    for partition in partitions:
        current, end, owner = committed.get(partition), ends.get(partition), owners.get(partition)
        lags.append(
            PartitionLag(
                topic=partition.topic,
                partition=partition.partition,
                current_offset=current,
                log_end_offset=end,
                lag=None if current is None or end is None else end - current,
                consumer_id=owner.member_id if owner else None,
                host=owner.host if owner else None,
                client_id=owner.client_id if owner else None,
            )
        )
    return lags
