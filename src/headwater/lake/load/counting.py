"""Counts the rows of a load while they are written: each once, however often Spark comes to compute it.

What Spark observes on the way is summed up over tasks that succeeded. One whose output was lost with its worker, before
others had fetched it, runs again and is added again. So every run says of which task it is. Where one has run twice,
the sums are not to be trusted, and the rows are counted by a query.
"""

from typing import TYPE_CHECKING, Final

from headwater.lake.load.request import Counts

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_TASK: Final = "_headwater_task"
_ROW_IN_TASK: Final = (1 << 33) - 1
"""The bits of `monotonically_increasing_id` that number the rows of a task, from 0."""


class CountedRows:
    """Rows for whoever writes them, and their counts for when that is done."""

    def __init__(self, rows: "DataFrame") -> None:
        from pyspark.sql import Observation
        from pyspark.sql import functions as f

        self._rows = rows
        self._seen = Observation()
        if _has_one_executor(rows.sparkSession):
            # It never loses one, and a mark in every row is not for free.
            self.rows = rows.observe(self._seen, *_counts())
            return
        is_first = f.monotonically_increasing_id().bitwiseAND(f.lit(_ROW_IN_TASK)) == 0
        marked = rows.withColumn(_TASK, f.when(is_first, f.spark_partition_id().cast("string")))
        runs = f.array_join(f.collect_list(_TASK), ",").alias("runs")
        self.rows = marked.observe(self._seen, *_counts(), runs).drop(_TASK)

    def counts(self) -> Counts:
        """To be asked once the rows are written."""
        seen = self._seen.get
        runs = seen.get("runs", "").split(",")
        if len(runs) > len({*runs}):
            (again,) = self._rows.agg(*_counts()).collect()
            seen = again.asDict()
        return Counts(rows=seen["rows"], rescued=seen["rescued"], corrupt=seen["corrupt"])


def _counts() -> "list[Column]":
    from pyspark.sql import functions as f

    return [
        f.count(f.lit(1)).alias("rows"),
        f.count("_rescued").alias("rescued"),
        f.count("_corrupt_record").alias("corrupt"),
    ]


def _has_one_executor(spark: "SparkSession") -> bool:
    """Whether Spark computes everything inside the driver."""
    master = spark.sparkContext.master or ""
    return master == "local" or master.startswith("local[")
