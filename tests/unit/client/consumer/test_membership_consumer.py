"""The core of a membership in the consumer protocol: the coordinator's picture and ours agree, whatever fails."""

import uuid

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headwater.client.consumer.consumer_member import IN_GROUP, Assignment, Beat, ConsumerMember, State, Wanted
from headwater.protocol.kafka_types import ErrorCode

TOPICS = [uuid.UUID(int=number) for number in (1, 2)]
ASSIGNMENTS = st.dictionaries(st.sampled_from(TOPICS), st.frozensets(st.integers(0, 3), min_size=1), max_size=2)
WANTED = st.sampled_from([Wanted(frozenset("a")), Wanted(frozenset("ab")), Wanted(regex="a.*")])
AGAIN = st.sampled_from([ErrorCode.not_coordinator, ErrorCode.coordinator_load_in_progress])
PUT_OUT = st.sampled_from([ErrorCode.fenced_member_epoch, ErrorCode.unknown_member_id])


class Life(RuleBasedStateMachine):
    """A member and a coordinator that only knows what arrives."""

    @initialize()
    def begin(self) -> None:
        self.member = ConsumerMember("ann")
        self.wanted = Wanted(frozenset("a"))
        self.epoch = 0
        self.told: Beat | None = None
        self.known_wanted: Wanted | None = None
        self.known_owned: Assignment | None = None
        self.last_wanted = self.wanted

    @rule(wanted=WANTED)
    def subscribe(self, wanted: Wanted) -> None:
        self.wanted = wanted

    @precondition(lambda self: self.member.state in (State.OUT, State.FENCED, State.STALE))
    @rule()
    def join(self) -> None:
        self.member.join()
        self.known_wanted = self.known_owned = None

    @precondition(lambda self: self.member.state in IN_GROUP and self.told is None)
    @rule()
    def beat(self) -> None:
        self.told = self.member.beat(self.wanted)
        self.last_wanted = self.wanted

    @precondition(lambda self: self.told is not None)
    @rule(assignment=st.none() | ASSIGNMENTS)
    def it_arrives(self, assignment: Assignment | None) -> None:
        beat, self.told = self._arrived()
        self.epoch += 1
        self.member.answered(self.epoch, {} if assignment is None and beat.epoch == 0 else assignment)
        assert self.known_wanted == self.last_wanted
        if self.member.state is State.STABLE:
            assert self.known_owned == self.member.owned == self.member.target

    @precondition(lambda self: self.told is not None)
    @rule(arrives=st.booleans())
    def the_answer_is_lost(self, arrives: bool) -> None:
        if arrives:
            self._arrived()
        self.told = None
        self.member.unanswered()

    @precondition(lambda self: self.told is not None)
    @rule(code=AGAIN)
    def it_must_be_said_again(self, code: ErrorCode) -> None:
        self.told = None
        assert self.member.refused(code)

    @precondition(lambda self: self.told is not None)
    @rule(code=PUT_OUT)
    def the_group_puts_it_out(self, code: ErrorCode) -> None:
        self.told = None
        assert self.member.refused(code)
        assert self.member.state is State.FENCED

    @precondition(lambda self: self.member.state is State.RECONCILING)
    @rule()
    def a_poll_applies_the_target(self) -> None:
        self.member.applied(self.member.target)

    @precondition(lambda self: self.member.state in IN_GROUP and self.told is None)
    @rule()
    def polls_stay_away(self) -> None:
        self.member.stale()

    @invariant()
    def who_is_out_starts_from_epoch_0(self) -> None:
        if self.member.state not in IN_GROUP:
            assert self.member.epoch == 0

    def _arrived(self) -> tuple[Beat, None]:
        beat = self.told
        assert beat is not None
        assert beat.member_id == "ann"
        # The coordinator can only ever learn what is in the heartbeat.
        self.known_wanted = beat.wanted or self.known_wanted
        self.known_owned = self.known_owned if beat.owned is None else beat.owned
        assert self.known_wanted is not None
        assert self.known_owned is not None
        return beat, None


TestLife = Life.TestCase


def settled(assignment: Assignment) -> ConsumerMember:
    member = ConsumerMember("ann")
    member.join()
    member.beat(Wanted(frozenset("a")))
    member.answered(1, assignment)
    if assignment:
        member.applied(assignment)
        member.beat(Wanted(frozenset("a")))
    assert member.state is State.STABLE
    return member


def test_joining_says_everything_and_later_heartbeats_only_what_changed() -> None:
    member = ConsumerMember("ann")
    member.join()
    wanted = Wanted(frozenset("a"))
    assert member.beat(wanted) == Beat(member_id="ann", epoch=0, full=True, wanted=wanted, owned={})
    member.answered(5, {})
    assert member.beat(wanted) == Beat(member_id="ann", epoch=5)
    more = Wanted(frozenset("ab"))
    assert member.has_news(more)
    assert member.beat(more) == Beat(member_id="ann", epoch=5, wanted=more)


def test_an_assignment_is_acknowledged_once_it_is_applied() -> None:
    member = settled({})
    target = {TOPICS[0]: frozenset({0, 1})}
    member.answered(6, target)
    assert member.state is State.RECONCILING
    assert member.beat(Wanted(frozenset("a"))).owned is None
    member.applied(target)
    assert member.beat(Wanted(frozenset("a"))).owned == target
    assert not member.has_news(Wanted(frozenset("a")))
    assert member.target == member.owned


def test_a_target_that_changes_while_the_last_is_applied_is_next() -> None:
    member = settled({})
    first, second = {TOPICS[0]: frozenset({0})}, {TOPICS[1]: frozenset({1})}
    member.answered(6, first)
    member.answered(7, second)
    member.applied(first)
    assert member.beat(Wanted(frozenset("a"))).owned == first
    assert member.state is State.RECONCILING


def test_after_a_failure_everything_is_said_again() -> None:
    target = {TOPICS[0]: frozenset({0})}
    member = settled(target)
    member.unanswered()
    beat = member.beat(Wanted(frozenset("a")))
    assert (beat.full, beat.owned) == (True, target)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.fenced_instance_id,
        ErrorCode.unreleased_instance_id,
        ErrorCode.invalid_request,
        ErrorCode.group_max_size_reached,
        ErrorCode.unsupported_assignor,
        ErrorCode.unsupported_version,
        ErrorCode.group_authorization_failed,
    ],
)
def test_what_waiting_cannot_cure_ends_the_membership(code: ErrorCode) -> None:
    member = settled({})
    assert not member.refused(code)
    assert member.state is State.FAILED
