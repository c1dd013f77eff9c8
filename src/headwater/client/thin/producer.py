"""Sends record batches: several requests in flight to each leader, order kept in a partition, nothing lost.

Every batch carries a producer id and a sequence number, so a batch that is sent again after a lost answer is
not written twice. A broker that gives out no producer ids gets one request at a time instead.
"""

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeAlias, cast

from headwater.client.client import Client, duration
from headwater.client.errors import ClientError, RefusedError, UnsupportedError
from headwater.protocol.kafka_types import ErrorCode, ProducerId, TopicName, i16, i32
from headwater.protocol.records import encode_batch

from kio.schema.init_producer_id.v4.request import InitProducerIdRequest  # isort: skip
from kio.schema.init_producer_id.v4.response import InitProducerIdResponse  # isort: skip
from kio.schema.produce.v12.request import PartitionProduceData, ProduceRequest, TopicProduceData  # isort: skip
from kio.schema.produce.v12.response import PartitionProduceResponse, ProduceResponse  # isort: skip
from kio.static.primitive import Records  # isort: skip

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]
ProducedRecord: TypeAlias = tuple[bytes | None, bytes | None, Headers, int]
"""Key, value, headers and timestamp in epoch milliseconds."""

MAX_IN_FLIGHT: Final = 5
ALL_REPLICAS: Final = i16(-1)
_SEQUENCES: Final = 1 << 31


@dataclass(slots=True, eq=False)
class _Batch:
    partition: int
    data: bytearray
    records: int
    window: asyncio.Semaphore | None = None
    failure: ClientError | None = None


@dataclass(slots=True, eq=False)
class _Lane:
    """One partition's batches that are not acknowledged yet, oldest first."""

    next_sequence: int = 0
    waiting: deque[_Batch] = field(default_factory=deque)
    in_flight: int = 0
    recovery: asyncio.Task[None] | None = None
    idle: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledged:
    """What a partition has taken so far."""

    records: int
    first_offset: int
    last_offset: int


