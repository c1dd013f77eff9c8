"""Tables of a PostgreSQL database as a source: new is what lies behind a number or a time, or a table that changed.

What is promised, and what for it has to hold:

- `id`: every row is loaded once, if numbers are drawn in ascending order by the INSERT itself (serial, identity). A
  number becomes visible with the commit of its transaction, so a higher one may be there first. A load therefore notes
  the highest number it sees *and then* which transactions have written to the table and are still open, and waits for
  those: after that nothing up to this number can appear any more. Nobody is locked out by it. Later changes of a row
  are not seen.
- `timestamp`: every row is loaded once for each time that is set on it, if the time lies at most `lag_s` before the
  transaction's commit, or the transaction had written to the table when the load looked. Rows younger than `lag_s` are
  left for the next load. A position is a time up to which all is loaded, that time itself included, and no row is that
  time or older afterwards: rows with equal times are never torn apart. With the mode `upsert` changed rows replace what
  they were.
- `whole`: a load replaces all rows of the lake's table by what one statement sees, at one moment, in one commit. A
  table in which no row was written, changed or deleted since the last load is not loaded again.

A row whose tracked column is null is not loaded; the load says how many there are.

Bounding the rows by the transactions that wrote them (`xmin` below the oldest open one) would not do for `id`: a
transaction that is older than the open one may have drawn the higher number.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import pyarrow as pa

from headwater.lake.errors import LakeBusyError, LakeUsageError
from headwater.lake.jars import POSTGRESQL, jars
from headwater.lake.shapes import Policies, Shape, shape_of_arrow
from headwater.lake.shapes.paths import RESCUED
from headwater.lake.sources.database_address import DatabaseTable, parse_database_table
from headwater.lake.sources.database_columns import UNFIT, DatabaseColumn, received, schema_of, select_list
from headwater.lake.sources.database_connection import connected
from headwater.lake.sources.database_look import Found, Look
from headwater.lake.sources.database_parameters import PARAMETERS
from headwater.lake.sources.source import Position
from headwater.lake.values import nearest, option_seconds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headwater.catalog.client import CatalogClient

Track: TypeAlias = Literal["id", "timestamp", "whole"]
TRACKS: Final = ("id", "timestamp", "whole")

MOST_TASKS: Final = 16
"""Connections that a load opens at once unless it is told more: databases have few to give."""
ROWS_OF_A_TASK: Final = 50_000
_PAUSE_S: Final = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class JdbcSource:
    """A table, and how its news are told from what is known."""

    table: DatabaseTable
    track: Track | None = None
    column: str | None = None
    lag_s: float = 60.0
    wait_s: float = 60.0
    """How long to wait for transactions that have written to the table."""
    zone: str = "UTC"
    """In which zone the times of a column without one are."""
    tasks: int | None = None

    def __post_init__(self) -> None:
        if self.track not in (None, *TRACKS):
            raise LakeUsageError(f"track {self.track!r} of {self.table} is unknown; take one of {', '.join(TRACKS)}")
        if self.track == "timestamp" and self.column is None:
            raise LakeUsageError(f"to track {self.table} by timestamp, name the column that holds it")
        if self.lag_s < 0 or self.wait_s < 0 or (self.tasks is not None and self.tasks < 1):
            raise LakeUsageError(f"lag_s and wait_s of {self.table} are seconds from 0 on, tasks a number from 1 on")

    @property
    def id(self) -> str:
        """`jdbc:postgresql://host:5432/shop#public.orders`: neither user nor password."""
        return str(self.table)

    @property
    def fixed(self) -> pa.Schema | None:
        """The columns are the database's affair and may change."""
        return None

    @property
    def origin(self) -> pa.Schema:
        """Rows of a database know themselves where they come from."""
        return pa.schema([])

    @property
    def event_time(self) -> str | None:
        """The time by which the table is tracked."""
        return self.column if self.track == "timestamp" else None

    def look(self, catalog: "CatalogClient", table: str, position: Position | None) -> "JdbcNews | None":
        """Asks for the table's columns, and for what is behind the position."""
        if self.track == "whole":
            _refuse_to_replace_others(catalog, table, self)
        with connected(self.table) as database:
            driver = database.driver_properties()
            look = Look.at(self, database)
            found = look.news(position)
            if found is None:
                return None
            _wait_for(look, found.writers, self.wait_s)
            return JdbcNews(source=self, columns=look.columns, found=found, driver=driver)

    def peek(self, position: Position | None, *, within_s: float) -> Found | None:
        """What a load would find, told at once: nobody is waited for, and an answer has so many seconds to come."""
        with connected(self.table, within_s=within_s) as database:
            return Look.at(self, database).news(position)


