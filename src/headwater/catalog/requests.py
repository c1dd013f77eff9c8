"""The parts of a request's JSON, each of the kind that Iceberg's API says; ValueError in words for any other."""

from collections.abc import Mapping
from typing import Any

from headwater.catalog.names import Name, checked_level, checked_namespace


def text_in(request: Mapping[str, Any], field: str) -> str:
    """A string."""
    value = request[field]
    if not isinstance(value, str):
        raise ValueError(f"Cannot parse to a string value: {field}: {value!r:.100}")
    return value


def flag_in(request: Mapping[str, Any], field: str) -> bool:
    """A boolean, false when it is absent."""
    value = request.get(field)
    if value is None:
        return False
    if not isinstance(value, bool):
        raise ValueError(f"Cannot parse to a boolean value: {field}: {value!r:.100}")
    return value


def object_in(request: Mapping[str, Any], field: str) -> Mapping[str, Any]:
    """An object."""
    return checked_object(request[field], field)


def checked_object(value: Any, field: str) -> Mapping[str, Any]:
    """The same value, when it is an object."""
    if not isinstance(value, dict):
        raise ValueError(f"Cannot parse to an object: {field}: {value!r:.100}")
    return value


def objects_in(request: Mapping[str, Any], field: str) -> list[Mapping[str, Any]]:
    """A list of objects."""
    value = request[field]
    if not isinstance(value, list):
        raise ValueError(f"Cannot parse to a list: {field}: {value!r:.100}")
    return [checked_object(each, field) for each in value]


def texts_in(request: Mapping[str, Any], field: str) -> list[str]:
    """A list of strings, empty when it is absent."""
    value = request.get(field)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise ValueError(f"Cannot parse to a list of strings: {field}: {value!r:.100}")
    return value


def properties_in(request: Mapping[str, Any], field: str) -> dict[str, str]:
    """Properties, none when they are absent. Numbers and booleans are taken as text, as the reference server does."""
    value = request.get(field)
    if value is None:
        return {}
    return {key: _property(f"{field}.{key}", each) for key, each in checked_object(value, field).items()}


def identifier_in(request: Mapping[str, Any], field: str) -> Name:
    """The name of a table: an object with a namespace and a name."""
    return identifier_of(object_in(request, field))


def identifier_of(value: Mapping[str, Any]) -> Name:
    """The name of a table in an object."""
    return (*checked_namespace(value["namespace"]), checked_level(value["name"]))


def _property(field: str, value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    raise ValueError(f"Cannot parse to a string value: {field}: {value!r:.100}")
