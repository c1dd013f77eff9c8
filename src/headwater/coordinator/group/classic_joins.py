"""JoinGroup of the classic protocol: who may join, and what joining leads to.

- v4: a member without an id is given one and told to join with it (KIP-394), so that a client whose first answer was
  lost does not leave a ghost behind. A static member (v5, KIP-345) is known by its instance id and needs no second try.
- A static member that comes back while its group is Stable takes its old place: its record is written with the new
  member id, nobody rebalances, and the old incarnation is fenced. v9 (KIP-814) tells a leader that came back so who the
  members are and that it need not assign; before, it is made to believe that it follows.
- A follower that joins again and wants what it wanted before is told where the group is; the leader that does so, and
  anybody who wants something else, begins a rebalance.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from headwater.config.broker_attributes import BrokerAttributes
from headwater.coordinator.group.classic_group import ClassicGroup
from headwater.coordinator.group.classic_member import ClassicMember
from headwater.coordinator.group.classic_rebalance import Rebalances, joined, member_list
from headwater.coordinator.group.classic_responses import join_error, join_success
from headwater.coordinator.group.classic_states import ClassicState
from headwater.coordinator.group.consumer_group import ConsumerGroup
from headwater.coordinator.group.group import LONGEST_TEXT_BYTES
from headwater.coordinator.group.records import ClassicProtocol
from headwater.coordinator.outcome import Caller, Outcome, Waiter
from headwater.protocol.errors import ApiError, ErrorCode

from kio.schema.join_group.v9.request import JoinGroupRequest  # isort: skip

_MILLISECOND = timedelta(milliseconds=1)
_FIRST_WITH_REQUIRED_ID = 4
_FIRST_WITH_SKIPPED_ASSIGNMENT = 9
_MOST_PROTOCOLS = 100
"""Clients have one for each of their assignors, a handful."""
_LONGEST_TEXT_BYTES = LONGEST_TEXT_BYTES - 37
"""Less than a record can hold, as a member id is longer than the client's id that it begins with."""


@dataclass(slots=True)
class _Attempt:
    """A join that is being decided."""

    group: ClassicGroup
    request: JoinGroupRequest
    caller: Caller
    waiter: Waiter
    now_ms: int
    outcome: Outcome

    def member(self, member_id: str) -> ClassicMember:
        """The member that joins, as it describes itself."""
        request, caller = self.request, self.caller
        session_timeout_ms = request.session_timeout // _MILLISECOND
        rebalance_timeout_ms = request.rebalance_timeout // _MILLISECOND
        return ClassicMember(
            member_id=member_id,
            instance_id=request.group_instance_id,
            client_id=caller.client_id,
            client_host=caller.host,
            # v0 has no rebalance timeout of its own.
            rebalance_timeout_ms=session_timeout_ms if rebalance_timeout_ms < 0 else rebalance_timeout_ms,
            session_timeout_ms=session_timeout_ms,
            protocols=tuple(ClassicProtocol(protocol.name, protocol.metadata) for protocol in request.protocols),
        )


