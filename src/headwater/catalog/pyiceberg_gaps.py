"""What pyiceberg 0.12 lacks as the engine of a REST catalog, and how this catalog gets round it; each with its reason.

All uses of pyiceberg's private names that this needs are here, so that an upgrade is a matter of this module.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

from pydantic import BaseModel
from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableRequest
from pyiceberg.table.metadata import TableMetadataUtil, TableMetadataV1, TableMetadataV3, new_table_metadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssignUUIDUpdate,
    RemovePartitionStatisticsUpdate,
    RemovePropertiesUpdate,
    RemoveSnapshotsUpdate,
    RemoveStatisticsUpdate,
    SetSnapshotRefUpdate,
    TableUpdate,
    UpgradeFormatVersionUpdate,
    _apply_table_update,
    _TableMetadataUpdateContext,
    _update_table_metadata_log,
)
from pyiceberg.typedef import IcebergBaseModel

from headwater.catalog.additions import Additions, check_new_spec, check_present, check_size
from headwater.catalog.any_metadata import AnyMetadata
from headwater.catalog.callers_fault import callers_fault
from headwater.catalog.names import checked_level
from headwater.catalog.request_json import UnsupportedFeatureError, parse_object
from headwater.catalog.requests import flag_in, properties_in, text_in
from headwater.catalog.schema_rules import check_schema, with_fresh_ids

_Model = TypeVar("_Model", bound=BaseModel)

_NEWEST_VERSION: Final = 3
_VERSION_OF_NEW_TABLES: Final = 2


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
    with callers_fault("the table to create"):
        return _create_request(request)


def _create_request(request: dict[str, Any]) -> CreateRequest:
    spec, order = request.get("partition-spec"), request.get("write-order")
    return CreateRequest(
        name=checked_level(request["name"]),
        schema=parsed(Schema, request["schema"]),
        location=text_in(request, "location") if request.get("location") is not None else None,
        spec=parsed(PartitionSpec, spec) if spec else UNPARTITIONED_PARTITION_SPEC,
        order=parsed(SortOrder, order) if order else UNSORTED_SORT_ORDER,
        properties=properties_in(request, "properties"),
        stage=flag_in(request, "stage-create"),
    )


def parse_commit_request(request: Mapping[str, Any]) -> CommitTableRequest:
    """A commit; pyiceberg's model demands an identifier, which Iceberg's API leaves to the path."""
    identifier = request.get("identifier") or {"namespace": [], "name": ""}
    with callers_fault("the commit"):
        _check_summaries(request)
    commit = parsed(CommitTableRequest, {"requirements": [], "updates": [], **request, "identifier": identifier})
    for update in commit.updates:
        _check_numbers(update)
    return commit


def _check_numbers(value: object) -> None:
    """pyiceberg makes numbers of any size out of texts; no engine could read them again."""
    todo = [value]
    while todo:
        each = todo.pop()
        if isinstance(each, int) and not -(2**63) <= each < 2**63:
            raise ValueError(f"{each!s:.40} is not a number of 64 bits")
        if isinstance(each, BaseModel):
            todo += [part for _, part in each]
        elif isinstance(each, list | tuple):
            todo += each


def _check_summaries(request: Mapping[str, Any]) -> None:
    # pyiceberg takes any value for a snapshot's properties, and fails when it reads them again.
    for update in request.get("updates") or ():
        summary = (update.get("snapshot") or {}).get("summary") or {}
        if not all(isinstance(value, str) for value in summary.values()):
            raise ValueError("the summary of a snapshot has texts only")


def parsed(model: type[_Model], value: object) -> _Model:
    """A model of a JSON value; ValueError when it is none. pyiceberg's validators have several more errors."""
    try:
        return model.model_validate(value)
    except (TypeError, AttributeError, ArithmeticError, LookupError, NotImplementedError) as error:
        raise ValueError(f"the request has a {model.__name__} that is none: {error}") from None
    except RecursionError:
        raise ValueError(f"the request has a {model.__name__} that is nested too deeply") from None


def empty_metadata(updates: Iterable[TableUpdate] = ()) -> AnyMetadata:
    """What a table is built from whose first commit creates it: of the version that the commit names first, or 2."""
    named = (update.format_version for update in updates if isinstance(update, UpgradeFormatVersionUpdate))
    upgrade = UpgradeFormatVersionUpdate.model_validate({"format-version": next(named, _VERSION_OF_NEW_TABLES)})
    return _applied(upgrade, MetastoreCatalog._empty_table_metadata(), _TableMetadataUpdateContext())


