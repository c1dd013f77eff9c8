"""What is new in a database is asked by libpq, from this process: no Spark for it, no connection afterwards."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headwater.lake import Lake, LakeError, LakeUsageError
from headwater.lake.jobs import Job
from headwater.lake.load.request import LoadRequest
from headwater.lake.operations.running import JobResult, Rounds
from headwater.lake.sources.jdbc import JdbcNews, JdbcSource, parse_jdbc
from headwater.lake.sources.parsing import parse_source
from loads_without_spark import load_database
from peers.postgresql import HOST, USER, Postgresql
from peers.postgresql import postgresql as postgresql

HOW: dict[str, dict[str, Any]] = {
    "id": {"track": "id"},
    "timestamp": {"track": "timestamp", "column": "at", "lag_s": 0},
    "whole": {"track": "whole"},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shop:
    """A database with a table of three rows, and a lake whose Spark cannot be started."""

    server: Postgresql
    database: str
    sql: psycopg.Connection[tuple[Any, ...]]
    lake: Lake

    @property
    def url(self) -> str:
        return self.server.jdbc(self.database, "orders")

    def source(self, table: str = "orders", **options: Any) -> JdbcSource:
        return parse_jdbc(self.server.jdbc(self.database, table).removeprefix("jdbc:"), **options)

    def news(self, source: JdbcSource) -> JdbcNews:
        found = source.look(self.lake.catalog, "shop.new", None)
        assert found is not None
        return found

    def load_all(self, table: str, options: dict[str, Any]) -> None:
        """As if a load had been there just now."""
        source = self.source(**options)
        found = source.peek(None, within_s=10)
        assert found is not None
        load_database(self.lake, table, source.id, found.after, options=options)

    def connections(self) -> int:
        """Of the lake, once those that were closed are gone."""
        deadline = time.monotonic() + 5
        while True:
            ((count,),) = self.sql.execute(
                "select count(*) from pg_stat_activity where application_name = 'headwater lake'"
            ).fetchall()
            if not count or time.monotonic() > deadline:
                return int(count)
            time.sleep(0.02)


@pytest.fixture
def shop(postgresql: Postgresql, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    monkeypatch.setattr("headwater.lake.lake.start_spark", None)  # whoever starts it now fails
    database = postgresql.new_database()
    with postgresql.connect(database) as connection, Lake(tmp_path / "lake") as lake:
        connection.execute("create table orders (id serial primary key, at timestamptz default now())")
        connection.execute("insert into orders select from generate_series(1, 3)")
        yield Shop(server=postgresql, database=database, sql=connection, lake=lake)


@pytest.mark.parametrize("track", HOW)
def test_nothing_new_is_told_without_spark_and_without_a_snapshot(shop: Shop, track: str) -> None:
    shop.load_all("shop.orders", HOW[track])
    before = shop.lake.catalog.table_state("shop.orders")
    report = shop.lake.load(shop.url, into="shop.orders", source_options=HOW[track])
    assert (report.load_id, report.news) == (None, "nothing new")
    assert shop.lake.catalog.table_state("shop.orders") == before
    assert shop.connections() == 0


def test_a_plan_needs_no_spark_for_the_database_says_its_types(shop: Shop) -> None:
    report = shop.lake.load(shop.url, into="shop.planned", plan_only=True)
    assert report.news == "3 rows of public.orders"
    assert report.plan is not None
    assert [(field.name, str(field.type)) for field in report.plan.schema] == [
        ("id", "int32"),
        ("at", "timestamp[us, tz=UTC]"),
    ]
    assert shop.lake.catalog.table_state("shop.planned") is None


def test_rounds_over_an_idle_database_start_no_spark_and_hold_no_connection(shop: Shop) -> None:
    for track, options in HOW.items():
        shop.load_all(f"idle.{track}", options)
    jobs = [
        Job(source=shop.url, request=LoadRequest(table=f"idle.{track}"), source_options=options)
        for track, options in HOW.items()
    ]
    told: list[JobResult] = []
    between: list[int] = []

    def wait(seconds: float) -> bool:
        between.append(shop.connections())
        return len(between) > 9

    Rounds(jobs=jobs, load=shop.lake.load_job, every_s=0, wait=wait, tell=told.append).run()
    assert (told, set(between)) == ([], {0})


def test_a_look_that_fails_leaves_no_connection(shop: Shop) -> None:
    with pytest.raises(LakeUsageError, match="has no column 'w'"):
        shop.source(column="w").look(shop.lake.catalog, "shop.never", None)
    assert shop.connections() == 0


def test_the_server_that_the_url_names_is_asked_whatever_the_environment_says(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGHOSTADDR", "127.0.0.2")
    monkeypatch.setenv("PGPORT", "1")
    assert shop.news(shop.source()).words == "3 rows of public.orders"


def test_what_cannot_be_seen_as_a_table_is_tracked_by_time(shop: Shop) -> None:
    shop.sql.execute("create view seen as select * from orders")
    source = shop.source("seen", track="timestamp", column="at", lag_s=0)
    assert shop.news(source).words == "3 rows of public.seen"


def test_only_reading_is_possible(shop: Shop) -> None:
    shop.sql.execute(
        "create function bump() returns int language sql as "
        "'insert into public.orders default values returning 1';"
        "create view bumping as select id, at, bump() from orders"
    )
    with pytest.raises(LakeError, match=f"/{shop.database} could not be asked: .*read-only transaction"):
        shop.source("bumping", track="whole").peek(None, within_s=10)


def test_pieces_are_decided_when_spark_reads(shop: Shop) -> None:
    shop.sql.execute("insert into orders select from generate_series(4, 200000)")
    news = shop.news(shop.source())
    assert [len(news._pieces(at_once)) for at_once in (1, 2, 64)] == [1, 2, 4]
    assert news._pieces(2) == ["k <= int4 '100000'", "k > int4 '100000' and k <= int4 '200000'"]
    assert len(shop.news(shop.source(tasks=7))._pieces(2)) == 7


def test_the_driver_is_told_whom_libpq_found(shop: Shop, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text(f"{HOST}:{shop.server.port}:{shop.database}:{USER}:{shop.server.password}\n")
    keys.chmod(0o600)
    monkeypatch.setenv("PGUSER", USER)
    monkeypatch.setenv("PGPASSFILE", str(keys))
    monkeypatch.setenv("PGSSLMODE", "allow")
    # Nobody listens at the first one.
    hosts = f"{HOST}:1,{HOST}:{shop.server.port}"
    source = parse_source(f"jdbc:postgresql://{hosts}/{shop.database}?prepareThreshold=0&currentSchema=sales#orders")
    assert isinstance(source, JdbcSource)
    news = shop.news(source)
    told = news.driver
    assert told["url"] == f"jdbc:postgresql://{HOST}:{shop.server.port}/{shop.database}"
    assert (told["user"], told["password"], told["sslmode"]) == (USER, shop.server.password, "allow")
    assert (told["prepareThreshold"], told["options"]) == ("0", "-c search_path=sales")
    assert shop.server.password not in repr(news)
    assert source.id == f"jdbc:postgresql://{hosts}/{shop.database}#public.orders"
    monkeypatch.setenv("PGREQUIREAUTH", "scram-sha-256")
    with pytest.raises(LakeUsageError, match="says require_auth"):
        source.look(shop.lake.catalog, "shop.new", None)


def test_a_database_that_is_away_is_told_in_one_sentence(shop: Shop) -> None:
    source = parse_jdbc(f"postgresql://{HOST}:1/shop?user=me&password=hunter2#orders")
    with pytest.raises(LakeError, match=rf"^jdbc:postgresql://{HOST}:1/shop could not be asked: .*refused") as raised:
        source.look(shop.lake.catalog, "a.b", None)
    assert "hunter2" not in f"{raised.value!s} {raised.value!r} {raised.value.__cause__!s}"
    assert len(str(raised.value).splitlines()) == 1
