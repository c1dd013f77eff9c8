"""The ledger: SQL tables of loads, their files, schema changes and answered requests, beside Iceberg's own.

Every function takes a connection, so that ledger rows and a table's pointer change in one transaction.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Float,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    delete,
    insert,
    select,
    update,
)

from headwater.catalog.entries import COMMITTED, FAILED, PENDING, FileEntry, Load, SchemaChange
from headwater.catalog.positions import Position, canonical, load_of, parse_position

if TYPE_CHECKING:
    import pyarrow as pa
    from sqlalchemy.dialects import sqlite

METADATA: Final = MetaData()
_NUMBER: Final = BigInteger().with_variant(Integer, "sqlite")
_IDS_AT_ONCE: Final = 500
_ROWS_AT_ONCE: Final = 500

LOADS: Final = Table(
    "headwater_loads",
    METADATA,
    Column("number", _NUMBER, primary_key=True, autoincrement=True),
    Column("load_id", String(64), nullable=False, unique=True),
    Column("table_name", String(511), nullable=False),
    Column("source", Text, nullable=False),
    Column("mode", String(32), nullable=False),
    Column("state", String(16), nullable=False),
    Column("before", Text),
    Column("after", Text),
    Column("details", Text, nullable=False),
    Column("begun_ms", BigInteger, nullable=False),
    Column("committed_ms", BigInteger),
    Column("finished_ms", BigInteger),
    Column("snapshot_id", BigInteger),
    Column("rows", BigInteger),
    Column("rescued", BigInteger),
    Column("corrupt", BigInteger),
    Column("bytes_read", BigInteger),
    Column("seconds", Float),
    Column("reason", Text),
    Index("headwater_loads_by_table", "table_name", "source"),
    Index("headwater_loads_by_source", "source"),
)

FILES: Final = Table(
    "headwater_files",
    METADATA,
    Column("load_id", String(64), primary_key=True),
    Column("path", Text, primary_key=True),
    Column("modified_ns", BigInteger, nullable=False),
    Column("size", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

SCHEMA_CHANGES: Final = Table(
    "headwater_schema_changes",
    METADATA,
    Column("number", _NUMBER, primary_key=True, autoincrement=True),
    Column("table_name", String(511), nullable=False, index=True),
    Column("at_ms", BigInteger, nullable=False),
    Column("kind", String(32), nullable=False),
    Column("path", Text, nullable=False),
    Column("old_type", Text),
    Column("new_type", Text),
    Column("source", Text),
    Column("position", Text),
    Column("load_id", String(64)),
)

ANSWERED: Final = Table(
    "headwater_answered_requests",
    METADATA,
    Column("key", String(255), primary_key=True),
    Column("request", Text, nullable=False),
    Column("at_ms", BigInteger, nullable=False, index=True),
)


class NoSuchLoadError(LookupError):
    """A load id that the ledger does not have."""


def begin_load(connection: Connection, load: Load) -> None:
    """Writes a pending load. The same load again changes nothing: a client may repeat a call whose answer it lost."""
    connection.execute(
        _upsert(connection, LOADS)
        .on_conflict_do_nothing(index_elements=["load_id"])
        .values(
            load_id=load.load_id,
            table_name=load.table,
            source=load.source,
            mode=load.mode,
            state=PENDING,
            before=_text(load.before),
            after=_text(load.after),
            details=canonical(load.details),
            begun_ms=load.begun_ms,
        )
    )


def add_files(connection: Connection, load_id: str, files: "pa.Table") -> None:
    """Writes the files of a pending load; a file that it has already gets the newer entry."""
    columns = (files.column(name).to_pylist() for name in ("path", "modified_ns", "size"))
    rows = [
        {"load_id": load_id, "path": path, "modified_ns": modified_ns, "size": size}
        for path, modified_ns, size in zip(*columns, strict=True)
    ]
    if not rows:
        return
    upsert = _upsert(connection, FILES)
    newer = {"modified_ns": upsert.excluded.modified_ns, "size": upsert.excluded.size}
    connection.execute(upsert.on_conflict_do_update(index_elements=["load_id", "path"], set_=newer), rows)


def commit_load(
    connection: Connection,
    load_id: str,
    *,
    snapshot_id: int,
    before: Position | None,
    after: Position | None,
    rows: int | None,
    now_ms: int,
) -> bool:
    """Makes a pending load committed; False when it is not pending any more."""
    values = {"before": _text(before), "after": _text(after), "rows": rows}
    changed = connection.execute(
        update(LOADS)
        .where(LOADS.c.load_id == load_id, LOADS.c.state == PENDING)
        .values(state=COMMITTED, snapshot_id=snapshot_id, committed_ms=now_ms, **values)
    )
    return bool(changed.rowcount)


def finish_load(connection: Connection, load_id: str, counts: Mapping[str, Any], now_ms: int) -> None:
    """Writes what a committed load counted. What it did not count stays as it was."""
    names = ("rows", "rescued", "corrupt", "bytes_read", "seconds")
    values = {name: counts[name] for name in names if counts.get(name) is not None}
    connection.execute(update(LOADS).where(LOADS.c.load_id == load_id).values(finished_ms=now_ms, **values))


def fail_load(connection: Connection, load_id: str, reason: str, now_ms: int) -> bool:
    """Makes a pending load failed, so that a late commit of it is refused; False when it is not pending."""
    changed = connection.execute(
        update(LOADS)
        .where(LOADS.c.load_id == load_id, LOADS.c.state == PENDING)
        .values(state=FAILED, reason=reason, finished_ms=now_ms)
    )
    return bool(changed.rowcount)


def fail_others(connection: Connection, table: str, load_id: str, reason: str, now_ms: int) -> None:
    """Makes all pending loads into a table failed but one."""
    connection.execute(
        update(LOADS)
        .where(LOADS.c.table_name == table, LOADS.c.state == PENDING, LOADS.c.load_id != load_id)
        .values(state=FAILED, reason=reason, finished_ms=now_ms)
    )


def find_load(connection: Connection, load_id: str) -> Load | None:
    """A load by its id."""
    row = connection.execute(select(LOADS).where(LOADS.c.load_id == load_id)).mappings().one_or_none()
    return _load(row) if row is not None else None


def find_loads(connection: Connection, load_ids: Iterable[str]) -> dict[str, Load]:
    """Loads by their ids; those that are unknown are left out."""
    found = {load_id: find_load(connection, load_id) for load_id in load_ids}
    return {load_id: load for load_id, load in found.items() if load is not None}


def list_loads(connection: Connection, *, table: str | None, source: str | None, limit: int) -> list[Load]:
    """The newest loads, newest first."""
    query = select(LOADS).order_by(LOADS.c.number.desc()).limit(limit)
    if table is not None:
        query = query.where(LOADS.c.table_name == table)
    if source is not None:
        query = query.where(LOADS.c.source == source)
    return [_load(row) for row in connection.execute(query).mappings()]


def list_sources(connection: Connection, table: str | None) -> list[tuple[str, str]]:
    """The tables that were loaded into, or tried to be, and the sources of each, in order."""
    query = select(LOADS.c.table_name, LOADS.c.source).distinct().order_by(LOADS.c.table_name, LOADS.c.source)
    if table is not None:
        query = query.where(LOADS.c.table_name == table)
    return [(row.table_name, row.source) for row in connection.execute(query)]


def files_of(connection: Connection, load_ids: Sequence[str]) -> "pa.Table":
    """The files of loads (path, modified_ns, size, load_id), which are oldest first; of a path its newest entry."""
    import pyarrow as pa

    from headwater.catalog.arrow_input import KNOWN_FILES

    schema = KNOWN_FILES
    batches = []
    for start in range(0, len(load_ids), _IDS_AT_ONCE):
        chunk = load_ids[start : start + _IDS_AT_ONCE]
        query = select(*(FILES.c[name] for name in schema.names)).where(FILES.c.load_id.in_(chunk))
        # The driver's own tuples, and few at once: row objects of 100,000 files, or as many tuples that are turned
        # into columns together, cost several times as much.
        cursor = connection.execute(query).cursor
        while rows := cursor.fetchmany(_ROWS_AT_ONCE):
            columns = zip(schema.types, zip(*rows, strict=True), strict=True)
            batches.append(pa.record_batch([pa.array(values, type_) for type_, values in columns], schema=schema))
    files = pa.Table.from_batches(batches, schema).combine_chunks()
    return files if len(load_ids) < 2 else _newest_of_each_path(files, load_ids)


def _newest_of_each_path(files: "pa.Table", load_ids: Sequence[str]) -> "pa.Table":
    import pyarrow as pa
    import pyarrow.compute as pc

    age = pc.index_in(files.column("load_id"), pa.array(load_ids, pa.string()))
    ordered = files.take(pc.sort_indices(age))
    place = pa.array(range(ordered.num_rows), pa.int64())
    last = pa.table({"path": ordered.column("path"), "place": place}).group_by("path").aggregate([("place", "max")])
    return ordered.take(last.column("place_max").sort())


def chain_of(connection: Connection, source: str, position: Position | None) -> list[str]:
    """The ids of the committed loads that lead to a position, oldest first.

    Each load names the one before it, so a table that was rolled back, rewound, dropped and made again, or renamed has
    the files of exactly those loads whose data it has.
    """
    query = select(LOADS.c.load_id, LOADS.c.before).where(LOADS.c.source == source, LOADS.c.state == COMMITTED)
    before = {row.load_id: row.before for row in connection.execute(query)}
    chain: dict[str, None] = {}
    load_id = load_of(position)
    while load_id is not None and load_id in before and load_id not in chain:
        chain[load_id] = None
        text = before[load_id]
        load_id = load_of(parse_position(text)) if text is not None else None
    return list(reversed(chain))


def find_file(connection: Connection, table: str, path: str) -> list[FileEntry]:
    """All loads into a table that named a file, newest first."""
    query = (
        select(LOADS, FILES.c.modified_ns, FILES.c.size)
        .join(FILES, FILES.c.load_id == LOADS.c.load_id)
        .where(LOADS.c.table_name == table, FILES.c.path == path)
        .order_by(LOADS.c.number.desc())
    )
    return [
        FileEntry(load=_load(row), path=path, modified_ns=row["modified_ns"], size=row["size"])
        for row in connection.execute(query).mappings()
    ]


def add_schema_changes(connection: Connection, table: str, changes: Iterable[SchemaChange], now_ms: int) -> None:
    """Writes steps of a table's schema history; those of one load that are there already are not written again."""
    known = {
        (change.load_id, change.kind, change.path, change.new_type) for change in schema_history(connection, table)
    }
    for change in changes:
        if change.load_id is not None and (change.load_id, change.kind, change.path, change.new_type) in known:
            continue
        connection.execute(
            insert(SCHEMA_CHANGES).values(
                table_name=table,
                at_ms=now_ms if change.at_ms is None else change.at_ms,
                kind=change.kind,
                path=change.path,
                old_type=change.old_type,
                new_type=change.new_type,
                source=change.source,
                position=_text(change.position),
                load_id=change.load_id,
            )
        )


