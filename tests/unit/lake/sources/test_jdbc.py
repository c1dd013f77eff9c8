"""How a table of a database is named, how it is tracked, and what is never told of it."""

import dataclasses

import pytest

from headwater.lake.errors import LakeUsageError
from headwater.lake.sources.database_address import parse_database_table, without_secrets
from headwater.lake.sources.database_columns import DatabaseColumn, select_list
from headwater.lake.sources.database_look import cuts
from headwater.lake.sources.database_parameters import driver_parameters, libpq_parameters
from headwater.lake.sources.jdbc import parse_jdbc
from headwater.lake.sources.parsing import parse_source
from headwater.lake.sources.tracked_values import TrackedValues

SECRET = "s3cr#t?&@:/%"
ENCODED = "s3cr%23t%3F%26%40%3A%2F%25"


def column(name: str = "id", type_: str = "int8", **more: int | None) -> DatabaseColumn:
    plain = DatabaseColumn(name=name, type=type_, modifier=-1, dimensions=0, nullable=False, cache=None)
    return dataclasses.replace(plain, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("postgresql://db:6543/shop#sales.orders", "jdbc:postgresql://db:6543/shop#sales.orders"),
        ("postgresql://DB/shop#orders", "jdbc:postgresql://db:5432/shop#public.orders"),
        ("postgresql:///shop#orders", "jdbc:postgresql://localhost:5432/shop#public.orders"),
        ("postgresql://a,b:2/shop?sslmode=require#orders", "jdbc:postgresql://a:5432,b:2/shop#public.orders"),
        ("postgresql://[::1]/shop#orders", "jdbc:postgresql://[::1]:5432/shop#public.orders"),
        ('postgresql://db/shop#"my.schema".Orders', 'jdbc:postgresql://db:5432/shop#"my.schema".Orders'),
        ('postgresql://db/shop#"a ""b""".c-d', 'jdbc:postgresql://db:5432/shop#"a ""b""".c-d'),
    ],
)
def test_one_table_has_one_name(text: str, name: str) -> None:
    assert parse_source(f"jdbc:{text}").id == name
    assert str(parse_database_table(name.removeprefix("jdbc:"))) == name


@pytest.mark.parametrize(
    "text",
    [
        f"postgresql://db/shop?user=me&password={ENCODED}&sslmode=require#orders",
        f"postgresql://me:{ENCODED}@db/shop?sslmode=require#orders",
    ],
)
def test_a_password_reaches_the_driver_and_nobody_else(text: str) -> None:
    source = parse_jdbc(text)
    assert libpq_parameters(source.table.parameters) == {"user": "me", "password": SECRET, "sslmode": "require"}
    assert source.table.url == "jdbc:postgresql://db:5432/shop"
    assert source.id == "jdbc:postgresql://db:5432/shop#public.orders"
    shown = f"{source!r} {source.table!r} {source.table}"
    assert SECRET not in shown
    assert ENCODED not in shown


def test_a_password_may_come_from_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGUSER", "env-user")
    monkeypatch.setenv("PGPASSWORD", "env-secret")
    plain = "postgresql://db/shop#orders"
    assert parse_jdbc(plain).table.parameters == {"user": "env-user", "password": "env-secret"}
    told = parse_jdbc("postgresql://db/shop?user=u#orders", password="p")
    assert told.table.parameters == {"user": "u", "password": "p"}


@pytest.mark.parametrize(
    "text",
    [
        f"jdbc:postgresql://db/shop?password={SECRET}",
        f"jdbc:postgresql://me:{SECRET}@db#orders",
        f"jdbc:postgresql://me:{SECRET}/shop#orders",
        f"jdbc:mysql://db/shop?password={SECRET}#orders",
        f"jdbc:postgresql://db/shop?password={SECRET}#a.b.c",
        f"jbdc:postgresql://me:{SECRET}@db/shop?password={SECRET}#orders",
    ],
)
def test_what_is_no_table_is_told_without_its_secrets(text: str) -> None:
    with pytest.raises(LakeUsageError, match="write ") as error:
        parse_source(text)
    assert "s3cr" not in str(error.value)
    assert "s3cr" not in without_secrets(text)


def test_options_that_make_no_sense_are_refused() -> None:
    table = "postgresql://db/shop#orders"
    for options, words in (
        ({"track": "xmin"}, "track 'xmin' .* is unknown; take one of id, timestamp, whole"),
        ({"track": "timestamp"}, "name the column"),
        ({"lag_s": -1}, "is no time: write 30s"),
        ({"tasks": "many"}, "'many' is no number"),
        ({"tasks": 0}, "a number from 1 on"),
        ({"colum": "id"}, "no option 'colum'.* they have column, "),
    ):
        with pytest.raises(LakeUsageError, match=words):
            parse_jdbc(table, **options)


def test_options_are_taken_as_people_write_them() -> None:
    source = parse_jdbc("postgresql://db/shop#orders", lag_s="5m", wait_s="7", tasks="4")
    assert (source.lag_s, source.wait_s, source.tasks) == (300.0, 7.0, 4)


