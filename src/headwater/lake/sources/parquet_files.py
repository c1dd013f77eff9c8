"""Parquet files as rows: Spark's own reader does the work, schema by schema; what it cannot read goes through pyarrow.

The footers of new files are read here, and tell the types. Files with the same columns are read together.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Final, TypeAlias

import pyarrow as pa
import pyarrow.types as pt
from pyarrow import parquet

from headwater.lake.arrow_types import spark_schema
from headwater.lake.datasource.columns import RESCUED
from headwater.lake.datasource.file_manifest import Manifest, ManifestFile
from headwater.lake.datasource.file_streams import ORIGIN_COLUMNS, Files, words_of_change
from headwater.lake.datasource.parquet_reader import has_nanoseconds, plain_schema, readable_columns
from headwater.lake.shapes import Policies, Shape, merge_shapes, shape_of_arrow
from headwater.lake.shapes.csv_text import parse_csv
from headwater.lake.shapes.paths import join

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_THREADS: Final = 8
_READ_AS_PATTERN: Final = re.compile(r"[*?\[\]{}\\]")
"""Spark takes paths for patterns: those with such a character are read by pyarrow."""
_SPARK_READS: Final = (
    pt.is_boolean,
    pt.is_integer,
    pt.is_float32,
    pt.is_float64,
    pt.is_decimal128,
    pt.is_string,
    pt.is_large_string,
    pt.is_string_view,
    pt.is_binary,
    pt.is_large_binary,
    pt.is_binary_view,
    pt.is_date,
    pt.is_timestamp,
    pt.is_null,
)

ThroughPyarrow: TypeAlias = "Callable[[SparkSession, Manifest, pa.Schema], DataFrame]"
"""Reads the files of a manifest as rows of a schema, with the data source `headwater`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Footer:
    """The columns of a file in types that Spark has, and those that are read through pyarrow where Spark cannot."""

    schema: pa.Schema
    through_pyarrow: pa.Schema | None = None


def shape_of_parquet(manifest: Manifest) -> Shape:
    """What the footers say; no record is read."""
    return merge_shapes(shape_of_arrow(schema) for schema in {footer.schema: None for footer in _footers(manifest)})


def read_parquet(
    spark: "SparkSession",
    through_pyarrow: ThroughPyarrow,
    manifest: Manifest,
    fields: pa.Schema,
    policies: Policies,
) -> "DataFrame":
    """The rows of all files with exactly these fields."""
    from headwater.lake.load.conforming import conform

    groups: dict[_Footer, list[ManifestFile]] = {}
    for file, footer in zip(manifest.files, _footers(manifest), strict=True):
        groups.setdefault(footer, []).append(file)
    frames = []
    for footer, files in groups.items():
        if footer.through_pyarrow is None:
            frame, origin = _through_spark(spark, files, footer.schema)
        else:
            columns = pa.schema([*footer.through_pyarrow, *ORIGIN_COLUMNS])
            frame = through_pyarrow(spark, replace(manifest, files=files), columns)
            origin = {name: name for name in ORIGIN_COLUMNS.names}
        frames.append(conform(frame, fields, origin, policies))
    return _completed(reduce(lambda one, other: one.union(other), frames), manifest.files, fields, policies)


def _footers(manifest: Manifest) -> list[_Footer]:
    files = Files(manifest.store)
    with ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(lambda file: _footer(files, file, is_local=manifest.store is None), manifest.files))


def _footer(files: Files, file: ManifestFile, *, is_local: bool) -> _Footer:
    with files.opened(file, uncompressed=False) as stream:
        opened = parquet.ParquetFile(stream)
        leaves = iter([opened.schema.column(place).physical_type for place in range(len(opened.schema))])
        types = [pa.field(field.name, _with_instants(field.type, leaves)) for field in opened.schema_arrow]
    if is_local and not _READ_AS_PATTERN.search(file.path) and _spark_reads(pa.struct(types)):
        return _Footer(schema=plain_schema(pa.schema(types)))
    schema = opened.schema_arrow.remove_metadata()
    return _Footer(schema=plain_schema(schema), through_pyarrow=readable_columns(schema))


def _with_instants(type_: pa.DataType, leaves: Iterator[str]) -> pa.DataType:
    """The type, with instants for times as older writers have them: in 96 bits, which Spark reads so."""
    if pt.is_struct(type_):
        return pa.struct([pa.field(field.name, _with_instants(field.type, leaves)) for field in type_])
    if pt.is_map(type_):
        return pa.map_(_with_instants(type_.key_type, leaves), _with_instants(type_.item_type, leaves))
    if pt.is_list(type_) or pt.is_large_list(type_) or pt.is_fixed_size_list(type_):
        return pa.list_(_with_instants(type_.value_type, leaves))
    return pa.timestamp("us", "UTC") if next(leaves) == "INT96" else type_


