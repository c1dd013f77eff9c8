"""AlterReplicaLogDirs, v1 and v2: lets partitions lie in other log dirs of this broker.

The answer says that a move has begun; DescribeLogDirs shows how far it is. A partition on its way to one dir goes to
the new one instead; to ask for the dir that it lies in ends its move. One that is asked for twice goes where it was
asked for last. A partition that does not exist is answered with UNKNOWN_TOPIC_OR_PARTITION, and made in the dir asked
for should it come to exist.
"""

import logging
from typing import TYPE_CHECKING, Final

from kio.schema.alter_replica_log_dirs.v2.request import AlterReplicaLogDirsRequest
from kio.schema.alter_replica_log_dirs.v2.response import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)

from headwater.protocol.each import each
from headwater.protocol.errors import ApiError
from headwater.protocol.kafka_types import NO_THROTTLE, ErrorCode, TopicName, i32
from headwater.types import TopicPartition

if TYPE_CHECKING:
    from headwater.broker.broker import Broker
    from headwater.broker.dispatch import RequestContext

logger = logging.getLogger(__name__)

_REASONS: Final = 3
"""So many reasons for the same error are logged."""


async def handle(context: "RequestContext", request: AlterReplicaLogDirsRequest) -> AlterReplicaLogDirsResponse:
    """Each partition succeeds or fails on its own."""
    pace = context.pace
    wanted: dict[TopicPartition, str] = {}
    for log_dir in request.dirs:
        for topic in log_dir.topics:
            for index in topic.partitions:
                await pace.pause()
                wanted[TopicPartition(topic.name, index)] = log_dir.path
    results: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
    refused: dict[ErrorCode, list[str]] = {}
    async with context.broker.topics.changing:
        for partition, path in wanted.items():
            await pace.pause()
            error_code = await _assign(context.broker, partition, path, refused)
            result = AlterReplicaLogDirPartitionResult(partition_index=i32(partition.partition), error_code=error_code)
            results.setdefault(partition.topic, []).append(result)
    for reasons in refused.values():
        # The answer has no room for words, and the log has not for thousands of lines.
        logger.warning("%d partitions are not moved: %s", len(reasons), "; ".join(reasons[:_REASONS]))
    return AlterReplicaLogDirsResponse(
        throttle_time=NO_THROTTLE,
        results=each(
            lambda row: AlterReplicaLogDirTopicResult(topic_name=TopicName(row[0]), partitions=tuple(row[1])),
            results.items(),
        ),
    )


async def _assign(
    broker: "Broker", partition: TopicPartition, path: str, refused: dict[ErrorCode, list[str]]
) -> ErrorCode:
    try:
        await broker.moves.assign(partition, path)
    except ApiError as error:
        reasons = refused.setdefault(error.code, [])
        reasons.append(f"{str(partition)!r}: {error.message}" if len(reasons) < _REASONS else "")
        return error.code
    return ErrorCode.none
