"""Tables of PostgreSQL into a lake: every row once, in whatever order transactions commit; or the whole table anew."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headwater.lake import Lake, LakeError, LakeUsageError
from headwater.lake.errors import LakeBusyError
from headwater.lake.leftovers import spark_log
from headwater.lake.load.request import LoadReport
from headwater.lake.sources import jdbc
from peers.postgresql import Postgresql
from peers.postgresql import postgresql as postgresql
from peers.spark import lake as lake
from peers.spark import pyspark_leaves_sockets

pytestmark = pyspark_leaves_sockets

Connection = psycopg.Connection[tuple[Any, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shop:
    """A database of its own, and the lake that its tables go into."""

    server: Postgresql
    database: str
    sql: Connection
    lake: Lake

    def load(self, table: str, *, into: str | None = None, how: Any = None, **options: Any) -> LoadReport:
        return self.lake.load(
            self.server.jdbc(self.database, table),
            into=into or f"shop.{table}",
            source_options=options,
            **(how or {}),
        )

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        return [tuple(row.values()) for row in self.lake.sql(statement).to_pylist()]

    def snapshots(self, table: str) -> int:
        return int(self.rows(f"select count(*) from shop.{table}.snapshots")[0][0])

    def transaction(self) -> Connection:
        return self.server.connect(self.database, autocommit=False)


@pytest.fixture(scope="module")
def shop(lake: Lake, postgresql: Postgresql) -> Iterator[Shop]:
    database = postgresql.new_database()
    with postgresql.connect(database) as connection:
        yield Shop(server=postgresql, database=database, sql=connection, lake=lake)


def test_what_is_new_is_loaded_once_in_several_pieces(shop: Shop) -> None:
    shop.sql.execute("create table pieces (id int primary key, v text)")
    shop.sql.execute("insert into pieces select i * 3, 'v' || i from generate_series(-5000, 5000) i")
    first = shop.load("pieces", tasks=4)
    assert first.counts.rows == 10_001
    assert shop.rows("select count(*) from shop.pieces.files") == [(4,)]
    assert shop.load("pieces").load_id is None
    shop.sql.execute("insert into pieces values (15001, 'last')")
    assert shop.load("pieces", tasks=4).counts.rows == 1
    assert shop.rows("select count(*), count(distinct id), sum(id), max_by(v, id) from shop.pieces") == [
        (10_002, 10_002, 15_001, "last")
    ]
    assert shop.snapshots("pieces") == 2
    source = f"jdbc:postgresql://127.0.0.1:{shop.server.port}/{shop.database}#public.pieces"
    assert shop.lake.catalog.position("shop.pieces", source) == {"column": "id", "value": "15001"}


@pytest.mark.parametrize("table", ["plain", "parts"])
def test_a_lower_number_that_is_committed_later_is_waited_for(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    shop.sql.execute(
        "create table plain (id int generated always as identity primary key, v text)"
        if table == "plain"
        else "create table parts (id serial primary key, v text) partition by range (id);"
        "create table parts_0 partition of parts for values from (0) to (100)"
    )
    # What is written to a partition by its own name counts as well.
    leaf = "plain" if table == "plain" else "parts_0"
    with shop.transaction() as slow:
        slow.execute(f"insert into {leaf} (v) values ('slow')")
        shop.sql.execute(f"insert into {table} (v) values ('quick')")
        with pytest.raises(LakeBusyError, match=f"processes {slow.info.backend_pid} have written"):
            shop.load(table, wait_s=0)
        pauses: list[float] = []

        def pause(pause_s: float) -> None:
            pauses.append(pause_s)
            slow.commit()

        monkeypatch.setattr(jdbc, "sleep", pause)
        assert shop.load(table).counts.rows == 2
    assert pauses
    assert shop.rows(f"select id, v from shop.{table} order by id") == [(1, "slow"), (2, "quick")]


def test_who_writes_after_the_look_is_not_waited_for(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.sql.execute("create table busy (id serial primary key)")
    with shop.transaction() as slow, shop.transaction() as later:
        slow.execute("insert into busy default values")
        shop.sql.execute("insert into busy default values")

        def pause(_pause_s: float) -> None:
            later.execute("insert into busy default values")
            slow.commit()

        monkeypatch.setattr(jdbc, "sleep", pause)
        assert shop.load("busy").counts.rows == 2
        later.commit()
    assert shop.load("busy").counts.rows == 1
    assert shop.rows("select sum(id), count(*) from shop.busy") == [(6, 3)]


@pytest.fixture
def clock(shop: Shop) -> Iterator[Callable[[str], None]]:
    """The database's clock, held by hand: its `now()` is found before the built-in one."""
    shop.sql.execute("create schema clock; create table clock.hand (t timestamptz)")
    shop.sql.execute("insert into clock.hand values ('2026-01-01 12:00Z')")
    shop.sql.execute(
        "create function clock.now() returns timestamptz stable language sql as 'select t from clock.hand'"
    )
    shop.sql.execute(f"alter database {shop.database} set search_path = clock, pg_catalog, public")

    def set_to(at: str) -> None:
        shop.sql.execute("update clock.hand set t = %s", (at,))

    yield set_to
    shop.sql.execute(f"alter database {shop.database} reset search_path; drop schema clock cascade")


