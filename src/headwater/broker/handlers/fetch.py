"""Fetch, v4 to v18: byte ranges of log files go to the socket as they are.

v5 adds log start offsets, v7 sessions (KIP-227), v9 the client's leader epoch, v12 is flexible and can tell where logs
diverge, v13 names topics by id, v15 to v18 concern replicas.
A fetch that finds less than `min_bytes` waits in the purgatory for `max_wait_ms`, but not longer than five minutes or
half of `connections.max.idle.ms`, as the connection would be idle then; the append that satisfies it wakes it. The
first partition that has anything gives at least one whole batch, however small the limits are.
A long request is read in a thread, and of many partitions a few at a time, so that others are served meanwhile.
Left out: fetching from the closest replica (there is one replica).
"""

import asyncio
import logging
import time
from collections.abc import Coroutine, Generator, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from headwater.broker.services import page_cache
from headwater.broker.services.fetch_sessions import FetchContext
from headwater.broker.services.partition import Partition
from headwater.broker.services.purgatory import Attempt
from headwater.log.segment import CorruptSegmentError
from headwater.net.connection import PENDING, Connection, FileRange
from headwater.protocol.errors import ApiError, ErrorCode, MalformedRequestError
from headwater.protocol.fetch_lane import (
    FetchPartition,
    FetchRequest,
    PartitionResult,
    read_request,
    response_parts,
)
from headwater.protocol.headers import RequestHeader

if TYPE_CHECKING:
    from headwater.broker.broker import Broker

logger = logging.getLogger(__name__)

_FIRST_WITH_TOPIC_ID: Final = 13
_LONGEST_WAIT_MS: Final = 300_000
_LONG_FRAME_BYTES: Final = 32 * 1024
_MANY_PARTITIONS: Final = 500
_AT_ONCE: Final = 100
"""Partitions that are looked at before others may be served, where there are many."""

T = TypeVar("T")
Found = list[tuple[str | bytes, PartitionResult]]


def handle(broker: "Broker", connection: Connection, header: RequestHeader, frame: memoryview) -> Any:
    """Answers at once when there is enough to send or something to say; else waits."""
    if len(frame) > _LONG_FRAME_BYTES:
        return _in_background(broker, connection, _read_long(broker, connection, header, bytes(frame)))
    return _begin(broker, connection, header, read_request(frame, header.body, header.version))


def _begin(broker: "Broker", connection: Connection, header: RequestHeader, request: FetchRequest) -> Any:
    try:
        context = broker.fetch_sessions.context(request, header.version >= _FIRST_WITH_TOPIC_ID, time.monotonic())
    except ApiError as error:
        return response_parts(header.version, header.correlation_id, error.code, 0, [])
    return _Fetch(broker, connection, header, request, context).start()


async def _read_long(broker: "Broker", connection: Connection, header: RequestHeader, frame: bytes) -> None:
    loop, thread = asyncio.get_running_loop(), broker.dispatcher.thread
    request = await loop.run_in_executor(thread, read_request, memoryview(frame), header.body, header.version)
    reply = _begin(broker, connection, header, request)
    if reply is not PENDING:
        connection.reply(reply)


def _in_background(broker: "Broker", connection: Connection, work: Coroutine[Any, Any, None]) -> Any:
    """Answers later, unless the client hangs up before."""

    async def answer() -> None:
        try:
            await work
        except MalformedRequestError as error:
            connection.close(str(error))
        except Exception:
            connection.close("its request could not be answered")
            raise
        finally:
            work.close()

    connection.may_drop(broker.in_background(answer()).cancel)
    return PENDING


