"""Topics into tables: what is new is loaded once, whatever shape it has, and every engine reads the same."""

import base64
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from headwater import Admin, LocalBroker, Producer
from headwater.lake import Lake, LakeError, LakeUsageError
from headwater.lake.sources.topics import offsets_of
from peers.spark import lake as lake
from peers.spark import pyspark_leaves_sockets
from unreadable_topics import between_sound_ones, lost_offsets, readable_offsets, write_topics

pytestmark = pyspark_leaves_sockets

Load = Callable[..., Any]


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    with LocalBroker() as broker:
        yield broker


@pytest.fixture
def load(lake: Lake, broker: LocalBroker) -> Load:
    def load(topic: str, **how: Any) -> Any:
        return lake.load(f"topic:{topic}", into=f"shop.{topic}", bootstrap=broker.bootstrap, **how)

    return load


def produce(broker: LocalBroker, topic: str, *values: Any, keys: Any = None) -> None:
    with Producer(broker.bootstrap) as producer:
        for number, value in enumerate(values):
            text = value if isinstance(value, bytes) or value is None else json.dumps(value).encode()
            producer.send(topic, text, key=keys[number] if keys else None, partition=0)


def rows(lake: Lake, statement: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in lake.sql(statement).to_pylist()]


def test_what_is_new_is_loaded_once(lake: Lake, broker: LocalBroker, load: Load) -> None:
    produce(broker, "once", *({"id": number, "name": f"n{number}"} for number in range(1000)))
    first = load("once")
    assert (first.counts.rows, first.counts.rescued, first.counts.corrupt) == (1000, 0, 0)
    assert load("once").load_id is None
    produce(broker, "once", {"id": 1000, "name": "last"})
    assert load("once").counts.rows == 1
    assert rows(lake, "select count(*), count(distinct id), sum(id), max(name) from shop.once") == [
        (1001, 1001, sum(range(1001)), "n999")
    ]
    assert offsets_of(lake.catalog.position("shop.once", "topic:once")) == {"once": {"0": 1001}}


def test_a_topic_that_was_made_anew_is_not_taken_for_the_old_one(lake: Lake, broker: LocalBroker, load: Load) -> None:
    produce(broker, "again", {"id": 1}, {"id": 2})
    load("again")
    with Admin(broker.bootstrap) as admin:
        admin.delete_topic("again")
        admin.create_topic("again", partitions=1)
    # By its offsets alone, the new topic would have one record that is not loaded yet.
    produce(broker, "again", {"id": 11}, {"id": 12}, {"id": 13})
    with pytest.raises(
        LakeError, match=r"again was deleted and made anew .* rewind shop.again topic:again --to earliest"
    ):
        load("again")
    ((source,),) = [status.sources for status in lake.status("shop.again")]
    assert source.lag.records == 3
    assert source.lag.words is not None
    assert "again was deleted and made anew" in source.lag.words
    assert rows(lake, "select id from shop.again order by id") == [(1,), (2,)]
    lake.rewind("shop.again", "topic:again", "earliest", delete=True)
    assert load("again").counts.rows == 3
    assert rows(lake, "select id from shop.again order by id") == [(11,), (12,), (13,)]
    assert load("again").load_id is None


def test_fields_that_appear_and_change_their_type_stop_nothing(lake: Lake, broker: LocalBroker, load: Load) -> None:
    produce(broker, "changing", {"id": 1, "price": 5})
    load("changing")
    produce(broker, "changing", {"id": 2, "price": "a lot", "address": {"city": "Aachen", "zip": 52062}}, b"no json")
    report = load("changing")
    assert (report.counts.rows, report.counts.rescued, report.counts.corrupt) == (2, 1, 1)
    assert rows(
        lake, "select id, price, address.city, _rescued['price'], _corrupt_record from shop.changing order by _offset"
    ) == [
        (1, 5, None, None, None),
        (2, None, "Aachen", '"a lot"', None),
        (None, None, None, None, "no json"),
    ]
    kinds = [(change.kind, change.path) for change in lake.catalog.schema_history("shop.changing")]
    assert ("add", "address") in kinds
    assert ("conflict", "price") in kinds


