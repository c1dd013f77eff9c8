"""OffsetCommit and TxnOffsetCommit: who may commit, and the records that keep it.

- A commit without a generation comes from a consumer that assigns itself, or from an operator; it makes a group that is
  not there. With one, the group must know the member. OffsetCommit v9 says GROUP_ID_NOT_FOUND for a group that is not
  there, where older versions, and TxnOffsetCommit, say ILLEGAL_GENERATION.
- A partition that does not exist, or metadata that is too long, is refused on its own; the rest is committed.
- A commit keeps the session of a classic member, as a heartbeat does.
- v2 to v4 may ask for a retention of their own; it is kept with the offset (`retention_ms`).
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from headwater.config.broker_attributes import BrokerAttributes
from headwater.coordinator.group.classic_group import ClassicGroup
from headwater.coordinator.group.classic_groups import ClassicGroups
from headwater.coordinator.group.group import Group, check_group_id
from headwater.coordinator.group.records import OFFSET, OffsetKey, OffsetValue
from headwater.coordinator.outcome import Caller, CoordinatorRecord, Outcome, ProducerIdentity, TopicDirectory
from headwater.protocol.errors import ApiError, ErrorCode
from headwater.protocol.kafka_types import NO_THROTTLE

from kio.schema.offset_commit.v9.request import OffsetCommitRequest, OffsetCommitRequestTopic  # isort: skip
from kio.schema.offset_commit.v9.response import (  # isort: skip
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kio.schema.txn_offset_commit.v5.request import (  # isort: skip
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
)
from kio.schema.txn_offset_commit.v5.response import (  # isort: skip
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

_FIRST_WITH_GROUP_NOT_FOUND = 9
_VERSION_WITH_EXPIRY = 1
"""The only version of an offset's record that has a time at which it expires."""


class _Terms(NamedTuple):
    """What holds for all partitions of a commit."""

    group_id: str
    now_ms: int
    expire_ms: int
    refused: ErrorCode | None


class Commits:
    """Serves the commits of a shard's groups."""

    def __init__(
        self,
        *,
        groups: Mapping[str, Group],
        classic: ClassicGroups,
        config: Callable[[], BrokerAttributes],
        topics: TopicDirectory,
    ) -> None:
        self._groups = groups
        self._classic = classic
        self._config = config
        self._topics = topics

    def commit(
        self, request: OffsetCommitRequest, caller: Caller, now_ms: int, retention_ms: int | None = None
    ) -> Outcome:
        """OffsetCommit."""
        refused = None
        try:
            self._check(request, caller, now_ms)
        except ApiError as error:
            refused = error.code
        expire_ms = -1 if retention_ms is None else now_ms + retention_ms
        terms = _Terms(request.group_id, now_ms, expire_ms, refused)
        outcome = Outcome()
        outcome.response = OffsetCommitResponse(
            throttle_time=NO_THROTTLE,
            topics=tuple(
                OffsetCommitResponseTopic(
                    name=topic.name,
                    partitions=tuple(
                        [
                            OffsetCommitResponsePartition(partition_index=partition, error_code=code)
                            for partition, code in self._decide(topic, terms, outcome)
                        ]
                    ),
                )
                for topic in request.topics
            ),
        )
        return outcome

    def commit_transaction(self, request: TxnOffsetCommitRequest, caller: Caller, now_ms: int) -> Outcome:
        """TxnOffsetCommit: the records are part of the producer's transaction."""
        refused = None
        try:
            self._check_transaction(request, caller)
        except ApiError as error:
            is_stale = error.code is ErrorCode.stale_member_epoch
            refused = ErrorCode.illegal_generation if is_stale else error.code
        terms = _Terms(request.group_id, now_ms, -1, refused)
        outcome = Outcome(producer=ProducerIdentity(request.producer_id, request.producer_epoch))
        outcome.response = TxnOffsetCommitResponse(
            throttle_time=NO_THROTTLE,
            topics=tuple(
                TxnOffsetCommitResponseTopic(
                    name=topic.name,
                    partitions=tuple(
                        TxnOffsetCommitResponsePartition(partition_index=partition, error_code=code)
                        for partition, code in self._decide(topic, terms, outcome)
                    ),
                )
                for topic in request.topics
            ),
        )
        return outcome

    def _check(self, request: OffsetCommitRequest, caller: Caller, now_ms: int) -> None:
        group = self._groups.get(request.group_id)
        generation = request.generation_id_or_member_epoch
        if group is None:
            if request.group_id:
                # Without a name the oldest clients committed, and still may.
                check_group_id(request.group_id)
            if generation >= 0:
                knows_better = caller.version >= _FIRST_WITH_GROUP_NOT_FOUND
                raise ApiError(ErrorCode.group_id_not_found if knows_better else ErrorCode.illegal_generation)
            return
        group.check_offset_commit(
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            generation_or_epoch=generation,
            version=caller.version,
            transactional=False,
        )
        if isinstance(group, ClassicGroup):
            self._classic.keep_session(group, request.member_id, now_ms)

    def _check_transaction(self, request: TxnOffsetCommitRequest, caller: Caller) -> None:
        check_group_id(request.group_id)
        group = self._groups.get(request.group_id)
        if group is None:
            if request.generation_id >= 0:
                raise ApiError(ErrorCode.illegal_generation)
            return
        group.check_offset_commit(
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            generation_or_epoch=request.generation_id,
            version=caller.version,
            transactional=True,
        )

    def _decide(
        self,
        topic: OffsetCommitRequestTopic | TxnOffsetCommitRequestTopic,
        terms: _Terms,
        outcome: Outcome,
    ) -> list[tuple[Any, ErrorCode]]:
        """What becomes of each partition; the records of those that are committed go to the outcome."""
        decided: list[tuple[Any, ErrorCode]] = []
        count = self._topics.partition_count(topic.name) or 0
        topic_id = self._topics.topic_id(topic.name)
        longest = self._config().offset_metadata_max_bytes
        for partition in topic.partitions:
            index, metadata = partition.partition_index, partition.committed_metadata or ""
            if not 0 <= index < count:
                decided.append((index, ErrorCode.unknown_topic_or_partition))
            elif terms.refused is not None:
                decided.append((index, terms.refused))
            elif len(metadata) > longest:
                # Apache counts characters, whatever the config's name says.
                decided.append((index, ErrorCode.offset_metadata_too_large))
            else:
                value = OffsetValue(
                    offset=partition.committed_offset,
                    leader_epoch=partition.committed_leader_epoch,
                    metadata=metadata,
                    commit_timestamp_ms=terms.now_ms,
                    expire_timestamp_ms=terms.expire_ms,
                    topic_id=topic_id,
                )
                outcome.records.append(_record(OffsetKey(terms.group_id, topic.name, index), value))
                decided.append((index, ErrorCode.none))
        return decided


def _record(key: OffsetKey, value: OffsetValue) -> CoordinatorRecord:
    if value.expire_timestamp_ms == -1:
        return OFFSET.record(key, value)
    return OFFSET.record(key, value, _VERSION_WITH_EXPIRY)
