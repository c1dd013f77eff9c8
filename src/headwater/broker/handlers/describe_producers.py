"""DescribeProducers, v0: the producers a partition remembers: epochs, sequences, open transactions.

A partition that is named twice is answered once (Apache does so each time).
"""

from collections.abc import Collection
from typing import TYPE_CHECKING

from kio.schema.describe_producers.v0.request import DescribeProducersRequest
from kio.schema.describe_producers.v0.response import (
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

from headwater.broker.services.topic_requests import check_topic_name, once_by_topic
from headwater.broker.services.turns import Work
from headwater.log.log_types import ActiveProducer
from headwater.protocol.each import each
from headwater.protocol.errors import ApiError
from headwater.protocol.kafka_types import NO_THROTTLE, ErrorCode, ProducerId, TopicName, i32, i64

if TYPE_CHECKING:
    from headwater.broker.broker import Broker
    from headwater.broker.dispatch import RequestContext


def handle(context: "RequestContext", request: DescribeProducersRequest) -> Work[DescribeProducersResponse]:
    """The state of every partition asked for, or its error."""
    asked = yield from once_by_topic((topic.name, topic.partition_indexes) for topic in request.topics)

    def answer(asked: tuple[TopicName, Collection[i32]]) -> TopicResponse:
        topic, indexes = asked
        return TopicResponse(
            name=topic, partitions=each(lambda index: _partition(context.broker, topic, index), indexes)
        )

    return DescribeProducersResponse(throttle_time=NO_THROTTLE, topics=each(answer, asked.items()))


def _partition(broker: "Broker", topic: str, index: i32) -> PartitionResponse:
    try:
        check_topic_name(topic)
        producers = broker.topics.partition(topic, index).log.active_producers()
    except ApiError as error:
        return PartitionResponse(
            partition_index=index, error_code=error.code, error_message=error.message, active_producers=()
        )
    return PartitionResponse(
        partition_index=index,
        error_code=ErrorCode.none,
        active_producers=each(_producer, producers),
    )


def _producer(producer: ActiveProducer) -> ProducerState:
    return ProducerState(
        producer_id=ProducerId(producer.producer_id),
        producer_epoch=i32(producer.producer_epoch),
        last_sequence=i32(producer.last_sequence),
        last_timestamp=i64(producer.last_timestamp_ms),
        coordinator_epoch=i32(producer.coordinator_epoch),
        current_txn_start_offset=i64(producer.current_txn_start_offset),
    )
