"""A lake whose warehouse, and whose files, are in an S3 store: what is promised of folders holds there too."""

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.rest import RestCatalog

from headwater import LocalBroker, Producer
from headwater.lake import Lake, LakeError, LakeUsageError
from headwater.lake.crawling.places import crawl
from headwater.lake.crawling.proposals import lake_toml
from headwater.lake.jars import ICEBERG_AWS, jar_folder
from headwater.lake.java import find_java
from headwater.lake.leftovers import spark_log
from headwater.lake.operations.explanations import Verdict
from headwater.lake.operations.maintenance import Care
from headwater.lake.operations.snapshots import table_history
from headwater.lake.shapes import Policies
from headwater.lake.sources.listing import list_files, parse_place
from peers.object_store import ObjectStore
from peers.object_store import object_store as object_store
from peers.presence import require
from peers.spark import QUICK_START, end_java, pyspark_leaves_sockets, quick_spark

pytestmark = pyspark_leaves_sockets

WAREHOUSE = "s3://bucket/lake"
PART_BYTES = 5 << 20
"""The least that S3 takes for a part."""
Load = Callable[..., Any]


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    with LocalBroker() as broker:
        yield broker


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("catalog") / "catalog.db"


@pytest.fixture(scope="module")
def lake(object_store: ObjectStore, database: Path) -> Iterator[Lake]:
    require(None if find_java() else "no Java 17 or newer: run scripts/get_peers.py")
    there = (jar_folder() / ICEBERG_AWS.file_name).exists()
    require(None if there else f"no {ICEBERG_AWS.file_name}: run scripts/get_peers.py")
    # Java has the jars and the keys with which it was started.
    end_java()
    quick = quick_spark()
    conf = {**quick.conf, "spark.sql.catalog.lake.s3.multipart.part-size-bytes": str(PART_BYTES)}
    with Lake(WAREHOUSE, catalog=str(database), spark=replace(quick, conf=conf)) as lake:
        yield lake


@pytest.fixture
def load(lake: Lake, broker: LocalBroker) -> Load:
    def load(topic: str, *values: Any, key: Callable[[Any], bytes] | None = None, **how: Any) -> Any:
        """Produces the values and loads them."""
        send(broker, topic, *values, key=key)
        return lake.load(f"topic:{topic}", into=f"shop.{topic}", bootstrap=broker.bootstrap, **how)

    return load


def send(broker: LocalBroker, topic: str, *values: Any, key: Callable[[Any], bytes] | None = None) -> None:
    with Producer(broker.bootstrap) as producer:
        for value in values:
            producer.send(topic, json.dumps(value).encode(), key=key(value) if key else None, partition=0)


def by_spark(lake: Lake, table: str, *columns: str, order: str = "id") -> list[tuple[Any, ...]]:
    answer = lake.sql(f"select {', '.join(columns)} from {table} order by {order}")
    return [tuple(row.values()) for row in answer.to_pylist()]


def by_pyiceberg(lake: Lake, table: str, *columns: str, order: str = "id") -> list[tuple[Any, ...]]:
    found = lake.iceberg.load_table(table).scan(selected_fields=columns).to_arrow().sort_by(order)
    return [tuple(row[column] for column in columns) for row in found.to_pylist()]


def parquet(**columns: list[Any]) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue()


def test_a_topic_is_loaded_once_and_all_who_read_it_read_the_same(
    lake: Lake, load: Load, object_store: ObjectStore
) -> None:
    load("orders", {"id": 1, "price": 1.5}, {"id": 2, "price": 2.5})
    assert load("orders", {"id": 3, "price": 3.5, "country": "de"}).counts.rows == 1
    expected = [(1, 1.5, None), (2, 2.5, None), (3, 3.5, "de")]
    assert by_spark(lake, "shop.orders", "id", "price", "country") == expected
    assert by_pyiceberg(lake, "shop.orders", "id", "price", "country") == expected
    snapshot = lake.status("shop.orders")[0].snapshot_id
    assert load("orders").load_id is None
    assert lake.status("shop.orders")[0].snapshot_id == snapshot
    assert object_store.keys("lake/shop/orders/data/")
    assert object_store.keys("lake/shop/orders/metadata/")
    # Whoever asks the catalog is told where the store is, and needs keys only.
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("AWS_ENDPOINT_URL")
        patch.delenv("AWS_DEFAULT_REGION")
        catalog = RestCatalog("other", uri=lake.uri, token=str(lake.token))
        assert catalog.load_table("shop.orders").scan().to_arrow().num_rows == 3


