"""`headwater lake maintain`: pack small files, tidy up, let go of old snapshots."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli.lake_options import DEFAULT_MASTER, DEFAULT_WAREHOUSE, Catalog, Conf, Master, Warehouse, opened_lake
from headwater.cli.options import Json
from headwater.cli.output import bytes_for_people, counted, print_json, print_table

if TYPE_CHECKING:
    from headwater.lake.operations.maintenance import MaintenanceReport, StepReport
    from headwater.lake.operations.snapshots import Figures

_COLUMNS = ("Table", "Step", "Done", "Files", "DeleteFiles", "Size", "Manifests", "Snapshots")
_DONE = {
    "compact": ("file", "rewritten"),
    "deletes": ("delete file", "rewritten"),
    "manifests": ("manifest", "rewritten"),
    "expire": ("snapshot", "let go"),
    "orphans": ("unknown file", "removed"),
}


def maintain(
    tables: Annotated[
        list[str] | None, typer.Argument(metavar="TABLE", help="Tables; all of the lake if none is named.")
    ] = None,
    older_than: Annotated[
        str, typer.Option("--older-than", metavar="TIME", help="Let go of snapshots that were replaced before that.")
    ] = "7d",
    keep: Annotated[int, typer.Option("--keep", metavar="N", min=1, help="So many states of a table stay.")] = 1,
    orphans_older_than: Annotated[
        str,
        typer.Option(
            "--orphans-older-than", metavar="TIME", help="Remove unknown files of that age; never of less than a day."
        ),
    ] = "1d",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done; change nothing.")] = False,
    warehouse: Warehouse = DEFAULT_WAREHOUSE,
    catalog: Catalog = None,
    master: Master = DEFAULT_MASTER,
    conf: Conf = None,
    as_json: Json = False,
) -> None:
    """Pack small files, tidy manifests, let go of old snapshots and remove files that no table knows."""
    with opened_lake(warehouse, catalog, master, conf) as lake:
        from headwater.lake.operations.maintenance import Care
        from headwater.lake.values import seconds

        care = Care(
            older_than_s=seconds(older_than),
            keep=keep,
            orphans_older_than_s=seconds(orphans_older_than),
            dry_run=dry_run,
        )
        reports = lake.maintain(tables or (), care)
    if as_json:
        print_json([maintenance_json(report) for report in reports])
    elif reports:
        print_table(_COLUMNS, [row for report in reports for row in maintenance_rows(report)])
    else:
        print("the lake has no tables yet")


def maintenance_json(report: "MaintenanceReport") -> dict[str, Any]:
    """The same for machines."""
    return {
        "table": report.table,
        "dry_run": report.dry_run,
        "seconds": round(report.seconds, 3),
        "steps": [
            {"step": each.step, "touched": each.touched, "before": _figures(each.before), "after": _figures(each.after)}
            for each in report.steps
        ],
    }


def _figures(figures: "Figures") -> dict[str, int]:
    return {
        "data_files": figures.data_files,
        "delete_files": figures.delete_files,
        "bytes": figures.bytes,
        "manifests": figures.manifests,
        "snapshots": figures.snapshots,
    }


def maintenance_rows(report: "MaintenanceReport") -> Iterable[list[str]]:
    """A line for each step; a figure that it changed is told as before and after."""
    for each in report.steps:
        before, after = each.before, each.after
        yield [
            report.table,
            each.step,
            _done(each, dry_run=report.dry_run),
            _change(f"{before.data_files:,}", f"{after.data_files:,}"),
            _change(f"{before.delete_files:,}", f"{after.delete_files:,}"),
            _change(bytes_for_people(before.bytes), bytes_for_people(after.bytes)),
            _change(f"{before.manifests:,}", f"{after.manifests:,}"),
            _change(f"{before.snapshots:,}", f"{after.snapshots:,}"),
        ]


def _done(step: "StepReport", *, dry_run: bool) -> str:
    thing, verb = _DONE[step.step]
    if step.touched == 0:
        return "nothing"
    return f"{counted(step.touched, thing)} {'to be ' if dry_run else ''}{verb}"


def _change(before: str, after: str) -> str:
    return after if before == after else f"{before} → {after}"
