"""AddPartitionsToTxn, v0 to v5: partitions that a transaction is going to write to.

Up to v3 a producer names one transaction. v4 and v5 are between brokers: many transactions, each added to or, with
`verify_only`, only asked about. v2 answers a fenced producer with PRODUCER_FENCED. When one partition of a transaction
does not exist none is added: it is told so and the others OPERATION_NOT_ATTEMPTED.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from headwater.protocol.errors import ApiError
from headwater.protocol.kafka_types import NO_THROTTLE, ErrorCode, TopicName, i32
from headwater.protocol.messages import convert
from headwater.types import TopicPartition

from kio.schema.add_partitions_to_txn.v3.request import AddPartitionsToTxnRequest as ProducersRequest  # isort: skip
from kio.schema.add_partitions_to_txn.v3.response import AddPartitionsToTxnResponse as ProducersResponse  # isort: skip
from kio.schema.add_partitions_to_txn.v3.response import AddPartitionsToTxnTopicResult as ProducersTopic  # isort: skip
from kio.schema.add_partitions_to_txn.v5.request import (  # isort: skip
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTransaction,
)
from kio.schema.add_partitions_to_txn.v5.response import (  # isort: skip
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)

if TYPE_CHECKING:
    from headwater.broker.dispatch import RequestContext

_Results = Mapping[TopicPartition, ErrorCode]


class _Topic(Protocol):
    @property
    def name(self) -> TopicName: ...

    @property
    def partitions(self) -> tuple[i32, ...]: ...


def VERSION(version: int) -> int:  # noqa: N802 -- the dispatcher looks for this name
    """One transaction up to v3, many from v4 on."""
    return 3 if version <= 3 else 5


async def handle(
    context: "RequestContext", request: ProducersRequest | AddPartitionsToTxnRequest
) -> ProducersResponse | AddPartitionsToTxnResponse:
    """An error code for every partition of every transaction."""
    if isinstance(request, ProducersRequest):
        topics = request.v3_and_below_topics
        results = await _add(
            context,
            request.v3_and_below_transactional_id,
            request.v3_and_below_producer_id,
            request.v3_and_below_producer_epoch,
            topics,
            transaction_version=0,
        )
        answers = tuple(convert(topic, ProducersTopic) for topic in _topics(topics, results))
        return ProducersResponse(throttle_time=NO_THROTTLE, results_by_topic_v3_and_below=answers)
    return AddPartitionsToTxnResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        results_by_transaction=tuple(
            [await _transaction(context, transaction) for transaction in request.transactions]
        ),
    )


async def _transaction(
    context: "RequestContext", transaction: AddPartitionsToTxnTransaction
) -> AddPartitionsToTxnResult:
    topics = transaction.topics
    results = await _add(
        context,
        transaction.transactional_id,
        transaction.producer_id,
        transaction.producer_epoch,
        topics,
        transaction_version=2,
        verify_only=transaction.verify_only,
    )
    return AddPartitionsToTxnResult(
        transactional_id=transaction.transactional_id, topic_results=_topics(topics, results)
    )


async def _add(
    context: "RequestContext",
    transactional_id: str,
    producer_id: int,
    producer_epoch: int,
    topics: Sequence[_Topic],
    *,
    transaction_version: int,
    verify_only: bool = False,
) -> _Results:
    broker, caller, wanted = context.broker, context.caller, _wanted(topics)
    missing = [partition for partition in wanted if not broker.topics.has_partition(*partition)]
    if missing:
        others = dict.fromkeys(wanted, ErrorCode.operation_not_attempted)
        return {**others, **dict.fromkeys(missing, ErrorCode.unknown_topic_or_partition)}
    try:
        if verify_only:
            shard = broker.transactions.running(transactional_id).shard
            return shard.verify_partitions(transactional_id, producer_id, producer_epoch, wanted)
    except ApiError as error:
        return dict.fromkeys(wanted, error.code)
    error_code = await context.settle(
        broker.transactions.call(
            transactional_id,
            lambda shard, waiter, now_ms: shard.add_partitions(
                transactional_id,
                producer_id,
                producer_epoch,
                wanted,
                caller,
                now_ms,
                transaction_version=transaction_version,
            ),
            lambda error_code: error_code,
        )
    )
    return dict.fromkeys(wanted, error_code)


def _wanted(topics: Sequence[_Topic]) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(topic.name, index) for topic in topics for index in topic.partitions)


def _topics(topics: Sequence[_Topic], results: _Results) -> tuple[AddPartitionsToTxnTopicResult, ...]:
    return tuple(
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=tuple(
                AddPartitionsToTxnPartitionResult(
                    partition_index=index, partition_error_code=results[TopicPartition(topic.name, index)]
                )
                for index in topic.partitions
            ),
        )
        for topic in topics
    )
