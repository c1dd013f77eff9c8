"""What the catalog tells about a lake: loads, files, schema changes and tables, as its client hands them out."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from headwater.catalog.positions import Position

if TYPE_CHECKING:
    import pyarrow as pa

PENDING: Final = "pending"
COMMITTED: Final = "committed"
FAILED: Final = "failed"
"""The states of a load. Only a pending one can be committed, and its commit is the table's new snapshot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """One attempt to bring what is new in a source into a table."""

    load_id: str
    table: str
    source: str
    mode: str
    state: str
    before: Position | None
    after: Position | None
    details: Mapping[str, Any]
    begun_ms: int
    committed_ms: int | None = None
    finished_ms: int | None = None
    snapshot_id: int | None = None
    rows: int | None = None
    rescued: int | None = None
    corrupt: int | None = None
    bytes_read: int | None = None
    seconds: float | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FileEntry:
    """A file as a load found it."""

    load: Load
    path: str
    modified_ns: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaChange:
    """One step in the history of a table's schema: what changed, and the data that made it change."""

    kind: str
    path: str
    old_type: str | None = None
    new_type: str | None = None
    source: str | None = None
    position: Position | None = None
    load_id: str | None = None
    at_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableState:
    """A table as it is now."""

    table: str
    uuid: str
    location: str
    metadata_location: str
    format_version: int
    schema: "pa.Schema"
    schema_id: int
    iceberg_schema: str
    """The schema in Iceberg's own JSON, with field ids."""
    partition_spec: tuple[tuple[str, str], ...]
    """Transform and column of each partition field, for example `("day", "_timestamp")`."""
    sort_order: tuple[tuple[str, str], ...]
    """Column and direction (`asc`, `desc`) of each sort field."""
    properties: Mapping[str, str]
    snapshot_id: int | None
    positions: Mapping[str, Position] = field(default_factory=dict)
    """The position of each source of the table."""
