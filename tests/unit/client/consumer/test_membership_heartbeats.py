"""The three clocks of a member: heartbeats, session, polls."""

from hypothesis import given
from hypothesis import strategies as st

from headwater.client.consumer.heartbeats import Heartbeats

TIMES = st.floats(0, 1000, allow_nan=False)


def beating(**settings: float) -> Heartbeats:
    beats = Heartbeats(interval_s=3, **settings)
    beats.begin(100)
    return beats


def test_a_heartbeat_is_due_every_interval_and_soon_after_a_failure() -> None:
    beats = beating(retry_s=0.5)
    assert not beats.due(102.9)
    assert beats.due(103)
    beats.sent(103)
    assert not beats.due(105)
    beats.failed(105)
    assert beats.wait_s(105) == 0.5
    beats.hurry(105.1)
    assert beats.due(105.1)


def test_the_session_ends_when_no_answer_comes() -> None:
    beats = beating(session_s=10)
    beats.heard(105)
    assert not beats.session_ended(114.9)
    assert beats.session_ended(115)


def test_the_poll_interval_is_missed_whatever_the_heartbeats_do() -> None:
    beats = beating(max_poll_interval_s=20)
    beats.heard(115)
    beats.sent(119)
    assert not beats.poll_missed(119.9)
    assert beats.poll_missed(120)
    beats.polled(120)
    assert not beats.poll_missed(120)


def test_a_poll_that_waits_is_reminded_once_before_it_is_missed() -> None:
    beats = beating(max_poll_interval_s=20)
    assert not beats.reminder_due(109.9)
    assert beats.reminder_due(110)
    assert not beats.reminder_due(111)
    beats.polled(111)
    assert beats.reminder_due(121)


@given(st.lists(st.sampled_from(["polled", "sent", "heard", "failed", "hurry"])), TIMES, TIMES)
def test_whoever_sleeps_as_long_as_it_may_misses_nothing(events: list[str], step: float, more: float) -> None:
    beats = beating(session_s=10, max_poll_interval_s=20, retry_s=0.5)
    now = 100.0
    for event in events:
        now += step / 100
        getattr(beats, event)(now)

    def something(at: float) -> bool:
        return beats.due(at) or beats.session_ended(at) or beats.poll_missed(at) or beats.reminder_due(at)

    wait_s = beats.wait_s(now)
    if wait_s > 1e-6:
        assert not something(now + wait_s * 0.99)
    assert something(now + wait_s + 1e-6 + more)
