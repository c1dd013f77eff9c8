"""Ranges are cut so that all cores have work, and narrowed so that nobody reads what a filter rules out."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.lake.datasource.filters import Condition, Use, earliest_time_ms, narrowed, started_at, use_of
from headwater.lake.datasource.splits import split_ranges
from headwater.lake.datasource.topic_offsets import TopicRange
from headwater.types import TopicPartition

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


def topic_range(start: int, end: int, *, size_bytes: int = 0, topic: str = "orders", partition: int = 0) -> TopicRange:
    return TopicRange(topic=topic, partition=partition, start=start, end=end, size_bytes=size_bytes)


def condition(column: str, comparison: str, value: Any = None) -> Condition:
    return Condition(column=column, comparison=comparison, value=value)


@given(
    start=st.integers(0, 10**12),
    offsets=st.integers(0, 10**6),
    size_bytes=st.integers(0, 10**10),
    split_bytes=st.integers(10**7, 10**9),
)
def test_pieces_make_up_the_range_and_are_about_alike(
    start: int, offsets: int, size_bytes: int, split_bytes: int
) -> None:
    whole = topic_range(start, start + offsets, size_bytes=size_bytes)
    pieces = split_ranges([whole], split_bytes)
    assert [piece for piece in pieces if piece.start >= piece.end] == []
    assert [piece.start for piece in pieces] + [whole.end] == [whole.start, *(piece.end for piece in pieces)]
    assert len(pieces) == min(offsets, max(1, -(-size_bytes // split_bytes)))
    if pieces:
        lengths = [piece.offsets for piece in pieces]
        assert max(lengths) - min(lengths) <= 1
        assert sum(piece.size_bytes for piece in pieces) <= size_bytes


@pytest.mark.parametrize(
    ("size_bytes", "pieces"), [(0, 1), (32 << 20, 1), (100 << 20, 4), (512 << 20, 16), (1 << 30, 16), (10 << 30, 80)]
)
def test_pieces_are_larger_where_there_is_more_to_read(size_bytes: int, pieces: int) -> None:
    assert len(split_ranges([topic_range(0, 10**6, size_bytes=size_bytes)])) == pieces


def test_every_partition_has_splits_of_its_own() -> None:
    ranges = [topic_range(0, 100, size_bytes=100), topic_range(5, 5, partition=1), topic_range(0, 9, partition=2)]
    assert [(piece.partition, piece.start, piece.end) for piece in split_ranges(ranges, 50)] == [
        (0, 0, 50),
        (0, 50, 100),
        (2, 0, 9),
    ]


@pytest.mark.parametrize(
    ("comparison", "value", "left"),
    [
        ("=", 20, (20, 21)),
        ("=", 5, (10, 10)),
        ("=", 30, (30, 30)),
        ("<", 20, (10, 20)),
        ("<", 3, (10, 10)),
        ("<=", 20, (10, 21)),
        (">", 20, (21, 30)),
        (">=", 20, (20, 30)),
        (">=", 99, (30, 30)),
        ("in", (12, 15, 99), (12, 30)),
        ("not null", None, (10, 30)),
    ],
)
def test_offsets_narrow_a_range(comparison: str, value: Any, left: tuple[int, int]) -> None:
    (found,) = narrowed([topic_range(10, 30, size_bytes=200)], [condition("_offset", comparison, value)])
    assert (found.start, found.end, found.size_bytes) == (*left, 10 * (left[1] - left[0]))


def test_partitions_and_topics_leave_whole_ranges_out() -> None:
    ranges = [topic_range(0, 9, partition=number) for number in range(4)] + [topic_range(0, 9, topic="refunds")]

    def left(*conditions: Condition) -> list[tuple[str, int]]:
        return [(each.topic, each.partition) for each in narrowed(ranges, conditions)]

    assert left(condition("_partition", "in", (1, 3))) == [("orders", 1), ("orders", 3)]
    assert left(condition("_partition", ">", 1), condition("_partition", "<=", 2)) == [("orders", 2)]
    assert left(condition("_topic", "=", "refunds")) == [("refunds", 0)]


def test_times_are_a_lower_bound_and_stay_to_be_checked() -> None:
    conditions = [
        condition("_timestamp", ">", NOON),
        condition("_timestamp", "in", (NOON.replace(hour=14), NOON.replace(hour=13))),
        condition("_timestamp", "not null"),
    ]
    assert earliest_time_ms(conditions) == NOON.replace(hour=13).timestamp() * 1000
    assert earliest_time_ms([condition("_offset", "=", 3)]) is None
    ranges = [topic_range(0, 9), topic_range(0, 9, partition=1)]
    assert [(each.start, each.end) for each in started_at(ranges, {TopicPartition("orders", 0): 4})] == [(4, 9), (9, 9)]


@pytest.mark.parametrize(
    ("column", "comparison", "value", "use"),
    [
        ("_partition", "=", 1, Use.EXACT),
        ("_topic", "in", ("a", "b"), Use.EXACT),
        ("_offset", "<", 7, Use.EXACT),
        ("_offset", "in", (1, 5), Use.NARROWS),
        ("_timestamp", ">=", NOON, Use.NARROWS),
        ("_timestamp", "<", NOON, Use.NOT),
        ("_timestamp", "not null", None, Use.EXACT),
        ("_offset", "=", None, Use.NOT),
        ("_offset", "=", True, Use.NOT),
        ("_partition", "in", (1, None), Use.NOT),
        ("_partition", "in", (), Use.NOT),
        ("_key", "=", b"k", Use.NOT),
        ("value", "not null", None, Use.NOT),
    ],
)
def test_what_ranges_can_do_for_a_condition(column: str, comparison: str, value: Any, use: Use) -> None:
    assert use_of(condition(column, comparison, value)) is use
