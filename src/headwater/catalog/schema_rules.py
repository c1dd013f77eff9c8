"""What a schema must hold so that every engine can read the table, in the words of Iceberg's reference server. Pure."""

import datetime
import itertools
import uuid
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from functools import partial
from typing import Any, Final, NamedTuple

from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    GeographyType,
    GeometryType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UnknownType,
    UUIDType,
)

DEFAULTS_SINCE: Final = 3
"""The format version from which on columns have default values."""

LAST_FIELD_ID: Final = 2**31 - 1 - 201
"""Ids above it belong to Iceberg's metadata columns."""

_LONGEST_FIXED: Final = 2**31 - 1
_TYPES_SINCE_V3: Final = (TimestampNanoType, TimestamptzNanoType, UnknownType, GeometryType, GeographyType)
_NOT_IDENTIFYING: Final = (FloatType, DoubleType)
_MOST_TOLD: Final = 10


def check_schema(schema: Schema, format_version: int) -> None:
    """Raises ValueError when engines could not read a table of this version with this schema."""
    fields = list(_placed(schema.as_struct(), "", ()))
    _check_ids_and_names(fields)
    _check_identifiers(schema, fields)
    problems = [problem for each in fields for problem in _problems(each, format_version)]
    if problems:
        lines = "".join(f"\n- {problem}" for problem in problems[:_MOST_TOLD])
        raise ValueError(f"Invalid schema for v{format_version}:{lines}")
    for each in fields:
        for default in (each.field.initial_default, each.field.write_default):
            if default is not None:
                _check_default(each.name, each.field.field_type, default)


def with_fresh_ids(schema: Schema) -> Schema:
    """The schema with ids from 1 upwards, as the reference server gives them to a new table; everything else is kept.

    pyiceberg's own function loses the default values of columns.
    """
    ids: dict[int, int] = {}
    struct = _fresh(schema.as_struct(), partial(next, itertools.count(1)), ids)
    assert isinstance(struct, StructType)
    return Schema(*struct.fields, schema_id=0, identifier_field_ids=[ids[each] for each in schema.identifier_field_ids])


def with_fresh_type(type_: IcebergType, next_id: Callable[[], int]) -> IcebergType:
    """The same for a type within a schema."""
    return _fresh(type_, next_id, {})


def _fresh(type_: IcebergType, next_id: Callable[[], int], ids: dict[int, int]) -> IcebergType:
    # All fields of one level have their ids before those within them, as in Iceberg's Java library.
    match type_:
        case StructType():
            numbered = [field.model_copy(update={"field_id": next_id()}) for field in type_.fields]
            ids.update((old.field_id, new.field_id) for old, new in zip(type_.fields, numbered, strict=True))
            types = [_fresh(field.field_type, next_id, ids) for field in type_.fields]
            return StructType(
                *(field.model_copy(update={"field_type": fresh}) for field, fresh in zip(numbered, types, strict=True))
            )
        case ListType():
            element_id = ids[type_.element_id] = next_id()
            element = _fresh(type_.element_type, next_id, ids)
            return ListType(element_id=element_id, element=element, element_required=type_.element_required)
        case MapType():
            key_id = ids[type_.key_id] = next_id()
            value_id = ids[type_.value_id] = next_id()
            return MapType(
                key_id=key_id,
                key_type=_fresh(type_.key_type, next_id, ids),
                value_id=value_id,
                value_type=_fresh(type_.value_type, next_id, ids),
                value_required=type_.value_required,
            )
    return type_


class _Placed(NamedTuple):
    """A field and where it is."""

    name: str
    field: NestedField
    outer: tuple[NestedField, ...]


def _placed(type_: IcebergType, prefix: str, outer: tuple[NestedField, ...]) -> Iterator[_Placed]:
    fields: tuple[NestedField, ...] = ()
    match type_:
        case StructType():
            fields = type_.fields
        case ListType():
            fields = (type_.element_field,)
        case MapType():
            fields = (type_.key_field, type_.value_field)
    for field in fields:
        name = f"{prefix}{field.name}"
        yield _Placed(name, field, outer)
        yield from _placed(field.field_type, f"{name}.", (*outer, field))


def _check_ids_and_names(fields: Sequence[_Placed]) -> None:
    ids: dict[int, str] = {}
    names: dict[str, int] = {}
    for name, field, _ in fields:
        number = field.field_id
        if not 0 <= number <= LAST_FIELD_ID:
            raise ValueError(f"Invalid schema: the id of {name!r:.100} is not between 0 and {LAST_FIELD_ID}")
        if number in ids:
            raise ValueError(f"Invalid schema: multiple fields for id {number}: {ids[number]!r:.100} and {name!r:.100}")
        if name in names:
            raise ValueError(f"Invalid schema: multiple fields for name {name!r:.100}: {names[name]} and {number}")
        ids[number], names[name] = name, number


def _check_identifiers(schema: Schema, fields: Sequence[_Placed]) -> None:
    by_id = {each.field.field_id: each for each in fields}
    for field_id in schema.identifier_field_ids:
        found = by_id.get(field_id)
        if found is None:
            raise ValueError(f"Cannot add fieldId {field_id} as an identifier field: field does not exist")
        field = found.field
        refused = f"Cannot add field {field.name!r:.100} as an identifier field:"
        if not field.field_type.is_primitive:
            raise ValueError(f"{refused} not a primitive type field")
        if not field.required:
            raise ValueError(f"{refused} not a required field")
        if isinstance(field.field_type, _NOT_IDENTIFYING):
            raise ValueError(f"{refused} must not be float or double field")
        for outer in found.outer:
            if not isinstance(outer.field_type, StructType):
                raise ValueError(f"{refused} must not be nested in {outer.name!r:.100}")
            if not outer.required:
                raise ValueError(f"{refused} must not be nested in an optional field {outer.name!r:.100}")


def _problems(placed: _Placed, format_version: int) -> Iterator[str]:
    name, field = placed.name, placed.field
    if isinstance(field.field_type, FixedType) and field.field_type.root > _LONGEST_FIXED:
        yield f"Invalid type for {name}: {field.field_type} is longer than {_LONGEST_FIXED} bytes"
    if format_version < DEFAULTS_SINCE:
        if isinstance(field.field_type, _TYPES_SINCE_V3):
            yield f"Invalid type for {name}: {field.field_type} is not supported until v3"
        if field.initial_default is not None:
            yield (
                f"Invalid initial default for {name}: non-null default ({field.initial_default}) is not supported "
                f"until v{DEFAULTS_SINCE}"
            )


_VALUES: Final[dict[type[IcebergType], type]] = {
    BooleanType: bool,
    StringType: str,
    DateType: datetime.date,
    TimeType: datetime.time,
    TimestampType: datetime.datetime,
    TimestamptzType: datetime.datetime,
    UUIDType: uuid.UUID,
    BinaryType: bytes,
    FixedType: bytes,
}


def _check_default(name: str, type_: IcebergType, value: Any) -> None:
    """pyiceberg takes some values of other types as they are, and Java then cannot read the schema."""
    match type_:
        case IntegerType() | LongType():
            bits = 31 if isinstance(type_, IntegerType) else 63
            fits = isinstance(value, int) and not isinstance(value, bool) and -(2**bits) <= value < 2**bits
        case FloatType() | DoubleType():
            fits = isinstance(value, float) and abs(value) < float("inf")
        case DecimalType():
            fits = isinstance(value, Decimal) and value.is_finite() and _fits_decimal(value, type_)
        case _:
            wanted = _VALUES.get(type(type_))
            fits = wanted is not None and isinstance(value, wanted)
    if not fits:
        raise ValueError(f"Cannot parse default as a {type_} value: {name}: {value!r:.100}")


def _fits_decimal(value: Decimal, type_: DecimalType) -> bool:
    parts = value.as_tuple()
    return parts.exponent == -type_.scale and len(parts.digits) <= type_.precision
