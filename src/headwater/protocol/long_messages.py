"""Long requests and responses, in steps: a generator yields where its caller may do something else.

The bridge between versions holds up the event loop for as long as a request is long, and so does writing a long
response. Here an array of entities is turned into the version that the handler speaks row by row, and written row by
row. Both are bounded: a request by the number of its items (`wire.py`), a response by its bytes.
"""

import dataclasses
import functools
from collections.abc import Callable, Generator
from typing import Any, Final, NamedTuple

from headwater.protocol.apis import Api
from headwater.protocol.each import Each
from headwater.protocol.entity_shapes import shapes
from headwater.protocol.entity_writing import entity_plan, entity_writer
from headwater.protocol.errors import ResponseTooLongError
from headwater.protocol.kafka_types import ErrorCode
from headwater.protocol.messages import Nothing, absent_fields, convert, decode_request, response_type
from headwater.protocol.wire import length_bytes

MAX_RESPONSE_BYTES: Final = 100 * 1024 * 1024
"""Kafka's clients refuse a longer response, as a broker does a longer request (`socket.request.max.bytes`)."""

_SHORT_ROWS: Final = 64
"""As many rows of a response are written in one go."""
_ROWS_AT_ONCE: Final = 16
_PIECES_AT_ONCE: Final = 4096

Steps = Generator[None, None, Any]


class _Field(NamedTuple):
    name: str
    target: type[Any] | None
    """What the field's rows become, when it is an array of entities that differ between the versions."""


class _Layout(NamedTuple):
    """How an entity of a request is made into one of another version."""

    fields: tuple[_Field, ...]
    absent: dict[str, object]


def read_request(api: Api, version: int, wanted: type[Any], frame: bytes, position: int) -> Steps:
    """Steps to the request whose body starts at `position`, as an entity of `wanted`.

    They end with `MalformedRequestError` when the bytes are none, with `TooManyItemsError` when it asks for too much.
    The bytes are read in one go: the most items that a request may have take less than a slice or two.
    """
    request = decode_request(api, version, frame, position)
    yield
    return (yield from _converted(request, wanted))


def refusal(api: Api, version: int) -> Any:
    """The response to a request with too many items: INVALID_REQUEST where the API has room for an error of the whole
    request, else None."""
    response = response_type(api.key, version)
    fields = {field.name for field in dataclasses.fields(response)}
    if "error_code" not in fields:
        return None
    return dataclasses.replace(convert(Nothing(), response), error_code=ErrorCode.invalid_request)


def is_long(response: Any) -> bool:
    """Whether a response should rather be written in steps."""
    if isinstance(response, bytes):
        return False
    for rows in entity_plan(type(response)).rows:
        values = None if rows is None else getattr(response, rows.name)
        if values is None or not len(values):
            continue
        if isinstance(values, Each) or len(values) > _SHORT_ROWS:
            return True
        if any(entity_plan(type(values[0])).rows) and any(map(is_long, values)):
            return True
    return False


def write_response(api: Api, version: int, correlation_id: int, response: Any) -> Steps:
    """Steps to the whole frame of a response; `ResponseTooLongError` when no client would take it."""
    parts = [correlation_id.to_bytes(4, "big", signed=True), b"\0" if version >= api.flexible else b""]
    frame = bytearray(4)
    wanted = response_type(api.key, version)
    for _ in _write(wanted, convert(_row_by_row(response), wanted), parts):
        if len(parts) >= _PIECES_AT_ONCE:
            frame += b"".join(parts)
            parts.clear()
            if len(frame) > MAX_RESPONSE_BYTES:
                raise ResponseTooLongError(
                    f"the response to its {api.name} would be longer than {MAX_RESPONSE_BYTES} bytes: ask for less"
                )
        yield
    frame += b"".join(parts)
    frame[:4] = (len(frame) - 4).to_bytes(4, "big")
    return bytes(frame)


def _converted(message: Any, wanted: type[Any]) -> Steps:
    """`message` as an entity of another version."""
    if type(message) is wanted:
        return message
    layout = _layout(type(message), wanted)
    values = {}
    for field in layout.fields:
        value = getattr(message, field.name)
        values[field.name] = (yield from _rows(value, field.target)) if field.target and value else value
    return wanted(**layout.absent, **values)


def _rows(rows: tuple[Any, ...], target: type[Any]) -> Steps:
    has_rows = any(entity_plan(target).rows)
    made = []
    for number, row in enumerate(rows):
        made.append((yield from _converted(row, target)) if has_rows else convert(row, target))
        if has_rows or not number % _ROWS_AT_ONCE:
            yield
    return tuple(made)


def _make_layout(entity: type[Any], target: type[Any]) -> _Layout:
    names = {shape.name: shape for shape in shapes(target)}
    fields = []
    for shape in shapes(entity):
        if shape.name in names:
            becomes = names[shape.name].nested
            if shape.nested is not becomes and not shape.is_array:
                raise TypeError(f"{shape.name} of {entity.__name__} is one entity, which is not converted here")
            fields.append(_Field(shape.name, None if becomes is shape.nested else becomes))
    return _Layout(tuple(fields), absent_fields(entity, target))


_layout: Callable[[Any, Any], _Layout] = functools.cache(_make_layout)


def _row_by_row(value: Any) -> Any:
    """The same entity, of which long arrays go over the bridge between versions row by row."""
    long_rows = {}
    for rows in entity_plan(type(value)).rows:
        values = None if rows is None else getattr(value, rows.name)
        if rows is not None and values:
            has_rows = any(entity_plan(rows.entity).rows)
            if has_rows or (len(values) > _SHORT_ROWS and isinstance(values, tuple)):
                long_rows[rows.name] = Each(_row_by_row if has_rows else _itself, values)
    return dataclasses.replace(value, **long_rows) if long_rows else value


def _itself(row: Any) -> Any:
    return row


def _write(entity: type[Any], value: Any, parts: list[bytes]) -> Steps:
    plan = entity_plan(entity)
    for step, rows in zip(plan.steps, plan.rows, strict=True):
        values = None if rows is None else getattr(value, rows.name)
        if rows is None or not values:
            step(parts, value)
            continue
        parts.append(length_bytes(len(values), rows.flexible))
        write, has_rows = entity_writer(rows.entity), any(entity_plan(rows.entity).rows)
        is_made = isinstance(values, Each)
        for number, row in enumerate(values):
            if has_rows:
                yield from _write(rows.entity, row, parts)
            else:
                write(parts, row)
            if is_made or not number % _ROWS_AT_ONCE:
                yield
