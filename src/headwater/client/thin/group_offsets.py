"""The offsets that a group has committed: reading them, setting them, and how far behind the log's end they are."""

from collections.abc import Collection, Mapping

from headwater.client.client import Client
from headwater.client.coordinators import Coordinated, find_coordinator
from headwater.client.errors import RefusedError
from headwater.client.thin.offsets import Spot, list_offsets, numbers_by_topic
from headwater.protocol.kafka_types import ErrorCode, TopicName, i32, i64
from headwater.types import TopicPartition

from kio.schema.offset_commit.v9.request import (  # isort: skip
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kio.schema.offset_commit.v9.response import OffsetCommitResponse  # isort: skip
from kio.schema.offset_fetch.v7.request import OffsetFetchRequest  # isort: skip
from kio.schema.offset_fetch.v7.response import OffsetFetchResponse  # isort: skip
from kio.schema.types import GroupId  # isort: skip


async def committed_offsets(client: Client, group_id: str) -> dict[TopicPartition, int]:
    """All that the group has committed; nothing for a group that is not there."""
    # Version 7 is the newest that asks for one group, which every broker serves.
    request = OffsetFetchRequest(group_id=GroupId(group_id), topics=None, require_stable=False)

    async def ask() -> dict[TopicPartition, int]:
        coordinator = await find_coordinator(client, Coordinated.GROUP, group_id)
        answer = await client.send(request, OffsetFetchResponse, to=coordinator.broker)
        _demand_success(f"group {group_id}", answer.error_code)
        found = {}
        for topic in answer.topics:
            for item in topic.partitions:
                _demand_success(_place(topic.name, item.partition_index), item.error_code)
                if item.committed_offset >= 0:
                    found[TopicPartition(topic.name, item.partition_index)] = int(item.committed_offset)
        return found

    return await client.retry(ask)


async def commit_offsets(client: Client, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Commits as no member: a broker takes that only from a group without members."""
    request = OffsetCommitRequest(
        group_id=GroupId(group_id),
        member_id="",
        topics=tuple(
            OffsetCommitRequestTopic(
                name=TopicName(topic),
                partitions=tuple(
                    OffsetCommitRequestPartition(
                        partition_index=i32(number),
                        committed_offset=i64(offsets[TopicPartition(topic, number)]),
                        committed_metadata="",
                    )
                    for number in numbers
                ),
            )
            for topic, numbers in numbers_by_topic(offsets.keys()).items()
        ),
    )

    async def ask() -> None:
        coordinator = await find_coordinator(client, Coordinated.GROUP, group_id)
        answer = await client.send(request, OffsetCommitResponse, to=coordinator.broker)
        for topic in answer.topics:
            for item in topic.partitions:
                _demand_success(f"group {group_id}, {_place(topic.name, item.partition_index)}", item.error_code)

    await client.retry(ask)


async def known_partitions(client: Client, partitions: Collection[TopicPartition]) -> set[TopicPartition]:
    """Those of `partitions` that exist and have a leader to ask."""
    topics = sorted({partition.topic for partition in partitions})
    answer = await client.metadata(topics)
    led = {
        TopicPartition(topic.name or "", int(partition.partition_index))
        for topic in answer.topics
        for partition in topic.partitions
        if partition.leader_id >= 0
    }
    return led & set(partitions)


async def log_ends(client: Client, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    """The end of each partition; those that are gone or have no leader are left out."""
    known = sorted(await known_partitions(client, partitions))
    return {place: found.offset for place, found in (await list_offsets(client, known, Spot.LATEST)).items()}


def _place(topic: str, partition: int) -> str:
    return f"partition {partition} of topic {topic}"


def _demand_success(subject: str, code: ErrorCode) -> None:
    if code is not ErrorCode.none:
        raise RefusedError(subject, code)
