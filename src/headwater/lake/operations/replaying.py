"""Replays what was rescued: after a fix, texts in `_rescued` and `_corrupt_record` that fit now go into their columns.

All of it is one commit, which updates the rows where they lie and carries the positions of loads forward. A job that is
killed has changed nothing; one that loses against a load or a compaction begins again with the table as it is then.
"""

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from headwater.lake.errors import LakeBusyError, LakeError, LakeUsageError
from headwater.lake.load.session_properties import session_properties
from headwater.lake.operations.races import ATTEMPTS, despite_races, lost_a_race
from headwater.lake.operations.rescued_columns import AS_JSON, COUNTS, ROWS, replayed_columns
from headwater.lake.operations.snapshots import Snapshot, sql_name, table_history
from headwater.lake.shapes.paths import CORRUPT_RECORD, RESCUED, is_metadata, split
from headwater.lake.shapes.policies import Policies
from headwater.lake.spark import first_line

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from headwater.catalog.client import CatalogClient

REPLAY: Final = "headwater.replay"
"""The property of a replay's snapshot that tells it from others."""

_UPDATED: Final = "spark.merge-into.num-target-rows-updated"
_VIEW: Final = "headwater_replayed"
_FILE: Final = "_headwater_file"
_POSITION: Final = "_headwater_position"
_NO_JSON: Final = r"(?i)\.(csv|tsv|tab|parquet|parq|pq)(\.\w+)?$"
_LOADS_LOOKED_AT: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Rescued values and whole records that fit now, those that still do not, and the rows to write anew."""

    values: int = 0
    records: int = 0
    left_values: int = 0
    left_records: int = 0
    rows: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayReport:
    """What a replay did. `snapshot_id` is None when nothing fitted, and so nothing was written."""

    table: str
    values: int
    records: int
    left_values: int
    left_records: int
    snapshot_id: int | None = None
    attempts: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayJob:
    """A replay that is about to run. `column` is the path of the only field to replay."""

    spark: "SparkSession"
    catalog: "CatalogClient"
    table: str
    column: str | None = None
    policies: Policies = field(default_factory=Policies)
    tell: Callable[[str], None] = lambda words: None

    def run(self) -> ReplayReport:
        """Puts into columns what fits."""
        if self.column is not None and split(self.column) is None:
            raise LakeUsageError(f"{self.column!r} is no path of a field: write it as `_rescued` has it")
        values = records = 0
        missed: Counts | None = None
        snapshot: Snapshot | None = None
        for attempt in range(1, ATTEMPTS + 1):
            self.tell(f"{self.table}: reading what was rescued")
            replayed, todo = despite_races(f"reading what was rescued in {self.table}", self._looked)
            if missed is not None:
                # What the last attempt was to do, and this one has not to do any more, is done (or was deleted).
                values, records = values + missed.values - todo.values, records + missed.records - todo.records
                missed = None
            if todo.rows:
                self.tell(f"{self.table}: replaying {todo.values:,} values and {todo.records:,} records")
                committed = self._merge(replayed)
                if committed is None:
                    continue
                snapshot = committed
                if int(committed.summary.get(_UPDATED, todo.rows)) < todo.rows:
                    # Some of the rows lie elsewhere since they were read, or are no more.
                    missed = todo
                    continue
            return ReplayReport(
                table=self.table,
                values=values + todo.values,
                records=records + todo.records,
                left_values=todo.left_values,
                left_records=todo.left_records,
                snapshot_id=None if snapshot is None else snapshot.snapshot_id,
                attempts=attempt,
            )
        raise LakeBusyError(
            f"other writers of {self.table} were quicker {ATTEMPTS} times in a row, and not all was replayed. Run it "
            "again when they are done"
        )

    def _looked(self) -> "tuple[DataFrame, Counts]":
        replayed = self._replayed()
        return replayed, _counted(replayed)

    def _replayed(self) -> "DataFrame":
        """The rows that have something rescued, as they would be, with counts and the places where they lie."""
        from pyspark.sql import functions as f

        table = self.spark.table(sql_name(self.table))
        missing = [name for name in (RESCUED, CORRUPT_RECORD) if name not in table.columns]
        if missing:
            raise LakeUsageError(
                f"{self.table} has no column {missing[0]}: no load has made it, so nothing was rescued"
            )
        rows = table.where(f.col(RESCUED).isNotNull() | f.col(CORRUPT_RECORD).isNotNull())
        columns = self._columns(table)
        replay = replayed_columns([table.schema[name] for name in columns], self.policies, self.column)
        given = f.struct(*(f.col(quoted(name)) for name in columns), self._texts_are_json(table).alias(AS_JSON))
        return rows.select(
            f.col("_file").alias(_FILE), f.col("_pos").alias(_POSITION), replay(given).alias("replayed")
        ).select(_FILE, _POSITION, "replayed.*")

    def _columns(self, table: "DataFrame") -> list[str]:
        return [*(name for name in table.columns if not is_metadata(name)), RESCUED, CORRUPT_RECORD]

    def _texts_are_json(self, table: "DataFrame") -> "Column":
        """Whether a row's texts are JSON: those of topics and of files of JSON are; others are plain."""
        from pyspark.sql import functions as f

        loads = self.catalog.loads(self.table, limit=_LOADS_LOOKED_AT)
        files = [load for load in loads if load.source.startswith("files:")]
        # Rewinds and rewrites read no files, and say nothing of what they are.
        formats = {load.details["format"] for load in files if "format" in load.details}
        from_topic = f.col("_offset").isNotNull() if "_offset" in table.columns else f.lit(False)
        if "_path" not in table.columns:
            return from_topic
        # Where the loads do not agree on what files are, their names tell.
        by_name = ~f.col("_path").rlike(_NO_JSON)
        from_file = f.lit(formats == {"json"}) & f.col("_path").isNotNull() if len(formats) == 1 else by_name
        return from_topic | f.coalesce(from_file, f.lit(False))

    def _merge(self, replayed: "DataFrame") -> Snapshot | None:
        """Commits the rows that change; None when another writer was quicker."""
        columns = [name for name in replayed.columns if name not in (_FILE, _POSITION, *COUNTS)]
        replay_id = uuid.uuid4().hex
        statement = f"""
            merge into {sql_name(self.table)} t using {_VIEW} s on t._file = s.{_FILE} and t._pos = s.{_POSITION}
            when matched then update set {", ".join(f"t.{quoted(name)} = s.{quoted(name)}" for name in columns)}
        """
        try:
            with session_properties(self.spark, {REPLAY: replay_id}):
                replayed.where(f"{ROWS} > 0").drop(*COUNTS).createOrReplaceTempView(_VIEW)
                self.spark.sql(statement)
        except Exception as error:
            committed = self._snapshot_of(replay_id)
            if committed is None and not lost_a_race(error):
                raise LakeError(
                    f"replaying what was rescued in {self.table} failed and changed nothing: {first_line(error)}"
                ) from error
            return committed
        return self._snapshot_of(replay_id)

    def _snapshot_of(self, replay_id: str) -> Snapshot | None:
        try:
            snapshots = table_history(self.spark, self.table).snapshots
        except Exception as error:
            raise LakeError(
                f"whether what was rescued in {self.table} was replayed is not known: {first_line(error)}. Run it "
                "again: nothing is replayed twice"
            ) from error
        return next((each for each in snapshots if each.summary.get(REPLAY) == replay_id), None)


def quoted(name: str) -> str:
    """A column's name in a statement."""
    return "`" + name.replace("`", "``") + "`"


def _counted(replayed: "DataFrame") -> Counts:
    from pyspark.sql import functions as f

    (row,) = replayed.agg(*(f.coalesce(f.sum(name), f.lit(0)).alias(name) for name in COUNTS)).collect()
    values, records, left_values, left_records, rows = map(int, row)
    return Counts(values=values, records=records, left_values=left_values, left_records=left_records, rows=rows)
