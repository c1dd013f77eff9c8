"""Produce, v3 to v13: record batches go from the socket's buffer to the log's file.

v3 and v4 answer with the base offset and append time, v5 adds the log start offset, v8 the errors of single records,
v9 is flexible, v10 could name a new leader (there is one), v12 adds partitions to the producer's transaction at its
first batch (KIP-890; before, AddPartitionsToTxn did), v13 names topics by id.
A request holds one batch a partition, as in Kafka; of a partition that it names twice the last batch counts. With
acks=0 nothing is answered, and an error ends the connection.

Most requests are answered in one go. One with a batch that takes long to check, or with many batches, goes on in the
background: checks in threads, appends on the event loop, a few milliseconds at a time. Its connection waits, so that
batches of one connection are appended in its order.
"""

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any, Final

from headwater.broker.services.append_rules import InvalidRecordsError, TakesLongError
from headwater.broker.services.partition import Partition
from headwater.broker.services.transaction_checks import admit_batch
from headwater.net.connection import PENDING, Connection, ProtocolViolationError
from headwater.protocol import records
from headwater.protocol.errors import ApiError, ErrorCode
from headwater.protocol.headers import RequestHeader
from headwater.protocol.produce_lane import PartitionResult, ProduceRequest, read_request, response_frame

if TYPE_CHECKING:
    from headwater.broker.broker import Broker

logger = logging.getLogger(__name__)

_REFUSED_UNANSWERED: Final = "a batch sent with acks=0 was refused"
_LONGEST_TURN_S: Final = 0.005
_MOST_RECORD_ERRORS: Final = 1_000
"""In one response; a producer takes the other records of such batches for refused along with them."""

Checked = tuple[memoryview, records.BatchHeader]
"""The buffer with a batch that may be appended, and its header."""
Unflushed = tuple[Partition, list[PartitionResult], int]
"""A partition whose answer, at a place in its topic's answers, waits for an fsync."""
Batch = tuple[int, int, int]
"""What a request says of one partition: its index, and where its batch lies in the frame; from -1 on if it is null."""
Refusal = ApiError | records.RefusedBatchError | records.CorruptBatchError
"""What is wrong with one batch, and no concern of the others."""
_REFUSALS: Final = (ApiError, records.RefusedBatchError, records.CorruptBatchError)


def handle(broker: "Broker", connection: Connection, header: RequestHeader, frame: memoryview) -> Any:
    """Appends every partition's batch and answers; later when that takes long or an fsync is asked for first."""
    started_s = time.monotonic()
    version, now_ms = header.version, int(time.time() * 1000)
    request = read_request(frame, header.body, version)
    production = None
    if len(request.topics) == 1 and len(request.topics[0][1]) == 1 and request.acks != 0:
        # What most requests are: one batch, which is appended by here or refused.
        topic, (batch,) = request.topics[0]
        try:
            result, unflushed = _take(broker, request, topic, batch, version, now_ms, frame)
            if not unflushed:
                return response_frame(version, header.correlation_id, [(topic, [result])])
            production = Production(broker, header, request, now_ms, frame)
            production.done(result, unflushed)
        except _REFUSALS as error:
            return response_frame(version, header.correlation_id, [(topic, [_failure(batch[0], error)])])
        except TakesLongError:
            pass
    if production is None:
        production = Production(broker, header, request, now_ms, frame)
    if production.go_on(started_s):
        if production.acks == 0 and production.failed:
            raise ProtocolViolationError(_REFUSED_UNANSWERED)
        if not production.to_flush:
            return production.reply()
        buffer = None
    else:
        buffer = connection.give_frame()
        if buffer is None:
            production.frame = memoryview(bytearray(frame))
    broker.in_background(_finish(production, connection, buffer))
    return PENDING


