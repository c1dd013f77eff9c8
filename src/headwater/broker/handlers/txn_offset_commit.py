"""TxnOffsetCommit, v0 to v5: a group's positions as part of a transaction; they count when it commits.

v3 carries the member and its generation (KIP-447), so that one whose partitions were taken away is refused. The
transaction must know the group's partition of `__consumer_offsets`: AddOffsetsToTxn told it up to v4; from v5 on
(KIP-890) it is added here. A long commit is decided in pieces (`services/commit_pieces.py`).
"""

from typing import TYPE_CHECKING, Any, Final

from headwater.broker.services.commit_pieces import in_pieces, is_short
from headwater.broker.services.transaction_checks import admit_to_transaction
from headwater.protocol.errors import ApiError
from headwater.protocol.kafka_types import NO_THROTTLE, ErrorCode, TopicName, i32
from headwater.types import TopicPartition

from kio.schema.txn_offset_commit.v5.request import TxnOffsetCommitRequest  # isort: skip
from kio.schema.txn_offset_commit.v5.response import (  # isort: skip
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from headwater.broker.broker import Broker
    from headwater.broker.dispatch import RequestContext

_FIRST_WITH_ABORTABLE: Final = 4
_FIRST_THAT_ADDS: Final = 5


def handle(context: "RequestContext", request: TxnOffsetCommitRequest) -> Any:
    """An error code for every partition."""

    def decide(piece: TxnOffsetCommitRequest) -> Any:
        return _decide(context, piece)

    if is_short(request.topics):
        return decide(request)
    return in_pieces(request, request.topics, decide, TxnOffsetCommitResponse)


def _decide(context: "RequestContext", request: TxnOffsetCommitRequest) -> Any:
    broker, caller = context.broker, context.caller
    if not request.group_id:
        return _refused(broker, request, ErrorCode.invalid_group_id)
    try:
        admit_to_transaction(
            broker,
            TopicPartition(broker.groups.topic, broker.groups.partition_of(request.group_id)),
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            add=context.version >= _FIRST_THAT_ADDS,
            knows_abortable=context.version >= _FIRST_WITH_ABORTABLE,
        )
    except ApiError as error:
        gone = error.code is ErrorCode.not_coordinator  # of the transaction: to the client that is the group's trouble
        return _refused(broker, request, ErrorCode.coordinator_not_available if gone else error.code)
    return broker.groups.call(
        request.group_id,
        lambda shard, waiter, now_ms: shard.commit_transaction_offsets(request, caller, now_ms),
        lambda error_code: _refused(broker, request, error_code),
    )


def _refused(broker: "Broker", request: TxnOffsetCommitRequest, error_code: ErrorCode) -> TxnOffsetCommitResponse:
    def one(topic: TopicName, index: i32) -> TxnOffsetCommitResponsePartition:
        is_there = broker.topics.has_partition(topic, index)
        return TxnOffsetCommitResponsePartition(
            partition_index=index, error_code=error_code if is_there else ErrorCode.unknown_topic_or_partition
        )

    return TxnOffsetCommitResponse(
        throttle_time=NO_THROTTLE,
        topics=tuple(
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=tuple(one(topic.name, partition.partition_index) for partition in topic.partitions),
            )
            for topic in request.topics
        ),
    )