def test_a_job_that_is_killed_in_the_middle_has_loaded_nothing(
    lake: Lake, load: Load, broker: LocalBroker, database: Path, object_store: ObjectStore
) -> None:
    load("killed", {"id": 0})
    send(broker, "killed", *({"id": number} for number in range(1, 50)))
    command = [
        str(Path(sys.executable).with_name("headwater")),
        "lake",
        "load",
        "topic:killed",
        "--into",
        "shop.killed",
    ]
    command += ["--bootstrap", broker.bootstrap, "--warehouse", WAREHOUSE, "--catalog", str(database)]
    command += ["--master", "local[1]", *(f"--conf={name}={value}" for name, value in QUICK_START.items())]
    # The first swap is for the schema, which stays as it is; the second would be that of the data.
    environment = {**os.environ, "HEADWATER_CATALOG_DIES_AT": "before-swap:2"}
    job = subprocess.run(command, env=environment, capture_output=True, check=False)
    assert job.returncode == -signal.SIGKILL, job.stderr.decode()
    # Its data is in the store, and counts for nothing.
    assert len(object_store.keys("lake/shop/killed/data/")) == 2
    assert load("killed", {"id": 50}).counts.rows == 50
    assert by_spark(lake, "shop.killed", "id") == [(number,) for number in range(51)]


def test_rows_are_upserted_kept_aside_mended_and_loaded_again(lake: Lake, load: Load, broker: LocalBroker) -> None:
    def key(value: Any) -> bytes:
        return str(value["id"]).encode()

    load("people", {"id": 1, "age": 30}, {"id": 2, "age": 40}, key=key, mode="upsert")
    assert load("people", {"id": 2, "age": "forty-one"}, key=key, mode="upsert").counts.rescued == 1
    assert by_spark(lake, "shop.people", "id", "age", "_rescued['age']") == [(1, 30, None), (2, None, '"forty-one"')]
    rewrite = Policies(default="string", rewrite=True)
    load("people", {"id": 3, "age": "five"}, key=key, mode="upsert", policies=rewrite)
    assert lake.replay_rescued("shop.people").values == 1
    expected = [(1, "30"), (2, "forty-one"), (3, "five")]
    assert by_spark(lake, "shop.people", "id", "age") == expected
    assert by_pyiceberg(lake, "shop.people", "id", "age") == expected
    lake.rewind("shop.people", "topic:people", '{"0": 3}', delete=True)
    assert lake.explain_offset("shop.people", "people:0:3").verdict is Verdict.AGAIN
    assert lake.status("shop.people")[0].sources[0].lag.records == 1
    load("people", key=key, mode="upsert")
    assert by_spark(lake, "shop.people", "id", "age") == expected


def test_maintenance_packs_lets_go_and_removes_what_killed_jobs_left(
    lake: Lake, load: Load, object_store: ObjectStore
) -> None:
    for number in range(5):
        load("many", {"id": number})
    strangers = {
        "lake/shop/many/data/aged-orphan.parquet": True,
        "lake/shop/many/data/fresh-orphan.parquet": False,
        "lake/shop/many-others/data/aged.parquet": False,
    }
    for name in strangers:
        object_store.put(name, b"?")
    before = object_store.keys("lake/shop/many/")
    [report] = lake.maintain(["shop.many"], Care(older_than_s=0))
    touched = {step.step: step.touched for step in report.steps}
    assert touched["compact"] == 5
    assert touched["expire"] >= 5
    assert touched["orphans"] == 1
    left = object_store.keys("lake/")
    assert {name: name not in left for name in strangers} == strangers
    assert table_history(lake.spark, "shop.many").figures.data_files == 1
    assert len(object_store.keys("lake/shop/many/")) < len(before)
    assert by_pyiceberg(lake, "shop.many", "id") == [(number,) for number in range(5)]
    # The position was carried along.
    assert load("many").load_id is None


