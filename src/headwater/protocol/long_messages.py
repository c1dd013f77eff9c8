"""Long requests and responses, read and written in steps: a generator yields where its caller may do something else.

kio reads a whole message in one call, which holds up the event loop for as long as the message is long, and the bridge
between versions goes over all of it once more. Here an array of entities is read entity by entity, each turned into the
version that the handler speaks at once, and written entity by entity. Both are bounded: a request by the number of its
items, a response by its bytes.
"""

import dataclasses
import functools
import typing
from collections.abc import Callable, Generator
from typing import Any, Final, NamedTuple

from headwater.protocol.apis import Api
from headwater.protocol.each import Each
from headwater.protocol.entity_writing import entity_plan, entity_writer
from headwater.protocol.errors import MalformedRequestError
from headwater.protocol.kafka_types import ErrorCode
from headwater.protocol.messages import Nothing, absent_fields, convert, entity_in, request_type, response_type
from headwater.protocol.wire import length_bytes

from kio.serial import entity_reader  # isort: skip
from kio.serial._parse import get_field_reader  # isort: skip
from kio.serial.errors import SerialError  # isort: skip
from kio.serial.readers import (  # isort: skip
    read_compact_array_length,
    read_legacy_array_length,
    read_unsigned_varint,
)

MAX_ITEMS: Final = 100_000
"""How many items all arrays of a request may have together. A broker has no use for as many at once."""
MAX_RESPONSE_BYTES: Final = 100 * 1024 * 1024
"""Kafka's clients refuse a longer response, as a broker does a longer request (`socket.request.max.bytes`)."""

_SHORT_ROWS: Final = 64
"""As many rows of a response are written in one go."""
_ROWS_AT_ONCE: Final = 16
_PIECES_AT_ONCE: Final = 4096

Steps = Generator[None, None, Any]
_Read = Callable[[bytes, int], tuple[Any, int]]


class TooManyItemsError(Exception):
    """A request that asks for more at once than the broker works on."""


class ResponseTooLongError(Exception):
    """A response that no client would take."""


class _Field(NamedTuple):
    name: str
    read: _Read
    """Reads the field in one go."""
    entity: type[Any] | None
    """Of the array's items, when the field is an array of entities."""
    target: type[Any] | None
    """What the items become."""
    is_array: bool


class _Layout(NamedTuple):
    """How an entity of a request is read, and made into one of another version."""

    fields: tuple[_Field, ...]
    kept: tuple[str, ...]
    absent: dict[str, object]
    flexible: bool
    has_arrays: bool
    target: type[Any]


class _Budget:
    """How many more items a request may have."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = MAX_ITEMS

    def take(self, items: int) -> None:
        self.left -= items
        if self.left < 0:
            raise TooManyItemsError(f"more than {MAX_ITEMS} items in one request")


def read_request(api: Api, version: int, wanted: type[Any], frame: bytes, position: int) -> Steps:
    """Steps to the request whose body starts at `position`, as an entity of `wanted`.

    They end with `MalformedRequestError` when the bytes are none, with `TooManyItemsError` when it asks for too much.
    """
    try:
        request, _ = yield from _entity(_layout(request_type(api.key, version), wanted), frame, position, _Budget())
    except MalformedRequestError:
        raise
    except (SerialError, ValueError, OverflowError, MemoryError, IndexError) as error:
        raise MalformedRequestError(f"{api.name} v{version} cannot be read: {error or type(error).__name__}") from error
    return request


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


def _entity(layout: _Layout, frame: bytes, position: int, budget: _Budget) -> Generator[None, None, tuple[Any, int]]:
    """Steps to the entity at `position`, and to the position behind it."""
    values: dict[str, Any] = {}
    for field in layout.fields:
        if field.is_array:
            length, after = _array_length(frame, position, layout.flexible)
            budget.take(length or 0)
            if field.entity is not None and length is not None:
                values[field.name], position = yield from _rows(field, length, frame, after, budget)
                continue
        values[field.name], size = field.read(frame, position)
        position += size
    if layout.flexible:
        position = _after_tags(frame, position)
    return layout.target(**layout.absent, **{name: values[name] for name in layout.kept}), position


def _rows(
    field: _Field, length: int, frame: bytes, position: int, budget: _Budget
) -> Generator[None, None, tuple[tuple[Any, ...], int]]:
    assert field.entity is not None
    target = field.target or field.entity
    layout = _layout(field.entity, target)
    rows = []
    if layout.has_arrays:
        for _ in range(length):
            row, position = yield from _entity(layout, frame, position, budget)
            rows.append(row)
            yield
    else:
        read = entity_reader(field.entity)
        for number in range(length):
            try:
                row, size = read(frame, position)
                position += size
            except KeyError:
                # kio's word for a tagged field that it does not know, of which Kafka says to step over it.
                row, position = yield from _entity(layout, frame, position, budget)
            rows.append(convert(row, target))
            if not number % _ROWS_AT_ONCE:
                yield
    return tuple(rows), position


def _array_length(frame: bytes, position: int, flexible: bool) -> tuple[int | None, int]:
    """The number of an array's items, None for a null array, and the position of the first."""
    length, size = (read_compact_array_length if flexible else read_legacy_array_length)(frame, position)
    after = position + size
    if length is None or length == -1:
        return None, after
    if not 0 <= length <= len(frame) - after:
        raise MalformedRequestError(f"an array of {length} items at {position} in a frame of {len(frame)}")
    return length, after


def _after_tags(frame: bytes, position: int) -> int:
    count, size = read_unsigned_varint(frame, position)
    position += size
    for _ in range(count):
        for _ in ("tag", "size"):
            number, size = read_unsigned_varint(frame, position)
            position += size
        position += number
        if position > len(frame):
            raise MalformedRequestError(f"a tagged field of {number} bytes in a frame of {len(frame)}")
    return position


def _make_layout(entity: type[Any], target: type[Any]) -> _Layout:
    hints = typing.get_type_hints(entity)
    target_hints = typing.get_type_hints(target)
    fields = []
    for field in dataclasses.fields(entity):
        # Only Fetch has requests with tagged fields that mean something, and a lane of its own.
        if "tag" in field.metadata:
            raise TypeError(f"{entity} has a tagged field, which is not read here")
        is_array = "tuple" in str(hints[field.name])
        item = entity_in(hints[field.name]) if is_array else None
        becomes = entity_in(target_hints[field.name]) if item is not None and field.name in target_hints else None
        read = get_field_reader(entity, field, False, False)
        fields.append(_Field(field.name, read, item, becomes, is_array))
    return _Layout(
        fields=tuple(fields),
        kept=tuple(field.name for field in fields if field.name in target_hints),
        absent=absent_fields(entity, target),
        flexible=entity.__flexible__,
        has_arrays=any(field.is_array for field in fields),
        target=target,
    )


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
