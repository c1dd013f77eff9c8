"""A consumer group: what its records say. Records are the only way to change it.

A decision is played on a copy first (see `consumer_decision`), and on the group itself once it is written; a start
plays the whole log. A compacted log tells things in another order than they happened, so each kind of record stands
for itself: a member may be known by its partitions before it is known by its subscription.
"""

from dataclasses import replace
from typing import Any, Final, Literal

from headwater.coordinator.group.consumer_member import LEAVING_EPOCH, ConsumerMember, Wish
from headwater.coordinator.group.consumer_partitions import NONE, Partition, Partitions
from headwater.coordinator.group.consumer_protocol import PROTOCOL_TYPE
from headwater.coordinator.group.partition_rows import to_partitions
from headwater.coordinator.group.records import (
    CONSUMER_GROUP,
    CONSUMER_MEMBER,
    CURRENT_MEMBER,
    REGEX,
    TARGET_EPOCH,
    TARGET_MEMBER,
    ConsumerGroupValue,
    ConsumerMemberValue,
    CurrentMemberValue,
    GroupKey,
    MemberKey,
    RecordType,
    RegexKey,
    RegexValue,
    TargetMemberValue,
)
from headwater.coordinator.outcome import CoordinatorRecord
from headwater.protocol.errors import ApiError, ErrorCode


