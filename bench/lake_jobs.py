"""The jobs of the lake's benchmark as each side does them: headwater, and Spark with its own Kafka connector.

Both work in a session with the same settings and write to the same catalog, into tables of the same layout.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

from headwater.lake import Lake
from headwater.lake.jars import Coordinates
from lake_data import Totals

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

CORES: Final = 2
SPARK: Final = "org.apache.spark"
CONNECTOR: Final = (
    Coordinates(
        *(SPARK, "spark-sql-kafka-0-10_2.13", "4.1.3"),
        sha256="cb31ffd9c8f5527dba061db8af671d295562092e4f3f5ff42fc249fab8a8fde6",
    ),
    Coordinates(
        *(SPARK, "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
        sha256="f2be3b76f9e6cbe63379d4e4e0dc14f59dbf056ae2ad16ff15ac108004c86767",
    ),
    Coordinates(
        *("org.apache.kafka", "kafka-clients", "3.9.1"),
        sha256="7568b998572d256f0b7bc0afdc1b7a2588b8b08415c62ce314c864a6851ae9d9",
    ),
    Coordinates(
        *("org.apache.commons", "commons-pool2", "2.12.1"),
        sha256="5273c8bc8c0dca2211175c0d27efbd7228efae99689aac001a8e1ef8e872e9ef",
    ),
)
"""Spark's own connector with what it needs: the newest that Maven Central has for Spark 4.1."""

SCAN, LOAD, LOAD_JSON = "scan", "load", "load_json"
OURS, PEER, TUNED_PEER = "ours", "peer", "tuned peer"

_TUNED: Final = {
    "kafka.max.poll.records": 20_000,
    "kafka.max.partition.fetch.bytes": 4 << 20,
    "kafka.receive.buffer.bytes": 1 << 20,
    "kafka.fetch.max.wait.ms": 20,
}
"""With which the connector is fastest: after each poll it asks for offsets, at the end behind its own long poll."""

_PLAIN_TOTALS: Final = "count(*), sum({offset}), sum(length({key})), sum(length(value))"
_JSON_TOTALS: Final = (
    "count(*), sum({offset}), sum(id), sum(cast(round(amount * 100) as bigint)), sum(items[0].pieces), "
    "sum(length(customer.name))"
)


class Side(Protocol):
    """What both sides can do. A job that answers with nothing has filled a table; `totals` looks into it."""

    def scan(self, topic: str, table: str) -> Totals | None:
        """Reads a whole topic and looks at each key, value and offset."""

    def load(self, topic: str, table: str) -> Totals | None:
        """Appends the records of a topic to a new table as they are."""

    def load_json(self, topic: str, table: str) -> Totals | None:
        """Finds out which fields the records of a topic have, and appends them to a new table with typed columns."""

    def totals(self, job: str, table: str) -> Totals:
        """Counts and sums over what a load has written."""


class Ours:
    """headwater's data source, and its lake."""

    def __init__(self, lake: Lake, bootstrap: str) -> None:
        self._lake = lake
        self._bootstrap = bootstrap

    def scan(self, topic: str, table: str) -> Totals | None:
        """All columns are there, as for a user who names none."""
        reader = self._lake.spark.read.format("headwater").option("bootstrap", self._bootstrap)
        return _asked(reader.option("topics", topic).load(), SCAN, key="_key", offset="_offset")

    def load(self, topic: str, table: str) -> Totals | None:
        """`headwater lake load --value raw`."""
        self._lake.load(f"topic:{topic}", into=table, bootstrap=self._bootstrap, source_options={"value": "raw"})
        return None

    def load_json(self, topic: str, table: str) -> Totals | None:
        """`headwater lake load`."""
        self._lake.load(f"topic:{topic}", into=table, bootstrap=self._bootstrap)
        return None

    def totals(self, job: str, table: str) -> Totals:
        """Counts and sums over what a load has written."""
        return _asked(self._lake.spark.table(table), job, key="_key", offset="_offset")


class Peer:
    """The same with what Spark brings, without a line of Python that runs for a record."""

    def __init__(self, lake: Lake, bootstrap: str, settings: Mapping[str, int] | None = None) -> None:
        self._spark = lake.spark
        self._bootstrap = bootstrap
        self._settings = settings or {}
        self._spark.sql("create namespace if not exists bench")

    def scan(self, topic: str, table: str) -> Totals | None:
        """The connector gives all columns, whatever is wanted."""
        return _asked(self._read(topic), SCAN, key="key", offset="offset")

    def load(self, topic: str, table: str) -> Totals | None:
        """The same columns as ours."""
        self._create(self._read(topic).select("key", "value", "partition", "offset", "timestamp"), table)
        return None

    def load_json(self, topic: str, table: str) -> Totals | None:
        """Two passes over the topic, as ours: one for the schema, one for the rows."""
        from pyspark.sql import functions as f

        rows = self._read(topic).withColumn("text", f.col("value").cast("string"))
        typed = rows.withColumn("record", f.from_json("text", self._inferred(rows)))
        self._create(typed.select("record.*", "key", "partition", "offset", "timestamp"), table)
        return None

    def totals(self, job: str, table: str) -> Totals:
        """Counts and sums over what a load has written."""
        return _asked(self._spark.table(table), job, key="key", offset="offset")

    def _read(self, topic: str) -> "DataFrame":
        reader = self._spark.read.format("kafka").option("kafka.bootstrap.servers", self._bootstrap)
        # A partition is one task otherwise, and one core does all the work.
        reader = reader.option("subscribe", topic).option("minPartitions", 2 * CORES)
        for name, value in self._settings.items():
            reader = reader.option(name, value)
        return reader.load()

    def _inferred(self, rows: "DataFrame") -> "StructType":
        """`spark.read.json` of a dataset of strings: Python has it for an RDD only, which is far slower."""
        from pyspark.sql import DataFrame

        jvm: Any = self._spark._jvm
        texts = getattr(rows.select("text")._jdf, "as")(jvm.org.apache.spark.sql.Encoders.STRING())
        return DataFrame(self._spark.read._jreader.json(texts), self._spark).schema

    def _create(self, rows: "DataFrame", table: str) -> None:
        """Days as partitions, no shuffle, open files for each of them: what headwater sets by itself."""
        from pyspark.sql import functions as f

        writer = rows.writeTo(table).using("iceberg").partitionedBy(f.partitioning.days("timestamp"))
        writer = writer.tableProperty("format-version", "2").tableProperty("write.distribution-mode", "none")
        writer.option("fanout-enabled", "true").create()


def sides(lake: Lake, bootstrap: str) -> dict[str, Side]:
    """All who can do a job, by name."""
    return {
        OURS: Ours(lake, bootstrap),
        PEER: Peer(lake, bootstrap),
        TUNED_PEER: Peer(lake, bootstrap, _TUNED),
    }


def _asked(rows: "DataFrame", job: str, *, key: str, offset: str) -> Totals:
    question = (_JSON_TOTALS if job == LOAD_JSON else _PLAIN_TOTALS).format(key=key, offset=offset)
    rows.createOrReplaceTempView("asked")
    (answer,) = rows.sparkSession.sql(f"select {question} from asked").collect()
    return tuple(int(total) for total in answer)
