"""Looks after tables: packs small files, tidies manifests, lets go of old snapshots, removes files that nobody knows.

Every step is one that Iceberg offers, and leaves the rows as they are. The catalog carries the positions of loads
forward with each commit, so a load goes on where it was. A step that loses against a load begins again.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from headwater.catalog.entries import COMMITTED, PENDING, Load
from headwater.catalog.names import levels_of, text_of
from headwater.catalog.object_stores import is_s3
from headwater.lake.errors import LakeUsageError
from headwater.lake.operations.races import despite_races
from headwater.lake.operations.snapshots import Figures, TableHistory, sql_name, table_history
from headwater.lake.spark import CATALOG

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

    from headwater.catalog.client import CatalogClient

DAY_S: Final = 86_400.0
SAFE_AGE_S: Final = DAY_S
"""Files younger than this are never removed: a load that runs now has written them, and commits them later."""

STEPS: Final = ("compact", "deletes", "manifests", "expire", "orphans")

_MIN_FILES: Final = 5
_SMALL: Final = 0.75
_TARGET_BYTES: Final = 512 << 20
_LONGEST_LOAD_S: Final = 7 * DAY_S
_LOADS_LOOKED_AT: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Care:
    """What is wanted of maintenance. `keep` states of a table stay, however long ago they were replaced."""

    older_than_s: float = 7 * DAY_S
    keep: int = 1
    orphans_older_than_s: float = SAFE_AGE_S
    dry_run: bool = False

    def __post_init__(self) -> None:
        if self.keep < 1:
            raise LakeUsageError("a table keeps at least its current state: --keep is 1 or more")
        if self.orphans_older_than_s < SAFE_AGE_S:
            raise LakeUsageError(
                "files younger than a day may belong to a load that is running: --orphans-older-than 1d"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """What a step did, or would do. `touched` are the files it rewrote or removed, or the snapshots it let go."""

    step: str
    touched: int
    before: Figures
    after: Figures


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceReport:
    """What was done for a table."""

    table: str
    steps: Sequence[StepReport]
    seconds: float
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Maintenance:
    """The care for one table."""

    spark: "SparkSession"
    catalog: "CatalogClient"
    table: str
    care: Care = field(default_factory=Care)
    tell: Callable[[str], None] = lambda words: None
    clock: Callable[[], float] = time.time

    def run(self) -> MaintenanceReport:
        """All steps, in the order in which each profits from those before it."""
        began = time.monotonic()
        work: Mapping[str, Callable[[], int]] = {
            "compact": self._compact,
            "deletes": self._pack_deletes,
            "manifests": self._tidy_manifests,
            "expire": self._expire,
            "orphans": self._remove_orphans,
        }
        steps = []
        before = self._figures()
        for step in STEPS:
            self.tell(f"{self.table}: {step}")
            touched = despite_races(f"the step {step} for {self.table}", work[step])
            after = before if self.care.dry_run else self._figures()
            steps.append(StepReport(step=step, touched=touched, before=before, after=after))
            before = after
        return MaintenanceReport(
            table=self.table, steps=steps, seconds=time.monotonic() - began, dry_run=self.care.dry_run
        )

    def _figures(self) -> Figures:
        return despite_races(f"looking at the snapshots of {self.table}", lambda: self._history().figures)

    def _history(self) -> TableHistory:
        return table_history(self.spark, self.table)

    def _compact(self) -> int:
        if self.care.dry_run:
            return self._files_to_compact()
        options = {"min-input-files": str(_MIN_FILES), "remove-dangling-deletes": "true"}
        return int(self._call("rewrite_data_files", options=_map(options)).rewritten_data_files_count)

    def _files_to_compact(self) -> int:
        """An estimate: small files in partitions that have several."""
        target = int(self._history().properties.get("write.target-file-size-bytes", _TARGET_BYTES))
        found = self.spark.table(f"{sql_name(self.table)}.files").where("content = 0")
        by = ["spec_id", *(["partition"] if "partition" in found.columns else [])]
        small = found.where(f"file_size_in_bytes < {int(_SMALL * target)}").groupBy(*by).count()
        return sum(row["count"] for row in small.collect() if row["count"] >= _MIN_FILES)

    def _pack_deletes(self) -> int:
        if self.care.dry_run or self._history().figures.delete_files == 0:
            return self._history().figures.delete_files
        return int(self._call("rewrite_position_delete_files").rewritten_delete_files_count)

    def _tidy_manifests(self) -> int:
        manifests = self._history().manifests
        if self.care.dry_run or manifests < 2:
            return manifests if manifests > 1 else 0
        return int(self._call("rewrite_manifests").rewritten_manifests_count)

    def _expire(self) -> int:
        before_ms = int((self.clock() - self.care.older_than_s) * 1000)
        expired = self._history().expired(before_ms=before_ms, keep=self.care.keep)
        if expired and not self.care.dry_run:
            # The age is ours to judge, so Iceberg is given one that no snapshot has.
            ids = ", ".join(f"{snapshot_id}L" for snapshot_id in expired)
            self._call("expire_snapshots", snapshot_ids=f"array({ids})", older_than=_timestamp(0))
        return len(expired)

    def _remove_orphans(self) -> int:
        loads = self.catalog.loads(self.table, limit=_LOADS_LOOKED_AT)
        older_than = _timestamp(needed_since_s(loads, self.care, self.clock()))
        arguments = {"older_than": older_than, "dry_run": str(self.care.dry_run).lower()}
        state = self.catalog.table_state(self.table)
        if state is not None and is_s3(state.location):
            # Hadoop's way to list folders knows no S3; Iceberg's own does.
            arguments["prefix_listing"] = "true"
        return len(self._rows("remove_orphan_files", **arguments))

    def _call(self, procedure: str, **arguments: str) -> "Row":
        return self._rows(procedure, **arguments)[0]

    def _rows(self, procedure: str, **arguments: str) -> "list[Row]":
        given = ", ".join(f"{name} => {value}" for name, value in arguments.items())
        comma = ", " if given else ""
        # A name is also hostile text: here it stands in a string of SQL.
        table = sql_name(self.table).replace("\\", "\\\\").replace("'", "\\'")
        return self.spark.sql(f"call {CATALOG}.system.{procedure}(table => '{table}'{comma}{given})").collect()


def needed_since_s(newest_first: Sequence[Load], care: Care, now_s: float) -> float:
    """A time before which no load that may still be committed has written anything."""
    safe_s = now_s - care.orphans_older_than_s
    # What is pending for longer than this was killed, and its source was never loaded again.
    horizon_s = min(safe_s, now_s - _LONGEST_LOAD_S)
    begun_s = [load.begun_ms / 1000 for load in open_loads(newest_first)]
    return min([safe_s, *(each for each in begun_s if each > horizon_s)])


def open_loads(newest_first: Sequence[Load]) -> list[Load]:
    """Loads that may still be committed: pending, and not overtaken by a later load of the same source."""
    overtaken: set[str] = set()
    found = []
    for load in newest_first:
        if load.state == COMMITTED:
            overtaken.add(load.source)
        elif load.state == PENDING and load.source not in overtaken:
            found.append(load)
    return found


def tables_of(spark: "SparkSession") -> list[str]:
    """Every table of the lake."""
    found: list[str] = []
    todo = [row.namespace for row in spark.sql(f"show namespaces in {CATALOG}").collect()]
    while todo:
        namespace = todo.pop()
        inside = f"{CATALOG}.{sql_name(namespace)}"
        above = levels_of(namespace)
        found += [text_of((*above, row.tableName)) for row in spark.sql(f"show tables in {inside}").collect()]
        todo += [row.namespace for row in spark.sql(f"show namespaces in {inside}").collect()]
    return sorted(found)


def _map(options: Mapping[str, str]) -> str:
    entries = ", ".join(f"'{name}', '{value}'" for name, value in options.items())
    return f"map({entries})"


def _timestamp(at_s: float) -> str:
    return f"timestamp '{datetime.fromtimestamp(at_s, UTC):%Y-%m-%d %H:%M:%S}'"
