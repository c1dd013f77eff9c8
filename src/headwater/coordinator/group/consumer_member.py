"""A member of a consumer group: what it told about itself, and where it is on its way to its target."""

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final, NamedTuple

from headwater.coordinator.group.consumer_partitions import NONE, Partitions
from headwater.coordinator.group.partition_rows import encoded, to_partitions
from headwater.coordinator.group.records import ConsumerMemberValue, CurrentMemberValue

JOINING_EPOCH: Final = 0
LEAVING_EPOCH: Final = -1
AWAY_EPOCH: Final = -2
"""Of a static member that will be back: its partitions wait for it until its session ends."""


class MemberState(IntEnum):
    """Where a member is, in the numbers that records have."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """It was told to give partitions back and has not said that it did."""
    UNRELEASED_PARTITIONS = 2
    """It waits for partitions that others have not given back."""
    UNKNOWN = 127
    """Written by a newer broker."""

    @classmethod
    def _missing_(cls, value: object) -> "MemberState":
        return cls.UNKNOWN


class Wish(NamedTuple):
    """What a member asks for; most members of a group ask for the same."""

    topics: tuple[str, ...]
    regex: str | None
    assignor: str | None

    @classmethod
    def of(cls, told: ConsumerMemberValue) -> "Wish":
        """What a member that told this asks for."""
        return cls(told.subscribed_topics, told.subscribed_regex, told.server_assignor)


NOTHING_TOLD: Final = ConsumerMemberValue(client_id="", client_host="", subscribed_topics=())


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMember:
    """One member, changed by making another."""

    member_id: str
    told: ConsumerMemberValue = NOTHING_TOLD
    epoch: int = JOINING_EPOCH
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: Partitions = NONE
    """What it may read, as it was told or will be with the next response."""
    pending: Partitions = NONE
    """What it was told to give back."""

    @property
    def holds(self) -> Partitions:
        """What nobody else may have yet."""
        return self.assigned | self.pending if self.pending else self.assigned

    @property
    def is_classic(self) -> bool:
        """Whether it speaks the classic protocol."""
        return self.told.classic is not None

    def is_reconciled_to(self, target_epoch: int) -> bool:
        """Whether it has what the target of that epoch gives it."""
        return self.state is MemberState.STABLE and self.epoch == target_epoch

    def moved(
        self, epoch: int, state: MemberState, assigned: Partitions, pending: Partitions = NONE
    ) -> "ConsumerMember":
        """The member in its next state; the epoch that it leaves is still good for a client that missed a response."""
        previous_epoch = self.previous_epoch if epoch == self.epoch else self.epoch
        return ConsumerMember(
            member_id=self.member_id,
            told=self.told,
            epoch=epoch,
            previous_epoch=previous_epoch,
            state=state,
            assigned=assigned,
            pending=pending,
        )

    def settled(self, epoch: int, partitions: Partitions) -> "ConsumerMember":
        """The member with these partitions, as if it had never had others."""
        return replace(self, epoch=epoch, previous_epoch=epoch, state=MemberState.STABLE, assigned=partitions)

    def with_told(self, told: ConsumerMemberValue) -> "ConsumerMember":
        """The member after it told something else about itself."""
        return ConsumerMember(
            member_id=self.member_id,
            told=told,
            epoch=self.epoch,
            previous_epoch=self.previous_epoch,
            state=self.state,
            assigned=self.assigned,
            pending=self.pending,
        )

    def with_current(self, value: CurrentMemberValue) -> "ConsumerMember":
        """The member as a record says it is."""
        # Not by `replace`, which takes several times as long: a rebalance makes thousands.
        return ConsumerMember(
            member_id=self.member_id,
            told=self.told,
            epoch=value.epoch,
            previous_epoch=value.previous_epoch,
            state=value.state if type(value.state) is MemberState else MemberState(value.state),
            assigned=to_partitions(value.assigned),
            pending=to_partitions(value.pending_revocation),
        )

    def current(self) -> CurrentMemberValue:
        """What a record keeps of where the member is."""
        return CurrentMemberValue(
            epoch=self.epoch,
            previous_epoch=self.previous_epoch,
            state=self.state,
            assigned=encoded(self.assigned),
            pending_revocation=encoded(self.pending),
        )