def test_a_file_of_several_parts_is_whole(lake: Lake, object_store: ObjectStore) -> None:
    lake.spark.sql("create namespace if not exists shop")
    lake.spark.sql(
        "create table shop.large as select /*+ coalesce(1) */ id, concat(uuid(), uuid()) as text from range(300000)"
    )
    [data] = object_store.keys("lake/shop/large/data/")
    assert len(object_store.read(data)) > 2 * PART_BYTES
    assert lake.iceberg.load_table("shop.large").scan().to_arrow()["id"].to_pylist() == list(range(300_000))


@pytest.mark.parametrize("who", ["Spark", "pyiceberg"])
def test_a_table_that_is_purged_leaves_nothing(lake: Lake, load: Load, object_store: ObjectStore, who: str) -> None:
    topic = f"purged_{who}"
    load(topic, {"id": 1})
    load(topic, {"id": 2})
    if who == "Spark":
        lake.spark.sql(f"drop table shop.{topic} purge")
    else:
        lake.iceberg.purge_table(f"shop.{topic}")
    assert object_store.keys(f"lake/shop/{topic}/") == []


def test_files_of_a_store_are_loaded_once_by_folder_and_pattern(lake: Lake, object_store: ObjectStore) -> None:
    object_store.put("in/visits/day=2026-01-31/a b#1.json", '{"id": 1, "page": "/"}\n{"id": 2}\n')
    object_store.put("in/visits/day=2026-02-01/c.json", '{"id": 3, "page": "/x"}\n')
    object_store.put("in/visits/_temporary/d.json", '{"id": 4}\n')
    source, table = "files:s3://bucket/in/visits", "shop.visits"
    assert lake.load(source, into=table).counts.rows == 3
    assert lake.load(source, into=table).load_id is None
    assert [row[0] for row in by_spark(lake, table, "id")] == [1, 2, 3]
    assert by_spark(lake, table, "cast(day as string)", order="1")[0] == ("2026-01-31",)
    assert lake.explain_file(table, "s3://bucket/in/visits/day=2026-02-01/c.json").verdict is Verdict.LOADED
    assert lake.explain_file(table, "s3://bucket/in/visits/_temporary/d.json").verdict is Verdict.SKIPPED
    object_store.put("in/visits/day=2026-02-01/c.json", '{"id": 30, "page": "/y"}\n')
    assert lake.status(table)[0].sources[0].lag.files == 1
    lake.load(source, into=table, source_options={"changed": "replace"})
    assert [row[0] for row in by_spark(lake, table, "id")] == [1, 2, 30]


def test_a_folder_of_more_objects_than_a_store_tells_at_once_is_found_whole(object_store: ObjectStore) -> None:
    names = [f"pages/{number % 7}/{number}.json" for number in range(3 * object_store.page)]
    for name in names:
        object_store.put(name, "{}")
    before = len(object_store.requests())
    assert sorted(each.path for each in list_files(parse_place("s3://bucket/pages"))) == sorted(
        f"s3://bucket/{name}" for name in names
    )
    assert sum("continuation-token" in request for request in object_store.requests()[before:]) >= 2


def test_csv_and_parquet_of_a_store_with_settings_in_its_url(lake: Lake, object_store: ObjectStore) -> None:
    object_store.put("mixed/a.csv", "id,price\n1,1.5\n")
    object_store.put("mixed/b.csv", "id,price\n2,2.5\n")
    object_store.put("mixed/c.parquet", parquet(id=[3], price=[3.5]))
    keys = ":".join((object_store.secrets["AWS_ACCESS_KEY_ID"], object_store.secrets["AWS_SECRET_ACCESS_KEY"]))
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("AWS_ENDPOINT_URL")
        settings = f"endpoint={object_store.endpoint}&region=eu-west-1"
        lake.load(f"files:s3://{keys}@bucket/mixed/*.csv?{settings}", into="shop.mixed")
        lake.load(f"files:s3://bucket/mixed/*.parquet?{settings}", into="shop.mixed")
        assert by_spark(lake, "shop.mixed", "id", "price") == [(1, 1.5), (2, 2.5), (3, 3.5)]
        # The ledger remembers how the store was reached.
        assert [source.lag.files for source in lake.status("shop.mixed")[0].sources] == [0, 0]
    assert object_store.secrets["AWS_SECRET_ACCESS_KEY"] not in repr(lake.status("shop.mixed"))


