"""Produce, v3 to v13: record batches go from the socket's buffer to the log's file.

v3 and v4 answer with the base offset and append time, v5 adds the log start offset, v8 the errors of single records,
v9 is flexible, v10 could name a new leader (there is one), v13 names topics by id.
A request holds one batch a partition, as in Kafka. With acks=0 nothing is answered, and an error ends the connection.
Left out: transactional batches, which need a transaction coordinator.
"""

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any, Final

from headwater.broker.services.append_rules import InvalidRecordsError
from headwater.broker.services.partition import Partition
from headwater.net.connection import PENDING, Connection, ProtocolViolationError
from headwater.protocol import records
from headwater.protocol.errors import ApiError, ErrorCode
from headwater.protocol.headers import RequestHeader
from headwater.protocol.produce_lane import PartitionResult, read_request, response_frame

if TYPE_CHECKING:
    from headwater.broker.broker import Broker

logger = logging.getLogger(__name__)

_MAGIC_POSITION: Final = 16
_ZSTD: Final = 4
_FIRST_WITH_ZSTD: Final = 7

Results = list[tuple[str | bytes, list[PartitionResult]]]


def handle(broker: "Broker", connection: Connection, header: RequestHeader, frame: memoryview) -> Any:
    """Appends every partition's batch and answers; later when a topic's settings ask for an fsync first."""
    version = header.version
    request = read_request(frame, header.body, version)
    acks = request.acks
    now_ms = int(time.time() * 1000)
    to_flush: list[Partition] = []
    results: Results = []
    failed = False
    for topic, partitions in request.topics:
        answers = []
        for index, start, end in partitions:
            try:
                if acks != -1 and acks != 1 and acks != 0:
                    raise ApiError(ErrorCode.invalid_required_acks, f"acks={acks}; it must be 0, 1 or -1 (all)")
                partition = broker.topics.partition(topic, index)
                headers = _check(frame, start, end, version)
                answers.append(_append(broker, partition, frame, headers, now_ms, to_flush))
            except ApiError as error:
                failed = True
                answers.append(_failure(index, error))
            except records.CorruptBatchError as error:
                failed = True
                answers.append(_failure(index, ApiError(ErrorCode.corrupt_message, str(error))))
            except OSError as error:
                failed = True
                logger.error("cannot append to %s: %s", partition.log.path, error)
                answers.append(_failure(index, _storage_error("append to", error)))
        results.append((topic, answers))
    if acks == 0:
        if failed:
            raise ProtocolViolationError("a batch sent with acks=0 was refused")
        if not to_flush:
            return None
    if to_flush:
        broker.in_background(_answer_after_flush(connection, header, acks, results, to_flush))
        return PENDING
    return response_frame(version, header.correlation_id, results)


def _append(
    broker: "Broker",
    partition: Partition,
    frame: memoryview,
    headers: list[records.BatchHeader],
    now_ms: int,
    to_flush: list[Partition],
) -> PartitionResult:
    header = headers[0]
    fresh = partition.topic.append_rules.apply(frame, header, now_ms)
    if fresh is not None:
        frame = memoryview(fresh)
        header = records.parse_header(frame, 0, len(frame))
        headers = [header]
    start = header.position
    info = partition.log.append_as_leader(
        frame, start, start + header.size, headers, leader_epoch=partition.leader_epoch, now_ms=now_ms
    )
    if info.flush_needed:
        to_flush.append(partition)
    if info.rolled:
        broker.jobs.flush_soon(partition.log)
    if partition.waiters:
        broker.purgatory.touched(partition)
    return PartitionResult(partition.index, 0, info.first_offset, info.append_time_ms, info.log_start_offset)


def _check(frame: memoryview, start: int, end: int, version: int) -> list[records.BatchHeader]:
    """The header of the one batch between `start` and `end`, when it is whole, unharmed and a client may send it."""
    if start < 0 or start == end:
        raise ApiError(ErrorCode.invalid_record, "a partition without a record batch")
    if end - start > _MAGIC_POSITION and frame[start + _MAGIC_POSITION] < 2:
        raise ApiError(ErrorCode.invalid_record, f"message format {frame[start + _MAGIC_POSITION]} is no longer served")
    try:
        headers = records.check_batches(frame, start, end, strict=False)
    except records.CorruptBatchError:
        # Unharmed bytes whose header no producer should write are the client's fault, not the network's.
        headers = [records.parse_header(frame, start, end)]
        if _header_problem(headers) is None or not records.crc_is_valid(frame, headers[0]):
            raise
    problem = _header_problem(headers)
    if problem is not None:
        raise ApiError(ErrorCode.invalid_record, problem)
    header = headers[0]
    if header.is_transactional:
        raise ApiError(ErrorCode.invalid_txn_state, "this broker has no transaction coordinator")
    if header.compression == _ZSTD and version < _FIRST_WITH_ZSTD:
        raise ApiError(ErrorCode.unsupported_compression_type, f"zstd needs version {_FIRST_WITH_ZSTD} of Produce")
    return headers


def _header_problem(headers: list[records.BatchHeader]) -> str | None:
    """What a client may not put into the header of a batch, or None. The same rules as Apache's."""
    header = headers[0]
    if len(headers) > 1:
        return f"{len(headers)} record batches for one partition; one is allowed"
    if header.is_control:
        return "clients may not write control records"
    if header.records_count != header.last_offset_delta + 1:
        return f"{header.records_count} records for {header.last_offset_delta + 1} offsets"
    if header.base_offset != 0:
        return f"a base offset of {header.base_offset}; the broker gives offsets, clients send 0"
    if header.producer_id >= 0 and header.base_sequence < 0:
        return f"producer id {header.producer_id} without a sequence number"
    return None


def _storage_error(action: str, error: OSError) -> ApiError:
    """The disk failed or is full: clients take it for passing and try again."""
    return ApiError(ErrorCode.kafka_storage_error, f"cannot {action} the log: {error.strerror}")


def _failure(index: int, error: ApiError) -> PartitionResult:
    record_errors = error.record_errors if isinstance(error, InvalidRecordsError) else ()
    return PartitionResult(index, error.code, record_errors=record_errors, error_message=error.message)


async def _answer_after_flush(
    connection: Connection, header: RequestHeader, acks: int, results: Results, to_flush: list[Partition]
) -> None:
    """What the device refused to keep is not acknowledged: the producer hears KAFKA_STORAGE_ERROR and tries again."""
    try:
        for partition in to_flush:
            await asyncio.to_thread(partition.log.flush)
    except OSError as error:
        logger.error("cannot flush %s: %s", partition.log.path, error)
        refusal = _storage_error("flush", error)
        results = [(topic, [_failure(result.partition, refusal) for result in answers]) for topic, answers in results]
    connection.reply(response_frame(header.version, header.correlation_id, results) if acks else None)