@pytest.mark.parametrize(
    ("parameters", "told"),
    [
        ("sslmode=verify-ca&sslrootcert=/ca.pem", {"sslmode": "verify-ca", "sslrootcert": "/ca.pem"}),
        ("ssl=true", {"sslmode": "verify-full"}),
        ("ssl", {"sslmode": "verify-full"}),
        ("ssl=true&sslmode=require", {"sslmode": "require"}),
        ("ssl=false", {}),
        ("ApplicationName=me&connectTimeout=3", {"application_name": "me", "connect_timeout": "3"}),
        ("targetServerType=preferSecondary", {"target_session_attrs": "prefer-standby"}),
        ("loadBalanceHosts=true&tcpKeepAlive=false", {"load_balance_hosts": "random", "keepalives": "0"}),
        ("currentSchema=a%20b,c", {"options": "-c search_path=a\\ b,c"}),
        (
            "options=-c%20statement_timeout%3D9&currentSchema=c",
            {"options": "-c statement_timeout=9 -c search_path=c"},
        ),
        ("prepareThreshold=0&socketTimeout=7", {}),
    ],
)
def test_parameters_of_the_driver_mean_the_same_to_who_asks(parameters: str, told: dict[str, str]) -> None:
    assert libpq_parameters(parse_jdbc(f"postgresql://db/shop?{parameters}#orders").table.parameters) == told


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ("sslfactory=org.postgresql.ssl.NonValidatingFactory", "'sslfactory' is no parameter"),
        ("PGHOST=elsewhere", "'PGHOST' is no parameter"),
        ("sslMode=require", "did you mean sslmode"),
        ("targetServerType=preferPrimary", "targetServerType=preferPrimary .* take one of any, primary"),
        ("gssEncMode=allow", "take disable, prefer or require"),
        ("ssl=maybe", "take one of true, false"),
    ],
)
def test_parameters_that_cannot_mean_the_same_to_both_are_refused(parameters: str, words: str) -> None:
    with pytest.raises(LakeUsageError, match=words):
        parse_jdbc(f"postgresql://db/shop?password={ENCODED}&{parameters}#orders")


def test_parameters_may_be_options_too() -> None:
    source = parse_jdbc("postgresql://db/shop?sslmode=prefer&ApplicationName=me#orders", sslmode="verify-full")
    assert source.table.parameters == {"sslmode": "verify-full", "ApplicationName": "me"}


def test_what_the_environment_demands_is_told_to_the_driver_or_refused() -> None:
    found = {"sslmode": "verify-full", "krbsrvname": "pg", "user": "me", "host": "db", "application_name": "x"}
    assert driver_parameters({"prepareThreshold": "0", "currentSchema": "s"}, found) == {
        "sslmode": "verify-full",
        "kerberosServerName": "pg",
        "user": "me",
        "ApplicationName": "x",
        "prepareThreshold": "0",
    }
    with pytest.raises(LakeUsageError, match="says require_auth, sslcrl, and the driver"):
        driver_parameters({}, {**found, "sslcrl": "/revoked.pem", "require_auth": "scram-sha-256"})


@pytest.mark.parametrize(
    ("type_", "spelled"),
    [
        ("int4", "-7"),
        ("int8", "9223372036854775807"),
        ("timestamptz", "2026-01-31T23:59:59.000001Z"),
        ("timestamp", "1969-12-31T23:59:59.999999"),
    ],
)
def test_a_position_is_spelled_exactly(type_: str, spelled: str) -> None:
    values = TrackedValues(column=column(type_=type_))
    assert values.spelled(values.parsed(spelled)) == spelled
    assert values.sql(values.parsed(spelled)) == f"{type_} '{spelled}'"


def test_a_position_that_a_person_wrote_is_read_kindly_or_refused() -> None:
    times = TrackedValues(column=column(type_="timestamptz"))
    assert times.spelled(times.parsed("2026-01-31")) == "2026-01-31T00:00:00.000000Z"
    assert times.spelled(times.parsed("2026-01-31T01:00+01:00")) == "2026-01-31T00:00:00.000000Z"
    for type_ in ("int8", "timestamp"):
        with pytest.raises(LakeUsageError, match=f"is no {type_}"):
            TrackedValues(column=column(type_=type_)).parsed("1'; drop table orders; --")


def test_pieces_cover_everything_once() -> None:
    for first, last, pieces in ((0, 9, 3), (-5, -5, 4), (1, 2**63 - 1, 16), (3, 5, 10)):
        edges = [first - 1, *cuts(first, last, pieces), last]
        assert edges == sorted(set(edges))
        assert len(edges) <= pieces + 1
    assert cuts(0, 90, 3) == [30, 60]


def test_names_cannot_break_out_of_a_statement() -> None:
    selected = select_list([column('a"b', "date"), column("it's", "numeric")])
    assert 't."a""b"' in selected
    assert "'[\"a\\\"b\"]', 'it''s'" in selected
