"""The tables of a lake: pyiceberg's SQL catalog with exactly-once commits, and the ledger in their transaction.

Pointers to metadata files, namespaces and the ledger live in one database, SQLite or PostgreSQL. The swap of a pointer
is a compare-and-set (`UPDATE … WHERE metadata_location = old`), and whatever belongs to it is in its transaction.
"""

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from pyiceberg.catalog import WAREHOUSE_LOCATION, delete_data_files, delete_files
from pyiceberg.catalog.sql import IcebergTables
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.io import load_file_io
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.locations import load_location_provider
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.typedef import Identifier
from sqlalchemy import Connection, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from headwater.catalog import ledger
from headwater.catalog.additions import check_readable
from headwater.catalog.any_metadata import AnyMetadata
from headwater.catalog.commits import Absent, AlreadyThere, Conflict, Decision, Refusal, Swap, decide, loads_named
from headwater.catalog.metadata_files import MetadataFiles, MissingFileError, StoredTable
from headwater.catalog.names import Name, name_of, text_of
from headwater.catalog.namespaces import NamespaceCatalog, now_ms
from headwater.catalog.object_stores import WAREHOUSE
from headwater.catalog.places import folder_of
from headwater.catalog.pyiceberg_gaps import apply_updates, empty_metadata, new_metadata, validated

CATALOG_NAME: Final = "headwater"
_MOST_ATTEMPTS: Final = 20
_LOCATION: Final = "location"
_DELETES_METADATA: Final = "write.metadata.delete-after-commit.enabled"

InTransaction: TypeAlias = Callable[[Connection], None]


class CommitRefusedError(ValueError):
    """A commit that must not be repeated."""


