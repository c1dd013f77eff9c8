"""Schemas in the three tongues of the lake: Arrow between our parts, Spark's in a DataFrame, Iceberg's in a table."""

from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def spark_schema(schema: pa.Schema) -> "StructType":
    """The schema as Spark says it; everything may be null, because data decides that."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema, prefer_timestamp_ntz=True)