class ConsumerGroup:
    """One group of the consumer protocol, in which members of the classic protocol may take part."""

    def __init__(self, group_id: str) -> None:
        self.group_id: Final = group_id
        self.epoch = 0
        """Rises when the members, their subscriptions or their topics change."""
        self.metadata_hash = 0
        """Of the topics that are subscribed to, as they were when the epoch rose last."""
        self.target_epoch = 0
        """The epoch that the target was made for."""
        self.members: dict[str, ConsumerMember] = {}
        self.targets: dict[str, Partitions] = {}
        self.regexes: dict[str, RegexValue] = {}
        """What the members' patterns matched."""
        self.wishes: dict[Wish, int] = {}
        """What the members ask for, and how many ask for it."""
        self._holders: dict[Partition, str] = {}
        self._instances: dict[str, str] = {}
        self._topics: frozenset[str] | None = None

    def copy(self) -> "ConsumerGroup":
        """A group that can be changed without this one."""
        twin = ConsumerGroup(self.group_id)
        twin.epoch, twin.metadata_hash, twin.target_epoch = self.epoch, self.metadata_hash, self.target_epoch
        twin.members, twin.targets, twin.regexes = self.members.copy(), self.targets.copy(), self.regexes.copy()
        twin.wishes = self.wishes.copy()
        twin._holders, twin._instances = self._holders.copy(), self._instances.copy()
        twin._topics = self.subscribed_topics
        return twin

    def apply(self, kind: RecordType, key: Any, value: Any) -> None:
        """Takes in a record of this group; a tombstone has no value."""
        # Most records are targets: the first to be asked for.
        if kind is TARGET_MEMBER:
            self._apply_target(key.member_id, value)
        elif kind is CURRENT_MEMBER:
            self._apply_current(key.member_id, value)
        elif kind is CONSUMER_MEMBER:
            self._apply_member(key.member_id, value)
        elif kind is CONSUMER_GROUP:
            self._apply_group(value)
        elif kind is TARGET_EPOCH:
            self.target_epoch = 0 if value is None else value.epoch
        elif kind is REGEX:
            self._apply_regex(key.pattern, value)

    def _apply_group(self, value: ConsumerGroupValue | None) -> None:
        if value is not None:
            self.epoch, self.metadata_hash = value.epoch, value.metadata_hash

    def _apply_member(self, member_id: str, told: ConsumerMemberValue | None) -> None:
        before = self.members.get(member_id)
        if before is not None and self._instances.get(before.told.instance_id or "") == member_id:
            del self._instances[before.told.instance_id or ""]
        if told is None:
            self._hold(member_id, NONE)
            self.members.pop(member_id, None)
            if before is not None:
                self._drop_wish(Wish.of(before.told))
        else:
            self._put(ConsumerMember(member_id=member_id, told=told) if before is None else before.with_told(told))
            if told.instance_id is not None:
                self._instances[told.instance_id] = member_id

    def _apply_target(self, member_id: str, value: TargetMemberValue | None) -> None:
        if value is None:
            self.targets.pop(member_id, None)
        else:
            self.targets[member_id] = to_partitions(value.partitions)

    def _apply_current(self, member_id: str, value: CurrentMemberValue | None) -> None:
        before = self.members.get(member_id)
        if value is not None:
            member = (before or ConsumerMember(member_id=member_id)).with_current(value)
        elif before is not None:
            member = replace(before, epoch=LEAVING_EPOCH, previous_epoch=LEAVING_EPOCH, assigned=NONE, pending=NONE)
        else:
            return
        self._hold(member_id, member.holds)
        self._put(member)

    def _apply_regex(self, pattern: str, value: RegexValue | None) -> None:
        if value is None:
            self.regexes.pop(pattern, None)
        else:
            self.regexes[pattern] = value
        self._topics = None

    def _put(self, member: ConsumerMember) -> None:
        before = self.members.get(member.member_id)
        self.members[member.member_id] = member
        if before is None:
            self._add_wish(Wish.of(member.told))
        elif before.told is not member.told:
            self._add_wish(Wish.of(member.told))
            self._drop_wish(Wish.of(before.told))

    def _add_wish(self, wish: Wish) -> None:
        known = self.wishes.get(wish, 0)
        self.wishes[wish] = known + 1
        if not known and self._topics is not None:
            self._topics |= self.topics_in(wish)

    def _drop_wish(self, wish: Wish) -> None:
        self.wishes[wish] -= 1
        if not self.wishes[wish]:
            del self.wishes[wish]
            self._topics = None

    def _hold(self, member_id: str, partitions: Partitions) -> None:
        before = self.members.get(member_id)
        if before is not None:
            for partition in before.holds - partitions:
                if self._holders.get(partition) == member_id:
                    del self._holders[partition]
        for partition in partitions:
            self._holders[partition] = member_id

    @property
    def kind(self) -> Literal["consumer"]:
        """The consumer protocol."""
        return "consumer"

    @property
    def state_name(self) -> str:
        """Kafka's word for the state."""
        if not self.members:
            return "Empty"
        if self.epoch > self.target_epoch:
            return "Assigning"
        if self.is_reconciled:
            return "Stable"
        return "Reconciling"

    @property
    def protocol_type(self) -> str:
        """Always `consumer`."""
        return PROTOCOL_TYPE

    @property
    def is_empty(self) -> bool:
        """Whether there are no members."""
        return not self.members

    @property
    def is_reconciled(self) -> bool:
        """Whether every member has its target."""
        return all(member.is_reconciled_to(self.target_epoch) for member in self.members.values())

    @property
    def subscribed_topics(self) -> frozenset[str]:
        """The names of all topics that a member subscribes to, whether they exist or not."""
        if self._topics is None:
            self._topics = frozenset().union(*map(self.topics_in, self.wishes))
        return self._topics

    @property
    def subscribed_patterns(self) -> frozenset[str]:
        """The patterns that members subscribe with."""
        return frozenset(wish.regex for wish in self.wishes if wish.regex)

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        """The names of the topics that a member subscribes to, by name and by pattern."""
        return self.topics_in(Wish.of(member.told))

    def topics_in(self, wish: Wish) -> frozenset[str]:
        """The names of the topics that whoever asks for this subscribes to."""
        names = frozenset(wish.topics)
        matched = self.regexes.get(wish.regex or "")
        return names if matched is None else names.union(matched.topics)

    def target_of(self, member_id: str) -> Partitions:
        """The partitions that a member is to have."""
        return self.targets.get(member_id, NONE)

    def holder(self, partition: Partition) -> str | None:
        """The member that has a partition, or has not given it back yet."""
        return self._holders.get(partition)

    def waits_for_others(self, member: ConsumerMember) -> bool:
        """Whether a partition of the member's target is still held by another."""
        return any(
            self.holder(partition) not in (None, member.member_id)
            for partition in self.target_of(member.member_id) - member.assigned
        )

    def static_member(self, instance_id: str) -> ConsumerMember | None:
        """The member that has this instance id."""
        return self.members.get(self._instances.get(instance_id, ""))

    def check_member(self, member_id: str, instance_id: str | None) -> ConsumerMember:
        """The member that calls; ApiError when it is none, or when another has its instance id."""
        if instance_id is not None:
            member = self.static_member(instance_id)
            if member is None:
                raise ApiError(ErrorCode.unknown_member_id, f"no member of {self.group_id} is {instance_id!r}")
            if member.member_id != member_id:
                raise ApiError(
                    ErrorCode.fenced_instance_id, f"{instance_id!r} is now member {member.member_id}, not {member_id}"
                )
            return member
        known = self.members.get(member_id)
        if known is None:
            raise ApiError(ErrorCode.unknown_member_id, f"{member_id!r} is not a member of {self.group_id}")
        return known

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member subscribes to `topic`."""
        return topic in self.subscribed_topics

    def check_offset_commit(
        self, *, member_id: str, instance_id: str | None, generation_or_epoch: int, version: int, transactional: bool
    ) -> None:
        """A commit must come from a member in its epoch; without one, the group must have no members.

        Old clients tell nothing of themselves when they commit offsets in a transaction.
        """
        if generation_or_epoch < 0 and not self.members:
            return
        if transactional and generation_or_epoch == -1 and not member_id and instance_id is None:
            return
        member = self.check_member(member_id, None)
        if not transactional and not member.is_classic and version < 9:
            raise ApiError(
                ErrorCode.unsupported_version, "members of the consumer protocol commit with version 9 or newer"
            )
        _check_epoch(member, generation_or_epoch)

    def check_offset_fetch(self, *, member_id: str | None, member_epoch: int) -> None:
        """Anybody may, but who says to be a member must be in its epoch."""
        if member_id is not None or member_epoch >= 0:
            _check_epoch(self.check_member(member_id or "", None), member_epoch)

    def check_offset_delete(self) -> None:
        """What members read is known, so offsets of other topics may go at any time."""

    def check_deletable(self) -> None:
        """Only a group without members may be deleted."""
        if self.members:
            raise ApiError(ErrorCode.non_empty_group)

    def offset_expiry_base_ms(self, commit_timestamp_ms: int) -> int:
        """The retention of an offset that nobody reads on from counts from its commit."""
        return commit_timestamp_ms

    def tombstones(self) -> list[CoordinatorRecord]:
        """The records that take the group away."""
        members = sorted(self.members.keys() | self.targets.keys())
        group, keys = GroupKey(self.group_id), [MemberKey(self.group_id, member_id) for member_id in members]
        return [
            *(CURRENT_MEMBER.record(key, None) for key in keys),
            *(TARGET_MEMBER.record(key, None) for key in keys),
            TARGET_EPOCH.record(group, None),
            *(CONSUMER_MEMBER.record(key, None) for key in keys),
            *(REGEX.record(RegexKey(self.group_id, pattern), None) for pattern in sorted(self.regexes)),
            CONSUMER_GROUP.record(group, None),
        ]


def _check_epoch(member: ConsumerMember, epoch: int) -> None:
    if epoch != member.epoch:
        code = ErrorCode.illegal_generation if member.is_classic else ErrorCode.stale_member_epoch
        raise ApiError(code, f"member {member.member_id} is in epoch {member.epoch}, not {epoch}")
