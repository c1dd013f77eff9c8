"""What becomes of raw batches on their way to Spark: as they are, as text, as typed columns, or as one shape.

A lane takes the raw batches of one split, whatever they were read from: a column `value` of bytes, and columns that say
where a record comes from. It gives batches with exactly the columns that are wanted. No I/O and no Spark.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from headwater.lake.corrupt_text import record_text
from headwater.lake.datasource.columns import CORRUPT, RESCUED, SHAPE, TOMBSTONE, VALUE
from headwater.lake.datasource.options import ValueLane
from headwater.lake.errors import LakeUsageError

if TYPE_CHECKING:
    from headwater.lake.shapes import Policies

Lane: TypeAlias = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]

_MADE: Final = (RESCUED, CORRUPT, TOMBSTONE)
"""Columns that a lane makes itself."""


def default_columns(value: ValueLane, raw: pa.Schema) -> pa.Schema:
    """The columns where the user names none."""
    if value == "json":
        raise LakeUsageError("value = json needs the columns to read: name them with .schema(...), or load with a lake")
    if value == "shape":
        return pa.schema([(SHAPE, pa.string())])
    if value == "raw":
        return raw
    at = raw.get_field_index(VALUE)
    return raw.set(at, pa.field(VALUE, pa.string())).append(pa.field(CORRUPT, pa.string()))


def needed_columns(value: ValueLane, wanted: pa.Schema, raw: pa.Schema) -> frozenset[str]:
    """Which of the raw columns a lane looks at or hands on; `LakeUsageError` for columns that it cannot give."""
    origin = [name for name in raw.names if name != VALUE]
    if value == "shape":
        if wanted != default_columns(value, raw):
            raise LakeUsageError(f"value = shape has one column, {SHAPE} string: leave .schema(...) out")
        return frozenset({VALUE})
    allowed = raw if value == "json" else default_columns(value, raw)
    for field in wanted:
        typed_by_user = value == "json" and field.name not in (*origin, *_MADE)
        if typed_by_user or field.name in _MADE:
            continue
        if field.name not in allowed.names:
            raise LakeUsageError(f"value = {value} has no column {field.name}: there are {', '.join(allowed.names)}")
        if not field.type.equals(allowed.field(field.name).type):
            raise LakeUsageError(
                f"the column {field.name} is {allowed.field(field.name).type} and cannot be read as {field.type}"
            )
    looks_at_value = value == "json" or not {VALUE, CORRUPT, TOMBSTONE}.isdisjoint(wanted.names)
    return frozenset(name for name in origin if name in wanted.names) | ({VALUE} if looks_at_value else frozenset())


def lane(value: ValueLane, wanted: pa.Schema, policies: str = "{}") -> Lane:
    """The lane that makes of raw batches what is wanted; `policies` are those that the columns were planned with."""
    if value == "shape":
        return _shapes
    if value == "json":
        from headwater.lake.shapes import Policies

        known = Policies.from_json(policies)
        return lambda batches: (_json(batch, wanted, known) for batch in batches)
    convert = {"raw": _raw, "text": _text}[value]
    return lambda batches: (convert(batch, wanted) for batch in batches)


def _raw(batch: pa.RecordBatch, wanted: pa.Schema) -> pa.RecordBatch:
    return _row_by_name(batch, {}, wanted)


def _text(batch: pa.RecordBatch, wanted: pa.Schema) -> pa.RecordBatch:
    if VALUE not in batch.schema.names:
        return _row_by_name(batch, {}, wanted)
    values = batch.column(VALUE)
    corrupt: pa.Array | None = None
    try:
        text = values.cast(pa.string())
    except pa.ArrowInvalid:
        text, corrupt = _apart(values)
        if CORRUPT not in wanted.names:
            # Nothing may get lost: where there is no column for it, it takes the place of the text.
            text, corrupt = pc.coalesce(text, corrupt), None
    arrays = {VALUE: text, CORRUPT: pa.nulls(len(values), pa.string()) if corrupt is None else corrupt}
    return _row_by_name(batch, arrays, wanted)


def _json(batch: pa.RecordBatch, wanted: pa.Schema, policies: "Policies") -> pa.RecordBatch:
    from headwater.lake.shapes import parse_json

    origin = {*batch.schema.names} - {VALUE}
    fields = pa.schema([field for field in wanted if field.name not in (*origin, *_MADE)])
    parsed = parse_json(batch.column(VALUE), fields, policies)
    return _row_by_name(batch, dict(zip(parsed.schema.names, parsed.columns, strict=True)), wanted)


def _shapes(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    from headwater.lake.shapes import Shape, shape_of_json

    whole: Shape | None = None
    for batch in batches:
        part = shape_of_json(batch.column(VALUE))
        whole = part if whole is None else whole.merge(part)
    if whole is not None:
        yield pa.RecordBatch.from_pydict({SHAPE: [whole.to_json()]}, schema=pa.schema([(SHAPE, pa.string())]))


def _row_by_name(batch: pa.RecordBatch, made: dict[str, pa.Array], wanted: pa.Schema) -> pa.RecordBatch:
    rows = batch.num_rows
    if TOMBSTONE in wanted.names:
        made[TOMBSTONE] = batch.column(VALUE).is_null()
    for name in {RESCUED, CORRUPT} & {*wanted.names} - made.keys():
        made[name] = pa.nulls(rows, wanted.field(name).type)
    arrays = [made[name] if name in made else batch.column(name) for name in wanted.names]
    return pa.RecordBatch.from_arrays(arrays, names=wanted.names)


def _apart(values: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Text where it is text; and where it is none, its bytes as base64."""
    texts: list[str | None] = []
    corrupt: list[str | None] = []
    for value in values.to_pylist():
        try:
            texts.append(None if value is None else value.decode())
            corrupt.append(None)
        except UnicodeDecodeError:
            texts.append(None)
            corrupt.append(record_text(value))
    return pa.array(texts, pa.string()), pa.array(corrupt, pa.string())
