"""Transactions as a partition knows them: the producers it remembers, and ending what no coordinator will end."""

import asyncio
import time
from collections.abc import Collection
from dataclasses import dataclass

from headwater.client.client import Client
from headwater.client.errors import RefusedError
from headwater.client.thin.offsets import numbers_by_topic, partitions_by_leader
from headwater.client.thin.transactions import describe_transaction, list_transactions
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


async def describe_producers(client: Client, partitions: Collection[TopicPartition]) -> list[ActiveProducer]:
    """The producers that the leaders of `partitions` remember."""

    async def ask_all() -> list[ActiveProducer]:
        by_leader = await partitions_by_leader(client, partitions)
        answers = await asyncio.gather(*(_producers_on(client, leader, led) for leader, led in by_leader.items()))
        return [producer for answer in answers for producer in answer]

    return await client.retry(ask_all)


async def find_hanging(
    client: Client, partitions: Collection[TopicPartition], *, longer_than_ms: int
) -> list[ActiveProducer]:
    """Producers whose transaction is open for longer than that, and which no coordinator is going to end."""
    now_ms = time.time_ns() // 1_000_000
    candidates = [
        producer
        for producer in await describe_producers(client, partitions)
        if producer.transaction_start_offset is not None and now_ms - producer.last_timestamp_ms > longer_than_ms
    ]
    if not candidates:
        return []
    coordinated = await _coordinated_partitions(client, {producer.producer_id for producer in candidates})
    return [producer for producer in candidates if (producer.producer_id, producer.partition) not in coordinated]


async def abort_in_partition(
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
        code = answer.markers[0].topics[0].partitions[0].error_code
        if code is not ErrorCode.none:
            raise RefusedError(f"partition {partition.partition} of topic {partition.topic}", code)

    await client.retry(ask)


async def _producers_on(client: Client, leader: int, partitions: Collection[TopicPartition]) -> list[ActiveProducer]:
    request = DescribeProducersRequest(
        topics=tuple(
            TopicRequest(name=TopicName(topic), partition_indexes=tuple(map(i32, numbers)))
            for topic, numbers in numbers_by_topic(partitions).items()
        )
    )
    answer = await client.send(request, DescribeProducersResponse, to=leader)
    return [
        producer for topic in answer.topics for item in topic.partitions for producer in _producers_in(topic.name, item)
    ]


def _producers_in(topic: str, item: PartitionResponse) -> list[ActiveProducer]:
    if item.error_code is not ErrorCode.none:
        raise RefusedError(f"partition {item.partition_index} of topic {topic}", item.error_code, item.error_message)
    return [
        ActiveProducer(
            partition=TopicPartition(topic, item.partition_index),
            producer_id=state.producer_id,
            producer_epoch=state.producer_epoch,
            coordinator_epoch=state.coordinator_epoch,
            last_sequence=state.last_sequence,
            last_timestamp_ms=state.last_timestamp,
            transaction_start_offset=None if state.current_txn_start_offset < 0 else state.current_txn_start_offset,
        )
        for state in item.active_producers
    ]


async def _coordinated_partitions(client: Client, producer_ids: set[int]) -> set[tuple[int, TopicPartition]]:
    """For these producers, the partitions in which their coordinators still mean to end a transaction."""
    found: set[tuple[int, TopicPartition]] = set()
    for listed in await list_transactions(client, producer_ids=sorted(producer_ids)):
        try:
            transaction = await describe_transaction(client, listed.transactional_id)
        except RefusedError as error:
            if error.code is not ErrorCode.transactional_id_not_found:
                raise
        else:
            found.update((listed.producer_id, partition) for partition in transaction.partitions)
    return found
