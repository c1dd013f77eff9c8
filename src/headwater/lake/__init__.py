"""The data lake: PySpark loads topics, files and tables into Iceberg, exactly once.

>>> from headwater.lake import Lake
>>> with Lake("warehouse") as lake:
...     lake.load("topic:orders", into="shop.orders", bootstrap="localhost:9092")
...     print(lake.sql("select count(*) from shop.orders"))  # doctest: +SKIP
"""

from typing import TYPE_CHECKING

from headwater.lazy_names import lazy_names

if TYPE_CHECKING:
    from headwater.lake.errors import LakeBusyError as LakeBusyError
    from headwater.lake.errors import LakeError as LakeError
    from headwater.lake.errors import LakeUsageError as LakeUsageError
    from headwater.lake.lake import Lake as Lake
    from headwater.lake.spark import SparkSettings as SparkSettings

__all__ = ["Lake", "LakeBusyError", "LakeError", "LakeUsageError", "SparkSettings"]

__getattr__ = lazy_names(
    __name__,
    {
        "Lake": "headwater.lake.lake",
        "LakeBusyError": "headwater.lake.errors",
        "LakeError": "headwater.lake.errors",
        "LakeUsageError": "headwater.lake.errors",
        "SparkSettings": "headwater.lake.spark",
    },
)