@pytest.mark.parametrize("kind", ["timestamptz", "timestamp"])
def test_rows_of_equal_time_at_the_edge_come_together_and_once(
    shop: Shop, clock: Callable[[str], None], kind: str
) -> None:
    table = f"edge_{kind}"
    shop.sql.execute(f"create table {table} (at {kind}, v int); set time zone 'UTC'")
    times = ["11:58:59.999999"] * 2 + ["11:59:00"] * 3 + ["11:59:00.000001"] * 4 + ["12:00"] * 5
    for number, time in enumerate(times):
        shop.sql.execute(f"insert into {table} values ('2026-01-01 {time}', {number})")

    def load() -> int:
        return shop.load(table, track="timestamp", column="at", lag_s=60, tasks=2).counts.rows

    clock("2026-01-01 11:59:59.999998Z")
    assert load() == 0
    clock("2026-01-01 12:00:00Z")
    assert (load(), load()) == (5, 0)
    (position,) = shop.lake.catalog.table_state(f"shop.{table}").positions.values()  # type: ignore[union-attr]
    assert position == {"column": "at", "value": "2026-01-01T11:59:00.000000" + ("Z" if kind == "timestamptz" else "")}
    clock("2026-01-01 12:00:00.000001Z")
    assert (load(), load()) == (4, 0)
    clock("2026-01-01 12:01:00Z")
    assert (load(), load()) == (5, 0)
    assert shop.rows(f"select count(*), count(distinct v) from shop.{table}") == [(14, 14)]


def test_changed_rows_replace_what_they_were(shop: Shop) -> None:
    shop.sql.execute("create table stock (sku text primary key, left_over int, changed timestamptz default now())")
    shop.sql.execute("insert into stock values ('a', 1, now()), ('b', 2, now()), ('nowhen', 0, null)")

    def load() -> LoadReport:
        how = {"mode": "upsert", "key": ("sku",), "newest_by": "changed"}
        return shop.load("stock", track="timestamp", column="changed", lag_s=0, how=how)

    assert load().news == "2 rows of public.stock (1 without changed stay out)"
    shop.sql.execute("update stock set left_over = 7, changed = now() where sku = 'b'")
    load()
    assert shop.rows("select sku, left_over from shop.stock order by sku") == [("a", 1), ("b", 7)]


def test_a_whole_table_takes_the_place_of_the_last_unless_nothing_changed(shop: Shop) -> None:
    shop.sql.execute("create table whole (v text); insert into whole values ('a'), ('b'), ('b')")
    assert shop.load("whole", track="whole").counts.rows == 3
    assert shop.load("whole", track="whole").load_id is None
    # There and back: the rows look the same, and yet a load in between may have seen something else.
    shop.sql.execute("update whole set v = 'c' where v = 'a'; update whole set v = 'a' where v = 'c'")
    assert shop.load("whole", track="whole").load_id is not None
    shop.sql.execute("delete from whole where v = 'a'")
    shop.load("whole", track="whole")
    assert shop.rows("select v from shop.whole") == [("b",), ("b",)]
    shop.sql.execute("alter table whole add w int default 7")
    shop.load("whole", track="whole")
    assert shop.rows("select v, w from shop.whole") == [("b", 7), ("b", 7)]
    assert shop.snapshots("whole") == 4
    shop.sql.execute("create table other (id serial primary key)")
    with pytest.raises(LakeUsageError, match="also holds what was loaded from"):
        shop.load("other", into="shop.whole", track="whole")


def test_the_password_is_nowhere_to_be_found(shop: Shop, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    shop.sql.execute("create table secret (id serial primary key); insert into secret default values")
    shop.load("secret", password=shop.server.password, user="headwater")
    with pytest.raises(LakeError, match="password authentication failed") as wrong:
        shop.lake.load(shop.server.jdbc(shop.database, "secret").replace(shop.server.password, "hunter2"), into="a.b")
    with pytest.raises(LakeUsageError, match="is no source") as misspelled:
        shop.lake.load("jbdc" + shop.server.jdbc(shop.database, "secret")[4:], into="a.b")
    location = Path(shop.lake.catalog.table_state("shop.secret").location.removeprefix("file://"))  # type: ignore[union-attr]
    kept = [path.read_bytes() for path in location.parent.parent.rglob("*") if path.is_file()]
    kept += [spark_log().read_bytes(), "".join(capfd.readouterr()).encode()]
    kept += [f"{error.value!s} {error.value!r} {error.value.__cause__!s}".encode() for error in (wrong, misspelled)]
    assert len(kept) > 5
    assert not [part for part in kept if shop.server.password.encode() in part or b"hunter2" in part]


def test_what_cannot_be_tracked_is_said(shop: Shop) -> None:
    shop.sql.execute("create table keyless (v text); create view seen as select 1 as id")
    shop.sql.execute("create table cached (id serial primary key); alter sequence cached_id_seq cache 20")
    for table, options, words in (
        ("keyless", {}, "no primary key of one integer column"),
        ("keyless", {"track": "id", "column": "w"}, "no column 'w'; it has v"),
        ("keyless", {"track": "timestamp", "column": "v"}, "is no timestamp"),
        ("cached", {}, "hands 20 numbers to a session at once"),
        ("seen", {"column": "id"}, "a view"),
        ("absent", {}, "is not there"),
    ):
        with pytest.raises(LakeUsageError, match=words):
            shop.load(table, into="shop.never", **options)
    shop.sql.execute("create table switched (id serial primary key, n int); insert into switched values (1, 1)")
    shop.load("switched")
    with pytest.raises(LakeUsageError, match="was loaded by id so far, not by n"):
        shop.load("switched", column="n")
