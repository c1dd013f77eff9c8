"""What a commit adds to a table: schemas, partition specs and sort orders, under the ids that the table gives them.

Writers propose ids from what they last saw, so two of them may propose the same one for different things. The table
decides, as Iceberg's reference server does: what it has already keeps its id, anything else gets the next one.
"""

from typing import Final

from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortOrder
from pyiceberg.table.update import (
    AddPartitionSpecUpdate,
    AddSchemaUpdate,
    AddSortOrderUpdate,
    SetCurrentSchemaUpdate,
    SetDefaultSortOrderUpdate,
    SetDefaultSpecUpdate,
    TableUpdate,
)
from pyiceberg.transforms import VoidTransform

from headwater.catalog.any_metadata import AnyMetadata
from headwater.catalog.schema_rules import check_schema

LAST_ADDED: Final = -1
UNASSIGNED: Final = -1
"""The field id of a partition field that its writer leaves to the table."""

_LAST_PARTITION_FIELD_ID: Final = 2**31 - 2
_MOST_ADDED: Final = 100
_MOST_FIELDS: Final = 1_000
"""In a partition spec: each of its fields is looked for in all others, and engines make folders of them."""


class Additions:
    """The additions of one commit, in their order."""

    def __init__(self) -> None:
        self._added = 0
        self._schemas = _Given("schema")
        self._specs = _Given("spec")
        self._orders = _Given("sort order")

    def applied(self, update: TableUpdate, metadata: AnyMetadata) -> AnyMetadata | None:
        """The metadata after an update; None for updates of other kinds."""
        if isinstance(update, AddSchemaUpdate | AddPartitionSpecUpdate | AddSortOrderUpdate):
            self._count()
        match update:
            case AddSchemaUpdate():
                return self._with_schema(update.schema_, metadata)
            case AddPartitionSpecUpdate():
                return self._with_spec(update.spec, metadata)
            case AddSortOrderUpdate():
                return self._with_order(update.sort_order, metadata)
            case SetCurrentSchemaUpdate():
                schema_id = self._schemas.meant(update.schema_id)
                if metadata.schema_by_id(schema_id) is None:
                    raise ValueError(f"Cannot set current schema to unknown schema: {schema_id}")
                return _changed(metadata, current_schema_id=schema_id)
            case SetDefaultSpecUpdate():
                spec_id = self._specs.meant(update.spec_id)
                if spec_id not in (spec.spec_id for spec in metadata.partition_specs):
                    raise ValueError(f"Cannot set default partition spec to unknown spec: {spec_id}")
                return _changed(metadata, default_spec_id=spec_id)
            case SetDefaultSortOrderUpdate():
                order_id = self._orders.meant(update.sort_order_id)
                if order_id not in (order.order_id for order in metadata.sort_orders):
                    raise ValueError(f"Cannot set default sort order to unknown sort order: {order_id}")
                return _changed(metadata, default_sort_order_id=order_id)
        return None

    def _count(self) -> None:
        # Each is compared with all that the table has.
        self._added += 1
        if self._added > _MOST_ADDED:
            raise ValueError(f"a commit adds at most {_MOST_ADDED} schemas, partition specs and sort orders")

    def _with_schema(self, schema: Schema, metadata: AnyMetadata) -> AnyMetadata:
        check_schema(schema, metadata.format_version)
        # What the request says about the last column id does not count: the table knows it.
        last_column_id = max(metadata.last_column_id, schema.highest_field_id)
        proposed = schema.schema_id if "schema_id" in schema.model_fields_set else None
        for known in metadata.schemas:
            if _same_schema(known, schema):
                self._schemas.add(proposed, known.schema_id)
                return _changed(metadata, last_column_id=last_column_id)
        schema_id = 1 + max((known.schema_id for known in metadata.schemas), default=-1)
        self._schemas.add(proposed, schema_id)
        added = schema.model_copy(update={"schema_id": schema_id})
        return _changed(metadata, schemas=[*metadata.schemas, added], last_column_id=last_column_id)

    def _with_spec(self, spec: PartitionSpec, metadata: AnyMetadata) -> AnyMetadata:
        proposed = spec.spec_id if "spec_id" in spec.model_fields_set else None
        check_size(spec)
        spec = _with_field_ids(spec, metadata)
        for known in metadata.partition_specs:
            if known.compatible_with(spec):
                self._specs.add(proposed, known.spec_id)
                return metadata
        _check_spec(spec, _current_schema(metadata, "partition spec"), metadata)
        spec_id = 1 + max((known.spec_id for known in metadata.partition_specs), default=-1)
        self._specs.add(proposed, spec_id)
        return _changed(
            metadata,
            partition_specs=[*metadata.partition_specs, spec.model_copy(update={"spec_id": spec_id})],
            last_partition_id=max(_last_partition_id(metadata), spec.last_assigned_field_id),
        )

    def _with_order(self, order: SortOrder, metadata: AnyMetadata) -> AnyMetadata:
        proposed = order.order_id if "order_id" in order.model_fields_set else None
        for known in metadata.sort_orders:
            if known.fields == order.fields:
                self._orders.add(proposed, known.order_id)
                return metadata
        order.check_compatible(_current_schema(metadata, "sort order"))
        # 0 is the id of the unsorted order, in every table.
        highest = max((known.order_id for known in metadata.sort_orders), default=0)
        order_id = max(highest, 0) + 1 if order.fields else 0
        self._orders.add(proposed, order_id)
        return _changed(metadata, sort_orders=[*metadata.sort_orders, order.model_copy(update={"order_id": order_id})])


