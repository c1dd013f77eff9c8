"""The subscription state: what may be mixed, which answers still count, and what may be committed."""

import re

import pytest

from headwater.client.consumer.errors import SubscriptionError
from headwater.client.consumer.resets import EARLIEST, LATEST, Reset, parse_reset
from headwater.client.consumer.subscription import Position, Stage, SubscriptionState
from headwater.types import TopicPartition

A = TopicPartition("orders", 0)
B = TopicPartition("orders", 1)


def reading(offset: int, *, epoch: int = -1, reset: Reset | None = EARLIEST) -> SubscriptionState:
    """A state that reads partition A, from `offset` on; with an epoch, the record before was of that leader's."""
    state = SubscriptionState(reset)
    state.assign([A])
    state.seek(A, Position(offset))
    state.leader_seen(A, epoch)
    if epoch >= 0:
        state.handed_out(A, Position(offset, epoch))
        state.poll_begins()
    return state


def stage(state: SubscriptionState) -> Stage:
    return state.assigned[A].stage


def test_topics_patterns_and_partitions_do_not_mix() -> None:
    state = SubscriptionState(EARLIEST)
    state.subscribe(["orders"])
    with pytest.raises(SubscriptionError, match="unsubscribe"):
        state.assign([A])
    with pytest.raises(SubscriptionError, match="unsubscribe"):
        state.subscribe_pattern(re.compile("o.*"))
    state.unsubscribe()
    state.assign([A])
    with pytest.raises(SubscriptionError, match="by hand"):
        state.subscribe(["orders"])
    state.unsubscribe()
    state.subscribe_pattern(re.compile("o.*"))
    with pytest.raises(SubscriptionError, match="unsubscribe"):
        state.subscribe(["orders"])


def test_a_pattern_takes_the_topics_whose_whole_name_matches_and_says_when_that_changes() -> None:
    state = SubscriptionState(EARLIEST)
    state.subscribe_pattern(re.compile("orders-."))
    assert state.match(["orders-1", "orders-10", "my-orders-1"])
    assert state.subscribed_topics == {"orders-1"}
    assert not state.match(["orders-1"])
    assert state.match(["orders-1", "orders-2"])


def test_what_stays_assigned_keeps_its_position_and_what_comes_back_does_not() -> None:
    state = SubscriptionState(EARLIEST)
    state.subscribe(["orders"])
    state.assign_from_group([A, B])
    state.seek(A, Position(7))
    state.seek(B, Position(8))
    state.revoke([B])
    state.assign_from_group([A, B])
    assert state.assigned[A].position == Position(7)
    assert state.assigned[B].position is None


def test_an_offset_that_was_looked_up_for_an_earlier_question_does_not_count() -> None:
    state = reading(5)
    state.request_reset(A, EARLIEST)
    state.request_reset(A, LATEST)
    assert not state.reset_done(A, EARLIEST, 0)
    assert state.reset_done(A, LATEST, 90)
    state.request_reset(A, EARLIEST)
    state.seek(A, Position(42))
    assert not state.reset_done(A, EARLIEST, 0)
    assert state.assigned[A].position == Position(42)


def test_a_committed_offset_that_comes_after_a_seek_does_not_count() -> None:
    state = SubscriptionState(EARLIEST)
    state.assign([A])
    state.seek(A, Position(3))
    assert not state.start_at(A, Position(100))
    assert state.assigned[A].position == Position(3)


def test_without_a_committed_offset_the_policy_decides_and_without_a_policy_nobody_does() -> None:
    with_policy = SubscriptionState(LATEST)
    with_policy.assign([A])
    assert with_policy.start_at(A, None)
    assert (stage(with_policy), with_policy.assigned[A].reset) == (Stage.RESETTING, LATEST)
    without = SubscriptionState(None)
    without.assign([A])
    assert not without.start_at(A, None)
    assert stage(without) is Stage.STARTING


def test_a_committed_offset_with_its_epoch_is_validated_first() -> None:
    state = SubscriptionState(EARLIEST)
    state.assign([A])
    state.start_at(A, Position(10, 3))
    assert stage(state) is Stage.VALIDATING
    assert state.validated(A, Position(10, 3), Position(25, 3)) is None
    assert stage(state) is Stage.FETCHING


