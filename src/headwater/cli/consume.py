"""`headwater consume`: the records of a topic on stdout."""

import asyncio
from typing import Annotated

import typer

from headwater.cli.apps import new_app
from headwater.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Json, Topic, unescaped
from headwater.cli.output import run_or_fail
from headwater.cli.record_format import (
    Clean,
    Columns,
    Formatter,
    as_it_is,
    columns,
    format_string,
    json_line,
    json_line_for_terminals,
)
from headwater.cli.start_position import StartAt, parse_start
from headwater.cli.terminal import escaped_bytes, is_terminal

app = new_app()

_SKIPPED = 3
"""The exit code of a run that has skipped something."""


@app.command()
def consume(
    topic: Topic,
    from_beginning: Annotated[bool, typer.Option("--from-beginning", help="The same as --offset earliest.")] = False,
    offset: Annotated[
        str | None,
        typer.Option(
            "--offset",
            "-o",
            metavar="WHERE",
            help="Start at a number, earliest, latest, -N (N before the end), an ISO time, or @epoch-ms.",
            show_default="latest",
        ),
    ] = None,
    partition: Annotated[
        list[int] | None,
        typer.Option("--partition", "-p", min=0, help="Only this one; may be repeated.", show_default="all"),
    ] = None,
    max_records: Annotated[
        int | None, typer.Option("--max", "-n", min=1, metavar="N", help="Stop after N records.")
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option("--timeout", min=0, metavar="S", help="Stop when S seconds bring nothing new."),
    ] = None,
    until_end: Annotated[
        bool, typer.Option("--until-end", "-e", help="Stop at the end as it is when the command starts.")
    ] = False,
    format_: Annotated[
        str | None,
        typer.Option(
            "--format",
            "-f",
            metavar="FORMAT",
            help=r"%t topic, %p partition, %o offset, %k key, %s value, %h headers, %T timestamp, "
            r"%K %S sizes, %R size as 4 bytes; \n and the like.",
            show_default=False,
        ),
    ] = None,
    print_key: Annotated[bool, typer.Option("--print-key")] = False,
    print_partition: Annotated[bool, typer.Option("--print-partition")] = False,
    print_offset: Annotated[bool, typer.Option("--print-offset")] = False,
    print_timestamp: Annotated[bool, typer.Option("--print-timestamp")] = False,
    print_headers: Annotated[bool, typer.Option("--print-headers")] = False,
    separator: Annotated[str, typer.Option("--separator", metavar="SEP", help="Between printed parts.")] = r"\t",
    delimiter: Annotated[str, typer.Option("--delimiter", "-D", metavar="SEP", help="After each record.")] = r"\n",
    null_value: Annotated[str, typer.Option("--null-value", metavar="MARK", help="What stands for null.")] = "null",
    read_committed: Annotated[
        bool, typer.Option("--read-committed", help="Leave out open and aborted transactions.")
    ] = False,
    skip_corrupt: Annotated[
        bool,
        typer.Option("--skip-corrupt", help="Go on behind records that cannot be read, and tell of them on stderr."),
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Consume records and write them to stdout: all new ones until Ctrl-C, unless told otherwise."""
    wanted = Columns(
        key=print_key,
        partition=print_partition,
        offset=print_offset,
        timestamp=print_timestamp,
        headers=print_headers,
    )
    if sum((format_ is not None, as_json, wanted.any)) > 1:
        raise typer.BadParameter("choose one of --format, --json and --print-…")
    clean = escaped_bytes if is_terminal() else as_it_is
    parts = (unescaped(separator), unescaped(null_value), unescaped(delimiter))
    formatter = _formatter(format_, as_json, wanted, *parts, clean)
    start = _start(from_beginning, offset)

    from headwater.cli.consume_job import Job, Skipped, run_job
    from headwater.cli.stop_signals import StopSignals

    job = Job(
        topic=topic,
        partitions=sorted(set(partition or ())),
        start=start,
        max_records=max_records,
        timeout_s=timeout,
        until_end=until_end,
        read_committed=read_committed,
        skip_corrupt=skip_corrupt,
        skipped=Skipped(),
        formatter=formatter,
        plain_clean=clean,
        plain_line_end=unescaped(delimiter),
        plain_null=unescaped(null_value),
    )
    signals = StopSignals()
    with signals.caught():
        try:
            run_or_fail(run_job(bootstrap, job, signals))
        except (KeyboardInterrupt, asyncio.CancelledError, BrokenPipeError):
            raise typer.Exit(_SKIPPED if job.skipped.batches else 0) from None
    if job.skipped.batches:
        raise typer.Exit(_SKIPPED)


def _formatter(
    format_: str | None,
    as_json: bool,
    wanted: Columns,
    separator: bytes,
    null: bytes,
    line_end: bytes,
    clean: Clean,
) -> Formatter | None:
    """None for plain values, which have a faster way."""
    if as_json:
        return json_line if clean is as_it_is else json_line_for_terminals
    if format_ is not None:
        try:
            return format_string(format_, null, clean)
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--format") from None
    return columns(wanted, separator, null, line_end, clean) if wanted.any else None


def _start(from_beginning: bool, offset: str | None) -> StartAt:
    if offset is None:
        return parse_start("earliest" if from_beginning else "latest")
    if from_beginning:
        raise typer.BadParameter("choose one of --from-beginning and --offset")
    try:
        return parse_start(offset)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--offset") from None
