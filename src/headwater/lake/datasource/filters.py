"""Conditions on where a record lies, turned into smaller ranges before anything is read. Pure.

What is asked of a column's value is no business of this module: it knows `_topic`, `_partition`, `_offset` and, as a
lower bound, `_timestamp`. Times may go back and forth in a log, so an upper bound of them says nothing about offsets.
"""

import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum, auto
from typing import Any, Final

from headwater.lake.datasource.topic_offsets import TopicRange
from headwater.types import TopicPartition

_COMPARISONS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "in": lambda value, allowed: value in allowed,
}
_TYPES: Final[Mapping[str, type]] = {"_topic": str, "_partition": int, "_offset": int, "_timestamp": datetime}


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A column and what its value has to be: `_partition in (1, 2)`. The values of `in` are a tuple."""

    column: str
    comparison: str
    value: Any


class Use(Enum):
    """How far a condition can be met by choosing ranges."""

    NOT = auto()
    NARROWS = auto()
    """Fewer records are read; those still have to be checked."""
    EXACT = auto()


def use_of(condition: Condition) -> Use:
    """What the ranges can do for a condition."""
    kind = _TYPES.get(condition.column)
    if condition.comparison == "not null":
        return Use.NOT if kind is None else Use.EXACT
    values = condition.value if condition.comparison == "in" else (condition.value,)
    if kind is None or condition.comparison not in _COMPARISONS:
        return Use.NOT
    if not values or not all(isinstance(value, kind) and not isinstance(value, bool) for value in values):
        return Use.NOT
    if condition.column == "_timestamp":
        return Use.NARROWS if condition.comparison in ("=", ">", ">=", "in") else Use.NOT
    return Use.NARROWS if (condition.column, condition.comparison) == ("_offset", "in") else Use.EXACT


def narrowed(ranges: Iterable[TopicRange], conditions: Iterable[Condition]) -> list[TopicRange]:
    """The ranges without what topics, partitions and offsets rule out; some may be left without offsets."""
    left = list(ranges)
    for condition in conditions:
        if condition.comparison == "not null":
            continue
        matches = _COMPARISONS[condition.comparison]
        if condition.column == "_topic":
            left = [each for each in left if matches(each.topic, condition.value)]
        elif condition.column == "_partition":
            left = [each for each in left if matches(each.partition, condition.value)]
        elif condition.column == "_offset":
            left = [_between(each, *_offset_bounds(condition)) for each in left]
    return left


def earliest_time_ms(conditions: Iterable[Condition]) -> int | None:
    """The time before which no record is wanted; None when all times are."""
    times = [
        min(condition.value) if condition.comparison == "in" else condition.value
        for condition in conditions
        if condition.column == "_timestamp" and condition.comparison != "not null"
    ]
    return int(max(times).timestamp() * 1000) if times else None


def started_at(ranges: Iterable[TopicRange], offsets: Mapping[TopicPartition, int]) -> list[TopicRange]:
    """The ranges from these offsets on; nothing of partitions that have none."""
    return [_between(each, offsets.get(TopicPartition(each.topic, each.partition), each.end), None) for each in ranges]


def _offset_bounds(condition: Condition) -> tuple[int, int | None]:
    """The first offset that may be wanted, and the one behind the last."""
    value = condition.value
    match condition.comparison:
        case "=":
            return value, value + 1
        case "in":
            return min(value), max(value) + 1
        case ">":
            return value + 1, None
        case ">=":
            return value, None
        case "<":
            return 0, value
        case _:
            return 0, value + 1


def _between(whole: TopicRange, first: int, behind: int | None) -> TopicRange:
    start = min(max(whole.start, first), whole.end)
    end = whole.end if behind is None else max(start, min(whole.end, behind))
    size_bytes = whole.size_bytes * (end - start) // max(whole.offsets, 1)
    return replace(whole, start=start, end=end, size_bytes=size_bytes)
