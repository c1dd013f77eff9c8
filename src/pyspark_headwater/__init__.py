"""Where Spark finds the data source `headwater` by itself: it looks for packages that are called `pyspark_…`."""

from headwater.lake.datasource.source import HeadwaterDataSource as DefaultSource

__all__ = ["DefaultSource"]
