"""The log dirs of brokers, what lies in them, and moving replicas from one to another. Each broker is asked itself."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from headwater.client.admin.results import Results
from headwater.client.admin.routing import (
    NOTHING,
    ask_each,
    left_out,
    numbers_by_topic,
    place_of,
    refused_or,
    themselves,
)
from headwater.client.client import Client
from headwater.client.coordinators import broker_ids
from headwater.client.errors import RefusedError
from headwater.protocol.kafka_types import ErrorCode, TopicName, i32
from headwater.types import TopicPartition

from kio.schema.alter_replica_log_dirs.v2.request import (  # isort: skip
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from kio.schema.alter_replica_log_dirs.v2.response import AlterReplicaLogDirsResponse  # isort: skip
from kio.schema.describe_log_dirs.v4.request import DescribableLogDirTopic, DescribeLogDirsRequest  # isort: skip
from kio.schema.describe_log_dirs.v4.response import DescribeLogDirsResponse, DescribeLogDirsResult  # isort: skip


class LogDirReplica(NamedTuple):
    """A replica in a log dir; a future one is a copy that is going to take the place of the one in another dir.

    `offset_lag` is how far a future one is behind the one it is a copy of, and the other behind the high watermark.
    """

    partition: TopicPartition
    size_bytes: int
    offset_lag: int
    is_future: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDir:
    """A log dir of a broker; `error` is set for one that is offline. Brokers before Kafka 3.3 tell no volume sizes."""

    path: str
    error: RefusedError | None
    replicas: tuple[LogDirReplica, ...]
    total_bytes: int | None
    usable_bytes: int | None


async def describe_log_dirs(
    client: Client,
    brokers: Collection[int] | None = None,
    *,
    partitions: Collection[TopicPartition] | None = None,
) -> Results[int, tuple[LogDir, ...]]:
    """The log dirs of brokers (all by default), with these partitions in them, or with every one."""
    topics = None
    if partitions is not None:
        topics = tuple(
            DescribableLogDirTopic(topic=TopicName(topic), partitions=tuple(map(i32, numbers)))
            for topic, numbers in numbers_by_topic(partitions).items()
        )
    request = DescribeLogDirsRequest(topics=topics)

    async def ask(broker: int, _: Sequence[int]) -> dict[int, tuple[LogDir, ...] | RefusedError]:
        answer = await client.send(request, DescribeLogDirsResponse, to=broker)
        return {broker: refused_or(tuple(map(_log_dir, answer.results)), f"broker {broker}", answer.error_code)}

    wanted = await client.retry(lambda: broker_ids(client)) if brokers is None else brokers
    return await ask_each(client, wanted, themselves(client), ask, passing=NOTHING)


async def alter_replica_log_dirs(
    client: Client, broker: int, log_dir: str, partitions: Collection[TopicPartition]
) -> Results[TopicPartition, None]:
    """Lets a broker begin to move its replicas of partitions to one of its log dirs.

    `describe_log_dirs` shows how far a move is: there is a future replica until it takes the other's place.
    """
    topics = tuple(
        AlterReplicaLogDirTopic(name=TopicName(topic), partitions=tuple(map(i32, numbers)))
        for topic, numbers in numbers_by_topic(partitions).items()
    )
    request = AlterReplicaLogDirsRequest(dirs=(AlterReplicaLogDir(path=log_dir, topics=topics),))

    async def ask(home: int, _: Sequence[int]) -> dict[int, dict[TopicPartition, ErrorCode]]:
        answer = await client.send(request, AlterReplicaLogDirsResponse, to=home)
        return {
            home: {
                TopicPartition(topic.topic_name, int(item.partition_index)): item.error_code
                for topic in answer.results
                for item in topic.partitions
            }
        }

    codes = (await ask_each(client, [broker], themselves(client), ask, passing=NOTHING)).one(broker)
    return Results(
        (
            partition,
            refused_or(None, place_of(partition), codes[partition]) if partition in codes else left_out(partition),
        )
        for partition in partitions
    )


def _log_dir(found: DescribeLogDirsResult) -> LogDir:
    return LogDir(
        path=found.log_dir,
        error=None
        if found.error_code is ErrorCode.none
        else RefusedError(f"log dir {found.log_dir}", found.error_code),
        replicas=tuple(
            LogDirReplica(
                partition=TopicPartition(topic.name, int(replica.partition_index)),
                size_bytes=int(replica.partition_size),
                offset_lag=int(replica.offset_lag),
                is_future=replica.is_future_key,
            )
            for topic in found.topics
            for replica in topic.partitions
        ),
        total_bytes=int(found.total_bytes) if found.total_bytes >= 0 else None,
        usable_bytes=int(found.usable_bytes) if found.usable_bytes >= 0 else None,
    )
