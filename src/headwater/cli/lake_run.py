"""`headwater lake run`: the loads of a lake.toml, once or in rounds."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli.lake_options import DEFAULT_MASTER, DEFAULT_WAREHOUSE, opened_lake
from headwater.cli.lake_reports import report_json, report_lines
from headwater.cli.lake_signals import StopAfterLoad
from headwater.cli.options import Json
from headwater.cli.output import complain, json_text, print_json, say

if TYPE_CHECKING:
    from headwater.lake import Lake
    from headwater.lake.jobs import Job, LakeFile
    from headwater.lake.operations.running import JobResult


def run(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="The lake.toml.")] = Path("lake.toml"),
    continuous: Annotated[bool, typer.Option("--continuous", help="In rounds, until Ctrl-C.")] = False,
    every: Annotated[str, typer.Option("--every", metavar="TIME", help="How often a round begins: 30s, 5m.")] = "30s",
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="NAME", help="Only the load, or the loads into the table; may be repeated."),
    ] = None,
    warehouse: Annotated[
        str | None,
        typer.Option("--warehouse", "-w", metavar="DIR|URL", help="Where the tables lie, not as in the file."),
    ] = None,
    catalog: Annotated[
        str | None, typer.Option("--catalog", metavar="URL", help="The catalog, not as in the file.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Run the loads of a lake.toml one after the other. One that fails stops no other; the exit code is then 1."""
    found, jobs, every_s = _checked(path, only or [], every)
    conf = [f"{name}={value}" for name, value in found.conf.items()]
    # What the file says is nearer than what the shell says to every command.
    place = warehouse or found.warehouse or os.environ.get("HEADWATER_WAREHOUSE") or DEFAULT_WAREHOUSE
    database = catalog or found.catalog or os.environ.get("HEADWATER_CATALOG")
    master = found.master or DEFAULT_MASTER
    with opened_lake(place, database, master, conf, create=True) as lake, StopAfterLoad() as stop:
        if continuous:
            _run_in_rounds(lake, jobs, every_s, stop, as_json=as_json)
            return
        results = _run_once(lake, jobs, stop, as_json=as_json)
    left = jobs[len(results) :]
    if left:
        complain(f"stopped before {', '.join(job.label for job in left)}")
    if left or any(result.failure for result in results):
        raise typer.Exit(1)


def _checked(path: Path, only: list[str], every: str) -> "tuple[LakeFile, tuple[Job, ...], float]":
    from headwater.lake.errors import LakeUsageError
    from headwater.lake.jobs import chosen
    from headwater.lake.lake_file import read_lake_file
    from headwater.lake.values import seconds

    try:
        found = read_lake_file(path)
        return found, chosen(found.jobs, only), seconds(every)
    except LakeUsageError as error:
        raise typer.BadParameter(str(error)) from None


def _run_once(lake: "Lake", jobs: "tuple[Job, ...]", stop: StopAfterLoad, *, as_json: bool) -> "list[JobResult]":
    from headwater.lake.operations.running import run_once

    results = []
    for result in run_once(jobs, lake.load_job, stopping=lambda: stop.wait(0)):
        results.append(result)
        if not as_json:
            _print(result)
    if as_json:
        print_json([result_json(result) for result in results])
    return results


def _run_in_rounds(
    lake: "Lake", jobs: "tuple[Job, ...]", every_s: float, stop: StopAfterLoad, *, as_json: bool
) -> None:
    from headwater.lake.operations.running import Rounds

    def wait(seconds: float) -> bool:
        lake.check_spark()
        return stop.wait(seconds)

    tell = _print_json_line if as_json else _print
    Rounds(jobs=jobs, load=lake.load_job, every_s=every_s, wait=wait, tell=tell).run()


def _print(result: "JobResult") -> None:
    """Loads on stdout, troubles and their ends on stderr."""
    name = result.job.label
    if result.failure is not None:
        again = "" if result.again_in_s is None else f"; trying again, first in {result.again_in_s:.0f} s"
        complain(f"{name}: {result.failure}{again}")
        return
    if result.failed_for_s is not None:
        complain(f"{name}: works again after {result.failed_for_s:.0f} s")
    if result.report is not None and (result.loaded or result.failed_for_s is None):
        say(*report_lines(result.report), flush=True)


def _print_json_line(result: "JobResult") -> None:
    print(json_text(result_json(result)), flush=True)


def result_json(result: "JobResult") -> dict[str, Any]:
    """What came of a job, for machines."""
    report = {} if result.report is None else report_json(result.report)
    return {
        "name": result.job.label,
        "source": result.job.source,
        "table": result.job.request.table,
        **report,
        "error": result.failure,
        "again_in_seconds": result.again_in_s,
        "failed_for_seconds": None if result.failed_for_s is None else round(result.failed_for_s, 3),
    }