def check_present(metadata: AnyMetadata, *, new: bool) -> None:
    """Raises ValueError when the table has no schema, spec or sort order of the id that it names as its own.

    Old tables may leave out that they are not sorted, new ones may not: Java's library writes and expects it.
    """
    if metadata.schema_by_id(metadata.current_schema_id) is None:
        raise ValueError(f"the table has no schema of its current schema id {metadata.current_schema_id}: add one")
    if metadata.default_spec_id not in (spec.spec_id for spec in metadata.partition_specs):
        raise ValueError(f"the table has no partition spec of its default id {metadata.default_spec_id}: add one")
    unsorted = not new and metadata.default_sort_order_id == 0
    if not unsorted and metadata.default_sort_order_id not in (order.order_id for order in metadata.sort_orders):
        raise ValueError(f"the table has no sort order of its default id {metadata.default_sort_order_id}: add one")


def check_readable(metadata: AnyMetadata) -> None:
    """Raises ValueError when engines could not read a table whose metadata comes from elsewhere."""
    check_present(metadata, new=False)
    for schema in metadata.schemas:
        check_schema(schema, metadata.format_version)
    for kind, ids in (
        ("schemas", [schema.schema_id for schema in metadata.schemas]),
        ("partition specs", [spec.spec_id for spec in metadata.partition_specs]),
        ("sort orders", [order.order_id for order in metadata.sort_orders]),
        ("snapshots", [snapshot.snapshot_id for snapshot in metadata.snapshots]),
    ):
        if len(ids) != len(set(ids)):
            raise ValueError(f"the table's metadata has two {kind} with one id: no engine could read the table")


def check_new_spec(spec: PartitionSpec, metadata: AnyMetadata) -> None:
    """Raises ValueError when engines could not read a new table with its first partition spec."""
    _check_spec(spec, metadata.schema(), metadata)


