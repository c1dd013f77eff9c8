"""ListOffsets, v1 to v10: offsets by time, or by one of the names that negative timestamps stand for.

-1 latest (the last stable offset for read_committed), -2 earliest, from v7 -3 the record with the largest
timestamp, from v8 -4 the earliest on local disk (as -2), from v9 -5 the latest in remote storage (none:
-1). v4 adds leader epochs. A name that is newer than the request's version is answered with
UNSUPPORTED_VERSION, as in Apache. v10's timeout is for remote storage only. A partition that is named twice is answered
once, with INVALID_REQUEST. Left out: v0, which no client still uses, and remote storage.
"""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from kio.schema.list_offsets.v10.request import ListOffsetsPartition, ListOffsetsRequest
from kio.schema.list_offsets.v10.response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

from headwater.broker.handlers.fetch import check_epoch
from headwater.broker.services.partition import Partition
from headwater.broker.services.topics import Topics
from headwater.broker.services.turns import Work
from headwater.log.log import Log
from headwater.log.segment import CorruptSegmentError
from headwater.protocol.each import each
from headwater.protocol.errors import ApiError
from headwater.protocol.kafka_types import NO_THROTTLE, ErrorCode, TopicName, i32, i64

if TYPE_CHECKING:
    from headwater.broker.dispatch import RequestContext

logger = logging.getLogger(__name__)

_LATEST: Final = -1
_EARLIEST: Final = -2
_MAX_TIMESTAMP: Final = -3
_EARLIEST_LOCAL: Final = -4
_LATEST_TIERED: Final = -5
_FIRST_VERSION: Final = {_LATEST: 1, _EARLIEST: 1, _MAX_TIMESTAMP: 7, _EARLIEST_LOCAL: 8, _LATEST_TIERED: 9}
_CONSUMER: Final = -1
_AT_ONCE: Final = 100
_NOTHING: Final = (-1, -1, -1)


_Asked = Mapping[i32, ListOffsetsPartition | None]
"""What is asked of the partitions of a topic; None where a partition is named more than once."""


def handle(context: "RequestContext", request: ListOffsetsRequest) -> Work[ListOffsetsResponse]:
    """An offset, with its timestamp where it was found by time, or an error for each partition."""
    topics: dict[TopicName, dict[i32, ListOffsetsPartition | None]] = {}
    for topic in request.topics:
        yield None
        asked = topics.setdefault(topic.name, {})
        for wanted in topic.partitions:
            is_repeated = wanted.partition_index in asked
            asked[wanted.partition_index] = None if is_repeated else wanted
            log = None if is_repeated else _unread_log(context.broker.topics, topic.name, wanted)
            if log is not None:
                # It would have to read thousands of files. What is wrong with a log is found again, and told, by the
                # look-up itself.
                with suppress(OSError, CorruptSegmentError):
                    yield asyncio.to_thread(log.learn_times)
            elif is_repeated or not len(asked) % _AT_ONCE:
                yield None
    # Only consumers are held to what is committed.
    isolation_level = request.isolation_level if request.replica_id == _CONSUMER else 0

    def answer(asked: tuple[TopicName, _Asked]) -> ListOffsetsTopicResponse:
        topic, partitions = asked
        return ListOffsetsTopicResponse(
            name=topic,
            partitions=each(
                lambda wanted: _answer(context, topic, *wanted, isolation_level=isolation_level), partitions.items()
            ),
        )

    return ListOffsetsResponse(throttle_time=NO_THROTTLE, topics=each(answer, topics.items()))


def _unread_log(topics: Topics, topic: str, wanted: ListOffsetsPartition) -> Log | None:
    """The log of a partition that is asked for a time and was not since the start."""
    by_time = wanted.timestamp >= 0 or wanted.timestamp == _MAX_TIMESTAMP
    if by_time and topics.has_partition(topic, wanted.partition_index):
        partition = topics.partition(topic, wanted.partition_index)
        if not partition.is_offline and not partition.log.knows_times:
            return partition.log
    return None


def _answer(
    context: "RequestContext", topic: str, index: i32, wanted: ListOffsetsPartition | None, *, isolation_level: int
) -> ListOffsetsPartitionResponse:
    if wanted is None:
        return _response(index, ErrorCode.invalid_request)
    try:
        _check_name(wanted.timestamp, context.version)
        partition = context.broker.topics.partition(topic, index)
        return _response(index, ErrorCode.none, *_find(partition, wanted, isolation_level))
    except ApiError as error:
        return _response(index, error.code)
    except OSError as error:
        return _response(index, context.broker.failures.storage_error(partition.log, "read", error).code)
    except CorruptSegmentError as error:
        logger.error("%s", error)
        return _response(index, ErrorCode.corrupt_message)


def _check_name(timestamp: int, version: int) -> None:
    if timestamp < 0 and version < _FIRST_VERSION.get(timestamp, version + 1):
        raise ApiError(ErrorCode.unsupported_version, f"version {version} knows no offset called {timestamp}")


def _find(partition: Partition, wanted: ListOffsetsPartition, isolation_level: int) -> tuple[int, int, int]:
    """Timestamp, offset and leader epoch of what was asked for."""
    timestamp, log = wanted.timestamp, partition.log
    if wanted.current_leader_epoch != -1:
        check_epoch(partition, wanted.current_leader_epoch)
    up_to = partition.readable_up_to(isolation_level)
    if timestamp == _LATEST:
        return -1, up_to, partition.leader_epoch
    if timestamp in (_EARLIEST, _EARLIEST_LOCAL):
        return -1, log.log_start_offset, _epoch_at_start(partition)
    if timestamp == _LATEST_TIERED:
        return _NOTHING
    by_name = timestamp == _MAX_TIMESTAMP
    found = log.offset_of_max_timestamp() if by_name else log.offset_for_timestamp(timestamp, up_to)
    if found is None or found.offset >= up_to:
        return _NOTHING
    return found.timestamp_ms, found.offset, found.leader_epoch


def _epoch_at_start(partition: Partition) -> int:
    log = partition.log
    epoch = log.leader_epochs.epoch_of(log.log_start_offset)
    # The log learns of an epoch with its first batch.
    return partition.leader_epoch if epoch < 0 and log.log_start_offset == log.log_end_offset else epoch


def _response(
    index: i32, error_code: ErrorCode, timestamp: int = -1, offset: int = -1, leader_epoch: int = -1
) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(
        partition_index=index,
        error_code=error_code,
        timestamp=i64(timestamp),
        offset=i64(offset),
        leader_epoch=i32(leader_epoch),
    )
