"""Changes of a table that the ledger's users ask for: grow its schema, and set a source's position back."""

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from pyiceberg.exceptions import CommitFailedException, NamespaceAlreadyExistsError, TableAlreadyExistsError
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table import Table
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import AssertCurrentSchemaId, AssertDefaultSpecId, AssertTableUUID
from sqlalchemy import Connection

from headwater.catalog import ledger
from headwater.catalog.arrow_schemas import arrow_schema
from headwater.catalog.commits import positions_of
from headwater.catalog.entries import COMMITTED, PENDING, Load, SchemaChange, TableState
from headwater.catalog.evolution import (
    Wanted,
    described_order,
    described_spec,
    partition_spec,
    sort_order,
    updates_towards,
)
from headwater.catalog.locations import ForbiddenLocationError
from headwater.catalog.metadata_files import MissingFileError, StoredTable, UnreadableMetadataError
from headwater.catalog.names import Name, text_of
from headwater.catalog.namespaces import now_ms
from headwater.catalog.positions import Position, canonical, load_of
from headwater.catalog.schema_rules import with_fresh_ids
from headwater.catalog.snapshot_properties import EXPECT, LOAD, OFFSETS
from headwater.catalog.tables import CommitRefusedError, LakeCatalog, TableChange

_MOST_ATTEMPTS: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Evolution:
    """A table as a load wants it, and what the load saw that made it so."""

    name: Name
    wanted: Wanted
    changes: tuple[SchemaChange, ...] = ()
    source: str | None = None
    position: Position | None = None
    load_id: str | None = None

    def history(self, *, created: bool) -> list[SchemaChange]:
        """The steps to write, each with the load and the position that made it."""
        changes = list(self.changes)
        if created and not any(change.kind == "create" for change in changes):
            changes.insert(0, SchemaChange(kind="create", path=""))
        return [
            replace(
                change,
                source=change.source or self.source,
                position=change.position or self.position,
                load_id=change.load_id or self.load_id,
            )
            for change in changes
        ]


def evolve(catalog: LakeCatalog, evolution: Evolution) -> StoredTable:
    """Creates a table, or grows it, in one commit with its history. A table that is so already is left alone."""
    for _ in range(_MOST_ATTEMPTS):
        table = catalog.find(evolution.name)
        try:
            return _create(catalog, evolution) if table is None else _grow(catalog, table, evolution)
        except (CommitFailedException, TableAlreadyExistsError):
            continue
    dotted = text_of(evolution.name)
    raise CommitFailedException(f"{dotted}: changed by others {_MOST_ATTEMPTS} times in a row; try again")


def _create(catalog: LakeCatalog, evolution: Evolution) -> StoredTable:
    wanted = evolution.wanted
    with suppress(NamespaceAlreadyExistsError):
        catalog.make_namespace(evolution.name[:-1], {})
    schema = with_fresh_ids(wanted.schema)
    metadata = catalog.stage(
        evolution.name,
        schema,
        spec=partition_spec(schema, wanted.partition_spec) if wanted.partition_spec else UNPARTITIONED_PARTITION_SPEC,
        order=sort_order(schema, wanted.sort_order) if wanted.sort_order else UNSORTED_SORT_ORDER,
        properties=wanted.properties,
    )

    def write_history(connection: Connection) -> None:
        ledger.add_schema_changes(connection, text_of(evolution.name), evolution.history(created=True), now_ms())

    return catalog.create(evolution.name, metadata, also=write_history)


def _grow(catalog: LakeCatalog, table: StoredTable, evolution: Evolution) -> StoredTable:
    metadata = table.metadata
    change = TableChange(
        name=table.name,
        requirements=(
            AssertTableUUID(uuid=metadata.table_uuid),
            AssertCurrentSchemaId.model_validate({"current-schema-id": metadata.current_schema_id}),
            AssertDefaultSpecId.model_validate({"default-spec-id": metadata.default_spec_id}),
        ),
        updates=updates_towards(metadata, evolution.wanted),
    )

    def write_history(connection: Connection) -> None:
        ledger.add_schema_changes(connection, table.dotted, evolution.history(created=False), now_ms())

    if not change.updates and not evolution.changes:
        return table
    return catalog.commit([change], also=write_history)[0]


def rewind(catalog: LakeCatalog, name: Name, source: str, position: Position | None, load_id: str) -> None:
    """Sets a source's position by a snapshot without data. The next load reads from there."""
    opened = catalog.load_table(name)
    _check_manifests(opened)
    if opened.format_version > 2:
        raise ValueError(f"{text_of(name)} is of format version 3: its positions cannot be set back yet")
    with catalog.writing() as connection:
        target = load_of(position)
        known = ledger.find_load(connection, target) if target is not None else None
        if target is not None and (known is None or known.source != source or known.state != COMMITTED):
            raise ValueError(f"load {target} is no committed load of {source}: `loads` lists those that are")
        load = Load(
            load_id=load_id,
            table=text_of(name),
            source=source,
            mode="rewind",
            state=PENDING,
            before=None,
            after=position,
            details={},
            begun_ms=now_ms(),
        )
        ledger.begin_load(connection, load)
    for _ in range(_MOST_ATTEMPTS):
        table = catalog.load_table(name)
        found = positions_of(table.current_snapshot()).get(source)
        properties = {
            EXPECT: canonical({source: found}),
            OFFSETS: canonical({source: position}),
            LOAD: load_id,
        }
        try:
            with table.transaction() as transaction, transaction.update_snapshot(properties).fast_append():
                pass
        except CommitFailedException:
            continue
        except CommitRefusedError:
            with catalog.reading() as connection:
                known = ledger.find_load(connection, load_id)
            if known is not None and known.snapshot_id is not None:
                return
            continue
        return
    raise CommitFailedException(f"{text_of(name)}: changed by others {_MOST_ATTEMPTS} times in a row; try again")


def _check_manifests(table: Table) -> None:
    """A new snapshot repeats the list of manifests of the one before it, which is a file of anybody's."""
    snapshot = table.current_snapshot()
    if snapshot is None:
        return
    try:
        snapshot.manifests(table.io)
    except ForbiddenLocationError:
        raise
    except FileNotFoundError:
        raise MissingFileError(snapshot.manifest_list) from None
    except Exception:  # Readers raise anything, and quote what they stumble over.
        raise UnreadableMetadataError(f"{snapshot.manifest_list!r} is not the list of a snapshot's manifests") from None


def state_of(table: StoredTable) -> TableState:
    """A table as the ledger's users see it."""
    metadata = table.metadata
    schema = metadata.schema()
    return TableState(
        table=table.dotted,
        uuid=str(metadata.table_uuid),
        location=metadata.location,
        metadata_location=table.location,
        format_version=metadata.format_version,
        schema=arrow_schema(schema),
        schema_id=schema.schema_id,
        iceberg_schema=schema.model_dump_json(),
        partition_spec=described_spec(metadata.spec(), schema),
        sort_order=described_order(metadata.sort_order(), schema),
        properties=dict(metadata.properties),
        snapshot_id=metadata.current_snapshot_id,
        positions=positions_of(metadata.current_snapshot()),
    )
