"""`headwater groups reset-offsets`: its options, what they mean together, and what is shown."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli.group_names import GroupNames
from headwater.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Json, complete_topic, timestamp_ms
from headwater.cli.output import complain, fail, for_terminal, print_json, print_table, with_client
from headwater.cli.reset_plan import (
    CannotResetError,
    FilePlan,
    NewOffset,
    Reset,
    ResetTo,
    parse_duration_ms,
    parse_plan,
    parse_scope,
    plan_csv,
)

if TYPE_CHECKING:
    from headwater.cli.reset_job import Plan
    from headwater.client import Client

_WAYS = "--to-earliest, --to-latest, --to-current, --to-offset, --shift-by, --to-datetime, --by-duration or --from-file"
_COLUMNS = ("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "NEW-OFFSET")


def reset_offsets(
    groups: GroupNames,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            metavar="TOPIC[:0,1]",
            help="A topic, or some of its partitions; may be repeated.",
            autocompletion=complete_topic,
        ),
    ] = None,
    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="All that the group has committed offsets for.")
    ] = False,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="To the start of the log.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="To the end of the log.")] = False,
    to_current: Annotated[bool, typer.Option("--to-current", help="To what is committed now.")] = False,
    to_offset: Annotated[int | None, typer.Option("--to-offset", min=0, metavar="N", help="To this offset.")] = None,
    shift_by: Annotated[
        int | None, typer.Option("--shift-by", metavar="N", help="N on from what is committed; back if negative.")
    ] = None,
    to_datetime: Annotated[
        str | None,
        typer.Option(
            "--to-datetime",
            metavar="ISO",
            help="To the first record at or after a time, which is local unless it names a zone.",
        ),
    ] = None,
    by_duration: Annotated[
        str | None,
        typer.Option("--by-duration", metavar="PnDTnHnMnS", help="To the first record of the last PT30M, P1D, …"),
    ] = None,
    from_file: Annotated[
        Path | None,
        typer.Option("--from-file", metavar="CSV", help="To the offsets of a file as --export writes it."),
    ] = None,
    execute: Annotated[
        bool, typer.Option("--execute/--dry-run", help="Commit the new offsets, or only show them.")
    ] = False,
    export: Annotated[bool, typer.Option("--export", help="Write topic,partition,offset as CSV.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Move what groups without active members have committed. Only shows the new offsets unless --execute is given."""
    if export and as_json:
        raise typer.BadParameter("choose one of --export and --json")
    wishes = (
        Reset(ResetTo.EARLIEST) if to_earliest else None,
        Reset(ResetTo.LATEST) if to_latest else None,
        Reset(ResetTo.CURRENT) if to_current else None,
        None if to_offset is None else Reset(ResetTo.OFFSET, to_offset),
        None if shift_by is None else Reset(ResetTo.SHIFT, shift_by),
        None if to_datetime is None else Reset(ResetTo.TIME, _time_ms(to_datetime)),
        None if by_duration is None else Reset(ResetTo.TIME, _time_before_now_ms(by_duration)),
        None if from_file is None else _read_plan(from_file, groups),
    )
    given = [wish for wish in wishes if wish is not None]
    if len(given) != 1:
        raise typer.BadParameter(f"say once where to: {_WAYS}")
    if (from_file is not None) + all_topics + bool(topic) != 1:
        raise typer.BadParameter("name either topics with --topic, or --all-topics, or a file with --from-file")
    topics = [_scope(text) for text in topic or ()]

    async def run(client: "Client") -> "Plan":
        from headwater.cli.reset_job import ResetJob, commit_plan, make_plan

        plan = await make_plan(client, ResetJob(groups=groups, reset=given[0], topics=topics))
        if execute:
            await commit_plan(client, plan)
        return plan

    try:
        plan = with_client(bootstrap, run)
    except CannotResetError as error:
        fail(str(error))
    _show(plan, executed=execute, export=export, as_json=as_json)


def _show(plan: "Plan", *, executed: bool, export: bool, as_json: bool) -> None:
    if as_json:
        print_json(
            {"executed": executed, "offsets": [_as_json(group, new) for group, offsets in plan for new in offsets]}
        )
    elif export:
        print(for_terminal(plan_csv(plan, with_group=len(plan) > 1)), end="")
    else:
        rows = [(group, *new.partition, new.current, new.new) for group, offsets in plan for new in offsets]
        print_table(_COLUMNS, rows, numeric=_COLUMNS[2:])
    for group, offsets in plan:
        for new in offsets:
            if new.warning is not None:
                complain(f"group {group}, {new.warning}")
    if not executed:
        complain("this was a dry run and nothing has changed; --execute commits the new offsets")


def _as_json(group: str, new: NewOffset) -> dict[str, Any]:
    return {
        "group": group,
        "topic": new.partition.topic,
        "partition": new.partition.partition,
        "current_offset": new.current,
        "new_offset": new.new,
    }


def _time_ms(text: str) -> int:
    found = timestamp_ms(text)
    if found is None:
        raise typer.BadParameter(f"{text!r} is neither an ISO time nor epoch milliseconds", param_hint="--to-datetime")
    return found


def _time_before_now_ms(duration: str) -> int:
    try:
        return time.time_ns() // 1_000_000 - parse_duration_ms(duration)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--by-duration") from None


def _scope(text: str) -> tuple[str, tuple[int, ...]]:
    try:
        return parse_scope(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--topic") from None


def _read_plan(path: Path, groups: Sequence[str]) -> FilePlan:
    try:
        return parse_plan(path.read_text("utf-8"), groups)
    except OSError as error:
        raise typer.BadParameter(f"cannot read {path}: {error.strerror}", param_hint="--from-file") from None
    except ValueError as error:
        raise typer.BadParameter(f"{path}: {error}", param_hint="--from-file") from None
