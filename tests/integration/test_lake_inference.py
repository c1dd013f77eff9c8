"""Data of any shape, in several loads through the whole job: every value is found again in the table, by every engine.

The schema is the merge of all that was seen, and what a table held at an earlier load can still be read.
"""

import json
from collections.abc import Iterator, Sequence
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from headwater import Admin, LocalBroker, Producer
from headwater.lake import Lake
from headwater.lake.shapes import POLICIES, Policies, plan_schema, shape_of_json
from integration.lake_samples import MONEY, as_csv, as_lines, events, taxi_trips
from peers.spark import lake as lake
from peers.spark import pyspark_leaves_sockets
from unit.lake.shapes.generated_json import any_records, is_kept

pytestmark = pyspark_leaves_sockets

PARTITIONS = 2
RECORDS_OF_LOADS = (5, 60, 200)
"""The first load makes a small table, which does not fit what comes later."""
ORIGIN = ("_key", "_partition_id", "_offset", "_timestamp")
DEFAULT = Policies()
LARGE = 10_000_000

Record = bytes | None
Place = tuple[int, int]
Row = dict[str, Any]


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    with LocalBroker() as broker:
        yield broker


class Topic:
    """A topic and its table: what was sent by partition and offset, and what is in the table there."""

    def __init__(self, lake: Lake, broker: LocalBroker, name: str, **configs: str) -> None:
        self._lake, self._broker, self._name = lake, broker, name
        self.table = f"topics.{name}"
        self.sent: dict[Place, Record] = {}
        with Admin(broker.bootstrap) as admin:
            admin.create_topic(name, partitions=PARTITIONS, configs=configs)

    def load(self, values: Sequence[Record], policies: Policies = DEFAULT, **settings: Any) -> Any:
        """Sends records and loads them."""
        with Producer(self._broker.bootstrap, **settings) as producer:
            for number, value in enumerate(values, len(self.sent)):
                place = number % PARTITIONS, number // PARTITIONS
                self.sent[place] = value
                producer.send(self._name, value, partition=place[0])
        source, bootstrap = f"topic:{self._name}", self._broker.bootstrap
        report = self._lake.load(source, into=self.table, bootstrap=bootstrap, policies=policies)
        assert report.counts.rows == len(values)
        return report

    def read(self, snapshot_id: int | None = None) -> list[Row]:
        """The rows in the order in which they were sent: as Spark reads them, and pyiceberg reads the same."""
        version = "" if snapshot_id is None else f"version as of {snapshot_id}"
        rows = in_order(self._lake.sql(f"select * from {self.table} {version}"))
        by_pyiceberg = in_order(self._lake.iceberg.load_table(self.table).scan(snapshot_id=snapshot_id).to_arrow())
        assert len(rows) == len(by_pyiceberg)
        for row, other in zip(rows, by_pyiceberg, strict=True):
            assert without_empty(row) == without_empty(other)
        return rows

    def assert_all_is_kept(self, policies: Policies = DEFAULT) -> list[Row]:
        """Every value of every record that was sent is in its row."""
        rows = self.read()
        assert [place_of(row) for row in rows] == sorted(self.sent, key=lambda place: (place[1], place[0]))
        for row in rows:
            raw = self.sent[place_of(row)]
            fields = {name: value for name, value in row.items() if name not in ORIGIN}
            assert is_kept(raw, fields, spills=policies.default == "columns"), (raw, row)
        return rows


def place_of(row: Row) -> Place:
    return row["_partition_id"], row["_offset"]


