"""What a member of the classic protocol is, and what each answer of the coordinator makes of it. Sans-IO: no clock.

    UNJOINED    no member of the group    -> begin_join
    JOINING     JoinGroup is under way    -> joined: SYNCING
    SYNCING     SyncGroup is under way    -> synced: STABLE
    STABLE      has an assignment         -> begin_join, when `rejoin_needed`

An answer that says that the coordinator does not know us (any more) leads to UNJOINED from everywhere. It counts only
if it was for who we are now: one for an identity that we have given up since changes nothing. Losing the generation
means that partitions are lost; whoever looks sees it by `generation` being -1.
"""

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, NamedTuple

from headwater.client.consumer.commits import Verdict, verdict_on
from headwater.protocol.kafka_types import ErrorCode

NO_GENERATION: Final = -1


class Phase(Enum):
    """Where a member stands."""

    UNJOINED = auto()
    JOINING = auto()
    SYNCING = auto()
    STABLE = auto()


class Step(Enum):
    """What to do after an answer to JoinGroup or SyncGroup."""

    GO_ON = auto()
    JOIN_AT_ONCE = auto()
    JOIN_LATER = auto()
    FENCED = auto()
    REFUSED = auto()


class Identity(NamedTuple):
    """Who a request was sent as."""

    member_id: str = ""
    generation: int = NO_GENERATION


NOBODY: Final = Identity()
_AFTER_JOIN: Final = {
    ErrorCode.none: Step.GO_ON,
    ErrorCode.member_id_required: Step.JOIN_AT_ONCE,
    ErrorCode.unknown_member_id: Step.JOIN_AT_ONCE,
    ErrorCode.rebalance_in_progress: Step.JOIN_AT_ONCE,
    ErrorCode.coordinator_load_in_progress: Step.JOIN_LATER,
    ErrorCode.coordinator_not_available: Step.JOIN_LATER,
    ErrorCode.not_coordinator: Step.JOIN_LATER,
    ErrorCode.fenced_instance_id: Step.FENCED,
}
_AFTER_SYNC: Final = {
    ErrorCode.none: Step.GO_ON,
    ErrorCode.unknown_member_id: Step.JOIN_AT_ONCE,
    ErrorCode.illegal_generation: Step.JOIN_AT_ONCE,
    ErrorCode.rebalance_in_progress: Step.JOIN_AT_ONCE,
    ErrorCode.coordinator_load_in_progress: Step.JOIN_LATER,
    ErrorCode.coordinator_not_available: Step.JOIN_LATER,
    ErrorCode.not_coordinator: Step.JOIN_LATER,
    ErrorCode.fenced_instance_id: Step.FENCED,
}
_FORGOTTEN: Final = frozenset({ErrorCode.unknown_member_id, ErrorCode.illegal_generation, ErrorCode.fenced_instance_id})


@dataclass(slots=True)
class ClassicMember:
    """See the module's docstring."""

    phase: Phase = Phase.UNJOINED
    identity: Identity = NOBODY
    rejoin_needed: bool = True
    rejoin_reason: str = ""

    def need_rejoin(self, reason: str) -> None:
        """Something has changed that the group must settle."""
        self.rejoin_needed = True
        self.rejoin_reason = reason

    def begin_join(self) -> Identity:
        """JoinGroup goes out; returns as whom."""
        self.phase = Phase.JOINING
        return self.identity

    def join_answered(self, code: ErrorCode, sent: Identity, member_id: str, generation: int) -> Step:
        """Takes in the answer to JoinGroup."""
        step = _AFTER_JOIN.get(code, Step.REFUSED)
        if step is Step.GO_ON:
            if self.phase is not Phase.JOINING:
                return Step.JOIN_AT_ONCE
            self.phase = Phase.SYNCING
            self.identity = Identity(member_id, generation)
        elif code is ErrorCode.member_id_required:
            self.identity = Identity(member_id)
            self.need_rejoin("the group wants members to join under the id that it gives them")
        else:
            self._join_failed(code, sent)
        return step

    def sync_answered(self, code: ErrorCode, sent: Identity) -> Step:
        """Takes in the answer to SyncGroup."""
        step = _AFTER_SYNC.get(code, Step.REFUSED)
        if step is not Step.GO_ON:
            self._join_failed(code, sent)
            return step
        if self.phase is not Phase.SYNCING or self.identity != sent:
            self.need_rejoin("the membership was lost while it was completed")
            return Step.JOIN_AT_ONCE
        self.phase = Phase.STABLE
        self.rejoin_needed = False
        self.rejoin_reason = ""
        return step

    def join_broken(self, reason: str) -> None:
        """No answer came to a join or sync, or an assignment could not be made."""
        self.need_rejoin(reason)
        if self.phase is not Phase.UNJOINED:
            self.phase = Phase.JOINING

    def heartbeat_answered(self, code: ErrorCode, sent: Identity) -> None:
        """Takes in the answer to a heartbeat."""
        if code is ErrorCode.rebalance_in_progress:
            if self.phase is Phase.STABLE and not self.rejoin_needed:
                self.need_rejoin("the group is rebalancing")
        else:
            self._forgotten(code, sent)

    def commit_answered(self, code: ErrorCode, sent: Identity) -> Verdict:
        """Takes in a refused commit; what it means for the commit depends on what has happened since."""
        verdict = verdict_on(code)
        if verdict in (Verdict.OUT_OF_GROUP, Verdict.FENCED) and self.identity != sent:
            # We were somebody else: if a rebalance is going on, polling and committing again will do.
            return Verdict.REBALANCING if self.phase is Phase.JOINING else Verdict.OUT_OF_GROUP
        if verdict is Verdict.REBALANCING:
            self.need_rejoin("the group refused a commit, as it is rebalancing")
        elif verdict is Verdict.OUT_OF_GROUP:
            self._forgotten(code, sent)
        return verdict

    def left(self, reason: str) -> None:
        """We have left the group, or count as having left."""
        self._reset(keep_member_id=False, reason=reason)

    def _join_failed(self, code: ErrorCode, sent: Identity) -> None:
        self.need_rejoin(f"the last attempt to join ended with {code.name}")
        self._forgotten(code, sent)

    def _forgotten(self, code: ErrorCode, sent: Identity) -> None:
        if code in _FORGOTTEN and sent == self.identity:
            self._reset(keep_member_id=code is ErrorCode.illegal_generation, reason=f"the group answered {code.name}")

    def _reset(self, *, keep_member_id: bool, reason: str) -> None:
        self.phase = Phase.UNJOINED
        self.identity = Identity(self.identity.member_id if keep_member_id else "")
        self.need_rejoin(reason)
