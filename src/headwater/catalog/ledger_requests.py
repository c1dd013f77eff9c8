"""The requests of the ledger's API, each field of the kind that it should be; ValueError in words for any other."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, Final

from pyiceberg.schema import Schema

from headwater.catalog.arrow_schemas import iceberg_schema
from headwater.catalog.callers_fault import callers_fault
from headwater.catalog.entries import SchemaChange
from headwater.catalog.ledger_json import change_from_json, schema_from_text
from headwater.catalog.positions import Position

_COUNTS: Final = {"rows": int, "rescued": int, "corrupt": int, "bytes_read": int, "seconds": float}
_LONGEST_ID: Final = 64
_LONGEST_MODE: Final = 32


def text_of_field(request: Mapping[str, Any], field: str, *, longest: int | None = None) -> str:
    """A text that must be there."""
    value = request[field]
    if not isinstance(value, str) or (longest is not None and len(value) > longest):
        most = f" of at most {longest} characters" if longest is not None else ""
        raise ValueError(f"{field} is a text{most}, not {value!r:.100}")
    return value


def load_id_of(request: Mapping[str, Any]) -> str:
    """The id of a load, which its client chooses."""
    return text_of_field(request, "load_id", longest=_LONGEST_ID)


def mode_of(request: Mapping[str, Any]) -> str:
    """What a load does to its table."""
    return text_of_field(request, "mode", longest=_LONGEST_MODE)


def optional_text(request: Mapping[str, Any], field: str) -> str | None:
    """A text, or None."""
    return None if request.get(field) is None else text_of_field(request, field)


def object_of(request: Mapping[str, Any], field: str) -> Mapping[str, Any]:
    """An object, empty when it is absent."""
    value = request.get(field)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ValueError(f"{field} is an object, not {value!r:.100}")
    return value


def position_of(request: Mapping[str, Any], field: str = "position") -> Position | None:
    """A position, or None."""
    return None if request.get(field) is None else object_of(request, field)


def counts_of(request: Mapping[str, Any]) -> dict[str, int | float | None]:
    """What a finished load counted."""
    found: dict[str, int | float | None] = {}
    for field, kind in _COUNTS.items():
        value = request.get(field)
        is_number = isinstance(value, int | float) if kind is float else isinstance(value, int)
        if value is not None and (isinstance(value, bool) or not is_number):
            raise ValueError(f"{field} is a number, not {value!r:.100}")
        found[field] = value
    return found


def pairs_of(request: Mapping[str, Any], field: str) -> tuple[tuple[str, str], ...] | None:
    """A list of pairs of texts, or None."""
    value = request.get(field)
    if value is None:
        return None
    if not isinstance(value, list) or not all(_is_pair(each) for each in value):
        raise ValueError(f"{field} is a list of pairs of texts, not {value!r:.100}")
    return tuple((first, second) for first, second in value)


def changes_of(request: Mapping[str, Any]) -> tuple[SchemaChange, ...]:
    """Steps in the history of a schema."""
    value = request.get("changes")
    if value is None:
        return ()
    if not isinstance(value, list):
        raise ValueError(f"changes is a list, not {value!r:.100}")
    return tuple(map(_change, value))


def properties_of(request: Mapping[str, Any]) -> dict[str, str]:
    """The properties that a table shall have."""
    return {str(key): str(value) for key, value in object_of(request, "properties").items()}


def schema_of(request: Mapping[str, Any], properties: Mapping[str, str]) -> Schema:
    """The schema that a table shall have, in Arrow's form or in Iceberg's."""
    if "arrow_schema" not in request:
        with callers_fault("the schema"):
            return Schema.model_validate(request["schema"])
    version = properties.get("format-version", "2")
    if version not in ("1", "2", "3"):
        raise ValueError(f"format-version is 1, 2 or 3, not {version!r:.100}")
    return iceberg_schema(schema_from_text(request["arrow_schema"]), format_version=int(version))


def _is_pair(value: object) -> bool:
    return isinstance(value, Sequence) and len(value) == 2 and all(isinstance(each, str) for each in value)


def _change(value: object) -> SchemaChange:
    if not isinstance(value, Mapping) or not value.keys() <= {each.name for each in fields(SchemaChange)}:
        raise ValueError(f"a change of a schema is an object with kind and path, not {value!r:.100}")
    for field in ("kind", "path"):
        if field not in value:
            raise ValueError(f"a change of a schema lacks {field!r}")
        text_of_field(value, field)
    for field in ("old_type", "new_type", "source", "load_id"):
        optional_text(value, field)
    position_of(value)
    at_ms = value.get("at_ms")
    if at_ms is not None and (isinstance(at_ms, bool) or not isinstance(at_ms, int)):
        raise ValueError(f"at_ms is a number, not {at_ms!r:.100}")
    return change_from_json(dict(value))
