"""`spark.read.format("headwater")` and `readStream`: topics in Spark, from our broker and from Apache Kafka."""

import json
import pickle
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from headwater import Admin, LocalBroker, Producer
from headwater.lake import Lake
from headwater.lake.datasource.source import HeadwaterDataSource
from headwater.lake.shapes import merge_shapes, shape_of_json
from headwater.lake.shapes.shape import Shape
from peers.apache import ApacheKafka
from peers.spark import lake as lake
from peers.spark import pyspark_leaves_sockets

pytestmark = pyspark_leaves_sockets

BEGIN_MS = 1_700_000_000_000
RECORDS = 3000


@pytest.fixture(scope="module")
def spark(lake: Lake) -> SparkSession:
    return lake.spark


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    """With a topic `numbers`: numbers in three partitions, as JSON, a second apart."""
    with LocalBroker() as broker:
        produce_numbers(broker.bootstrap, "numbers")
        yield broker


def produce_numbers(bootstrap: str, topic: str) -> None:
    with Admin(bootstrap) as admin:
        admin.create_topic(topic, partitions=3)
    with Producer(bootstrap, batch_size=4096, linger_ms=20) as producer:
        for number in range(RECORDS):
            producer.send(
                topic,
                value(number),
                key=b"k%d" % number,
                partition=number % 3,
                timestamp_ms=BEGIN_MS + 1000 * number,
                headers=[("number", b"%d" % number)],
            )


def value(number: int) -> bytes:
    return b'{"id": %d, "name": "n%d"}' % (number, number)


def read(spark: SparkSession, bootstrap: str, topics: str = "numbers", /, **options: Any) -> DataFrame:
    reader = spark.read.format("headwater").option("bootstrap", bootstrap).option("topics", topics)
    if "schema" in options:
        reader = reader.schema(options.pop("schema"))
    return reader.options(**{name.replace("_", "."): value for name, value in options.items()}).load()


def tuples(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in frame.collect())


def check_numbers(spark: SparkSession, bootstrap: str, topic: str) -> None:
    frame = read(spark, bootstrap, topic, split_bytes="16k", headers="true")
    assert frame.rdd.getNumPartitions() >= 6
    assert tuples(frame.selectExpr("_partition", "_offset", "cast(value as string)")) == sorted(
        (number % 3, number // 3, value(number).decode()) for number in range(RECORDS)
    )
    (seventh,) = frame.where("_partition = 1 and _offset = 2").collect()
    assert (seventh["_topic"], seventh["_key"], seventh["_headers"]) == (topic, b"k7", [("number", b"7")])
    assert seventh["_timestamp"].astimezone(UTC) == datetime.fromtimestamp(BEGIN_MS / 1000 + 7, UTC)


def test_a_topic_is_read_without_registering_anything(spark: SparkSession, broker: LocalBroker) -> None:
    check_numbers(spark, broker.bootstrap, "numbers")


def test_a_topic_of_apache_kafka_is_read_alike(spark: SparkSession, apache: ApacheKafka) -> None:
    produce_numbers(apache.bootstrap, "numbers-for-spark")
    check_numbers(spark, apache.bootstrap, "numbers-for-spark")


def test_headers_are_there_for_those_who_ask(spark: SparkSession, broker: LocalBroker) -> None:
    plain = ["_topic", "_partition", "_offset", "_timestamp", "_key", "value"]
    assert read(spark, broker.bootstrap).columns == plain
    assert read(spark, broker.bootstrap, headers="true").columns == [*plain, "_headers"]
    assert read(spark, broker.bootstrap, value="text").columns == [*plain, "_corrupt_record"]
    named = read(spark, broker.bootstrap, schema="_offset long, _headers array<struct<key: string, value: binary>>")
    (second,) = named.where("_offset = 1").limit(1).collect()
    assert second["_headers"][0]["key"] == "number"


def test_arrow_does_not_check_again_what_spark_has_checked(spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    assert not jvm.org.apache.arrow.memory.BoundsChecking.BOUNDS_CHECKING_ENABLED
    assert not jvm.org.apache.arrow.vector.NullCheckingForGet.NULL_CHECKING_ENABLED


def test_columns_that_are_named_are_all_that_is_read(spark: SparkSession, broker: LocalBroker) -> None:
    frame = read(spark, broker.bootstrap, schema="_offset long, _key binary", ending=json.dumps({"numbers": {"0": 2}}))
    assert frame.columns == ["_offset", "_key"]
    assert frame.where("_offset < 2").count() == 6


def test_rows_are_typed_or_text_or_one_shape(spark: SparkSession, broker: LocalBroker) -> None:
    with Producer(broker.bootstrap) as producer:
        for each in (b'{"id": 1, "tags": ["a"]}', b'{"id": "one"}', b"\xff", None):
            producer.send("mixed", each)
    schema = "_offset long, id long, tags array<string>, _rescued map<string,string>, _corrupt_record string"
    assert [tuple(row) for row in read(spark, broker.bootstrap, "mixed", value="json", schema=schema).collect()] == [
        (0, 1, ["a"], None, None),
        (1, None, None, {"id": '"one"'}, None),
        (2, None, None, None, "base64:/w=="),
        (3, None, None, None, None),
    ]
    text = read(spark, broker.bootstrap, "mixed", value="text").select("value", "_corrupt_record").collect()
    assert [row[0] for row in text] == ['{"id": 1, "tags": ["a"]}', '{"id": "one"}', None, None]
    assert [row[1] for row in text] == [None, None, "base64:/w==", None]
    shapes = read(spark, broker.bootstrap, value="shape", split_bytes="16k").collect()
    assert len(shapes) >= 6
    seen = merge_shapes(Shape.from_json(row.shape) for row in shapes)
    assert seen.to_json() == shape_of_json(pa.array([value(number) for number in range(RECORDS)])).to_json()


def test_filters_choose_what_is_read_and_are_exact(spark: SparkSession, broker: LocalBroker) -> None:
    whole = read(spark, broker.bootstrap, split_bytes="16k")
    moment = datetime.fromtimestamp(BEGIN_MS / 1000 + 2990, UTC).isoformat()
    wanted = {
        f"_timestamp > timestamp '{moment}' or _key = cast('k42' as binary)": [42, *range(2991, RECORDS)],
        f"_timestamp > timestamp '{moment}'": [*range(2991, RECORDS)],
        f"_timestamp < timestamp '{moment}' and _offset > 995": [*range(2988, 2990)],
        "_partition in (0, 2) and _offset >= 998": [2994, 2996, 2997, 2999],
        "_offset in (3, 999)": [9, 10, 11, 2997, 2998, 2999],
        "_partition = 7": [],
    }

    def numbers(condition: str) -> list[int]:
        return sorted(row[0] for row in whole.where(condition).selectExpr("_offset * 3 + _partition").collect())

    # Without the setting, which Spark has not set by itself, all is read and Spark filters.
    assert numbers("_offset in (3, 999)") == wanted["_offset in (3, 999)"]
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        assert {condition: numbers(condition) for condition in wanted} == wanted
        assert whole.where(f"_timestamp >= timestamp '{moment}'").rdd.getNumPartitions() == 3
        assert whole.where("_partition = 1 and _offset < 10").rdd.getNumPartitions() == 1
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_nothing_to_read_is_no_rows(spark: SparkSession, broker: LocalBroker) -> None:
    assert read(spark, broker.bootstrap, starting="latest").collect() == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"topic": "numbers"}, "did you mean topics?"),
        ({"value": "json"}, "name them with .schema(...)"),
        ({"starting": json.dumps({"numbers": {"0": 10**9}})}, "partition numbers-0 ends at offset 1000"),
        ({"topics": "absent"}, "topic absent does not exist"),
        ({"kafka_fetch_max_bites": "1"}, "fetch.max.bites"),
    ],
)
def test_mistakes_are_told(spark: SparkSession, broker: LocalBroker, options: dict[str, str], words: str) -> None:
    with pytest.raises(AnalysisException) as caught:
        read(spark, broker.bootstrap, **options).collect()
    assert words in str(caught.value)