def test_a_crawl_of_a_store_proposes_loads_that_work_and_tells_no_keys(lake: Lake, object_store: ObjectStore) -> None:
    object_store.put("shop/orders/2026-01.json", '{"id": 1, "at": "2026-01-31T12:00:00Z"}\n')
    object_store.put("shop/orders/2026-02.json", '{"id": 2, "at": "2026-02-28T12:00:00Z"}\n')
    object_store.put("shop/people/1.parquet", parquet(id=[1], name=["ada"]))
    found = crawl(f"s3://my-key:my-secret@bucket/shop?endpoint={object_store.endpoint}")
    text = lake_toml(found)
    assert "my-key" not in text
    assert "my-secret" not in text
    assert [proposal.into for proposal in found.proposals] == ["shop.orders", "shop.people"]
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("AWS_ENDPOINT_URL")
        for proposal in found.proposals:
            into = proposal.into.replace("shop.", "crawled.")
            assert lake.load(proposal.source, into=into, source_options=proposal.options).counts.rows > 0


def test_what_is_wrong_with_a_store_is_told_in_a_sentence(
    lake: Lake, database: Path, object_store: ObjectStore
) -> None:
    with pytest.raises(LakeUsageError, match="s3://bucket/nowhere is not there"):
        lake.load("files:s3://bucket/nowhere", into="shop.nothing")
    with pytest.raises(LakeUsageError, match="s3://other/lake needs a database"):
        Lake("s3://other/lake")
    with pytest.raises(LakeUsageError, match="named with its keys") as told:
        Lake("s3://key:my-secret@bucket/lake", catalog=str(database))
    assert "my-secret" not in str(told.value)
    with pytest.raises(LakeUsageError, match=r"not gs://"):
        Lake("gs://bucket/lake", catalog=str(database))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
        with pytest.raises(LakeError, match="s3://bucket/in cannot be listed"):
            lake.load("files:s3://bucket/in", into="shop.nothing")


def test_keys_that_java_was_not_started_with_are_missed_before_anything_is_read(lake: Lake, database: Path) -> None:
    assert lake.spark is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_SECRET_ACCESS_KEY", "another")
        with (
            Lake(WAREHOUSE, catalog=str(database), spark=quick_spark()) as other,
            pytest.raises(LakeError, match="started without AWS_SECRET_ACCESS_KEY of now:"),
        ):
            _ = other.spark
    assert lake.sql("select 1 as one").to_pylist() == [{"one": 1}]


def test_no_key_is_in_the_store_the_catalog_the_log_or_a_command_line(
    lake: Lake, load: Load, object_store: ObjectStore, database: Path
) -> None:
    load("secrets", {"id": 1})
    with Lake("s3://nowhere/lake", catalog=str(database.with_name("other.db"))) as other:
        other.iceberg.create_namespace("shop")
        with pytest.raises(Exception, match="NO_SUCH_BUCKET") as told:
            other.iceberg.create_table("shop.t", pa.schema([("id", pa.int64())]))
    written: Mapping[str, bytes] = {
        **{name: object_store.read(name) for name in object_store.keys("lake/")},
        **{path.name: path.read_bytes() for path in database.parent.iterdir()},
        "log": spark_log().read_bytes() if spark_log().exists() else b"",
        "command": java_command(lake),
        "conf": repr(lake.spark.sparkContext.getConf().getAll()).encode(),
        "error": str(told.value).encode(),
        "config": repr(lake.catalog.settings()).encode(),
    }
    assert len(written) > 8
    for name, content in written.items():
        for secret in object_store.secrets.values():
            assert secret.encode() not in content, name


def java_command(lake: Lake) -> bytes:
    java: Any = lake.spark.sparkContext._jvm
    pid = java.java.lang.ProcessHandle.current().pid()
    return Path(f"/proc/{pid}/cmdline").read_bytes()
