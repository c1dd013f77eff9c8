"""The ledger's entries as JSON, for both ends of its HTTP API."""

import base64
import binascii
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from headwater.catalog.entries import FileEntry, Load, SchemaChange, TableState

if TYPE_CHECKING:
    import pyarrow as pa


def load_to_json(load: Load) -> dict[str, Any]:
    """A load as a JSON object."""
    return asdict(load)


def load_from_json(value: dict[str, Any]) -> Load:
    """The load of a JSON object."""
    return Load(**value)


def file_to_json(entry: FileEntry) -> dict[str, Any]:
    """A load's file as a JSON object."""
    return asdict(entry)


def file_from_json(value: dict[str, Any]) -> FileEntry:
    """The file of a JSON object."""
    return FileEntry(**{**value, "load": load_from_json(value["load"])})


def change_to_json(change: SchemaChange) -> dict[str, Any]:
    """A schema change as a JSON object."""
    return asdict(change)


def change_from_json(value: dict[str, Any]) -> SchemaChange:
    """The schema change of a JSON object."""
    return SchemaChange(**value)


def state_to_json(state: TableState) -> dict[str, Any]:
    """A table's state as a JSON object; the Arrow schema is an Arrow message in base64."""
    value = {name: getattr(state, name) for name in TableState.__dataclass_fields__}
    return {**value, "schema": schema_to_text(state.schema)}


def state_from_json(value: dict[str, Any]) -> TableState:
    """The table's state of a JSON object."""
    return TableState(
        **{
            **value,
            "schema": schema_from_text(value["schema"]),
            "partition_spec": tuple((transform, column) for transform, column in value["partition_spec"]),
            "sort_order": tuple((column, direction) for column, direction in value["sort_order"]),
        }
    )


def schema_to_text(schema: "pa.Schema") -> str:
    """An Arrow schema as text."""
    return base64.b64encode(schema.serialize()).decode()


def schema_from_text(text: str) -> "pa.Schema":
    """The Arrow schema of a text."""
    from headwater.catalog.arrow_input import MalformedArrowError, read_schema

    try:
        return read_schema(base64.b64decode(text, validate=True))
    except (TypeError, binascii.Error):
        raise MalformedArrowError("an Arrow schema is a text in base64") from None
