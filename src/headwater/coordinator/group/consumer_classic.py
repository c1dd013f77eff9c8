"""Members of a consumer group that speak the classic protocol: JoinGroup, SyncGroup, Heartbeat and LeaveGroup.

They go towards their targets like the others, but what a heartbeat does for those takes a rejoin here: a member that
has something to do is told REBALANCE_IN_PROGRESS, joins (saying what it owns) and syncs (to be told what it may read).
Nobody waits: the epoch is the generation, and there is no leader, since assignments are the broker's.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Final

from headwater.coordinator.deadlines import Deadlines
from headwater.coordinator.group.classic_responses import (
    heartbeat_response,
    join_error,
    join_success,
    leave_response,
    left,
    sync_error,
    sync_success,
)
from headwater.coordinator.group.consumer_decision import Decision
from headwater.coordinator.group.consumer_group import ConsumerGroup
from headwater.coordinator.group.consumer_member import NOTHING_TOLD, ConsumerMember, MemberState
from headwater.coordinator.group.consumer_protocol import PROTOCOL_TYPE, Subscription, read_subscription
from headwater.coordinator.group.consumer_steps import GroupSteps
from headwater.coordinator.group.group import DeadlineName
from headwater.coordinator.group.migration import embedded_assignment, to_ids
from headwater.coordinator.group.records import ClassicMetadata, ClassicProtocol, ConsumerMemberValue
from headwater.coordinator.outcome import Caller, Outcome, TopicDirectory
from headwater.coordinator.schema import CorruptRecordError
from headwater.protocol.errors import ApiError
from headwater.protocol.kafka_types import ErrorCode

from kio.schema.heartbeat.v4.request import HeartbeatRequest  # isort: skip
from kio.schema.join_group.v9.request import JoinGroupRequest  # isort: skip
from kio.schema.leave_group.v5.request import LeaveGroupRequest, MemberIdentity  # isort: skip
from kio.schema.sync_group.v5.request import SyncGroupRequest  # isort: skip

JOIN: Final = "join"
"""Until when a member must have joined that was told to."""
SYNC: Final = "sync"
"""Until when a member must have synced that joined."""
_IDS_ARE_GIVEN_FIRST: Final = 4
"""Since this version of JoinGroup a new member gets an id first and joins with it then."""
_MILLISECOND: Final = timedelta(milliseconds=1)


class ClassicMembers:
    """Serves the classic protocol in consumer groups."""

    def __init__(
        self,
        *,
        steps: GroupSteps,
        deadlines: Deadlines[DeadlineName],
        topics: TopicDirectory,
        new_id: Callable[[], str],
    ) -> None:
        self._steps = steps
        self._deadlines = deadlines
        self._topics = topics
        self._new_id = new_id

    def join(self, group: ConsumerGroup, request: JoinGroupRequest, caller: Caller, now_ms: int) -> Outcome:
        """A member joins, or joins again."""
        member_id = request.member_id or self._new_id()
        try:
            return self._join(group, request, caller, member_id, now_ms)
        except ApiError as error:
            given_id = member_id if error.code is ErrorCode.member_id_required else ""
            return Outcome(response=join_error(error.code, given_id))

    def _join(
        self, group: ConsumerGroup, request: JoinGroupRequest, caller: Caller, member_id: str, now_ms: int
    ) -> Outcome:
        instance_id = request.group_instance_id
        self._steps.check_room(group, request.member_id, instance_id)
        subscription = self._subscription(group, request)
        if not request.member_id and instance_id is None and caller.version >= _IDS_ARE_GIVEN_FIRST:
            raise ApiError(ErrorCode.member_id_required)
        decision = Decision(group)
        if instance_id is not None:
            holder = group.static_member(instance_id)
            if request.member_id:
                group.check_member(member_id, instance_id)
            elif holder is not None:
                self._steps.take_place(decision, holder, member_id)
        known = decision.group.members.get(member_id)
        if known is None and request.member_id and subscription.owned:
            # It was put out and has not noticed: what it still reads may be somebody else's. As a stranger it lets go.
            raise ApiError(ErrorCode.unknown_member_id)
        told = _told(request, subscription, caller, NOTHING_TOLD if known is None else known.told)
        member = self._steps.arrive(decision, member_id, told, to_ids(subscription.owned, self._topics), now_ms)
        if not self._steps.hand_over(decision, now_ms, rebalance=not decision.group.is_reconciled):
            self._steps.await_heartbeat(group.group_id, member, now_ms)
            self._deadlines.cancel(_deadline(JOIN, group, member))
            self._deadlines.set(_deadline(SYNC, group, member), now_ms + told.rebalance_timeout_ms)
        return decision.outcome(
            join_success(
                generation=member.epoch,
                protocol_type=PROTOCOL_TYPE,
                protocol=request.protocols[0].name,
                leader="",
                member_id=member_id,
            )
        )

    def _subscription(self, group: ConsumerGroup, request: JoinGroupRequest) -> Subscription:
        """What the member subscribes to; it must share a protocol with every classic member."""
        listed = [
            {protocol.name for protocol in member.told.classic.protocols}
            for member in group.members.values()
            if member.told.classic is not None
        ]
        offered = {protocol.name for protocol in request.protocols}
        if request.protocol_type == PROTOCOL_TYPE and offered.intersection(*listed):
            try:
                return read_subscription(request.protocols[0].metadata)
            except CorruptRecordError as error:
                raise ApiError(ErrorCode.inconsistent_group_protocol, str(error)) from error
        raise ApiError(ErrorCode.inconsistent_group_protocol)

    def sync(self, group: ConsumerGroup, request: SyncGroupRequest, now_ms: int) -> Outcome:
        """A member that joined asks what it may read."""
        try:
            member, classic = _classic_member(group, request.member_id, request.group_instance_id)
            _check_generation(member, request.generation_id)
            _check_protocol(classic.protocols[0].name, request.protocol_type, request.protocol_name)
            if group.epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
                self._await_join(group, member, now_ms)
                raise ApiError(ErrorCode.rebalance_in_progress)
        except ApiError as error:
            return Outcome(response=sync_error(error.code))
        self._deadlines.cancel(_deadline(SYNC, group, member))
        self._steps.await_heartbeat(group.group_id, member, now_ms)
        assignment = embedded_assignment(member.assigned, classic.protocols[0].metadata, self._topics)
        return Outcome(response=sync_success(request.protocol_type, request.protocol_name, assignment))

    def heartbeat(self, group: ConsumerGroup, request: HeartbeatRequest, now_ms: int) -> Outcome:
        """A member is alive; it is told to join again when it has partitions to give back or to get."""
        try:
            member, _ = _classic_member(group, request.member_id, request.group_instance_id)
            _check_generation(member, request.generation_id)
        except ApiError as error:
            return Outcome(response=heartbeat_response(error.code))
        self._steps.await_heartbeat(group.group_id, member, now_ms)
        can_get_more = member.state is MemberState.UNRELEASED_PARTITIONS and not group.waits_for_others(member)
        must_give_back = member.state is MemberState.UNREVOKED_PARTITIONS
        if member.epoch < group.epoch or must_give_back or can_get_more:
            self._await_join(group, member, now_ms)
            return Outcome(response=heartbeat_response(ErrorCode.rebalance_in_progress))
        return Outcome(response=heartbeat_response(ErrorCode.none))

    def leave(self, group: ConsumerGroup, request: LeaveGroupRequest, caller: Caller, now_ms: int) -> Outcome:
        """Members go, each answered for itself."""
        leaving: set[str] = set()
        answers = []
        for identity in request.members:
            try:
                leaving.add(_leaver(group, identity))
            except ApiError as error:
                answers.append(left(identity, error.code))
            else:
                answers.append(left(identity))
        response = leave_response(tuple(answers), caller.version)
        if not leaving:
            return Outcome(response=response)
        return self._steps.depart(group, sorted(leaving), response, now_ms)

    def _await_join(self, group: ConsumerGroup, member: ConsumerMember, now_ms: int) -> None:
        name = _deadline(JOIN, group, member)
        if self._deadlines.get(name) is None:
            self._deadlines.set(name, now_ms + member.told.rebalance_timeout_ms)


def _deadline(what: str, group: ConsumerGroup, member: ConsumerMember) -> DeadlineName:
    return DeadlineName("consumer", what, group.group_id, member.member_id)


def _told(
    request: JoinGroupRequest, subscription: Subscription, caller: Caller, before: ConsumerMemberValue
) -> ConsumerMemberValue:
    session_timeout_ms = request.session_timeout // _MILLISECOND
    rebalance_timeout_ms = request.rebalance_timeout // _MILLISECOND
    return ConsumerMemberValue(
        instance_id=request.group_instance_id or before.instance_id,
        rack_id=subscription.rack_id or before.rack_id,
        client_id=caller.client_id,
        client_host=caller.host,
        subscribed_topics=tuple(sorted(set(subscription.topics))),
        rebalance_timeout_ms=session_timeout_ms if rebalance_timeout_ms < 0 else rebalance_timeout_ms,
        server_assignor=before.server_assignor,
        classic=ClassicMetadata(
            session_timeout_ms,
            tuple(ClassicProtocol(protocol.name, protocol.metadata) for protocol in request.protocols),
        ),
    )


def _classic_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None
) -> tuple[ConsumerMember, ClassicMetadata]:
    member = group.check_member(member_id, instance_id)
    if member.told.classic is None:
        raise ApiError(ErrorCode.unknown_member_id, f"{member_id} does not speak the classic protocol")
    return member, member.told.classic


def _leaver(group: ConsumerGroup, identity: MemberIdentity) -> str:
    """Who is to go. An administrator may put out members of either protocol, and name them by instance id alone."""
    static = group.static_member(identity.group_instance_id or "")
    if static is not None and not identity.member_id:
        return static.member_id
    return group.check_member(identity.member_id, identity.group_instance_id).member_id


def _check_generation(member: ConsumerMember, generation: int) -> None:
    if generation != member.epoch:
        raise ApiError(ErrorCode.illegal_generation)


def _check_protocol(chosen: str, protocol_type: str | None, protocol: str | None) -> None:
    if protocol_type not in (None, PROTOCOL_TYPE) or protocol not in (None, chosen):
        raise ApiError(ErrorCode.inconsistent_group_protocol)
