"""What a commit requires of its table, in the words of Iceberg's reference server, which people know. Pure."""

from pyiceberg.table.update import (
    AssertCreate,
    AssertCurrentSchemaId,
    AssertDefaultSortOrderId,
    AssertDefaultSpecId,
    AssertLastAssignedFieldId,
    AssertLastAssignedPartitionId,
    AssertRefSnapshotId,
    AssertTableUUID,
    TableRequirement,
)

from headwater.catalog.any_metadata import AnyMetadata

TABLE_EXISTS = "Requirement failed: table already exists"


def unmet(requirement: TableRequirement, current: AnyMetadata | None) -> str | None:
    """Why a requirement does not hold for a table, None for one that is created; None when it holds."""
    if isinstance(requirement, AssertCreate):
        return TABLE_EXISTS if current is not None else None
    if current is None:
        # Ids that were assigned last mean nothing for a table that is created.
        holds = isinstance(requirement, AssertLastAssignedFieldId | AssertLastAssignedPartitionId)
        return None if holds else "Requirement failed: the table does not exist"
    if isinstance(requirement, AssertRefSnapshotId):
        return _unmet_reference(requirement, current)
    what, expected, found = _compared(requirement, current)
    return None if expected == found else f"Requirement failed: {what}: expected id {expected} != {found}"


def _compared(requirement: TableRequirement, current: AnyMetadata) -> tuple[str, object, object]:
    match requirement:
        case AssertTableUUID():
            return "UUID does not match", requirement.uuid, current.table_uuid
        case AssertLastAssignedFieldId():
            return "last assigned field id changed", requirement.last_assigned_field_id, current.last_column_id
        case AssertCurrentSchemaId():
            return "current schema changed", requirement.current_schema_id, current.current_schema_id
        case AssertLastAssignedPartitionId():
            required, found = requirement.last_assigned_partition_id, current.last_partition_id
            return "last assigned partition id changed", required, found
        case AssertDefaultSpecId():
            return "default partition spec changed", requirement.default_spec_id, current.default_spec_id
        case AssertDefaultSortOrderId():
            return "default sort order changed", requirement.default_sort_order_id, current.default_sort_order_id
    raise ValueError(f"this catalog does not know the requirement {requirement.type!r:.100}")


def _unmet_reference(requirement: AssertRefSnapshotId, current: AnyMetadata) -> str | None:
    name, expected = requirement.ref, requirement.snapshot_id
    reference = current.refs.get(name)
    if reference is None:
        missing = f"Requirement failed: branch or tag {name} is missing, expected {expected}"
        return missing if expected is not None else None
    kind = reference.snapshot_ref_type
    if expected is None:
        return f"Requirement failed: {kind} {name} was created concurrently"
    if expected != reference.snapshot_id:
        found = reference.snapshot_id
        return f"Requirement failed: {kind} {name} has changed: expected id {expected} != {found}"
    return None
