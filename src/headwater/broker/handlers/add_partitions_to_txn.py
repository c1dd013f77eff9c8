"""AddPartitionsToTxn, v0 to v5: partitions that a transaction is going to write to.

Up to v3 a producer names one transaction. v4 and v5 are between brokers: many transactions, each added to or, with
`verify_only`, only asked about. v2 answers a fenced producer with PRODUCER_FENCED. When one partition of a transaction
does not exist none is added: it is told so and the others OPERATION_NOT_ATTEMPTED. A partition that is named twice is
added, and answered, once (Apache answers it twice).
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from headwater.broker.services.topic_requests import once_by_topic
from headwater.broker.services.turns import Work
from headwater.protocol.each import each
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
_Indexes = Mapping[TopicName, Collection[i32]]
"""The partitions of each topic, each once."""


def VERSION(version: int) -> int:  # noqa: N802 -- the dispatcher looks for this name
    """One transaction up to v3, many from v4 on."""
    return 3 if version <= 3 else 5


def handle(
    context: "RequestContext", request: ProducersRequest | AddPartitionsToTxnRequest
) -> Work[ProducersResponse | AddPartitionsToTxnResponse]:
    """An error code for every partition of every transaction."""
    if isinstance(request, ProducersRequest):
        indexes = yield from once_by_topic((topic.name, topic.partitions) for topic in request.v3_and_below_topics)
        results = yield from _add(
            context,
            request.v3_and_below_transactional_id,
            request.v3_and_below_producer_id,
            request.v3_and_below_producer_epoch,
            indexes,
            transaction_version=0,
        )
        answers = each(lambda topic: convert(topic, ProducersTopic), _topics(indexes, results))
        return ProducersResponse(throttle_time=NO_THROTTLE, results_by_topic_v3_and_below=answers)
    results_by_transaction = []
    for transaction in request.transactions:
        result = yield from _transaction(context, transaction)
        results_by_transaction.append(result)
    return AddPartitionsToTxnResponse(
        throttle_time=NO_THROTTLE, error_code=ErrorCode.none, results_by_transaction=tuple(results_by_transaction)
    )


def _transaction(
    context: "RequestContext", transaction: AddPartitionsToTxnTransaction
) -> Work[AddPartitionsToTxnResult]:
    indexes = yield from once_by_topic((topic.name, topic.partitions) for topic in transaction.topics)
    results = yield from _add(
        context,
        transaction.transactional_id,
        transaction.producer_id,
        transaction.producer_epoch,
        indexes,
        transaction_version=2,
        verify_only=transaction.verify_only,
    )
    return AddPartitionsToTxnResult(
        transactional_id=transaction.transactional_id, topic_results=_topics(indexes, results)
    )


def _add(
    context: "RequestContext",
    transactional_id: str,
    producer_id: int,
    producer_epoch: int,
    indexes: _Indexes,
    *,
    transaction_version: int,
    verify_only: bool = False,
) -> Work[_Results]:
    broker, caller = context.broker, context.caller
    all_wanted: set[TopicPartition] = set()
    missing: list[TopicPartition] = []
    for partition in _partitions(indexes):
        all_wanted.add(partition)
        if not broker.topics.has_partition(*partition):
            missing.append(partition)
        yield None
    if missing:
        others = dict.fromkeys(all_wanted, ErrorCode.operation_not_attempted)
        return {**others, **dict.fromkeys(missing, ErrorCode.unknown_topic_or_partition)}
    wanted = frozenset(all_wanted)
    try:
        if verify_only:
            shard = broker.transactions.running(transactional_id).shard
            return shard.verify_partitions(transactional_id, producer_id, producer_epoch, wanted)
    except ApiError as error:
        return dict.fromkeys(wanted, error.code)
    error_code = broker.transactions.call(
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
    if isinstance(error_code, asyncio.Future):
        error_code = yield error_code
    return dict.fromkeys(wanted, error_code)


def _partitions(indexes: _Indexes) -> Iterable[TopicPartition]:
    return (TopicPartition(topic, index) for topic, some in indexes.items() for index in some)


def _topics(indexes: _Indexes, results: _Results) -> tuple[AddPartitionsToTxnTopicResult, ...]:
    def answer(asked: tuple[TopicName, Collection[i32]]) -> AddPartitionsToTxnTopicResult:
        topic, some = asked
        return AddPartitionsToTxnTopicResult(
            name=topic,
            results_by_partition=each(
                lambda index: AddPartitionsToTxnPartitionResult(
                    partition_index=index, partition_error_code=results[TopicPartition(topic, index)]
                ),
                some,
            ),
        )

    return each(answer, indexes.items())
