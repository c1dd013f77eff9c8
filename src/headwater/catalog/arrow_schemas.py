"""Iceberg schemas as Arrow schemas and back, with Arrow's plain types (string, list) and without field ids."""

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import UnsupportedPyArrowTypeException, schema_to_pyarrow
from pyiceberg.schema import Schema

from headwater.catalog.callers_fault import callers_fault


def iceberg_schema(schema: pa.Schema, *, format_version: int = 2) -> Schema:
    """The Iceberg schema of an Arrow schema; its field ids mean nothing yet. ValueError for types that it lacks."""
    try:
        with callers_fault("the Arrow schema"):
            return Catalog._convert_schema_if_needed(schema, format_version)  # type: ignore[arg-type]
    except (UnsupportedPyArrowTypeException, NotImplementedError) as error:
        raise ValueError(f"{error!s:.300}: Iceberg has no such type of column") from None


def arrow_schema(schema: Schema) -> pa.Schema:
    """The Arrow schema of an Iceberg schema."""
    converted = schema_to_pyarrow(schema, include_field_ids=False)
    return pa.schema([_plain_field(field) for field in converted])


def _plain_field(field: pa.Field) -> pa.Field:
    return pa.field(field.name, _plain(field.type), field.nullable)


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind):
        return pa.binary()
    if pa.types.is_struct(kind):
        return pa.struct([_plain_field(kind.field(place)) for place in range(kind.num_fields)])
    if pa.types.is_large_list(kind) or pa.types.is_list(kind):
        return pa.list_(_plain_field(kind.value_field))
    if pa.types.is_map(kind):
        return pa.map_(_plain_field(kind.key_field), _plain_field(kind.item_field))
    return kind
