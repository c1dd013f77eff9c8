"""ListOffsets, v1 to v10: offsets by time, or by one of the names that negative timestamps stand for.

-1 latest (the last stable offset for read_committed), -2 earliest, from v7 -3 the record with the largest
timestamp, from v8 -4 the earliest on local disk (as -2), from v9 -5 the latest in remote storage (none:
-1). v4 adds leader epochs. A name that is newer than the request's version is answered with
UNSUPPORTED_VERSION, as in Apache. v10's timeout is for remote storage only. Left out: v0, which no client
still uses, and remote storage.
"""

import asyncio
import logging
from collections.abc import Coroutine, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from kio.schema.list_offsets.v10.request import ListOffsetsPartition, ListOffsetsRequest
from kio.schema.list_offsets.v10.response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

from headwater.broker.handlers.fetch import check_epoch
from headwater.broker.services.partition import Partition
from headwater.broker.services.topics import Topics
from headwater.log.log import Log
from headwater.log.segment import CorruptSegmentError
from headwater.protocol.errors import ApiError
from headwater.protocol.kafka_types import NO_THROTTLE, ErrorCode, i32, i64

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
_NOTHING: Final = (-1, -1, -1)


def handle(
    context: "RequestContext", request: ListOffsetsRequest
) -> ListOffsetsResponse | Coroutine[Any, Any, ListOffsetsResponse]:
    """An offset, with its timestamp where it was found by time, or an error for each partition."""
    unread = list(_unread_logs(context.broker.topics, request))
    return _after_reading(context, request, unread) if unread else _answer(context, request)


def _unread_logs(topics: Topics, request: ListOffsetsRequest) -> Iterator[Log]:
    """The logs that are asked for a time and were not since the start."""
    for topic in request.topics:
        for wanted in topic.partitions:
            by_time = wanted.timestamp >= 0 or wanted.timestamp == _MAX_TIMESTAMP
            if by_time and topics.has_partition(topic.name, wanted.partition_index):
                partition = topics.partition(topic.name, wanted.partition_index)
                if not partition.is_offline and not partition.log.knows_times:
                    yield partition.log


async def _after_reading(
    context: "RequestContext", request: ListOffsetsRequest, logs: list[Log]
) -> ListOffsetsResponse:
    """Look-ups by time that would have to read thousands of files first: they are read in a thread."""
    for log in logs:
        # What is wrong with a log is found again, and told, by the look-up itself.
        with suppress(OSError, CorruptSegmentError):
            await asyncio.to_thread(log.learn_times)
    return _answer(context, request)


def _answer(context: "RequestContext", request: ListOffsetsRequest) -> ListOffsetsResponse:
    # Only consumers are held to what is committed.
    isolation_level = request.isolation_level if request.replica_id == _CONSUMER else 0
    topics = []
    for topic in request.topics:
        answers: dict[int, ListOffsetsPartitionResponse] = {}
        for wanted in topic.partitions:
            index = wanted.partition_index
            if index in answers:
                answers[index] = _response(index, ErrorCode.invalid_request)
                continue
            try:
                _check_name(wanted.timestamp, context.version)
                partition = context.broker.topics.partition(topic.name, index)
                found = _find(partition, wanted, isolation_level)
                answers[index] = _response(index, ErrorCode.none, *found)
            except ApiError as error:
                answers[index] = _response(index, error.code)
            except OSError as error:
                failure = context.broker.failures.storage_error(partition.log, "read", error)
                answers[index] = _response(index, failure.code)
            except CorruptSegmentError as error:
                logger.error("%s", error)
                answers[index] = _response(index, ErrorCode.corrupt_message)
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=tuple(answers.values())))
    return ListOffsetsResponse(throttle_time=NO_THROTTLE, topics=tuple(topics))


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