def test_a_new_leader_makes_a_position_with_a_past_be_validated() -> None:
    state = reading(10, epoch=3)
    state.leader_seen(A, 3)
    assert stage(state) is Stage.FETCHING
    state.leader_seen(A, 4)
    assert stage(state) is Stage.VALIDATING
    state.validated(A, Position(10, 3), Position(10, 3))
    state.leader_seen(A, 4)
    assert stage(state) is Stage.FETCHING


def test_a_position_without_a_past_needs_no_validation() -> None:
    state = reading(10)
    state.leader_seen(A, 4)
    assert stage(state) is Stage.FETCHING


def test_after_a_truncation_reading_goes_on_where_the_logs_part() -> None:
    state = reading(10, epoch=3)
    state.leader_seen(A, 4)
    truncation = state.validated(A, Position(10, 3), Position(6, 2))
    assert truncation is not None
    assert truncation.diverged == Position(6, 2)
    assert state.assigned[A].position == Position(6, 2)
    assert stage(state) is Stage.FETCHING


def test_after_a_truncation_of_unknown_depth_the_policy_decides() -> None:
    state = reading(10, epoch=3, reset=LATEST)
    state.leader_seen(A, 4)
    assert state.validated(A, Position(10, 3), None) is not None
    assert (stage(state), state.assigned[A].reset) == (Stage.RESETTING, LATEST)


def test_without_a_policy_a_truncation_waits_for_the_user() -> None:
    state = reading(10, epoch=3, reset=None)
    state.leader_seen(A, 4)
    assert state.validated(A, Position(10, 3), Position(6, 2)) is not None
    assert stage(state) is Stage.VALIDATING
    assert state.assigned[A].position == Position(10, 3)
    state.seek(A, Position(6))
    assert state.assigned[A].fetchable


def test_a_validation_of_a_position_that_was_left_changes_nothing() -> None:
    state = reading(10, epoch=3)
    state.leader_seen(A, 4)
    state.seek(A, Position(50, 3))
    assert state.validated(A, Position(10, 3), Position(6, 2)) is None
    assert (stage(state), state.assigned[A].position) == (Stage.VALIDATING, Position(50, 3))


def test_out_of_range_is_reset_by_the_policy_unless_the_position_has_moved_since() -> None:
    state = reading(10)
    assert state.out_of_range(A, 9)
    assert stage(state) is Stage.FETCHING
    assert state.out_of_range(A, 10)
    assert stage(state) is Stage.RESETTING
    assert not reading(10, reset=None).out_of_range(A, 10)


def test_records_may_be_committed_only_when_the_user_has_come_back_for_more() -> None:
    state = reading(10)
    state.poll_begins()
    state.handed_out(A, Position(15, 1))
    assert state.positions_handed_out() == {A: Position(10)}
    state.poll_begins()
    assert state.positions_handed_out() == {A: Position(15, 1)}


def test_a_paused_partition_is_not_fetched_and_keeps_its_position() -> None:
    state = reading(10)
    state.pause([A])
    assert not state.assigned[A].fetchable
    assert (state.paused(), state.assigned[A].position) == ({A}, Position(10))
    state.resume([A])
    assert state.assigned[A].fetchable


def test_a_partition_that_is_not_assigned_is_named_in_the_error() -> None:
    with pytest.raises(SubscriptionError, match="orders-1 is not assigned"):
        reading(10).seek(B, Position(1))


def test_lag_counts_to_the_end_of_what_may_be_read() -> None:
    partition = reading(10).assigned[A]
    assert partition.lag(read_committed=False) is None
    partition.high_watermark, partition.last_stable_offset = 100, 40
    assert partition.lag(read_committed=False) == 90
    assert partition.lag(read_committed=True) == 30


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [("P7D", 604_800_000), ("PT1H30M", 5_400_000), ("PT0.5S", 500), ("P1DT1S", 86_401_000), ("pt2m", 120_000)],
)
def test_a_duration_is_read_as_iso_8601_has_it(text: str, duration_ms: int) -> None:
    reset = parse_reset(f"by_duration:{text}")
    assert reset is not None
    assert reset.timestamp_ms(700_000_000) == 700_000_000 - duration_ms


@pytest.mark.parametrize("text", ["sometime", "by_duration:", "by_duration:P", "by_duration:PT", "by_duration:1H"])
def test_any_other_policy_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"no reset policy|no duration"):
        parse_reset(text)
