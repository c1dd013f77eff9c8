"""Fetch, v4 to v18: byte ranges of log files go to the socket as they are.

v5 adds log start offsets, v7 sessions (KIP-227), v9 the client's leader epoch, v12 is flexible and can tell where logs
diverge, v13 names topics by id, v15 to v18 concern replicas.
A fetch that finds less than `min_bytes` waits in the purgatory for `max_wait_ms`, but not longer than five minutes or
half of `connections.max.idle.ms`, as the connection would be idle then; the append that satisfies it wakes it. The
first partition that has anything gives at least one whole batch, however small the limits are.
Left out: fetching from the closest replica (there is one replica).
"""

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from headwater.broker.services import page_cache
from headwater.broker.services.fetch_sessions import FetchContext
from headwater.broker.services.partition import Partition
from headwater.log.segment import CorruptSegmentError
from headwater.net.connection import PENDING, Connection, FileRange
from headwater.protocol.errors import ApiError, ErrorCode
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

Found = list[tuple[str | bytes, PartitionResult]]


def handle(broker: "Broker", connection: Connection, header: RequestHeader, frame: memoryview) -> Any:
    """Answers at once when there is enough to send or something to say; else waits."""
    request = read_request(frame, header.body, header.version)
    try:
        context = broker.fetch_sessions.context(request, header.version >= _FIRST_WITH_TOPIC_ID, time.monotonic())
    except ApiError as error:
        return response_parts(header.version, header.correlation_id, error.code, 0, [])
    return _Fetch(broker, connection, header, request, context).start()


class _Fetch:
    """One Fetch from its arrival to its answer."""

    __slots__ = ("_broker", "_connection", "_context", "_header", "_max_bytes", "_partitions", "_request")

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
        found, size, answer_now = self._read()
        wait_s = self._wait_ms() / 1000
        if answer_now or size >= self._request.min_bytes or wait_s <= 0 or not found:
            return self._answer(found)
        waiter = self._broker.purgatory.wait(self._partitions, wait_s, self._attempt)
        self._connection.may_drop(lambda: self._broker.purgatory.cancel(waiter))
        return PENDING

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
        found, size, answer_now = self._read()
        if time_is_up or answer_now or size >= self._request.min_bytes:
            answer = self._answer(found)
            if answer is not PENDING:
                self._connection.reply(answer)
            return True
        return False

    def _read(self) -> tuple[Found, int, bool]:
        """What every wanted partition has, its size, and whether an error or a divergence must be told at once."""
        broker, isolation_level = self._broker, self._request.isolation_level
        left = self._max_bytes
        total = 0
        answer_now = False
        found: Found = []
        partitions = []
        for topic, wanted in self._context.wanted:
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
        return found, total, answer_now

    def _answer(self, found: Found) -> Any:
        cold = [each for each in found if each[1].records_size and page_cache.is_cold(each[1].records)]
        if not cold:
            return self._parts(found)
        reading = self._broker.in_background(self._answer_when_warm(cold, found))
        self._connection.may_drop(reading.cancel)
        return PENDING

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
