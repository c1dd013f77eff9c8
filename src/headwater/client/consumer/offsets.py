"""Questions about offsets, put to the leaders that know: ends of logs, offsets by time, ends of leader epochs.

Asked once, each partition has an answer of its own: what was found, or the error. Changes nothing.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, Generic, NamedTuple, TypeVar

from headwater.client.client import Client, duration
from headwater.client.consumer.subscription import NO_EPOCH, Position
from headwater.client.errors import ClientError, RefusedError, UnsupportedError
from headwater.protocol.kafka_types import BrokerId, ErrorCode, TopicName, i8, i32, i64
from headwater.types import TopicPartition

from kio.schema.list_offsets.v10.request import (  # isort: skip
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kio.schema.list_offsets.v10.response import ListOffsetsResponse  # isort: skip
from kio.schema.offset_for_leader_epoch.v4.request import (  # isort: skip
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kio.schema.offset_for_leader_epoch.v4.response import OffsetForLeaderEpochResponse  # isort: skip

T = TypeVar("T")
_EPOCHS_KEY: Final = 23
_EPOCHS_FOR_CONSUMERS: Final = 3
"""Before this version of OffsetForLeaderEpoch only brokers may ask."""


class OffsetAndTimestamp(NamedTuple):
    """An offset that was looked up, and the time of the record there where it was looked up by time (else -1)."""

    offset: int
    timestamp_ms: int
    leader_epoch: int = NO_EPOCH


class Answers(Generic[T]):
    """What was found and what went wrong, by partition."""

    def __init__(self) -> None:
        self.found: dict[TopicPartition, T] = {}
        self.errors: dict[TopicPartition, ClientError] = {}

    def put(self, topic: str, number: int, code: ErrorCode, found: T) -> None:
        """Puts down the answer for one partition."""
        partition = TopicPartition(topic, number)
        if code is ErrorCode.none:
            self.found[partition] = found
        else:
            self.errors[partition] = RefusedError(f"partition {partition}", code)


Ask = Callable[[int, Mapping[TopicPartition, int], Answers[T]], Awaitable[None]]
"""Asks a broker about partitions, and puts down what it says."""


async def list_offsets(
    client: Client, timestamps_ms: Mapping[TopicPartition, int], *, read_committed: bool
) -> Answers[OffsetAndTimestamp | None]:
    """The first offset at or after a time, or the log's start (-2) or end (-1); None: there is no such record."""

    async def ask(
        leader: int, wanted: Mapping[TopicPartition, int], answers: Answers[OffsetAndTimestamp | None]
    ) -> None:
        request = _list_request(client, wanted, read_committed)
        answer = await client.send(request, ListOffsetsResponse, to=leader)
        for topic in answer.topics:
            for item in topic.partitions:
                there = OffsetAndTimestamp(int(item.offset), int(item.timestamp), int(item.leader_epoch))
                found = there if there.offset >= 0 else None
                answers.put(str(topic.name), int(item.partition_index), item.error_code, found)

    return await _ask_leaders(client, timestamps_ms, ask)


async def ends_of_epochs(client: Client, epochs: Mapping[TopicPartition, int]) -> Answers[Position | None]:
    """Where a leader epoch ends in the log of today's leader, and which epoch that is: the asked one or one before it.

    None: the leader knows of no such epoch. A broker that is too old to tell is an `UnsupportedError`.
    """

    async def ask(leader: int, wanted: Mapping[TopicPartition, int], answers: Answers[Position | None]) -> None:
        connection = await client.connection(leader)
        if connection.supported(_EPOCHS_KEY)[1] < _EPOCHS_FOR_CONSUMERS:
            raise UnsupportedError(f"the broker at {connection.address} is too old to tell where leader epochs end")
        request = _epochs_request(client, wanted)
        answer = await connection.send(request, OffsetForLeaderEpochResponse, timeout_s=client.timeout_s)
        for topic in answer.topics:
            for item in topic.partitions:
                end = Position(int(item.end_offset), int(item.leader_epoch))
                found = end if end.offset >= 0 and end.leader_epoch >= 0 else None
                answers.put(str(topic.topic), int(item.partition), item.error_code, found)

    return await _ask_leaders(client, epochs, ask)


