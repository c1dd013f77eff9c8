"""Produce, v3 to v13: record batches go from the socket's buffer to the log's file.

v3 and v4 answer with the base offset and append time, v5 adds the log start offset, v8 the errors of single records,
v9 is flexible, v10 could name a new leader (there is one), v12 adds partitions to the producer's transaction at its
first batch (KIP-890; before, AddPartitionsToTxn did), v13 names topics by id.
A request holds one batch a partition, as in Kafka. With acks=0 nothing is answered, and an error ends the connection.
"""

import time
from typing import TYPE_CHECKING, Any, Final

from headwater.broker.services.append_rules import InvalidRecordsError
from headwater.broker.services.partition import Partition
from headwater.broker.services.transaction_checks import admit_batch
from headwater.net.connection import PENDING, Connection, ProtocolViolationError
from headwater.protocol import records
from headwater.protocol.errors import ApiError, ErrorCode
from headwater.protocol.headers import RequestHeader
from headwater.protocol.produce_lane import PartitionResult, read_request, response_frame

if TYPE_CHECKING:
    from headwater.broker.broker import Broker

# The bit of a batch's attributes that zstd (4) alone among the codecs has.
_ZSTD: Final = 0x04
_FIRST_WITH_ZSTD: Final = 7

Results = list[tuple[str | bytes, list[PartitionResult]]]
Unflushed = tuple[Partition, list[PartitionResult], int]
"""A partition whose answer, at a place in its topic's answers, waits for an fsync."""


def handle(broker: "Broker", connection: Connection, header: RequestHeader, frame: memoryview) -> Any:
    """Appends every partition's batch and answers; later when a topic's settings ask for an fsync first."""
    version = header.version
    request = read_request(frame, header.body, version)
    acks = request.acks
    now_ms = int(time.time() * 1000)
    to_flush: list[Unflushed] = []
    results: Results = []
    failed = False
    for topic, partitions in request.topics:
        answers: list[PartitionResult] = []
        for index, start, end in partitions:
            try:
                if acks != -1 and acks != 1 and acks != 0:
                    raise ApiError(ErrorCode.invalid_required_acks, f"acks={acks}; it must be 0, 1 or -1 (all)")
                partition = broker.topics.partition(topic, index)
                batch = _check(frame, start, end, version)
                if batch.is_transactional:
                    state = admit_batch(broker, partition, request.transactional_id, batch, version=version)
                    if state is not None:
                        to_flush.append((state, answers, len(answers)))
                result, flush_needed = _append(broker, partition, frame, batch, now_ms)
                if flush_needed:
                    to_flush.append((partition, answers, len(answers)))
                answers.append(result)
            except ApiError as error:
                failed = True
                answers.append(_failure(index, error))
            except records.RefusedBatchError as error:
                failed = True
                answers.append(_failure(index, ApiError(ErrorCode.invalid_record, str(error))))
            except records.CorruptBatchError as error:
                failed = True
                answers.append(_failure(index, ApiError(ErrorCode.corrupt_message, str(error))))
            except OSError as error:
                failed = True
                answers.append(_failure(index, broker.failures.storage_error(partition.log, "append to", error)))
        results.append((topic, answers))
    if acks == 0:
        if failed:
            raise ProtocolViolationError("a batch sent with acks=0 was refused")
        if not to_flush:
            return None
    if to_flush:
        broker.in_background(_answer_after_flush(broker, connection, header, acks, results, to_flush))
        return PENDING
    return response_frame(version, header.correlation_id, results)


def _append(
    broker: "Broker",
    partition: Partition,
    frame: memoryview,
    header: records.BatchHeader,
    now_ms: int,
) -> tuple[PartitionResult, bool]:
    """The answer, and whether it has to wait for a flush."""
    fresh = partition.topic.append_rules.apply(frame, header, now_ms)
    if fresh is not None:
        frame = memoryview(fresh)
        header = records.parse_header(frame, 0, len(frame))
    start = header.position
    info = partition.log.append_as_leader(
        frame, start, start + header.size, [header], leader_epoch=partition.leader_epoch, now_ms=now_ms
    )
    if info.rolled:
        broker.jobs.flush_soon(partition.log)
    if partition.waiters:
        broker.purgatory.touched(partition)
    result = PartitionResult(partition.index, 0, info.first_offset, info.append_time_ms, info.log_start_offset)
    return result, info.flush_needed


def _check(frame: memoryview, start: int, end: int, version: int) -> records.BatchHeader:
    """The header of the batch between `start` and `end`, when it is whole, unharmed and a client may send it."""
    if start < 0:
        raise ApiError(ErrorCode.invalid_record, "a partition without a record batch")
    header = records.check_produced(frame, start, end)
    if header.attributes & _ZSTD and version < _FIRST_WITH_ZSTD:
        raise ApiError(ErrorCode.unsupported_compression_type, f"zstd needs version {_FIRST_WITH_ZSTD} of Produce")
    return header


def _failure(index: int, error: ApiError) -> PartitionResult:
    record_errors = error.record_errors if isinstance(error, InvalidRecordsError) else ()
    return PartitionResult(index, error.code, record_errors=record_errors, error_message=error.message)


async def _answer_after_flush(
    broker: "Broker",
    connection: Connection,
    header: RequestHeader,
    acks: int,
    results: Results,
    to_flush: list[Unflushed],
) -> None:
    """What the device refused to keep is not acknowledged: the producer hears KAFKA_STORAGE_ERROR and tries again.

    The other partitions keep their answers: told to try again, a client would write their batches twice.
    """
    for partition, answers, place in to_flush:
        try:
            await broker.failures.flush(partition)
        except ApiError as error:
            answers[place] = _failure(answers[place].partition, error)
    connection.reply(response_frame(header.version, header.correlation_id, results) if acks else None)
