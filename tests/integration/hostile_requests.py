"""Requests of any API that are as large as they may be: many items, the same one again and again, items in items.

They are made of the schema alone: an array is filled with `many` items, what lies in an item has one each, unless the
items in it are to be many.
"""

import dataclasses
import typing
from collections.abc import Iterator
from typing import Any, Final
from uuid import UUID

from headwater.protocol.apis import Api
from headwater.protocol.entity_shapes import nested_entity
from headwater.protocol.entity_writing import entity_writer
from headwater.protocol.messages import Nothing, convert, request_type

MANY: Final = 20_000


def request_frame(api: Api, version: int, request: Any, *, correlation_id: int = 7) -> bytes:
    """A frame without its length, from a client without a name."""
    flexible = version >= api.flexible
    parts = [api.key.to_bytes(2, "big"), version.to_bytes(2, "big"), correlation_id.to_bytes(4, "big"), b"\xff\xff"]
    parts.append(b"\0" if flexible else b"")
    entity_writer(request_type(api.key, version))(parts, request)
    return b"".join(parts)


def hostile_requests(api: Api, version: int, many: int = MANY, **given: Any) -> Iterator[tuple[str, Any]]:
    """Requests with many items in one array each, named after it; `given` are fields that a sensible one would have."""
    kind = request_type(api.key, version)
    for path in _arrays(kind):
        for how in ("same", "distinct"):
            request = dataclasses.replace(_filled(kind, path, many, how, 0), **_fitting(kind, given))
            yield f"{how} {'.'.join(path)}", request


def _fitting(kind: type[Any], given: dict[str, Any]) -> dict[str, Any]:
    names = {field.name for field in dataclasses.fields(kind)}
    return {name: value for name, value in given.items() if name in names}


def _arrays(kind: type[Any]) -> Iterator[tuple[str, ...]]:
    hints = typing.get_type_hints(kind)
    for field in dataclasses.fields(kind):
        if "tuple" not in str(hints[field.name]):
            continue
        yield (field.name,)
        nested = nested_entity(hints[field.name])
        if nested is not None:
            for rest in _arrays(nested):
                yield (field.name, *rest)


def _filled(kind: type[Any], path: tuple[str, ...], many: int, how: str, number: int) -> Any:
    values: dict[str, Any] = {}
    hints = typing.get_type_hints(kind)
    for field in dataclasses.fields(kind):
        hint = hints[field.name]
        if "tuple" in str(hint):
            is_long = path[:1] == (field.name,)
            is_last = path == (field.name,)
            size = many if is_last else 1
            nested = nested_entity(hint)
            rest = path[1:] if is_long else ()
            if nested is None:
                values[field.name] = tuple(_single(hint, at if how == "distinct" else 0) for at in range(size))
            elif how == "same" and is_last:
                values[field.name] = (_filled(nested, rest, many, how, 0),) * size
            else:
                values[field.name] = tuple(_filled(nested, rest, many, how, at) for at in range(size))
        elif field.name == "topic_id" and "name" in hints:
            values[field.name] = None
        elif field.name in _TELLING or field.default is dataclasses.MISSING:
            value = _single(hint, number)
            if value is not None:
                values[field.name] = value
    return dataclasses.replace(convert(Nothing(), kind), **values)


_TELLING: Final = ("name", "topic", "partition", "partition_index", "resource_name", "group_id", "timestamp")


def _single(hint: Any, number: int) -> Any:
    words = str(hint)
    if "UUID" in words:
        return UUID(int=number + 1)
    if "str" in words or "TopicName" in words or "GroupId" in words or "TransactionalId" in words:
        return f"x{number}"
    if "bytes" in words:
        return b"x"
    if any(kind in words for kind in ("i8", "i16", "ErrorCode", "Timedelta", "bool")):
        return None
    return number if any(kind in words for kind in ("i32", "i64", "BrokerId", "ProducerId")) else None