def test_a_plan_changes_nothing(lake: Lake, broker: LocalBroker, load: Load) -> None:
    produce(broker, "planned", {"id": 1})
    report = load("planned", plan_only=True)
    assert report.plan.schema.names == ["id"]
    assert lake.catalog.table_state("shop.planned") is None


def test_an_upsert_keeps_the_newest_of_each_key(lake: Lake, broker: LocalBroker, load: Load) -> None:
    produce(broker, "accounts", {"v": 1}, {"v": 2}, {"v": 3}, keys=["a", "b", "a"])
    load("accounts", mode="upsert")
    assert rows(lake, "select cast(_key as string), v from shop.accounts order by 1") == [("a", 3), ("b", 2)]
    produce(broker, "accounts", None, {"v": 4}, {}, keys=["a", "c", "d"])
    load("accounts", mode="upsert")
    assert rows(lake, "select cast(_key as string), v from shop.accounts order by 1") == [
        ("b", 2),
        ("c", 4),
        ("d", None),
    ]
    produce(broker, "accounts", {"v": 5}, None, {"v": 6}, keys=["b", "b", "a"])
    load("accounts", mode="upsert")
    assert rows(lake, "select cast(_key as string), v from shop.accounts order by 1") == [
        ("a", 6),
        ("c", 4),
        ("d", None),
    ]


def test_upserts_of_two_threads_are_two_commits_with_their_own_positions(
    lake: Lake, broker: LocalBroker, load: Load
) -> None:
    rounds, many = 3, 200

    def upsert(topic: str, first: int) -> list[int]:
        counts = []
        for turn in range(rounds):
            produce(broker, topic, *({"id": first + number, "turn": turn} for number in range(many + turn)))
            together.wait(60)
            counts.append(load(topic, mode="upsert", key=("id",)).counts.rows)
        return counts

    together = Barrier(2)
    with ThreadPoolExecutor(2) as threads:
        left, right = threads.map(upsert, ("left", "right"), (0, 1000))
    assert left == right == [many, many + 1, many + 2]
    total = sum(left)
    for topic, first in (("left", 0), ("right", 1000)):
        assert rows(lake, f"select count(*), min(id), min(turn) from shop.{topic}") == [(many + 2, first, rounds - 1)]
        assert offsets_of(lake.catalog.position(f"shop.{topic}", f"topic:{topic}")) == {topic: {"0": total}}
        assert [load.state for load in lake.catalog.loads(f"shop.{topic}")] == ["committed"] * rounds


def test_dedup_keeps_the_first_of_each_key(lake: Lake, broker: LocalBroker, load: Load) -> None:
    produce(broker, "clicks", {"id": "x", "n": 1}, {"id": "y", "n": 2}, {"id": "x", "n": 3}, {"n": 4}, {"n": 5})
    load("clicks", mode="dedup", key=("id",))
    produce(broker, "clicks", {"id": "y", "n": 6}, {"id": "z", "n": 7})
    load("clicks", mode="dedup", key=("id",), window_s=3600.0)
    assert rows(lake, "select n from shop.clicks order by n") == [(1,), (2,), (4,), (5,), (7,)]


def test_news_that_change_no_row_move_the_position(lake: Lake, broker: LocalBroker, load: Load) -> None:
    produce(broker, "same", {"id": 1, "n": 5}, {"id": 2, "n": 5})
    load("same", mode="upsert", key=("id",), newest_by="n")
    produce(broker, "same", {"id": 1, "n": 4}, {"id": 2, "n": 3})
    assert load("same", mode="upsert", key=("id",), newest_by="n").counts.rows == 2
    assert load("same", mode="upsert", key=("id",), newest_by="n").load_id is None
    produce(broker, "same", {"id": 1, "n": 6}, {"id": 1, "n": 7})
    assert load("same", mode="dedup", key=("id",)).counts.rows == 2
    assert load("same", mode="dedup", key=("id",)).load_id is None
    assert rows(lake, "select id, n from shop.same order by id") == [(1, 5), (2, 5)]


