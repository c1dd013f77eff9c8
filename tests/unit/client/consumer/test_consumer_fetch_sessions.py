"""Fetch sessions: requests name only what changed, and broker and client always agree on what a session holds."""

from hypothesis import given
from hypothesis import strategies as st

from headwater.client.consumer.fetch_sessions import FetchPlan, FetchSession, Wanted
from headwater.protocol.kafka_types import ErrorCode
from headwater.types import TopicPartition

A, B, C = (TopicPartition("orders", number) for number in range(3))
ID, NEW_ID = b"i" * 16, b"n" * 16


def want(offset: int, topic_id: bytes | None = None) -> Wanted:
    return Wanted(offset, 4, 1 << 20, topic_id)


def established(*partitions: TopicPartition) -> FetchSession:
    session = FetchSession()
    session.plan({partition: want(0) for partition in partitions})
    assert session.answered(ErrorCode.none, 77)
    return session


def test_the_first_request_names_everything_and_asks_for_a_session() -> None:
    plan = FetchSession().plan({A: want(0), B: want(5)})
    assert plan == FetchPlan(0, 0, {A: want(0), B: want(5)}, {})
    assert plan.full


def test_later_requests_name_what_moved_what_came_and_what_left() -> None:
    plan = established(A, B).plan({A: want(9), C: want(3)})
    assert plan == FetchPlan(77, 1, {A: want(9), C: want(3)}, {B: want(0)})


def test_a_request_without_news_is_empty_and_epochs_count_up() -> None:
    session = established(A)
    for epoch in (1, 2, 3):
        assert session.plan({A: want(0)}) == FetchPlan(77, epoch, {}, {})
        session.answered(ErrorCode.none, 77)


def test_a_broker_without_room_for_sessions_is_told_everything_each_time() -> None:
    session = FetchSession()
    for offset in (0, 10):
        assert session.plan({A: want(offset)}) == FetchPlan(0, 0, {A: want(offset)}, {})
        assert session.answered(ErrorCode.none, 0)


def test_a_session_that_the_broker_forgot_begins_anew() -> None:
    session = established(A)
    session.plan({A: want(1)})
    assert not session.answered(ErrorCode.fetch_session_id_not_found, 0)
    assert session.plan({A: want(1)}) == FetchPlan(0, 0, {A: want(1)}, {})


def test_a_session_whose_epoch_is_disputed_is_closed_by_the_request_that_begins_anew() -> None:
    session = established(A)
    session.plan({A: want(1)})
    assert not session.answered(ErrorCode.invalid_fetch_session_epoch, 0)
    assert session.plan({A: want(1)}) == FetchPlan(77, 0, {A: want(1)}, {})


def test_a_lost_answer_begins_anew() -> None:
    session = established(A)
    session.plan({A: want(1)})
    session.failed()
    assert session.plan({A: want(1)}).full


def test_a_topic_that_was_made_anew_leaves_and_comes_in_one_request() -> None:
    session = FetchSession()
    session.plan({A: want(0, ID)})
    session.answered(ErrorCode.none, 77)
    assert session.plan({A: want(0, NEW_ID)}) == FetchPlan(77, 1, {A: want(0, NEW_ID)}, {A: want(0, ID)})


def test_a_session_by_names_does_not_go_on_by_ids() -> None:
    assert established(A).plan({A: want(0, ID)}) == FetchPlan(77, 0, {A: want(0, ID)}, {})


def test_answers_are_found_by_name_or_id_and_strangers_are_not() -> None:
    by_name = established(A)
    assert by_name.asked("orders", 0) == (A, 0)
    assert by_name.asked("orders", 1) is None
    by_id = FetchSession()
    by_id.plan({A: want(8, ID)})
    assert by_id.asked(ID, 0) == (A, 8)
    assert by_id.asked(NEW_ID, 0) is None


class Broker:
    """What a broker makes of the requests, by the rules of KIP-227."""

    def __init__(self) -> None:
        self.session: tuple[int, int] | None = None
        self.holds: dict[TopicPartition, Wanted] = {}
        self.sessions_given = 0

    def serve(self, plan: FetchPlan) -> tuple[ErrorCode, int]:
        if plan.full:
            self.holds = dict(plan.ask)
            self.sessions_given += 1
            self.session = (100 + self.sessions_given, 1)
            return ErrorCode.none, self.session[0]
        if self.session is None or plan.session_id != self.session[0]:
            return ErrorCode.fetch_session_id_not_found, 0
        if plan.epoch != self.session[1]:
            return ErrorCode.invalid_fetch_session_epoch, 0
        self.session = (plan.session_id, plan.epoch + 1)
        for partition in plan.forget:
            del self.holds[partition]
        self.holds.update(plan.ask)
        return ErrorCode.none, plan.session_id


fates = st.sampled_from(["arrives", "answer lost", "request lost", "broker forgets"])
wishes = st.dictionaries(st.sampled_from([A, B, C]), st.integers(0, 3).map(want), min_size=1)


@given(st.lists(st.tuples(wishes, fates), min_size=1, max_size=30))
def test_whatever_gets_lost_an_answer_is_to_what_was_wanted(
    steps: list[tuple[dict[TopicPartition, Wanted], str]],
) -> None:
    session, broker = FetchSession(), Broker()
    for wanted, fate in steps:
        if fate == "broker forgets":
            broker.session = None
        plan = session.plan(wanted)
        if fate == "request lost":
            session.failed()
            continue
        error, session_id = broker.serve(plan)
        if error is ErrorCode.none:
            assert broker.holds == wanted
        if fate == "answer lost":
            session.failed()
        else:
            assert session.answered(error, session_id) == (error is ErrorCode.none)
