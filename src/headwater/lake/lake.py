"""The lake as Python sees it: `Lake("warehouse").load("topic:orders", into="shop.orders", bootstrap="…")`."""

import secrets
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from headwater.catalog.client import CatalogClient
from headwater.catalog.names import BadNameError, name_of, text_of
from headwater.catalog.object_stores import WAREHOUSE, environment_properties, is_s3
from headwater.catalog.places import default_database, is_there, warehouse_url
from headwater.lake.errors import LakeError, LakeUsageError
from headwater.lake.jobs import Job
from headwater.lake.leftovers import spark_log
from headwater.lake.load.job import LoadJob
from headwater.lake.load.request import MODES, LoadReport, LoadRequest
from headwater.lake.operations.explaining_files import explain_file
from headwater.lake.operations.explaining_offsets import explain_offset, parse_offset
from headwater.lake.operations.explaining_rows import explain_rows
from headwater.lake.operations.explanations import Explanation
from headwater.lake.operations.maintenance import Care, Maintenance, MaintenanceReport, tables_of
from headwater.lake.operations.races import despite_races
from headwater.lake.operations.replaying import ReplayJob, ReplayReport
from headwater.lake.operations.rewinding import RewindPlan, carry_out, plan_rewind
from headwater.lake.operations.running import JobResult, run_once
from headwater.lake.operations.status import StatusQuestion, TableStatus, lake_status
from headwater.lake.progress import Watch
from headwater.lake.shapes import Policies
from headwater.lake.sources.files import FilesSource
from headwater.lake.sources.jdbc import JdbcSource
from headwater.lake.sources.listing import store_settings
from headwater.lake.sources.parsing import parse_source
from headwater.lake.sources.reach import Reach
from headwater.lake.sources.source import Source
from headwater.lake.spark import (
    SparkCatalog,
    SparkSettings,
    give_interrupts_back,
    has_ended,
    start_spark,
    statement_words,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.catalog.rest import RestCatalog
    from pyspark.sql import SparkSession

    from headwater.catalog.entries import Load, SchemaChange
    from headwater.catalog.server import EmbeddedCatalog


class Lake:
    """A warehouse, its catalog, and a Spark that starts when it is needed.

    `warehouse` is a folder or the URL of a place in S3; `catalog` is the URL of a catalog server or of a database
    (SQLite, PostgreSQL) over which one runs inside this process: a file in the warehouse unless told otherwise.
    Tables lie in the warehouse, or in one of `allow_locations`. Other programs of the machine reach the catalog of this
    process only with `lake.token`.
    A lake that is not there yet is made, except with `create=False`: that is a `LakeUsageError` then.
    """

    def __init__(
        self,
        warehouse: str | Path = "lake",
        *,
        catalog: str | None = None,
        token: str | None = None,
        allow_locations: Iterable[str | Path] = (),
        create: bool = True,
        spark: SparkSettings | None = None,
        tell: Callable[[str], None] = lambda words: None,
        watch: Watch | None = None,
    ) -> None:
        self._settings = spark or SparkSettings()
        self.token = token
        """What the catalog asks of everybody; that of a catalog in this process is made for it, and told to nobody."""
        self._tell = tell
        self._watch = watch
        self._session: SparkSession | None = None
        self._starting = threading.Lock()
        self._iceberg: RestCatalog | None = None
        self._embedded: EmbeddedCatalog | None = None
        if catalog is not None and catalog.startswith(("http://", "https://")):
            self.uri = catalog
            # The catalog tells how it reaches the files; from here they may be reached otherwise.
            self._file_properties = environment_properties()
        else:
            self.token = token or secrets.token_urlsafe(32)
            allowed = tuple(map(str, allow_locations))
            self._embedded = _served(str(warehouse), catalog, create=create, token=self.token, allowed=allowed)
            self.uri = self._embedded.uri
            self._file_properties = {}
        self.catalog = CatalogClient(self.uri, token=self.token)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends Spark and the catalog, if they run in this process."""
        if self._session is not None:
            # What a Spark that died has left in its log is what somebody will want to read.
            if not self._spark_has_ended():
                self._session.stop()
                spark_log().unlink(missing_ok=True)
            give_interrupts_back()
            self._session = None
        self.catalog.close()
        if self._embedded is not None:
            self._embedded.__exit__(None, None, None)
            self._embedded = None

    @property
    def spark(self) -> "SparkSession":
        """The session, started at the first call. Its default catalog is this lake."""
        with self._starting:
            if self._session is None:
                self._tell("starting Spark")
                self._session = start_spark(self._settings, self._spark_catalog())
        self.check_spark()
        return self._session

    def _spark_catalog(self) -> SparkCatalog:
        on_s3 = is_s3(self.catalog.settings().get(WAREHOUSE, ""))
        properties = self._file_properties if on_s3 else {}
        return SparkCatalog(uri=self.uri, token=self.token, on_s3=on_s3, properties=properties)

    def check_spark(self) -> None:
        """A LakeError when Spark was started and its process is gone; another lake starts another one."""
        if self._spark_has_ended():
            raise LakeError(
                f"Spark has ended; its last words are in {spark_log()}. Start again: nothing is loaded twice"
            )

    def _spark_has_ended(self) -> bool:
        return self._session is not None and has_ended(self._session.sparkContext._gateway)

    @property
    def iceberg(self) -> "RestCatalog":
        """The same tables for pyiceberg, without Spark."""
        if self._iceberg is None:
            from pyiceberg.catalog.rest import RestCatalog

            token = {} if self.token is None else {"token": self.token}
            self._iceberg = RestCatalog("lake", uri=self.uri, **token, **self._file_properties)
        return self._iceberg

    def load(
        self,
        source: str,
        *,
        into: str,
        plan_only: bool = False,
        bootstrap: str | None = None,
        source_options: Mapping[str, Any] | None = None,
        **how: Any,
    ) -> LoadReport:
        """Loads what is new in a source into a table; `how` is what `LoadRequest` takes."""
        found = parse_source(source, bootstrap=bootstrap, **(source_options or {}))
        job = LoadJob(
            catalog=self.catalog,
            spark=lambda: self.spark,
            source=found,
            request=with_key(LoadRequest(table=checked_table(into), **how), found),
            details=Reach.without_secrets(bootstrap, {**_in_address(found), **(source_options or {})}).details,
            tell=self._tell,
            watch=self._watch,
        )
        return job.plan() if plan_only else job.run()

    def load_job(self, job: Job) -> LoadReport:
        """Loads what is new for a job, as a `lake.toml` names it."""
        request = job.request
        how = {each.name: getattr(request, each.name) for each in fields(request) if each.name != "table"}
        options = job.source_options
        return self.load(job.source, into=request.table, bootstrap=job.bootstrap, source_options=options, **how)

    def run(self, jobs: Iterable[Job]) -> list[JobResult]:
        """Loads what is new for each job, one after the other; one that fails stops no other, and its result says why.

        >>> lake.run(read_lake_file(Path("lake.toml")).jobs)  # doctest: +SKIP
        """
        return list(run_once(list(jobs), self.load_job))

    def status(self, table: str | None = None, question: StatusQuestion | None = None) -> list[TableStatus]:
        """How far a table's sources are loaded, or those of all tables: positions, lag, last loads. Starts no Spark."""
        return lake_status(self.catalog, table, question)

    def explain_offset(self, table: str, offset: str, *, bootstrap: str | None = None) -> Explanation:
        """Why an offset, `orders:0:124` say, was loaded or not."""
        return explain_offset(self, table, parse_offset(offset), bootstrap=bootstrap)

    def explain_file(self, table: str, path: str | Path) -> Explanation:
        """Why a file was loaded or not."""
        return explain_file(self, table, str(path))

    def explain_rows(self, table: str, condition: str, *, bootstrap: str | None = None) -> list[Explanation]:
        """Where the first rows that meet a condition, `id = 7` say, come from."""
        return explain_rows(self, table, condition, bootstrap=bootstrap)

    def plan_rewind(
        self, table: str, source: str, to: str, *, delete: bool = False, bootstrap: str | None = None
    ) -> RewindPlan:
        """What `rewind` with the same arguments would do; nothing is changed."""
        return plan_rewind(self, table, source, to, delete=delete, bootstrap=bootstrap)

    def rewind(self, table: str, source: str, to: str, *, delete: bool = False, bootstrap: str | None = None) -> "Load":
        """Sets a source's position back to `earliest`, offsets as JSON, before a load (`load:ID`) or to a time.

        Rows stay in the table unless `delete` says that those of what is loaded again go in the same commit.
        """
        return carry_out(self, self.plan_rewind(table, source, to, delete=delete, bootstrap=bootstrap))

    def history(self, table: str) -> "list[SchemaChange]":
        """How a table's schema became what it is: each change with the load and the position that made it."""
        return self.catalog.schema_history(table)

    def maintain(self, tables: Iterable[str] = (), care: Care | None = None) -> list[MaintenanceReport]:
        """Packs small files, lets go of old snapshots, removes files that no table knows; of all tables by default.

        >>> lake.maintain(["shop.orders"], Care(older_than_s=86_400))  # doctest: +SKIP
        """
        named = [self._known_table(table) for table in tables] or self._tables()
        how = care or Care()
        return [
            Maintenance(spark=self.spark, catalog=self.catalog, table=table, care=how, tell=self._tell).run()
            for table in named
        ]

    def replay_rescued(
        self, table: str, *, column: str | None = None, policies: Policies | None = None
    ) -> ReplayReport:
        """Puts what was rescued into its columns, as far as they hold it by now; `column` is the path of one field."""
        known = self._known_table(table)
        job = ReplayJob(
            spark=self.spark,
            catalog=self.catalog,
            table=known,
            column=column,
            policies=policies or Policies(),
            tell=self._tell,
        )
        return job.run()

    def _tables(self) -> list[str]:
        return despite_races("listing the tables of the lake", lambda: tables_of(self.spark))

    def _known_table(self, name: str) -> str:
        if self.catalog.table_state(checked_table(name)) is None:
            raise LakeUsageError(f"there is no table {name} in the lake: `headwater lake status` lists those that are")
        return name

    def sql(self, statement: str) -> "pa.Table":
        """The answer of a statement, as Arrow. What Spark has against it is the cause of a LakeError."""
        spark = self.spark
        try:
            return spark.sql(statement).toArrow()
        except Exception as error:
            raise LakeError(statement_words(error)) from error


def _served(
    warehouse: str, catalog: str | None, *, create: bool, token: str, allowed: Sequence[str]
) -> "EmbeddedCatalog":
    """A catalog in this process. Who has one elsewhere does not wait for what a server and its database need."""
    try:
        place = warehouse_url(warehouse)
        database = catalog or default_database(warehouse)
        if not create and not is_there(database):
            raise _no_lake(place, catalog)
        from headwater.catalog.server import EmbeddedCatalog

        return EmbeddedCatalog(database, warehouse, token=token, allow_locations=allowed).__enter__()
    except ValueError as error:
        raise LakeUsageError(str(error)) from None


def _no_lake(warehouse: str, catalog: str | None) -> LakeUsageError:
    """For those who only look at a lake, or change what is there."""
    missing = "its catalog" if catalog is None else f"the catalog {catalog}"
    place = warehouse.removeprefix("file://")
    named = "--warehouse" if catalog is None else "--catalog"
    return LakeUsageError(
        f"there is no lake in {place}: {missing} is not there. Name another with {named}, or make one with "
        "`headwater lake load`"
    )


def checked_table(name: str) -> str:
    """`db.table`, or a usage error; a part with a dot stands in backquotes, as in Spark."""
    try:
        return text_of(name_of(name))
    except BadNameError:
        raise LakeUsageError(f"{name!r} is not the name of a table: write DATABASE.TABLE") from None


def _in_address(source: Source) -> Mapping[str, str]:
    """Options that stood in the source's address and are no part of its name."""
    if isinstance(source, JdbcSource):
        return source.table.parameters
    return store_settings(source.place) if isinstance(source, FilesSource) else {}


def with_key(request: LoadRequest, source: Source) -> LoadRequest:
    """The request with the key that tells rows apart: a record's own, unless columns were named.

    Where each load is the whole of a table, there is nothing to tell apart: it takes the place of the last.
    """
    if request.mode not in MODES:
        raise LakeUsageError(f"{request.mode!r} is no mode: it is one of {', '.join(MODES)}")
    if request.mode == "append" and isinstance(source, JdbcSource) and source.track == "whole":
        return replace(request, mode="replace")
    if request.mode == "append" or request.key:
        return request
    if "_key" not in source.origin.names:
        raise LakeUsageError(f"{request.mode} needs to know the key of a row: name its columns with --key")
    return replace(request, key=("_key",))