class _LostSwapError(Exception):
    """Somebody else changed the table between our look and our swap."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableChange:
    """A commit to one table."""

    name: Name
    requirements: tuple[TableRequirement, ...] = ()
    updates: tuple[TableUpdate, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Staged:
    """A table whose new metadata file is written and not yet pointed to."""

    before: StoredTable | None
    after: StoredTable
    decision: Swap = field(default_factory=lambda: Swap(updates=()))


def _no_death(_point: str) -> None:
    return


class LakeCatalog(NamespaceCatalog):
    """The catalog of one warehouse."""

    def __init__(self, *, database: str, warehouse: str, at: Callable[[str], None] | None = None, **io: str) -> None:
        self._at = at or _no_death
        super().__init__(CATALOG_NAME, uri=database, warehouse=warehouse, **io)
        self.files = MetadataFiles({"warehouse": warehouse, **io})
        self.for_clients = {WAREHOUSE: warehouse, **io}
        """What clients are told, so that they reach the tables' files as the catalog does. No secrets."""

    def find(self, name: Name) -> StoredTable | None:
        """A table as it is now; None when there is none."""
        with self.reading() as connection:
            location = connection.execute(select(IcebergTables.metadata_location).where(*self._row(name))).scalar()
        return self.files.read(name, location) if location is not None else None

    def get(self, name: Name) -> StoredTable:
        """A table as it is now."""
        found = self.find(name)
        if found is None:
            raise NoSuchTableError(f"Table does not exist: {text_of(name)}")
        return found

    def has(self, name: Name) -> bool:
        """Whether there is a table of that name."""
        with self.reading() as connection:
            return connection.execute(select(IcebergTables.table_name).where(*self._row(name))).first() is not None

    def refuse_existing(self, name: Name) -> None:
        """Raises when there is a table of that name."""
        if self.has(name):
            raise TableAlreadyExistsError(f"Table already exists: {text_of(name)}")

    def stage(
        self,
        name: Name,
        schema: Schema,
        *,
        location: str | None = None,
        spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        order: SortOrder = UNSORTED_SORT_ORDER,
        properties: dict[str, str] | None = None,
    ) -> AnyMetadata:
        """The metadata of a new table that is not created yet."""
        namespace = name[:-1]
        if not self.namespace_exists(namespace):
            raise NoSuchNamespaceError(f"Namespace does not exist: {text_of(namespace)}")
        place = location.rstrip("/") if location else self._free_location(name)
        return new_metadata(schema, spec, order, place, properties or {})

    def create(
        self, name: Name, metadata: AnyMetadata, *, key: str | None = None, also: InTransaction | None = None
    ) -> StoredTable:
        """Creates a table from its metadata."""
        existing = self.find(name)
        if existing is not None:
            if self.is_answered(key):
                return existing
            raise TableAlreadyExistsError(f"Table already exists: {text_of(name)}")
        staged = _Staged(before=None, after=self._write(name, None, metadata))
        try:
            self._publish([staged], key, also)
        except _LostSwapError:
            self.files.drop(staged.after.location)
            existing = self.get(name)
            if self.is_answered(key):
                return existing
            raise TableAlreadyExistsError(f"Table already exists: {text_of(name)}") from None
        return staged.after

    def commit(
        self, changes: Sequence[TableChange], *, key: str | None = None, also: InTransaction | None = None
    ) -> list[StoredTable]:
        """Commits to one or several tables at once, all or nothing, in the order of `commits`."""
        for _ in range(_MOST_ATTEMPTS):
            tables = [self.find(change.name) for change in changes]
            decisions = self._decisions(changes, tables)
            done = any(isinstance(decision, AlreadyThere) for decision in decisions)
            if done or self.is_answered(key):
                return [self.get(change.name) for change in changes]
            swaps = [_swap_of(change, decision) for change, decision in zip(changes, decisions, strict=True)]
            staged = [
                self._stage_swap(change.name, table, swap)
                for change, table, swap in zip(changes, tables, swaps, strict=True)
            ]
            try:
                self._publish(staged, key, also)
            except _LostSwapError:
                for lost in staged:
                    if lost.after is not lost.before:
                        self.files.drop(lost.after.location)
                continue
            return [table.after for table in staged]
        names = ", ".join(text_of(change.name) for change in changes)
        raise CommitFailedException(
            f"{names}: changed by others {_MOST_ATTEMPTS} times in a row; refresh and try again"
        )

    def load_table(self, identifier: str | Identifier) -> Table:
        """A table as pyiceberg's own, for use in this process."""
        name = name_of(identifier) if isinstance(identifier, str) else tuple(identifier)
        found = self.get(name)
        io = self._load_file_io(found.metadata.properties, found.location)
        return Table(name, found.metadata, found.location, io, self)

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """A commit of pyiceberg's own `Table` in this process, by the same rules."""
        change = TableChange(name=table.name(), requirements=requirements, updates=updates)
        after = self.commit([change])[0]
        return CommitTableResponse.model_validate({"metadata": after.metadata, "metadata-location": after.location})

    def rename(self, old: Name, new: Name, *, key: str | None = None) -> None:
        """Renames a table, in the ledger too."""
        if not self.namespace_exists(new[:-1]):
            raise NoSuchNamespaceError(f"Namespace does not exist: {text_of(new[:-1])}")
        if self.is_answered(key):
            return
        values = {"table_namespace": text_of(new[:-1]), "table_name": new[-1]}
        try:
            with self.writing() as connection:
                changed = connection.execute(update(IcebergTables).where(*self._row(old)).values(**values))
                if not changed.rowcount:
                    raise NoSuchTableError(f"Table does not exist: {text_of(old)}")
                ledger.rename_table(connection, text_of(old), text_of(new))
                self.mark_answered(connection, key, f"rename {text_of(old)}")
        except IntegrityError:
            if self.is_answered(key):
                return
            raise TableAlreadyExistsError(f"Table already exists: {text_of(new)}") from None

    def drop(self, name: Name, *, key: str | None = None) -> None:
        """Forgets a table; its files stay."""
        if self.is_answered(key):
            return
        with self.writing() as connection:
            if not connection.execute(delete(IcebergTables).where(*self._row(name))).rowcount:
                raise NoSuchTableError(f"Table does not exist: {text_of(name)}")
            self.mark_answered(connection, key, f"drop {text_of(name)}")

    def purge(self, name: Name, *, key: str | None = None) -> None:
        """Forgets a table and deletes all its files."""
        if self.is_answered(key):
            return
        try:
            table = self.get(name)
        except MissingFileError:
            # Nobody knows its files any more. Like the reference server, this leaves what there is of them.
            self.drop(name, key=key)
            return
        if table.metadata.properties.get("gc.enabled", "true").lower() == "false":
            raise ValueError(
                f"{table.dotted} says gc.enabled=false: its files may belong to other tables; drop it only"
            )
        self.drop(name, key=key)
        io = load_file_io(self.properties, table.location)
        metadata = table.metadata
        manifests = [manifest for snapshot in metadata.snapshots for manifest in snapshot.manifests(io)]
        delete_data_files(io, manifests)
        delete_files(io, {manifest.manifest_path for manifest in manifests}, "manifest")
        delete_files(io, {snapshot.manifest_list for snapshot in metadata.snapshots}, "manifest list")
        delete_files(io, {entry.metadata_file for entry in metadata.metadata_log} | {table.location}, "metadata")

    def register(self, name: Name, location: str, *, overwrite: bool = False, key: str | None = None) -> StoredTable:
        """Makes a metadata file that exists a table of this catalog."""
        if not self.namespace_exists(name[:-1]):
            raise NoSuchNamespaceError(f"Namespace does not exist: {text_of(name[:-1])}")
        table = self.files.read(name, location)
        check_readable(table.metadata)
        before = self.find(name) if overwrite else None
        if self.is_answered(key):
            return table
        try:
            self._publish([_Staged(before=before, after=table)], key, None)
        except _LostSwapError:
            raise TableAlreadyExistsError(f"Table already exists: {text_of(name)}") from None
        return table

    def _decisions(self, changes: Sequence[TableChange], tables: Sequence[StoredTable | None]) -> list[Decision]:
        named = {load_id for change in changes for load_id in loads_named(change.updates)}
        loads = {}
        if named:
            with self.reading() as connection:
                loads = ledger.find_loads(connection, named)
        return [
            decide(
                text_of(change.name),
                table.metadata if table is not None else None,
                change.requirements,
                change.updates,
                loads,
            )
            for change, table in zip(changes, tables, strict=True)
        ]

    def _stage_swap(self, name: Name, table: StoredTable | None, swap: Swap) -> _Staged:
        base = table.metadata if table is not None else empty_metadata(swap.updates)
        metadata = apply_updates(base, swap.updates, table.location if table is not None else None)
        if table is None:
            metadata = validated(metadata)
        if table is not None and metadata is base:
            return _Staged(before=table, after=table, decision=swap)
        return _Staged(before=table, after=self._write(name, table, metadata), decision=swap)

    def _write(self, name: Name, before: StoredTable | None, metadata: AnyMetadata) -> StoredTable:
        version = self._parse_metadata_version(before.location) + 1 if before is not None else 0
        provider = load_location_provider(metadata.location, metadata.properties)
        return self.files.write(name, provider.new_table_metadata_file_location(version), metadata)

    def _publish(self, staged: Sequence[_Staged], key: str | None, also: InTransaction | None) -> None:
        """The swap: all pointers, the ledger and the request's key in one transaction, or nothing."""
        self._at("before-swap")
        try:
            with self.writing() as connection:
                for table in staged:
                    self._swap(connection, table)
                if also is not None:
                    also(connection)
                self.mark_answered(connection, key, f"commit {', '.join(table.after.dotted for table in staged)}")
        except IntegrityError as error:
            raise _LostSwapError from error
        self._at("after-swap")
        for table in staged:
            if table.before is not None and table.before is not table.after:
                self._clean_up(table.before, table.after)

    def _clean_up(self, before: StoredTable, after: StoredTable) -> None:
        self.files.forget(before.location)
        if after.metadata.properties.get(_DELETES_METADATA, "false").lower() == "true":
            kept = {entry.metadata_file for entry in after.metadata.metadata_log}
            for entry in before.metadata.metadata_log:
                if entry.metadata_file not in kept:
                    self.files.drop(entry.metadata_file)

    def _swap(self, connection: Connection, table: _Staged) -> None:
        before, after = table.before, table.after
        if before is None:
            row = self._create_table_row(text_of(after.name[:-1]), after.name[-1], after.location)
            connection.execute(insert(IcebergTables).values(**row))
        elif after is not before:
            changed = connection.execute(
                update(IcebergTables)
                .where(*self._row(after.name), IcebergTables.metadata_location == before.location)
                .values(metadata_location=after.location, previous_metadata_location=before.location)
            )
            if not changed.rowcount:
                raise _LostSwapError
        for load in table.decision.loads:
            if not ledger.commit_load(
                connection,
                load.load_id,
                snapshot_id=load.snapshot_id,
                before=load.before,
                after=load.after,
                rows=load.rows,
                now_ms=now_ms(),
            ):
                raise _LostSwapError
            if load.rewrites:
                # They write files with the columns as they were, which nobody could read among those of the rewrite.
                reason = f"load {load.load_id} rewrote columns of the table meanwhile"
                ledger.fail_others(connection, after.dotted, load.load_id, reason, now_ms())
                ledger.add_schema_changes(connection, after.dotted, load.changes, now_ms())

    def _row(self, name: Name) -> tuple[Any, ...]:
        return (
            IcebergTables.catalog_name == self.name,
            IcebergTables.table_namespace == text_of(name[:-1]),
            IcebergTables.table_name == name[-1],
        )

    def _free_location(self, name: Name) -> str:
        """The folder for a new table: no other table's, because the clean-up of orphans would delete its files."""
        database, table = folder_of(name[:-1], name[-1])
        above = self.namespace_properties(name[:-1]).get(_LOCATION)
        place = f"{above.rstrip('/') if above else f'{self.properties[WAREHOUSE_LOCATION]}/{database}'}/{table}"
        taken = select(IcebergTables.table_name).where(
            IcebergTables.metadata_location.startswith(f"{place}/", autoescape=True)
        )
        with self.reading() as connection:
            if connection.execute(taken.limit(1)).first() is None:
                return place
        return f"{place}-{uuid.uuid4().hex[:8]}"


def _swap_of(change: TableChange, decision: Decision) -> Swap:
    match decision:
        case Swap():
            return decision
        case Conflict(exists=True):
            raise TableAlreadyExistsError(decision.why)
        case Conflict():
            raise CommitFailedException(decision.why)
        case Refusal():
            raise CommitRefusedError(decision.why)
        case Absent():
            raise NoSuchTableError(f"Table does not exist: {text_of(change.name)}")
    raise AssertionError(decision)
