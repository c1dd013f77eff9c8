"""What pyiceberg 0.12 lacks as the engine of a REST catalog, and how this catalog gets round it; each with its reason.

All uses of pyiceberg's private names that this needs are here, so that an upgrade is a matter of this module.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableRequest
from pyiceberg.table.metadata import TableMetadataUtil, TableMetadataV1, TableMetadataV2, TableMetadataV3
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.table.update import (
    AddPartitionSpecUpdate,
    AddSchemaUpdate,
    AddSnapshotUpdate,
    AddSortOrderUpdate,
    RemovePartitionStatisticsUpdate,
    RemovePropertiesUpdate,
    RemoveSnapshotsUpdate,
    RemoveStatisticsUpdate,
    SetCurrentSchemaUpdate,
    SetDefaultSortOrderUpdate,
    SetDefaultSpecUpdate,
    TableUpdate,
    UpgradeFormatVersionUpdate,
    _apply_table_update,
    _TableMetadataUpdateContext,
    _update_table_metadata_log,
)
from pyiceberg.typedef import IcebergBaseModel

from headwater.catalog.names import checked_level
from headwater.catalog.requests import flag_in, properties_in, text_in

AnyMetadata: TypeAlias = TableMetadataV1 | TableMetadataV2 | TableMetadataV3
"""`TableMetadata` of pyiceberg as a type that checkers and people can read."""

_UNKNOWN_TYPE: Final = "variant"


class UnsupportedFeatureError(ValueError):
    """A feature of Iceberg that this catalog cannot keep, and therefore refuses instead of losing it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateRequest:
    """A request to create a table, or to stage it for a transaction."""

    name: str
    schema: Schema
    location: str | None
    spec: PartitionSpec
    order: SortOrder
    properties: dict[str, str]
    stage: bool


def parse_create_request(body: bytes) -> CreateRequest:
    """A create request. pyiceberg's model demands fields that Iceberg's API leaves out when they are default."""
    request = parse_object(body)
    spec, order = request.get("partition-spec"), request.get("write-order")
    return CreateRequest(
        name=checked_level(request["name"]),
        schema=Schema.model_validate(request["schema"]),
        location=text_in(request, "location") if request.get("location") is not None else None,
        spec=PartitionSpec.model_validate(spec) if spec else UNPARTITIONED_PARTITION_SPEC,
        order=SortOrder.model_validate(order) if order else UNSORTED_SORT_ORDER,
        properties=properties_in(request, "properties"),
        stage=flag_in(request, "stage-create"),
    )


def parse_commit_request(request: Mapping[str, Any]) -> CommitTableRequest:
    """A commit; pyiceberg's model demands an identifier, which Iceberg's API leaves to the path."""
    identifier = request.get("identifier") or {"namespace": [], "name": ""}
    return CommitTableRequest.model_validate({"requirements": [], "updates": [], **request, "identifier": identifier})


class _Request(dict[str, Any]):
    """A JSON object from the wire: a field that it lacks is its sender's mistake, not ours."""

    def __missing__(self, name: str) -> Any:
        raise ValueError(f"the request lacks {name!r}")


def parse_object(body: bytes) -> dict[str, Any]:
    """The JSON object of a request, looked through for what pyiceberg would drop silently or refuse in riddles."""
    try:
        value = json.loads(body, object_hook=_Request)
    except ValueError as error:
        raise ValueError(f"the request's body is no JSON: {error}") from None
    if not isinstance(value, dict):
        raise ValueError("the request's body is no JSON object")
    _refuse_what_would_be_lost(value)
    return value


def _refuse_what_would_be_lost(request: dict[str, Any]) -> None:
    # pyiceberg's models ignore unknown fields: encryption keys would vanish from the metadata, and with them the data.
    updates = request.get("updates", ())
    for update in updates if isinstance(updates, list) else ():
        if not isinstance(update, dict):
            continue
        action = update.get("action", "")
        if "encryption-key" in action or update.get("snapshot", {}).get("key-id") is not None:
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


def empty_metadata() -> AnyMetadata:
    """What a table is built from whose first commit creates it."""
    return MetastoreCatalog._empty_table_metadata()


def metadata_json(metadata: AnyMetadata) -> bytes:
    """The text of a metadata file. pyiceberg refuses to write version 3, although its model holds all of it."""
    return IcebergBaseModel.model_dump_json(metadata).encode()


def parse_metadata(text: bytes) -> AnyMetadata:
    """The metadata of a file's text. A version 3 table that pyiceberg created has no next row id, which is 0 then."""
    raw = json.loads(text) if b'"encryption-keys"' in text else {}
    if raw.get("encryption-keys"):
        raise UnsupportedFeatureError(
            "this catalog keeps no encryption keys: open the table with the catalog that made it"
        )
    return _with_row_ids(TableMetadataUtil.parse_raw(text.decode()))


def validated(metadata: AnyMetadata) -> AnyMetadata:
    """The same metadata after all checks of the model, for one that was built update by update."""
    return _with_row_ids(TableMetadataUtil.parse_obj(IcebergBaseModel.model_dump(metadata)))


def _with_row_ids(metadata: AnyMetadata) -> AnyMetadata:
    if isinstance(metadata, TableMetadataV3) and metadata.next_row_id is None:
        return metadata.model_copy(update={"next_row_id": 0})
    return metadata


