"""The phases of a rebalance of a classic group, and the deadlines that end them.

Every step adds what it comes to (records, answers) to the outcome that it is given.

- `prepare`: everybody is to join again. From Empty the group waits `group.initial.rebalance.delay.ms`, again and again
  while new members come, but no longer than the most patient member allows; otherwise until all have joined, at most
  for the rebalance timeout.
- `complete_join`: members that did not join are put out (static ones keep their place until their session ends), the
  next generation begins, the joins are answered. Without members the group is Empty, and that is written.
- Then each member has the rebalance timeout to ask for its assignment, or is put out.
"""

from collections.abc import Callable, Iterable

from headwater.config.broker_attributes import BrokerAttributes
from headwater.coordinator.deadlines import Deadlines
from headwater.coordinator.group.classic_group import ClassicGroup
from headwater.coordinator.group.classic_member import ClassicMember
from headwater.coordinator.group.classic_responses import join_success, sync_error
from headwater.coordinator.group.classic_states import ClassicEvent, ClassicState
from headwater.coordinator.group.group import DeadlineName
from headwater.coordinator.outcome import Answer, Outcome
from headwater.protocol.kafka_types import ErrorCode

from kio.schema.join_group.v9.response import JoinGroupResponse, JoinGroupResponseMember  # isort: skip

_NEW_MEMBER_TIMEOUT_MS = 5 * 60 * 1000
"""A member that waits in its first join is not bound to its session timeout, but does not wait longer than this."""
_PREPARING, _COMPLETING, _STABLE = (
    ClassicState.PREPARING_REBALANCE,
    ClassicState.COMPLETING_REBALANCE,
    ClassicState.STABLE,
)


