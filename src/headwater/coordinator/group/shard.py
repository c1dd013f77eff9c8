"""One partition of `__consumer_offsets`: its groups and their committed offsets.

Decides and replays, and does nothing else: a group's kind says who answers. Methods that return an `Outcome` never
raise for what a client did; the response says it.
"""

from collections.abc import Callable, Collection, Iterator
from typing import Final

from headwater.config.broker_attributes import BrokerAttributes
from headwater.coordinator.deadlines import Deadlines
from headwater.coordinator.group import records
from headwater.coordinator.group.classic_group import ClassicGroup
from headwater.coordinator.group.classic_groups import ClassicGroups
from headwater.coordinator.group.classic_responses import (
    heartbeat_response,
    join_error,
    leave_error,
    leave_response,
    left,
    sync_error,
)
from headwater.coordinator.group.consumer_group import ConsumerGroup
from headwater.coordinator.group.consumer_groups import ConsumerGroups
from headwater.coordinator.group.group import DeadlineName, check_group_id
from headwater.coordinator.group.listing import described, described_as_absent, listed
from headwater.coordinator.group.offsets import CommittedOffsets
from headwater.coordinator.group.offsets_commit import Commits
from headwater.coordinator.group.offsets_fetch import fetch_offsets
from headwater.coordinator.group.offsets_removal import Removals
from headwater.coordinator.outcome import Answer, Caller, CoordinatorRecord, Outcome, TopicDirectory, Waiter
from headwater.protocol.errors import ApiError, ErrorCode
from headwater.protocol.kafka_types import NO_THROTTLE

from kio.schema.consumer_group_describe.v1.response import (  # isort: skip
    DescribedGroup as DescribedConsumerGroup,
)
from kio.schema.consumer_group_heartbeat.v1.request import ConsumerGroupHeartbeatRequest  # isort: skip
from kio.schema.describe_groups.v6.response import DescribedGroup  # isort: skip
from kio.schema.heartbeat.v4.request import HeartbeatRequest  # isort: skip
from kio.schema.join_group.v9.request import JoinGroupRequest  # isort: skip
from kio.schema.leave_group.v5.request import LeaveGroupRequest  # isort: skip
from kio.schema.list_groups.v5.response import ListedGroup  # isort: skip
from kio.schema.offset_commit.v9.request import OffsetCommitRequest  # isort: skip
from kio.schema.offset_delete.v0.request import OffsetDeleteRequest  # isort: skip
from kio.schema.offset_delete.v0.response import OffsetDeleteResponse  # isort: skip
from kio.schema.offset_fetch.v9.request import OffsetFetchRequestGroup  # isort: skip
from kio.schema.offset_fetch.v9.response import OffsetFetchResponseGroup  # isort: skip
from kio.schema.sync_group.v5.request import SyncGroupRequest  # isort: skip
from kio.schema.txn_offset_commit.v5.request import TxnOffsetCommitRequest  # isort: skip

_SYNC_NAMES_PROTOCOL_SINCE: Final = 5


