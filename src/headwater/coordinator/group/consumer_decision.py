"""A decision about a consumer group while it is being made.

Every record is played at once on a copy of the group, so that the next step sees what the steps before decided. The
group itself stays as it is until the records are written and replayed.
"""

from typing import Any, Final

from headwater.coordinator.group.classic_group import ClassicGroup
from headwater.coordinator.group.consumer_group import ConsumerGroup
from headwater.coordinator.group.consumer_member import ConsumerMember
from headwater.coordinator.group.consumer_partitions import Partitions
from headwater.coordinator.group.partition_rows import encoded
from headwater.coordinator.group.records import (
    CONSUMER_GROUP,
    CONSUMER_MEMBER,
    CURRENT_MEMBER,
    REGEX,
    TARGET_EPOCH,
    TARGET_MEMBER,
    ConsumerGroupValue,
    ConsumerMemberValue,
    GroupKey,
    MemberKey,
    RecordType,
    RegexKey,
    RegexValue,
    TargetEpochValue,
    TargetMemberValue,
)
from headwater.coordinator.outcome import Outcome
from headwater.protocol.kafka_types import ErrorCode


class Decision:
    """The records so far, and the group as it will be (`group`)."""

    def __init__(self, group: ConsumerGroup, *, replaces: ClassicGroup | None = None) -> None:
        """`replaces` is the classic group of this name, which goes when this one comes."""
        self.group = group
        self.replaces: Final = replaces
        self.records = [] if replaces is None else replaces.tombstones()
        self._is_copy = False

    def outcome(self, response: object = None) -> Outcome:
        """The decision as it is carried out. Whoever waits in the classic group is to join again."""
        waiters = [] if self.replaces is None else self.replaces.release_waiters(ErrorCode.rebalance_in_progress)
        return Outcome(response=response, records=self.records, answers=waiters)

    def set_epoch(self, epoch: int, metadata_hash: int) -> None:
        """The group's epoch, and what its topics look like in it."""
        self._write(
            CONSUMER_GROUP, GroupKey(self.group.group_id), ConsumerGroupValue(epoch=epoch, metadata_hash=metadata_hash)
        )

    def set_told(self, member_id: str, told: ConsumerMemberValue) -> None:
        """What a member told about itself."""
        self._write(CONSUMER_MEMBER, self._member_key(member_id), told)

    def set_current(self, member: ConsumerMember) -> None:
        """Where a member is on its way to its target."""
        self._write(CURRENT_MEMBER, self._member_key(member.member_id), member.current())

    def set_target(self, member_id: str, partitions: Partitions) -> None:
        """What a member is to have."""
        self._write(TARGET_MEMBER, self._member_key(member_id), TargetMemberValue(encoded(partitions)))

    def set_target_epoch(self, epoch: int) -> None:
        """The epoch that the target was made for."""
        self._write(TARGET_EPOCH, GroupKey(self.group.group_id), TargetEpochValue(epoch))

    def set_regex(self, pattern: str, matched: RegexValue | None) -> None:
        """What a pattern matched, None when nobody subscribes with it any longer."""
        self._write(REGEX, RegexKey(self.group.group_id, pattern), matched)

    def remove_member(self, member_id: str) -> None:
        """Takes a member out: first what it has, then what it was to have, then itself."""
        for kind in (CURRENT_MEMBER, TARGET_MEMBER, CONSUMER_MEMBER):
            self._write(kind, self._member_key(member_id), None)

    def _member_key(self, member_id: str) -> MemberKey:
        return MemberKey(self.group.group_id, member_id)

    def _write(self, kind: RecordType, key: Any, value: Any) -> None:
        if not self._is_copy:
            self.group = self.group.copy()
            self._is_copy = True
        self.group.apply(kind, key, value)
        self.records.append(kind.record(key, value))
