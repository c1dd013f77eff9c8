"""`headwater log`: looks into the files of logs, checks them, asks brokers what they hold, and has it moved."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.apps import new_app
from headwater.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Json
from headwater.cli.output import fail, for_terminal
from headwater.terminal_text import printable

if TYPE_CHECKING:
    from headwater.log.inspection.dump import Decoder

app = new_app("Look into the files of logs, check them, ask brokers what they hold, and move it.")

_LARGEST_INT = 2**31 - 1
_MAX_BATCH_BYTES = 5 * 1024 * 1024


@app.command()
def dump(
    files: Annotated[
        list[str],
        typer.Argument(metavar="FILE", help=".log, .index, .timeindex, .txnindex, .snapshot.", show_default=False),
    ],
    print_data_log: Annotated[bool, typer.Option("--print-data-log", help="Also keys and values of records.")] = False,
    deep_iteration: Annotated[bool, typer.Option("--deep-iteration", help="Every record, not only batches.")] = False,
    offsets_decoder: Annotated[
        bool, typer.Option("--offsets-decoder", help="Read records as those of __consumer_offsets.")
    ] = False,
    transaction_log_decoder: Annotated[
        bool, typer.Option("--transaction-log-decoder", help="Read records as those of __transaction_state.")
    ] = False,
    skip_record_metadata: Annotated[
        bool, typer.Option("--skip-record-metadata", help="Only keys and values of records.")
    ] = False,
    index_sanity_check: Annotated[
        bool, typer.Option("--index-sanity-check", help="Only the check that a broker does at its start.")
    ] = False,
    verify_index_only: Annotated[
        bool, typer.Option("--verify-index-only", help="Compare indexes with the data, print no entries.")
    ] = False,
    max_bytes: Annotated[
        int, typer.Option("--max-bytes", min=0, help="Read so many bytes of each .log.")
    ] = _LARGEST_INT,
    max_message_size: Annotated[
        int, typer.Option("--max-message-size", min=0, help="Largest batch that an index may point to.")
    ] = _MAX_BATCH_BYTES,
) -> None:
    """Print the files of a partition, line by line as Kafka's DumpLogSegments does."""
    from headwater.log.filesystem import FileSystem
    from headwater.log.inspection.dump import DumpOptions, LogDump

    decoder = _decoder(offsets=offsets_decoder, transactions=transaction_log_decoder, text=print_data_log)
    options = DumpOptions(
        records=deep_iteration or decoder is not None,
        decoder=decoder,
        record_metadata=not skip_record_metadata,
        max_bytes=max_bytes,
        max_batch_bytes=max_message_size,
        index_sanity_only=index_sanity_check,
        verify_only=verify_index_only,
    )
    dumped = LogDump(FileSystem(), options)
    stopped_by = ""
    try:
        for path in files:
            for line in dumped.lines(path):
                print(for_terminal(line, keep="\t"))
    except BrokenPipeError:
        raise
    except OSError as error:
        stopped_by = f"cannot read {error.filename}: {error.strerror}"
    except ValueError as error:
        stopped_by = str(error)
    sys.stdout.flush()
    for problem in dumped.problems():
        print(printable(problem, keep="\n\t"), file=sys.stderr)
    if stopped_by:
        fail(stopped_by)


def _decoder(*, offsets: bool, transactions: bool, text: bool) -> "Decoder | None":
    if offsets or transactions:
        from headwater.cli.log_decoders import group_record, transaction_record

        return group_record if offsets else transaction_record
    from headwater.log.inspection.dump import as_text

    return as_text if text else None


@app.command()
def verify(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR",
            help="A log dir with its partitions, or one partition's folder.",
            show_default=False,
        ),
    ],
    as_json: Json = False,
) -> None:
    """Check every batch and everything around it; reads only. Exit code 1 when there is a fault."""
    from headwater.cli.log_verify import verify_folder

    if not verify_folder(folder, as_json=as_json):
        raise typer.Exit(1)


@app.command()
def dirs(
    topics: Annotated[
        list[str] | None,
        typer.Option("--topic", "-t", metavar="TOPIC", help="Only this topic; may be repeated.", show_default=False),
    ] = None,
    brokers: Annotated[
        list[int] | None,
        typer.Option("--broker", metavar="ID", help="Only this broker; may be repeated.", show_default=False),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Show how much the partitions take up in each log dir of each broker."""
    from headwater.cli.log_dirs import show_dirs

    show_dirs(bootstrap, topics=topics or [], brokers=brokers or [], as_json=as_json)


@app.command()
def move(
    partitions: Annotated[
        list[str], typer.Argument(metavar="TOPIC-PARTITION", help="As in orders-3.", show_default=False)
    ],
    to: Annotated[str, typer.Option("--to", metavar="DIR", help="One of the broker's log dirs.", show_default=False)],
    broker: Annotated[
        int | None,
        typer.Option("--broker", metavar="ID", help="Which broker, if there are several.", show_default=False),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until they are there.")] = True,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Move partitions to another log dir of their broker, while they are in use."""
    from headwater.cli.log_move import move_partitions, parse_partition

    move_partitions(bootstrap, list(map(parse_partition, partitions)), to, broker=broker, wait=wait, as_json=as_json)
