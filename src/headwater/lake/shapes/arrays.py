"""Arrays of values of Python, for every type that a table may have."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as pt


def array_of(values: list[object], type_: pa.DataType) -> pa.Array:
    """An array of fitted values. Arrow makes none of extension types inside of others, but casts to them."""
    stored = storage_of(type_)
    made = pa.array(values, stored)
    return made if stored is type_ else made.cast(type_)


def storage_of(type_: pa.DataType) -> pa.DataType:
    """A type with what is underneath its extension types; the type itself if it has none."""
    if isinstance(type_, pa.BaseExtensionType):
        return type_.storage_type
    if pt.is_struct(type_):
        fields = [field.with_type(storage_of(field.type)) for field in type_]
        return type_ if all(new.type == old.type for new, old in zip(fields, type_, strict=True)) else pa.struct(fields)
    if pt.is_list(type_) or pt.is_large_list(type_):
        stored = storage_of(type_.value_type)
        make = pa.large_list if pt.is_large_list(type_) else pa.list_
        return type_ if stored == type_.value_type else make(type_.value_field.with_type(stored))
    if pt.is_map(type_):
        stored = storage_of(type_.item_type)
        return type_ if stored == type_.item_type else pa.map_(type_.key_field, type_.item_field.with_type(stored))
    return type_
