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

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import pyarrow as pa

from headwater.catalog.positions import canonical
from headwater.lake.errors import LakeBusyError, LakeError, LakeUsageError
from headwater.lake.shapes import Policies, Shape, shape_of_arrow
from headwater.lake.shapes.paths import RESCUED
from headwater.lake.sources.database_address import DatabaseTable, parse_database_table
from headwater.lake.sources.database_columns import (
    UNFIT,
    DatabaseColumn,
    parse_columns,
    received,
    schema_of,
    select_list,
)
from headwater.lake.sources.database_queries import add_driver, ask, connection, description, writers
from headwater.lake.sources.source import Position
from headwater.lake.sources.tracked_values import INTEGERS, TIMES, TrackedValues
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
_STORED: Final = ("r", "p", "m")
"""Relations whose rows have versions and whose writers hold locks: tables, partitioned ones, materialised views."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JdbcSource:
    """A table, and how its news are told from what is known."""

    table: DatabaseTable
    spark: "Callable[[], SparkSession] | None" = field(default=None, repr=False)
    """The Spark that asks the database; without one, nothing can be looked up."""
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
        if self.spark is None:
            raise LakeError(f"{self.table} can be asked only through Spark: load it to see what is new")
        spark = self.spark()
        add_driver(spark)
        described = ask(spark, self.table, description(self.table))
        if described is None:
            raise LakeUsageError(f"{self.table} is not there, or not visible to this user")
        look = _Look(source=self, spark=spark, described=described, columns=parse_columns(described["columns"]))
        if self.track == "whole":
            _refuse_to_replace_others(catalog, table, self)
            return look.whole(position)
        return look.behind(position)


def parse_jdbc(
    text: str,
    *,
    spark: "Callable[[], SparkSession] | None" = None,
    user: str | None = None,
    password: str | None = None,
    **options: Any,
) -> JdbcSource:
    """The source that `postgresql://HOST:PORT/DATABASE?user=…&password=…#SCHEMA.TABLE` names, with its options."""
    table = parse_database_table(text, user=user, password=password)
    known = sorted({each.name for each in fields(JdbcSource)} - {"table", "spark"})
    for name in options:
        if name not in known:
            raise LakeUsageError(
                f"tables have no option {name!r}{nearest(name, known)}; they have {', '.join(known)}, user and password"
            )
    given = {name: _READ_AS.get(name, str)(value) for name, value in options.items()}
    return JdbcSource(table=table, spark=spark, **given)


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
    """Rows between two values of a column, or all rows; in pieces that are read side by side."""

    source: JdbcSource
    columns: Sequence[DatabaseColumn]
    rows: int
    after: Position
    pieces: Sequence[str] = ()
    """A condition for each task; none for one task that reads all."""
    left_out: str = ""

    @property
    def words(self) -> str:
        """How many rows of which table."""
        words = f"{self.rows:,} row{'' if self.rows == 1 else 's'} of {self.source.table.name}"
        return f"{words} ({self.left_out})" if self.left_out else words

    @property
    def details(self) -> Mapping[str, Any]:
        """How the table is tracked, and in how many pieces it was read."""
        return {"track": self.source.track or "id", "pieces": len(self.pieces) or 1}

    @property
    def replaced(self) -> Sequence[str]:
        """Rows of a database come from no file."""
        return ()

    def shape(self, spark: "SparkSession") -> Shape:
        """The database has said it: no row is read."""
        return shape_of_arrow(schema_of(self.columns))

    def read(self, spark: "SparkSession", fields: pa.Schema, policies: Policies) -> "DataFrame":
        """The rows, each piece over a connection of its own."""
        from pyspark.sql import functions as f

        from headwater.lake.load.conforming import conform

        key = next((f", {column.sql} as k" for column in self.columns if column.name == self.after.get("column")), "")
        statement = f"(select {select_list(self.columns)}{key} from {self.source.table.sql} t) q"
        options = connection(self.source.table)
        url = options.pop("url")
        pieces = list(self.pieces) or ["true"]
        frame = received(spark.read.jdbc(url, statement, predicates=pieces, properties=options), self.columns)
        rows = conform(frame, pa.schema([*fields, (UNFIT, pa.map_(pa.string(), pa.string()))]))
        both = f.map_concat(f.col(UNFIT), f.col(RESCUED))
        return rows.withColumn(RESCUED, f.coalesce(both, f.col(UNFIT), f.col(RESCUED))).drop(UNFIT)

    def register(self, catalog: "CatalogClient", load_id: str) -> None:
        """The position says it all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """One look at a table whose columns are known."""

    source: JdbcSource
    spark: "SparkSession"
    described: Mapping[str, Any]
    columns: Sequence[DatabaseColumn]

    def whole(self, position: Position | None) -> JdbcNews | None:
        """All rows, unless the table is as it was: the versions of its rows tell that without their contents."""
        version = "t.tableoid::text || t.ctid::text || t.xmin::text" if self._is_stored() else "t::text"
        versions = f"sum(hashtextextended({version}, 0))::text"
        found = self._ask(f"select count(*) as rows, {versions} as versions from {self.source.table.sql} t")
        state = canonical([found["rows"], found["versions"], self.described["columns"]])
        after = {"checksum": hashlib.sha256(state.encode()).hexdigest()[:32]}
        if after == position:
            return None
        return JdbcNews(source=self.source, columns=self.columns, rows=found["rows"], after=after)

    def behind(self, position: Position | None) -> JdbcNews | None:
        """What has a greater value than the position's, up to one below which nothing can appear any more."""
        values = self._tracked_values()
        name = values.column.name
        if position is not None and position.get("column") != name:
            raise LakeUsageError(
                f"{self.source.id} was loaded by {position.get('column') or 'the whole table'} so far, not by {name}: "
                "go on as before, or load it into another table"
            )
        since = None if position is None else values.parsed(str(position["value"]))
        found = self._ask(self._question(values, since))
        if not found["rows"]:
            return None
        self._wait_for(found["writers"])
        last = int(found["last"])
        edges = _edges(int(found["first"] or last), last, self._pieces(found["rows"]))
        lows = [f"k > {values.sql(low)} and " for low in edges]
        lows.insert(0, "" if since is None else f"k > {values.sql(since)} and ")
        return JdbcNews(
            source=self.source,
            columns=self.columns,
            rows=found["rows"],
            after={"column": name, "value": values.spelled(last)},
            pieces=[f"{low}k <= {values.sql(high)}" for low, high in zip(lows, [*edges, last], strict=True)],
            left_out=f"{found['nameless']:,} without {name} stay out" if found["nameless"] else "",
        )

    def _tracked_values(self) -> TrackedValues:
        name = self.source.column or self.described["key"]
        if name is None:
            raise LakeUsageError(
                f"{self.source.table} has no primary key of one integer column to track it by: name a column that "
                "ascends (track id or timestamp), or track the whole table"
            )
        column = next((column for column in self.columns if column.name == name), None)
        if column is None:
            names = ", ".join(column.name for column in self.columns)
            raise LakeUsageError(f"{self.source.table} has no column {name!r}; it has {names}")
        by_time = self.source.track == "timestamp"
        if column.dimensions or column.type not in (TIMES if by_time else INTEGERS):
            raise LakeUsageError(
                f"{name} of {self.source.table} is no {'timestamp' if by_time else 'integer'}, so the table cannot be "
                f"tracked by it; `id` takes {', '.join(INTEGERS)}, `timestamp` takes {', '.join(TIMES)}"
            )
        if not by_time:
            self._check_order(column)
        return TrackedValues(column=column, lag_s=self.source.lag_s, zone=self.source.zone)

    def _check_order(self, column: DatabaseColumn) -> None:
        """Refuses to track by numbers that are known not to ascend, or where open transactions cannot be seen."""
        if column.cache is not None and column.cache > 1:
            raise LakeUsageError(
                f"the sequence of {column.name} of {self.source.table} hands {column.cache} numbers to a session at "
                "once, so they do not ascend and rows would be missed: alter it to cache 1, or track a timestamp"
            )
        if not self._shows_writers():
            what = "a standby" if self.described["standby"] else "no table but a view or a foreign table"
            raise LakeUsageError(
                f"{self.source.table} is {what}: its open transactions cannot be seen there, and rows with lower "
                "numbers might appear after higher ones. Load the table from the primary, or track a timestamp or the "
                "whole of it"
            )

    def _question(self, values: TrackedValues, since: int | None) -> str:
        column, table = values.column, self.source.table.sql
        conditions = [f"{column.sql} > {values.sql(since)}"] if since is not None else [f"{column.sql} is not null"]
        if values.edge is not None:
            conditions.append(f"{column.sql} <= {values.edge}")
        smallest = f"min({column.sql})" + (f" filter (where {column.fits})" if column.fits else "")
        nameless = f"(select count(*) from {table} t where {column.sql} is null)" if column.nullable else "0"
        return f"""
            select count(*) as rows, {values.number(smallest)} as first,
                {values.number(values.edge or f"max({column.sql})")} as last, {nameless} as nameless,
                {writers(self.described["oid"]) if self._shows_writers() else "'{{}}'::json"} as writers
            from {table} t where {" and ".join(conditions)}
        """

    def _wait_for(self, transactions: Mapping[str, int]) -> None:
        """Returns once these transactions are over; others that began since do not matter."""
        deadline = monotonic() + self.source.wait_s
        while transactions:
            if monotonic() > deadline:
                processes = ", ".join(sorted({str(process) for process in transactions.values()}))
                raise LakeBusyError(
                    f"transactions of the processes {processes} have written to {self.source.table} and are still open "
                    f"after {self.source.wait_s:g} s, so rows may yet appear among those to be loaded; nothing was "
                    "loaded. Run it again when they are over (pg_stat_activity shows them), or wait longer (wait_s)"
                )
            sleep(_PAUSE_S)
            still = self._ask(f"select {writers(self.described['oid'])} as writers")["writers"]
            transactions = {name: process for name, process in transactions.items() if name in still}

    def _pieces(self, rows: int) -> int:
        if self.source.tasks is not None:
            return self.source.tasks
        return min(-(-rows // ROWS_OF_A_TASK), self.spark.sparkContext.defaultParallelism, MOST_TASKS)

    def _is_stored(self) -> bool:
        return self.described["kind"] in _STORED

    def _shows_writers(self) -> bool:
        return self._is_stored() and not self.described["standby"]

    def _ask(self, question: str) -> Mapping[str, Any]:
        answer = ask(self.spark, self.source.table, question)
        assert answer is not None, "an aggregate has a row"
        return answer


def _edges(first: int, last: int, pieces: int) -> list[int]:
    """Where to cut between the first and the last value so that there are so many pieces."""
    return sorted({first + (last - first) * piece // pieces for piece in range(1, pieces)} - {last})


def _refuse_to_replace_others(catalog: "CatalogClient", table: str, source: JdbcSource) -> None:
    state = catalog.table_state(table)
    others = [name for name in (state.positions if state is not None else ()) if name != source.id]
    if others:
        raise LakeUsageError(
            f"{table} also holds what was loaded from {', '.join(others)}, and the whole of {source.table.name} would "
            "replace that: load it into a table of its own"
        )