class Rebalances:
    """Moves the groups of a shard through their rebalances."""

    def __init__(self, deadlines: Deadlines[DeadlineName], config: Callable[[], BrokerAttributes]) -> None:
        self._deadlines = deadlines
        self._config = config

    def keep_session(self, group: ClassicGroup, member: ClassicMember, now_ms: int) -> None:
        """The member was heard of: its session begins anew."""
        self._deadlines.set(_session(group, member.member_id), now_ms + member.session_timeout_ms)

    def expect_join(self, group: ClassicGroup, member_id: str, session_timeout_ms: int, now_ms: int) -> None:
        """An id was given out: its holder is to join with it within its session timeout."""
        group.expected_joins.add(member_id)
        self._deadlines.set(_session(group, member_id), now_ms + session_timeout_ms)

    def add(self, group: ClassicGroup, member: ClassicMember, protocol_type: str, now_ms: int) -> None:
        """Takes in a new member, whose join is about to wait."""
        if group.state is _PREPARING and group.is_first_rebalance:
            group.someone_joined_meanwhile = True
        member.is_new = True
        group.add(member, protocol_type)
        self._deadlines.set(_session(group, member.member_id), now_ms + _NEW_MEMBER_TIMEOUT_MS)

    def remove(self, group: ClassicGroup, member_id: str, outcome: Outcome) -> None:
        """Puts a member out; what follows from it is the caller's to start, once all are out that go."""
        self._deadlines.cancel(_session(group, member_id))
        outcome.answers += group.remove(member_id)

    def prepare_or_complete(self, group: ClassicGroup, now_ms: int, outcome: Outcome) -> None:
        """Begins a rebalance, or ends the joining of the one that is under way if everybody is there."""
        if group.state is _PREPARING:
            self.complete_if_everybody_joined(group, now_ms, outcome)
        else:
            self.prepare(group, now_ms, outcome)

    def complete_if_everybody_joined(self, group: ClassicGroup, now_ms: int, outcome: Outcome) -> None:
        """Ends the joining, if it is under way and nobody is missed; a first rebalance takes its time."""
        if group.state is _PREPARING and group.everybody_joined and not group.is_first_rebalance:
            self.complete_join(group, now_ms, outcome)

    def prepare(self, group: ClassicGroup, now_ms: int, outcome: Outcome) -> None:
        """Everybody is to join again; those who wait for an assignment are told so."""
        for member in group.members.values():
            if group.state is _COMPLETING:
                member.assignment = b""
            if member.sync_waiter is not None:
                outcome.answers.append(Answer(member.sync_waiter, sync_error(ErrorCode.rebalance_in_progress)))
                member.sync_waiter = None
                self.keep_session(group, member, now_ms)
        group.expected_syncs.clear()
        self._deadlines.cancel(_sync(group))
        group.is_first_rebalance = group.is_empty
        group.move(ClassicEvent.REBALANCE_NEEDED, now_ms)
        if group.is_first_rebalance:
            delay_ms = self._config().group_initial_rebalance_delay_ms
            group.initial_delay_ms = delay_ms
            group.initial_remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
            group.someone_joined_meanwhile = False
            self._deadlines.set(_join(group), now_ms + delay_ms)
        elif group.everybody_joined:
            self.complete_join(group, now_ms, outcome)
        else:
            self._deadlines.set(_join(group), now_ms + group.rebalance_timeout_ms)

    def complete_join(self, group: ClassicGroup, now_ms: int, outcome: Outcome) -> None:
        """The time to join is over, or everybody has joined: the next generation begins."""
        self._deadlines.cancel(_join(group))
        absent = [member for member in group.members.values() if member.join_waiter is None]
        for member in absent:
            if member.instance_id is None:
                self.remove(group, member.member_id, outcome)
        if not _elect_leader(group):
            # Only static members are left, all of them absent: they may be back before their sessions end.
            self._deadlines.set(_join(group), now_ms + group.rebalance_timeout_ms)
            return
        group.begin_generation(now_ms)
        if group.is_empty:
            outcome.records.append(group.record(group.to_value(now_ms, leader=None, members=(), assignments={})))
            return
        for member in group.members.values():
            waiter = group.take_join_waiter(member)
            if waiter is not None:
                outcome.answers.append(Answer(waiter, joined(group, member.member_id)))
            self.keep_session(group, member, now_ms)
            member.is_new = False
        self._deadlines.set(_sync(group), now_ms + group.rebalance_timeout_ms)

    def synced(self, group: ClassicGroup, member_id: str) -> None:
        """A member has asked for its assignment."""
        group.expected_syncs.discard(member_id)
        if not group.expected_syncs:
            self._deadlines.cancel(_sync(group))

    def forget(self, group: ClassicGroup) -> None:
        """The group is no more: none of its deadlines counts."""
        for member_id in (*group.members, *group.expected_joins):
            self._deadlines.cancel(_session(group, member_id))
        self._deadlines.cancel(_join(group))
        self._deadlines.cancel(_sync(group))

    def on_deadline(self, group: ClassicGroup, name: DeadlineName, now_ms: int, outcome: Outcome) -> None:
        """What follows when a deadline has passed."""
        match name.what:
            case "session":
                self._end_session(group, name.member_id, now_ms, outcome)
            case "join" if group.state is _PREPARING:
                self._end_join(group, now_ms, outcome)
            case "sync" if group.expected_syncs:
                for member_id in tuple(group.expected_syncs):
                    self.remove(group, member_id, outcome)
                self.prepare(group, now_ms, outcome)
            case "rebalance" if group.state is _STABLE:
                self.prepare(group, now_ms, outcome)

    def _end_session(self, group: ClassicGroup, member_id: str, now_ms: int, outcome: Outcome) -> None:
        """A member fell silent. One that waits for an answer is not silent, unless it is new and waited too long."""
        member = group.members.get(member_id)
        if member is None and member_id not in group.expected_joins:
            return
        if member is not None and member.is_waiting and not member.is_new:
            return
        self.remove(group, member_id, outcome)
        if group.state is _PREPARING:
            if group.everybody_joined:
                self.complete_join(group, now_ms, outcome)
        elif member is not None:
            self.prepare(group, now_ms, outcome)

    def _end_join(self, group: ClassicGroup, now_ms: int, outcome: Outcome) -> None:
        if group.is_first_rebalance and group.someone_joined_meanwhile and group.initial_remaining_ms:
            group.someone_joined_meanwhile = False
            remaining_ms, passed_ms = group.initial_remaining_ms, group.initial_delay_ms
            group.initial_delay_ms = min(self._config().group_initial_rebalance_delay_ms, remaining_ms)
            group.initial_remaining_ms = max(remaining_ms - passed_ms, 0)
            self._deadlines.set(_join(group), now_ms + group.initial_delay_ms)
        else:
            self.complete_join(group, now_ms, outcome)


def joined(group: ClassicGroup, member_id: str) -> JoinGroupResponse:
    """A member's place in the current generation; the leader is also told who else is in it."""
    return join_success(
        generation=group.generation,
        protocol_type=group.protocol_type,
        protocol=group.protocol or "",
        leader=group.leader or "",
        member_id=member_id,
        members=member_list(group.members.values(), group.protocol) if member_id == group.leader else (),
    )


def member_list(members: Iterable[ClassicMember], protocol: str | None) -> tuple[JoinGroupResponseMember, ...]:
    """The members of a generation, as its leader is told of them."""
    return tuple(
        JoinGroupResponseMember(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            metadata=member.metadata(protocol) or b"",
        )
        for member in members
    )


def _elect_leader(group: ClassicGroup) -> bool:
    """Makes a member that has joined the leader, if the old one has not; False when nobody of those there has."""
    if not group.members:
        return True
    leader = group.members.get(group.leader or "")
    if leader is None or leader.join_waiter is None:
        present = (member.member_id for member in group.members.values() if member.join_waiter is not None)
        elected = next(present, None)
        if elected is None:
            return False
        group.leader = elected
    return True


def _session(group: ClassicGroup, member_id: str) -> DeadlineName:
    return DeadlineName("classic", "session", group.group_id, member_id)


def _join(group: ClassicGroup) -> DeadlineName:
    return DeadlineName("classic", "join", group.group_id)


def _sync(group: ClassicGroup) -> DeadlineName:
    return DeadlineName("classic", "sync", group.group_id)