def without_empty(value: Any) -> Any:
    """A value without empty lists: pyiceberg takes null lists of structs for such (iceberg-python issue 3833)."""
    if isinstance(value, dict):
        return {name: without_empty(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [without_empty(each) for each in value] or None
    return value


def in_order(table: pa.Table) -> list[Row]:
    return sorted(table.to_pylist(), key=lambda row: (row["_offset"], row["_partition_id"]))


def generated(count: int, number: int) -> list[Record]:
    """Records from Hypothesis. It does not search for a smaller one when one is lost: a load takes seconds."""
    found: list[Record] = []

    @seed(number)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(any_records)
    def draw(record: Record) -> None:
        found.append(record)

    draw()
    return found


def user_fields(lake: Lake, table: str) -> pa.Schema:
    state = lake.catalog.table_state(table)
    assert state is not None
    return pa.schema([field for field in state.schema if field.name not in (*ORIGIN, "_rescued", "_corrupt_record")])


def answer(lake: Lake, statement: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in lake.sql(statement).to_pylist()]


@pytest.mark.parametrize("policy", POLICIES)
def test_json_of_any_shape_is_found_again_after_each_load(lake: Lake, broker: LocalBroker, policy: Any) -> None:
    policies = Policies(default=policy)
    topic = Topic(lake, broker, f"generated_{policy}")
    schema = None
    seen: dict[int, list[Row]] = {}
    for number, count in enumerate(RECORDS_OF_LOADS):
        batch = generated(count, number)
        schema = plan_schema(shape_of_json(pa.array(batch, pa.binary())), schema, policies).schema
        topic.load(batch, policies)
        rows = topic.assert_all_is_kept(policies)
        assert user_fields(lake, topic.table) == schema
        snapshot = lake.iceberg.load_table(topic.table).current_snapshot()
        assert snapshot is not None
        seen[snapshot.snapshot_id] = rows
    assert [len(rows) for rows in seen.values()] == [5, 65, 265]
    for snapshot_id, rows in seen.items():
        assert topic.read(snapshot_id) == rows


def test_taxi_months_with_other_columns_each_add_up(lake: Lake, tmp_path: Path) -> None:
    random = Random(7)
    months = [list(taxi_trips(random, month, 3000)) for month in (1, 2, 3)]
    names = {name: name for name in months[0][0] if name not in MONEY[-2:]}
    first = dict(names)
    # A charge appears, and columns change their places.
    second = {name: name for name in sorted([*names, "congestion_surcharge", "airport_fee"])}
    # A column is spelled in another way, one is gone, and counts have become decimal fractions.
    third = {name: name.replace("airport", "Airport") for name in reversed(second) if name != "tolls_amount"}
    months[2] = [trip | {"passenger_count": trip["passenger_count"].replace("1", "1.0")} for trip in months[2]]
    loaded = []
    for load in ({0: first, 1: second}, {2: third}):
        for month, columns in load.items():
            (tmp_path / f"trips-{month}.csv").write_text(as_csv(months[month], columns))
            loaded += [{column: trip[column] for column in columns} for trip in months[month]]
        report = lake.load(f"files:{tmp_path}", into="taxi.trips")
        # The spelling that came second is no column: Iceberg knows no case.
        assert (report.counts.rows, report.counts.rescued) == (3000 * len(load), 3000 if 2 in load else 0)
        assert report.counts.corrupt == 0
        assert_trips(lake, loaded)
    fields = {field.name: field.type for field in user_fields(lake, "taxi.trips")}
    assert fields["tpep_pickup_datetime"] == pa.timestamp("us")
    assert (fields["PULocationID"], fields["store_and_fwd_flag"]) == (pa.int64(), pa.string())


def assert_trips(lake: Lake, trips: list[dict[str, str]]) -> None:
    """Sums and counts of the table are those of the trips."""

    def texts(column: str) -> list[str]:
        return [trip[column] for trip in trips if trip.get(column)]

    def cents(column: str) -> str:
        return f"cast(coalesce({column}, 0) * 100 as decimal(38, 2))"

    columns = {name: cents(name) for name in MONEY}
    columns["airport_fee"] += " + " + cents("cast(_rescued['Airport_fee'] as decimal(20, 2))")
    sums = ", ".join(f"sum({column})" for column in columns.values())
    assert answer(lake, f"select {sums} from taxi.trips") == [
        tuple(100 * sum(map(Decimal, texts(name))) for name in MONEY)
    ]
    assert answer(
        lake,
        "select count(*), count(passenger_count), sum(passenger_count), count_if(store_and_fwd_flag = 'Y'), "
        "count(store_and_fwd_flag), count_if(fare_amount < 0), min(tpep_pickup_datetime), "
        "sum(unix_micros(timestamp(tpep_dropoff_datetime)) - unix_micros(timestamp(tpep_pickup_datetime))) "
        "from taxi.trips",
    ) == [
        (
            len(trips),
            len(texts("passenger_count")),
            sum(map(Decimal, texts("passenger_count"))),
            texts("store_and_fwd_flag").count("Y"),
            len(texts("store_and_fwd_flag")),
            sum(fare.startswith("-") and Decimal(fare) < 0 for fare in texts("fare_amount")),
            datetime.fromisoformat(min(texts("tpep_pickup_datetime"))),
            sum(map(_micros, texts("tpep_dropoff_datetime"))) - sum(map(_micros, texts("tpep_pickup_datetime"))),
        )
    ]


def _micros(text: str) -> int:
    return int(datetime.fromisoformat(f"{text}Z").timestamp()) * 1_000_000


def test_events_whose_payload_depends_on_their_type(lake: Lake, tmp_path: Path) -> None:
    random = Random(7)
    first = list(events(random, 0, 1500, ("PushEvent", "IssuesEvent", "WatchEvent")))
    second = list(events(random, 1500, 1500, ("PushEvent", "CreateEvent", "IssuesEvent", "ReleaseEvent")))
    (tmp_path / "a.jsonl").write_text(as_lines(first, escaped=True))
    assert lake.load(f"files:{tmp_path}", into="hub.events").counts.rows == 1500
    assert "release" not in user_fields(lake, "hub.events").field("payload").type.names
    (tmp_path / "b.jsonl").write_text(as_lines(second, escaped=False))
    assert lake.load(f"files:{tmp_path}", into="hub.events").counts.rows == 1500
    everything = first + second
    commits = [commit for event in everything for commit in event["payload"].get("commits", ())]
    labels = [label for event in everything for label in event["payload"].get("issue", {}).get("labels", ())]
    sizes = [event["payload"]["release"]["assets"][0]["size"] for event in second if "release" in event["payload"]]
    assert answer(lake, "select count(*), count(distinct id), count(_rescued), max(created_at) from hub.events") == [
        (3000, 3000, 0, datetime.fromisoformat(everything[-1]["created_at"]))
    ]
    assert answer(
        lake,
        "select count(*), count(distinct c.sha), count_if(c.distinct), count_if(c.author.name = '李雷'), "
        "count(distinct c.message) from (select explode(payload.commits) c from hub.events)",
    ) == [
        (
            len(commits),
            len({commit["sha"] for commit in commits}),
            sum(commit["distinct"] for commit in commits),
            sum(commit["author"]["name"] == "李雷" for commit in commits),
            1,
        )
    ]
    assert answer(
        lake,
        "select sum(size(payload.issue.labels)), count_if(get(payload.issue.labels, 1).name = 'ü 🐛'), "
        "sum(payload.release.assets[0].size), count_if(payload.ref = 'dev'), count(org.id) "
        "from hub.events",
    ) == [
        (
            len(labels),
            sum(label["name"] == "ü 🐛" for label in labels),
            sum(sizes),
            sum(event["payload"].get("ref") == "dev" for event in everything),
            sum("org" in event for event in everything),
        )
    ]
    # Deep inside, record by record: whatever a file says is in its row.
    rows = sorted(lake.iceberg.load_table("hub.events").scan().to_arrow().to_pylist(), key=lambda row: int(row["id"]))
    for event, row in zip(everything, rows, strict=True):
        assert is_kept(json.dumps(event).encode(), row, spills=False), (event, row)


def test_a_record_of_a_thousand_columns(lake: Lake, broker: LocalBroker) -> None:
    topic = Topic(lake, broker, "wide")
    topic.load([json.dumps({f"field {number}": number for number in range(1000)}).encode()])
    later = {f"field {number}": number / 8 for number in range(500, 1500)}
    topic.load([json.dumps(later).encode(), b'{"field 0": "zero"}'])
    rows = topic.assert_all_is_kept()
    assert len(user_fields(lake, topic.table)) == 1500
    assert rows[1]["field 1499"] == 1499 / 8


def test_records_of_ten_megabytes(lake: Lake, broker: LocalBroker, tmp_path: Path) -> None:
    record = json.dumps(
        {"id": 1, "text": "ä" * (LARGE // 4), "list": list(range(LARGE // 15))}, ensure_ascii=False
    ).encode()
    assert len(record) > LARGE
    small = b'{"id": 2, "text": "small", "list": []}'
    topic = Topic(lake, broker, "large", **{"max.message.bytes": str(2 * LARGE)})
    topic.load([small, record, small], max_request_size=2 * LARGE)
    topic.assert_all_is_kept()
    (tmp_path / "a.jsonl").write_bytes(b"\n".join([small, record, small]))
    assert lake.load(f"files:{tmp_path}", into="files.large").counts.rows == 3
    for table in (topic.table, "files.large"):
        assert answer(
            lake, f"select id, length(text), size(list), aggregate(list, 0L, (a, b) -> a + b) from {table} order by id"
        ) == [
            (1, LARGE // 4, LARGE // 15, sum(range(LARGE // 15))),
            (2, 5, 0, 0),
            (2, 5, 0, 0),
        ]


def test_odd_keys_and_fields_that_come_and_go(lake: Lake, broker: LocalBroker) -> None:
    topic = Topic(lake, broker, "odd")
    topic.load(
        [
            '{"id": 1, "größe": "日本\\u0000🙂", "Größe": 2, "nothing": null, "empty": {}, "none": []}'.encode(),
            b'{"id": 2, "ID": "x", "gr\\u00f6\\u00dfe": "", "deep": {"A": 1, "a": 2, "e": {}}}',
            b'{"select": true, "a`b": 1, "a.b": 2, "\\"": 3}',
        ]
    )
    rows = topic.assert_all_is_kept()
    assert not {"nothing", "empty", "none"} & set(user_fields(lake, topic.table).names)
    assert dict(rows[1]["_rescued"])["ID"] == '"x"'
    # What was empty so far gets values, and what there was is gone.
    topic.load([b'{"nothing": 0.5, "empty": {"b": {"c": null}}, "none": [null, {"x": 1}]}', b"{}"])
    topic.assert_all_is_kept()
    topic.load(['{"id": 5, "größe": "zurück", "empty": {"b": {"c": [1]}}, "a`b": 7}'.encode(), b'{"id": null}'])
    topic.assert_all_is_kept()
    assert answer(
        lake,
        f"select id, `größe`, nothing, empty.b.c[0], none[1].x, `a``b` from {topic.table} "
        "where id = 5 or nothing > 0 order by id",
    ) == [(None, None, 0.5, None, 1, None), (5, "zurück", None, 1, None, 7)]
