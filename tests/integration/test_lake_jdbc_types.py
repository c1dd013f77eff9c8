"""Every type of PostgreSQL finds its place in a lake's table, exactly; what has none is kept as text."""

import math
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from headwater.lake import Lake, SparkSettings
from peers.postgresql import Postgresql
from peers.postgresql import postgresql as postgresql
from peers.spark import QUICK_START, end_java, pyspark_leaves_sockets, running_lake

pytestmark = pyspark_leaves_sockets

at = datetime.fromisoformat
ODD = '"my.schema"."Order ""Lines"""'

# The type, and values with what they become; where that is a text in a list, it is null and the text is rescued.
SCALARS: dict[str, list[tuple[str, Any]]] = {
    "boolean": [("true", True), ("false", False)],
    "smallint": [("-32768", -32768)],
    "int": [("2147483647", 2147483647)],
    "bigint": [("-9223372036854775808", -(2**63))],
    "real": [("1.5", 1.5), ("-Infinity", -math.inf)],
    "double precision": [("0.1", 0.1), ("1e308", 1e308), ("Infinity", math.inf)],
    "numeric(10,2)": [("12345678.90", Decimal("12345678.90")), ("NaN", ["NaN"])],
    "numeric(38,10)": [
        ("-1234567890123456789012345678.0123456789", Decimal("-1234567890123456789012345678.0123456789"))
    ],
    "numeric": [
        ("0.000000000000000001", Decimal("0.000000000000000001")),
        ("-99999999999999999999.5", Decimal("-99999999999999999999.5")),
        ("0.0000000000000000001", ["0.0000000000000000001"]),
        ("100000000000000000000", ["100000000000000000000"]),
        ("NaN", ["NaN"]),
        ("Infinity", ["Infinity"]),
    ],
    "numeric(3,-2)": [("12300", Decimal("12300"))],
    "numeric(2,4)": [("0.0099", Decimal("0.0099"))],
    "numeric(50,40)": [("1.5", Decimal("1.5")), ("1e-40", ["0." + "0" * 39 + "1"])],
    "text": [("Grüße, \"x\" \\ 'y'\n", "Grüße, \"x\" \\ 'y'\n"), ("", "")],
    "varchar(3)": [("abc", "abc")],
    "bytea": [("\\x00ff", b"\x00\xff")],
    "date": [
        ("2024-02-29", date(2024, 2, 29)),
        ("0001-01-01", date(1, 1, 1)),
        ("1582-10-10", date(1582, 10, 10)),
        ("infinity", ["infinity"]),
        ("10000-01-01", ["10000-01-01"]),
        ("0044-03-15 BC", ["0044-03-15 BC"]),
    ],
    "timestamp": [
        # An hour that Berlin's clocks skip, and a time before the calendar's reform.
        ("2024-03-31 02:30:00.123456", at("2024-03-31 02:30:00.123456")),
        ("1500-02-28 00:00:00", at("1500-02-28 00:00:00")),
        ("9999-12-31 23:59:59.999999", at("9999-12-31 23:59:59.999999")),
        ("-infinity", ["-infinity"]),
        ("294276-12-31 23:59:59.999999", ["294276-12-31 23:59:59.999999"]),
    ],
    "timestamptz": [
        ("2024-03-31 02:30:00.123456+02", datetime(2024, 3, 31, 0, 30, 0, 123456, tzinfo=UTC)),
        ("infinity", ["infinity"]),
    ],
    "time": [("12:30:00.5", "12:30:00.5")],
    "timetz": [("12:30:00+02", "12:30:00+02")],
    "interval": [("1 day 02:00", "1 day 02:00:00")],
    "uuid": [("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11")],
    "jsonb": [('{"b": [1, null], "a": "ü"}', '{"a": "ü", "b": [1, null]}')],
    "json": [('{"b":1,  "b":2}', '{"b":1,  "b":2}')],
    "inet": [("10.0.0.1/8", "10.0.0.1/8")],
    "mood": [("happy", "happy")],
    "price": [("9.99", Decimal("9.99"))],
    "int4range": [("[1,5)", "[1,5)")],
    "int[]": [("{1,NULL,3}", [[1, None, 3]]), ("{}", [[]]), ("{{1,2},{3,4}}", ["{{1,2},{3,4}}"])],
    "bigint[]": [("{9223372036854775807}", [[2**63 - 1]])],
    "real[]": [("{1.5,-Infinity}", [[1.5, -math.inf]])],
    "text[]": [('{"a,b",NULL,"ü\\"",""}', [["a,b", None, 'ü"', ""]])],
    "boolean[]": [("{t,f}", [[True, False]])],
    "numeric(5,2)[]": [("{1.25,NULL}", [[Decimal("1.25"), None]]), ("{1.25,NaN}", ["{1.25,NaN}"])],
    "date[]": [("{2024-02-29,NULL}", [[date(2024, 2, 29), None]]), ("{infinity}", ["{infinity}"])],
    "timestamptz[]": [('{"2024-01-01 00:00:00.000001+00"}', [[datetime(2024, 1, 1, 0, 0, 0, 1, tzinfo=UTC)]])],
    "timestamp[]": [('{"2024-03-31 02:30:00"}', [[at("2024-03-31 02:30:00")]])],
    "bytea[]": [('{"\\\\x00ff",NULL}', [[b"\x00\xff", None]])],
    "uuid[]": [("{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}", [["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"]])],
    "mood[]": [("{happy}", [["happy"]])],
    "int[][]": [("{{1,2},{3,4}}", "{{1,2},{3,4}}")],
}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """One whose Java lives in a zone with hours that there are twice, or not at all."""
    java = "spark.driver.extraJavaOptions"
    conf = {**QUICK_START, java: f"{QUICK_START[java]} -Duser.timezone=Europe/Berlin"}
    end_java()
    with running_lake(tmp_path_factory.mktemp("lake"), SparkSettings(master="local[2]", conf=conf)) as lake:
        yield lake
    end_java()


