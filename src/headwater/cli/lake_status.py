"""`headwater lake status` and `headwater lake history`: how loads stand, and how schemas became what they are."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli.lake_options import DEFAULT_WAREHOUSE, Catalog, Warehouse, opened_lake
from headwater.cli.options import Json, pairs
from headwater.cli.output import print_json, print_table, say

if TYPE_CHECKING:
    from headwater.catalog.entries import Load, SchemaChange
    from headwater.lake.operations.status import Lag, SourceStatus, TableStatus

Table = Annotated[str, typer.Argument(metavar="TABLE", help="DATABASE.TABLE.", show_default=False)]
SourceBootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        "-b",
        metavar="HOST:PORT",
        help="Where the topics are; without it, where the last load found them.",
        show_default=False,
    ),
]


def status(
    table: Annotated[str | None, typer.Argument(metavar="[TABLE]", help="Only this one.", show_default=False)] = None,
    bootstrap: SourceBootstrap = None,
    source_option: Annotated[
        list[str] | None,
        typer.Option("--option", "-o", metavar="NAME=VALUE", help="An option of the source; may be repeated."),
    ] = None,
    loads: Annotated[int, typer.Option("--loads", min=0, help="How many of the last loads are shown.")] = 3,
    warehouse: Warehouse = DEFAULT_WAREHOUSE,
    catalog: Catalog = None,
    as_json: Json = False,
) -> None:
    """How far each source of a table is loaded, what is left, and what the last loads did."""
    with opened_lake(warehouse, catalog) as lake:
        from headwater.lake.operations.status import StatusQuestion

        options = pairs(source_option or (), "--option")
        found = lake.status(table, StatusQuestion(bootstrap=bootstrap, options=options, loads=loads))
    if as_json:
        print_json([status_json(each) for each in found])
    elif not found:
        say(f"nothing was loaded into {warehouse} yet; another lake is named with --warehouse")
    else:
        say(*[line for each in found for line in ("", *status_lines(each))][1:])


def history(
    table: Table,
    warehouse: Warehouse = DEFAULT_WAREHOUSE,
    catalog: Catalog = None,
    as_json: Json = False,
) -> None:
    """How a table's schema became what it is: each change with the data that made it."""
    with opened_lake(warehouse, catalog) as lake:
        from headwater.lake.errors import LakeUsageError

        changes = lake.history(table)
        if not changes and lake.catalog.table_state(table) is None:
            raise LakeUsageError(f"there is no table {table} in this lake")
    if as_json:
        print_json([change_json(change) for change in changes])
    else:
        columns = ["WHEN", "CHANGE", "COLUMN", "FROM", "TO", "SOURCE", "POSITION", "LOAD"]
        print_table(columns, [_change_row(change) for change in changes], shortened=["TO", "POSITION"])


def status_lines(status: "TableStatus") -> list[str]:
    """One table for people."""
    version = "not there yet" if status.schema_version is None else f"schema version {status.schema_version}"
    changes = f", {status.schema_changes} changes of it" if status.schema_changes else ""
    lines = [f"{status.table}: {version}{changes}"]
    for source in status.sources:
        lines += [f"  {source.source}: {lag_words(source)}", *(f"    {load_line(load)}" for load in source.loads)]
    return lines


def lag_words(source: "SourceStatus") -> str:
    """The position and what is left behind it, in one line."""
    from headwater.catalog.positions import shown

    lag = source.lag
    left = []
    if lag.records is not None:
        left.append(f"{lag.records:,} records behind")
    if lag.files is not None:
        left.append(f"{lag.files:,} new files")
    if lag.rows is not None:
        left.append(f"{lag.rows:,} rows behind")
    if lag.changed is not None:
        left.append("changed since" if lag.changed else "unchanged since")
    if lag.seconds:
        left.append(f"the first of {age_words(lag.seconds)} ago")
    if lag.words is not None and lag.files is None:
        left.append(lag.words)
    position = "at its beginning" if source.position is None else f"at {shown(source.position)}"
    return ", ".join([position, *left])


def age_words(seconds: float) -> str:
    """A time that passed, in the unit that suits it.

    >>> age_words(59), age_words(5400), age_words(200_000)
    ('59 s', '90 min', '56 h')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"


def load_line(load: "Load") -> str:
    """One load for people."""
    from headwater.lake.operations.explanations import moment

    at = moment(load.committed_ms or load.finished_ms or load.begun_ms)
    if load.mode == "rewind":
        return f"{at}  {load.state}  rewind ({load.load_id})"
    counts = "" if load.rows is None else f"  {load.rows:,} rows"
    counts += f", {load.rescued:,} with rescued fields" if load.rescued else ""
    counts += f", {load.corrupt:,} corrupt" if load.corrupt else ""
    counts += "" if load.seconds is None else f", {load.seconds:.1f} s"
    return f"{at}  {load.state}{counts}{f'  {load.reason}' if load.reason else ''} (load {load.load_id})"


def status_json(status: "TableStatus") -> dict[str, Any]:
    """One table for machines."""
    return {
        "table": status.table,
        "schema_version": status.schema_version,
        "schema_changes": status.schema_changes,
        "snapshot_id": status.snapshot_id,
        "sources": [
            {
                "source": source.source,
                "position": source.position,
                "lag": _lag_json(source.lag),
                "loads": [load_json(load) for load in source.loads],
            }
            for source in status.sources
        ],
    }


def _lag_json(lag: "Lag") -> dict[str, Any]:
    return {
        "records": lag.records,
        "files": lag.files,
        "rows": lag.rows,
        "changed": lag.changed,
        "seconds": None if lag.seconds is None else round(lag.seconds, 3),
        "words": lag.words,
        "partitions": [
            {
                "topic": each.topic,
                "partition": each.partition,
                "next_offset": each.start,
                "end_offset": each.end,
                "records": each.records,
                "lost": each.lost,
                "first_unread_ms": each.first_unread_ms,
            }
            for each in lag.partitions
        ],
    }


def load_json(load: "Load") -> dict[str, Any]:
    """One load for machines."""
    names = ("load_id", "mode", "state", "before", "after", "begun_ms", "committed_ms", "finished_ms", "snapshot_id")
    counts = ("rows", "rescued", "corrupt", "bytes_read", "seconds", "reason")
    return {name: getattr(load, name) for name in (*names, *counts)}


def change_json(change: "SchemaChange") -> dict[str, Any]:
    """One change of a schema for machines."""
    names = ("at_ms", "kind", "path", "old_type", "new_type", "source", "position", "load_id")
    return {name: getattr(change, name) for name in names}


def _change_row(change: "SchemaChange") -> list[object]:
    from headwater.catalog.positions import shown
    from headwater.lake.operations.explanations import moment

    position = None if change.position is None else shown(change.position)
    where = [change.old_type, change.new_type, change.source, position, change.load_id]
    return [moment(change.at_ms), change.kind, change.path or None, *where]
