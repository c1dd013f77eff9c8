"""The tables of a lake: pyiceberg's SQL catalog with exactly-once commits, and the ledger in their transaction.

Pointers to metadata files, namespaces and the ledger live in one database, SQLite or PostgreSQL. The swap of a pointer
is a compare-and-set (`UPDATE … WHERE metadata_location = old`), and whatever belongs to it is in its transaction.
"""

import re
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from pyiceberg.catalog import WAREHOUSE_LOCATION, PropertiesUpdateSummary
from pyiceberg.catalog.sql import IcebergTables
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.io import FileIO
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.locations import LocationProvider, SimpleLocationProvider
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.typedef import EMPTY_DICT, Identifier, Properties
from sqlalchemy import Connection, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from headwater.catalog import ledger, occupied_places
from headwater.catalog.additions import check_readable
from headwater.catalog.any_metadata import AnyMetadata
from headwater.catalog.callers_fault import callers_fault
from headwater.catalog.commits import Absent, AlreadyThere, Conflict, Decision, Refusal, Swap, decide, loads_named
from headwater.catalog.locations import ForbiddenLocationError, Roots
from headwater.catalog.metadata_files import (
    MetadataFiles,
    MissingFileError,
    StoredTable,
    UnreadableMetadataError,
    is_metadata_name,
)
from headwater.catalog.names import Name, name_of, text_of
from headwater.catalog.namespaces import NamespaceCatalog, now_ms
from headwater.catalog.object_stores import WAREHOUSE
from headwater.catalog.occupied_places import StoredName
from headwater.catalog.places import folder_of
from headwater.catalog.purging import below, purge_files
from headwater.catalog.pyiceberg_gaps import apply_updates, empty_metadata, new_metadata, validated
from headwater.catalog.rooted_files import RootedFileIO
from headwater.catalog.table_properties import (
    check_namespace_properties,
    check_properties,
    is_refused,
    new_metadata_location,
)