class GroupShard:
    """The groups of one partition."""

    def __init__(
        self, *, config: Callable[[], BrokerAttributes], topics: TopicDirectory, new_id: Callable[[], str]
    ) -> None:
        groups: dict[str, ClassicGroup | ConsumerGroup] = {}
        deadlines = Deadlines[DeadlineName]()
        offsets = CommittedOffsets()
        self._groups: Final = groups
        self._deadlines: Final = deadlines
        self._offsets: Final = offsets
        self._topics: Final = topics
        self._classic: Final = ClassicGroups(groups=groups, deadlines=deadlines, config=config, new_id=new_id)
        self._consumer: Final = ConsumerGroups(
            groups=groups, deadlines=deadlines, config=config, topics=topics, new_id=new_id
        )
        self._commits: Final = Commits(groups=groups, classic=self._classic, config=config, topics=topics)
        self._removals: Final = Removals(groups=groups, offsets=offsets, config=config, topics=topics)

    def join(self, request: JoinGroupRequest, caller: Caller, waiter: Waiter, now_ms: int) -> Outcome:
        """JoinGroup: response None when it waits; a later outcome carries the answer."""
        try:
            check_group_id(request.group_id)
            self._classic.check_join(request, caller)
            group = self._groups.get(request.group_id)
            if not isinstance(group, ConsumerGroup):
                return self._classic.join(request, caller, waiter, now_ms)
            if group.is_empty:
                return self._join_instead_of(group, request, caller, waiter, now_ms)
            return self._consumer.classic.join(group, request, caller, now_ms)
        except ApiError as error:
            return Outcome(response=join_error(error.code, request.member_id))

    def _join_instead_of(
        self, emptied: ConsumerGroup, request: JoinGroupRequest, caller: Caller, waiter: Waiter, now_ms: int
    ) -> Outcome:
        """A consumer group without members makes room for a classic group of the same name."""
        group_id = request.group_id
        del self._groups[group_id]
        try:
            outcome = self._classic.join(request, caller, waiter, now_ms)
        except ApiError:
            self._groups[group_id] = emptied
            raise
        outcome.records = [*emptied.tombstones(), *outcome.records]

        def bring_back() -> Outcome:
            answers = self._classic.give_up(group_id)
            self._groups[group_id] = emptied
            return Outcome(answers=answers)

        outcome.on_failure = bring_back
        return outcome

    def sync(self, request: SyncGroupRequest, caller: Caller, waiter: Waiter, now_ms: int) -> Outcome:
        """SyncGroup: waits for the leader's assignment."""
        try:
            if caller.version >= _SYNC_NAMES_PROTOCOL_SINCE and None in (request.protocol_type, request.protocol_name):
                raise ApiError(ErrorCode.inconsistent_group_protocol)
            group = self._member_group(request.group_id)
            if isinstance(group, ConsumerGroup):
                return self._consumer.classic.sync(group, request, now_ms)
            return self._classic.sync(group, request, waiter, now_ms)
        except ApiError as error:
            return Outcome(response=sync_error(error.code))

    def heartbeat(self, request: HeartbeatRequest, caller: Caller, now_ms: int) -> Outcome:
        """Heartbeat of a member that speaks the classic protocol."""
        try:
            group = self._member_group(request.group_id)
            if isinstance(group, ConsumerGroup):
                return self._consumer.classic.heartbeat(group, request, now_ms)
            return self._classic.heartbeat(group, request, now_ms)
        except ApiError as error:
            return Outcome(response=heartbeat_response(error.code))

    def leave(self, request: LeaveGroupRequest, caller: Caller, now_ms: int) -> Outcome:
        """LeaveGroup: one member (to v2) or several."""
        try:
            group = self._member_group(request.group_id)
            if isinstance(group, ConsumerGroup):
                return self._consumer.classic.leave(group, request, caller, now_ms)
            return self._classic.leave(group, request, caller, now_ms)
        except ApiError as error:
            if error.code is not ErrorCode.unknown_member_id:
                return Outcome(response=leave_error(error.code))
            unknown = tuple(left(member, error.code) for member in request.members)
            return Outcome(response=leave_response(unknown, caller.version))

    def _member_group(self, group_id: str) -> ClassicGroup | ConsumerGroup:
        """The group that a member calls; it cannot be a member of a group that is not there."""
        check_group_id(group_id)
        group = self._groups.get(group_id)
        if group is None:
            raise ApiError(ErrorCode.unknown_member_id)
        return group

    def consumer_heartbeat(self, request: ConsumerGroupHeartbeatRequest, caller: Caller, now_ms: int) -> Outcome:
        """ConsumerGroupHeartbeat."""
        return self._consumer.heartbeat(request, caller, now_ms)

    def consumer_describe(self, group_id: str, now_ms: int) -> DescribedConsumerGroup:
        """One group of ConsumerGroupDescribe."""
        return self._consumer.describe(group_id)

    def commit_offsets(
        self, request: OffsetCommitRequest, caller: Caller, now_ms: int, retention_ms: int | None = None
    ) -> Outcome:
        """OffsetCommit; `retention_ms` is what v2 to v4 ask for, None when they leave it to the broker."""
        return self._commits.commit(request, caller, now_ms, retention_ms)

    def commit_transaction_offsets(self, request: TxnOffsetCommitRequest, caller: Caller, now_ms: int) -> Outcome:
        """TxnOffsetCommit: the offsets count when the transaction commits."""
        return self._commits.commit_transaction(request, caller, now_ms)

    def fetch_offsets(
        self, request: OffsetFetchRequestGroup, require_stable: bool, now_ms: int
    ) -> OffsetFetchResponseGroup:
        """One group of OffsetFetch."""
        return fetch_offsets(
            request,
            group=self._groups.get(request.group_id),
            offsets=self._offsets,
            topics=self._topics,
            require_stable=require_stable,
        )

    def delete_offsets(self, request: OffsetDeleteRequest, now_ms: int) -> Outcome:
        """OffsetDelete."""
        try:
            check_group_id(request.group_id)
            return self._removals.delete_offsets(request)
        except ApiError as error:
            refusal = OffsetDeleteResponse(error_code=error.code, throttle_time=NO_THROTTLE, topics=())
            return Outcome(response=refusal)

    def list_groups(self) -> Iterator[ListedGroup]:
        """All groups that are there now, each as it is when its turn comes; filters are the caller's."""
        return map(listed, list(self._groups.values()))

    def describe(self, group_id: str, version: int) -> DescribedGroup:
        """One group of DescribeGroups, which knows classic groups only."""
        group = self._groups.get(group_id)
        if isinstance(group, ClassicGroup):
            return described(group)
        problem = "not found" if group is None else "is not a classic group"
        return described_as_absent(group_id, f"Group {group_id} {problem}.", version)

    def delete_group(self, group_id: str, now_ms: int) -> Outcome:
        """DeleteGroups for one group; the response is an `ErrorCode`."""
        try:
            return self._removals.delete_group(group_id)
        except ApiError as error:
            return Outcome(response=error.code)

    def topics_deleted(self, names: Collection[str], now_ms: int) -> Iterator[Outcome]:
        """Forgets the offsets of topics that are gone, some at a time."""
        yield from self._removals.topics_deleted(names)

    def patterns(self) -> list[tuple[str, frozenset[str]]]:
        """The consumer groups that there are now, with the patterns that their members subscribe with."""
        return self._consumer.patterns()

    def look_at_topics(self, group_id: str, now_ms: int) -> Outcome:
        """One consumer group looks at its topics again."""
        return self._consumer.look_at_topics(group_id, now_ms)

    def topics_changed(self, now_ms: int) -> Iterator[Outcome]:
        """Consumer groups look at their topics again."""
        yield from self._consumer.topics_changed(now_ms)

    def expire_offsets(self, now_ms: int) -> Iterator[Outcome]:
        """Removes offsets that outlived their retention, and groups with neither members nor offsets."""
        yield from self._removals.expire(now_ms)

    def replay(self, record: CoordinatorRecord, *, producer_id: int = -1) -> None:
        """Takes in one record of the log; `producer_id` is set when it is part of a transaction."""
        decoded = record.meaning or records.decode(record.key, record.value)
        if decoded is None:
            return
        kind, its_key, its_value = decoded
        if kind is records.OFFSET:
            if its_value is not None and its_key.group not in self._groups:
                self._groups[its_key.group] = ClassicGroup(its_key.group)
            self._offsets.replay(its_key, its_value, producer_id)
            return
        if kind is records.CLASSIC_GROUP:
            self._classic.replay_group(its_key, its_value)
        else:
            self._consumer.replay(kind, its_key, its_value)
        if its_value is None and its_key.group not in self._groups and self._offsets.has_any(its_key.group):
            # Its offsets are not gone: it lives on as a group that only keeps them.
            self._groups[its_key.group] = ClassicGroup(its_key.group)

    def replay_end_marker(self, producer_id: int, committed: bool) -> None:
        """Takes in the end of a producer's transaction."""
        self._offsets.replay_end_marker(producer_id, committed)

    def loaded(self, now_ms: int) -> Iterator[Outcome]:
        """After the whole log was replayed: sessions begin."""
        yield from self._classic.loaded(now_ms)
        yield from self._consumer.loaded(now_ms)

    def next_deadline_ms(self) -> int | None:
        """When `on_time` has something to do."""
        return self._deadlines.next_ms()

    def on_time(self, now_ms: int) -> Iterator[Outcome]:
        """Does what is due, each in the light of what the one before has come to."""
        while (name := self._deadlines.take(now_ms)) is not None:
            if name.kind == "classic":
                yield self._classic.on_deadline(name, now_ms)
            else:
                yield self._consumer.on_deadline(name, now_ms)

    def unload(self) -> list[Answer]:
        """The partition is lost: whoever waits hears NOT_COORDINATOR."""
        return [
            answer
            for group in self._groups.values()
            if isinstance(group, ClassicGroup)
            for answer in group.release_waiters(ErrorCode.not_coordinator)
        ]
