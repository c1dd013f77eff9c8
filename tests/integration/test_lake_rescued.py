"""What was rescued goes into its columns once they hold it: in one commit, nothing lost, nothing doubled."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from headwater import LocalBroker, Producer
from headwater.lake import Lake, LakeError, LakeUsageError
from headwater.lake.operations.replaying import ReplayJob
from headwater.lake.operations.snapshots import table_history
from headwater.lake.shapes import Policies
from headwater.lake.sources.topics import offsets_of
from peers.spark import lake as lake
from peers.spark import pyspark_leaves_sockets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pyspark_leaves_sockets

Load = Callable[..., Any]


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    with LocalBroker() as broker:
        yield broker


@pytest.fixture
def load(lake: Lake, broker: LocalBroker) -> Load:
    def load(topic: str, *values: Any, **how: Any) -> Any:
        with Producer(broker.bootstrap) as producer:
            for value in values:
                text = value if isinstance(value, bytes) else json.dumps(value).encode()
                producer.send(topic, text, partition=0)
        return lake.load(f"topic:{topic}", into=f"shop.{topic}", bootstrap=broker.bootstrap, **how)

    return load


def rows(lake: Lake, statement: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in lake.sql(statement).to_pylist()]


def snapshots(lake: Lake, table: str) -> int:
    return table_history(lake.spark, table).figures.snapshots


@pytest.fixture
def table(request: pytest.FixtureRequest, lake: Lake) -> str:
    """A table of a topic's layout in which a price and a record wait for better days, made without a load."""
    name = f"shop.{request.node.name.removeprefix('test_')[:40]}"
    lake.spark.sql("create namespace if not exists shop")
    lake.spark.sql(
        f"""create table {name} (id int, price double, at timestamp, place struct<zip: int, city: string>,
        _offset bigint, _rescued map<string, string>, _corrupt_record string)
        tblproperties ('write.merge.mode' = 'merge-on-read')"""
    )
    lake.spark.sql(
        f"""insert into {name} values
        (1, 1.5, timestamp '2026-01-01 00:00:00', named_struct('zip', 1, 'city', 'a'), 0, null, null),
        (2, null, timestamp '2026-01-02 00:00:00', named_struct('zip', null, 'city', 'b'), 1,
         map('price', '2.5', 'place.zip', '"52062"', 'unknown', '{{}}'), null),
        (null, null, null, null, 2, null, '{{"id": 3, "place": {{"zip": 7}}, "odd": true}}'),
        (null, null, null, null, 3, null, 'nope')"""
    )
    return name


REPLAYED = [
    (1, 1.5, 1, "a", None),
    (2, 2.5, None, "b", None),
    (3, None, 7, None, None),
    (None, None, None, None, "nope"),
]


def state(lake: Lake, table: str) -> list[tuple[Any, ...]]:
    return rows(lake, f"select id, price, place.zip, place.city, _corrupt_record from {table} order by _offset")


def job(lake: Lake, table: str) -> ReplayJob:
    return ReplayJob(spark=lake.spark, catalog=lake.catalog, table=table)


def test_values_and_records_that_fit_go_into_columns_in_one_commit(lake: Lake, table: str) -> None:
    report = lake.replay_rescued(table)
    assert (report.values, report.records, report.left_values, report.left_records) == (1, 1, 3, 1)
    assert snapshots(lake, table) == 2
    assert state(lake, table) == REPLAYED
    assert rows(lake, f"select _rescued from {table} where _rescued is not null order by _offset") == [
        ([("place.zip", '"52062"'), ("unknown", "{}")],),
        ([("odd", "true")],),
    ]
    again = lake.replay_rescued(table)
    assert (again.values, again.left_values, again.snapshot_id) == (0, 3, None)
    assert snapshots(lake, table) == 2


def test_one_field_alone(lake: Lake, table: str) -> None:
    lake.spark.sql(f"alter table {table} add column unknown struct<x: int>")
    report = lake.replay_rescued(table, column="unknown")
    assert (report.values, report.records, report.left_values, report.left_records) == (1, 0, 2, 2)
    assert rows(lake, f"select unknown, price, _rescued from {table} where id = 2") == [
        ({"x": None}, None, [("price", "2.5"), ("place.zip", '"52062"')])
    ]
    with pytest.raises(LakeUsageError, match="no path"):
        lake.replay_rescued(table, column="a#0")


def test_a_compaction_between_reading_and_writing(lake: Lake, table: str) -> None:
    def compact(words: str) -> None:
        if "replaying" in words and snapshots(lake, table) == 1:
            lake.spark.sql(
                f"call lake.system.rewrite_data_files(table => '{table}', options => map('rewrite-all', 'true'))"
            )

    report = replace(job(lake, table), tell=compact).run()
    assert (report.values, report.records) == (1, 1)
    assert state(lake, table) == REPLAYED


