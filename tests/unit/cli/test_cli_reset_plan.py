"""Where a reset puts a group's offset in a partition, and plans that survive a file."""

import pytest

from headwater.cli.reset_plan import (
    CannotResetError,
    NewOffset,
    Position,
    Reset,
    ResetTo,
    new_offset,
    parse_duration_ms,
    parse_plan,
    parse_scope,
    plan_csv,
)
from headwater.types import TopicPartition

ORDERS = TopicPartition("orders", 0)


def position(*, committed: int | None = 40, first_at_time: int | None = None) -> Position:
    """A log from 10 to 100, of which 40 are consumed."""
    return Position(partition=ORDERS, committed=committed, earliest=10, latest=100, first_at_time=first_at_time)


@pytest.mark.parametrize(
    ("reset", "new"),
    [
        (Reset(ResetTo.EARLIEST), 10),
        (Reset(ResetTo.LATEST), 100),
        (Reset(ResetTo.CURRENT), 40),
        (Reset(ResetTo.OFFSET, 10), 10),
        (Reset(ResetTo.OFFSET, 100), 100),
        (Reset(ResetTo.SHIFT, 5), 45),
        (Reset(ResetTo.SHIFT, -5), 35),
    ],
)
def test_a_wish_within_the_log_is_fulfilled_without_a_word(reset: Reset, new: int) -> None:
    assert new_offset(reset, position()) == NewOffset(partition=ORDERS, current=40, new=new)


@pytest.mark.parametrize(
    ("reset", "new", "says"),
    [
        (Reset(ResetTo.OFFSET, 9), 10, "9 is before the start of the log, so the new offset is 10"),
        (Reset(ResetTo.OFFSET, 101), 100, "101 is past the end of the log, so the new offset is 100"),
        (Reset(ResetTo.SHIFT, -50), 10, "-10 is before the start"),
        (Reset(ResetTo.SHIFT, 61), 100, "101 is past the end"),
        (Reset(ResetTo.TIME, 1), 100, "no record is as young as that"),
    ],
)
def test_a_wish_off_the_log_comes_to_its_nearer_end_with_a_warning(reset: Reset, new: int, says: str) -> None:
    found = new_offset(reset, position())
    assert found.new == new
    assert found.warning is not None
    assert found.warning.startswith("partition 0 of topic orders: ")
    assert says in found.warning


def test_a_time_is_the_first_record_at_or_after_it() -> None:
    found = new_offset(Reset(ResetTo.TIME, 1), position(first_at_time=77))
    assert (found.new, found.warning) == (77, None)


def test_to_current_takes_the_end_where_nothing_is_committed() -> None:
    found = new_offset(Reset(ResetTo.CURRENT), position(committed=None))
    assert (found.current, found.new) == (None, 100)
    assert "nothing is committed yet" in str(found.warning)


def test_nothing_committed_cannot_be_shifted() -> None:
    with pytest.raises(CannotResetError, match="partition 0 of topic orders: nothing is committed"):
        new_offset(Reset(ResetTo.SHIFT, 1), position(committed=None))


@pytest.mark.parametrize(
    ("text", "scope"), [("orders", ("orders", ())), ("orders:0", ("orders", (0,))), ("a.b:2,10", ("a.b", (2, 10)))]
)
def test_a_scope_is_a_topic_or_some_of_its_partitions(text: str, scope: tuple[str, tuple[int, ...]]) -> None:
    assert parse_scope(text) == scope


@pytest.mark.parametrize("text", ["", ":0", "orders:", "orders:x", "orders:0,", "orders:-1", "orders:0:1"])
def test_every_other_scope_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not TOPIC or TOPIC:PARTITION"):
        parse_scope(text)


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [
        ("PT1S", 1_000),
        ("PT0.25S", 250),
        ("PT90M", 5_400_000),
        ("PT1H30M", 5_400_000),
        ("P1D", 86_400_000),
        ("P2W", 1_209_600_000),
        ("P1DT2H3M4S", 93_784_000),
        ("pt5m", 300_000),
    ],
)
def test_iso_durations(text: str, duration_ms: int) -> None:
    assert parse_duration_ms(text) == duration_ms


@pytest.mark.parametrize("text", ["", "P", "PT", "P1DT", "5m", "1H", "P1H", "PT1D", "-PT1H", "P1Y", "P1M", "PT1.5H"])
def test_what_is_no_duration_is_refused_with_examples(text: str) -> None:
    with pytest.raises(ValueError, match="PT30M"):
        parse_duration_ms(text)


def test_an_exported_plan_reads_back() -> None:
    plan = [
        ("billing", [NewOffset(partition=ORDERS, current=1, new=2)]),
        ("odd, really", [NewOffset(partition=TopicPartition("stock", 11), current=None, new=5)]),
    ]
    text = plan_csv(plan, with_group=True)
    assert text == 'billing,orders,0,2\n"odd, really",stock,11,5\n'
    assert parse_plan(text, ["billing", "odd, really"]) == {
        "billing": {ORDERS: 2},
        "odd, really": {TopicPartition("stock", 11): 5},
    }


def test_the_plan_of_one_group_need_not_name_it() -> None:
    assert parse_plan("orders,0,2\n\norders,1,3\r\n", ["billing"]) == {
        "billing": {ORDERS: 2, TopicPartition("orders", 1): 3}
    }
    assert parse_plan("other,orders,0,1\nbilling,orders,0,2\n", ["billing"]) == {"billing": {ORDERS: 2}}


@pytest.mark.parametrize(
    ("text", "groups", "says"),
    [
        ("orders,0,2\norders,1\n", ["a"], "line 2 is not TOPIC,PARTITION,OFFSET"),
        ("orders,0,-2\n", ["a"], "line 1 is not"),
        ("topic,partition,offset\n", ["a"], "line 1 is not"),
        ("orders,0,2\n", ["a", "b"], "line 1 is not GROUP,TOPIC,PARTITION,OFFSET"),
        ("a,orders,0,2\n", ["a", "b"], "no offsets for group b"),
        ("", ["a"], "no offsets for group a"),
    ],
)
def test_a_plan_that_does_not_fit_is_refused(text: str, groups: list[str], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse_plan(text, groups)
