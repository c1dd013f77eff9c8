"""The type of a field that is not in the table yet, from what was seen of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.types as pt

from headwater.lake.shapes.declared import common_type
from headwater.lake.shapes.scalars import LONGEST_DECIMAL, Kind
from headwater.lake.shapes.shape import Node

OBJECTS: Final = (Kind.OBJECT, Kind.EMPTY_OBJECT)
ARRAYS: Final = (Kind.ARRAY, Kind.EMPTY_ARRAY)
STRINGS: Final = (Kind.STRING, Kind.DATE, Kind.INSTANT, Kind.DATETIME)
NUMBERS: Final = (Kind.INT, Kind.LONG, Kind.BIG, Kind.HUGE, Kind.FLOAT, Kind.DOUBLE, Kind.PRECISE)
BOOLS: Final = (Kind.BOOL,)

GROUPS: Final = {"objects": OBJECTS, "arrays": ARRAYS, "strings": STRINGS, "numbers": NUMBERS, "booleans": BOOLS}
"""Kinds that may share a column, in the order that decides between equally frequent ones."""

MANY_KEYS: Final = 100
RARELY: Final = 10
"""An object with more different keys than MANY_KEYS, each in less than one of RARELY objects, is a map."""


def groups_by_frequency(node: Node) -> Iterator[tuple[str, int]]:
    """Groups that were seen and how often, the most frequent first."""
    seen = [(name, node.count(*kinds)) for name, kinds in GROUPS.items()]
    return iter(sorted(((name, count) for name, count in seen if count), key=lambda entry: -entry[1]))


def scalar_type(node: Node, group: str) -> pa.DataType | None:
    """The type of a group of scalars, or None when no type holds any of them."""
    if group == "strings":
        return _string_type(node)
    if group == "numbers":
        return _number_type(node)
    return pa.bool_() if group == "booleans" else None


def declared_type(node: Node) -> pa.DataType | None:
    """What a typed source says; sources that disagree beyond widening meet in a string."""
    return (common_type(node.declared) or pa.string()) if node.declared else None


def _string_type(node: Node) -> pa.DataType:
    total = node.count(*STRINGS)
    if node.counts[Kind.DATE] == total:
        return pa.date32()
    if node.counts[Kind.INSTANT] == total:
        return pa.timestamp("us", "UTC")
    return pa.timestamp("us") if node.counts[Kind.DATETIME] == total else pa.string()


def _number_type(node: Node) -> pa.DataType | None:
    total = node.count(*NUMBERS)
    if node.count(Kind.FLOAT, Kind.DOUBLE, Kind.PRECISE):
        needs_decimal = node.counts[Kind.PRECISE] * 2 > total
        if needs_decimal and node.before + node.after <= LONGEST_DECIMAL:
            return pa.decimal128(LONGEST_DECIMAL, node.after)
        return pa.float64()
    if node.counts[Kind.BIG]:
        return pa.decimal128(LONGEST_DECIMAL, 0)
    return pa.int64() if node.count(Kind.INT, Kind.LONG) else None


def holds_scalars(type_: pa.DataType, node: Node) -> bool:
    """Whether a column of a scalar type holds all that was seen; of kinds that it holds in part: that it holds some."""
    groups = {group for group, _ in groups_by_frequency(node)}
    if pt.is_integer(type_):
        return groups <= {"numbers"} and not node.count(Kind.BIG, Kind.HUGE, Kind.FLOAT, Kind.DOUBLE, Kind.PRECISE)
    if pt.is_floating(type_):
        return groups <= {"numbers"} and not node.count(Kind.BIG, Kind.HUGE, Kind.PRECISE)
    if pt.is_decimal(type_):
        whole = node.after <= type_.scale and node.before + type_.scale <= type_.precision
        return groups <= {"numbers"} and whole
    if pt.is_boolean(type_):
        return groups <= {"booleans"}
    if pt.is_date(type_):
        return groups <= {"strings"} and node.counts[Kind.DATE] == node.count(*STRINGS)
    if pt.is_timestamp(type_):
        wanted = Kind.DATETIME if type_.tz is None else Kind.INSTANT
        return groups <= {"strings"} and node.counts[wanted] == node.count(*STRINGS)
    if pt.is_nested(type_):
        return True
    return groups <= {"strings"}


def is_map(node: Node) -> bool:
    """Whether an object is used as a map: its keys are too many to be told apart, or many and each of them rare."""
    if node.values is not None:
        return True
    if len(node.fields) <= MANY_KEYS:
        return False
    entries = sum(sum(child.counts) for child in node.fields.values())
    return entries * RARELY < node.counts[Kind.OBJECT] * len(node.fields)
