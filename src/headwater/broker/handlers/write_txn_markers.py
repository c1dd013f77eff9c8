"""WriteTxnMarkers, v1: ends transactions in the partitions named, as a coordinator or an administrator decided.

Between brokers it is the coordinator's; `headwater transactions abort` and Kafka's tool send it for a transaction that
hangs. A marker that is asked for twice is written once; a producer and its partitions are answered once.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from headwater.protocol.each import each
from headwater.protocol.errors import ApiError
from headwater.protocol.kafka_types import ErrorCode, ProducerId, TopicName, i32
from headwater.types import TopicPartition

from kio.schema.write_txn_markers.v1.request import WritableTxnMarker, WriteTxnMarkersRequest  # isort: skip
from kio.schema.write_txn_markers.v1.response import (  # isort: skip
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from headwater.broker.dispatch import RequestContext


async def handle(context: "RequestContext", request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
    """An error code for every partition of every marker, once all that must be are on the device."""
    pace = context.pace
    answers: dict[ProducerId, dict[TopicName, dict[i32, ErrorCode]]] = {}
    written: set[tuple[object, ...]] = set()
    for marker in request.markers:
        who = (marker.producer_id, marker.producer_epoch, marker.transaction_result, marker.coordinator_epoch)
        topics = answers.setdefault(marker.producer_id, {})
        for topic in marker.topics:
            codes = topics.setdefault(topic.name, {})
            for index in topic.partition_indexes:
                await pace.pause()
                if (*who, topic.name, index) not in written:
                    written.add((*who, topic.name, index))
                    codes[index] = await _write(context, marker, TopicPartition(topic.name, index))
    return WriteTxnMarkersResponse(markers=each(_result, answers.items()))


def _result(answer: tuple[ProducerId, Mapping[TopicName, Mapping[i32, ErrorCode]]]) -> WritableTxnMarkerResult:
    producer_id, topics = answer
    return WritableTxnMarkerResult(producer_id=producer_id, topics=each(_topic_result, topics.items()))


def _topic_result(answer: tuple[TopicName, Mapping[i32, ErrorCode]]) -> WritableTxnMarkerTopicResult:
    name, codes = answer
    return WritableTxnMarkerTopicResult(
        name=name,
        partitions=each(
            lambda row: WritableTxnMarkerPartitionResult(partition_index=row[0], error_code=row[1]), codes.items()
        ),
    )


async def _write(context: "RequestContext", marker: WritableTxnMarker, partition: TopicPartition) -> ErrorCode:
    try:
        unflushed = context.broker.markers.write_one(
            partition,
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            coordinator_epoch=marker.coordinator_epoch,
            commit=marker.transaction_result,
        )
        if unflushed is not None:
            await context.broker.failures.flush(unflushed)
    except ApiError as error:
        return error.code
    return ErrorCode.none
