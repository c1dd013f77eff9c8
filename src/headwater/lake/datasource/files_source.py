"""Spark's side of a read of files: the driver plans splits of what a manifest names, and executors read them."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql import datasource as spark
from pyspark.sql.pandas.types import to_arrow_schema

from headwater.lake.datasource.file_manifest import Manifest
from headwater.lake.datasource.files_reader import FileSplit, read_rows, read_shape, splits_of
from headwater.lake.datasource.options import FileReadOptions
from headwater.lake.shapes import Policies

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


class FilePartition(spark.InputPartition):
    """What one task reads."""

    def __init__(self, split: FileSplit) -> None:
        super().__init__(None)
        self.split = split


class FilesReader(spark.DataSourceReader):
    """A read of the files that a manifest names."""

    def __init__(self, options: FileReadOptions, schema: "StructType") -> None:
        self._options = options
        self._wanted = to_arrow_schema(schema)

    def partitions(self) -> list[FilePartition]:
        """On the driver, where the manifest is."""
        manifest = Manifest.from_file(self._options.manifest)
        return [FilePartition(split) for split in splits_of(manifest, self._options.split_bytes)]

    def read(self, partition: spark.InputPartition | None) -> "Iterator[pa.RecordBatch]":
        """On an executor: one split. Spark gives None where there are no splits."""
        if not isinstance(partition, FilePartition):
            return iter(())
        if self._options.value == "shape":
            return iter([read_shape(partition.split)])
        return read_rows(partition.split, self._wanted, Policies.from_json(self._options.policies))
