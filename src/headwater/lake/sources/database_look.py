"""One look at a table of a database: what it is, and what in it lies behind a position. Waits for nobody."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Self

from headwater.catalog.positions import canonical
from headwater.lake.errors import LakeUsageError
from headwater.lake.sources.database_columns import DatabaseColumn, parse_columns
from headwater.lake.sources.database_connection import Database
from headwater.lake.sources.database_queries import description, writers
from headwater.lake.sources.source import Position
from headwater.lake.sources.tracked_values import INTEGERS, TIMES, TrackedValues

if TYPE_CHECKING:
    from headwater.lake.sources.jdbc import JdbcSource

_STORED: Final = ("r", "p", "m")
"""Relations whose rows have versions and whose writers hold locks: tables, partitioned ones, materialised views."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Values of the tracked column: behind `since`, if there is such a one, and up to `last`."""

    values: TrackedValues
    since: int | None
    first: int
    """The smallest that is there, for cutting into pieces of about the same size; smaller ones belong to the first."""
    last: int

    def pieces(self, count: int) -> list[str]:
        """Conditions on the column `k` that cover all of it once, so many at most."""
        edges = cuts(self.first, self.last, count)
        lows = [f"k > {self.values.sql(low)} and " for low in edges]
        lows.insert(0, "" if self.since is None else f"k > {self.values.sql(self.since)} and ")
        return [f"{low}k <= {self.values.sql(high)}" for low, high in zip(lows, [*edges, self.last], strict=True)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What is new in a table at the moment of a look."""

    rows: int
    after: Position
    span: Span | None = None
    """None where all rows are new."""
    age_s: float | None = None
    """How old the first new row is, by the database's clock; None where rows have no time."""
    left_out: str = ""
    writers: Mapping[str, int] = field(default_factory=dict)
    """Transactions, with their processes, that may yet show rows among these; noted *after* `span.last` was seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """A table whose columns are known, and the database that answers for it."""

    source: "JdbcSource"
    database: Database
    described: Mapping[str, Any]
    columns: Sequence[DatabaseColumn]

    @classmethod
    def at(cls, source: "JdbcSource", database: Database) -> Self:
        """Asks what the table is."""
        described = database.ask(description(source.table))
        if described is None:
            raise LakeUsageError(f"{source.table} is not there, or not visible to this user")
        columns = parse_columns(described["columns"])
        return cls(source=source, database=database, described=described, columns=columns)

    def news(self, position: Position | None) -> Found | None:
        """What is new behind a position; None when nothing is."""
        return self._whole(position) if self.source.track == "whole" else self._behind(position)

    def open_writers(self) -> Mapping[str, int]:
        """The transactions that are writing to the table now, with their processes."""
        found: Mapping[str, int] = self._ask(f"select {writers(self.described['oid'])} as writers")["writers"]
        return found

    def _whole(self, position: Position | None) -> Found | None:
        """All rows, unless the table is as it was: the versions of its rows tell that without their contents."""
        version = "t.tableoid::text || t.ctid::text || t.xmin::text" if self._is_stored() else "t::text"
        versions = f"sum(hashtextextended({version}, 0))::text"
        found = self._ask(f"select count(*) as rows, {versions} as versions from {self.source.table.sql} t")
        state = canonical([found["rows"], found["versions"], self.described["columns"]])
        after = {"checksum": hashlib.sha256(state.encode()).hexdigest()[:32]}
        return None if after == position else Found(rows=found["rows"], after=after)

    def _behind(self, position: Position | None) -> Found | None:
        """What has a greater value than the position's, up to one below which only `writers` can add anything."""
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
        first, last = found["first"], found["last"]
        return Found(
            rows=found["rows"],
            after={"column": name, "value": values.spelled(last)},
            span=Span(values=values, since=since, first=last if first is None else first, last=last),
            age_s=None if first is None else values.age_s(first, edge=last),
            left_out=f"{found['nameless']:,} without {name} stay out" if found["nameless"] else "",
            writers=found["writers"],
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
                {writers(self.described["oid"]) if self._shows_writers() else "json '{}'"} as writers
            from {table} t where {" and ".join(conditions)}
        """

    def _is_stored(self) -> bool:
        return self.described["kind"] in _STORED

    def _shows_writers(self) -> bool:
        return self._is_stored() and not self.described["standby"]

    def _ask(self, question: str) -> Mapping[str, Any]:
        answer = self.database.ask(question)
        assert answer is not None, "an aggregate has a row"
        return answer


def cuts(first: int, last: int, pieces: int) -> list[int]:
    """Where to cut between the first and the last value so that there are so many pieces."""
    return sorted({first + (last - first) * piece // pieces for piece in range(1, pieces)} - {last})
