"""A transactional producer of few bytes: one batch, one end, and again (KIP-890: every end gives a new epoch)."""

import asyncio
import time
import uuid

from kio.schema.end_txn.v5.request import EndTxnRequest
from kio.schema.errors import ErrorCode
from kio.schema.init_producer_id.v5.request import InitProducerIdRequest
from kio.schema.types import ProducerId, TransactionalId
from kio.static.primitive import i16

import wire
from group_wire import Connection, check, milliseconds

_BUSY = {
    ErrorCode.concurrent_transactions,
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.coordinator_not_available,
    ErrorCode.not_coordinator,
}
_RETRY_PAUSE_S = 0.002


class TransactionalProducer:
    """Commits transactions of the same records to one partition, one after the other."""

    def __init__(self, connection: Connection, topic: str, partition: int, values: list[bytes]) -> None:
        self.connection = connection
        self.transactional_id = f"bench-{uuid.uuid4().hex[:8]}"
        self._topic = topic
        self._partition = partition
        self._batch = wire.TransactionalBatch(values, int(time.time() * 1000))
        self._error_position = wire.produce_error_position(topic) - 4
        self._producer_id, self._epoch = -1, -1

    async def begin(self) -> None:
        """Gets a producer id and an epoch."""
        request = InitProducerIdRequest(
            transactional_id=TransactionalId(self.transactional_id), transaction_timeout=milliseconds(60_000)
        )
        while (answer := await self.connection.ask(request)).error_code in _BUSY:
            await asyncio.sleep(_RETRY_PAUSE_S)
        check(answer.error_code, "InitProducerId")
        self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch

    async def commit_until(self, deadline: float) -> int:
        """Commits transactions until this moment of the performance counter; how many they were."""
        count = 0
        while time.perf_counter() < deadline:
            await self._produce()
            await self._end()
            count += 1
        return count

    async def _produce(self) -> None:
        batch = self._batch.encode(self._producer_id, self._epoch)
        request = wire.produce_request(self._topic, self._partition, batch, self.transactional_id)
        while (error := self._error_of(await self.connection.exchange(request))) in _BUSY:
            await asyncio.sleep(_RETRY_PAUSE_S)
        check(error, "Produce")

    def _error_of(self, answer: bytes) -> ErrorCode:
        return ErrorCode(int.from_bytes(answer[self._error_position : self._error_position + 2], signed=True))

    async def _end(self) -> None:
        request = EndTxnRequest(
            transactional_id=TransactionalId(self.transactional_id),
            producer_id=ProducerId(self._producer_id),
            producer_epoch=i16(self._epoch),
            committed=True,
        )
        while (answer := await self.connection.ask(request)).error_code in _BUSY:
            await asyncio.sleep(_RETRY_PAUSE_S)
        check(answer.error_code, "EndTxn")
        self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch
