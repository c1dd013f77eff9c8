"""Reads kio's entities from strangers' bytes: every length is compared with the bytes that are there before it counts.

kio's own reader allocates for the length that an array claims, which ends the process where memory does not suffice,
and refuses tagged fields that it does not know. A plan is made once for each type of entity, from the same annotations
that kio goes by; a test compares the entities with kio's for every message that is served. Compiled by Cython (pure
Python mode) and correct without it.

As in Kafka, tagged fields may come in any order, the last one of a tag counts, unknown ones are stepped over (KIP-482),
and an error code that is not known reads as UNKNOWN_SERVER_ERROR. Stricter than Kafka: a tagged field has to be as long
as it claims.
"""
# mypy: disallow-untyped-decorators=False

from __future__ import annotations

import struct
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID, SafeUUID

from headwater.protocol.entity_shapes import Shape, shapes
from headwater.protocol.errors import ErrorCode, MalformedRequestError
from headwater.protocol.kafka_types import NO_THROTTLE

try:
    import cython
except ImportError:
    from headwater.protocol import without_cython as cython

if cython.compiled:
    from cython.cimports.headwater.protocol.entity_slots import blank, blank_row, fill, finished, put, slot_of
    from cython.cimports.headwater.protocol.wire import Cursor
else:
    from headwater.protocol.entity_slots import blank, blank_row, fill, finished, put, slot_of
    from headwater.protocol.wire import Cursor

T = TypeVar("T")

_ENTITY = cython.declare(cython.int, 0)
_INT32 = cython.declare(cython.int, 1)
_STRING = cython.declare(cython.int, 2)
_INT64 = cython.declare(cython.int, 3)
_INT16 = cython.declare(cython.int, 4)
_ERROR_CODE = cython.declare(cython.int, 5)
_BOOL = cython.declare(cython.int, 6)
_INT8 = cython.declare(cython.int, 7)
_BYTES = cython.declare(cython.int, 8)
_UUID = cython.declare(cython.int, 9)
_UINT16 = cython.declare(cython.int, 10)
_FLOAT64 = cython.declare(cython.int, 11)
_TIMEDELTA_32 = cython.declare(cython.int, 12)
_TIMEDELTA_64 = cython.declare(cython.int, 13)
_DATETIME = cython.declare(cython.int, 14)

# For each of kio's types how it is read, and how many bytes it takes at least.
_KINDS = {
    "int32": (_INT32, 4),
    "string": (_STRING, 2),
    "int64": (_INT64, 8),
    "int16": (_INT16, 2),
    "error_code": (_ERROR_CODE, 2),
    "bool": (_BOOL, 1),
    "int8": (_INT8, 1),
    "bytes": (_BYTES, 4),
    "records": (_BYTES, 4),
    "uuid": (_UUID, 16),
    "uint16": (_UINT16, 2),
    "float64": (_FLOAT64, 8),
    "timedelta_i32": (_TIMEDELTA_32, 4),
    "timedelta_i64": (_TIMEDELTA_64, 8),
    "datetime_i64": (_DATETIME, 8),
}
_ARRAY_BYTES = 4
_COMPACT_KINDS = (_STRING, _BYTES)
_DOUBLE = struct.Struct(">d")
_ERROR_CODES: dict[int, ErrorCode] = {int(code): code for code in ErrorCode}
_NO_ID = bytes(16)
_ID_NUMBER = cython.declare(cython.Py_ssize_t, slot_of(UUID.__dict__["int"]))
_ID_SAFETY = cython.declare(cython.Py_ssize_t, slot_of(UUID.__dict__["is_safe"]))
_SAFETY_UNKNOWN = SafeUUID.unknown


def read_entity(entity: type[T], cursor: Cursor) -> T:
    """The entity at the cursor, which steps behind it; raises `MalformedRequestError` when the bytes are none."""
    found: T = _read_entity(_plan_of(entity), cursor)
    return found


def smallest_size(entity: type[Any]) -> int:
    """How many bytes an entity takes at least."""
    plan: _Plan = _plan_of(entity)
    return plan.smallest_size


@cython.final
@cython.cclass
class _Field:
    """How one field is read; `plan` is that of a nested entity, `default` a tagged field's that is left out."""

    name: str = cython.declare(object)
    slot: Any = cython.declare(cython.Py_ssize_t)
    kind: int = cython.declare(cython.int)
    plan: Any = cython.declare(object)
    is_array: bool = cython.declare(cython.bint)
    nullable: bool = cython.declare(cython.bint)
    flexible: bool = cython.declare(cython.bint)
    item_size: int = cython.declare(cython.Py_ssize_t)
    default: Any = cython.declare(object)


@cython.final
@cython.cclass
class _Plan:
    """How an entity is read: field after field, then the tagged ones."""

    entity: Any = cython.declare(object)
    fields: list[_Field] = cython.declare(list)
    tagged: list[_Field] = cython.declare(list)
    by_tag: dict[int, _Field] = cython.declare(dict)
    flexible: bool = cython.declare(cython.bint)
    smallest_size: int = cython.declare(cython.Py_ssize_t)


_plans: dict[Any, _Plan] = {}


@cython.cfunc
def _plan_of(entity: Any) -> _Plan:
    found = _plans.get(entity)
    if found is None:
        found = _plans[entity] = _make_plan(entity)
    return found


@cython.cfunc
def _make_plan(entity: Any) -> _Plan:
    plan: _Plan = _Plan()
    plan.entity, plan.flexible = entity, entity.__flexible__
    plan.fields, plan.tagged, plan.by_tag = [], [], {}
    plan.smallest_size = 1 if plan.flexible else 0
    for shape in shapes(entity):
        field: _Field = _make_field(entity, shape)
        if shape.tag is None:
            plan.fields.append(field)
            plan.smallest_size += _smallest_field(field)
        else:
            plan.tagged.append(field)
            plan.by_tag[shape.tag] = field
    return plan


@cython.cfunc
def _make_field(entity: Any, shape: Shape) -> _Field:
    field: _Field = _Field()
    field.name, field.default = shape.name, shape.default
    field.slot = slot_of(entity.__dict__[shape.name])
    field.flexible, field.is_array, field.nullable = entity.__flexible__, shape.is_array, shape.nullable
    if shape.nested is not None:
        plan: _Plan = _plan_of(shape.nested)
        field.kind, field.plan, field.item_size = _ENTITY, plan, plan.smallest_size
    else:
        kind, size = _KINDS[shape.kind]
        field.kind, field.plan = kind, None
        field.item_size = 1 if field.flexible and kind in _COMPACT_KINDS else size
    if field.is_array and field.item_size < 1:
        # The bytes that are there could not bound how many of these there are.
        raise TypeError(f"the items of {shape.name} of {entity.__name__} take no bytes")
    return field


@cython.cfunc
def _smallest_field(field: _Field) -> cython.Py_ssize_t:
    if field.is_array:
        return 1 if field.flexible else _ARRAY_BYTES
    return 1 if field.kind == _ENTITY and field.nullable else field.item_size


@cython.cfunc
def _read_entity(plan: _Plan, cursor: Cursor) -> object:
    entity = blank(plan.entity)
    field: _Field
    index: cython.Py_ssize_t
    for index in range(len(plan.fields)):
        field = cython.cast(_Field, plan.fields[index])
        fill(entity, field.slot, _read_field(field, cursor))
    if plan.flexible:
        for index in range(len(plan.tagged)):
            field = cython.cast(_Field, plan.tagged[index])
            fill(entity, field.slot, field.default)
        _read_tagged_fields(plan, cursor, entity)
    return entity


@cython.cfunc
def _read_tagged_fields(plan: _Plan, cursor: Cursor, entity: Any) -> cython.bint:
    count: cython.longlong = cursor.tag_count()
    while count > 0:
        count -= 1
        tag: cython.longlong = cursor.uvarint()
        size: cython.Py_ssize_t = cursor.uvarint()
        start: cython.Py_ssize_t = cursor.advance(size)
        found = plan.by_tag.get(tag)
        if found is None:
            continue  # somebody newer than us says it
        field: _Field = found
        cursor.position = start
        fill(entity, field.slot, _read_field(field, cursor))
        if cursor.position != start + size:
            raise MalformedRequestError(f"tagged field {field.name} at {start} is not as long as it claims: {size}")
    return True


@cython.cfunc
def _read_field(field: _Field, cursor: Cursor) -> object:
    if field.is_array:
        return _read_array(field, cursor)
    return _read_value(field, cursor, field.nullable)


@cython.cfunc
def _read_array(field: _Field, cursor: Cursor) -> object:
    count: cython.Py_ssize_t = cursor.items(field.flexible, field.item_size)
    if count <= 0:
        return _no_null(field, cursor) if count < 0 and not field.nullable else None if count < 0 else ()
    row = blank_row(count)
    index: cython.Py_ssize_t
    if field.kind == _ENTITY:
        plan: _Plan = cython.cast(_Plan, field.plan)
        for index in range(count):
            put(row, index, _read_entity(plan, cursor))
    else:
        for index in range(count):
            put(row, index, _read_value(field, cursor, False))
    return finished(row)


@cython.cfunc
def _read_value(field: _Field, cursor: Cursor, nullable: cython.bint) -> object:
    kind: cython.int = field.kind
    size: cython.longlong
    if kind == _INT32:
        return cursor.int32()
    if kind == _STRING:
        text = cursor.string(field.flexible)
        return _no_null(field, cursor) if text is None and not nullable else text
    if kind == _INT64:
        return cursor.int64()
    if kind == _INT16:
        return cursor.int16()
    if kind == _ENTITY:
        if nullable and cursor.int8() < 0:
            return None
        return _read_entity(cython.cast(_Plan, field.plan), cursor)
    if kind == _ERROR_CODE:
        return _ERROR_CODES.get(cursor.int16(), ErrorCode.unknown_server_error)
    if kind == _BOOL:
        return cursor.int8() != 0
    if kind == _INT8:
        return cursor.int8()
    if kind == _BYTES:
        size = cursor.length(field.flexible)
        if size < 0:
            return None if nullable else _no_null(field, cursor)
        return cursor.octets(size)
    return _read_rare(kind, cursor, nullable)


def _read_rare(kind: int, cursor: Cursor, nullable: bool) -> object:
    """A value of a type that few messages have; all of these are of a fixed size."""
    if kind == _UUID:
        return _id_of(cursor.uuid())
    if kind == _UINT16:
        return cursor.int16() & 0xFFFF
    if kind == _FLOAT64:
        return _DOUBLE.unpack(cursor.octets(8))[0]
    number = cursor.int32() if kind == _TIMEDELTA_32 else cursor.int64()
    if kind == _DATETIME and number == -1 and nullable:
        return None
    try:
        if kind == _DATETIME:
            return datetime.fromtimestamp(number / 1000, UTC)
        return NO_THROTTLE if number == 0 else timedelta(milliseconds=number)
    except (OverflowError, ValueError, OSError) as error:
        raise MalformedRequestError(f"a time that no clock shows before {cursor.position}: {number}") from error


def _id_of(octets: bytes) -> UUID | None:
    """A UUID, which takes its constructor a microsecond to make; all zeros stand for none."""
    if octets == _NO_ID:
        return None
    made: UUID = blank(UUID)
    fill(made, _ID_NUMBER, int.from_bytes(octets, "big"))
    fill(made, _ID_SAFETY, _SAFETY_UNKNOWN)
    return made


def _no_null(field: _Field, cursor: Cursor) -> object:
    raise MalformedRequestError(f"{field.name} before {cursor.position} is null, which it may not be")