class BatchProducer:
    """Produces to one topic with acks=all. `send` puts a batch on its way, `flush` waits until all are in."""

    def __init__(self, client: Client, topic: str, *, compression: int = 0, delivery_timeout_s: float = 120.0) -> None:
        self.acknowledged: dict[int, Acknowledged] = {}
        self.acknowledged_records = 0
        self._client = client
        self._topic = topic
        self._compression = compression
        self._delivery_timeout_s = delivery_timeout_s
        self._producer_id, self._producer_epoch = -1, -1
        self._max_in_flight = 1
        self._windows: dict[int, asyncio.Semaphore] = {}
        self._lanes: dict[int, _Lane] = {}
        self._failure: ClientError | None = None

    async def start(self) -> int:
        """Looks the topic up (a broker may create it now) and returns the number of its partitions."""
        found = await self._client.topic(self._topic, create_missing=True)
        request = InitProducerIdRequest(
            transactional_id=None,
            transaction_timeout=duration(60),
            producer_id=ProducerId(-1),
            producer_epoch=i16(-1),
        )

        async def ask() -> InitProducerIdResponse:
            answer = await self._client.send(request, InitProducerIdResponse)
            if answer.error_code is not ErrorCode.none:
                raise RefusedError("a producer id", answer.error_code)
            return answer

        try:
            given = await self._client.retry(ask)
        except UnsupportedError:
            pass  # one request at a time keeps the order without sequence numbers
        else:
            self._producer_id, self._producer_epoch = given.producer_id, given.producer_epoch
            self._max_in_flight = MAX_IN_FLIGHT
        return len(found.partitions)

    async def send(self, partition: int, records: Sequence[ProducedRecord]) -> None:
        """Encodes `records` as one batch and sends it; waits while too many requests are in flight."""
        lane = self._lanes.setdefault(partition, _Lane())
        if lane.recovery is not None:
            await asyncio.wait([lane.recovery])
        if self._failure is not None:
            raise self._failure
        idempotent = self._producer_id >= 0
        data = encode_batch(
            records,
            compression=self._compression,
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            base_sequence=lane.next_sequence if idempotent else -1,
        )
        lane.next_sequence = (lane.next_sequence + len(records)) % _SEQUENCES
        batch = _Batch(partition, data, len(records))
        lane.waiting.append(batch)
        await self._dispatch(lane, batch)

    async def flush(self) -> None:
        """Waits until every batch is acknowledged or refused; raises what prevented it."""
        for lane in self._lanes.values():
            while lane.waiting and (self._failure is None or lane.in_flight or lane.recovery is not None):
                lane.idle.clear()
                await lane.idle.wait()
        if self._failure is not None:
            raise self._failure

    async def _dispatch(self, lane: _Lane, batch: _Batch) -> None:
        """Sends a batch once its leader has few enough in flight; the answer is dealt with when it comes."""
        lane.in_flight += 1
        try:
            leader = await self._client.leader(self._topic, batch.partition)
            window = self._windows.setdefault(leader, asyncio.Semaphore(self._max_in_flight))
            await window.acquire()
            batch.window = window
            if lane.recovery is not None:  # a batch before this one has failed: this one must wait behind it
                self._leave(lane, batch)
                return
            connection = await self._client.connection(leader)
            answer = await connection.submit(self._request(batch), ProduceResponse, timeout_s=self._client.timeout_s)
        except ClientError as error:
            self._settle(lane, batch, error)
        except asyncio.CancelledError:
            lane.waiting.remove(batch)
            self._leave(lane, batch)
            raise
        else:
            answer.add_done_callback(partial(self._answered, lane, batch))

    def _leave(self, lane: _Lane, batch: _Batch) -> None:
        """Takes a batch out of those in flight."""
        if batch.window is not None:
            batch.window.release()
            batch.window = None
        lane.in_flight -= 1
        lane.idle.set()

    def _answered(self, lane: _Lane, batch: _Batch, answer: "asyncio.Future[ProduceResponse]") -> None:
        error = answer.exception()
        if error is None:
            self._settle(lane, batch, self._refusal(batch, answer.result()))
        else:
            self._settle(lane, batch, cast(ClientError, error))

    def _settle(self, lane: _Lane, batch: _Batch, error: ClientError | None) -> None:
        batch.failure = error
        if error is None:
            lane.waiting.remove(batch)
        elif lane.recovery is None:
            lane.recovery = asyncio.create_task(self._recover(lane))
        self._leave(lane, batch)

    async def _recover(self, lane: _Lane) -> None:
        """Waits for what is in flight, then sends again, in order and one by one, what was not taken."""
        try:
            while lane.in_flight:
                lane.idle.clear()
                await lane.idle.wait()
            while lane.waiting:
                batch = lane.waiting[0]
                if batch.failure is not None and not self._worth_retrying(batch.failure):
                    raise batch.failure
                await self._client.retry(partial(self._deliver, batch), deadline_s=self._delivery_timeout_s)
                lane.waiting.popleft()
        except ClientError as error:
            self._failure = self._failure or error
        lane.recovery = None
        lane.idle.set()

    def _worth_retrying(self, error: ClientError) -> bool:
        """A batch behind one that failed is out of order until that one is in: worth a second try too."""
        if isinstance(error, RefusedError) and error.code is ErrorCode.out_of_order_sequence_number:
            return True
        return self._client.may_pass(error)

    async def _deliver(self, batch: _Batch) -> None:
        leader = await self._client.leader(self._topic, batch.partition)
        answer = await self._client.send(self._request(batch), ProduceResponse, to=leader)
        refusal = self._refusal(batch, answer)
        if refusal is not None:
            raise refusal

    def _request(self, batch: _Batch) -> ProduceRequest:
        records = cast(Records, batch.data)
        return ProduceRequest(
            transactional_id=None,
            acks=ALL_REPLICAS,
            timeout=duration(self._client.timeout_s),
            topic_data=(
                TopicProduceData(
                    name=TopicName(self._topic),
                    partition_data=(PartitionProduceData(index=i32(batch.partition), records=records),),
                ),
            ),
        )

    def _refusal(self, batch: _Batch, answer: ProduceResponse) -> RefusedError | None:
        """Notes the offsets of a batch that was taken; otherwise says why it was not."""
        item = answer.responses[0].partition_responses[0]
        if item.error_code not in (ErrorCode.none, ErrorCode.duplicate_sequence_number):
            return RefusedError(f"partition {batch.partition} of topic {self._topic}", item.error_code, _reason(item))
        self.acknowledged_records += batch.records
        before = self.acknowledged.get(batch.partition)
        self.acknowledged[batch.partition] = Acknowledged(
            records=batch.records + (before.records if before else 0),
            first_offset=before.first_offset if before else item.base_offset,
            last_offset=item.base_offset + batch.records - 1,
        )
        return None


def _reason(item: PartitionProduceResponse) -> str | None:
    """What the broker says about the first bad record, or about the whole batch."""
    for record in item.record_errors:
        if record.batch_index_error_message:
            return record.batch_index_error_message
    return item.error_message


def now_ms() -> int:
    """The time that records without one of their own are given."""
    return time.time_ns() // 1_000_000