def parse_jdbc(
    text: str,
    *,
    user: str | None = None,
    password: str | None = None,
    **options: Any,
) -> JdbcSource:
    """The source that `postgresql://HOST:PORT/DATABASE?user=…&password=…#SCHEMA.TABLE` names, with its options."""
    more = {name: str(value) for name, value in options.items() if name in PARAMETERS}
    table = parse_database_table(text, user=user, password=password, more=more)
    known = sorted({each.name for each in fields(JdbcSource)} - {"table"})
    for name in options.keys() - more.keys():
        if name not in known:
            raise LakeUsageError(
                f"tables have no option {name!r}{nearest(name, known)}; they have {', '.join(known)}, user, password "
                "and the parameters of a URL"
            )
    given = {name: _READ_AS.get(name, str)(value) for name, value in options.items() if name not in more}
    return JdbcSource(table=table, **given)


def _whole_number(value: object) -> int:
    try:
        return int(str(value))
    except ValueError:
        raise LakeUsageError(f"tasks = {value!r} is no number") from None


_READ_AS: Final[Mapping[str, Callable[[object], Any]]] = {
    "lag_s": option_seconds,
    "wait_s": option_seconds,
    "tasks": _whole_number,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class JdbcNews:
    """Rows between two values of a column, or all rows; Spark reads them in pieces side by side."""

    source: JdbcSource
    columns: Sequence[DatabaseColumn]
    found: Found
    driver: Mapping[str, str] = field(repr=False)
    """How Spark connects to the server that was asked. Secrets are among it."""

    @property
    def after(self) -> Position:
        """The last value of the column, or what the whole table was like."""
        return self.found.after

    @property
    def words(self) -> str:
        """How many rows of which table."""
        rows, left_out = self.found.rows, self.found.left_out
        words = f"{rows:,} row{'' if rows == 1 else 's'} of {self.source.table.name}"
        return f"{words} ({left_out})" if left_out else words

    @property
    def details(self) -> Mapping[str, Any]:
        """How the table is tracked."""
        return {"track": self.source.track or "id"}

    @property
    def replaced(self) -> Sequence[str]:
        """Rows of a database come from no file."""
        return ()

    def shape(self, spark: "Callable[[], SparkSession]") -> Shape:
        """The database has said it: no row is read."""
        return shape_of_arrow(schema_of(self.columns))

    def read(self, spark: "SparkSession", fields: pa.Schema, policies: Policies) -> "DataFrame":
        """The rows, each piece over a connection of its own."""
        from pyspark.sql import functions as f

        from headwater.lake.load.conforming import conform

        key = next((f", {column.sql} as k" for column in self.columns if column.name == self.after.get("column")), "")
        statement = f"(select {select_list(self.columns)}{key} from {self.source.table.sql} t) q"
        for jar in jars([POSTGRESQL]):
            # On all machines of a session that is running; where it has the driver, nothing happens.
            spark.sql(f"add jar {json.dumps(str(jar))}")
        options = dict(self.driver)
        url = options.pop("url")
        pieces = self._pieces(spark.sparkContext.defaultParallelism)
        frame = received(spark.read.jdbc(url, statement, predicates=pieces, properties=options), self.columns)
        rows = conform(frame, pa.schema([*fields, (UNFIT, pa.map_(pa.string(), pa.string()))]))
        both = f.map_concat(f.col(UNFIT), f.col(RESCUED))
        return rows.withColumn(RESCUED, f.coalesce(both, f.col(UNFIT), f.col(RESCUED))).drop(UNFIT)

    def register(self, catalog: "CatalogClient", load_id: str) -> None:
        """The position says it all."""

    def _pieces(self, tasks_at_once: int) -> list[str]:
        """A condition for each task: as many as Spark does at once, but none with few rows, and one for all rows."""
        if self.found.span is None:
            return ["true"]
        wanted = min(-(-self.found.rows // ROWS_OF_A_TASK), tasks_at_once, MOST_TASKS)
        return self.found.span.pieces(self.source.tasks or wanted)


def _wait_for(look: Look, transactions: Mapping[str, int], wait_s: float) -> None:
    """Returns once these transactions are over; others that began since do not matter."""
    deadline = monotonic() + wait_s
    while transactions:
        if monotonic() > deadline:
            processes = ", ".join(sorted({str(process) for process in transactions.values()}))
            raise LakeBusyError(
                f"transactions of the processes {processes} have written to {look.source.table} and are still open "
                f"after {wait_s:g} s, so rows may yet appear among those to be loaded; nothing was "
                "loaded. Run it again when they are over (pg_stat_activity shows them), or wait longer (wait_s)"
            )
        sleep(_PAUSE_S)
        still = look.open_writers()
        transactions = {name: process for name, process in transactions.items() if name in still}


def _refuse_to_replace_others(catalog: "CatalogClient", table: str, source: JdbcSource) -> None:
    state = catalog.table_state(table)
    others = [name for name in (state.positions if state is not None else ()) if name != source.id]
    if others:
        raise LakeUsageError(
            f"{table} also holds what was loaded from {', '.join(others)}, and the whole of {source.table.name} would "
            "replace that: load it into a table of its own"
        )
