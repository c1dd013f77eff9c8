"""Which table lies where, in SQL: no two tables share a folder, and none lies in another's.

Files are deleted by folder: by the purge of a table, and by the removal of orphans, which takes every file below a
table's location that the table does not know. So a table's folder must be its own. Every function takes a connection,
so that a place is taken in the transaction that creates the table.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from pyiceberg.catalog.sql import IcebergTables
from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Index,
    String,
    Table,
    Text,
    and_,
    delete,
    insert,
    or_,
    select,
    update,
)

from headwater.catalog.ledger import METADATA
from headwater.catalog.locations import ForbiddenLocationError, Place, place_of

PLACES: Final = Table(
    "headwater_table_places",
    METADATA,
    Column("catalog_name", String(255), primary_key=True),
    Column("table_namespace", String(255), primary_key=True),
    Column("table_name", String(255), primary_key=True),
    Column("place", Text, nullable=False),
    Index("headwater_table_places_by_place", "place"),
)

StoredName = tuple[str, str, str]
"""Catalog, namespace and table as pyiceberg's own table of tables has them."""

_SAME_TABLE: Final = and_(
    PLACES.c.catalog_name == IcebergTables.catalog_name,
    PLACES.c.table_namespace == IcebergTables.table_namespace,
    PLACES.c.table_name == IcebergTables.table_name,
)


def check_unoccupied(connection: Connection, name: StoredName, place: Place, shown: str) -> None:
    """Raises when another table has the place, lies in it, or has it in its own."""
    above = [Place(place.store, place.parts[:depth]).text for depth in range(len(place.parts))]
    overlapping = or_(PLACES.c.place.startswith(place.text, autoescape=True), PLACES.c.place.in_(above))
    # A row whose table is gone counts no more: only those that pyiceberg's table of tables has are looked at.
    tables = select(PLACES.c.table_namespace, PLACES.c.table_name).join(IcebergTables, _SAME_TABLE)
    other = connection.execute(tables.where(overlapping, ~_is(name)).limit(1)).first()
    if other is not None:
        raise ForbiddenLocationError(
            f"the location {shown!r} overlaps that of the table {other.table_namespace}.{other.table_name}: each table "
            "needs a folder of its own, because maintenance and purging delete by folder"
        )


def occupy(connection: Connection, name: StoredName, place: Place) -> None:
    """Writes where a table lies."""
    changed = connection.execute(update(PLACES).where(_is(name)).values(place=place.text))
    if not changed.rowcount:
        catalog_name, namespace, table = name
        row = {"catalog_name": catalog_name, "table_namespace": namespace, "table_name": table, "place": place.text}
        connection.execute(insert(PLACES).values(**row))


def leave(connection: Connection, name: StoredName) -> None:
    """Forgets where a table lay."""
    connection.execute(delete(PLACES).where(_is(name)))


def rename(connection: Connection, old: StoredName, new: StoredName) -> None:
    """The same place under another name."""
    leave(connection, new)
    connection.execute(update(PLACES).where(_is(old)).values(table_namespace=new[1], table_name=new[2]))


def unknown(connection: Connection, catalog_name: str) -> list[tuple[StoredName, str]]:
    """Tables whose place is not written down, because an older version created them, and their metadata files."""
    columns = (IcebergTables.table_namespace, IcebergTables.table_name, IcebergTables.metadata_location)
    query = select(*columns).outerjoin(PLACES, _SAME_TABLE)
    rows = connection.execute(query.where(IcebergTables.catalog_name == catalog_name, PLACES.c.place.is_(None)))
    return [((catalog_name, namespace, table), location) for namespace, table, location in rows if location]


def learned(location: str, read: Callable[[str], str]) -> Place:
    """The place of a table by its metadata file, read by `read`; if nobody can, the folder that is usual for it."""
    folder = location.rpartition("/")[0].removesuffix("/metadata")
    with suppress(Exception):  # Whatever an older version left there.
        return place_of(read(location))
    with suppress(ForbiddenLocationError):
        return place_of(folder)
    return Place(folder, ())


def _is(name: StoredName) -> ColumnElement[bool]:
    catalog_name, namespace, table = name
    return and_(
        PLACES.c.catalog_name == catalog_name, PLACES.c.table_namespace == namespace, PLACES.c.table_name == table
    )
