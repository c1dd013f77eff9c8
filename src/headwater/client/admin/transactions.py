"""Transactions as their coordinators know them: which transactional ids there are, what each does, taking them over."""

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from headwater.client.admin.results import Results, for_each
from headwater.client.admin.routing import ask_each, coordinators, demand_success, demand_version
from headwater.client.client import Client, duration
from headwater.client.coordinators import Coordinated, Coordinator, broker_ids, find_coordinator
from headwater.client.errors import RefusedError
from headwater.protocol.kafka_types import ErrorCode, ProducerId, i16, i64
from headwater.protocol.transaction_descriptions import DescribeTransactionsResponse, TransactionState
from headwater.types import TopicPartition

from kio.schema.describe_transactions.v0.request import DescribeTransactionsRequest  # isort: skip
from kio.schema.init_producer_id.v4.request import InitProducerIdRequest  # isort: skip
from kio.schema.init_producer_id.v4.response import InitProducerIdResponse  # isort: skip
from kio.schema.list_transactions.v2.request import ListTransactionsRequest  # isort: skip
from kio.schema.list_transactions.v2.response import ListTransactionsResponse  # isort: skip
from kio.schema.types import TransactionalId  # isort: skip

_FIRST_WITH_DURATION = 1
_FIRST_WITH_PATTERN = 2


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


class ProducerIdentity(NamedTuple):
    """A producer id and the epoch that counts now."""

    producer_id: int
    producer_epoch: int


async def list_transactions(
    client: Client,
    *,
    states: Collection[str] = (),
    producer_ids: Collection[int] = (),
    longer_than_ms: int | None = None,
    id_pattern: str | None = None,
) -> list[ListedTransaction]:
    """The transactional ids of all coordinators that pass every filter, by name.

    `states` are Kafka's words (`Ongoing`, `CompleteCommit`, …), `id_pattern` is a regular expression of the broker's.
    """
    request = ListTransactionsRequest(
        state_filters=tuple(states),
        producer_id_filters=tuple(map(ProducerId, sorted(producer_ids))),
        duration_filter=i64(-1 if longer_than_ms is None else longer_than_ms),
        transactional_id_pattern=id_pattern,
    )

    async def ask_all() -> list[ListedTransaction]:
        answers = await asyncio.gather(*(_list_on(client, broker, request) for broker in await broker_ids(client)))
        return [listed for answer in answers for listed in answer]

    return sorted(await client.retry(ask_all), key=lambda listed: listed.transactional_id)


async def describe_transactions(client: Client, transactional_ids: Collection[str]) -> Results[str, Transaction]:
    """Transactional ids; one that is not there is refused with TRANSACTIONAL_ID_NOT_FOUND."""

    async def ask(coordinator: Coordinator, rest: Sequence[str]) -> dict[str, Transaction | RefusedError]:
        request = DescribeTransactionsRequest(transactional_ids=tuple(map(TransactionalId, rest)))
        answer = await client.send(request, DescribeTransactionsResponse, to=coordinator.broker)
        return {
            found.transactional_id: _transaction(found, coordinator.broker)
            if found.error_code is ErrorCode.none
            else RefusedError(f"transactional id {found.transactional_id}", found.error_code)
            for found in answer.transaction_states
        }

    return await ask_each(client, transactional_ids, coordinators(client, Coordinated.TRANSACTION), ask)


async def fence_producers(client: Client, transactional_ids: Collection[str]) -> Results[str, ProducerIdentity]:
    """Takes transactional ids over: what their producers have open is aborted, and they can write no more."""

    async def fence(transactional_id: str) -> ProducerIdentity:
        # Without a producer id of its own the request starts a new epoch, as a producer that begins anew does.
        request = InitProducerIdRequest(
            transactional_id=TransactionalId(transactional_id),
            transaction_timeout=duration(client.timeout_s),
            producer_id=ProducerId(-1),
            producer_epoch=i16(-1),
        )

        async def ask() -> ProducerIdentity:
            coordinator = await find_coordinator(client, Coordinated.TRANSACTION, transactional_id)
            answer = await client.send(request, InitProducerIdResponse, to=coordinator.broker)
            demand_success(f"transactional id {transactional_id}", answer.error_code)
            return ProducerIdentity(int(answer.producer_id), int(answer.producer_epoch))

        return await client.retry(ask)

    return await for_each(transactional_ids, fence)


def _transaction(found: TransactionState, coordinator: int) -> Transaction:
    return Transaction(
        transactional_id=found.transactional_id,
        coordinator=coordinator,
        producer_id=int(found.producer_id),
        producer_epoch=int(found.producer_epoch),
        state=found.transaction_state,
        timeout_ms=round(found.transaction_timeout.total_seconds() * 1000),
        started_at_ms=None if found.transaction_start_time_ms < 0 else int(found.transaction_start_time_ms),
        partitions=tuple(
            sorted(TopicPartition(topic.topic, int(number)) for topic in found.topics for number in topic.partitions)
        ),
    )


async def _list_on(client: Client, broker: int, request: ListTransactionsRequest) -> list[ListedTransaction]:
    if request.transactional_id_pattern:
        await demand_version(client, request, _FIRST_WITH_PATTERN, "select transactions by a pattern", at=broker)
    elif request.duration_filter >= 0:
        await demand_version(client, request, _FIRST_WITH_DURATION, "select transactions by duration", at=broker)
    answer = await client.send(request, ListTransactionsResponse, to=broker)
    demand_success(f"broker {broker}", answer.error_code)
    return [
        ListedTransaction(
            transactional_id=listed.transactional_id,
            coordinator=broker,
            producer_id=int(listed.producer_id),
            state=listed.transaction_state,
        )
        for listed in answer.transaction_states
    ]
