"""Parquet files that Spark's own reader does not take: in an object store that only pyarrow opens, or with types that
Spark does not know (nanoseconds, times of day, UUIDs). Their types become those of a lake table here.
"""

import json
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.types as pt
from pyarrow import parquet

from headwater.lake.datasource.file_manifest import ManifestFile
from headwater.lake.datasource.file_streams import BATCH_ROWS, ORIGIN_COLUMNS, Files, origin_columns

NANOSECONDS: Final = "#ns"
"""What the name of a text column ends with that has the whole time where microseconds do not tell it."""
TAKEN: Final = "#data"
"""What the name of a user's column ends with if one of ours has its name."""


def parquet_batches(files: Files, file: ManifestFile, wanted: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The records of a file with the columns `plain_schema` gives it; `_row` is the number of the record in it."""
    with files.opened(file, uncompressed=False) as stream:
        first = 0
        for batch in parquet.ParquetFile(stream).iter_batches(BATCH_ROWS):
            rows = pa.array(range(first, first + batch.num_rows), pa.int64())
            first += batch.num_rows
            made = dict(_plain_columns(batch)) | origin_columns(file, rows)
            yield pa.RecordBatch.from_arrays([made[name] for name in wanted.names], schema=wanted)


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """The types that are read for those of a file: the same where Spark has them, else ones that hold all values."""
    return pa.schema([pa.field(field.name, plain_type(field.type)) for field in schema if not pt.is_null(field.type)])


def readable_columns(schema: pa.Schema) -> pa.Schema:
    """What `parquet_batches` can give of a file besides where its records come from."""
    plain = plain_schema(schema)
    own = [field.with_name(_free_name(field.name)) for field in plain]
    return pa.schema([*own, *nanosecond_columns(schema)])


def _free_name(name: str) -> str:
    """A user's column that is called like one of ours has another name, under which it is rescued."""
    return f"{name}{TAKEN}" if name in ORIGIN_COLUMNS.names else name


def nanosecond_columns(schema: pa.Schema) -> pa.Schema:
    """The columns of text that are read beside those of times with nanoseconds."""
    return pa.schema([(field.name + NANOSECONDS, pa.string()) for field in schema if has_nanoseconds(field.type)])


def plain_type(type_: pa.DataType, times: pa.DataType | None = None) -> pa.DataType:
    """The type that Spark has for a type of Arrow; nanoseconds are cut, unless there is another type for `times`."""
    if pt.is_dictionary(type_):
        return plain_type(type_.value_type, times)
    if pt.is_struct(type_):
        fields = [field for field in type_ if not pt.is_null(field.type)]
        return pa.struct([pa.field(field.name, plain_type(field.type, times)) for field in fields])
    if pt.is_list(type_) or pt.is_large_list(type_) or pt.is_fixed_size_list(type_):
        return pa.list_(plain_type(type_.value_type, times))
    if pt.is_map(type_):
        return pa.map_(plain_type(type_.key_type, times), plain_type(type_.item_type, times))
    return _plain_scalar(type_) if times is None or not pt.is_timestamp(type_) else times


def _plain_scalar(type_: pa.DataType) -> pa.DataType:
    if pt.is_unsigned_integer(type_):
        return pa.decimal128(20, 0) if type_.bit_width == 64 else pa.int64() if type_.bit_width == 32 else pa.int32()
    if pt.is_integer(type_):
        return pa.int64() if type_.bit_width == 64 else pa.int32()
    if pt.is_float16(type_):
        return pa.float32()
    if pt.is_timestamp(type_):
        return pa.timestamp("us", None if type_.tz is None else "UTC")
    if pt.is_date(type_):
        return pa.date32()
    if pt.is_decimal(type_):
        return pa.decimal128(type_.precision, type_.scale) if type_.precision <= 38 else pa.string()
    if pt.is_large_binary(type_) or pt.is_binary_view(type_) or pt.is_fixed_size_binary(type_):
        return pa.binary()
    kept = pt.is_boolean(type_) or pt.is_floating(type_) or pt.is_binary(type_)
    return type_ if kept else pa.string()


def has_nanoseconds(type_: pa.DataType) -> bool:
    """Whether a type has times that a lake table may not hold."""
    if type_.num_fields:
        return any(has_nanoseconds(type_.field(place).type) for place in range(type_.num_fields))
    return bool(pt.is_timestamp(type_) and type_.unit == "ns")


def _plain_columns(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.Array]]:
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if not pt.is_null(field.type):
            plain = plain_type(field.type)
            yield _free_name(field.name), _plain_column(column, plain)
            if has_nanoseconds(field.type):
                yield field.name + NANOSECONDS, _texts_of_cut(column, plain)


def _plain_column(column: pa.Array, plain: pa.DataType) -> pa.Array:
    if _has_own_types(column.type):
        # A cast would take the bytes of a UUID for its text.
        return pa.array([_as_plain(value, plain) for value in column.to_pylist()], plain)
    # The plain types hold every value but nanoseconds, so these are all that may be cut.
    return column.cast(plain, safe=not has_nanoseconds(column.type))


def _has_own_types(type_: pa.DataType) -> bool:
    if isinstance(type_, pa.BaseExtensionType):
        return True
    return any(_has_own_types(type_.field(place).type) for place in range(type_.num_fields))


def _as_plain(value: Any, plain: pa.DataType) -> object:
    if value is None:
        return None
    if pt.is_string(plain):
        return str(value)
    if pt.is_struct(plain):
        return {field.name: _as_plain(value[field.name], field.type) for field in plain}
    if pt.is_list(plain):
        return [_as_plain(each, plain.value_type) for each in value]
    if pt.is_map(plain):
        return [(_as_plain(key, plain.key_type), _as_plain(each, plain.item_type)) for key, each in value]
    return value


def _texts_of_cut(column: pa.Array, plain: pa.DataType) -> pa.Array:
    """The values of which something was cut, as text."""
    try:
        column.cast(plain)
    except pa.ArrowInvalid:
        return pa.array([_text_of_cut(column.slice(place, 1), plain) for place in range(len(column))], pa.string())
    return pa.nulls(len(column), pa.string())


def _text_of_cut(value: pa.Array, plain: pa.DataType) -> str | None:
    try:
        value.cast(plain)
    except pa.ArrowInvalid:
        return _text(value)
    return None


def _text(value: pa.Array) -> str:
    """A value with all digits of its times; what is nested as JSON."""
    found = value.cast(plain_type(value.type, times=pa.string()))[0].as_py()
    return found if isinstance(found, str) else json.dumps(found, default=str, ensure_ascii=False)
