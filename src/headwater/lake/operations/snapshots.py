"""What a table consists of, as its metadata tells: files, bytes, manifests, snapshots. Starts no Spark job."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headwater.catalog.names import sql_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One state of a table."""

    snapshot_id: int
    parent_id: int | None
    at_ms: int
    summary: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """How much a table consists of. The files are those of its current state."""

    data_files: int = 0
    delete_files: int = 0
    bytes: int = 0
    manifests: int = 0
    snapshots: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TableHistory:
    """A table's snapshots, and which of them have a name: `main` is the current one."""

    snapshots: Sequence[Snapshot]
    named: Mapping[str, int]
    manifests: int
    properties: Mapping[str, str]

    @property
    def current(self) -> Snapshot | None:
        """The snapshot that a reader sees; None before the first commit."""
        return next((each for each in self.snapshots if each.snapshot_id == self.named.get("main")), None)

    @property
    def figures(self) -> Figures:
        """How much there is."""
        totals = self.current.summary if self.current is not None else {}
        return Figures(
            data_files=int(totals.get("total-data-files", 0)),
            delete_files=int(totals.get("total-delete-files", 0)),
            bytes=int(totals.get("total-files-size", 0)),
            manifests=self.manifests,
            snapshots=len(self.snapshots),
        )

    def expired(self, *, before_ms: int, keep: int) -> list[int]:
        """Snapshots that were replaced before a time. Named ones stay, and the `keep` last states of the table.

        What counts is when a snapshot was replaced, not when it was made: somebody may still read what was current a
        minute ago, however old it is.
        """
        replaced_ms: dict[int, int] = {}
        for each in self.snapshots:
            if each.parent_id is not None:
                replaced_ms[each.parent_id] = min(each.at_ms, replaced_ms.get(each.parent_id, each.at_ms))
        staying = {*self.named.values(), *self._last(keep)}
        return [
            each.snapshot_id
            for each in self.snapshots
            if each.snapshot_id not in staying and replaced_ms.get(each.snapshot_id, each.at_ms) < before_ms
        ]

    def _last(self, keep: int) -> list[int]:
        by_id = {each.snapshot_id: each for each in self.snapshots}
        at = self.current
        last: list[int] = []
        while at is not None and len(last) < keep:
            last.append(at.snapshot_id)
            at = by_id.get(at.parent_id) if at.parent_id is not None else None
        return last


def table_history(spark: "SparkSession", table: str) -> TableHistory:
    """The table as it is now. Iceberg's own library reads the metadata, in the driver."""
    java: Any = spark.sparkContext._jvm
    found = java.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, sql_name(table))
    current = found.currentSnapshot()
    return TableHistory(
        snapshots=[_snapshot(each) for each in found.snapshots()],
        named={name: found.refs()[name].snapshotId() for name in found.refs()},
        manifests=0 if current is None else len(current.allManifests(found.io())),
        properties={name: found.properties()[name] for name in found.properties()},
    )


def _snapshot(java: Any) -> Snapshot:
    summary = java.summary()
    return Snapshot(
        snapshot_id=java.snapshotId(),
        parent_id=java.parentId(),
        at_ms=java.timestampMillis(),
        summary={name: summary[name] for name in summary} if summary is not None else {},
    )


def sql_name(table: str) -> str:
    """A table's name in a statement, whatever characters it has.

    >>> sql_name("shop.my-orders")
    '`shop`.`my-orders`'
    """
    return sql_text(table)