def test_a_stream_reads_on_from_its_checkpoint(spark: SparkSession, broker: LocalBroker, tmp_path: Path) -> None:
    def send(first: int, behind: int, **where: Any) -> None:
        with Producer(broker.bootstrap) as producer:
            for number in range(first, behind):
                producer.send("streamed", b"%d" % number, **where)

    def run() -> list[int]:
        """Reads all that is there, and gives what has been written so far."""
        stream = spark.readStream.format("headwater").option("bootstrap", broker.bootstrap)
        written = (
            stream.option("topics", "streamed")
            .load()
            .selectExpr("cast(cast(value as string) as long) as number")
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "rows"))
        )
        assert written.awaitTermination(60)
        return sorted(row.number for row in spark.read.parquet(str(tmp_path / "rows")).collect())

    send(0, 100)
    assert run() == [*range(100)]
    send(100, 150)
    with Admin(broker.bootstrap) as admin:
        admin.create_partitions({"streamed": 2})
    send(150, 160, partition=1)
    assert run() == [*range(160)]
    assert run() == [*range(160)]


def test_a_stream_has_no_end(spark: SparkSession, broker: LocalBroker, tmp_path: Path) -> None:
    stream = spark.readStream.format("headwater").option("bootstrap", broker.bootstrap).option("topics", "numbers")
    query = stream.option("ending", "earliest").load().writeStream.format("noop")
    with pytest.raises(Exception, match="a stream has no end: leave the option ending out"):
        query.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start().awaitTermination(60)


def test_what_goes_to_executors_is_pickled(broker: LocalBroker) -> None:
    source = HeadwaterDataSource({"bootstrap": broker.bootstrap, "topics": "numbers"})
    reader = pickle.loads(pickle.dumps(source)).reader(source.schema())
    reader.pushFilters([])
    splits = pickle.loads(pickle.dumps(reader.partitions()))
    reader = pickle.loads(pickle.dumps(reader))
    assert sum(batch.num_rows for split in splits for batch in reader.read(split)) == RECORDS
