"""`headwater lake`: load topics, files and tables into Iceberg tables, ask them, look after them."""

from enum import StrEnum
from typing import Annotated

import typer

from headwater.cli.apps import new_app
from headwater.cli.lake_crawl import crawl
from headwater.cli.lake_explain import explain, rewind
from headwater.cli.lake_maintain import maintain
from headwater.cli.lake_options import (
    DEFAULT_MASTER,
    DEFAULT_WAREHOUSE,
    Catalog,
    Conf,
    Master,
    Warehouse,
    opened_lake,
)
from headwater.cli.lake_replay import replay_rescued
from headwater.cli.lake_reports import answer_json, report_json, report_lines
from headwater.cli.lake_run import run
from headwater.cli.lake_status import history, status
from headwater.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Json, pairs
from headwater.cli.output import fail, print_json, print_table, say
from headwater.lake.values import partitions, policies, seconds, size_bytes


class Mode(StrEnum):
    """What becomes of rows that are there already."""

    append = "append"
    upsert = "upsert"
    dedup = "dedup"


app = new_app("Load topics, files and database tables into Iceberg tables, exactly once.")


@app.command()
def load(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="topic:NAME, files:PATH or jdbc:URL#TABLE.", show_default=False)
    ],
    into: Annotated[str, typer.Option("--into", metavar="DB.TABLE", help="The table.", show_default=False)],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    warehouse: Warehouse = DEFAULT_WAREHOUSE,
    catalog: Catalog = None,
    mode: Annotated[Mode, typer.Option("--mode", help="What becomes of rows that are there already.")] = Mode.append,
    plan: Annotated[bool, typer.Option("--plan", help="Show what would be done; change nothing.")] = False,
    key: Annotated[
        list[str] | None,
        typer.Option("--key", metavar="COLUMN", help="A column of the key, for upsert and dedup; may be repeated."),
    ] = None,
    newest_by: Annotated[
        str | None, typer.Option("--newest-by", metavar="COLUMN", help="Which of two rows with one key is newer.")
    ] = None,
    window: Annotated[
        str | None, typer.Option("--window", metavar="TIME", help="How far back dedup looks: 30m, 12h, 7d.")
    ] = None,
    event_time: Annotated[
        str | None,
        typer.Option("--event-time", metavar="COLUMN", help="When a row happened; tables are split by its days."),
    ] = None,
    partition_by: Annotated[
        list[str] | None,
        typer.Option("--partition-by", metavar="SPEC", help="day(col), bucket(16, col), col or none; may be repeated."),
    ] = None,
    sort_by: Annotated[
        list[str] | None, typer.Option("--sort-by", metavar="COLUMN", help="Files are sorted by it; may be repeated.")
    ] = None,
    target_file_size: Annotated[
        str | None, typer.Option("--target-file-size", metavar="SIZE", help="How large files become: 128MiB.")
    ] = None,
    on_conflict: Annotated[
        list[str] | None,
        typer.Option(
            "--on-conflict",
            metavar="[COLUMN=]POLICY",
            help="corrupt (the default), columns or string, for all columns or one; may be repeated.",
        ),
    ] = None,
    rewrite: Annotated[
        bool, typer.Option("--rewrite", help="Rewrite a column to string where its policy is that.")
    ] = False,
    source_option: Annotated[
        list[str] | None,
        typer.Option("--option", "-o", metavar="NAME=VALUE", help="An option of the source; may be repeated."),
    ] = None,
    skip_corrupt: Annotated[
        bool,
        typer.Option(
            "--skip-corrupt",
            help="Go on behind records of a topic that cannot be read; _corrupt_record keeps the bytes.",
        ),
    ] = False,
    master: Master = DEFAULT_MASTER,
    conf: Conf = None,
    as_json: Json = False,
) -> None:
    """Load what is new in a source into a table."""
    source_options = pairs(source_option or (), "--option")
    if skip_corrupt:
        source_options["corrupt_records"] = "skip"
    with opened_lake(warehouse, catalog, master, conf, create=True, plan=plan) as lake:
        report = lake.load(
            source,
            into=into,
            bootstrap=bootstrap,
            source_options=source_options,
            plan_only=plan,
            mode=mode.value,
            key=tuple(key or ()),
            newest_by=newest_by,
            window_s=None if window is None else seconds(window),
            event_time=event_time,
            partition_by=partitions(partition_by),
            sort_by=tuple(sort_by or ()),
            target_file_bytes=None if target_file_size is None else size_bytes(target_file_size),
            policies=policies(on_conflict or (), rewrite=rewrite),
        )
    if as_json:
        print_json(report_json(report))
    else:
        say(*report_lines(report, planned=plan))


@app.command()
def sql(
    statement: Annotated[str, typer.Argument(metavar="STATEMENT", help="Spark SQL.", show_default=False)],
    warehouse: Warehouse = DEFAULT_WAREHOUSE,
    catalog: Catalog = None,
    master: Master = DEFAULT_MASTER,
    conf: Conf = None,
    as_json: Json = False,
) -> None:
    """Ask the lake."""
    with opened_lake(warehouse, catalog, master, conf) as lake:
        from headwater.lake.spark import log_no_errors

        log_no_errors()
        answer = lake.sql(statement)
    if as_json:
        print_json(answer_json(answer))
    elif answer.num_columns:
        print_table(answer.column_names, [list(row.values()) for row in answer.to_pylist()])


@app.command()
def setup(
    with_s3: Annotated[
        bool, typer.Option("--s3", help="Also the jar for warehouses in S3 (69 MB), which the first load would get.")
    ] = False,
) -> None:
    """Put in place what the lake needs beside Python: Java, and the jars of Iceberg and PostgreSQL."""
    from headwater.lake.errors import LakeError
    from headwater.lake.jars import ICEBERG, ICEBERG_AWS, POSTGRESQL, jars
    from headwater.lake.java import install_java, java_version

    try:
        java = install_java()
        say(f"Java {java_version(java)}: {java}")
        for jar in jars((ICEBERG, POSTGRESQL, *((ICEBERG_AWS,) if with_s3 else ()))):
            say(f"jar: {jar}")
    except LakeError as error:
        fail(str(error))


app.command()(run)
app.command()(status)
app.command()(explain)
app.command()(rewind)
app.command()(history)
app.command()(maintain)
app.command("replay-rescued")(replay_rescued)
app.command()(crawl)