def test_headers_are_loaded_where_they_are_asked_for(lake: Lake, broker: LocalBroker, load: Load) -> None:
    def send(number: int) -> None:
        with Producer(broker.bootstrap) as producer:
            headers = [("trace", b"t%d" % number), ("empty", None)]
            producer.send("headed", b'{"id": %d, "_headers": "its own"}' % number, headers=headers)

    send(1)
    load("headed")
    assert "_headers" not in lake.sql("select * from shop.headed").schema.names
    send(2)
    load("headed", source_options={"headers": True})
    send(3)
    load("headed")
    assert rows(
        lake,
        "select id, _headers[0].key, string(_headers[0].value), _headers[1].value, _rescued['_headers']"
        " from shop.headed order by id",
    ) == [
        (1, None, None, None, '"its own"'),
        (2, "trace", "t2", None, '"its own"'),
        (3, None, None, None, '"its own"'),
    ]


def test_text_and_raw_bytes_are_one_column(lake: Lake, broker: LocalBroker, load: Load) -> None:
    produce(broker, "words", b"six bottles", None, b"\xff\xfe")
    load("words", source_options={"value": "text"})
    assert rows(lake, "select value, _corrupt_record from shop.words order by _offset") == [
        ("six bottles", None),
        (None, None),
        (None, "base64://4="),
    ]


def test_other_engines_read_the_same(lake: Lake, broker: LocalBroker, load: Load) -> None:
    import duckdb
    from pyiceberg.catalog.rest import RestCatalog

    produce(broker, "read", *({"id": number, "tags": ["a", str(number)]} for number in range(100)))
    load("read")
    read = RestCatalog("lake", uri=lake.uri, token=str(lake.token)).load_table("shop.read").scan().to_arrow()
    by_spark = rows(lake, "select count(*), sum(id), count(distinct tags[1]) from shop.read")
    connection = duckdb.connect().register("read", read)
    by_duckdb = connection.execute("select count(*), sum(id), count(distinct tags[2]) from read").fetchall()
    assert by_spark == by_duckdb == [(100, 4950, 100)]


def test_mistakes_are_told_in_words(lake: Lake, load: Load) -> None:
    with pytest.raises(LakeUsageError, match="topic:NAME, files:PATH or jdbc:URL#TABLE"):
        lake.load("orders", into="shop.orders")
    with pytest.raises(LakeUsageError, match=r"DATABASE\.TABLE"):
        lake.load("topic:orders", into="orders")
    with pytest.raises(LakeUsageError, match="check its name"):
        load("nowhere")


def test_what_cannot_be_read_stops_a_load_or_is_kept_as_it_is(lake: Lake, tmp_path: Path) -> None:
    kinds = ["checksum", "half", "zstd"]
    batches = between_sound_ones(kinds)
    write_topics(tmp_path / "data", {"unreadable": batches})
    with LocalBroker(data=tmp_path / "data") as broker:

        def load(**how: Any) -> Any:
            return lake.load("topic:unreadable", into="shop.unreadable", bootstrap=broker.bootstrap, **how)

        with pytest.raises(LakeError, match=r"cannot read offsets 3 to 5 of partition unreadable-0 .*--skip-corrupt"):
            load()
        skipping: dict[str, Any] = {"source_options": {"corrupt_records": "skip"}, "mode": "upsert", "key": ("id",)}
        report = load(**skipping)
        assert (report.counts.rows, report.counts.corrupt) == (len(readable_offsets(kinds)) + 3, 3)
        assert load(**skipping).load_id is None
        seen = rows(lake, "select _offset, id, _corrupt_record from shop.unreadable order by _offset")
        assert [offset for offset, id_, _ in seen if id_ == offset] == readable_offsets(kinds)
        kept = [(offset, text) for offset, id_, text in seen if id_ is None]
        assert kept == [
            (lost_offsets(number, kind)[0], "batch-base64:" + base64.b64encode(batches[2 * number + 1]).decode())
            for number, kind in enumerate(kinds)
        ]
        assert lake.replay_rescued("shop.unreadable").left_records == 3
        reading = lake.spark.read.format("headwater").option("bootstrap", broker.bootstrap)
        reading = reading.option("topics", "unreadable").option("corrupt.records", "skip")
        assert reading.load().count() == len(readable_offsets(kinds))
        text = reading.option("value", "text").load().where("_corrupt_record is not null")
        assert sorted(row._offset for row in text.collect()) == [offset for offset, _ in kept]
