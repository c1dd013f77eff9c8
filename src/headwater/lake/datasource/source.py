"""Spark's side of the data source: what Spark calls on the driver to plan, and on executors to read.

Spark pickles these objects from process to process: they hold options and schemas, never open connections.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import datasource as spark
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from headwater.lake.datasource.columns import HEADERS, TOPIC_COLUMNS
from headwater.lake.datasource.lanes import default_columns, lane, needed_columns
from headwater.lake.datasource.options import MANIFEST, ReadOptions, parse_file_options, parse_options

if TYPE_CHECKING:
    import pyarrow as pa

    from headwater.lake.datasource.filters import Condition
    from headwater.lake.datasource.topic_offsets import TopicRange

# What needs a client is imported where it is used: Spark starts a process for every step, and most need none.

_COMPARISONS: Final[Mapping[type[spark.Filter], str]] = {
    spark.EqualTo: "=",
    spark.EqualNullSafe: "=",
    spark.LessThan: "<",
    spark.LessThanOrEqual: "<=",
    spark.GreaterThan: ">",
    spark.GreaterThanOrEqual: ">=",
    spark.In: "in",
    spark.IsNotNull: "not null",
}


class HeadwaterDataSource(spark.DataSource):
    """Topics of any Kafka for Spark. The options are those of `options.ReadOptions`.

    >>> reading = spark.read.format("headwater").option("bootstrap", "localhost:9092")  # doctest: +SKIP
    >>> reading.option("topics", "orders").load().show()  # doctest: +SKIP
    """

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._file_options = parse_file_options(dict(options)) if MANIFEST in options else None
        if self._file_options is None:
            self._read_options = parse_options(dict(options))

    @classmethod
    def name(cls) -> str:
        """What `format` takes."""
        return "headwater"

    def schema(self) -> StructType:
        """The columns where the user names none."""
        if self._file_options is not None:
            from headwater.lake.datasource.files_reader import default_file_columns

            return from_arrow_schema(default_file_columns(self._file_options))
        options = self._read_options
        raw = TOPIC_COLUMNS if options.headers else TOPIC_COLUMNS.remove(TOPIC_COLUMNS.get_field_index(HEADERS))
        return from_arrow_schema(default_columns(options.value, raw))

    def reader(self, schema: StructType) -> spark.DataSourceReader:
        """For `spark.read`."""
        if self._file_options is not None:
            from headwater.lake.datasource.files_source import FilesReader

            return FilesReader(self._file_options, schema)
        return TopicReader(self._read_options, schema)

    def streamReader(self, schema: StructType) -> spark.DataSourceStreamReader:  # noqa: N802
        """For `spark.readStream`."""
        from headwater.lake.datasource.stream import TopicStreamReader

        return TopicStreamReader(self._read_options, schema)


class TopicSplit(spark.InputPartition):
    """What one task reads."""

    def __init__(self, wanted: "TopicRange") -> None:
        super().__init__(wanted)
        self.wanted = wanted


class SplitReader:
    """On executors: reads a split as the columns that are wanted."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._wanted = to_arrow_schema(schema)
        self._needed = needed_columns(options.value, self._wanted, TOPIC_COLUMNS)

    def batches(self, split: spark.InputPartition | None) -> "Iterator[pa.RecordBatch]":
        """The batches of one split; Spark gives None where there are no splits."""
        from headwater.lake.datasource.brokers import Brokers
        from headwater.lake.datasource.corrupt_rows import CorruptRows
        from headwater.lake.datasource.topic_reader import read_range
        from headwater.lake.datasource.worker_upkeep import keep_quick

        if not isinstance(split, TopicSplit):
            return
        keep_quick()
        with Brokers(self._options.bootstrap, self._options.settings) as brokers:
            corrupt = CorruptRows(self._wanted)
            raw = read_range(
                brokers,
                split.wanted,
                columns=self._needed,
                data_loss=self._options.data_loss,
                on_corrupt=corrupt.take if self._options.corrupt_records == "skip" else None,
            )
            yield from corrupt.among(lane(self._options.value, self._wanted, self._options.policies)(raw))


class TopicReader(spark.DataSourceReader):
    """A bounded read: its offsets are fixed when Spark plans it."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._splits = SplitReader(options, schema)
        self._conditions: tuple[Condition, ...] = ()
        self.pushFilters = _Pushdown(self)  # type: ignore[method-assign]

    def take_filters(self, filters: Iterable[spark.Filter]) -> Iterator[spark.Filter]:
        """On the driver: keeps what narrows the ranges, and gives back what Spark has to check in the rows."""
        from headwater.lake.datasource.filters import Use, use_of

        for each in filters:
            condition = _condition(each)
            use = Use.NOT if condition is None else use_of(condition)
            if condition is not None and use is not Use.NOT:
                self._conditions += (condition,)
            if use is not Use.EXACT:
                yield each

    def partitions(self) -> list[TopicSplit]:
        """On the driver: the splits of all partitions."""
        from headwater.lake.datasource.brokers import Brokers
        from headwater.lake.datasource.filters import earliest_time_ms, narrowed, started_at
        from headwater.lake.datasource.splits import split_ranges
        from headwater.lake.datasource.topic_offsets import find_ranges, timestamp_offsets
        from headwater.lake.datasource.worker_upkeep import keep_quick

        keep_quick()
        options = self._options
        with Brokers(options.bootstrap, options.settings) as brokers:
            ranges = find_ranges(brokers, options.topics, options.starting, options.ending, data_loss=options.data_loss)
            ranges = narrowed(ranges, self._conditions)
            since_ms = earliest_time_ms(self._conditions)
            if since_ms is not None:
                ranges = started_at(ranges, timestamp_offsets(brokers, ranges, since_ms))
        return [TopicSplit(piece) for piece in split_ranges(ranges, options.split_bytes)]

    def read(self, partition: spark.InputPartition | None) -> "Iterator[pa.RecordBatch]":
        """On an executor: one split."""
        return self._splits.batches(partition)


class _Pushdown:
    """`pushFilters` of a reader that Spark may leave alone.

    Spark refuses to use a reader that overrides the method unless `spark.sql.python.filterPushdown.enabled` is set,
    which it is not by default. Whether it does, Spark sees by `__func__`: with that of the base class, the reader is
    used either way, and its filters where that is enabled.
    """

    __func__ = staticmethod(spark.DataSourceReader.pushFilters)

    def __init__(self, reader: TopicReader) -> None:
        self._reader = reader

    def __call__(self, filters: list[spark.Filter]) -> Iterable[spark.Filter]:
        return self._reader.take_filters(filters)


def _condition(each: spark.Filter) -> "Condition | None":
    from headwater.lake.datasource.filters import Condition

    comparison = _COMPARISONS.get(type(each))
    if comparison is None:
        return None
    found: Any = each
    column = ".".join(found.attribute)
    if comparison == "not null":
        return Condition(column=column, comparison=comparison, value=None)
    return Condition(
        column=column, comparison=comparison, value=tuple(found.value) if comparison == "in" else found.value
    )
