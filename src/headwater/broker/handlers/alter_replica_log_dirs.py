"""AlterReplicaLogDirs, v1 and v2: lets partitions lie in other log dirs of this broker.

The answer says that a move has begun; DescribeLogDirs shows how far it is. A partition on its way to one dir goes to
the new one instead; to ask for the dir that it lies in ends its move. One that is asked for twice goes where it was
asked for last. A partition that does not exist is answered with UNKNOWN_TOPIC_OR_PARTITION, and made in the dir asked
for should it come to exist.
"""

import logging
from typing import TYPE_CHECKING

from kio.schema.alter_replica_log_dirs.v2.request import AlterReplicaLogDirsRequest
from kio.schema.alter_replica_log_dirs.v2.response import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)

from headwater.protocol.errors import ApiError
from headwater.protocol.kafka_types import NO_THROTTLE, ErrorCode, TopicName, i32
from headwater.types import TopicPartition

if TYPE_CHECKING:
    from headwater.broker.broker import Broker
    from headwater.broker.dispatch import RequestContext

logger = logging.getLogger(__name__)


async def handle(context: "RequestContext", request: AlterReplicaLogDirsRequest) -> AlterReplicaLogDirsResponse:
    """Each partition succeeds or fails on its own."""
    wanted = {
        TopicPartition(topic.name, index): log_dir.path
        for log_dir in request.dirs
        for topic in log_dir.topics
        for index in topic.partitions
    }
    results: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
    async with context.broker.topics.changing:
        for partition, path in wanted.items():
            result = AlterReplicaLogDirPartitionResult(
                partition_index=i32(partition.partition), error_code=await _assign(context.broker, partition, path)
            )
            results.setdefault(partition.topic, []).append(result)
    return AlterReplicaLogDirsResponse(
        throttle_time=NO_THROTTLE,
        results=tuple(
            AlterReplicaLogDirTopicResult(topic_name=TopicName(topic), partitions=tuple(partitions))
            for topic, partitions in results.items()
        ),
    )


async def _assign(broker: "Broker", partition: TopicPartition, path: str) -> ErrorCode:
    try:
        await broker.moves.assign(partition, path)
    except ApiError as error:
        # The answer has no room for words.
        logger.warning("%r is not moved: %s", str(partition), error.message)
        return error.code
    return ErrorCode.none
