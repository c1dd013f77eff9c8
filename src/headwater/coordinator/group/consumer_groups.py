"""The consumer groups of a shard: what ConsumerGroupHeartbeat does, and what time and topics do to groups.

A member joins with epoch 0, comes back with the epoch that it was told, leaves with -1, and with -2 when it is static
and will be back. Members of the classic protocol are `consumer_classic`'s, the steps that both share `consumer_steps`'.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

from headwater.config.broker_attributes import BrokerAttributes
from headwater.coordinator.deadlines import Deadlines
from headwater.coordinator.group.classic_group import ClassicGroup
from headwater.coordinator.group.consumer_classic import JOIN, SYNC, ClassicMembers
from headwater.coordinator.group.consumer_decision import Decision
from headwater.coordinator.group.consumer_describe import describe, describe_missing
from headwater.coordinator.group.consumer_group import ConsumerGroup
from headwater.coordinator.group.consumer_member import (
    AWAY_EPOCH,
    JOINING_EPOCH,
    NOTHING_TOLD,
    ConsumerMember,
    MemberState,
)
from headwater.coordinator.group.consumer_partitions import NONE, Partitions
from headwater.coordinator.group.consumer_requests import (
    check_epoch,
    check_request,
    heartbeat_error,
    heartbeat_response,
    is_full,
    is_leaving,
    missed_response,
    owned_partitions,
    told_by,
)
from headwater.coordinator.group.consumer_steps import REGEX_REFRESH, REVOCATION, GroupSteps
from headwater.coordinator.group.consumer_target import preferred_assignor
from headwater.coordinator.group.group import DeadlineName
from headwater.coordinator.group.migration import upgrade
from headwater.coordinator.group.records import CONSUMER_GROUP, RecordType
from headwater.coordinator.outcome import Caller, Outcome, TopicDirectory
from headwater.protocol.errors import ApiError
from headwater.protocol.kafka_types import ErrorCode

from kio.schema.consumer_group_describe.v1.response import DescribedGroup  # isort: skip
from kio.schema.consumer_group_heartbeat.v1.request import ConsumerGroupHeartbeatRequest  # isort: skip

_RETRY_MS: Final = 1000
"""When a member is put out again whose leave could not be written."""


class ConsumerGroups:
    """Serves the consumer groups among a shard's groups, and the classic groups that become some."""

    def __init__(
        self,
        *,
        groups: dict[str, ClassicGroup | ConsumerGroup],
        deadlines: Deadlines[DeadlineName],
        config: Callable[[], BrokerAttributes],
        topics: TopicDirectory,
        new_id: Callable[[], str],
    ) -> None:
        self._groups = groups
        self._deadlines = deadlines
        self._config = config
        self._topics = topics
        self._new_id = new_id
        self._steps = GroupSteps(deadlines=deadlines, config=config, topics=topics)
        self.classic: Final = ClassicMembers(steps=self._steps, deadlines=deadlines, topics=topics, new_id=new_id)
        """For the classic requests of members of these groups."""

    def heartbeat(self, request: ConsumerGroupHeartbeatRequest, caller: Caller, now_ms: int) -> Outcome:
        """ConsumerGroupHeartbeat."""
        try:
            check_request(request, caller.version, self._steps.assignors)
            if is_leaving(request):
                return self._leave(request, now_ms)
            return self._beat(request, caller, now_ms)
        except ApiError as error:
            return Outcome(response=heartbeat_error(error))

    def _beat(self, request: ConsumerGroupHeartbeatRequest, caller: Caller, now_ms: int) -> Outcome:
        decision = self._open(request.group_id, joining=request.member_epoch == JOINING_EPOCH)
        self._steps.check_room(decision.group, request.member_id, request.instance_id)
        member_id = request.member_id or self._new_id()
        owned = owned_partitions(request)
        before = self._identify(decision, request, member_id, owned)
        told = told_by(request, caller, NOTHING_TOLD if before is None else before.told)
        after = self._steps.arrive(decision, member_id, told, owned, now_ms)
        # After an upgrade, the sessions of the members that were there begin anew too.
        for member in (after,) if decision.replaces is None else decision.group.members.values():
            self._steps.await_heartbeat(request.group_id, member, now_ms)
        is_news = is_full(request) or before is None or after.assigned != before.assigned
        response = heartbeat_response(
            member_id,
            after.epoch,
            heartbeat_interval_ms=self._config().group_consumer_heartbeat_interval_ms,
            assigned=after.assigned if is_news else None,
        )
        return decision.outcome(response)

    def _open(self, group_id: str, *, joining: bool) -> Decision:
        """Begins a decision about a group; a member that joins makes one, or makes it out of a classic group."""
        group = self._groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return Decision(group)
        if not joining:
            raise _no_group(group_id)
        if group is None or group.is_empty:
            return Decision(ConsumerGroup(group_id), replaces=group)
        return upgrade(group, self._config(), self._topics)

    def _identify(
        self, decision: Decision, request: ConsumerGroupHeartbeatRequest, member_id: str, owned: Partitions | None
    ) -> ConsumerMember | None:
        """The member that calls, None for a new one; ApiError when it is not what it says."""
        group, epoch, instance_id = decision.group, request.member_epoch, request.instance_id
        holder = None if instance_id is None else group.static_member(instance_id)
        if epoch != JOINING_EPOCH:
            member = group.check_member(member_id, instance_id)
            check_epoch(member, epoch, owned)
        elif holder is None:
            if member_id in group.members:
                check_epoch(group.members[member_id], epoch, owned)
        elif holder.is_classic or holder.epoch == AWAY_EPOCH:
            self._steps.take_place(decision, holder, member_id)
        elif holder.member_id != member_id or not missed_response(holder, epoch, owned):
            raise ApiError(ErrorCode.unreleased_instance_id, f"{instance_id!r} is in use by member {holder.member_id}")
        return decision.group.members.get(member_id)

    def _leave(self, request: ConsumerGroupHeartbeatRequest, now_ms: int) -> Outcome:
        group = self._groups.get(request.group_id)
        if not isinstance(group, ConsumerGroup):
            raise _no_group(request.group_id)
        member = group.check_member(request.member_id, request.instance_id)
        response = heartbeat_response(request.member_id, request.member_epoch)
        if request.member_epoch != AWAY_EPOCH:
            return self._steps.depart(group, [member.member_id], response, now_ms)
        decision = Decision(group)
        decision.set_current(replace(member, epoch=AWAY_EPOCH, state=MemberState.STABLE, pending=NONE))
        return decision.outcome(response)

    def describe(self, group_id: str) -> DescribedGroup:
        """One group of ConsumerGroupDescribe."""
        group = self._groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            return describe_missing(group_id)
        return describe(group, preferred_assignor(group, self._steps.assignors), self._topics)

    def replay(self, kind: RecordType, key: Any, value: Any) -> None:
        """Takes in a record of a consumer group; a tombstone of one that is not there means nothing."""
        group = self._groups.get(key.group)
        if not isinstance(group, ConsumerGroup):
            if value is None:
                return
            group = self._groups[key.group] = ConsumerGroup(key.group)
        if kind is CONSUMER_GROUP and value is None:
            del self._groups[key.group]
        else:
            group.apply(kind, key, value)

    def loaded(self, now_ms: int) -> Iterator[Outcome]:
        """After the log was replayed: sessions begin, and topics may have changed meanwhile."""
        for group in self._all():
            for member in group.members.values():
                self._steps.await_heartbeat(group.group_id, member, now_ms)
                if member.state is MemberState.UNREVOKED_PARTITIONS:
                    self._steps.await_revocation(group.group_id, member, now_ms)
        yield from self.topics_changed(now_ms)

    def topics_changed(self, now_ms: int) -> Iterator[Outcome]:
        """Topics came, went or grew: the groups that read them get a new epoch."""
        for group_id, _ in self.patterns():
            yield self.look_at_topics(group_id, now_ms)

    def patterns(self) -> list[tuple[str, frozenset[str]]]:
        """The groups, with the patterns that their members subscribe with."""
        return [(group.group_id, group.subscribed_patterns) for group in self._all()]

    def look_at_topics(self, group_id: str, now_ms: int) -> Outcome:
        """One group looks at its topics; nothing when it is not there any more."""
        group = self._groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            return Outcome()
        decision = Decision(group)
        self._steps.look_at_topics(decision, now_ms)
        return decision.outcome()

    def on_deadline(self, name: DeadlineName, now_ms: int) -> Outcome:
        """A deadline is due: whoever did not keep it is put out of the group."""
        group = self._groups.get(name.group_id)
        if not isinstance(group, ConsumerGroup):
            return Outcome()
        if name.what == REGEX_REFRESH:
            return self.look_at_topics(name.group_id, now_ms)
        member = group.members.get(name.member_id)
        if member is None or _is_kept(name, member):
            return Outcome()
        outcome = self._steps.depart(group, [member.member_id], None, now_ms)
        outcome.on_failure = lambda: self._try_again(name, now_ms)
        return outcome

    def _try_again(self, name: DeadlineName, now_ms: int) -> Outcome:
        self._deadlines.set(name, now_ms + _RETRY_MS)
        return Outcome()

    def _all(self) -> list[ConsumerGroup]:
        return [group for group in self._groups.values() if isinstance(group, ConsumerGroup)]


def _is_kept(name: DeadlineName, member: ConsumerMember) -> bool:
    """Whether the member has done what the deadline was for."""
    if name.what == REVOCATION:
        return member.state is not MemberState.UNREVOKED_PARTITIONS
    return name.what in (JOIN, SYNC) and not member.is_classic


def _no_group(group_id: str) -> ApiError:
    return ApiError(ErrorCode.group_id_not_found, f"there is no consumer group {group_id}")
