"""Our way of writing a response gives the bytes that kio gives, for every response in every version."""

import dataclasses
import io
import random
import typing
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer as kio_writer

from headwater.protocol import entity_writing, messages
from headwater.protocol.apis import SERVED, Api

EVERY_VERSION = [
    (api, version) for api in SERVED.values() for version in range(api.min_version, api.max_version + 1)
]  # fmt: skip
BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64, "timedelta_i32": 32}


def some(hint: Any, kind: str, chance: random.Random) -> Any:
    """A value that a field with this annotation may have."""
    if entity_writing._is_optional(hint) and chance.random() < 0.3:
        return None
    if entity_writing._is_array(hint):
        item = entity_writing._item_of(hint)
        # An array of 150 needs two bytes for its length; of entities, which may hold arrays again, a few must do.
        count = chance.choice((0, 1, 3) if entity_writing._entity_in(item) else (0, 1, 3, 150))
        return tuple(some(item, kind, chance) for _ in range(count))
    nested = entity_writing._entity_in(hint)
    if nested is not None:
        return some_entity(nested, chance)
    if kind in BITS:
        number = chance.choice((0, -1, 1, chance.randrange(-(2 ** (BITS[kind] - 1)), 2 ** (BITS[kind] - 1))))
        return timedelta(milliseconds=number) if kind.startswith("timedelta") else number
    match kind:
        case "uint16":
            return chance.randrange(2**16)
        case "bool":
            return chance.random() < 0.5
        case "error_code":
            return chance.choice(list(ErrorCode))
        case "string":
            return chance.choice(("", "orders", "ü" * 100, "x" * 20_000))
        case "bytes" | "records":
            return chance.randbytes(chance.choice((0, 5, 300)))
        case "uuid":
            return UUID(int=chance.randrange(2**128))
        case "datetime_i64":
            return datetime.fromtimestamp(chance.randrange(2_000_000_000), UTC)
    raise AssertionError(f"what is a {kind}?")


def some_entity(entity: type[Any], chance: random.Random) -> Any:
    hints = typing.get_type_hints(entity)
    values = {}
    for field in dataclasses.fields(entity):
        if field.default is not dataclasses.MISSING and chance.random() < 0.3:
            continue
        value = some(hints[field.name], field.metadata.get("kafka_type", ""), chance)
        # kio cannot write a tagged field that is None unless that is its default.
        if value is None and "tag" in field.metadata and field.default is not None:
            continue
        values[field.name] = value
    return entity(**values)


@pytest.mark.parametrize(("api", "version"), EVERY_VERSION, ids=lambda value: getattr(value, "name", str(value)))
def test_the_bytes_are_kios(api: Api, version: int) -> None:
    entity = messages.response_type(api.key, version)
    for seed in range(6):
        value = some_entity(entity, random.Random(seed))
        expected = io.BytesIO()
        kio_writer(entity)(expected, value)
        parts: list[bytes] = []
        entity_writing.entity_writer(entity)(parts, value)
        assert b"".join(parts) == expected.getvalue()
