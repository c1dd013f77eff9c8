"""A classic group: its members, and what the log says of it.

`apply` takes in the group's record and is the only way for a generation's assignment to become the group's. Everything
else that changes here (who has joined, who is expected, which generation is being formed) is forgotten by a restart:
then the group is what its last record says. Deadlines and phases are `classic_rebalance`'s.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Final, Literal

from headwater.coordinator.group.classic_member import ClassicMember
from headwater.coordinator.group.classic_responses import join_error, sync_error
from headwater.coordinator.group.classic_states import ClassicEvent, ClassicState, next_state
from headwater.coordinator.group.classic_subscriptions import subscribed_topics
from headwater.coordinator.group.consumer_protocol import PROTOCOL_TYPE
from headwater.coordinator.group.records import CLASSIC_GROUP, ClassicGroupValue, GroupKey
from headwater.coordinator.outcome import Answer, CoordinatorRecord, Waiter
from headwater.protocol.errors import ApiError, ErrorCode


class ClassicGroup:
    """One group. An instance without members or protocol type only keeps offsets (a "simple" group)."""

    def __init__(self, group_id: str) -> None:
        self.group_id: Final = group_id
        self.state = ClassicState.EMPTY
        self.state_since_ms: int | None = None
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members: dict[str, ClassicMember] = {}
        self.static_members: dict[str, str] = {}
        """Member ids by instance id."""
        self.expected_joins: set[str] = set()
        """Ids that were given out and whose holders have not joined with them yet."""
        self.expected_syncs: set[str] = set()
        """Members of this generation that have not asked for their assignment yet."""
        self.arriving: ClassicMember | None = None
        """A static member that takes its place again as soon as its record is written."""
        self.is_first_rebalance = False
        """Whether the group comes from Empty: then it waits a while for more members."""
        self.initial_delay_ms = 0
        self.initial_remaining_ms = 0
        self.someone_joined_meanwhile = False
        self.saved: ClassicGroupValue | None = None
        """The group's last record, which is what it is after a restart."""
        self._joined_count = 0
        self._supporters = Counter[str]()
        self._topics: frozenset[str] | None = None
        self._topics_known = False

    @property
    def kind(self) -> Literal["classic"]:
        """The classic protocol."""
        return "classic"

    @property
    def state_name(self) -> str:
        """Kafka's word for the state."""
        return self.state.value

    @property
    def is_empty(self) -> bool:
        """Whether the group is in the state Empty."""
        return self.state is ClassicState.EMPTY

    @property
    def everybody_joined(self) -> bool:
        """Whether every member has joined this rebalance, and everybody who was given an id."""
        return self._joined_count == len(self.members) and not self.expected_joins

    @property
    def joined_count(self) -> int:
        """Members whose join waits to be answered."""
        return self._joined_count

    @property
    def rebalance_timeout_ms(self) -> int:
        """How long a rebalance may take: as long as the most patient member allows."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def move(self, event: ClassicEvent, now_ms: int) -> None:
        """Changes the state, as the table says."""
        self.state = next_state(self.state, event)
        self.state_since_ms = now_ms

    def begin_generation(self, now_ms: int) -> None:
        """Counts on: with the members that are there, or as a group without any."""
        self.generation += 1
        self.protocol = self.chosen_protocol(self.members.values()) if self.members else None
        self._topics_known = False
        self.is_first_rebalance = False
        self.expected_syncs = set(self.members)
        self.move(ClassicEvent.MEMBERS_JOINED if self.members else ClassicEvent.NOBODY_LEFT, now_ms)

    def apply(self, value: ClassicGroupValue) -> None:
        """Makes the group what its record says; members that are known keep what a record does not have."""
        self.state = next_state(
            self.state, ClassicEvent.MEMBERS_SAVED if value.members else ClassicEvent.EMPTINESS_SAVED
        )
        self.state_since_ms = None if value.state_timestamp_ms == -1 else value.state_timestamp_ms
        self.generation, self.protocol, self.leader = value.generation, value.protocol, value.leader
        self.protocol_type = value.protocol_type or None
        known = self.members
        if self.arriving is not None:
            known[self.arriving.member_id] = self.arriving
            self.arriving = None
        self.members = {}
        self.static_members.clear()
        self._supporters.clear()
        for saved in value.members:
            member = known.get(saved.member_id) or ClassicMember.from_value(saved, value.protocol)
            member.assignment = saved.assignment
            self._enter(member)
        self.expected_syncs.intersection_update(self.members)
        self.saved = value

    def end(self) -> None:
        """Makes the group Dead: whoever still holds it can do nothing with it."""
        self.state = next_state(self.state, ClassicEvent.REMOVED)

    def to_value(
        self,
        now_ms: int,
        *,
        leader: str | None,
        members: Iterable[ClassicMember] = (),
        assignments: Mapping[str, bytes],
    ) -> ClassicGroupValue:
        """The group as a record keeps it, with these members and their assignments."""
        return ClassicGroupValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol,
            leader=leader,
            state_timestamp_ms=now_ms,
            members=tuple(member.to_value(self.protocol, assignments.get(member.member_id, b"")) for member in members),
        )

    def record(self, value: ClassicGroupValue) -> CoordinatorRecord:
        """The record of the group with this value."""
        return CLASSIC_GROUP.record(GroupKey(self.group_id), value)

    def tombstones(self) -> list[CoordinatorRecord]:
        """The record that takes the group away."""
        return [CLASSIC_GROUP.record(GroupKey(self.group_id), None)]

    def add(self, member: ClassicMember, protocol_type: str) -> None:
        """Takes a new member in; the first one leads and says what the group does."""
        if not self.members:
            self.protocol_type = protocol_type
        self.expected_joins.discard(member.member_id)
        self._enter(member)
        if self.leader is None:
            self.leader = member.member_id

    def remove(self, member_id: str) -> list[Answer]:
        """Puts a member out, or forgets an id that was given out; whoever waits for it hears UNKNOWN_MEMBER_ID."""
        self.expected_joins.discard(member_id)
        member = self.members.get(member_id)
        if member is None:
            return []
        answers = self.answer_waiters(member, ErrorCode.unknown_member_id)
        self._take_out(member)
        self.expected_syncs.discard(member_id)
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        return answers

    def replace(self, old: ClassicMember, new: ClassicMember) -> list[Answer]:
        """Gives a static member's place to its new incarnation; the old one is fenced if it waits."""
        answers = self.answer_waiters(old, ErrorCode.fenced_instance_id)
        self._take_out(old)
        self.expected_syncs.discard(old.member_id)
        self._enter(new)
        if self.leader == old.member_id:
            self.leader = new.member_id
        return answers

    def update(self, member: ClassicMember, new: ClassicMember) -> None:
        """Takes over what a member tells when it joins again."""
        self._withdraw_support(member)
        member.protocols = new.protocols
        self._support(member)
        member.rebalance_timeout_ms = new.rebalance_timeout_ms
        member.session_timeout_ms = new.session_timeout_ms

    def await_join(self, member: ClassicMember, waiter: Waiter) -> list[Answer]:
        """Parks a join; an earlier one of the same member, whose client has given it up, is answered."""
        answers = []
        if member.join_waiter is None:
            self._joined_count += 1
        else:
            error = join_error(ErrorCode.rebalance_in_progress, member.member_id)
            answers.append(Answer(member.join_waiter, error))
        member.join_waiter = waiter
        return answers

    def take_join_waiter(self, member: ClassicMember) -> Waiter | None:
        """Whoever waits for the member's join; it is not waited for any longer."""
        waiter, member.join_waiter = member.join_waiter, None
        if waiter is not None:
            self._joined_count -= 1
        return waiter

    def answer_waiters(self, member: ClassicMember, code: ErrorCode) -> list[Answer]:
        """Ends what waits for a member with an error."""
        answers = []
        if (waiter := self.take_join_waiter(member)) is not None:
            answers.append(Answer(waiter, join_error(code, member.member_id)))
        if member.sync_waiter is not None:
            answers.append(Answer(member.sync_waiter, sync_error(code)))
            member.sync_waiter = None
        return answers

    def release_waiters(self, code: ErrorCode) -> list[Answer]:
        """Ends everything that waits with an error."""
        return [answer for member in self.members.values() for answer in self.answer_waiters(member, code)]

    def supports(self, protocol_type: str, names: Collection[str]) -> bool:
        """Whether a member with these protocols fits: one of them must be everybody's."""
        if self.is_empty:
            return bool(protocol_type and names)
        size = len(self.members)
        return protocol_type == self.protocol_type and any(self._supporters[name] == size for name in names)

    def chosen_protocol(self, members: Collection[ClassicMember]) -> str:
        """The protocol that most of `members` like best, of those that all of them support."""
        support = Counter(supported.name for member in members for supported in member.protocols)
        votes = Counter(
            next(supported.name for supported in member.protocols if support[supported.name] == len(members))
            for member in members
        )
        return max(votes, key=votes.__getitem__)

    def check_member(self, member_id: str, instance_id: str | None) -> ClassicMember:
        """The member that calls; ApiError when it is none, or when another holds its instance id."""
        if instance_id is not None:
            holder = self.static_members.get(instance_id)
            if holder is not None and holder != member_id:
                raise ApiError(ErrorCode.fenced_instance_id)
            if holder is None:
                raise ApiError(ErrorCode.unknown_member_id)
        member = self.members.get(member_id)
        if member is None:
            raise ApiError(ErrorCode.unknown_member_id)
        return member

    def check_generation(self, generation: int) -> None:
        """ApiError when a member speaks of another generation."""
        if generation != self.generation:
            raise ApiError(ErrorCode.illegal_generation)

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member reads `topic`. What a consumer that cannot be understood reads is anything."""
        if self.protocol_type != PROTOCOL_TYPE:
            return False
        if not self._topics_known:
            self._topics = subscribed_topics(member.metadata(self.protocol) for member in self.members.values())
            self._topics_known = True
        return self._topics is None or topic in self._topics

    def check_offset_commit(
        self, *, member_id: str, instance_id: str | None, generation_or_epoch: int, version: int, transactional: bool
    ) -> None:
        """A commit without generation is for groups without members; others must come from the generation's members.

        While the group waits for its assignment a member is to take up the new one first. The offsets of a transaction
        were consumed before it: they may be committed at any time, and old clients tell nothing of themselves.
        """
        if generation_or_epoch < 0 and self.is_empty:
            return
        if generation_or_epoch >= 0 or member_id or instance_id is not None:
            self.check_member(member_id, instance_id)
            self.check_generation(generation_or_epoch)
        elif not transactional:
            raise ApiError(ErrorCode.unknown_member_id)
        if not transactional and self.state is ClassicState.COMPLETING_REBALANCE:
            raise ApiError(ErrorCode.rebalance_in_progress)

    def check_offset_fetch(self, *, member_id: str | None, member_epoch: int) -> None:
        """Anybody may."""

    def check_offset_delete(self) -> None:
        """Whether it can be known which topics are read: only then may offsets go while there are members."""
        if not self.is_empty and self.protocol_type != PROTOCOL_TYPE:
            raise ApiError(ErrorCode.non_empty_group)

    def check_deletable(self) -> None:
        """Only a group without members may be deleted."""
        if not self.is_empty:
            raise ApiError(ErrorCode.non_empty_group)

    def offset_expiry_base_ms(self, commit_timestamp_ms: int) -> int | None:
        """From when on the retention of an offset counts.

        For a group that lost its members, from that moment; for one that has members, only when it is known what they
        read, and from the commit; for one that only keeps offsets, from the commit.
        """
        if self.protocol_type is None:
            return commit_timestamp_ms
        if self.is_empty:
            return commit_timestamp_ms if self.state_since_ms is None else self.state_since_ms
        if self.protocol_type == PROTOCOL_TYPE and self.state is ClassicState.STABLE:
            return commit_timestamp_ms
        return None

    def _enter(self, member: ClassicMember) -> None:
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        self._support(member)

    def _take_out(self, member: ClassicMember) -> None:
        del self.members[member.member_id]
        if member.instance_id is not None and self.static_members.get(member.instance_id) == member.member_id:
            del self.static_members[member.instance_id]
        self._withdraw_support(member)

    def _support(self, member: ClassicMember) -> None:
        self._supporters.update(supported.name for supported in member.protocols)
        self._topics_known = False

    def _withdraw_support(self, member: ClassicMember) -> None:
        for supported in member.protocols:
            self._supporters[supported.name] -= 1
            if not self._supporters[supported.name]:
                del self._supporters[supported.name]
        self._topics_known = False
