"""Topics as a source: new is what lies between the position and the end of each partition.

A position is `{"topics": {"orders": {"0": 124}}, "ids": {"orders": "…"}}`: the next offsets, and the topic that they
are of. Old brokers have no ids, and a rewind keeps none: then whatever topic bears the name is loaded.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from headwater.lake.arrow_types import spark_schema
from headwater.lake.datasource.brokers import Brokers
from headwater.lake.datasource.columns import HEADERS, TOPIC_COLUMNS
from headwater.lake.datasource.options import CorruptPolicy
from headwater.lake.datasource.spots import LATEST, DataLoss, Earliest, Spots, parse_spots
from headwater.lake.datasource.topic_offsets import TopicRange, find_ranges, topic_ids
from headwater.lake.errors import LakeError, LakeUsageError
from headwater.lake.shapes import Policies, Shape, merge_shapes
from headwater.lake.sources.source import Position
from headwater.lake.values import nearest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

    from headwater.catalog.client import CatalogClient

_PARTITION: Final = "_partition"
_PARTITION_ID: Final = "_partition_id"
"""What the partition is called in a table: `_partition` is one of Iceberg's own columns there."""

_ORIGIN: Final = (
    pa.field("_key", pa.binary()),
    pa.field(_PARTITION_ID, pa.int32()),
    pa.field("_offset", pa.int64()),
    pa.field("_timestamp", pa.timestamp("us", tz="UTC")),
)
_SETTING: Final = "kafka."
"""What the names of a client's settings begin with among the options of a source."""

