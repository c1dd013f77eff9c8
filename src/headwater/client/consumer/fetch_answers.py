"""What to make of a broker's answer for one partition: records to keep, or an error and its cure.

The cures are those of Kafka's Java client. Changes the subscription state, and nothing else; what it cannot do itself
(new metadata, a pause, an error for the user) it asks for by its result.
"""

from collections.abc import Iterable
from enum import Enum, auto
from typing import Final

from headwater.client.consumer.corrupt_batches import CorruptBatch, ReadingRules
from headwater.client.consumer.errors import OffsetOutOfRangeError
from headwater.client.consumer.fetch_lane import PartitionAnswer
from headwater.client.consumer.fetch_sessions import FetchSession
from headwater.client.consumer.prefetch import Chunk
from headwater.client.consumer.subscription import PartitionState, SubscriptionState
from headwater.client.errors import CorruptRecordError, RefusedError, error_code
from headwater.client.leader_hints import SAY_WHO_LEADS, LeaderHint
from headwater.protocol.kafka_types import ErrorCode
from headwater.types import TopicPartition

# Somebody else leads, or nobody does at the moment, or the topic is another one now.
_CURED_BY_METADATA: Final = frozenset(
    {
        ErrorCode.not_leader_or_follower,
        ErrorCode.leader_not_available,
        ErrorCode.replica_not_available,
        ErrorCode.kafka_storage_error,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.offset_not_available,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unknown_topic_id,
        ErrorCode.inconsistent_topic_id,
    }
)
# The broker has not heard of our epoch yet, or does not know what ails it.
_CURED_BY_TIME: Final = frozenset({ErrorCode.unknown_leader_epoch, ErrorCode.unknown_server_error})


class Cure(Enum):
    """What a partition needs before it is asked for again."""

    NOTHING = auto()
    TIME = auto()
    METADATA = auto()


def note_offsets(state: PartitionState, answer: PartitionAnswer) -> None:
    """Keeps what the answer says about the log's ends; -1 is no news."""
    if answer.high_watermark >= 0:
        state.high_watermark = answer.high_watermark
    if answer.last_stable_offset >= 0:
        state.last_stable_offset = answer.last_stable_offset
    if answer.log_start_offset >= 0:
        state.log_start_offset = answer.log_start_offset


def leader_hints(session: FetchSession, answers: Iterable[PartitionAnswer]) -> list[LeaderHint]:
    """What an answer tells of partitions that somebody else leads now."""
    hints = []
    for each in answers:
        if each.current_leader is not None and each.error_code in SAY_WHO_LEADS:
            asked = session.asked(each.topic, each.partition)
            if asked is not None:
                hints.append(LeaderHint(asked[0], *each.current_leader))
    return hints


def cure(subscription: SubscriptionState, partition: TopicPartition, offset: int, answer: PartitionAnswer) -> Cure:
    """Deals with the error of an answer to a fetch from `offset`; raises what only the user can deal with."""
    code = error_code(answer.error_code)
    state = subscription.assigned[partition]
    if code in _CURED_BY_METADATA:
        state.preferred_replica = None
        return Cure.METADATA
    if code is ErrorCode.offset_out_of_range:
        if state.preferred_replica is not None:
            # A follower may be behind; its leader knows.
            state.preferred_replica = None
            return Cure.NOTHING
        if not subscription.out_of_range(partition, offset):
            raise OffsetOutOfRangeError(partition, offset)
        return Cure.TIME
    if code in _CURED_BY_TIME:
        return Cure.TIME
    if code is ErrorCode.corrupt_message:
        raise CorruptRecordError(kept_back(partition, offset))
    raise RefusedError(f"partition {partition}", code)


def chunk_of(partition: TopicPartition, offset: int, answer: PartitionAnswer, rules: ReadingRules) -> Chunk | None:
    """The records of an answer to a fetch from `offset`, which has some; `CorruptRecordError` if none is of use.

    None at the end of the log: whatever the broker sent, there is nothing that could be passed over yet.
    """
    chunk = Chunk.of(partition, offset, answer.records, answer.aborted, rules=rules, log_end=answer.high_watermark)
    if chunk is None and 0 <= answer.high_watermark <= offset:
        return None
    if chunk is None:
        reason = "the broker sent only batches that end before it"
        raise CorruptRecordError(
            CorruptBatch(
                partition=partition,
                first_offset=offset,
                next_offset=offset + 1,
                reason=reason,
                raw=bytes(answer.records),
            )
        )
    return chunk


def kept_back(partition: TopicPartition, offset: int) -> CorruptBatch:
    """What a broker finds damaged itself and does not hand out: how much that is, nobody knows."""
    reason = "the broker finds its batch damaged"
    return CorruptBatch(partition=partition, first_offset=offset, next_offset=offset + 1, reason=reason, raw=b"")
