"""Reads pieces of files as rows, or as the shape that their records have. Needs no Spark.

A large file of lines is cut at newlines, so that all cores read it. Files of one split are read one after the other.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from headwater.lake.datasource.columns import CORRUPT, RESCUED, SHAPE, VALUE
from headwater.lake.datasource.csv_reader import CsvBatch, csv_batches
from headwater.lake.datasource.file_manifest import CsvOptions, FileFormat, Manifest, ManifestFile
from headwater.lake.datasource.file_splits import FilePiece, file_splits
from headwater.lake.datasource.file_streams import FILE_COLUMNS, Files, line_batches, origin_columns, whole_file
from headwater.lake.datasource.lanes import lane
from headwater.lake.datasource.options import FileReadOptions
from headwater.lake.datasource.parquet_reader import parquet_batches
from headwater.lake.datasource.path_columns import with_path_columns
from headwater.lake.errors import LakeUsageError
from headwater.lake.shapes import Policies, Shape, merge_shapes, shape_of_json
from headwater.lake.shapes.csv_text import parse_csv, shape_of_csv

_SHAPES: Final = pa.schema([(SHAPE, pa.string())])


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSplit:
    """What one task reads, and how."""

    format: FileFormat
    store: str | None
    csv: CsvOptions
    pieces: Sequence[FilePiece]


def splits_of(manifest: Manifest, split_bytes: int) -> list[FileSplit]:
    """Splits of about the same size."""
    return [
        FileSplit(format=manifest.format, store=manifest.store, csv=manifest.csv, pieces=pieces)
        for pieces in file_splits(manifest, split_bytes)
    ]


def read_shape(split: FileSplit) -> pa.RecordBatch:
    """What the records of a split look like, as one row."""
    return pa.RecordBatch.from_pydict({SHAPE: [merge_shapes(_shapes(split)).to_json()]}, schema=_SHAPES)


def read_rows(split: FileSplit, wanted: pa.Schema, policies: Policies) -> Iterator[pa.RecordBatch]:
    """The records of a split with the columns that are wanted."""
    files = Files(split.store)
    for piece in split.pieces:
        for batch in _piece_rows(files, split, piece, wanted, policies):
            # Of Parquet files Spark asks for their own columns only.
            is_complete = split.format == "parquet"
            yield batch if is_complete else with_path_columns(batch, piece.file.keys, policies)


def default_file_columns(options: FileReadOptions) -> pa.Schema:
    """The columns where the user names none."""
    if options.value == "shape":
        return _SHAPES
    format_ = Manifest.from_file(options.manifest).format
    if format_ == "raw":
        return FILE_COLUMNS
    if format_ == "text":
        at = FILE_COLUMNS.get_field_index(VALUE)
        return FILE_COLUMNS.set(at, pa.field(VALUE, pa.string())).append(pa.field(CORRUPT, pa.string()))
    raise LakeUsageError(f"files of format {format_} need the columns to read: name them with .schema(...)")


def _piece_rows(
    files: Files, split: FileSplit, piece: FilePiece, wanted: pa.Schema, policies: Policies
) -> Iterator[pa.RecordBatch]:
    if split.format == "csv":
        for found in csv_batches(files, piece.file, split.csv):
            yield from _csv_rows(found, piece.file, wanted, policies)
    elif split.format == "parquet":
        yield from parquet_batches(files, piece.file, wanted)
    elif split.format == "json":
        yield from lane("json", wanted, policies.to_json())(line_batches(files, piece, keep_blank=False))
    else:
        raw = whole_file(files, piece) if split.format == "raw" else line_batches(files, piece, keep_blank=True)
        known = pa.schema([field for field in wanted if field.name in (*FILE_COLUMNS.names, RESCUED, CORRUPT)])
        for batch in lane(split.format, known)(raw):
            # The table may have columns for what folders say, and others.
            made = {field.name: pa.nulls(batch.num_rows, field.type) for field in wanted}
            yield _in_order(made | dict(zip(batch.schema.names, batch.columns, strict=True)), wanted)


def _csv_rows(found: CsvBatch, file: ManifestFile, wanted: pa.Schema, policies: Policies) -> Iterator[pa.RecordBatch]:
    parsed = parse_csv(found.columns, wanted, policies)
    made = dict(zip(parsed.schema.names, parsed.columns, strict=True)) | origin_columns(file, found.rows)
    yield _in_order(made, wanted)
    if found.corrupt:
        rows = len(found.corrupt)
        made = origin_columns(file, pa.array([row for row, _ in found.corrupt], pa.int64()))
        made[CORRUPT] = pa.array([text for _, text in found.corrupt], pa.string())
        yield _in_order({field.name: pa.nulls(rows, field.type) for field in wanted} | made, wanted)


def _in_order(made: dict[str, pa.Array], wanted: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([made[name] for name in wanted.names], schema=wanted)


def _shapes(split: FileSplit) -> Iterator[Shape]:
    files = Files(split.store)
    for piece in split.pieces:
        if split.format == "csv":
            for found in csv_batches(files, piece.file, split.csv):
                yield shape_of_csv(found.columns)
        else:
            for batch in line_batches(files, piece, keep_blank=False):
                yield shape_of_json(batch.column(VALUE))
