"""Where a group's offsets are to go: reading the wish, working it out for a partition, and plans as CSV. No I/O."""

import csv
import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, TypeAlias

from headwater.types import TopicPartition

_DURATION: Final = re.compile(
    r"P(?=.)(?:(?P<weeks>\d+)W)?(?:(?P<days>\d+)D)?"
    r"(?:T(?=.)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?",
    re.ASCII | re.IGNORECASE,
)
_UNITS_MS: Final = {"weeks": 604_800_000, "days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1000}

FilePlan: TypeAlias = dict[str, dict[TopicPartition, int]]
"""What a plan file says: for each group, the offset of each partition."""


class ResetTo(Enum):
    """The ways to name a new offset."""

    EARLIEST = auto()
    LATEST = auto()
    CURRENT = auto()
    OFFSET = auto()
    SHIFT = auto()
    TIME = auto()


@dataclass(frozen=True, slots=True)
class Reset:
    """A wish: the value is an offset, a number to shift by, or a time in epoch milliseconds."""

    to: ResetTo
    value: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """What is known of a partition before its offset is reset; a time was looked up only where one is wished for."""

    partition: TopicPartition
    committed: int | None
    earliest: int
    latest: int
    first_at_time: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewOffset:
    """A partition's new offset, and why it is another than was asked for, if it is."""

    partition: TopicPartition
    current: int | None
    new: int
    warning: str | None = None


class CannotResetError(Exception):
    """A wish that cannot be fulfilled; the text says of what and what to do."""


def new_offset(reset: Reset, position: Position) -> NewOffset:
    """Works a wish out by Kafka's rules: what is off the log comes to its nearer end, with a warning."""
    warning = None
    if reset.to is ResetTo.EARLIEST:
        new = position.earliest
    elif reset.to is ResetTo.LATEST:
        new = position.latest
    elif reset.to is ResetTo.CURRENT and position.committed is not None:
        new = position.committed
    elif reset.to is ResetTo.CURRENT:
        new, warning = position.latest, "nothing is committed yet"
    elif reset.to is ResetTo.TIME and position.first_at_time is not None:
        new = position.first_at_time
    elif reset.to is ResetTo.TIME:
        new, warning = position.latest, "no record is as young as that"
    else:
        wished = reset.value if reset.to is ResetTo.OFFSET else _shifted(position, reset.value)
        new = min(max(wished, position.earliest), position.latest)
        if wished != new:
            warning = f"{wished} is {'before the start' if wished < new else 'past the end'} of the log"
    if warning is not None:
        warning = f"{_named(position.partition)}: {warning}, so the new offset is {new}"
    return NewOffset(partition=position.partition, current=position.committed, new=new, warning=warning)


def _shifted(position: Position, by: int) -> int:
    if position.committed is None:
        raise CannotResetError(
            f"{_named(position.partition)}: nothing is committed that could be shifted; "
            "leave the partition out, or use --to-offset"
        )
    return position.committed + by


def _named(partition: TopicPartition) -> str:
    return f"partition {partition.partition} of topic {partition.topic}"


def parse_scope(text: str) -> tuple[str, tuple[int, ...]]:
    """`topic`, which is all its partitions, or `topic:0,1`; raises ValueError.

    >>> parse_scope("orders:0,2")
    ('orders', (0, 2))
    """
    topic, separator, numbers = text.partition(":")
    if not topic or (separator and not re.fullmatch(r"\d+(,\d+)*", numbers, re.ASCII)):
        raise ValueError(f"{text!r} is not TOPIC or TOPIC:PARTITION,PARTITION,…")
    return topic, tuple(int(number) for number in numbers.split(",")) if separator else ()


def parse_duration_ms(text: str) -> int:
    """An ISO 8601 duration in milliseconds; raises ValueError.

    >>> parse_duration_ms("P1DT1M0.5S")
    86460500
    """
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not a duration such as PT30M, PT1H30M or P1D")
    return round(sum(float(found[unit] or 0) * ms for unit, ms in _UNITS_MS.items()))


def plan_csv(plan: Iterable[tuple[str, Sequence[NewOffset]]], *, with_group: bool) -> str:
    """The file that Kafka's tool exports: topic,partition,offset, with the group before it if there are several.

    >>> plan_csv([("billing", [NewOffset(partition=TopicPartition("orders", 0), current=7, new=3)])], with_group=True)
    'billing,orders,0,3\\n'
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for group, offsets in plan:
        for offset in offsets:
            writer.writerow((*((group,) if with_group else ()), *offset.partition, offset.new))
    return text.getvalue()


def parse_plan(text: str, groups: Sequence[str]) -> FilePlan:
    """Reads what `plan_csv` writes, for the named groups; raises ValueError.

    Lines without a group are for the only one that is named; lines of other groups are passed over.
    """
    plan: FilePlan = {group: {} for group in groups}
    rows = csv.reader(io.StringIO(text))
    for row in rows:
        if not row:
            continue
        if len(row) == 3 and len(groups) == 1:
            row.insert(0, groups[0])
        if len(row) != 4 or not all(cell.isascii() and cell.isdigit() for cell in row[2:]):
            expected = "TOPIC,PARTITION,OFFSET" if len(groups) == 1 else "GROUP,TOPIC,PARTITION,OFFSET"
            raise ValueError(f"line {rows.line_num} is not {expected}")
        group, topic, number, offset = row
        if group in plan:
            plan[group][TopicPartition(topic, int(number))] = int(offset)
    _demand_offsets(plan)
    return plan


def _demand_offsets(plan: FilePlan) -> None:
    for group, offsets in plan.items():
        if not offsets:
            raise ValueError(f"there are no offsets for group {group}")
