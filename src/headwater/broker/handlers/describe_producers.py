"""DescribeProducers, v0: the producers a partition remembers: epochs, sequences, open transactions."""

from typing import TYPE_CHECKING

from kio.schema.describe_producers.v0.request import DescribeProducersRequest
from kio.schema.describe_producers.v0.response import (
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

from headwater.broker.services.topic_requests import check_topic_name
from headwater.log.log_types import ActiveProducer
from headwater.protocol.errors import ApiError
from headwater.protocol.kafka_types import NO_THROTTLE, ErrorCode, ProducerId, i32, i64

if TYPE_CHECKING:
    from headwater.broker.broker import Broker
    from headwater.broker.dispatch import RequestContext


def handle(context: "RequestContext", request: DescribeProducersRequest) -> DescribeProducersResponse:
    """The state of every partition asked for, or its error."""
    return DescribeProducersResponse(
        throttle_time=NO_THROTTLE,
        topics=tuple(
            TopicResponse(
                name=topic.name,
                partitions=tuple(_partition(context.broker, topic.name, index) for index in topic.partition_indexes),
            )
            for topic in request.topics
        ),
    )


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
        active_producers=tuple(_producer(producer) for producer in producers),
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
