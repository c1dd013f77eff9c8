"""WriteTxnMarkers, v1: ends transactions in the partitions named, as a coordinator or an administrator decided.

Between brokers it is the coordinator's; `headwater transactions abort` and Kafka's tool send it for a transaction that
hangs.
"""

from typing import TYPE_CHECKING

from headwater.protocol.errors import ApiError
from headwater.protocol.kafka_types import ErrorCode
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
    codes = {
        (number, TopicPartition(topic.name, index)): await _write(context, marker, TopicPartition(topic.name, index))
        for number, marker in enumerate(request.markers)
        for topic in marker.topics
        for index in topic.partition_indexes
    }
    return WriteTxnMarkersResponse(
        markers=tuple(
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=tuple(
                    WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=tuple(
                            WritableTxnMarkerPartitionResult(
                                partition_index=index,
                                error_code=codes[number, TopicPartition(topic.name, index)],
                            )
                            for index in topic.partition_indexes
                        ),
                    )
                    for topic in marker.topics
                ),
            )
            for number, marker in enumerate(request.markers)
        )
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
