"""Produce, v3 to v13: record batches go from the socket's buffer to the log's file.

v3 and v4 answer with the base offset and append time, v5 adds the log start offset, v8 the errors of single records,
v9 is flexible, v10 could name a new leader (there is one), v13 names topics by id.
A request holds one batch a partition, as in Kafka. With acks=0 nothing is answered, and an error ends the connection.
Left out: transactional batches, which need a transaction coordinator.
"""

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final

from headwater.broker.services.partition import Partition
from headwater.net.connection import PENDING, Connection, ProtocolViolationError
from headwater.protocol import records
from headwater.protocol.errors import ApiError, ErrorCode
from headwater.protocol.headers import RequestHeader
from headwater.protocol.produce_lane import PartitionData, PartitionResult, read_request, response_frame

if TYPE_CHECKING:
    from headwater.broker.broker import Broker

_CODEC_IDS: Final = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
_MAX_LONG: Final = 2**63 - 1
_MAGIC_POSITION: Final = 16
_ZSTD: Final = 4
_FIRST_WITH_ZSTD: Final = 7

Results = list[tuple[str | bytes, list[PartitionResult]]]


class InvalidRecordsError(ApiError):
    """A batch of which some records break a rule of the topic."""

    def __init__(self, code: ErrorCode, message: str, record_errors: tuple[tuple[int, str | None], ...]) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors


def handle(broker: "Broker", connection: Connection, header: RequestHeader, frame: memoryview) -> Any:
    """Appends every partition's batch and answers; later when a topic's settings ask for an fsync first."""
    version = header.version
    request = read_request(frame, header.body, version)
    now_ms = int(time.time() * 1000)
    to_flush: list[Partition] = []
    results: Results = []
    failed = False
    for topic, partitions in request.topics:
        answers = []
        for data in partitions:
            try:
                answers.append(_append(broker, topic, data, request.acks, version, frame, now_ms, to_flush))
            except ApiError as error:
                failed = True
                answers.append(_failure(data.partition, error))
            except records.CorruptBatchError as error:
                failed = True
                answers.append(_failure(data.partition, ApiError(ErrorCode.corrupt_message, str(error))))
        results.append((topic, answers))
    if request.acks == 0:
        if failed:
            raise ProtocolViolationError("a batch sent with acks=0 was refused")
        if not to_flush:
            return None
    if to_flush:
        broker.in_background(_answer_after_flush(connection, header, request.acks, results, to_flush))
        return PENDING
    return response_frame(version, header.correlation_id, results)


def _append(
    broker: "Broker",
    topic: str | bytes,
    data: PartitionData,
    acks: int,
    version: int,
    frame: memoryview,
    now_ms: int,
    to_flush: list[Partition],
) -> PartitionResult:
    index, start, end = data
    if acks not in (-1, 0, 1):
        raise ApiError(ErrorCode.invalid_required_acks, f"acks={acks}; it must be 0, 1 or -1 (all)")
    partition = broker.topics.partition(topic, index)
    buffer, start, end, headers = _admit(partition, version, frame, start, end, now_ms)
    info = partition.log.append_as_leader(
        buffer, start, end, headers, leader_epoch=partition.leader_epoch, now_ms=now_ms
    )
    if info.flush_needed:
        to_flush.append(partition)
    if info.rolled:
        broker.jobs.flush_soon(partition.log)
    if partition.waiters:
        broker.purgatory.touched(partition)
    return PartitionResult(index, 0, info.first_offset, info.append_time_ms, info.log_start_offset)