@pytest.fixture(scope="module")
def database(postgresql: Postgresql) -> str:
    database = postgresql.new_database()
    with postgresql.connect(database) as connection:
        connection.execute("create type mood as enum ('happy', 'sad'); create domain price as numeric(8,2)")
    return database


def test_every_value_arrives_or_is_kept_as_text(lake: Lake, postgresql: Postgresql, database: str) -> None:
    cases = [(place, value, kept) for place, values in enumerate(SCALARS.values()) for value, kept in values]
    with postgresql.connect(database) as connection:
        columns = ", ".join(f"c{place} {type_}" for place, type_ in enumerate(SCALARS))
        connection.execute(f"create table types (id int primary key, {columns})")
        for number, (place, value, _) in enumerate(cases):
            connection.execute(f"insert into types (id, c{place}) values (%s, %s)", (number, value))
    report = lake.load(postgresql.jdbc(database, "types"), into="t.types")
    assert report.counts.rows == len(cases)
    loaded = lake.sql("select * from t.types order by id").to_pylist()
    types = list(SCALARS)
    for (place, value, kept), row in zip(cases, loaded, strict=True):
        found, rescued = row[f"c{place}"], dict(row["_rescued"] or {})
        if isinstance(kept, list) and isinstance(kept[0], str):
            assert (found, rescued) == (None, {f"c{place}": kept[0]}), (types[place], value)
        else:
            wanted = kept[0] if isinstance(kept, list) else kept
            assert (found, rescued) == (wanted, {}), (types[place], value)


def test_nan_of_a_float_is_a_value(lake: Lake, postgresql: Postgresql, database: str) -> None:
    with postgresql.connect(database) as connection:
        connection.execute("create table nan (id serial primary key, v float8, a float8[])")
        connection.execute("insert into nan (v, a) values ('NaN', '{NaN,-Infinity}')")
    lake.load(postgresql.jdbc(database, "nan"), into="t.nan")
    (row,) = lake.sql("select v, a, _rescued from t.nan").to_pylist()
    assert [math.isnan(row["v"]), math.isnan(row["a"][0]), row["a"][1], row["_rescued"]] == [
        True,
        True,
        -math.inf,
        None,
    ]


def test_names_are_nobodys_problem(lake: Lake, postgresql: Postgresql, database: str) -> None:
    columns = ('"the id" int primary key', '"a.b" date', '"q""uo\'te" int', '"`" int', '"Same" int', "same int")
    with postgresql.connect(database) as connection:
        connection.execute('create schema "my.schema"')
        connection.execute(f'create table {ODD} ({", ".join(columns)}, _rescued text, "drop" timestamp)')
        connection.execute(f"insert into {ODD} values (1, 'infinity', 2, 3, 4, 5, 'mine', '2024-01-01')")
    lake.load(postgresql.jdbc(database, ODD), into="t.names")
    (row,) = lake.sql("select * from t.names").to_pylist()
    rescued = dict(row.pop("_rescued"))
    assert row == {
        "the id": 1,
        "a.b": None,
        "q\"uo'te": 2,
        "`": 3,
        "Same": 4,
        "drop": at("2024-01-01 00:00:00"),
        "_corrupt_record": None,
    }
    assert rescued == {'["a.b"]': "infinity", "same": "5", "_rescued": "mine"}


def test_a_table_that_changes_its_columns_is_loaded_on(lake: Lake, postgresql: Postgresql, database: str) -> None:
    with postgresql.connect(database) as connection:
        connection.execute("create table changing (id serial primary key, n int, gone text, kind int)")
        connection.execute("insert into changing (n, gone, kind) values (1, 'x', 5)")
        lake.load(postgresql.jdbc(database, "changing"), into="t.changing")
        connection.execute("alter table changing alter n type bigint, drop gone, add fresh jsonb")
        connection.execute("alter table changing alter kind type text")
        connection.execute("""insert into changing (n, kind, fresh) values (5000000000, 'six', '{"a": 1}')""")
        lake.load(postgresql.jdbc(database, "changing"), into="t.changing")
    assert lake.sql("select id, n, gone, kind, fresh, _rescued from t.changing order by id").to_pylist() == [
        {"id": 1, "n": 1, "gone": "x", "kind": 5, "fresh": None, "_rescued": None},
        {"id": 2, "n": 5000000000, "gone": None, "kind": None, "fresh": '{"a": 1}', "_rescued": [("kind", "six")]},
    ]