class _Fetch:
    """One Fetch from its arrival to its answer."""

    __slots__ = ("_broker", "_connection", "_context", "_header", "_max_bytes", "_partitions", "_request", "_until_s")

    def __init__(
        self,
        broker: "Broker",
        connection: Connection,
        header: RequestHeader,
        request: FetchRequest,
        context: FetchContext,
    ) -> None:
        self._broker = broker
        self._connection = connection
        self._header = header
        self._request = request
        self._context = context
        self._max_bytes = min(request.max_bytes, broker.config.fetch_max_bytes)
        self._partitions: Sequence[Partition] = ()

    def start(self) -> Any:
        self._until_s = time.monotonic() + self._wait_ms() / 1000
        if len(self._context.wanted) > _MANY_PARTITIONS:
            return _in_background(self._broker, self._connection, self._try_in_slices())
        found, is_enough = self._read()
        if is_enough or self._until_s <= time.monotonic() or not found:
            return self._answer(found)
        self._wait(self._attempt)
        return PENDING

    def _wait(self, attempt: Attempt) -> None:
        wait_s = max(self._until_s - time.monotonic(), 0)
        waiter = self._broker.purgatory.wait(self._partitions, wait_s, attempt)
        self._connection.may_drop(lambda: self._broker.purgatory.cancel(waiter))

    async def _try_in_slices(self) -> None:
        """Answers, or waits for a partition to change and tries again."""
        turns = self._broker.dispatcher.turns
        found, is_enough = await turns.finish(self._reading())
        if is_enough or self._until_s <= time.monotonic() or not found:
            answer = await turns.finish(self._answering(found))
            if answer is not PENDING:
                self._connection.reply(answer)
        else:
            self._wait(self._try_again)

    def _try_again(self, time_is_up: bool) -> bool:
        _in_background(self._broker, self._connection, self._try_in_slices())
        return True

    def _wait_ms(self) -> int:
        """How long the client waits at the most: it may ask for 24 days, in which it may be long gone."""
        idle_ms = self._broker.config.connections_max_idle_ms
        longest_ms = min(_LONGEST_WAIT_MS, idle_ms // 2) if idle_ms >= 0 else _LONGEST_WAIT_MS
        return min(self._request.max_wait_ms, longest_ms)

    def _attempt(self, time_is_up: bool) -> bool:
        try:
            return self._complete(time_is_up)
        except Exception:
            self._connection.close("its request could not be answered")
            raise

    def _complete(self, time_is_up: bool) -> bool:
        found, is_enough = self._read()
        if not (time_is_up or is_enough):
            return False
        answer = self._answer(found)
        if answer is not PENDING:
            self._connection.reply(answer)
        return True

    def _read(self) -> tuple[Found, bool]:
        return _to_its_end(self._reading())

    def _reading(self) -> Generator[None, None, tuple[Found, bool]]:
        """What every wanted partition has, and whether that is enough or an error or a divergence must be told."""
        broker, isolation_level = self._broker, self._request.isolation_level
        left = self._max_bytes
        total = 0
        answer_now = False
        found: Found = []
        partitions = []
        for number, (topic, wanted) in enumerate(self._context.wanted, 1):
            if not number % _AT_ONCE:
                yield
            try:
                partition = broker.topics.partition(topic, wanted.partition)
            except ApiError as error:
                found.append((topic, PartitionResult(wanted.partition, error.code, aborted=[])))
                answer_now = True
                continue
            partitions.append(partition)
            try:
                result = _read_partition(partition, wanted, isolation_level, left, total == 0)
            except ApiError as error:
                result = PartitionResult(wanted.partition, error.code)
            except OSError as error:
                failure = broker.failures.storage_error(partition.log, "read", error)
                result = PartitionResult(wanted.partition, failure.code)
            except CorruptSegmentError as error:
                logger.error("%s", error)
                result = PartitionResult(wanted.partition, ErrorCode.corrupt_message)
            if result.records_size:
                total += result.records_size
                left = max(left - result.records_size, 0)
            elif result.error_code or result.diverging_epoch is not None:
                answer_now = True
            found.append((topic, result))
        self._partitions = partitions
        return found, answer_now or total >= self._request.min_bytes

    def _answer(self, found: Found) -> Any:
        return _to_its_end(self._answering(found))

    def _answering(self, found: Found) -> Generator[None, None, Any]:
        cold = []
        for number, each in enumerate(found, 1):
            if each[1].records_size and page_cache.is_cold(each[1].records):
                cold.append(each)
            if not number % _AT_ONCE:
                yield
        if not cold:
            return self._parts(found)
        return _in_background(self._broker, self._connection, self._answer_when_warm(cold, found))

    async def _answer_when_warm(self, cold: Found, found: Found) -> None:
        for place in cold:
            topic, result = place
            try:
                await asyncio.to_thread(page_cache.warm, result.records)
            except OSError as error:
                found[found.index(place)] = (topic, self._unreadable(topic, result.partition, error))
        self._connection.reply(self._parts(found))

    def _unreadable(self, topic: str | bytes, index: int, error: OSError) -> PartitionResult:
        try:
            log = self._broker.topics.partition(topic, index).log
            return PartitionResult(index, self._broker.failures.storage_error(log, "read", error).code)
        except ApiError as gone:
            return PartitionResult(index, gone.code)

    def _parts(self, found: Found) -> list[Any]:
        selected = self._context.select(found)
        grouped: list[tuple[str | bytes, list[PartitionResult]]] = []
        for topic, result in selected:
            if grouped and grouped[-1][0] == topic:
                grouped[-1][1].append(result)
            else:
                grouped.append((topic, [result]))
        header = self._header
        return response_parts(header.version, header.correlation_id, 0, self._context.session_id, grouped)


def _to_its_end(steps: Generator[None, None, T]) -> T:
    """What `steps` come to, without a pause between them."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


def _read_partition(
    partition: Partition, wanted: FetchPartition, isolation_level: int, max_bytes: int, first: bool
) -> PartitionResult:
    """The byte range of one partition that answers the wish; at least one batch while nothing else was found."""
    index, epoch, offset, last_fetched_epoch, _, partition_max_bytes = wanted
    if epoch >= 0:
        check_epoch(partition, epoch)
    log = partition.log
    if last_fetched_epoch >= 0:
        diverging = _divergence(partition, offset, last_fetched_epoch)
        if diverging is not None:
            return PartitionResult(
                index,
                0,
                partition.high_watermark,
                log.last_stable_offset,
                log.log_start_offset,
                diverging_epoch=diverging,
            )
    up_to = partition.readable_up_to(isolation_level)
    part = log.read(offset, min(max_bytes, partition_max_bytes), up_to_offset=up_to, min_one_batch=first)
    records = FileRange(part.file, part.position, part.size) if part.size else None
    aborted = None
    if isolation_level == 1:
        found = log.aborted_transactions(offset, log.upper_bound_offset(part)) if part.size else []
        aborted = [(txn.producer_id, txn.first_offset) for txn in found]
    return PartitionResult(
        index,
        0,
        partition.high_watermark,
        log.last_stable_offset,
        log.log_start_offset,
        aborted,
        records,
        part.size,
    )


def check_epoch(partition: Partition, epoch: int) -> None:
    """Refuses a client whose leader epoch is not the partition's."""
    if epoch < partition.leader_epoch:
        raise ApiError(ErrorCode.fenced_leader_epoch, f"leader epoch {epoch} is over; it is {partition.leader_epoch}")
    if epoch > partition.leader_epoch:
        raise ApiError(
            ErrorCode.unknown_leader_epoch, f"leader epoch {epoch} is unknown; it is {partition.leader_epoch}"
        )


def _divergence(partition: Partition, offset: int, last_fetched_epoch: int) -> tuple[int, int] | None:
    epoch, end_offset = partition.log.end_offset_for_epoch(last_fetched_epoch)
    if epoch < 0 or end_offset < 0:
        raise ApiError(ErrorCode.offset_out_of_range, f"epoch {last_fetched_epoch} is not in the log")
    return (epoch, end_offset) if epoch < last_fetched_epoch or end_offset < offset else None