def new_metadata(
    schema: Schema, spec: PartitionSpec, order: SortOrder, location: str, properties: Mapping[str, str]
) -> AnyMetadata:
    """The metadata of a new table. pyiceberg loses the default values of columns when it gives them their ids."""
    text = properties.get("format-version", str(_VERSION_OF_NEW_TABLES))
    if text not in map(str, range(1, _NEWEST_VERSION + 1)):
        raise ValueError(f"Unsupported format version: {text!r:.30} (supported: 1 to {_NEWEST_VERSION})")
    check_schema(schema, int(text))
    check_size(spec)
    metadata = new_table_metadata(schema, spec, order, location, dict(properties))
    fresh = with_fresh_ids(schema)
    metadata = _with_fields_of_v1(metadata.model_copy(update={"schemas": [fresh]}))
    check_new_spec(metadata.spec(), metadata)
    return validated(metadata)


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
    additions = Additions()
    for update in updates:
        _check_update(update, base, exists=base_location is not None)
        for step in _forgiving(update, metadata):
            added = additions.applied(step, metadata)
            metadata = _with_row_ids(_applied(step, metadata, context)) if added is None else added
    if metadata is base:
        return base
    if base_location is not None:
        metadata = _update_table_metadata_log(metadata, base_location, base.last_updated_ms)
    if metadata.last_updated_ms == base.last_updated_ms:
        metadata = metadata.model_copy(update={"last_updated_ms": int(datetime.now(UTC).timestamp() * 1000)})
    check_present(metadata, new=base_location is None)
    metadata.spec().check_compatible(metadata.schema())
    metadata.sort_order().check_compatible(metadata.schema())
    return _with_fields_of_v1(metadata)


def _check_update(update: TableUpdate, base: AnyMetadata, *, exists: bool) -> None:
    if exists and isinstance(update, AssignUUIDUpdate) and update.uuid != base.table_uuid:
        # The reference server takes it, and every client that has the table open is then refused.
        raise ValueError(
            f"Cannot assign UUID {update.uuid} to a table whose UUID is {base.table_uuid}: a table keeps it"
        )
    if isinstance(update, SetSnapshotRefUpdate) and update.ref_name == MAIN_BRANCH and update.type != "branch":
        raise ValueError(f"Cannot set {MAIN_BRANCH} to a tag, it must be a branch")


def _with_fields_of_v1(metadata: AnyMetadata) -> AnyMetadata:
    """Version 1 has the current schema and spec in fields of their own too, which pyiceberg leaves as they were."""
    if not isinstance(metadata, TableMetadataV1):
        return metadata
    spec = [field.model_dump() for field in metadata.spec().fields]
    return metadata.model_copy(update={"schema_": metadata.schema(), "partition_spec": spec})


def _applied(update: TableUpdate, metadata: AnyMetadata, context: _TableMetadataUpdateContext) -> AnyMetadata:
    if isinstance(update, UpgradeFormatVersionUpdate) and update.format_version == metadata.format_version:
        return metadata
    if isinstance(update, UpgradeFormatVersionUpdate) and update.format_version == 3 > metadata.format_version:
        # pyiceberg reads version 3 and does not upgrade to it.
        context.add_update(update)
        return TableMetadataV3.model_construct(**{**dict(metadata), "format_version": 3, "next_row_id": 0})
    if isinstance(update, AddSnapshotUpdate):
        _check_is_next(update.snapshot, metadata)
    changed: AnyMetadata = _apply_table_update(update, metadata, context)
    if isinstance(update, AddSnapshotUpdate) and isinstance(metadata, TableMetadataV3):
        # pyiceberg forgets the next row id when a snapshot does not say how many rows it adds.
        next_row_id = (metadata.next_row_id or 0) + (update.snapshot.added_rows or 0)
        return changed.model_copy(update={"next_row_id": next_row_id})
    return changed


def _check_is_next(snapshot: Snapshot, metadata: AnyMetadata) -> None:
    """A writer to another branch was quicker: numbers that come too late are a conflict, so the client tries again."""
    late = "Validation failed, please retry: Cannot add"
    number, last = (
        snapshot.sequence_number,
        None if isinstance(metadata, TableMetadataV1) else metadata.last_sequence_number,
    )
    if number is not None and last is not None and snapshot.parent_snapshot_id is not None and number <= last:
        raise CommitFailedException(
            f"{late} snapshot with sequence number {number} older than last sequence number {last}"
        )
    if isinstance(metadata, TableMetadataV3) and snapshot.first_row_id is not None:
        next_row_id = metadata.next_row_id or 0
        if snapshot.first_row_id < next_row_id:
            raise CommitFailedException(
                f"{late} a snapshot, first-row-id is behind table next-row-id: {snapshot.first_row_id} < {next_row_id}"
            )


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
    return [update]


def _removals_of_snapshots(snapshot_ids: set[int], metadata: AnyMetadata) -> list[TableUpdate]:
    # pyiceberg forgets the partition statistics of a removed snapshot, and Java then fails to read the metadata.
    present = [snapshot.snapshot_id for snapshot in metadata.snapshots if snapshot.snapshot_id in snapshot_ids]
    statistics = [
        RemovePartitionStatisticsUpdate.model_validate({"snapshot-id": statistics.snapshot_id})
        for statistics in metadata.partition_statistics
        if statistics.snapshot_id in snapshot_ids
    ]
    return [*statistics, RemoveSnapshotsUpdate.model_validate({"snapshot-ids": present})] if present else []