DEFAULT_BOOTSTRAP: Final = "localhost:9092"
_FIXED: Final = {"text": pa.schema([("value", pa.string())]), "raw": pa.schema([("value", pa.binary())])}
_ALLOWED: Final = {
    "value": ("json", *_FIXED),
    "headers": ("true", "false"),
    "data_loss": ("fail", "skip"),
    "corrupt_records": ("fail", "skip"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSource:
    """One topic, or several that go into one table."""

    topics: Sequence[str]
    bootstrap: str
    value: str = "json"
    headers: bool = False
    starting: str = "earliest"
    data_loss: DataLoss = "fail"
    corrupt_records: CorruptPolicy = "fail"
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """`topic:orders`."""
        return "topic:" + ",".join(sorted(self.topics))

    @property
    def fixed(self) -> pa.Schema | None:
        """Text and raw bytes are one column."""
        return _FIXED.get(self.value)

    @property
    def origin(self) -> pa.Schema:
        """Key, partition, offset and timestamp; the topic's name where there are several; headers if asked for."""
        topic = [TOPIC_COLUMNS.field("_topic")] if len(self.topics) > 1 else []
        headers = [TOPIC_COLUMNS.field(HEADERS)] if self.headers else []
        return pa.schema([*topic, *_ORIGIN, *headers])

    @property
    def event_time(self) -> str | None:
        """A record's timestamp."""
        return "_timestamp"

    def look(self, catalog: "CatalogClient", table: str, position: Position | None) -> "TopicNews | None":
        """Asks the brokers only: no Spark is needed to see that nothing is new."""
        with Brokers(self.bootstrap, self.settings) as brokers:
            ids = topic_ids(brokers, self.topics)
            for topic in made_anew(position, ids):
                raise LakeError(
                    f"topic {topic} was deleted and made anew since the last load, and its offsets begin again; "
                    f"nothing was loaded. `headwater lake rewind {table} {self.id} --to earliest --delete` puts the "
                    "new one in the place of the old; or load it into another table"
                )
            ranges = find_ranges(brokers, self.topics, self.starts(position), LATEST, data_loss=self.data_loss)
        if not any(found.start < found.end for found in ranges):
            return None
        return TopicNews(source=self, ranges=tuple(ranges), ids=ids)

    def starts(self, position: Position | None) -> Spots:
        """Where the next load begins in each partition; one that was added since, at its beginning."""
        starting = self.starting if position is None else json.dumps(offsets_of(position))
        return parse_spots("starting", starting, others=Earliest())


def offsets_of(position: Position | None) -> Mapping[str, Mapping[str, int]]:
    """The next offsets by topic and partition; none where there is no position."""
    topics: Mapping[str, Mapping[str, int]] = {} if position is None else position.get("topics", {})
    return topics


def made_anew(position: Position | None, ids: Mapping[str, str]) -> list[str]:
    """The topics that are not those which the position is of, by their ids."""
    known: Mapping[str, str] = {} if position is None else position.get("ids", {})
    return [topic for topic, topic_id in known.items() if ids.get(topic, topic_id) != topic_id]


def parse_topics(text: str, *, bootstrap: str | None = None, **options: Any) -> TopicSource:
    """The source that names of topics with commas between make, with its options.

    >>> parse_topics("orders", value="text", **{"kafka.check.crcs": "false"}).settings
    {'check.crcs': 'false'}
    """
    names = ("value", "headers", "starting", "data_loss", "corrupt_records", "settings")
    for name in options:
        if name not in names and not name.startswith(_SETTING):
            shown = f"{', '.join(names[:-1])} and {_SETTING}*"
            raise LakeUsageError(f"topics have no option {name!r}{nearest(name, names)}; they have {shown}")
    for name, allowed in _ALLOWED.items():
        if name in options and str(options[name]).lower() not in allowed:
            raise LakeUsageError(f"{name} = {options[name]!r} is not allowed for topics: use {', '.join(allowed)}")
    settings = {name.removeprefix(_SETTING): value for name, value in options.items() if name.startswith(_SETTING)}
    own = {name: value for name, value in options.items() if name in names[:-1]}
    own["headers"] = str(options.get("headers", False)).lower() == "true"
    return TopicSource(
        topics=tuple(sorted({name.strip() for name in text.split(",") if name.strip()})),
        bootstrap=bootstrap or DEFAULT_BOOTSTRAP,
        settings={**options.get("settings", {}), **settings},
        **own,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicNews:
    """Offset ranges of partitions, one each."""

    source: TopicSource
    ranges: Sequence[TopicRange]
    ids: Mapping[str, str]

    @property
    def after(self) -> Position:
        """The offsets to read next, and of which topics."""
        return {"topics": self._offsets("end"), **({"ids": dict(self.ids)} if self.ids else {})}

    @property
    def words(self) -> str:
        """How many offsets in how many partitions."""
        offsets = sum(found.end - found.start for found in self.ranges)
        busy = sum(found.start < found.end for found in self.ranges)
        return f"{offsets:,} offsets in {busy:,} partition{'' if busy == 1 else 's'}"

    @property
    def details(self) -> Mapping[str, Any]:
        """Where it begins: not at the position where there was none yet, or where the log had lost something."""
        return {"from": self._offsets("start")}

    @property
    def replaced(self) -> Sequence[str]:
        """Records of topics do not change."""
        return ()

    def shape(self, spark: "Callable[[], SparkSession]") -> Shape:
        """Each split says what it saw; the shapes are merged here."""
        seen = self._reader(spark()).option("value", "shape").load().collect()
        return merge_shapes(Shape.from_json(row.shape) for row in seen)

    def read(self, spark: "SparkSession", fields: pa.Schema, policies: Policies) -> "DataFrame":
        """The records, parsed where they are fetched."""
        reader = self._reader(spark).option("value", self.source.value).option("policies", policies.to_json())
        wanted = pa.schema([each.with_name(_PARTITION) if each.name == _PARTITION_ID else each for each in fields])
        return reader.schema(spark_schema(wanted)).load().withColumnRenamed(_PARTITION, _PARTITION_ID)

    def register(self, catalog: "CatalogClient", load_id: str) -> None:
        """Offsets fit into the position."""

    def _reader(self, spark: "SparkSession") -> "DataFrameReader":
        reader = spark.read.format("headwater").option("bootstrap", self.source.bootstrap)
        reader = reader.option("topics", ",".join(self.source.topics)).option("data.loss", self.source.data_loss)
        reader = reader.option("corrupt.records", self.source.corrupt_records)
        reader = reader.option("starting", json.dumps(self._offsets("start")))
        reader = reader.option("ending", json.dumps(self._offsets("end")))
        for name, value in self.source.settings.items():
            reader = reader.option(f"kafka.{name}", value)
        return reader

    def _offsets(self, edge: str) -> dict[str, dict[str, int]]:
        offsets: dict[str, dict[str, int]] = defaultdict(dict)
        for found in self.ranges:
            offsets[found.topic][str(found.partition)] = getattr(found, edge)
        return dict(offsets)
