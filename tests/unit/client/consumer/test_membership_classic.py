"""The core of a classic membership: rules that hold whatever the coordinator answers, and when."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headwater.client.consumer.classic_member import NOBODY, ClassicMember, Identity, Phase, Step
from headwater.client.consumer.commits import Verdict
from headwater.protocol.kafka_types import ErrorCode

CODES = st.sampled_from(
    [
        ErrorCode.none,
        ErrorCode.member_id_required,
        ErrorCode.unknown_member_id,
        ErrorCode.illegal_generation,
        ErrorCode.rebalance_in_progress,
        ErrorCode.fenced_instance_id,
        ErrorCode.not_coordinator,
        ErrorCode.coordinator_not_available,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.group_authorization_failed,
        ErrorCode.group_max_size_reached,
    ]
)


class Life(RuleBasedStateMachine):
    """A member with answers in any order, some of them late."""

    @initialize()
    def begin(self) -> None:
        self.member = ClassicMember()
        self.joining: Identity | None = None
        self.syncing: Identity | None = None
        self.beats: list[Identity] = []
        self.generations = 0

    @precondition(lambda self: self.member.rejoin_needed and self.joining is None and self.syncing is None)
    @rule()
    def join(self) -> None:
        self.joining = self.member.begin_join()

    @precondition(lambda self: self.joining is not None)
    @rule(code=CODES)
    def join_is_answered(self, code: ErrorCode) -> None:
        assert self.joining is not None
        sent, self.joining = self.joining, None
        self.generations += 1
        step = self.member.join_answered(code, sent, "given", self.generations)
        if step is Step.GO_ON:
            self.syncing = self.member.identity
            assert self.syncing == Identity("given", self.generations)
        else:
            assert self.member.rejoin_needed

    @precondition(lambda self: self.syncing is not None)
    @rule(code=CODES)
    def sync_is_answered(self, code: ErrorCode) -> None:
        assert self.syncing is not None
        sent, self.syncing = self.syncing, None
        step = self.member.sync_answered(code, sent)
        assert (step is Step.GO_ON) == (self.member.phase is Phase.STABLE) == (not self.member.rejoin_needed)

    @precondition(lambda self: self.joining or self.syncing)
    @rule()
    def the_connection_is_lost(self) -> None:
        self.joining = self.syncing = None
        self.member.join_broken("the connection is lost")
        assert self.member.rejoin_needed

    @precondition(lambda self: self.member.phase is Phase.STABLE)
    @rule()
    def beat(self) -> None:
        self.beats.append(self.member.identity)

    @precondition(lambda self: self.beats)
    @rule(code=CODES)
    def a_heartbeat_is_answered(self, code: ErrorCode) -> None:
        sent = self.beats.pop(0)
        before = self.member.identity
        self.member.heartbeat_answered(code, sent)
        if sent != before:
            assert self.member.identity == before

    @precondition(lambda self: self.beats)
    @rule(code=CODES)
    def a_commit_is_refused(self, code: ErrorCode) -> None:
        sent, before = self.beats.pop(0), self.member.identity
        verdict = self.member.commit_answered(code, sent)
        if sent != before:
            assert self.member.identity == before
            assert verdict is not Verdict.FENCED

    @rule()
    def leave(self) -> None:
        self.member.left("the user wants it")
        self.joining = self.syncing = None
        assert self.member.identity == NOBODY

    @invariant()
    def who_has_no_place_wants_one(self) -> None:
        if self.member.phase is Phase.UNJOINED:
            assert self.member.rejoin_needed
            assert self.member.identity.generation == -1

    @invariant()
    def who_is_settled_is_somebody(self) -> None:
        if self.member.phase is Phase.STABLE:
            assert self.member.identity.generation > 0
            assert self.member.identity.member_id


TestLife = Life.TestCase


def stable(generation: int = 3) -> ClassicMember:
    member = ClassicMember()
    member.join_answered(ErrorCode.none, member.begin_join(), "ann", generation)
    member.sync_answered(ErrorCode.none, member.identity)
    return member


@pytest.mark.parametrize(
    ("code", "step"),
    [
        (ErrorCode.member_id_required, Step.JOIN_AT_ONCE),
        (ErrorCode.unknown_member_id, Step.JOIN_AT_ONCE),
        (ErrorCode.rebalance_in_progress, Step.JOIN_AT_ONCE),
        (ErrorCode.not_coordinator, Step.JOIN_LATER),
        (ErrorCode.coordinator_not_available, Step.JOIN_LATER),
        (ErrorCode.coordinator_load_in_progress, Step.JOIN_LATER),
        (ErrorCode.fenced_instance_id, Step.FENCED),
        (ErrorCode.inconsistent_group_protocol, Step.REFUSED),
        (ErrorCode.invalid_session_timeout, Step.REFUSED),
        (ErrorCode.invalid_group_id, Step.REFUSED),
        (ErrorCode.group_authorization_failed, Step.REFUSED),
        (ErrorCode.group_max_size_reached, Step.REFUSED),
        (ErrorCode.unsupported_version, Step.REFUSED),
    ],
)
def test_what_an_answer_to_join_means(code: ErrorCode, step: Step) -> None:
    member = ClassicMember()
    assert member.join_answered(code, member.begin_join(), "given", -1) is step


def test_the_id_that_the_group_gives_is_used_for_the_next_join() -> None:
    member = ClassicMember()
    member.join_answered(ErrorCode.member_id_required, member.begin_join(), "given", -1)
    assert member.begin_join() == Identity("given", -1)


def test_an_illegal_generation_keeps_the_member_id_and_an_unknown_member_does_not() -> None:
    for code, member_id in ((ErrorCode.illegal_generation, "ann"), (ErrorCode.unknown_member_id, "")):
        member = stable()
        member.heartbeat_answered(code, member.identity)
        assert member.identity == Identity(member_id, -1)
        assert member.phase is Phase.UNJOINED


def test_a_rebalance_keeps_the_generation_until_it_is_joined() -> None:
    member = stable(7)
    member.heartbeat_answered(ErrorCode.rebalance_in_progress, member.identity)
    assert member.rejoin_needed
    assert member.begin_join() == Identity("ann", 7)


def test_an_answer_for_a_generation_before_changes_nothing() -> None:
    member = stable()
    before = member.identity
    member.join_answered(ErrorCode.none, member.begin_join(), "ann", 4)
    member.sync_answered(ErrorCode.none, member.identity)
    member.heartbeat_answered(ErrorCode.illegal_generation, before)
    assert member.identity == Identity("ann", 4)
    assert not member.rejoin_needed


def test_what_a_refused_commit_means() -> None:
    member = stable()
    assert member.commit_answered(ErrorCode.rebalance_in_progress, member.identity) is Verdict.REBALANCING
    assert member.rejoin_needed
    sent = member.begin_join()
    member.join_answered(ErrorCode.none, sent, "ann", 9)
    assert member.commit_answered(ErrorCode.illegal_generation, sent) is Verdict.OUT_OF_GROUP
    assert member.identity == Identity("ann", 9)
    assert member.commit_answered(ErrorCode.illegal_generation, member.identity) is Verdict.OUT_OF_GROUP
    assert member.identity == Identity("ann", -1)
    assert stable().commit_answered(ErrorCode.not_coordinator, NOBODY) is Verdict.AGAIN
    assert stable().commit_answered(ErrorCode.offset_metadata_too_large, NOBODY) is Verdict.REFUSED