def _spark_reads(type_: pa.DataType) -> bool:
    if pt.is_struct(type_):
        names = {field.name.lower() for field in type_}
        return len(names) == type_.num_fields and all(_spark_reads(field.type) for field in type_)
    if pt.is_map(type_):
        return _spark_reads(type_.key_type) and _spark_reads(type_.item_type)
    if pt.is_list(type_) or pt.is_large_list(type_) or pt.is_fixed_size_list(type_) or pt.is_dictionary(type_):
        return _spark_reads(type_.value_type)
    return any(is_(type_) for is_ in _SPARK_READS) and not has_nanoseconds(type_)


def _through_spark(
    spark: "SparkSession", files: Sequence[ManifestFile], schema: pa.Schema
) -> "tuple[DataFrame, dict[str, Column]]":
    from pyspark.sql import functions as f

    # Folders are looked at by us: Spark would make columns of them after its own rules.
    reader = spark.read.schema(spark_schema(schema)).option("recursiveFileLookup", "true")
    frame = reader.parquet(*(file.path for file in files))
    about = frame.metadataColumn("_metadata")
    # The path is a URL there, in which a plus is a plus.
    path = f.url_decode(f.replace(about["file_path"], f.lit("+"), f.lit("%2B")))
    return frame, {
        "_path": f.regexp_replace(path, "^file:/+", "/"),
        "_modified": about["file_modification_time"],
        "_row": about["row_index"],
    }


def _completed(frame: "DataFrame", files: Sequence[ManifestFile], fields: pa.Schema, policies: Policies) -> "DataFrame":
    """The rows with all that is known of their files. An error if a file was changed since."""
    from pyspark.sql import functions as f

    about = _about(files, fields, policies)
    known = f.broadcast(frame.sparkSession.createDataFrame(about))
    joined = frame.join(known, frame["_path"] == known["file"], "left")
    unchanged = f.unix_millis(frame["_modified"]) == f.unix_millis(known["modified"])
    error = f.raise_error(f.concat(frame["_path"], f.lit(words_of_change("was changed"))))
    columns = {name: frame[_quoted(name)] for name in frame.columns}
    columns["_modified"] = f.when(unchanged, known["modified"]).otherwise(error.cast("timestamp"))
    for place, key in enumerate(_keys(files)):
        if f"key{place}" in about.schema.names:
            columns[key] = f.coalesce(columns[key], known[f"key{place}"])
        if f"text{place}" in about.schema.names:
            misfit = known[f"text{place}"]
            if key in columns:
                misfit = f.when(columns[key].isNull(), misfit)
            entry = f.create_map(f.lit(join("", key)), misfit)
            more = f.map_concat(f.coalesce(columns[RESCUED], f.create_map().cast("map<string,string>")), entry)
            columns[RESCUED] = f.when(misfit.isNotNull(), more).otherwise(columns[RESCUED])
    return joined.select(*(column.alias(name) for name, column in columns.items()))


def _about(files: Sequence[ManifestFile], fields: pa.Schema, policies: Policies) -> pa.Table:
    """What is known of each file: its time, and what its folders say, typed, or as text where it fits no column."""
    columns = {
        "file": pa.array([file.path for file in files], pa.string()),
        "modified": pa.array([file.modified_ns // 1000 for file in files], pa.timestamp("us", "UTC")),
    }
    keys = _keys(files)
    texts = pa.table({key: pa.array([file.keys.get(key) for file in files], pa.string()) for key in keys})
    if not keys:
        return pa.table(columns)
    parsed = parse_csv(texts, fields, policies)
    rescued = [dict(entries or ()) for entries in parsed.column(RESCUED).to_pylist()]
    for place, key in enumerate(keys):
        if key in parsed.schema.names and parsed.column(key).null_count < len(files):
            columns[f"key{place}"] = parsed.column(key)
        misfits = pa.array([entries.get(join("", key)) for entries in rescued], pa.string())
        if misfits.null_count < len(files):
            columns[f"text{place}"] = misfits
    return pa.table(columns)


def _keys(files: Sequence[ManifestFile]) -> list[str]:
    return sorted({key for file in files for key in file.keys})


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
