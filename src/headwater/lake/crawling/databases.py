"""Crawls a PostgreSQL database: its tables, and how news can be told in each. Reads the catalog only, no rows."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from headwater.lake.crawling.event_times import event_time_of, says_change
from headwater.lake.crawling.proposals import Crawl, Proposal, column_name, with_names_apart
from headwater.lake.errors import LakeUsageError
from headwater.lake.sources.database_address import DatabaseTable, parse_database_table
from headwater.lake.sources.database_columns import DatabaseColumn, schema_of
from headwater.lake.sources.database_connection import connected

_TIMEOUT_S: Final = 30.0
_INTEGERS: Final = ("int2", "int4", "int8")
_TIMES: Final = ("timestamp", "timestamptz")

# Partitions belong to their table, and what an extension brought is not data.
_COLUMNS: Final = """
    select n.nspname, c.relname, greatest(c.reltuples, 0)::int8, pg_total_relation_size(c.oid),
        has_table_privilege(c.oid, 'select'), a.attname, t.typname, a.attnotnull,
        a.attidentity <> '' or coalesce(pg_get_expr(d.adbin, d.adrelid), '') like 'nextval(%',
        coalesce(a.attnum = any (i.indkey), false)
    from pg_class c
    join pg_namespace n on n.oid = c.relnamespace
    join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
    join pg_type t on t.oid = a.atttypid
    left join pg_attrdef d on d.adrelid = c.oid and d.adnum = a.attnum
    left join pg_index i on i.indrelid = c.oid and i.indisprimary
    where c.relkind in ('r', 'p') and not c.relispartition
    and n.nspname not in ('pg_catalog', 'information_schema') and n.nspname not like 'pg\\_toast%'
    and not exists (select from pg_depend e where e.objid = c.oid and e.deptype = 'e')
    order by n.nspname, c.relname, a.attnum
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column, as far as it says how news are told."""

    name: str
    type: str
    required: bool = False
    counted: bool = False
    """Whether its values come from a sequence."""
    in_key: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table of the database; the number of rows is the database's own estimate."""

    schema: str
    name: str
    rows: int
    size_bytes: int
    readable: bool
    columns: Sequence[Column]


def crawl_database(text: str) -> Crawl:
    """Proposes a load for every table of `jdbc:postgresql://HOST:PORT/DATABASE?user=…&password=…`."""
    address = parse_database_table(f"{text.removeprefix('jdbc:').partition('#')[0]}#any")
    with connected(address, within_s=_TIMEOUT_S) as database:
        tables = _tables(database.rows(_COLUMNS))
    if not tables:
        raise LakeUsageError(f"{address.url} has no tables: nothing to propose")
    left_out = [f"{each.schema}.{each.name}: this user may not read it" for each in tables if not each.readable]
    proposals = [propose(each, address) for each in tables if each.readable]
    return Crawl(place=address.url, proposals=with_names_apart(proposals), left_out=tuple(left_out))


def propose(table: Table, address: DatabaseTable) -> Proposal:
    """The load of one table, by what its columns promise."""
    key = tuple(column.name for column in table.columns if column.in_key)
    changes = [column for column in table.columns if column.type in _TIMES and says_change(column.name)]
    numbers = [column for column in table.columns if column.in_key and column.type in _INTEGERS]
    size = f"{table.schema}.{table.name}: about {table.rows:,} rows, {table.size_bytes:,} bytes."
    into = f"{column_name(address.database)}.{_table_name(table)}"
    source = f"{address.url}#{_named(table, address)}"
    event_time = _event_time(table)
    if changes and key:
        column = changes[0].name
        why = f"{column} says when a row was last changed and {', '.join(key)} which row it is, so upsert by it."
        return Proposal(
            source=source,
            into=into,
            reasons=(size, why, "It must be set at every change (a trigger); rows that are deleted stay in the lake."),
            mode="upsert",
            key=key,
            newest_by=column,
            event_time=event_time,
            options={"track": "timestamp", "column": column},
        )
    if len(key) == 1 and numbers and numbers[0].counted:
        why = f"{key[0]} is counted up, so what lies above the last one is new; changes of older rows are not seen."
        return Proposal(source=source, into=into, reasons=(size, why), event_time=event_time, options={"track": "id"})
    why = "Nothing in it tells what is new, so a load takes the place of the last one, whenever the table has changed."
    return Proposal(source=source, into=into, reasons=(size, why), event_time=event_time, options={"track": "whole"})


def _table_name(table: Table) -> str:
    return column_name(table.name if table.schema == "public" else f"{table.schema}_{table.name}")


def _named(table: Table, address: DatabaseTable) -> str:
    return DatabaseTable(hosts=address.hosts, database=address.database, schema=table.schema, table=table.name).name


def _event_time(table: Table) -> str | None:
    """Among those that are never null: the others would put rows into no partition."""
    columns = [
        DatabaseColumn(name=each.name, type=each.type, modifier=-1, dimensions=0, nullable=False, cache=None)
        for each in table.columns
        if each.required and not says_change(each.name)
    ]
    return event_time_of(schema_of(columns))


def _tables(rows: Iterable[Sequence[Any]]) -> list[Table]:
    found: dict[tuple[Any, ...], list[Column]] = defaultdict(list)
    for schema, name, count, size_bytes, readable, column, type_, required, counted, in_key in rows:
        found[schema, name, count, size_bytes, readable].append(
            Column(name=column, type=type_, required=required, counted=counted, in_key=in_key)
        )
    return [
        Table(schema=schema, name=name, rows=rows, size_bytes=size, readable=readable, columns=columns)
        for (schema, name, rows, size, readable), columns in found.items()
    ]
