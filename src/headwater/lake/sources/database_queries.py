"""What is asked of a PostgreSQL database beside its rows: what a table is, and who is writing to it."""

from headwater.lake.sources.database_address import DatabaseTable, literal


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
