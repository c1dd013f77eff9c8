"""What kio's annotations say of the fields of an entity: reading and writing both make their plans from it."""

import dataclasses
import types
import typing
from dataclasses import dataclass
from typing import Any, Final

_MISSING: Final = dataclasses.MISSING


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One field of an entity.

    `kind` is kio's name for its type, empty where `nested` is the entity that the field, or each of its items, is.
    `default` is the value that a tagged field need not be written for.
    """

    name: str
    kind: str
    nested: type[Any] | None
    is_array: bool
    nullable: bool
    tag: int | None
    default: object


def shapes(entity: type[Any]) -> list[Shape]:
    """The fields of an entity in the order of the wire."""
    hints = typing.get_type_hints(entity)
    return [_shape(field, hints[field.name]) for field in dataclasses.fields(entity)]


def nested_entity(hint: Any) -> type[Any] | None:
    """The entity type inside `X`, `X | None`, `tuple[X, ...]` or `tuple[X, ...] | None`."""
    for one in _alternatives(hint):
        inner = typing.get_args(one)[0] if typing.get_origin(one) is tuple else one
        if isinstance(inner, type) and dataclasses.is_dataclass(inner):
            return inner
    return None


def _shape(field: "dataclasses.Field[Any]", hint: Any) -> Shape:
    is_array = any(typing.get_origin(one) is tuple for one in _alternatives(hint))
    default = () if is_array else None
    return Shape(
        name=field.name,
        kind=field.metadata.get("kafka_type", ""),
        nested=nested_entity(hint),
        is_array=is_array,
        nullable=types.NoneType in _alternatives(hint),
        tag=field.metadata.get("tag"),
        default=default if field.default is _MISSING else field.default,
    )


def _alternatives(hint: Any) -> tuple[Any, ...]:
    is_union = isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union
    return typing.get_args(hint) if is_union else (hint,)