async def find_offsets(
    client: Client, timestamps_ms: Mapping[TopicPartition, int], *, read_committed: bool, timeout_s: float
) -> dict[TopicPartition, OffsetAndTimestamp | None]:
    """As `list_offsets`, with what may pass tried again until it is over or the time is."""
    found: dict[TopicPartition, OffsetAndTimestamp | None] = {}

    async def ask_for_the_rest() -> None:
        rest = {partition: when for partition, when in timestamps_ms.items() if partition not in found}
        await asyncio.gather(*(client.partitions(topic) for topic in {partition.topic for partition in rest}))
        answers = await list_offsets(client, rest, read_committed=read_committed)
        found.update(answers.found)
        for error in answers.errors.values():
            raise error

    await client.retry(ask_for_the_rest, deadline_s=timeout_s)
    return {partition: found[partition] for partition in timestamps_ms}


async def _ask_leaders(client: Client, wanted: Mapping[TopicPartition, int], ask: Ask[T]) -> Answers[T]:
    """Asks all leaders at once; those that cannot be asked are an error of their partitions."""
    answers: Answers[T] = Answers()
    by_leader: dict[int, dict[TopicPartition, int]] = {}
    for partition, value in wanted.items():
        leader = client.leader_of(partition.topic, partition.partition)
        if leader is None:
            missing = client.topic_error(partition.topic) or ErrorCode.leader_not_available
            answers.errors[partition] = RefusedError(f"partition {partition}", missing)
        else:
            by_leader.setdefault(leader.node_id, {})[partition] = value

    async def ask_one(leader: int, led: Mapping[TopicPartition, int]) -> None:
        try:
            await ask(leader, led, answers)
        except ClientError as error:
            answers.errors.update(dict.fromkeys(led, error))

    await asyncio.gather(*(ask_one(leader, led) for leader, led in by_leader.items()))
    return answers


def _list_request(client: Client, wanted: Mapping[TopicPartition, int], read_committed: bool) -> ListOffsetsRequest:
    topics = tuple(
        ListOffsetsTopic(
            name=TopicName(topic),
            partitions=tuple(
                ListOffsetsPartition(
                    partition_index=i32(each.partition),
                    current_leader_epoch=i32(_leader_epoch(client, each)),
                    timestamp=i64(wanted[each]),
                )
                for each in partitions
            ),
        )
        for topic, partitions in _by_topic(wanted).items()
    )
    return ListOffsetsRequest(
        replica_id=BrokerId(-1),
        isolation_level=i8(read_committed),
        topics=topics,
        timeout=duration(client.timeout_s),
    )


def _epochs_request(client: Client, wanted: Mapping[TopicPartition, int]) -> OffsetForLeaderEpochRequest:
    topics = tuple(
        OffsetForLeaderTopic(
            topic=TopicName(topic),
            partitions=tuple(
                OffsetForLeaderPartition(
                    partition=i32(each.partition),
                    current_leader_epoch=i32(_leader_epoch(client, each)),
                    leader_epoch=i32(wanted[each]),
                )
                for each in partitions
            ),
        )
        for topic, partitions in _by_topic(wanted).items()
    )
    return OffsetForLeaderEpochRequest(replica_id=BrokerId(-1), topics=topics)


def _leader_epoch(client: Client, partition: TopicPartition) -> int:
    leader = client.leader_of(partition.topic, partition.partition)
    return NO_EPOCH if leader is None else leader.epoch


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    by_topic: dict[str, list[TopicPartition]] = {}
    for partition in partitions:
        by_topic.setdefault(partition.topic, []).append(partition)
    return by_topic
