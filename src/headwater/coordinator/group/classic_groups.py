"""The classic groups of a shard: SyncGroup, Heartbeat and LeaveGroup, their record, their deadlines.

JoinGroup is `classic_joins`'s, the phases of a rebalance `classic_rebalance`'s.
"""

from collections.abc import Callable, Iterator

from headwater.config.broker_attributes import BrokerAttributes
from headwater.coordinator.deadlines import Deadlines
from headwater.coordinator.group.classic_group import ClassicGroup
from headwater.coordinator.group.classic_joins import Joins
from headwater.coordinator.group.classic_rebalance import Rebalances
from headwater.coordinator.group.classic_responses import (
    heartbeat_response,
    leave_response,
    left,
    sync_error,
    sync_success,
)
from headwater.coordinator.group.classic_states import ClassicState
from headwater.coordinator.group.consumer_group import ConsumerGroup
from headwater.coordinator.group.group import DeadlineName
from headwater.coordinator.group.records import ClassicGroupValue, GroupKey
from headwater.coordinator.outcome import Answer, Caller, Outcome, Waiter
from headwater.protocol.errors import ApiError, ErrorCode

from kio.schema.heartbeat.v4.request import HeartbeatRequest  # isort: skip
from kio.schema.join_group.v9.request import JoinGroupRequest  # isort: skip
from kio.schema.leave_group.v5.request import LeaveGroupRequest, MemberIdentity  # isort: skip
from kio.schema.sync_group.v5.request import SyncGroupRequest  # isort: skip


