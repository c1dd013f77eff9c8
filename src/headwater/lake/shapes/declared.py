"""Types that a source declares (Parquet, a database), by names that a Shape can carry, and what two become together."""

from __future__ import annotations

import re
from typing import Final

import pyarrow as pa
import pyarrow.types as pt

from headwater.lake.shapes.scalars import LONGEST_DECIMAL, Kind
from headwater.lake.shapes.shape import TYPED_SOURCE, Node, Shape

_NAMED: Final = {
    "bool": pa.bool_(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date32": pa.date32(),
    "time64": pa.time64("us"),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"),
    "uuid": pa.uuid(),
}
_NAMES: Final = {type_: name for name, type_ in _NAMED.items()}
_DECIMAL: Final = re.compile(r"decimal\((\d+),(-?\d+)\)")
_FIXED: Final = re.compile(r"fixed\((\d+)\)")


def shape_of_arrow(schema: pa.Schema) -> Shape:
    """The Shape of a source with types of its own. Types that a lake table does not have become the next wider one."""
    root = Node()
    _declare(root, pa.struct(list(schema)))
    return Shape(sources=frozenset([TYPED_SOURCE]), root=root)


def _declare(node: Node, type_: pa.DataType) -> None:
    if pt.is_dictionary(type_):
        type_ = type_.value_type
    if pt.is_struct(type_):
        node.counts[Kind.OBJECT] += 1
        for position, field in enumerate(type_):
            child = node.fields.setdefault(field.name, Node())
            child.position = max(child.position, position)
            _declare(child, field.type)
    elif pt.is_list(type_) or pt.is_large_list(type_) or pt.is_fixed_size_list(type_):
        node.counts[Kind.ARRAY] += 1
        _declare(node.element_seen(), type_.value_type)
    elif pt.is_map(type_):
        node.counts[Kind.OBJECT] += 1
        _declare(node.collapse(0), type_.item_type)
    elif not pt.is_null(type_):
        node.declared |= {name_of_type(lake_type(type_))}


def lake_type(type_: pa.DataType) -> pa.DataType:
    """The type of a lake table that holds all values of a scalar type; nanoseconds are cut to microseconds."""
    if pt.is_integer(type_):
        if type_ == pa.uint64():
            return pa.decimal128(20, 0)
        return pa.int64() if type_.bit_width == 64 or type_ == pa.uint32() else pa.int32()
    if pt.is_float16(type_):
        return pa.float32()
    if pt.is_decimal(type_) and type_.precision <= LONGEST_DECIMAL:
        return pa.decimal128(type_.precision, type_.scale)
    if pt.is_timestamp(type_):
        return pa.timestamp("us", None if type_.tz is None else "UTC")
    if pt.is_date(type_):
        return pa.date32()
    if pt.is_time(type_):
        return pa.time64("us")
    if pt.is_large_binary(type_) or pt.is_binary_view(type_):
        return pa.binary()
    return type_ if type_ in _NAMES or pt.is_fixed_size_binary(type_) else pa.string()


def name_of_type(type_: pa.DataType) -> str:
    """The name of a scalar type of a lake table."""
    if type_ in _NAMES:
        return _NAMES[type_]
    if pt.is_decimal(type_):
        return f"decimal({type_.precision},{type_.scale})"
    if pt.is_fixed_size_binary(type_):
        return f"fixed({type_.byte_width})"
    return str(type_)


def type_of_name(name: str) -> pa.DataType:
    """The inverse of `name_of_type`."""
    if name in _NAMED:
        return _NAMED[name]
    decimal = _DECIMAL.fullmatch(name)
    if decimal is not None:
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    fixed = _FIXED.fullmatch(name)
    if fixed is None:
        raise ValueError(f"no type is named {name!r}")
    return pa.binary(int(fixed[1]))


def wider(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """The type to which Iceberg widens both, or None."""
    if one == other:
        return one
    if pt.is_decimal(one) and pt.is_decimal(other):
        return max(one, other, key=lambda type_: type_.precision) if one.scale == other.scale else None
    pair = {one, other}
    if pair == {pa.int32(), pa.int64()}:
        return pa.int64()
    return pa.float64() if pair == {pa.float32(), pa.float64()} else None


def common_type(names: frozenset[str]) -> pa.DataType | None:
    """The type that holds all of these declared ones, or None."""
    found: pa.DataType | None = None
    for name in sorted(names):
        found = type_of_name(name) if found is None else wider(found, type_of_name(name))
        if found is None:
            return None
    return found
