"""Tables of a database become loads that know what is new, as far as the database tells."""

from pathlib import Path

import pytest

from headwater.lake import LakeError, LakeUsageError
from headwater.lake.crawling.databases import crawl_database
from headwater.lake.crawling.proposals import Crawl, Proposal, lake_toml
from headwater.lake.lake_file import parse_lake_file
from headwater.lake.sources.parsing import parse_source
from peers.postgresql import Postgresql
from peers.postgresql import postgresql as postgresql

TABLES = """
    create table orders (id bigserial primary key, created_at timestamptz not null, total numeric(10, 2));
    create table customers (id int primary key, name text, updated_at timestamptz not null);
    create table lines (order_id int, line int, at timestamptz, primary key (order_id, line));
    create table notes (words text);
    create table parts (id int generated always as identity, day date not null, primary key (id, day))
        partition by range (day);
    create table parts_2026 partition of parts for values from ('2026-01-01') to ('2027-01-01');
    create schema "odd.one";
    create table "odd.one"."My Table" (id int generated always as identity primary key);
    create role stranger login password 'stranger';
    grant select on orders to stranger;
"""


@pytest.fixture(scope="module")
def address(postgresql: Postgresql) -> str:
    database = postgresql.new_database()
    with postgresql.connect(database) as connection:
        connection.execute(TABLES)
    return postgresql.jdbc(database, "").removesuffix("#")


@pytest.fixture(scope="module")
def crawl(address: str) -> Crawl:
    return crawl_database(address)


@pytest.fixture
def found(crawl: Crawl) -> dict[str, Proposal]:
    return {each.into.partition(".")[2]: each for each in crawl.proposals}


def test_a_counted_key_tells_what_is_new(found: dict[str, Proposal]) -> None:
    assert (found["orders"].mode, dict(found["orders"].options)) == ("append", {"track": "id"})
    assert found["orders"].event_time == "created_at"
    assert dict(found["odd_one_my_table"].options) == {"track": "id"}


def test_a_time_of_the_last_change_and_a_key_make_an_upsert(found: dict[str, Proposal]) -> None:
    customers = found["customers"]
    assert (customers.mode, customers.key, customers.newest_by) == ("upsert", ("id",), "updated_at")
    assert dict(customers.options) == {"track": "timestamp", "column": "updated_at"}
    assert customers.event_time is None


def test_a_table_that_tells_nothing_is_loaded_whole(found: dict[str, Proposal]) -> None:
    for name in ("lines", "notes", "parts"):
        assert dict(found[name].options) == {"track": "whole"}
    assert found.keys() == {"orders", "customers", "lines", "notes", "parts", "odd_one_my_table"}


def test_no_secret_is_written_and_every_source_can_be_opened(crawl: Crawl, address: str, tmp_path: Path) -> None:
    text = lake_toml(crawl)
    password = address.partition("password=")[2]
    assert password
    assert password not in text
    assert "user=" not in text
    for job in parse_lake_file(text, folder=tmp_path).jobs:
        source = parse_source(job.source, **job.source_options)
        assert source.id == job.source


def test_tables_that_may_not_be_read_are_left_out(address: str) -> None:
    found = crawl_database(address.partition("?")[0] + "?user=stranger&password=stranger")
    assert [each.into.partition(".")[2] for each in found.proposals] == ["orders"]
    assert "public.notes: this user may not read it" in found.left_out


def test_errors_name_the_database_and_no_secret(address: str) -> None:
    with pytest.raises(LakeError, match=r"could not be asked: .*password") as raised:
        crawl_database(address.partition("?")[0] + "?user=stranger&password=wrong")
    assert "wrong" not in str(raised.value)
    with pytest.raises(LakeUsageError, match="is no table of a database"):
        crawl_database("jdbc:mysql://h/db")
