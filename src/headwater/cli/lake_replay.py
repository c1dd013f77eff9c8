"""`headwater lake replay-rescued`: put what was rescued into its columns, once they hold it."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli.lake_options import DEFAULT_MASTER, DEFAULT_WAREHOUSE, Catalog, Conf, Master, Warehouse, opened_lake
from headwater.cli.options import Json
from headwater.cli.output import counted, print_json, say

if TYPE_CHECKING:
    from headwater.lake.operations.replaying import ReplayReport


def replay_rescued(
    table: Annotated[str, typer.Argument(metavar="TABLE", show_default=False)],
    column: Annotated[
        str | None,
        typer.Option("--column", metavar="PATH", help="Only this field, as `_rescued` names it.", show_default=False),
    ] = None,
    on_conflict: Annotated[
        list[str] | None,
        typer.Option(
            "--on-conflict",
            metavar="[COLUMN=]POLICY",
            help="corrupt (the default), columns or string, as in a load; may be repeated.",
        ),
    ] = None,
    warehouse: Warehouse = DEFAULT_WAREHOUSE,
    catalog: Catalog = None,
    master: Master = DEFAULT_MASTER,
    conf: Conf = None,
    as_json: Json = False,
) -> None:
    """Put rescued values and corrupt records that fit the table by now into its columns, in one commit."""
    with opened_lake(warehouse, catalog, master, conf) as lake:
        from headwater.lake.values import policies

        report = lake.replay_rescued(table, column=column, policies=policies(on_conflict or (), rewrite=False))
    if as_json:
        print_json(replay_json(report))
    else:
        say(replay_line(report))


def replay_line(report: "ReplayReport") -> str:
    """What was done, in a line."""
    left = f"{counted(report.left_values, 'value')} and {counted(report.left_records, 'record')} still do not fit"
    if report.snapshot_id is None:
        return f"{report.table}: nothing to replay; {left}"
    done = f"{counted(report.values, 'value')} and {counted(report.records, 'record')} put into columns"
    return f"{report.table}: {done}; {left}"


def replay_json(report: "ReplayReport") -> dict[str, Any]:
    """The same for machines."""
    return {
        "table": report.table,
        "values": report.values,
        "records": report.records,
        "left_values": report.left_values,
        "left_records": report.left_records,
        "snapshot_id": report.snapshot_id,
        "attempts": report.attempts,
    }