CATALOG_NAME: Final = "headwater"
_MOST_ATTEMPTS: Final = 20
_LOCATION: Final = "location"
_SPARE: Final = re.compile(r"-[0-9a-f]{8}$")
"""What stands behind a folder's usual name when another table has that folder."""
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

    def __init__(
        self,
        *,
        database: str,
        warehouse: str,
        allowed: Iterable[str] = (),
        at: Callable[[str], None] | None = None,
        **io: str,
    ) -> None:
        self._at = at or _no_death
        self.roots = Roots(warehouse, allowed)
        """Tables lie below them, and nothing else is written, deleted or registered."""
        super().__init__(CATALOG_NAME, uri=database, warehouse=warehouse, **io)
        self.files = MetadataFiles({WAREHOUSE_LOCATION: warehouse, **io})
        self.file_io = RootedFileIO({WAREHOUSE_LOCATION: warehouse, **io}, self.roots)
        self.for_clients = {WAREHOUSE: warehouse, **io}
        """What clients are told, so that they reach the tables' files as the catalog does. No secrets."""

    def make_namespace(self, name: Name, properties: dict[str, str], *, key: str | None = None) -> None:
        """Creates a namespace."""
        check_namespace_properties(properties, self.roots)
        super().make_namespace(name, properties, key=key)

    def namespace_properties(self, name: Name) -> dict[str, str]:
        """The properties that people gave a namespace; what an older version let in and is refused now is left out."""
        found = super().namespace_properties(name)
        return {key: value for key, value in found.items() if not is_refused(key)}

    def update_namespace_properties(
        self, namespace: str | Identifier, removals: set[str] | None = None, updates: Properties = EMPTY_DICT
    ) -> PropertiesUpdateSummary:
        """Sets and removes properties of a namespace."""
        check_namespace_properties(updates, self.roots)
        return super().update_namespace_properties(namespace, removals, updates)

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
        metadata = new_metadata(schema, spec, order, place, properties or {})
        self._check(name, None, metadata)
        return metadata

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
        except ForbiddenLocationError:
            self.files.drop(staged.after.location)
            raise
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
        names = [change.name for change in changes]
        if len(set(names)) < len(names):
            raise ValueError("a commit to several tables names each table once: put all updates of a table together")
        for _ in range(_MOST_ATTEMPTS):
            tables = [self.find(change.name) for change in changes]
            decisions = self._decisions(changes, tables)
            done = any(isinstance(decision, AlreadyThere) for decision in decisions)
            if done or self.is_answered(key):
                return [self.get(change.name) for change in changes]
            swaps = [_swap_of(change, decision) for change, decision in zip(changes, decisions, strict=True)]
            staged: list[_Staged] = []
            try:
                for change, table, swap in zip(changes, tables, swaps, strict=True):
                    staged.append(self._stage_swap(change.name, table, swap))
            except BaseException:
                # Another table of the commit cannot be changed, so nothing will point to what is written.
                self._drop_staged(staged)
                raise
            try:
                self._publish(staged, key, also)
            except (_LostSwapError, ForbiddenLocationError) as error:
                self._drop_staged(staged)
                if isinstance(error, ForbiddenLocationError):
                    raise
                continue
            return [table.after for table in staged]
        shown = ", ".join(map(text_of, names))
        raise CommitFailedException(
            f"{shown}: changed by others {_MOST_ATTEMPTS} times in a row; refresh and try again"
        )

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """A commit of pyiceberg's own `Table` in this process, by the same rules."""
        change = TableChange(name=table.name(), requirements=requirements, updates=updates)
        after = self.commit([change])[0]
        return CommitTableResponse.model_validate({"metadata": after.metadata, "metadata-location": after.location})

    def load_table(self, identifier: str | Identifier) -> Table:
        """A table for pyiceberg's own operations in this process, which opens files below the roots only."""
        found = self.get(name_of(identifier) if isinstance(identifier, str) else tuple(identifier))
        self.roots.check(found.metadata.location)
        check_properties(found.metadata.properties, self.roots)
        return _RootedTable(found.name, found.metadata, found.location, self.file_io, self)

    def _load_file_io(self, properties: Properties = EMPTY_DICT, location: str | None = None) -> FileIO:
        # pyiceberg would take a table's properties for settings of its own.
        return self.file_io

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
                occupied_places.rename(connection, self._stored(old), self._stored(new))
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
            occupied_places.leave(connection, self._stored(name))
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
        place = self.roots.check(table.metadata.location)
        self._learn_places()
        with self.reading() as connection:
            # An older version let tables share a folder.
            occupied_places.check_unoccupied(connection, self._stored(name), place, table.metadata.location)
        self._drop_as(table, key)
        purge_files(table, self.file_io)

    def _drop_as(self, table: StoredTable, key: str | None) -> None:
        """Forgets a table if it is still what was read: renamed or changed meanwhile, its files are in use."""
        with self.writing() as connection:
            is_same = IcebergTables.metadata_location == table.location
            if not connection.execute(delete(IcebergTables).where(*self._row(table.name), is_same)).rowcount:
                raise CommitFailedException(f"{table.dotted} was changed by others meanwhile; look again and retry")
            occupied_places.leave(connection, self._stored(table.name))
            self.mark_answered(connection, key, f"drop {table.dotted}")

    def register(self, name: Name, location: str, *, overwrite: bool = False, key: str | None = None) -> StoredTable:
        """Makes a metadata file that exists a table of this catalog."""
        if not self.namespace_exists(name[:-1]):
            raise NoSuchNamespaceError(f"Namespace does not exist: {text_of(name[:-1])}")
        self._check_registered(location)
        table = self.files.read_stranger(name, location)
        check_readable(table.metadata)
        before = self.find(name) if overwrite else None
        if self.is_answered(key):
            return table
        if before is None:
            self.refuse_existing(name)
        self._check(name, before, table.metadata)
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
        with callers_fault("the commit"):
            metadata = apply_updates(base, swap.updates, table.location if table is not None else None)
            if table is None:
                metadata = validated(metadata)
        if table is not None and metadata is base:
            return _Staged(before=table, after=table, decision=swap)
        return _Staged(before=table, after=self._write(name, table, metadata), decision=swap)

    def _drop_staged(self, staged: Iterable[_Staged]) -> None:
        for lost in staged:
            if lost.after is not lost.before:
                self.files.drop(lost.after.location)

    def _write(self, name: Name, before: StoredTable | None, metadata: AnyMetadata) -> StoredTable:
        self._check(name, before, metadata)
        version = self._parse_metadata_version(before.location) + 1 if before is not None else 0
        location = new_metadata_location(metadata, version)
        self.roots.check(location)
        return self.files.write(name, location, metadata)

    def _check(self, name: Name, before: StoredTable | None, metadata: AnyMetadata) -> None:
        """Raises for properties that nobody can give a table, and for a location that it cannot have."""
        check_properties(metadata.properties, self.roots)
        location = metadata.location
        if before is not None and location == before.metadata.location:
            self.roots.check(location)
            return
        # The catalog's own choice, which a staged table brings back, has percent signs where its name is unusual.
        is_ours = _SPARE.sub("", location) == self._usual_location(name)
        place = self.roots.check(location) if is_ours else self.roots.check_new(location)
        self._learn_places()
        with self.reading() as connection:
            occupied_places.check_unoccupied(connection, self._stored(name), place, location)

    def _check_registered(self, location: str) -> None:
        self.roots.check_new(location, "the metadata file")
        if not is_metadata_name(location):
            raise UnreadableMetadataError(f"{location!r} is no metadata file: its name would end with .metadata.json")

    def _learn_places(self) -> None:
        """Writes down where tables lie that a version created which did not."""
        with self.reading() as connection:
            unknown = occupied_places.unknown(connection, self.name)
        if not unknown:
            return
        read = {location: occupied_places.learned(location, self._location_in) for _, location in unknown}
        with self.writing() as connection:
            for stored, location in unknown:
                occupied_places.occupy(connection, stored, read[location])

    def _location_in(self, metadata_file: str) -> str:
        return self.files.read((), metadata_file).metadata.location

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
            # A log that came with a registered file may name anybody's files.
            is_own = below(after.metadata.location)
            for entry in before.metadata.metadata_log:
                if entry.metadata_file not in kept and is_own(entry.metadata_file):
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
        if before is None or before.metadata.location != after.metadata.location:
            place, stored = self.roots.check(after.metadata.location), self._stored(after.name)
            occupied_places.check_unoccupied(connection, stored, place, after.metadata.location)
            occupied_places.occupy(connection, stored, place)
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
        place = self._usual_location(name)
        taken = select(IcebergTables.table_name).where(
            IcebergTables.metadata_location.startswith(f"{place}/", autoescape=True)
        )
        with self.reading() as connection:
            if connection.execute(taken.limit(1)).first() is None:
                return place
        return f"{place}-{uuid.uuid4().hex[:8]}"

    def _usual_location(self, name: Name) -> str:
        database, table = folder_of(name[:-1], name[-1])
        above = self.namespace_properties(name[:-1]).get(_LOCATION)
        return f"{above.rstrip('/') if above else f'{self.properties[WAREHOUSE_LOCATION]}/{database}'}/{table}"

    def _stored(self, name: Name) -> StoredName:
        """A name as it is in the database."""
        return self.name, text_of(name[:-1]), name[-1]


class _RootedTable(Table):
    """pyiceberg's table, which asks for no class by name."""

    def location_provider(self) -> LocationProvider:
        """Where new files go."""
        return SimpleLocationProvider(self.metadata.location.rstrip("/"), self.metadata.properties)


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