class Production:
    """One request on its way: which batches are left, and the answers for those that are not."""

    __slots__ = ("_at", "_batches", "_broker", "_header", "_now_ms", "_record_errors", "_request", "_results",
                 "acks", "failed", "frame", "takes_long", "to_flush")  # fmt: skip

    def __init__(
        self, broker: "Broker", header: RequestHeader, request: ProduceRequest, now_ms: int, frame: memoryview
    ) -> None:
        self._broker = broker
        self._header = header
        self._request = request
        self._now_ms = now_ms
        self._at = self._record_errors = 0
        self.frame = frame
        self.acks = request.acks
        self.failed = False
        self.takes_long = False
        """Why `go_on` stopped: the next batch has to be checked in a thread. Else it had its turn."""
        self.to_flush: list[Unflushed] = []
        self._results: list[tuple[str | bytes, list[PartitionResult]]] = []
        self._batches: list[tuple[str | bytes, list[PartitionResult], Batch]] = []
        for topic, batches in _last_of_each(request.topics):
            answers: list[PartitionResult] = []
            self._results.append((topic, answers))
            self._batches += [(topic, answers, batch) for batch in batches]

    def go_on(self, started_s: float, outcome: Checked | Refusal | None = None) -> bool:
        """Appends what can be appended in a turn of the loop; whether all batches are done.

        `outcome` is what the check that was left for a thread came to.
        """
        first = self._at
        self.takes_long = False
        while self._at < len(self._batches):
            if self._at > first and time.monotonic() - started_s > _LONGEST_TURN_S:
                return False
            topic, _, batch = self._batches[self._at]
            try:
                if isinstance(outcome, Exception):
                    raise outcome
                version = self._header.version
                taken = _take(self._broker, self._request, topic, batch, version, self._now_ms, self.frame, outcome)
                self.done(*taken)
            except TakesLongError:
                self.takes_long = True
                return False
            except _REFUSALS as error:
                self._refused(error)
            outcome = None
        return True

    def done(self, result: PartitionResult, unflushed: tuple[Partition, ...]) -> None:
        """The next batch was appended; its answer waits for some partitions to be flushed."""
        answers = self._batches[self._at][1]
        self.to_flush += [(partition, answers, len(answers)) for partition in unflushed]
        answers.append(result)
        self._at += 1

    def _refused(self, error: Refusal) -> None:
        _, answers, batch = self._batches[self._at]
        result = _failure(batch[0], error)
        result.record_errors = result.record_errors[: _MOST_RECORD_ERRORS - self._record_errors]
        self._record_errors += len(result.record_errors)
        answers.append(result)
        self.failed = True
        self._at += 1

    async def finish(self) -> None:
        """Goes on until all batches are done and those that must be are on the device."""
        outcome: Checked | Refusal | None = None
        while not self.go_on(time.monotonic(), outcome):
            outcome = None
            if self.takes_long:
                outcome = await self._check_in_thread()
            else:
                await asyncio.sleep(0)
        for partition, answers, place in self.to_flush:
            try:
                await self._broker.failures.flush(partition)
            except ApiError as error:
                # The producer hears of it and tries again. The other partitions keep their answers: told to try again,
                # a client would write their batches twice.
                answers[place] = _failure(answers[place].partition, error)

    async def _check_in_thread(self) -> Checked | Refusal:
        """What the check of the next batch comes to; `go_on` tells what is wrong with it, along with the others."""
        topic, _, (index, start, end) = self._batches[self._at]
        version, now_ms = self._header.version, self._now_ms
        try:
            check = self._broker.topics.partition(topic, index).topic.append_rules.check
            return await self._broker.record_checks.run(
                lambda: check(self.frame, start, end, version, now_ms, at_once=False)
            )
        except _REFUSALS as error:
            return error

    def reply(self) -> bytes | None:
        """The response, when all is done; none with acks=0."""
        if self.acks == 0:
            return None
        return response_frame(self._header.version, self._header.correlation_id, self._results)


def _take(
    broker: "Broker",
    request: ProduceRequest,
    topic: str | bytes,
    batch: Batch,
    version: int,
    now_ms: int,
    frame: memoryview,
    checked: Checked | None = None,
) -> tuple[PartitionResult, tuple[Partition, ...]]:
    """Appends one batch, after a check unless that was done: the answer, and what must be flushed before it leaves.

    One of the refusals if it may not be appended, TakesLongError if it has to be checked in a thread first.
    """
    index, start, end = batch
    acks = request.acks
    if acks != -1 and acks != 1 and acks != 0:
        raise ApiError(ErrorCode.invalid_required_acks, f"acks={acks}; it must be 0, 1 or -1 (all)")
    partition = broker.topics.partition(topic, index)
    if start < 0:
        raise ApiError(ErrorCode.invalid_record, "a partition without a record batch")
    if checked is None:
        checked = partition.topic.append_rules.check(frame, start, end, version, now_ms, at_once=True)
    frame, header = checked
    unflushed: tuple[Partition, ...] = ()
    if header.is_transactional:
        state = admit_batch(broker, partition, request.transactional_id, header, version=version)
        if state is not None:
            unflushed = (state,)
    start = header.position
    try:
        info = partition.log.append_as_leader(
            frame, start, start + header.size, [header], leader_epoch=partition.leader_epoch, now_ms=now_ms
        )
    except OSError as error:
        raise broker.failures.storage_error(partition.log, "append to", error) from error
    if info.rolled:
        broker.jobs.flush_soon(partition.log)
    if partition.waiters:
        broker.purgatory.touched(partition)
    if info.flush_needed:
        unflushed = (*unflushed, partition)
    return PartitionResult(index, 0, info.first_offset, info.append_time_ms, info.log_start_offset), unflushed


def _failure(index: int, error: Refusal) -> PartitionResult:
    if isinstance(error, records.RefusedBatchError):
        error = ApiError(ErrorCode.invalid_record, str(error))
    elif isinstance(error, records.CorruptBatchError):
        error = ApiError(ErrorCode.corrupt_message, str(error))
    record_errors = error.record_errors if isinstance(error, InvalidRecordsError) else ()
    return PartitionResult(index, error.code, record_errors=record_errors, error_message=error.message)


def _last_of_each(topics: list[tuple[str | bytes, list[Batch]]]) -> list[tuple[str | bytes, list[Batch]]]:
    """Every topic and every partition of it once, with the batch that was named last, as Apache takes them."""
    last: dict[str | bytes, dict[int, Batch]] = {}
    for topic, partitions in topics:
        last.setdefault(topic, {}).update({batch[0]: batch for batch in partitions})
    return [(topic, list(partitions.values())) for topic, partitions in last.items()]


async def _finish(production: Production, connection: Connection, buffer: bytearray | None) -> None:
    """The rest of a request that could not be answered at once."""
    try:
        await production.finish()
        reply = production.reply()
    except Exception:
        logger.exception("a Produce request of %s failed; this is a bug in headwater", connection.peer)
        connection.close("its request could not be answered")
        return
    if buffer is not None:
        connection.host.buffers.take_back(buffer)
    if production.acks == 0 and production.failed:
        connection.close(_REFUSED_UNANSWERED)
    else:
        connection.reply(reply)
