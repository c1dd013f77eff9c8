"""How entities come to be without their constructors, which set each field of a frozen dataclass by a Python call.

The compiled reader takes these from `entity_slots.pxd`, where a slot is the place of a field in the entity's memory.
Nothing is checked there: every slot of an entity and every place of a row is filled, by an object of the right type.
"""

from typing import Any


def slot_of(descriptor: Any) -> Any:
    """Where a field of an entity is kept, from what the entity's class has under the field's name."""
    return descriptor


def blank(entity: type[Any]) -> Any:
    """An entity of which no field is set yet."""
    return object.__new__(entity)


def fill(entity: Any, slot: Any, value: object) -> None:
    """Sets a field; one that was set before is replaced."""
    slot.__set__(entity, value)


def blank_row(size: int) -> Any:
    """A tuple of which no place is filled yet."""
    return [None] * size


def put(row: Any, index: int, value: object) -> None:
    """Fills one place of a row, once."""
    row[index] = value


def finished(row: Any) -> tuple[Any, ...]:
    """The row as a tuple."""
    return tuple(row)