def _admit(
    partition: Partition, version: int, frame: memoryview, start: int, end: int, now_ms: int
) -> tuple[memoryview, int, int, list[records.BatchHeader]]:
    """Checks the batch against the rules of the wire and of the topic; the batch to write and its place."""
    config = partition.topic.config
    if start < 0 or start == end:
        raise ApiError(ErrorCode.invalid_record, "a partition without a record batch")
    if end - start > _MAGIC_POSITION and frame[start + _MAGIC_POSITION] < 2:
        raise ApiError(ErrorCode.invalid_record, f"message format {frame[start + _MAGIC_POSITION]} is no longer served")
    headers = records.check_batches(frame, start, end, strict=False)
    header = headers[0]
    problem = _header_problem(headers)
    if problem is not None:
        raise ApiError(ErrorCode.invalid_record, problem)
    if header.is_transactional:
        raise ApiError(ErrorCode.invalid_txn_state, "this broker has no transaction coordinator")
    if header.compression == _ZSTD and version < _FIRST_WITH_ZSTD:
        raise ApiError(ErrorCode.unsupported_compression_type, f"zstd needs version {_FIRST_WITH_ZSTD} of Produce")
    if header.size > config.max_message_bytes:
        raise ApiError(
            ErrorCode.message_too_large,
            f"a batch of {header.size} bytes; max.message.bytes={config.max_message_bytes}",
        )
    _check_records(partition, frame, header, now_ms)
    codec = _CODEC_IDS.get(config.compression_type)
    if codec is None or codec == header.compression:
        return frame, start, end, headers
    fresh = records.recompress(frame, header, codec, _level(partition, codec))
    return memoryview(fresh), 0, len(fresh), [records.parse_header(fresh, 0, len(fresh))]


def _header_problem(headers: list[records.BatchHeader]) -> str | None:
    """What a client may not put into the header of a batch, or None. The same rules as Apache's."""
    header = headers[0]
    if len(headers) > 1:
        return f"{len(headers)} record batches for one partition; one is allowed"
    if header.is_control:
        return "clients may not write control records"
    if header.records_count != header.last_offset_delta + 1 or header.records_count == 0:
        return f"{header.records_count} records for {header.last_offset_delta + 1} offsets"
    if header.base_offset != 0:
        return f"a base offset of {header.base_offset}; the broker gives offsets, clients send 0"
    if header.producer_id >= 0 and header.base_sequence < 0:
        return f"producer id {header.producer_id} without a sequence number"
    return None


def _check_records(partition: Partition, frame: memoryview, header: records.BatchHeader, now_ms: int) -> None:
    """Looks at the records themselves, if a rule of the topic needs it."""
    config = partition.topic.config
    require_keys = "compact" in config.cleanup_policy
    earliest = latest = None
    if config.message_timestamp_type == "CreateTime":
        if config.message_timestamp_before_max_ms < _MAX_LONG:
            earliest = now_ms - config.message_timestamp_before_max_ms
        if config.message_timestamp_after_max_ms < _MAX_LONG:
            latest = now_ms + config.message_timestamp_after_max_ms
            if header.max_timestamp_ms <= latest:
                latest = None
    if not require_keys and earliest is None and latest is None:
        return
    problems = records.validate_records(
        frame, header, require_keys=require_keys, min_timestamp_ms=earliest, max_timestamp_ms=latest
    )
    if problems:
        timestamps = any(problem.reason == "timestamp" for problem in problems)
        raise InvalidRecordsError(
            ErrorCode.invalid_timestamp if timestamps else ErrorCode.invalid_record,
            "One or more records have been rejected" + (" due to invalid timestamp" if timestamps else ""),
            tuple((problem.batch_index, problem.message) for problem in problems),
        )


def _level(partition: Partition, codec: int) -> int | None:
    config = partition.topic.config
    return {
        1: config.compression_gzip_level,
        3: config.compression_lz4_level,
        4: config.compression_zstd_level,
    }.get(codec)


def _failure(index: int, error: ApiError) -> PartitionResult:
    record_errors = error.record_errors if isinstance(error, InvalidRecordsError) else ()
    return PartitionResult(index, error.code, record_errors=record_errors, error_message=error.message)


async def _answer_after_flush(
    connection: Connection, header: RequestHeader, acks: int, results: Results, to_flush: list[Partition]
) -> None:
    for partition in to_flush:
        await asyncio.to_thread(partition.log.flush)
    connection.reply(response_frame(header.version, header.correlation_id, results) if acks else None)
