"""`spark.readStream` over topics: each micro-batch is a bounded read between two positions that Spark keeps.

A position is JSON, `{"topics": {"orders": {"0": 124}}}`: the next offset to read of each partition. One that was added
later is read from its earliest offset on.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from headwater.lake.datasource.brokers import Brokers
from headwater.lake.datasource.options import ReadOptions
from headwater.lake.datasource.source import SplitReader, TopicSplit
from headwater.lake.datasource.splits import split_ranges
from headwater.lake.datasource.spots import LATEST, AtOffset, Earliest, Spots
from headwater.lake.datasource.topic_offsets import TopicRange, find_ranges
from headwater.lake.errors import LakeUsageError
from headwater.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa


class TopicStreamReader(DataSourceStreamReader):
    """Plans micro-batches, in a process that Spark keeps for as long as the query runs; executors read them."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        if options.ending != LATEST:
            raise LakeUsageError("a stream has no end: leave the option ending out, or use spark.read")
        self._options = options
        self._splits = SplitReader(options, schema)
        self._brokers: Brokers | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Where a query starts that has no checkpoint yet."""
        return _position({_partition(each): each.start for each in self._ranges(self._options.starting, LATEST)})

    def latestOffset(self) -> dict[str, Any]:  # noqa: N802
        """Where the topics end now."""
        return _position({_partition(each): each.end for each in self._ranges(LATEST, LATEST)})

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[TopicSplit]:
        """The splits between two positions."""
        # What the later position does not know of has appeared since, and belongs to the next batch.
        ends = Spots(others=Earliest(), named=_spots(end))
        ranges = self._ranges(Spots(others=Earliest(), named=_spots(start)), ends)
        return [TopicSplit(piece) for piece in split_ranges(ranges, self._options.split_bytes)]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """On an executor: one split."""
        return self._splits.batches(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing to do: Spark keeps the position in its checkpoint."""

    def stop(self) -> None:
        """Ends the connections of the planning side."""
        if self._brokers is not None:
            self._brokers.close()
            self._brokers = None

    def _ranges(self, starts: Spots, ends: Spots) -> list[TopicRange]:
        if self._brokers is None:
            self._brokers = Brokers(self._options.bootstrap, self._options.settings)
        return find_ranges(self._brokers, self._options.topics, starts, ends, data_loss=self._options.data_loss)


def _partition(found: TopicRange) -> TopicPartition:
    return TopicPartition(found.topic, found.partition)


def _position(offsets: dict[TopicPartition, int]) -> dict[str, Any]:
    topics: dict[str, dict[str, int]] = {}
    for (topic, number), offset in offsets.items():
        topics.setdefault(topic, {})[str(number)] = offset
    return {"topics": topics}


def _spots(position: dict[str, Any]) -> dict[TopicPartition, AtOffset]:
    return {
        TopicPartition(topic, int(number)): AtOffset(offset=offset)
        for topic, offsets in position["topics"].items()
        for number, offset in offsets.items()
    }
