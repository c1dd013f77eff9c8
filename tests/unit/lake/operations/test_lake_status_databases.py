"""How far a table of a database is behind: told at once, by the database, whoever is writing to it."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headwater.cli.lake_status import lag_words, status_json
from headwater.lake import Lake
from headwater.lake.operations import status
from headwater.lake.operations.status import Lag, SourceStatus, StatusQuestion, lake_status
from headwater.lake.sources.jdbc import JdbcSource, parse_jdbc
from headwater.lake.sources.reach import Reach
from loads_without_spark import load_database
from peers.postgresql import HOST, USER, Postgresql
from peers.postgresql import postgresql as postgresql

TABLE = "shop.orders"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shop:
    """A table of a database that was loaded up to a position."""

    server: Postgresql
    database: str
    sql: psycopg.Connection[tuple[Any, ...]]
    lake: Lake

    def source(self, **options: Any) -> JdbcSource:
        return parse_jdbc(self.server.jdbc(self.database, "orders").removeprefix("jdbc:"), **options)

    def loaded(self, after: dict[str, str], **options: Any) -> None:
        load_database(self.lake, TABLE, self.source().id, after, **Reach(options=options).details)

    def status(self, **options: str) -> SourceStatus:
        (found,) = lake_status(self.lake.catalog, TABLE, StatusQuestion(options=options))
        (source,) = found.sources
        return source

    @property
    def lag(self) -> Lag:
        return self.status().lag


@pytest.fixture
def shop(postgresql: Postgresql, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    monkeypatch.setattr("headwater.lake.lake.start_spark", None)  # whoever starts it now fails
    monkeypatch.setenv("PGUSER", USER)
    monkeypatch.setenv("PGPASSWORD", postgresql.password)
    database = postgresql.new_database()
    with postgresql.connect(database) as connection, Lake(tmp_path / "lake") as lake:
        connection.execute("create table orders (id serial primary key, at timestamptz)")
        connection.execute("insert into orders (at) select now() - interval '1 hour' from generate_series(1, 5)")
        yield Shop(server=postgresql, database=database, sql=connection, lake=lake)


def test_by_its_number_a_table_is_behind_by_rows(shop: Shop) -> None:
    shop.loaded({"column": "id", "value": "2"}, track="id")
    found = shop.status()
    assert (found.lag.rows, found.lag.seconds, found.lag.words) == (3, None, None)
    assert lag_words(found) == 'at {"column":"id","value":"2"}, 3 rows behind'
    shop.sql.execute("delete from orders where id > 2")
    assert shop.lag.rows == 0


def test_by_its_time_a_table_is_behind_by_rows_and_by_the_age_of_the_first(shop: Shop) -> None:
    shop.sql.execute("insert into orders (at) values (now() - interval '2 days'), (now() - interval '5 min'), (null)")
    shop.sql.execute("insert into orders (at) values (now() - interval '30 s')")  # within `lag_s`: not yet for a load
    ((yesterday,),) = shop.sql.execute("select to_char(now() - interval '1 day', 'YYYY-MM-DD')").fetchall()
    shop.loaded({"column": "at", "value": f"{yesterday}T00:00:00Z"}, track="timestamp", column="at")
    found = shop.status()
    assert found.lag.rows == 6
    assert found.lag.seconds is not None
    assert 3600 <= found.lag.seconds < 3700
    assert found.lag.words == "1 without at stay out"
    assert lag_words(found).endswith(", 6 rows behind, the first of 60 min ago, 1 without at stay out")
    ((now,),) = shop.sql.execute("select to_char(now() at time zone 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS')").fetchall()
    shop.loaded({"column": "at", "value": f"{now}Z"}, track="timestamp", column="at")
    assert (shop.lag.rows, shop.lag.seconds) == (0, 0.0)


def test_a_table_that_is_loaded_whole_has_changed_or_not(shop: Shop) -> None:
    found = shop.source(track="whole").peek(None, within_s=10)
    assert found is not None
    load_database(shop.lake, TABLE, shop.source().id, found.after, mode="replace", options={"track": "whole"})
    assert (shop.lag.changed, shop.lag.rows) == (False, None)
    assert lag_words(shop.status()).endswith(", unchanged since")
    shop.sql.execute("update orders set at = null where id = 1")
    assert shop.lag.changed is True
    assert lag_words(shop.status()).endswith(", changed since")


def test_machines_are_told_the_same(shop: Shop) -> None:
    shop.loaded({"column": "id", "value": "2"}, track="id")
    (found,) = lake_status(shop.lake.catalog, TABLE)
    lag = status_json(found)["sources"][0]["lag"]
    assert (lag["rows"], lag["changed"], lag["seconds"], lag["records"], lag["files"]) == (3, None, None, None, None)


def test_open_transactions_are_not_waited_for(shop: Shop) -> None:
    shop.loaded({"column": "id", "value": "2"}, track="id", wait_s=300)
    with shop.server.connect(shop.database, autocommit=False) as writer:
        writer.execute("insert into orders default values")
        began = time.monotonic()
        assert shop.lag.rows == 3
        assert time.monotonic() - began < 5


@contextmanager
def locked(shop: Shop) -> Iterator[None]:
    with shop.server.connect(shop.database, autocommit=False) as owner:
        owner.execute("lock table orders in access exclusive mode")
        yield


def test_a_database_that_does_not_answer_soon_is_told(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status, "_DATABASE_ANSWERS_WITHIN_S", 0.3)
    shop.loaded({"column": "id", "value": "2"}, track="id")
    with locked(shop):
        lag = shop.lag
    assert lag.rows is None
    assert lag.words is not None
    assert lag.words.startswith(
        f"not known: jdbc:postgresql://{HOST}:{shop.server.port}/{shop.database} gave no answer"
    )


def test_a_database_that_cannot_be_reached_costs_one_sentence(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    source = f"jdbc:postgresql://{HOST}:1/shop#public.orders"
    load_database(shop.lake, TABLE, source, {"column": "id", "value": "2"})
    assert shop.lag.rows is None
    assert str(shop.lag.words).startswith(f"not known: jdbc:postgresql://{HOST}:1/shop could not be asked: ")
    assert "refused" in str(shop.lag.words)


def test_the_password_comes_from_elsewhere_for_it_is_not_remembered(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.loaded({"column": "id", "value": "2"}, track="id")
    monkeypatch.delenv("PGPASSWORD")
    assert "no password supplied. Say it in the URL, as the option password" in str(shop.lag.words)
    assert shop.status(password=shop.server.password).lag.rows == 3
    assert "hunter2" not in str(shop.status(password="hunter2").lag.words)


def test_what_a_url_demands_is_demanded_again(shop: Shop) -> None:
    shop.loaded({"column": "id", "value": "2"}, track="id", sslmode="require")
    assert "server does not support SSL, but SSL was required" in str(shop.lag.words)
    assert shop.status(sslmode="prefer").lag.rows == 3
