"""`headwater produce`: lines of stdin or files become records."""

import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.apps import new_app
from headwater.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Json, Topic, pairs, unescaped
from headwater.cli.output import bytes_for_people, complain, counted, print_json, run_or_fail

if TYPE_CHECKING:
    from headwater.cli.produce_job import Account

app = new_app()

_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def _checked_codec(value: str) -> str:
    if value not in _CODECS:
        raise typer.BadParameter(f"{value!r} is none of {', '.join(_CODECS)}")
    return value


@app.command()
def produce(
    topic: Topic,
    files: Annotated[
        list[str] | None,
        typer.Argument(metavar="FILE", help="Files to read; '-' or none: stdin.", show_default=False),
    ] = None,
    key_separator: Annotated[
        str | None,
        typer.Option("--key-separator", "-K", metavar="SEP", help=r"Lines are key SEP value; \t and the like work."),
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", metavar="name=value", help="A header for every record.", show_default=False),
    ] = None,
    headers_separator: Annotated[
        str | None,
        typer.Option("--headers-separator", metavar="SEP", help="Lines begin with name:value,name:value SEP."),
    ] = None,
    delimiter: Annotated[str, typer.Option("--delimiter", "-D", metavar="SEP", help="What ends a record.")] = r"\n",
    whole_files: Annotated[bool, typer.Option("--whole-files", help="Each file is one record.")] = False,
    null_value: Annotated[
        str | None,
        typer.Option("--null-value", metavar="MARK", help="A value that stands for null (a tombstone)."),
    ] = None,
    partition: Annotated[
        int | None,
        typer.Option("--partition", "-p", min=0, show_default="by key, else changing with every batch"),
    ] = None,
    compression: Annotated[
        str,
        typer.Option("--compression", "-z", metavar="|".join(_CODECS), callback=_checked_codec),
    ] = "none",
    batch_bytes: Annotated[
        int, typer.Option("--batch-bytes", min=1, help="About how large a batch grows before compression.")
    ] = 512 * 1024,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Produce records, one from each line of stdin or of files, acknowledged by all replicas in sync."""
    from headwater.cli.line_records import LineFormat
    from headwater.cli.produce_job import Job, run_job

    paths = files or ["-"]
    _check_readable(paths)
    headers = tuple((name, value.encode()) for name, value in pairs(header or (), "--header").items())
    job = Job(
        topic=topic,
        paths=paths,
        line_format=LineFormat(
            key_separator=_separator(key_separator, "--key-separator"),
            headers_separator=_separator(headers_separator, "--headers-separator"),
            headers=headers,
            null_value=None if null_value is None else unescaped(null_value),
        ),
        delimiter=None if whole_files else _separator(delimiter, "--delimiter"),
        partition=partition,
        compression=compression,
        batch_bytes=batch_bytes,
    )
    account = run_or_fail(run_job(bootstrap, job))
    raise typer.Exit(_report(topic, account, as_json=as_json))


def _report(topic: str, account: "Account", *, as_json: bool) -> int:
    """Says how it went and returns the exit code."""
    if as_json:
        print_json(
            {
                "topic": topic,
                "acknowledged": account.acknowledged,
                "lines": account.lines,
                "bytes": account.bytes_read,
                "seconds": round(account.seconds, 6),
                "partitions": {
                    partition: {
                        "records": taken.records,
                        "first_offset": taken.first_offset,
                        "last_offset": taken.last_offset,
                    }
                    for partition, taken in sorted(account.partitions.items())
                },
                "error": account.error,
            }
        )
    if account.error is not None or account.acknowledged < account.lines:
        complain(
            f"{account.error or 'interrupted'}; {account.acknowledged:,} of the {account.lines:,} lines read "
            "were acknowledged"
        )
    elif sys.stderr.isatty():
        rate = account.acknowledged / max(account.seconds, 1e-6)
        size = bytes_for_people(account.bytes_read)
        summary = f"{counted(account.acknowledged, 'record')} ({size}) in {account.seconds:.2f} s, {rate:,.0f} a second"
        print(summary, file=sys.stderr)
    if account.interrupted:
        return 130
    return 0 if account.error is None else 1


def _check_readable(paths: list[str]) -> None:
    """A file that cannot be read is known before the first record is sent."""
    for path in paths:
        if path != "-" and not os.access(path, os.R_OK):
            raise typer.BadParameter(f"cannot read {path}", param_hint="FILE")
        if path != "-" and os.path.isdir(path):
            raise typer.BadParameter(f"{path} is a folder", param_hint="FILE")


def _separator(text: str | None, option: str) -> bytes | None:
    if text is None:
        return None
    separator = unescaped(text)
    if not separator:
        raise typer.BadParameter("a separator has at least one character", param_hint=option)
    return separator
