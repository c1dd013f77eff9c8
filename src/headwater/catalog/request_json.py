"""A request's body as a JSON object, looked through for what pyiceberg would drop or refuse in riddles. Pure."""

from collections.abc import Iterator
from typing import Any, Final

from headwater.catalog.additions import UNASSIGNED
from headwater.catalog.wire_json import read_json

_UNKNOWN_TYPE: Final = "variant"


class UnsupportedFeatureError(ValueError):
    """A feature of Iceberg that this catalog cannot keep, and therefore refuses instead of losing it."""


class _Request(dict[str, Any]):
    """A JSON object from the wire: a field that it lacks is its sender's mistake, not ours."""

    def __missing__(self, name: str) -> Any:
        raise ValueError(f"the request lacks {name!r}")


def parse_object(body: bytes) -> dict[str, Any]:
    """The JSON object of a request."""
    try:
        value = read_json(body, make_object=_Request)
    except ValueError as error:
        raise ValueError(f"the request's body is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ValueError("the request's body is not a JSON object")
    _refuse_what_would_be_lost(value)
    _mark_missing_field_ids(value)
    return value


def _updates_of(request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """All updates of a commit to one table or to several."""
    for part in (request, *_objects(request.get("table-changes"))):
        yield from _objects(part.get("updates"))


def _objects(value: object) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _refuse_what_would_be_lost(request: dict[str, Any]) -> None:
    # pyiceberg's models ignore unknown fields: encryption keys would vanish from the metadata, and with them the data.
    for update in _updates_of(request):
        snapshot = update.get("snapshot")
        encrypted = isinstance(snapshot, dict) and snapshot.get("key-id") is not None
        if encrypted or "encryption-key" in str(update.get("action")):
            raise UnsupportedFeatureError("this catalog keeps no encryption keys: create the table without encryption")
        _refuse_variants(update.get("schema"))
    _refuse_variants(request.get("schema"))


def _refuse_variants(schema: object) -> None:
    if isinstance(schema, dict):
        if schema.get("type") == _UNKNOWN_TYPE:
            raise UnsupportedFeatureError(
                f"this catalog knows no columns of type {schema['type']}"
                f"{' (column ' + str(schema['name']) + ')' if 'name' in schema else ''}: use string or a struct"
            )
        for name in ("fields", "type", "element", "value", "key"):
            inner = schema.get(name)
            _refuse_variants({"type": inner} if inner == _UNKNOWN_TYPE else inner)
    elif isinstance(schema, list):
        for inner in schema:
            _refuse_variants(inner)


def _mark_missing_field_ids(request: dict[str, Any]) -> None:
    """Iceberg's API leaves a partition field's id to the table when it is absent; pyiceberg demands one."""
    specs = (request.get("partition-spec"), *(update.get("spec") for update in _updates_of(request)))
    for spec in specs:
        for field in _objects(spec.get("fields")) if isinstance(spec, dict) else ():
            if field.get("field-id") is None:
                field["field-id"] = UNASSIGNED
