"""DeleteRecords, v0 to v2: moves the start of a partition to an offset; -1 stands for its high watermark.

What lies in segments that end before the new start leaves the disk later. Topics that only compact refuse
(POLICY_VIOLATION), internal topics too. A partition that is named twice goes to the offset named last. The timeout is
for replicas that lag; there are none.
"""

from typing import TYPE_CHECKING

from kio.schema.delete_records.v2.request import DeleteRecordsRequest
from kio.schema.delete_records.v2.response import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

from headwater.broker.services.turns import Work
from headwater.cluster.image import INTERNAL_TOPICS
from headwater.protocol.errors import ApiError
from headwater.protocol.kafka_types import NO_THROTTLE, ErrorCode, TopicName, i32, i64

if TYPE_CHECKING:
    from headwater.broker.broker import Broker
    from headwater.broker.dispatch import RequestContext


def handle(context: "RequestContext", request: DeleteRecordsRequest) -> Work[DeleteRecordsResponse]:
    """The new start of every partition, or why it stays."""
    topics: dict[TopicName, dict[i32, i64]] = {}
    for topic in request.topics:
        yield None
        offsets = topics.setdefault(topic.name, {})
        for wanted in topic.partitions:
            offsets[wanted.partition_index] = wanted.offset
            yield None
    results = []
    for name, offsets in topics.items():
        rows = []
        for index, offset in offsets.items():
            rows.append(_answer(context.broker, name, index, offset))
            yield None
        results.append(DeleteRecordsTopicResult(name=name, partitions=tuple(rows)))
    return DeleteRecordsResponse(throttle_time=NO_THROTTLE, topics=tuple(results))


def _answer(broker: "Broker", topic: str, index: i32, offset: int) -> DeleteRecordsPartitionResult:
    try:
        low_watermark, error_code = _delete(broker, topic, index, offset), ErrorCode.none
    except ApiError as error:
        low_watermark, error_code = -1, error.code
    return DeleteRecordsPartitionResult(partition_index=index, low_watermark=i64(low_watermark), error_code=error_code)


def _delete(broker: "Broker", topic: str, index: int, offset: int) -> int:
    partition = broker.topics.partition(topic, index)
    if topic in INTERNAL_TOPICS:
        raise ApiError(ErrorCode.invalid_topic_exception, f"Cannot delete records of internal topic {topic}")
    if not partition.topic.config.deletes:
        raise ApiError(ErrorCode.policy_violation, f"cleanup.policy of topic {topic!r} does not allow deleting records")
    try:
        start_offset = partition.log.delete_records_before(offset)
    except OSError as error:
        raise broker.failures.storage_error(partition.log, "delete from", error) from error
    broker.jobs.remove_files_later(partition)
    # Fetches that wait below the new start have an error to hear.
    broker.purgatory.touched(partition)
    return start_offset
