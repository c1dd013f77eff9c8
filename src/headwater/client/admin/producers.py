"""Producers as a partition knows them: which it remembers, and ending a transaction that no coordinator will end."""

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from headwater.client.admin.results import Results
from headwater.client.admin.routing import (
    ask_each,
    demand_success,
    leaders,
    left_out,
    numbers_by_topic,
    place_of,
    refused_or,
)
from headwater.client.admin.transactions import describe_transactions, list_transactions
from headwater.client.client import Client
from headwater.client.errors import ClientError, RefusedError
from headwater.protocol.kafka_types import ErrorCode, ProducerId, TopicName, i16, i32
from headwater.types import TopicPartition

from kio.schema.describe_producers.v0.request import DescribeProducersRequest, TopicRequest  # isort: skip
from kio.schema.describe_producers.v0.response import DescribeProducersResponse, PartitionResponse  # isort: skip
from kio.schema.write_txn_markers.v1.request import (  # isort: skip
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from kio.schema.write_txn_markers.v1.response import WriteTxnMarkersResponse  # isort: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveProducer:
    """A producer that a partition remembers, and where its open transaction starts, if it has one there."""

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    transaction_start_offset: int | None


async def describe_producers(
    client: Client, partitions: Collection[TopicPartition]
) -> Results[TopicPartition, tuple[ActiveProducer, ...]]:
    """The producers that the leader of each partition remembers."""

    async def ask(
        leader: int, led: Sequence[TopicPartition]
    ) -> dict[TopicPartition, tuple[ActiveProducer, ...] | RefusedError]:
        request = DescribeProducersRequest(
            topics=tuple(
                TopicRequest(name=TopicName(topic), partition_indexes=tuple(map(i32, numbers)))
                for topic, numbers in numbers_by_topic(led).items()
            )
        )
        answer = await client.send(request, DescribeProducersResponse, to=leader)
        found: dict[TopicPartition, tuple[ActiveProducer, ...] | RefusedError] = {}
        for topic in answer.topics:
            for item in topic.partitions:
                partition = TopicPartition(topic.name, int(item.partition_index))
                producers = _producers(partition, item)
                found[partition] = refused_or(producers, place_of(partition), item.error_code, item.error_message)
        return found

    return await ask_each(client, partitions, leaders(client), ask)


async def find_hanging_transactions(
    client: Client, partitions: Collection[TopicPartition], *, longer_than_ms: int
) -> list[ActiveProducer]:
    """Producers whose transaction is open for longer than that, and which no coordinator is going to end."""
    now_ms = time.time_ns() // 1_000_000
    candidates = [
        producer
        for producers in (await describe_producers(client, partitions)).or_raise().values()
        for producer in producers
        if producer.transaction_start_offset is not None and now_ms - producer.last_timestamp_ms > longer_than_ms
    ]
    if not candidates:
        return []
    coordinated = await _coordinated_partitions(client, {producer.producer_id for producer in candidates})
    return [producer for producer in candidates if (producer.producer_id, producer.partition) not in coordinated]


async def abort_transaction(
    client: Client, partition: TopicPartition, *, producer_id: int, producer_epoch: int, coordinator_epoch: int
) -> None:
    """Writes an abort marker for the producer's transaction into one partition, past its coordinator."""
    topic = WritableTxnMarkerTopic(name=TopicName(partition.topic), partition_indexes=(i32(partition.partition),))
    marker = WritableTxnMarker(
        producer_id=ProducerId(producer_id),
        producer_epoch=i16(producer_epoch),
        transaction_result=False,
        topics=(topic,),
        # A producer whose first transaction hangs has met no coordinator: 0 is older than any that may follow.
        coordinator_epoch=i32(max(coordinator_epoch, 0)),
    )

    async def ask() -> None:
        leader = await client.leader(*partition)
        answer = await client.send(WriteTxnMarkersRequest(markers=(marker,)), WriteTxnMarkersResponse, to=leader)
        codes = [item.error_code for found in answer.markers for topic in found.topics for item in topic.partitions]
        if not codes:
            raise left_out(place_of(partition))
        demand_success(place_of(partition), codes[0])

    await client.retry(ask)


def _producers(partition: TopicPartition, item: PartitionResponse) -> tuple[ActiveProducer, ...]:
    return tuple(
        ActiveProducer(
            partition=partition,
            producer_id=int(state.producer_id),
            producer_epoch=int(state.producer_epoch),
            coordinator_epoch=int(state.coordinator_epoch),
            last_sequence=int(state.last_sequence),
            last_timestamp_ms=int(state.last_timestamp),
            transaction_start_offset=None
            if state.current_txn_start_offset < 0
            else int(state.current_txn_start_offset),
        )
        for state in item.active_producers
    )


async def _coordinated_partitions(client: Client, producer_ids: set[int]) -> set[tuple[int, TopicPartition]]:
    """For these producers, the partitions in which their coordinators still mean to end a transaction."""
    listed = {each.transactional_id: each for each in await list_transactions(client, producer_ids=producer_ids)}
    found: set[tuple[int, TopicPartition]] = set()
    for transactional_id, transaction in (await describe_transactions(client, listed)).items():
        if not isinstance(transaction, ClientError):
            producer_id = listed[transactional_id].producer_id
            found.update((producer_id, partition) for partition in transaction.partitions)
        elif not (isinstance(transaction, RefusedError) and transaction.code is ErrorCode.transactional_id_not_found):
            raise transaction
    return found
