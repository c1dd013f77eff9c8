"""OffsetForLeaderEpoch, v2 to v4: where a leader epoch ended, so that a reader notices lost records.

v3 names the replica that asks, which makes no difference with one replica; v4 is flexible.
"""

from typing import TYPE_CHECKING

from kio.schema.offset_for_leader_epoch.v4.request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
)
from kio.schema.offset_for_leader_epoch.v4.response import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)

from headwater.broker.handlers.fetch import check_epoch
from headwater.broker.services.partition import Partition
from headwater.protocol.each import each
from headwater.protocol.errors import ApiError
from headwater.protocol.kafka_types import NO_THROTTLE, ErrorCode, i32, i64

if TYPE_CHECKING:
    from headwater.broker.broker import Broker
    from headwater.broker.dispatch import RequestContext


def handle(context: "RequestContext", request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
    """The end of each epoch asked for; -1 where it is not known."""
    return OffsetForLeaderEpochResponse(
        throttle_time=NO_THROTTLE,
        topics=each(
            lambda topic: OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=each(lambda wanted: _answer(context.broker, topic.topic, wanted), topic.partitions),
            ),
            request.topics,
        ),
    )


def _answer(broker: "Broker", topic: str, wanted: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        partition = broker.topics.partition(topic, wanted.partition)
        if wanted.current_leader_epoch != -1:
            check_epoch(partition, wanted.current_leader_epoch)
        epoch, end_offset = _end_offset(partition, wanted.leader_epoch)
    except ApiError as error:
        return EpochEndOffset(error_code=error.code, partition=wanted.partition)
    return EpochEndOffset(
        error_code=ErrorCode.none,
        partition=wanted.partition,
        leader_epoch=i32(epoch),
        end_offset=i64(end_offset),
    )


def _end_offset(partition: Partition, epoch: int) -> tuple[int, int]:
    # The log learns of an epoch with its first batch; before that the epoch is there and empty, as are those between.
    log = partition.log
    if epoch == partition.leader_epoch:
        return epoch, log.log_end_offset
    if log.latest_epoch < epoch < partition.leader_epoch:
        return (epoch if log.latest_epoch < 0 else log.latest_epoch), log.log_end_offset
    return log.end_offset_for_epoch(epoch)