def schema_history(connection: Connection, table: str) -> list[SchemaChange]:
    """All steps of a table's schema, oldest first."""
    query = select(SCHEMA_CHANGES).where(SCHEMA_CHANGES.c.table_name == table).order_by(SCHEMA_CHANGES.c.number)
    return [
        SchemaChange(
            kind=row["kind"],
            path=row["path"],
            old_type=row["old_type"],
            new_type=row["new_type"],
            source=row["source"],
            position=_position(row["position"]),
            load_id=row["load_id"],
            at_ms=row["at_ms"],
        )
        for row in connection.execute(query).mappings()
    ]


def rename_table(connection: Connection, old: str, new: str) -> None:
    """Gives the rows of a table its new name."""
    for table in (LOADS, SCHEMA_CHANGES):
        connection.execute(update(table).where(table.c.table_name == old).values(table_name=new))


def is_answered(connection: Connection, key: str) -> bool:
    """Whether the request with an idempotency key was carried out."""
    return connection.execute(select(ANSWERED.c.key).where(ANSWERED.c.key == key)).one_or_none() is not None


def mark_answered(connection: Connection, key: str, request: str, *, now_ms: int, kept_ms: int) -> None:
    """Remembers a request as carried out, and forgets those that nobody will repeat any more."""
    connection.execute(delete(ANSWERED).where(ANSWERED.c.at_ms < now_ms - kept_ms))
    connection.execute(insert(ANSWERED).values(key=key, request=request, at_ms=now_ms))


def _upsert(connection: Connection, table: Table) -> "sqlite.Insert":
    """An insert that can say what to do with a row that is there; both databases spell it alike."""
    if connection.dialect.name == "postgresql":
        from sqlalchemy.dialects import postgresql

        return postgresql.insert(table)  # type: ignore[return-value]
    from sqlalchemy.dialects import sqlite

    return sqlite.insert(table)


def _load(row: Mapping[Any, Any]) -> Load:
    return Load(
        load_id=row["load_id"],
        table=row["table_name"],
        source=row["source"],
        mode=row["mode"],
        state=row["state"],
        before=_position(row["before"]),
        after=_position(row["after"]),
        details=json.loads(row["details"]),
        begun_ms=row["begun_ms"],
        committed_ms=row["committed_ms"],
        finished_ms=row["finished_ms"],
        snapshot_id=row["snapshot_id"],
        rows=row["rows"],
        rescued=row["rescued"],
        corrupt=row["corrupt"],
        bytes_read=row["bytes_read"],
        seconds=row["seconds"],
        reason=row["reason"],
    )


def _text(position: Position | None) -> str | None:
    return canonical(position) if position is not None else None


def _position(text: str | None) -> Position | None:
    return parse_position(text) if text is not None else None
