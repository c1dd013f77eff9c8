"""The demo's transactions: a group reads orders and writes an invoice for each, its position and the invoices in one.

The first try is given up half-way, as a crash would; the second goes through. Whoever reads with `read_committed` sees
each order's invoice once.
"""

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final, cast

from headwater.cli.demo_broker import DemoError
from headwater.client import Client
from headwater.client.client import duration
from headwater.client.coordinators import Coordinated, find_coordinator
from headwater.client.errors import RefusedError
from headwater.client.thin.admin import NewTopic, create_topics
from headwater.client.thin.fetcher import Fetched, Fetcher
from headwater.client.thin.group_offsets import committed_offsets
from headwater.client.thin.offsets import Isolation, Spot, list_offsets
from headwater.client.thin.producer import ALL_REPLICAS, now_ms
from headwater.protocol.kafka_types import ErrorCode, ProducerId, TopicName, i16, i32, i64
from headwater.protocol.records import decode_records, encode_batch
from headwater.types import TopicPartition

from kio.schema.end_txn.v5.request import EndTxnRequest  # isort: skip
from kio.schema.end_txn.v5.response import EndTxnResponse  # isort: skip
from kio.schema.init_producer_id.v4.request import InitProducerIdRequest  # isort: skip
from kio.schema.init_producer_id.v4.response import InitProducerIdResponse  # isort: skip
from kio.schema.produce.v12.request import PartitionProduceData, ProduceRequest, TopicProduceData  # isort: skip
from kio.schema.produce.v12.response import ProduceResponse  # isort: skip
from kio.schema.txn_offset_commit.v5.request import (  # isort: skip
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kio.schema.txn_offset_commit.v5.response import TxnOffsetCommitResponse  # isort: skip
from kio.schema.types import GroupId, TransactionalId  # isort: skip
from kio.static.primitive import Records  # isort: skip

GROUP: Final = "billing"
INVOICES: Final = "invoices"
_MOST_ORDERS: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Billed:
    """What the billing came to."""

    orders: int
    seen_uncommitted: int
    seen_committed: int


async def bill_orders(client: Client, orders_topic: str) -> Billed:
    """Bills the first orders of partition 0, once in vain and once for good; DemoError when it does not add up."""
    for outcome in await create_topics(client, [NewTopic(name=INVOICES, partitions=1)]):
        if outcome.error is not None:
            raise outcome.error
    place = TopicPartition(orders_topic, 0)
    orders = (await _read(client, place, Isolation.READ_UNCOMMITTED))[:_MOST_ORDERS]
    invoices = [b'{"invoice for":%b}' % order for order in orders]
    biller = _Biller(client)
    await biller.start()
    await biller.bill(place, invoices, commit=False)
    if await committed_offsets(client, GROUP):
        raise DemoError("the group's position moved with a transaction that was aborted")
    await biller.bill(place, invoices, commit=True)
    target = TopicPartition(INVOICES, 0)
    billed = Billed(
        orders=len(orders),
        seen_uncommitted=len(await _read(client, target, Isolation.READ_UNCOMMITTED)),
        seen_committed=len(await _read(client, target, Isolation.READ_COMMITTED)),
    )
    position = (await committed_offsets(client, GROUP)).get(place)
    if (billed.seen_committed, billed.seen_uncommitted, position) != (len(orders), 2 * len(orders), len(orders)):
        raise DemoError(f"{billed}, and the group stands at {position}: each order must be billed once")
    return billed


class _Biller:
    """A transactional producer, as small as can be."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._id = TransactionalId("billing-1")
        self._producer_id, self._epoch = ProducerId(-1), i16(-1)

    async def start(self) -> None:
        """Takes the transactional id over."""
        await find_coordinator(self._client, Coordinated.GROUP, GROUP)
        await find_coordinator(self._client, Coordinated.TRANSACTION, self._id)
        request = InitProducerIdRequest(
            transactional_id=self._id,
            transaction_timeout=duration(60),
            producer_id=ProducerId(-1),
            producer_epoch=i16(-1),
        )
        answer = await self._client.send(request, InitProducerIdResponse)
        _demand_success("the producer's id", answer.error_code)
        self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch

    async def bill(self, place: TopicPartition, invoices: Sequence[bytes], *, commit: bool) -> None:
        """Invoices and the group's position, together or not at all."""
        await self._produce(invoices)
        await self._commit_position(place, len(invoices))
        request = EndTxnRequest(
            transactional_id=self._id, producer_id=self._producer_id, producer_epoch=self._epoch, committed=commit
        )
        answer = await self._client.send(request, EndTxnResponse)
        _demand_success("the end of the transaction", answer.error_code)
        self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch

    async def _produce(self, invoices: Sequence[bytes]) -> None:
        batch = encode_batch(
            [(None, invoice, (), now_ms()) for invoice in invoices],
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=0,
            transactional=True,
        )
        data = PartitionProduceData(index=i32(0), records=cast(Records, batch))
        request = ProduceRequest(
            transactional_id=self._id,
            acks=ALL_REPLICAS,
            timeout=duration(30),
            topic_data=(TopicProduceData(name=TopicName(INVOICES), partition_data=(data,)),),
        )
        answer = await self._client.send(request, ProduceResponse)
        _demand_success(INVOICES, answer.responses[0].partition_responses[0].error_code)

    async def _commit_position(self, place: TopicPartition, offset: int) -> None:
        partition = TxnOffsetCommitRequestPartition(
            partition_index=i32(place.partition), committed_offset=i64(offset), committed_metadata=None
        )
        request = TxnOffsetCommitRequest(
            transactional_id=self._id,
            group_id=GroupId(GROUP),
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            topics=(TxnOffsetCommitRequestTopic(name=TopicName(place.topic), partitions=(partition,)),),
        )
        answer = await self._client.send(request, TxnOffsetCommitResponse)
        _demand_success(f"the position of {GROUP}", answer.topics[0].partitions[0].error_code)


async def _read(client: Client, place: TopicPartition, isolation: Isolation) -> list[bytes]:
    """The values of a partition, up to a few batches."""
    values: list[bytes] = []
    ((end, _),) = (await list_offsets(client, [place], Spot.LATEST)).values()
    fetcher = Fetcher(client, place.topic, {place.partition: 0}, isolation=isolation)
    async with aclosing(fetcher.batches()) as answers:
        async for answer in answers:
            for fetched in answer:
                values += _values(fetched)
                if len(values) >= 2 * _MOST_ORDERS or fetched.next_offset >= end:
                    fetcher.stop_reading(place.partition)
    return values


def _values(fetched: Fetched) -> list[bytes]:
    return [record.value or b"" for batch in fetched.batches for record in decode_records(fetched.buffer, batch)]


def _demand_success(subject: str, code: ErrorCode) -> None:
    if code is not ErrorCode.none:
        raise RefusedError(subject, code)