class ClassicGroups:
    """Serves the classic groups of a shard. Requests that are refused raise `ApiError`."""

    def __init__(
        self,
        *,
        groups: dict[str, ClassicGroup | ConsumerGroup],
        deadlines: Deadlines[DeadlineName],
        config: Callable[[], BrokerAttributes],
        new_id: Callable[[], str],
    ) -> None:
        self._groups = groups
        self._config = config
        self._rebalances = Rebalances(deadlines, config)
        self._joins = Joins(groups=groups, rebalances=self._rebalances, config=config, new_id=new_id)

    def check_join(self, request: JoinGroupRequest, caller: Caller) -> None:
        """What holds for every join, whatever the group."""
        self._joins.check(request, caller)

    def join(self, request: JoinGroupRequest, caller: Caller, waiter: Waiter, now_ms: int) -> Outcome:
        """Lets a member in."""
        return self._joins.join(request, caller, waiter, now_ms)

    def sync(self, group: ClassicGroup, request: SyncGroupRequest, waiter: Waiter, now_ms: int) -> Outcome:
        """Gives a member its assignment, as soon as the leader has brought it."""
        if group.is_empty:
            raise ApiError(ErrorCode.unknown_member_id)
        member = group.check_member(request.member_id, request.group_instance_id)
        group.check_generation(request.generation_id)
        _check_agreement(request.protocol_type, group.protocol_type)
        _check_agreement(request.protocol_name, group.protocol)
        if group.state is ClassicState.PREPARING_REBALANCE:
            raise ApiError(ErrorCode.rebalance_in_progress)
        self._rebalances.synced(group, member.member_id)
        if group.state is ClassicState.STABLE:
            return Outcome(response=sync_success(group.protocol_type, group.protocol, member.assignment))
        outcome = Outcome()
        if member.sync_waiter is not None:
            outcome.answers.append(Answer(member.sync_waiter, sync_error(ErrorCode.rebalance_in_progress)))
        member.sync_waiter = waiter
        if member.member_id == group.leader:
            assignments = {assigned.member_id: assigned.assignment for assigned in request.assignments}
            self._assign(group, assignments, now_ms, outcome)
        return outcome

    def _assign(self, group: ClassicGroup, assignments: dict[str, bytes], now_ms: int, outcome: Outcome) -> None:
        """Writes the leader's assignment; when that is replayed the group is Stable, and everybody is answered."""
        members = group.members.values()
        value = group.to_value(now_ms, leader=group.leader, members=members, assignments=assignments)
        outcome.records.append(group.record(value))
        for member in members:
            if member.sync_waiter is None:
                continue
            assignment = assignments.get(member.member_id, b"")
            response = sync_success(group.protocol_type, group.protocol, assignment)
            outcome.answers.append(Answer(member.sync_waiter, response))
            member.sync_waiter = None
            self._rebalances.keep_session(group, member, now_ms)
        outcome.on_failure = lambda: self._rebalance_again(group, now_ms)

    def _rebalance_again(self, group: ClassicGroup, now_ms: int) -> Outcome:
        outcome = Outcome()
        self._rebalances.prepare(group, now_ms, outcome)
        return outcome

    def heartbeat(self, group: ClassicGroup, request: HeartbeatRequest, now_ms: int) -> Outcome:
        """Keeps a member's session, and tells it when it is to join again."""
        member = group.check_member(request.member_id, request.group_instance_id)
        group.check_generation(request.generation_id)
        self._rebalances.keep_session(group, member, now_ms)
        is_preparing = group.state is ClassicState.PREPARING_REBALANCE
        return Outcome(response=heartbeat_response(ErrorCode.rebalance_in_progress if is_preparing else ErrorCode.none))

    def keep_session(self, group: ClassicGroup, member_id: str, now_ms: int) -> None:
        """A commit of a member is as good as a heartbeat, unless it should be taking up a new assignment."""
        member = group.members.get(member_id)
        if member is not None and group.state is not ClassicState.COMPLETING_REBALANCE:
            self._rebalances.keep_session(group, member, now_ms)

    def leave(self, group: ClassicGroup, request: LeaveGroupRequest, caller: Caller, now_ms: int) -> Outcome:
        """Puts members out, by member id or, as an operator does it, by instance id alone."""
        outcome = Outcome()
        size = len(group.members)
        results = []
        for leaver in request.members:
            try:
                self._rebalances.remove(group, _leaver_id(group, leaver), outcome)
                results.append(left(leaver))
            except ApiError as error:
                results.append(left(leaver, error.code))
        outcome.response = leave_response(tuple(results), caller.version)
        if len(group.members) < size:
            self._rebalances.prepare_or_complete(group, now_ms, outcome)
        else:
            self._rebalances.complete_if_everybody_joined(group, now_ms, outcome)
        return outcome

    def replay_group(self, key: GroupKey, value: ClassicGroupValue | None) -> None:
        """Takes in the record of a group."""
        group = self._groups.get(key.group)
        if value is not None:
            if not isinstance(group, ClassicGroup):
                group = self._groups[key.group] = ClassicGroup(key.group)
            group.apply(value)
        elif isinstance(group, ClassicGroup):
            self._rebalances.forget(group)
            group.end()
            del self._groups[key.group]

    def give_up(self, group_id: str) -> list[Answer]:
        """Forgets a group that has just been made, as it cannot be; whoever waits in it is told to try again."""
        group = self._groups.pop(group_id)
        assert isinstance(group, ClassicGroup)
        self._rebalances.forget(group)
        return group.release_waiters(ErrorCode.coordinator_not_available)

    def loaded(self, now_ms: int) -> Iterator[Outcome]:
        """Sessions begin anew; a group that is too large now rebalances, which puts the last ones out."""
        for group in [group for group in self._groups.values() if isinstance(group, ClassicGroup)]:
            for member in group.members.values():
                self._rebalances.keep_session(group, member, now_ms)
            if len(group.members) > self._config().group_max_size:
                yield self._rebalance_again(group, now_ms)

    def on_deadline(self, name: DeadlineName, now_ms: int) -> Outcome:
        """What follows when a deadline has passed; nothing when its group is of another kind by now."""
        outcome = Outcome()
        group = self._groups.get(name.group_id)
        if isinstance(group, ClassicGroup):
            self._rebalances.on_deadline(group, name, now_ms, outcome)
        return outcome


def _leaver_id(group: ClassicGroup, leaver: MemberIdentity) -> str:
    if not leaver.member_id:
        member_id = group.static_members.get(leaver.group_instance_id or "")
        if member_id is None:
            raise ApiError(ErrorCode.unknown_member_id)
        return member_id
    if leaver.member_id in group.expected_joins:
        return leaver.member_id
    return group.check_member(leaver.member_id, leaver.group_instance_id).member_id


def _check_agreement(told: str | None, agreed: str | None) -> None:
    """Newer clients tell what they believe was agreed on; older ones do not."""
    if told is not None and agreed is not None and told != agreed:
        raise ApiError(ErrorCode.inconsistent_group_protocol)