class Joins:
    """Serves JoinGroup for the classic groups of a shard."""

    def __init__(
        self,
        *,
        groups: dict[str, ClassicGroup | ConsumerGroup],
        rebalances: Rebalances,
        config: Callable[[], BrokerAttributes],
        new_id: Callable[[], str],
    ) -> None:
        self._groups = groups
        self._rebalances = rebalances
        self._config = config
        self._new_id = new_id

    def check(self, request: JoinGroupRequest, caller: Caller) -> None:
        """What holds for every join, whatever the group; ApiError with what is wrong."""
        config = self._config()
        session_timeout_ms = request.session_timeout // _MILLISECOND
        if not config.group_min_session_timeout_ms <= session_timeout_ms <= config.group_max_session_timeout_ms:
            raise ApiError(ErrorCode.invalid_session_timeout)
        if len(request.protocols) > _MOST_PROTOCOLS:
            raise ApiError(ErrorCode.invalid_request)
        if sum([len(protocol.metadata) for protocol in request.protocols]) > config.message_max_bytes:
            # No record could hold it: the group would fail when its rebalance is through, for all members.
            raise ApiError(ErrorCode.invalid_request)
        names = [protocol.name for protocol in request.protocols]
        texts = (caller.client_id, request.group_instance_id or "", request.protocol_type, *names)
        if len(names) != len(set(names)) or any(len(text.encode()) > _LONGEST_TEXT_BYTES for text in texts):
            raise ApiError(ErrorCode.invalid_request)

    def join(self, request: JoinGroupRequest, caller: Caller, waiter: Waiter, now_ms: int) -> Outcome:
        """Lets a member in; ApiError if it may not."""
        known = self._groups.get(request.group_id)
        group = known if isinstance(known, ClassicGroup) else ClassicGroup(request.group_id)
        attempt = _Attempt(group, request, caller, waiter, now_ms, Outcome())
        if group is not known and request.member_id:
            raise ApiError(ErrorCode.unknown_member_id)
        if not self._has_room(group, request):
            self._refuse_and_remove(attempt)
        elif not group.supports(request.protocol_type, [protocol.name for protocol in request.protocols]):
            raise ApiError(ErrorCode.inconsistent_group_protocol)
        elif request.member_id:
            self._join_with_id(attempt)
        else:
            self._groups[group.group_id] = group
            self._join_without_id(attempt)
        return attempt.outcome

    def _has_room(self, group: ClassicGroup, request: JoinGroupRequest) -> bool:
        """Whether one more fits in, or is there already.

        During a rebalance those who have joined count: a group that is too large, because `group.max.size` was made
        smaller, loses the last ones to come.
        """
        member_id = request.member_id or group.static_members.get(request.group_instance_id or "", "")
        member = group.members.get(member_id)
        if group.state is ClassicState.PREPARING_REBALANCE:
            already_in, size = member is not None and member.join_waiter is not None, group.joined_count
        else:
            already_in, size = member is not None, len(group.members)
        return already_in or size < self._config().group_max_size

    def _refuse_and_remove(self, attempt: _Attempt) -> None:
        self._rebalances.remove(attempt.group, attempt.request.member_id, attempt.outcome)
        self._rebalances.complete_if_everybody_joined(attempt.group, attempt.now_ms, attempt.outcome)
        attempt.outcome.response = join_error(ErrorCode.group_max_size_reached, "")

    def _join_without_id(self, attempt: _Attempt) -> None:
        group, instance_id = attempt.group, attempt.request.group_instance_id
        member = attempt.member(f"{attempt.caller.client_id if instance_id is None else instance_id}-{self._new_id()}")
        old = None if instance_id is None else group.members.get(group.static_members.get(instance_id, ""))
        if old is not None:
            self._come_back(attempt, old, member)
        elif instance_id is None and attempt.caller.version >= _FIRST_WITH_REQUIRED_ID:
            self._rebalances.expect_join(group, member.member_id, member.session_timeout_ms, attempt.now_ms)
            attempt.outcome.response = join_error(ErrorCode.member_id_required, member.member_id)
        else:
            self._enter(attempt, member)

    def _join_with_id(self, attempt: _Attempt) -> None:
        group, request = attempt.group, attempt.request
        told = attempt.member(request.member_id)
        if request.member_id in group.expected_joins and request.group_instance_id is None:
            self._enter(attempt, told)
            return
        member = group.check_member(request.member_id, request.group_instance_id)
        is_leader_of_stable = group.state is ClassicState.STABLE and member.member_id == group.leader
        is_preparing = group.state is ClassicState.PREPARING_REBALANCE
        if member.protocols == told.protocols and not is_leader_of_stable and not is_preparing:
            attempt.outcome.response = joined(group, member.member_id)
            return
        group.update(member, told)
        self._await_rebalance(attempt, member)

    def _enter(self, attempt: _Attempt, member: ClassicMember) -> None:
        self._rebalances.add(attempt.group, member, attempt.request.protocol_type, attempt.now_ms)
        self._await_rebalance(attempt, member)

    def _await_rebalance(self, attempt: _Attempt, member: ClassicMember) -> None:
        attempt.outcome.answers += attempt.group.await_join(member, attempt.waiter)
        self._rebalances.prepare_or_complete(attempt.group, attempt.now_ms, attempt.outcome)

    def _come_back(self, attempt: _Attempt, old: ClassicMember, new: ClassicMember) -> None:
        """A static member is there again, under a new member id."""
        group = attempt.group
        self._rebalances.keep_session(group, new, attempt.now_ms)
        new.assignment = old.assignment
        members = [new if member is old else member for member in group.members.values()]
        if group.state is ClassicState.STABLE and group.chosen_protocol(members) == group.protocol:
            _take_place_again(attempt, old, new, members)
        else:
            attempt.outcome.answers += group.replace(old, new)
            self._await_rebalance(attempt, new)


def _take_place_again(attempt: _Attempt, old: ClassicMember, new: ClassicMember, members: list[ClassicMember]) -> None:
    """Writes the group with the new member id in the old one's place; once that is replayed, the old one is fenced."""
    group, outcome = attempt.group, attempt.outcome
    leader = new.member_id if group.leader == old.member_id else group.leader
    assignments = {member.member_id: member.assignment for member in members}
    outcome.records.append(
        group.record(group.to_value(attempt.now_ms, leader=leader, members=members, assignments=assignments))
    )
    told_members = leader == new.member_id and attempt.caller.version >= _FIRST_WITH_SKIPPED_ASSIGNMENT
    outcome.response = join_success(
        generation=group.generation,
        protocol_type=group.protocol_type,
        protocol=group.protocol or "",
        leader=(leader if told_members else group.leader) or "",
        member_id=new.member_id,
        members=member_list(members, group.protocol) if told_members else (),
        skip_assignment=told_members,
    )
    group.arriving = new

    def stay_away() -> Outcome:
        group.arriving = None
        return Outcome()

    outcome.on_failure = stay_away