class _Given:
    """The ids that the additions of a kind were given."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._last: int | None = None
        self._by_proposal: dict[int, int] = {}

    def add(self, proposed: int | None, given: int) -> None:
        """Remembers one."""
        self._last = given
        if proposed is not None:
            self._by_proposal[proposed] = given

    def meant(self, named: int) -> int:
        """The id of what an update names: the last one added, or one of this commit by the id it was proposed with."""
        if named != LAST_ADDED:
            return self._by_proposal.get(named, named)
        if self._last is None:
            raise ValueError(f"Cannot set last added {self._kind}: no {self._kind} has been added")
        return self._last


def _changed(metadata: AnyMetadata, **fields: object) -> AnyMetadata:
    """The same object when nothing changes, which is how a commit without changes is known."""
    if all(getattr(metadata, name) == value for name, value in fields.items()):
        return metadata
    return metadata.model_copy(update=fields)


def _same_schema(one: Schema, other: Schema) -> bool:
    return one.as_struct() == other.as_struct() and set(one.identifier_field_ids) == set(other.identifier_field_ids)


def _current_schema(metadata: AnyMetadata, added: str) -> Schema:
    schema = metadata.schema_by_id(metadata.current_schema_id)
    if schema is None:
        raise ValueError(f"Cannot add a {added} before the table has a current schema")
    return schema


def _last_partition_id(metadata: AnyMetadata) -> int:
    last = metadata.last_partition_id
    return last if last is not None else PARTITION_FIELD_ID_START - 1


def _with_field_ids(spec: PartitionSpec, metadata: AnyMetadata) -> PartitionSpec:
    """The spec with the ids that its writer left out: those of equal fields of other specs, or new ones."""
    if all(field.field_id != UNASSIGNED for field in spec.fields):
        return spec
    known = {
        (field.source_id, str(field.transform)): field.field_id
        for other in metadata.partition_specs
        for field in other.fields
    }
    taken = {field.field_id for field in spec.fields}
    last = max(_last_partition_id(metadata), *taken)
    fields = []
    for place, field in enumerate(spec.fields):
        if field.field_id == UNASSIGNED:
            field_id = known.get((field.source_id, str(field.transform)))
            if metadata.format_version == 1:
                field_id = PARTITION_FIELD_ID_START + place
            elif field_id is None or field_id in taken:
                field_id = last = last + 1
            taken.add(field_id)
            field = field.model_copy(update={"field_id": field_id})
        fields.append(field)
    return spec.model_copy(update={"fields": tuple(fields)})


def _check_spec(spec: PartitionSpec, schema: Schema, metadata: AnyMetadata) -> None:
    check_size(spec)
    spec.check_compatible(schema)
    ids = [field.field_id for field in spec.fields]
    sequential = range(PARTITION_FIELD_ID_START, PARTITION_FIELD_ID_START + len(ids))
    if metadata.format_version == 1 and ids != list(sequential):
        raise ValueError(f"Spec does not use sequential IDs that are required in v1: {ids[:100]}")
    names: set[str] = set()
    for field in spec.fields:
        _check_name(field, schema, names)
        if ids.count(field.field_id) > 1 or not 0 < field.field_id <= _LAST_PARTITION_FIELD_ID:
            raise ValueError(f"Cannot use partition field id {field.field_id} ({field.name!r:.100}): choose another")
        if metadata.format_version > 1:
            _check_meaning(field, metadata)


def check_size(spec: PartitionSpec) -> None:
    """Raises ValueError for a partition spec that would cost too much to look at."""
    if len(spec.fields) > _MOST_FIELDS:
        raise ValueError(f"a partition spec has at most {_MOST_FIELDS} fields, not {len(spec.fields)}")


def _check_name(field: PartitionField, schema: Schema, names: set[str]) -> None:
    column = schema.find_field(field.name).field_id if field.name in schema.column_names else field.source_id
    if column != field.source_id:
        raise ValueError(
            f"Cannot create identity partition sourced from different field in schema: {field.name!r:.100}"
        )
    if not field.name:
        raise ValueError(f"Cannot use empty partition name: {field.name!r}")
    if field.name in names:
        raise ValueError(f"Cannot use partition name more than once: {field.name!r:.100}")
    names.add(field.name)


def _check_meaning(field: PartitionField, metadata: AnyMetadata) -> None:
    """Engines look up partition values of all specs by field id: one id for two fields makes a table unreadable."""
    others = [other for spec in metadata.partition_specs for other in spec.fields if other.field_id == field.field_id]
    if others and not any(_same_meaning(field, other) for other in others):
        raise ValueError(
            f"Conflicting partition fields: {field} and {others[-1]} have the same field id; leave it out, or take one "
            f"above {_last_partition_id(metadata)}"
        )


def _same_meaning(one: PartitionField, other: PartitionField) -> bool:
    void = isinstance(one.transform, VoidTransform) or isinstance(other.transform, VoidTransform)
    return one.source_id == other.source_id and (void or one.transform == other.transform)
