"""CreatePartitions, v0 to v3: grows topics.

The versions differ in encoding, and v3 in quota errors that are not raised here. An explicit assignment
must name this broker once for each new partition. The timeout is not needed: partitions are there when the
answer is sent.
"""

from typing import TYPE_CHECKING

from kio.schema.create_partitions.v3.request import CreatePartitionsRequest, CreatePartitionsTopic
from kio.schema.create_partitions.v3.response import CreatePartitionsResponse, CreatePartitionsTopicResult

from headwater.broker.services.partition import Topic
from headwater.broker.services.topic_requests import (
    UNKNOWN_TOPIC,
    check_partition_count,
    check_replicas,
    named_twice,
)
from headwater.protocol.errors import ApiError
from headwater.protocol.kafka_types import NO_THROTTLE, ErrorCode, TopicName

if TYPE_CHECKING:
    from headwater.broker.broker import Broker
    from headwater.broker.dispatch import RequestContext


async def handle(context: "RequestContext", request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    """Each topic succeeds or fails on its own."""
    broker = context.broker
    pace = context.pace
    twice = await named_twice((topic.name for topic in request.topics), pace)
    results = [_result(name, ErrorCode.invalid_request, "Duplicate topic name.") for name in twice]
    for wanted in request.topics:
        await pace.pause()
        if wanted.name in twice:
            continue
        try:
            async with broker.topics.changing:
                topic = _check(broker, wanted)
                if not request.validate_only:
                    await broker.topics.add_partitions(topic, wanted.count)
            results.append(_result(wanted.name))
        except ApiError as error:
            results.append(_result(wanted.name, error.code, error.message))
    return CreatePartitionsResponse(throttle_time=NO_THROTTLE, results=tuple(results))


def _check(broker: "Broker", wanted: CreatePartitionsTopic) -> Topic:
    topic = broker.topics.by_name.get(wanted.name)
    if topic is None:
        raise ApiError(ErrorCode.unknown_topic_or_partition, UNKNOWN_TOPIC)
    current = len(topic.partitions)
    additional = wanted.count - current
    if additional == 0:
        raise ApiError(ErrorCode.invalid_partitions, f"Topic already has {current} partition(s).")
    if additional < 0:
        raise ApiError(
            ErrorCode.invalid_partitions,
            f"The topic {wanted.name} currently has {current} partition(s); {int(wanted.count)} would not be"
            " an increase.",
        )
    check_partition_count(additional)
    if wanted.assignments is not None:
        if len(wanted.assignments) != additional:
            raise ApiError(
                ErrorCode.invalid_replica_assignment,
                f"Attempted to add {additional} additional partition(s), but only {len(wanted.assignments)}"
                " assignment(s) were specified.",
            )
        for assignment in wanted.assignments:
            check_replicas(broker, assignment.broker_ids)
    return topic


def _result(
    name: str, error_code: ErrorCode = ErrorCode.none, message: str | None = None
) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(name=TopicName(name), error_code=error_code, error_message=message)
