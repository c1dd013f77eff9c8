"""Where the offsets of partitions lie, and deleting the first of their records. Leaders are asked."""

from collections.abc import Collection, Mapping, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from headwater.client.admin.results import Results
from headwater.client.admin.routing import ask_each, demand_version, leaders, numbers_by_topic, place_of, refused_or
from headwater.client.client import Client, duration
from headwater.client.errors import RefusedError
from headwater.protocol.kafka_types import BrokerId, TopicName, i8, i32, i64
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

ALL_RECORDS: Final = -1
"""Stands for the high watermark in `delete_records`: all that there are go."""


class Spot(IntEnum):
    """Places in a log that ListOffsets knows by a negative timestamp; the last two are about tiered storage."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5


_FIRST_VERSIONS: Final = {Spot.MAX_TIMESTAMP: 7, Spot.EARLIEST_LOCAL: 8, Spot.LATEST_TIERED: 9}


class Isolation(IntEnum):
    """Which records count as there, by the protocol's numbers."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class FoundOffset(NamedTuple):
    """An offset, and what is known of the record there: its timestamp where it was looked up by time, its epoch."""

    offset: int
    timestamp_ms: int = -1
    leader_epoch: int = -1


async def list_offsets(
    client: Client,
    partitions: Collection[TopicPartition],
    when: Spot | int = Spot.LATEST,
    *,
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
) -> Results[TopicPartition, FoundOffset]:
    """For each partition the offset at a `Spot`, or of the first record at or after a time in ms.

    An offset of -1 says that there is no such record. With READ_COMMITTED the end is where the first open transaction
    begins.
    """

    async def ask(leader: int, led: Sequence[TopicPartition]) -> dict[TopicPartition, FoundOffset | RefusedError]:
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
                for topic, numbers in numbers_by_topic(led).items()
            ),
            timeout=duration(client.timeout_s),
        )
        if when in _FIRST_VERSIONS:
            spot = Spot(when)
            await demand_version(client, request, _FIRST_VERSIONS[spot], f"look up {spot.name}", at=leader)
        answer = await client.send(request, ListOffsetsResponse, to=leader)
        found: dict[TopicPartition, FoundOffset | RefusedError] = {}
        for topic in answer.topics:
            for item in topic.partitions:
                partition = TopicPartition(topic.name, int(item.partition_index))
                offset = FoundOffset(int(item.offset), int(item.timestamp), int(item.leader_epoch))
                found[partition] = refused_or(offset, place_of(partition), item.error_code)
        return found

    return await ask_each(client, partitions, leaders(client), ask)


async def delete_records(client: Client, before: Mapping[TopicPartition, int]) -> Results[TopicPartition, int]:
    """Deletes all records before the given offsets (`ALL_RECORDS`: all that there are); the new starts of the logs."""

    async def ask(leader: int, led: Sequence[TopicPartition]) -> dict[TopicPartition, int | RefusedError]:
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
                for topic, numbers in numbers_by_topic(led).items()
            ),
            timeout=duration(client.timeout_s),
        )
        answer = await client.send(request, DeleteRecordsResponse, to=leader)
        moved: dict[TopicPartition, int | RefusedError] = {}
        for topic in answer.topics:
            for item in topic.partitions:
                partition = TopicPartition(topic.name, int(item.partition_index))
                moved[partition] = refused_or(int(item.low_watermark), place_of(partition), item.error_code)
        return moved

    return await ask_each(client, before, leaders(client), ask)