def test_a_delete_and_an_append_in_between(lake: Lake, table: str) -> None:
    def change(words: str) -> None:
        if "replaying" in words and snapshots(lake, table) == 1:
            lake.spark.sql(f"insert into {table} (id, _offset, _rescued) values (4, 4, map('price', '4.5'))")
            lake.spark.sql(f"delete from {table} where id = 2 or _offset = 2")

    replace(job(lake, table), tell=change).run()
    assert state(lake, table) == [REPLAYED[0], REPLAYED[3], (4, 4.5, None, None, None)]


class Interrupted:
    """A Spark whose first MERGE fails: before it does anything, or when it is done and nobody hears of it."""

    def __init__(self, spark: "SparkSession", words: str, *, done: bool = False) -> None:
        self._spark = spark
        self._words = words
        self._done = done
        self._failed = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._spark, name)

    def sql(self, statement: str) -> Any:
        if "merge into" not in statement or self._failed:
            return self._spark.sql(statement)
        self._failed = True
        if self._done:
            self._spark.sql(statement)
        raise RuntimeError(self._words)


def interrupted(lake: Lake, table: str, words: str, *, done: bool = False) -> ReplayJob:
    return replace(job(lake, table), spark=cast("SparkSession", Interrupted(lake.spark, words, done=done)))


def test_a_replay_that_fails_has_changed_nothing(lake: Lake, table: str) -> None:
    before = state(lake, table)
    with pytest.raises(LakeError, match="failed and changed nothing: the connection was lost"):
        interrupted(lake, table, "the connection was lost").run()
    assert state(lake, table) == before
    lake.replay_rescued(table)
    assert state(lake, table) == REPLAYED


def test_a_lost_race_is_run_again(lake: Lake, table: str) -> None:
    words = "org.apache.iceberg.exceptions.ValidationException: Found conflicting files"
    report = interrupted(lake, table, words).run()
    assert (report.values, report.records, report.attempts) == (1, 1, 2)
    assert state(lake, table) == REPLAYED


def test_a_commit_whose_answer_was_lost_counts(lake: Lake, table: str) -> None:
    report = interrupted(lake, table, "the connection was lost", done=True).run()
    assert (report.values, report.records, report.attempts) == (1, 1, 1)
    assert state(lake, table) == REPLAYED


def test_a_catalog_that_is_gone_afterwards_leaves_a_question_that_another_run_answers(
    lake: Lake, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: object) -> None:
        raise RuntimeError("connection refused")

    with monkeypatch.context() as patched:
        patched.setattr("headwater.lake.operations.replaying.table_history", gone)
        with pytest.raises(LakeError, match=r"is not known: connection refused\. Run it again"):
            lake.replay_rescued(table)
    assert lake.replay_rescued(table).values == 0
    assert state(lake, table) == REPLAYED


def test_the_position_of_a_load_stays_and_policies_hold(lake: Lake, load: Load) -> None:
    load("priced", {"id": 1, "price": 5, "meta": {}, "none": None})
    load("priced", {"id": 2, "price": "a lot", "meta": {"by": "ann"}})
    table = "shop.priced"
    assert offsets_of(lake.catalog.position(table, "topic:priced")) == {"priced": {"0": 2}}
    report = lake.replay_rescued(table)
    # An empty object had no column when it came; now there is one.
    assert (report.values, report.left_values) == (1, 1)
    load("priced", {"id": 3, "price": "too much"}, policies=Policies(fields={"price": "columns"}))
    report = lake.replay_rescued(table, policies=Policies(fields={"price": "columns"}))
    assert (report.values, report.left_values) == (1, 0)
    assert rows(
        lake, "select id, price, price__string, meta.by, meta is null, _rescued from shop.priced order by id"
    ) == [
        (1, 5, None, None, False, None),
        (2, None, "a lot", "ann", False, None),
        (3, None, "too much", None, True, None),
    ]
    assert offsets_of(lake.catalog.position(table, "topic:priced")) == {"priced": {"0": 3}}
    assert load("priced").load_id is None


def test_texts_of_csv_are_texts_and_no_json(lake: Lake, tmp_path: Path) -> None:
    files = {"a.csv": "id,code\n1,7\n", "b.csv": 'id,code\nx,9\n"say ""y""",1.5\n', "c.csv": "id,code\ny,2.5\n"}
    columns = Policies(default="columns")
    for name, text in files.items():
        (tmp_path / name).write_text(text)
        lake.load(f"files:{tmp_path}", into="shop.cells", policies=columns if name == "c.csv" else Policies())
    report = lake.replay_rescued("shop.cells", policies=columns)
    assert (report.values, report.left_values) == (3, 0)
    assert rows(lake, "select id, id__string, code, code__string, _rescued from shop.cells order by _path, _row") == [
        (1, None, 7, None, None),
        (None, "x", 9, None, None),
        (None, 'say "y"', None, "1.5", None),
        (None, "y", None, "2.5", None),
    ]
