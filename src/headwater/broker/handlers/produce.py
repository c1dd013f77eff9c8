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
from functools import partial
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
Unflushed = tuple[Partition, list[PartitionResult], int]
"""A partition whose answer, at a place in its topic's answers, waits for an fsync."""


def handle(broker: "Broker", connection: Connection, header: RequestHeader, frame: memoryview) -> Any:
    """Appends every partition's batch and answers; later when that takes long or an fsync is asked for first."""
    started_s = time.monotonic()
    production = Production(broker, header, read_request(frame, header.body, header.version), frame)
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

    __slots__ = (
        "_at",
        "_batches",
        "_broker",
        "_header",
        "_now_ms",
        "_record_errors",
        "_request",
        "_results",
        "acks",
        "failed",
        "frame",
        "to_check",
        "to_flush",
    )

    def __init__(self, broker: "Broker", header: RequestHeader, request: ProduceRequest, frame: memoryview) -> None:
        self._broker = broker
        self._header = header
        self._request = request
        self._now_ms = int(time.time() * 1000)
        self._results: list[tuple[str | bytes, list[PartitionResult]]] = []
        self._batches: list[tuple[str | bytes, list[PartitionResult], int, int, int]] = []
        self._at = 0
        self._record_errors = 0
        self.frame = frame
        self.acks = request.acks
        self.failed = False
        self.to_check: Any = None
        """When `go_on` stopped: a check for a thread, whose outcome it goes on with, or None after a long turn."""
        self.to_flush: list[Unflushed] = []
        topics = request.topics
        if len(topics) > 1 or (topics and len(topics[0][1]) > 1):
            topics = _last_of_each(topics)
        for topic, partitions in topics:
            answers: list[PartitionResult] = []
            self._results.append((topic, answers))
            for index, start, end in partitions:
                self._batches.append((topic, answers, index, start, end))

    def go_on(self, started_s: float, outcome: Checked | Exception | None = None) -> bool:
        """Appends what can be appended in a turn of the loop; True when all batches are done, else see `to_check`.

        `outcome` is what the check that was left for a thread came to.
        """
        batches = self._batches
        one = len(batches) == 1
        self.to_check = None
        while self._at < len(batches):
            if not one and time.monotonic() - started_s > _LONGEST_TURN_S:
                return False
            topic, answers, index, start, end = batches[self._at]
            try:
                self._take(topic, answers, index, start, end, outcome)
            except TakesLongError:
                return False
            except ApiError as error:
                answers.append(self._failure(index, error))
            except records.RefusedBatchError as error:
                answers.append(self._failure(index, ApiError(ErrorCode.invalid_record, str(error))))
            except records.CorruptBatchError as error:
                answers.append(self._failure(index, ApiError(ErrorCode.corrupt_message, str(error))))
            outcome = None
            self._at += 1
        return True

    async def finish(self) -> None:
        """Goes on until all batches are done and those that must be are on the device."""
        outcome: Checked | Exception | None = None
        while not self.go_on(time.monotonic(), outcome):
            outcome = None
            if self.to_check is not None:
                outcome = await self._check_in_thread()
            else:
                await asyncio.sleep(0)
        for unflushed in self.to_flush:
            try:
                await self._broker.failures.flush(unflushed[0])
            except ApiError as error:
                self._flush_failed(unflushed, error)

    async def _check_in_thread(self) -> Checked | Exception:
        """What the check came to; what is wrong with the batch is told by `go_on`, along with the others."""
        check = partial(self.to_check, self.frame, at_once=False)
        try:
            return await self._broker.record_checks.run(check)
        except (ApiError, records.RefusedBatchError, records.CorruptBatchError) as error:
            return error

    def reply(self) -> bytes | None:
        """The response, when all is done; none with acks=0."""
        if self.acks == 0:
            return None
        return response_frame(self._header.version, self._header.correlation_id, self._results)

    def _flush_failed(self, unflushed: Unflushed, error: ApiError) -> None:
        """What the device refused to keep is not acknowledged: the producer hears of it and tries again.

        The other partitions keep their answers: told to try again, a client would write their batches twice.
        """
        _, answers, place = unflushed
        answers[place] = self._failure(answers[place].partition, error)

    def _take(
        self,
        topic: str | bytes,
        answers: list[PartitionResult],
        index: int,
        start: int,
        end: int,
        outcome: Checked | Exception | None,
    ) -> None:
        """Checks one batch and appends it; TakesLongError when `to_check` must come first."""
        if self.acks not in (-1, 0, 1):
            raise ApiError(ErrorCode.invalid_required_acks, f"acks={self.acks}; it must be 0, 1 or -1 (all)")
        partition = self._broker.topics.partition(topic, index)
        if start < 0:
            raise ApiError(ErrorCode.invalid_record, "a partition without a record batch")
        if isinstance(outcome, Exception):
            raise outcome
        if outcome is None:
            check, version = partition.topic.append_rules.check, self._header.version
            try:
                outcome = check(self.frame, start, end, version, self._now_ms, at_once=True)
            except TakesLongError:
                self.to_check = partial(check, start=start, end=end, version=version, now_ms=self._now_ms)
                raise
        frame, batch = outcome
        version = self._header.version
        if batch.is_transactional:
            state = admit_batch(self._broker, partition, self._request.transactional_id, batch, version=version)
            if state is not None:
                self.to_flush.append((state, answers, len(answers)))
        try:
            result, flush_needed = _append(self._broker, partition, frame, batch, self._now_ms)
        except OSError as error:
            raise self._broker.failures.storage_error(partition.log, "append to", error) from error
        if flush_needed:
            self.to_flush.append((partition, answers, len(answers)))
        answers.append(result)

    def _failure(self, index: int, error: ApiError) -> PartitionResult:
        self.failed = True
        record_errors = error.record_errors if isinstance(error, InvalidRecordsError) else ()
        record_errors = record_errors[: _MOST_RECORD_ERRORS - self._record_errors]
        self._record_errors += len(record_errors)
        return PartitionResult(index, error.code, record_errors=record_errors, error_message=error.message)


def _append(
    broker: "Broker", partition: Partition, frame: memoryview, header: records.BatchHeader, now_ms: int
) -> tuple[PartitionResult, bool]:
    """The answer, and whether it has to wait for a flush."""
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


def _last_of_each(
    topics: list[tuple[str | bytes, list[tuple[int, int, int]]]],
) -> list[tuple[str | bytes, list[tuple[int, int, int]]]]:
    """Every topic and every partition of it once, with the batch that was named last, as Apache takes them."""
    last: dict[str | bytes, dict[int, tuple[int, int, int]]] = {}
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
