"""What a load asks a PostgreSQL database, through Spark's JDBC: a question is one statement with an answer in JSON."""

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from headwater.lake.errors import LakeError
from headwater.lake.jars import POSTGRESQL, jars
from headwater.lake.sources.database_address import DatabaseTable, literal
from headwater.lake.spark import first_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FETCH_ROWS: Final = 1_000
"""Rows that the driver holds at once. Without a limit it would hold all."""

_DRIVER: Final = "org.postgresql.Driver"
_DRIVERS_WORDS: Final = re.compile(r"PSQLException: (.+)")


def add_driver(spark: "SparkSession") -> None:
    """Gives a running session the driver, on all its machines; once it has it, nothing happens."""
    for jar in jars([POSTGRESQL]):
        spark.sql(f"add jar {json.dumps(str(jar))}")


def connection(table: DatabaseTable) -> dict[str, str]:
    """The options of a JDBC connection. Secrets are among them, never in the URL, which Spark shows in its errors."""
    return {
        "ApplicationName": "headwater lake",
        "readOnly": "true",
        "tcpKeepAlive": "true",
        **table.parameters,
        "url": table.url,
        "driver": _DRIVER,
        "fetchsize": str(FETCH_ROWS),
        # Instants that are sent as text have their zone in it, and it is always the same.
        "sessionInitStatement": "set time zone 'UTC'",
    }


def ask(spark: "SparkSession", table: DatabaseTable, question: str) -> Mapping[str, Any] | None:
    """The only row of the answer; None without one."""
    statement = f"select row_to_json(q)::text as answer from ({question}) q"
    try:
        rows = spark.read.format("jdbc").options(**connection(table)).option("query", statement).load().collect()
    except Exception as error:
        raise LakeError(f"{table} could not be asked: {driver_words(error)}") from None
    return json.loads(rows[0].answer) if rows else None


def driver_words(error: BaseException) -> str:
    """What the database or its driver said, without the pages that Spark adds."""
    found = _DRIVERS_WORDS.search(str(error))
    return found[1].strip() if found else first_line(error)


def description(table: DatabaseTable) -> str:
    """Its kind, its columns down to their built-in types, and its primary key if that is one integer."""
    return f"""
        select c.relkind as kind, c.oid::int8 as oid, pg_is_in_recovery() as standby,
            (select a.attname from pg_index i join pg_attribute a on a.attrelid = c.oid and a.attnum = i.indkey[0]
             where i.indrelid = c.oid and i.indisprimary and i.indnkeyatts = 1
             and a.atttypid in ('int2'::regtype, 'int4'::regtype, 'int8'::regtype)) as key,
            (with recursive plain as (
                select a.attnum, a.attname, a.attnotnull, a.attndims, a.atttypid, a.atttypmod
                from pg_attribute a where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
                union all
                select p.attnum, p.attname, p.attnotnull or d.typnotnull, greatest(p.attndims, d.typndims),
                    d.typbasetype, d.typtypmod
                from plain p join pg_type d on d.oid = p.atttypid where d.typtype = 'd')
             select json_agg(json_build_object(
                'name', p.attname,
                'type', case when e.typnamespace = 'pg_catalog'::regnamespace then e.typname else '' end,
                'modifier', p.atttypmod,
                'dimensions', case when t.typcategory = 'A' then greatest(p.attndims, 1) else 0 end,
                'nullable', not p.attnotnull,
                'cache', (select s.seqcache from pg_sequence s
                          where s.seqrelid = pg_get_serial_sequence({literal(table.sql)}, p.attname)::regclass)
             ) order by p.attnum)
             from plain p join pg_type t on t.oid = p.atttypid
             join pg_type e on e.oid = case when t.typcategory = 'A' then t.typelem else t.oid end
             where t.typtype <> 'd') as columns
        from pg_class c join pg_namespace n on n.oid = c.relnamespace
        where n.nspname = {literal(table.schema)} and c.relname = {literal(table.table)}
        and c.relkind in ('r', 'p', 'v', 'm', 'f')
    """


def writers(oid: int) -> str:
    """The transactions that have written to a table, or are about to, and are still open; with their processes.

    A transaction takes this lock before it draws the first number from a sequence or writes the first row, and lets go
    of it only when its rows can be seen by all. The same holds for tables that inherit, partitions among them.
    """
    return f"""(
        with recursive tables as (
            select {oid}::oid as relid
            union all select i.inhrelid from pg_inherits i join tables s on i.inhparent = s.relid)
        select coalesce(json_object_agg(l.virtualtransaction, l.pid), '{{}}') from pg_locks l
        where l.locktype = 'relation' and l.mode = 'RowExclusiveLock' and l.granted
        and l.database = (select oid from pg_database where datname = current_database())
        and l.relation in (select relid from tables))"""
