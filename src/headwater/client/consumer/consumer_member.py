"""What a member of the consumer protocol (KIP-848) is, and what each heartbeat makes of it. Sans-IO: no clock.

    OUT            no member                                   -> join
    JOINING        epoch 0 goes out with all there is to say   -> answered
    STABLE         has what the group wants it to have         -> an answer with another target
    RECONCILING    the target differs from what it has         -> applied, by a poll
    ACKNOWLEDGING  has the new assignment, must say so          -> the next heartbeat says it
    FENCED, STALE  put out by the group, or gone by itself for want of polls: partitions are lost -> join
    FAILED         refused for good                            -> leave

A heartbeat names only what has changed since the last that arrived; after one that failed, and when joining, all.
"""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from headwater.protocol.kafka_types import ErrorCode

Assignment = Mapping[uuid.UUID, frozenset[int]]
"""Partitions by topic id."""

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
LEAVE_FOR_A_WHILE_EPOCH: Final = -2


class State(Enum):
    """Where a member stands."""

    OUT = auto()
    JOINING = auto()
    STABLE = auto()
    RECONCILING = auto()
    ACKNOWLEDGING = auto()
    FENCED = auto()
    STALE = auto()
    FAILED = auto()


IN_GROUP: Final = frozenset({State.JOINING, State.STABLE, State.RECONCILING, State.ACKNOWLEDGING})
_AGAIN: Final = frozenset(
    {
        ErrorCode.not_coordinator,
        ErrorCode.coordinator_not_available,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.request_timed_out,
    }
)
_PUT_OUT: Final = frozenset({ErrorCode.fenced_member_epoch, ErrorCode.unknown_member_id})


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a member subscribes to: topics by name, or a pattern that the coordinator matches."""

    topics: frozenset[str] = frozenset()
    regex: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """One heartbeat; None where nothing has changed, `full` with all that never changes."""

    member_id: str
    epoch: int
    full: bool = False
    wanted: Wanted | None = None
    owned: Assignment | None = None


class ConsumerMember:
    """See the module's docstring. The id is the member's own and never changes."""

    def __init__(self, member_id: str) -> None:
        self.member_id = member_id
        self.epoch = JOIN_EPOCH
        self.state = State.OUT
        self.target: Assignment = {}
        self.owned: Assignment = {}
        self._told_wanted: Wanted | None = None
        self._told_owned: Assignment | None = None

    def join(self) -> None:
        """Begins, or begins anew; whoever calls has given all partitions up."""
        self.state = State.JOINING
        self.epoch = JOIN_EPOCH
        self.target = self.owned = {}
        self._forget_what_was_told()

    def has_news(self, wanted: Wanted) -> bool:
        """Whether there is something to say that should not wait for the next regular heartbeat."""
        if self.state is State.ACKNOWLEDGING:
            return True
        return self.state in IN_GROUP and self._told_wanted not in (None, wanted)

    def beat(self, wanted: Wanted) -> Beat:
        """The next heartbeat."""
        full = self.state is State.JOINING or self._told_wanted is None
        beat = Beat(
            member_id=self.member_id,
            epoch=self.epoch,
            full=full,
            wanted=wanted if full or wanted != self._told_wanted else None,
            owned=self.owned if full or self.owned != self._told_owned else None,
        )
        self._told_wanted, self._told_owned = wanted, self.owned
        if self.state is State.ACKNOWLEDGING:
            self._settle()
        return beat

    def answered(self, epoch: int, assignment: Assignment | None) -> None:
        """The coordinator took the heartbeat; `assignment` is what we should have, if that has changed."""
        if self.state not in IN_GROUP:
            return
        self.epoch = epoch
        if assignment is not None:
            self.target = assignment
        if self.state is not State.ACKNOWLEDGING:
            self._settle()

    def applied(self, assignment: Assignment) -> None:
        """A poll has brought about what was the target when it began."""
        if self.state is State.RECONCILING:
            self.owned = assignment
            self._told_owned = None
            self.state = State.ACKNOWLEDGING

    def unanswered(self) -> None:
        """A heartbeat may not have arrived: the next says everything."""
        self._forget_what_was_told()

    def refused(self, code: ErrorCode) -> bool:
        """The coordinator answered with an error; whether the member may go on, perhaps by joining anew."""
        self._forget_what_was_told()
        if self.state not in IN_GROUP or code in _AGAIN:
            return True
        self.state = State.FENCED if code in _PUT_OUT else State.FAILED
        self.epoch = JOIN_EPOCH
        return self.state is State.FENCED

    def stale(self) -> None:
        """Polls have stayed away for too long: it leaves, and partitions are lost."""
        self.state = State.STALE
        self.epoch = JOIN_EPOCH

    def left(self) -> None:
        """It is no member any more."""
        self.state = State.OUT
        self.epoch = JOIN_EPOCH
        self.target = self.owned = {}

    def _settle(self) -> None:
        self.state = State.STABLE if self.target == self.owned else State.RECONCILING

    def _forget_what_was_told(self) -> None:
        self._told_wanted = None
        self._told_owned = None
