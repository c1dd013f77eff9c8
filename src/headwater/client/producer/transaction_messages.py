"""The requests of a transaction as kio's dataclasses, and the codes in their answers.

Loaded by the first of them: a producer without transactions does without, and starts sooner.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from headwater.protocol.kafka_types import ErrorCode, ProducerId, TopicName, i16, i32, i64
from headwater.protocol.messages import convert
from headwater.types import TopicPartition

from kio.schema.add_offsets_to_txn.v4.request import AddOffsetsToTxnRequest  # isort: skip
from kio.schema.add_offsets_to_txn.v4.response import AddOffsetsToTxnResponse as AddOffsetsToTxnResponse  # isort: skip
from kio.schema.add_partitions_to_txn.v3.request import (  # isort: skip
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from kio.schema.add_partitions_to_txn.v3.response import (  # isort: skip
    AddPartitionsToTxnResponse as AddPartitionsToTxnResponse,
)
from kio.schema.end_txn.v4.request import EndTxnRequest as EndTxnRequestV4  # isort: skip
from kio.schema.end_txn.v5.request import EndTxnRequest  # isort: skip
from kio.schema.end_txn.v5.response import EndTxnResponse as EndTxnResponse  # isort: skip
from kio.schema.txn_offset_commit.v4.request import TxnOffsetCommitRequest as TxnOffsetCommitRequestV4  # isort: skip
from kio.schema.txn_offset_commit.v5.request import (  # isort: skip
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kio.schema.txn_offset_commit.v5.response import (  # isort: skip
    TxnOffsetCommitResponse as TxnOffsetCommitResponse,
)
from kio.schema.types import GroupId, TransactionalId  # isort: skip

if TYPE_CHECKING:
    from headwater.client.producer.transaction_requests import CommittedOffset, GroupMember, Identity


def add_partitions(
    transactional_id: str, identity: "Identity", partitions: Collection[TopicPartition]
) -> AddPartitionsToTxnRequest:
    """Makes partitions part of the transaction."""
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=TransactionalId(transactional_id),
        v3_and_below_producer_id=ProducerId(identity.producer_id),
        v3_and_below_producer_epoch=i16(identity.producer_epoch),
        v3_and_below_topics=tuple(
            AddPartitionsToTxnTopic(name=TopicName(topic), partitions=tuple(map(i32, numbers)))
            for topic, numbers in _by_topic(partitions).items()
        ),
    )


def add_offsets(transactional_id: str, identity: "Identity", group_id: str) -> AddOffsetsToTxnRequest:
    """Announces that offsets of a group will be part of the transaction."""
    return AddOffsetsToTxnRequest(
        transactional_id=TransactionalId(transactional_id),
        producer_id=ProducerId(identity.producer_id),
        producer_epoch=i16(identity.producer_epoch),
        group_id=GroupId(group_id),
    )


def commit_offsets(
    transactional_id: str,
    identity: "Identity",
    offsets: "Mapping[TopicPartition, CommittedOffset]",
    group: "GroupMember",
    *,
    adds_by_writing: bool,
) -> TxnOffsetCommitRequest | TxnOffsetCommitRequestV4:
    """Commits offsets of a group with the transaction."""
    request = TxnOffsetCommitRequest(
        transactional_id=TransactionalId(transactional_id),
        group_id=GroupId(group.group_id),
        producer_id=ProducerId(identity.producer_id),
        producer_epoch=i16(identity.producer_epoch),
        generation_id=i32(group.generation_id),
        member_id=group.member_id,
        group_instance_id=group.group_instance_id,
        topics=_committed_topics(offsets),
    )
    return request if adds_by_writing else convert(request, TxnOffsetCommitRequestV4)


def end(
    transactional_id: str, identity: "Identity", *, committed: bool, adds_by_writing: bool
) -> EndTxnRequest | EndTxnRequestV4:
    """Ends the transaction."""
    return (EndTxnRequest if adds_by_writing else EndTxnRequestV4)(
        transactional_id=TransactionalId(transactional_id),
        producer_id=ProducerId(identity.producer_id),
        producer_epoch=i16(identity.producer_epoch),
        committed=committed,
    )


def codes_by_partition(answer: AddPartitionsToTxnResponse) -> Iterable[ErrorCode]:
    """What an answer says of each partition."""
    for topic in answer.results_by_topic_v3_and_below:
        for result in topic.results_by_partition:
            yield result.partition_error_code


def codes_by_offset(answer: TxnOffsetCommitResponse) -> Iterable[ErrorCode]:
    """What an answer says of each offset."""
    for topic in answer.topics:
        for partition in topic.partitions:
            yield partition.error_code


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for partition in sorted(partitions):
        found.setdefault(partition.topic, []).append(partition.partition)
    return found


def _committed_topics(offsets: "Mapping[TopicPartition, CommittedOffset]") -> tuple[TxnOffsetCommitRequestTopic, ...]:
    return tuple(
        TxnOffsetCommitRequestTopic(
            name=TopicName(topic),
            partitions=tuple(
                _committed_partition(number, offsets[TopicPartition(topic, number)]) for number in numbers
            ),
        )
        for topic, numbers in _by_topic(offsets).items()
    )


def _committed_partition(number: int, committed: "CommittedOffset") -> TxnOffsetCommitRequestPartition:
    epoch = committed.leader_epoch
    return TxnOffsetCommitRequestPartition(
        partition_index=i32(number),
        committed_offset=i64(committed.offset),
        committed_leader_epoch=i32(-1 if epoch is None else epoch),
        committed_metadata=committed.metadata,
    )
