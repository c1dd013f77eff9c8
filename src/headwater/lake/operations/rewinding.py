"""Sets a source's position back, so that the next load brings again what lies behind it.

Rows that are in the table stay, unless they are told to go: for topics they are known by partition and offset, and go
in the same commit that sets the position back. Either both happen or neither.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headwater.catalog.entries import COMMITTED, Load
from headwater.catalog.names import sql_text
from headwater.catalog.positions import Position, canonical
from headwater.catalog.snapshot_properties import EXPECT, LOAD, OFFSETS
from headwater.lake.errors import LakeBusyError, LakeUsageError
from headwater.lake.load.session_properties import session_properties
from headwater.lake.operations.explanations import REWIND
from headwater.lake.operations.races import despite_races
from headwater.lake.operations.rewind_targets import Target, find_target
from headwater.lake.sources.parsing import parse_source
from headwater.lake.sources.topics import offsets_of
from headwater.lake.spark import first_line

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headwater.lake.lake import Lake

_RANGES: Final = "headwater_rewound"
_STAY: Final = {
    "append": "the rows that are in the table stay, so they will be there twice",
    "upsert": "the rows that are in the table stay; those that are loaded again replace them by their key",
    "dedup": "the rows that are in the table stay; those that are loaded again are dropped where their key is there",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RewindPlan:
    """A step back that nobody has made yet, and what comes of it."""

    table: str
    source: str
    before: Position
    after: Position | None
    again: str
    """What will be loaded again, in words."""
    rows: str
    """What becomes of the rows that are there, in words."""
    delete: bool = False


def plan_rewind(
    lake: "Lake", table: str, source: str, to: str, *, delete: bool = False, bootstrap: str | None = None
) -> RewindPlan:
    """What a rewind would do; nothing is changed."""
    state = lake.catalog.table_state(table)
    if state is None:
        raise LakeUsageError(f"there is no table {table} in this lake")
    source = _as_stored(source, state.positions)
    position = state.positions.get(source)
    if position is None:
        known = f"its sources are {', '.join(sorted(state.positions))}" if state.positions else "it has no sources"
        raise LakeUsageError(f"{table} has no position of {source}, so there is nothing to go back from: {known}")
    if delete:
        _check_rows_can_be_told(source, state.positions)
    target: Target = find_target(lake.catalog, table, source, position, to, bootstrap=bootstrap)
    return RewindPlan(
        table=table,
        source=source,
        before=position,
        after=target.position,
        again=target.again,
        rows="their rows are deleted from the table in the same commit"
        if delete
        else _STAY.get(target.mode, _STAY["append"]),
        delete=delete,
    )


def carry_out(lake: "Lake", plan: RewindPlan) -> Load:
    """Sets the position back, unless a load has moved it since the plan was made."""
    found = lake.catalog.position(plan.table, plan.source)
    if found != plan.before:
        raise LakeBusyError(
            f"the position of {plan.source} in {plan.table} has moved since: a load is under way; look again and retry"
        )
    counting = f"counting the rows of {plan.source} to delete from {plan.table}"
    if plan.delete and despite_races(counting, lambda: _rows_to_delete(lake, plan)):
        return despite_races(f"the rewind of {plan.source} in {plan.table}", lambda: _with_deletion(lake, plan))
    return lake.catalog.rewind(plan.table, plan.source, plan.after)


def _as_stored(source: str, positions: Mapping[str, Position]) -> str:
    """The source's id, however it is spelled: `files:incoming` is one of an absolute path."""
    if source in positions:
        return source
    try:
        return parse_source(source).id
    except LakeUsageError:
        return source


def _check_rows_can_be_told(source: str, positions: Mapping[str, Position]) -> None:
    if not source.startswith("topic:"):
        raise LakeUsageError(
            f"only rows of topics can go with a rewind, not those of {source}: delete them yourself with "
            "`headwater lake sql`, or rewind without --delete"
        )
    others = [other for other in positions if other.startswith("topic:") and other != source]
    if others:
        raise LakeUsageError(
            f"the table has rows of {', '.join(others)} too, and partition and offset do not tell them from those of "
            f"{source}: delete rows yourself with `headwater lake sql`, or rewind without --delete"
        )


def _rows_to_delete(lake: "Lake", plan: RewindPlan) -> int:
    """How many rows are in the ranges that go."""
    from pyspark.sql import functions as f

    ranges = _ranges(lake.spark, plan)
    return lake.spark.table(sql_text(plan.table)).alias("t").join(ranges.alias("s"), f.expr(_within(plan))).count()


def _with_deletion(lake: "Lake", plan: RewindPlan) -> Load:
    """One commit: a MERGE, because a DELETE of whole files would not take the properties of the session along."""
    load_id = lake.catalog.begin_load(
        table=plan.table,
        source=plan.source,
        mode=REWIND,
        before=plan.before,
        after=plan.after,
        details={"deleted": True},
    )
    properties = {
        EXPECT: canonical({plan.source: plan.before}),
        OFFSETS: canonical({plan.source: plan.after}),
        LOAD: load_id,
    }
    statement = f"merge into {sql_text(plan.table)} t using {_RANGES} s on {_within(plan)} when matched then delete"
    try:
        with session_properties(lake.spark, properties):
            _ranges(lake.spark, plan).createOrReplaceTempView(_RANGES)
            lake.spark.sql(statement)
    except Exception as error:
        if lake.catalog.fail_load(load_id, first_line(error)).state != COMMITTED:
            raise
    load = lake.catalog.load(load_id)
    if load.state == COMMITTED:
        return load
    # The rows went away since they were counted, and a MERGE that changes nothing commits nothing.
    lake.catalog.fail_load(load_id, "there was nothing to delete")
    return lake.catalog.rewind(plan.table, plan.source, plan.after)


def _ranges(spark: "SparkSession", plan: RewindPlan) -> "DataFrame":
    """Each partition with its first offset to go. One that the new position does not name goes from its beginning."""
    before, after = offsets_of(plan.before), offsets_of(plan.after)
    starts = [
        (topic, int(partition), after.get(topic, {}).get(partition, 0))
        for topic, partitions in before.items()
        for partition in partitions
    ]
    return spark.createDataFrame(starts, "topic string, partition int, start bigint")


def _within(plan: RewindPlan) -> str:
    same_topic = " and t._topic = s.topic" if len(offsets_of(plan.before)) > 1 else ""
    return f"t._partition_id = s.partition and t._offset >= s.start{same_topic}"
