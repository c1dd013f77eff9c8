"""Where the offsets of a partition lie, and moving the first of them."""

import asyncio
from collections import defaultdict
from collections.abc import Collection, Mapping
from enum import IntEnum
from typing import NamedTuple

from headwater.client.client import Client, duration
from headwater.client.errors import RefusedError
from headwater.protocol.kafka_types import BrokerId, ErrorCode, TopicName, i8, i32, i64
from headwater.types import TopicPartition

from kio.schema.delete_records.v2.request import (  # isort: skip
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kio.schema.delete_records.v2.response import DeleteRecordsResponse  # isort: skip
from kio.schema.list_offsets.v10.request import (  # isort: skip
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kio.schema.list_offsets.v10.response import ListOffsetsResponse  # isort: skip


class Spot(IntEnum):
    """Places in a log that ListOffsets knows by a negative timestamp."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3


class Isolation(IntEnum):
    """Which records count as there, by the protocol's numbers."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class FoundOffset(NamedTuple):
    """An offset, and the timestamp of the record there where it was looked up by time (else -1)."""

    offset: int
    timestamp_ms: int


async def list_offsets(
    client: Client,
    partitions: Collection[TopicPartition],
    when: int,
    *,
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
) -> dict[TopicPartition, FoundOffset]:
    """For each partition the offset at a `Spot`, or of the first record at or after a time in ms.

    An offset of -1 says that there is no such record.
    """

    async def ask_all() -> dict[TopicPartition, FoundOffset]:
        by_leader = await partitions_by_leader(client, partitions)
        answers = await asyncio.gather(
            *(_list_on(client, leader, led, when, isolation) for leader, led in by_leader.items())
        )
        found = {partition: offset for answer in answers for partition, offset in answer.items()}
        return {partition: found[partition] for partition in partitions}

    return await client.retry(ask_all)


async def delete_records(client: Client, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Deletes all records before the given offset (-1: before the high watermark); returns the log starts."""

    async def ask_all() -> dict[TopicPartition, int]:
        by_leader = await partitions_by_leader(client, before)
        answers = await asyncio.gather(
            *(_delete_on(client, leader, {p: before[p] for p in led}) for leader, led in by_leader.items())
        )
        found = {partition: offset for answer in answers for partition, offset in answer.items()}
        return {partition: found[partition] for partition in before}

    return await client.retry(ask_all)


async def partitions_by_leader(
    client: Client, partitions: Collection[TopicPartition]
) -> dict[int, list[TopicPartition]]:
    """Partitions sorted by the broker that has to be asked about them."""
    by_leader: defaultdict[int, list[TopicPartition]] = defaultdict(list)
    for partition in partitions:
        by_leader[await client.leader(partition.topic, partition.partition)].append(partition)
    return by_leader


def numbers_by_topic(partitions: Collection[TopicPartition]) -> dict[str, list[int]]:
    """The same partitions as most requests want them."""
    by_topic: defaultdict[str, list[int]] = defaultdict(list)
    for topic, partition in partitions:
        by_topic[topic].append(partition)
    return by_topic


async def _list_on(
    client: Client, leader: int, partitions: Collection[TopicPartition], when: int, isolation: Isolation
) -> dict[TopicPartition, FoundOffset]:
    request = ListOffsetsRequest(
        replica_id=BrokerId(-1),
        isolation_level=i8(isolation),
        topics=tuple(
            ListOffsetsTopic(
                name=TopicName(topic),
                partitions=tuple(
                    ListOffsetsPartition(partition_index=i32(number), timestamp=i64(when)) for number in numbers
                ),
            )
            for topic, numbers in numbers_by_topic(partitions).items()
        ),
        timeout=duration(client.timeout_s),
    )
    answer = await client.send(request, ListOffsetsResponse, to=leader)
    found = {}
    for topic in answer.topics:
        for item in topic.partitions:
            if item.error_code is not ErrorCode.none:
                raise RefusedError(f"partition {item.partition_index} of topic {topic.name}", item.error_code)
            found[TopicPartition(topic.name, item.partition_index)] = FoundOffset(item.offset, item.timestamp)
    return found


async def _delete_on(client: Client, leader: int, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    request = DeleteRecordsRequest(
        topics=tuple(
            DeleteRecordsTopic(
                name=TopicName(topic),
                partitions=tuple(
                    DeleteRecordsPartition(
                        partition_index=i32(number), offset=i64(before[TopicPartition(topic, number)])
                    )
                    for number in numbers
                ),
            )
            for topic, numbers in numbers_by_topic(before.keys()).items()
        ),
        timeout=duration(client.timeout_s),
    )
    answer = await client.send(request, DeleteRecordsResponse, to=leader)
    moved = {}
    for topic in answer.topics:
        for item in topic.partitions:
            if item.error_code is not ErrorCode.none:
                raise RefusedError(f"partition {item.partition_index} of topic {topic.name}", item.error_code)
            moved[TopicPartition(topic.name, item.partition_index)] = int(item.low_watermark)
    return moved