def apply_updates(base: AnyMetadata, updates: Iterable[TableUpdate], base_location: str | None) -> AnyMetadata:
    """The metadata after the updates; `base` itself when they change nothing. ValueError when one cannot be applied.

    pyiceberg's own function copies every snapshot deeply, which made a commit to a table of 1,000 snapshots many times
    slower than the rest of it. The models are frozen, so a shallow copy is as safe.
    """
    context = _TableMetadataUpdateContext()
    metadata = base
    added = _LastAdded()
    for update in updates:
        for step in _forgiving(added.named(update), metadata):
            metadata = _with_row_ids(_applied(step, metadata, context))
    if not context.has_changes():
        return base
    if base_location is not None:
        metadata = _update_table_metadata_log(metadata, base_location, base.last_updated_ms)
    if metadata.last_updated_ms == base.last_updated_ms:
        metadata = metadata.model_copy(update={"last_updated_ms": int(datetime.now(UTC).timestamp() * 1000)})
    metadata.spec().check_compatible(metadata.schema())
    metadata.sort_order().check_compatible(metadata.schema())
    return metadata


def _applied(update: TableUpdate, metadata: AnyMetadata, context: _TableMetadataUpdateContext) -> AnyMetadata:
    if isinstance(update, UpgradeFormatVersionUpdate) and update.format_version == 3 > metadata.format_version:
        # pyiceberg reads version 3 and does not upgrade to it.
        context.add_update(update)
        return TableMetadataV3.model_construct(**{**dict(metadata), "format_version": 3, "next_row_id": 0})
    changed: AnyMetadata = _apply_table_update(update, metadata, context)
    if isinstance(update, AddSnapshotUpdate) and isinstance(metadata, TableMetadataV3):
        # pyiceberg forgets the next row id when a snapshot does not say how many rows it adds.
        next_row_id = (metadata.next_row_id or 0) + (update.snapshot.added_rows or 0)
        return changed.model_copy(update={"next_row_id": next_row_id})
    return changed


class _LastAdded:
    """Turns -1, "the last added", into an id. pyiceberg takes the highest id instead, which may be an older one."""

    def __init__(self) -> None:
        self._schema: int | None = None
        self._spec: int | None = None
        self._order: int | None = None

    def named(self, update: TableUpdate) -> TableUpdate:
        """The update with the id that -1 stands for, as far as it is known."""
        match update:
            case AddSchemaUpdate():
                self._schema = update.schema_.schema_id
            case AddPartitionSpecUpdate():
                self._spec = update.spec.spec_id
            case AddSortOrderUpdate():
                self._order = update.sort_order.order_id
            case SetCurrentSchemaUpdate(schema_id=-1) if self._schema is not None:
                return SetCurrentSchemaUpdate.model_validate({"schema-id": self._schema})
            case SetDefaultSpecUpdate(spec_id=-1) if self._spec is not None:
                return SetDefaultSpecUpdate.model_validate({"spec-id": self._spec})
            case SetDefaultSortOrderUpdate(sort_order_id=-1) if self._order is not None:
                return SetDefaultSortOrderUpdate.model_validate({"sort-order-id": self._order})
        return update


def _forgiving(update: TableUpdate, metadata: AnyMetadata) -> Iterable[TableUpdate]:
    """The updates to apply for one of a request: what asks for the removal of something absent asks for nothing.

    Iceberg's Java client sends such updates, for example to remove the statistics of a snapshot that it removes in the
    same request; pyiceberg raises at each.
    """
    match update:
        case RemovePropertiesUpdate():
            present = [key for key in update.removals if key in metadata.properties]
            return [RemovePropertiesUpdate(removals=present)] if present else []
        case RemoveStatisticsUpdate():
            known = any(statistics.snapshot_id == update.snapshot_id for statistics in metadata.statistics)
            return [update] if known else []
        case RemovePartitionStatisticsUpdate():
            known = any(statistics.snapshot_id == update.snapshot_id for statistics in metadata.partition_statistics)
            return [update] if known else []
        case RemoveSnapshotsUpdate():
            return _removals_of_snapshots(set(update.snapshot_ids), metadata)
        case AddSchemaUpdate():
            return [] if update.schema_ in metadata.schemas and _same_id(update, metadata) else [update]
        case AddPartitionSpecUpdate():
            return [] if update.spec in metadata.partition_specs else [update]
        case AddSortOrderUpdate():
            return [] if update.sort_order in metadata.sort_orders else [update]
    return [update]


def _same_id(update: AddSchemaUpdate, metadata: AnyMetadata) -> bool:
    return any(schema.schema_id == update.schema_.schema_id for schema in metadata.schemas)


def _removals_of_snapshots(snapshot_ids: set[int], metadata: AnyMetadata) -> list[TableUpdate]:
    # pyiceberg forgets the partition statistics of a removed snapshot, and Java then fails to read the metadata.
    present = [snapshot.snapshot_id for snapshot in metadata.snapshots if snapshot.snapshot_id in snapshot_ids]
    statistics = [
        RemovePartitionStatisticsUpdate.model_validate({"snapshot-id": statistics.snapshot_id})
        for statistics in metadata.partition_statistics
        if statistics.snapshot_id in snapshot_ids
    ]
    return [*statistics, RemoveSnapshotsUpdate.model_validate({"snapshot-ids": present})] if present else []
