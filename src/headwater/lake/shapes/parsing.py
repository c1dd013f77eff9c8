"""JSON records into the columns of a table: every value is found again, typed or as text."""

from __future__ import annotations

from array import array
from typing import Final, cast

import pyarrow as pa

from headwater.lake.corrupt_text import record_text
from headwater.lake.errors import LakeError
from headwater.lake.shapes.arrays import array_of
from headwater.lake.shapes.fitting import ObjectFitter, Rescue
from headwater.lake.shapes.json_block import block_of
from headwater.lake.shapes.json_columns import ColumnReader
from headwater.lake.shapes.json_reading import COMPILED
from headwater.lake.shapes.json_text import NotJson, scan_record
from headwater.lake.shapes.paths import CORRUPT_RECORD, RESCUED, is_metadata
from headwater.lake.shapes.policies import Policies

RESCUED_TYPE: Final = pa.map_(pa.string(), pa.string())

LARGEST_BATCH_BYTES: Final = 5 << 28
"""Offsets in a column of strings count up to 2 GiB. A column gets no more bytes than the records have, except for those
that are no UTF-8: base64 takes four bytes for three."""


def parse_json(values: pa.Array, schema: pa.Schema, policies: Policies | None = None) -> pa.RecordBatch:
    """The user's columns of a schema, `_rescued` and `_corrupt_record`: a row for each record, no error on any data.

    A value is in its column only if the column's type holds it exactly. Otherwise the column is null and `_rescued`
    has the text of the value under its path: of a field of an object or of an entry of a map on its own, of an array as
    a whole (the outermost, if any of its elements does not fit). Of a key that an object repeats the last value counts,
    and the earlier ones are rescued as `path#0`, `path#1`. A record that is not one JSON object in UTF-8 (no NaN, no
    half of a surrogate pair, not nested beyond 100) is whole in `_corrupt_record`. A null (a tombstone) gives a row of
    nulls. `policies` are those that the schema was planned with. More than `LARGEST_BATCH_BYTES` are a `LakeError`.
    """
    if values.nbytes > LARGEST_BATCH_BYTES:
        raise LakeError(
            f"{len(values)} records of together {values.nbytes >> 20} MiB are too large for the columns of one batch, "
            f"which take {LARGEST_BATCH_BYTES >> 20} MiB: parse fewer at a time"
        )
    parse = parse_quickly if COMPILED else parse_plainly
    return parse(values, user_fields(schema), policies or Policies())


def parse_plainly(values: pa.Array, schema: pa.Schema, policies: Policies) -> pa.RecordBatch:
    """The plain lane."""
    return parse_records(values.cast(pa.large_binary()).to_pylist(), schema, policies)


def parse_quickly(values: pa.Array, schema: pa.Schema, policies: Policies) -> pa.RecordBatch:
    """The quick lane, and the plain one for the records that it cannot make out."""
    block = block_of(values)
    reader = ColumnReader(block.data, pa.struct(list(schema)), policies)
    rest = sorted([*reader.read(block.offsets, len(values), block.rows), *block.broken])
    if len(rest) == len(values) > 0:
        return parse_plainly(values, schema, policies)
    rescued: list[list[tuple[str, str]] | None] = [None] * len(values)
    for row, path, text in reader.rescues():
        entries = rescued[row]
        if entries is None:
            entries = rescued[row] = []
        entries.append((path, text))
    column = pa.array(rescued, RESCUED_TYPE) if reader.rescues() else pa.nulls(len(values), RESCUED_TYPE)
    batch = with_rescued(schema, reader.columns(schema), column, pa.nulls(len(values), pa.string()))
    return _with_rows(batch, rest, parse_records(block.records(rest), schema, policies)) if rest else batch


def _with_rows(batch: pa.RecordBatch, rows: list[int], other: pa.RecordBatch) -> pa.RecordBatch:
    """A batch with these rows from another."""
    order = array("q", range(len(batch)))
    for index, row in enumerate(rows):
        order[row] = len(batch) + index
    indices = pa.array(order, pa.int64())
    columns = [pa.concat_arrays(pair).take(indices) for pair in zip(batch.columns, other.columns, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def user_fields(schema: pa.Schema) -> pa.Schema:
    """A schema without the columns that a load adds; every field may be null."""
    return pa.schema([field.with_nullable(True) for field in schema if not is_metadata(field.name)])


def parse_records(records: list[bytes | None], schema: pa.Schema, policies: Policies) -> pa.RecordBatch:
    """As `parse_json`, in plain Python."""
    record_fitter = ObjectFitter(list(schema), "", policies)
    rows: list[dict[str, object]] = []
    rescued: list[list[tuple[str, str]] | None] = []
    corrupt: list[str | None] = []
    for raw in records:
        row: dict[str, object] = {}
        entries: list[tuple[str, str]] = []
        whole = None
        if raw is not None:
            try:
                text, record = scan_record(raw)
            except NotJson:
                whole = record_text(raw)
            else:
                rescue = Rescue(text)
                row = cast("dict[str, object]", record_fitter.fit(record, "", rescue))
                entries = rescue.entries
        rows.append(row)
        rescued.append(entries or None)
        corrupt.append(whole)
    columns = [array_of([row.get(field.name) for row in rows], field.type) for field in schema]
    return with_rescued(schema, columns, pa.array(rescued, RESCUED_TYPE), pa.array(corrupt, pa.string()))


def with_rescued(schema: pa.Schema, columns: list[pa.Array], rescued: pa.Array, corrupt: pa.Array) -> pa.RecordBatch:
    """The result of parsing from its parts."""
    full = schema.append(pa.field(RESCUED, RESCUED_TYPE)).append(pa.field(CORRUPT_RECORD, pa.string()))
    return pa.RecordBatch.from_arrays([*columns, rescued, corrupt], schema=full)
