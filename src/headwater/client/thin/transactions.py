"""Transactions as their coordinators know them: which transactional ids there are, and what each is doing."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from headwater.client.client import Client
from headwater.client.coordinators import Coordinated, broker_ids, find_coordinator
from headwater.client.errors import RefusedError, UnsupportedError
from headwater.protocol.kafka_types import ErrorCode, ProducerId, i64
from headwater.protocol.transaction_descriptions import DescribeTransactionsResponse
from headwater.types import TopicPartition

from kio.schema.describe_transactions.v0.request import DescribeTransactionsRequest  # isort: skip
from kio.schema.list_transactions.v2.request import ListTransactionsRequest  # isort: skip
from kio.schema.list_transactions.v2.response import ListTransactionsResponse  # isort: skip
from kio.schema.types import TransactionalId  # isort: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedTransaction:
    """A line in the list of transactional ids."""

    transactional_id: str
    coordinator: int
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """A transactional id as its coordinator describes it; `partitions` still wait for a commit or an abort."""

    transactional_id: str
    coordinator: int
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    started_at_ms: int | None
    partitions: tuple[TopicPartition, ...]


async def list_transactions(
    client: Client,
    *,
    states: Sequence[str] = (),
    producer_ids: Sequence[int] = (),
    longer_than_ms: int = -1,
) -> list[ListedTransaction]:
    """The transactional ids of all coordinators that pass every filter, by name."""
    request = ListTransactionsRequest(
        state_filters=tuple(states),
        producer_id_filters=tuple(map(ProducerId, producer_ids)),
        duration_filter=i64(longer_than_ms),
    )

    async def ask_all() -> list[ListedTransaction]:
        answers = await asyncio.gather(*(_list_on(client, broker, request) for broker in await broker_ids(client)))
        return [listed for answer in answers for listed in answer]

    return sorted(await client.retry(ask_all), key=lambda listed: listed.transactional_id)


async def describe_transaction(client: Client, transactional_id: str) -> Transaction:
    """One transactional id; `RefusedError` when there is none of that name."""
    request = DescribeTransactionsRequest(transactional_ids=(TransactionalId(transactional_id),))

    async def ask() -> Transaction:
        coordinator = await find_coordinator(client, Coordinated.TRANSACTION, transactional_id)
        answer = await client.send(request, DescribeTransactionsResponse, to=coordinator.broker)
        found = answer.transaction_states[0]
        if found.error_code is not ErrorCode.none:
            raise RefusedError(f"transactional id {transactional_id}", found.error_code)
        return Transaction(
            transactional_id=transactional_id,
            coordinator=coordinator.broker,
            producer_id=found.producer_id,
            producer_epoch=found.producer_epoch,
            state=found.transaction_state,
            timeout_ms=round(found.transaction_timeout.total_seconds() * 1000),
            started_at_ms=None if found.transaction_start_time_ms < 0 else int(found.transaction_start_time_ms),
            partitions=tuple(
                sorted(TopicPartition(topic.topic, number) for topic in found.topics for number in topic.partitions)
            ),
        )

    return await client.retry(ask)


async def _list_on(client: Client, broker: int, request: ListTransactionsRequest) -> list[ListedTransaction]:
    version = (await client.connection(broker)).version_for(request)
    if request.duration_filter >= 0 and version < 1:
        raise UnsupportedError(f"broker {broker} is too old to select transactions by their duration")
    answer = await client.send(request, ListTransactionsResponse, to=broker)
    if answer.error_code is not ErrorCode.none:
        raise RefusedError(f"broker {broker}", answer.error_code)
    return [
        ListedTransaction(
            transactional_id=listed.transactional_id,
            coordinator=broker,
            producer_id=listed.producer_id,
            state=listed.transaction_state,
        )
        for listed in answer.transaction_states
    ]
