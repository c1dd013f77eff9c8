"""Waits between attempts double up to a bound, spread by a fifth, and end with the first success."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.client.back_off import JITTER, BackOff, ReconnectSchedule

back_offs = st.builds(BackOff, st.floats(1, 10_000), st.floats(1, 100_000))
chances = st.floats(0, 1, exclude_max=True)


@given(back_offs, st.integers(1, 10**6), chances)
def test_a_wait_is_within_a_fifth_of_the_doubled_one_and_never_beyond_the_longest(
    back_off: BackOff, failures: int, chance: float
) -> None:
    longest_ms = max(back_off.first_ms, back_off.longest_ms)
    plain_ms = min(back_off.first_ms * 2.0 ** min(failures - 1, 60), longest_ms)
    delay_ms = back_off.delay_ms(failures, chance)
    assert plain_ms * (1 - JITTER) * 0.999 <= delay_ms <= plain_ms * (1 + JITTER) * 1.001


@given(back_offs, chances)
def test_without_a_failure_there_is_no_wait(back_off: BackOff, chance: float) -> None:
    assert back_off.delay_ms(0, chance) == 0


def test_chance_spreads_the_waits() -> None:
    back_off = BackOff(100, 1_000)
    delays_ms = [back_off.delay_ms(1, chance) for chance in (0.0, 0.25, 0.5, 0.75)]
    assert delays_ms == pytest.approx([80, 90, 100, 110])


@given(back_offs, st.lists(st.tuples(st.one_of(st.none(), chances), st.floats(0, 1_000)), max_size=30))
def test_a_schedule_waits_as_long_as_the_failures_in_a_row_say(
    back_off: BackOff, events: list[tuple[float | None, float]]
) -> None:
    schedule = ReconnectSchedule(back_off)
    now_ms, in_a_row, may_again_ms = 1_000.0, 0, 0.0
    for chance, passed_ms in events:
        now_ms += passed_ms
        if chance is None:
            schedule.succeeded()
            in_a_row, may_again_ms = 0, 0.0
        else:
            schedule.failed(now_ms, chance)
            in_a_row += 1
            may_again_ms = now_ms + back_off.delay_ms(in_a_row, chance)
        assert schedule.wait_ms(now_ms) == max(0.0, may_again_ms - now_ms)
        assert schedule.wait_ms(may_again_ms) == 0
