"""How a table's schema grows towards a wanted one: columns are added, widened and relaxed, never lost. Pure."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortDirection, SortField, SortOrder
from pyiceberg.table.update import (
    AddPartitionSpecUpdate,
    AddSchemaUpdate,
    AddSortOrderUpdate,
    SetCurrentSchemaUpdate,
    SetDefaultSortOrderUpdate,
    SetDefaultSpecUpdate,
    SetPropertiesUpdate,
    TableUpdate,
)
from pyiceberg.transforms import IdentityTransform, Transform, parse_transform
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    StructType,
)

from headwater.catalog.any_metadata import AnyMetadata
from headwater.catalog.schema_rules import with_fresh_type


class CannotEvolveError(ValueError):
    """A column cannot become what is wanted without a rewrite of its data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a table shall be, at least. Field ids of the schema do not count, names do."""

    schema: Schema
    partition_spec: tuple[tuple[str, str], ...] | None = None
    """Transform and column of each partition field; None leaves the table's."""
    sort_order: tuple[tuple[str, str], ...] | None = None
    """Column and direction of each sort field; None leaves the table's."""
    properties: dict[str, str] = field(default_factory=dict)


def updates_towards(metadata: AnyMetadata, wanted: Wanted) -> tuple[TableUpdate, ...]:
    """The updates that make a table what is wanted; none when it is so already."""
    updates: list[TableUpdate] = []
    current = metadata.schema()
    ids = itertools.count(metadata.last_column_id + 1)
    grown = _grown_struct(current.as_struct(), wanted.schema.as_struct(), (), lambda: next(ids))
    schema = current
    if grown != current.as_struct():
        schema_id = 1 + max(known.schema_id for known in metadata.schemas)
        schema = Schema(*grown.fields, schema_id=schema_id, identifier_field_ids=current.identifier_field_ids)
        updates += [AddSchemaUpdate(schema=schema), SetCurrentSchemaUpdate.model_validate({"schema-id": schema_id})]
    if wanted.partition_spec is not None and wanted.partition_spec != described_spec(metadata.spec(), schema):
        updates += _spec_updates(metadata, schema, wanted.partition_spec)
    if wanted.sort_order is not None and wanted.sort_order != described_order(metadata.sort_order(), schema):
        order_id = 1 + max(order.order_id for order in metadata.sort_orders)
        order = sort_order(schema, wanted.sort_order, order_id)
        updates += [
            AddSortOrderUpdate.model_validate({"sort-order": order}),
            SetDefaultSortOrderUpdate.model_validate({"sort-order-id": order.order_id}),
        ]
    changed = {key: value for key, value in wanted.properties.items() if metadata.properties.get(key) != value}
    if changed:
        updates.append(SetPropertiesUpdate(updates=changed))
    return tuple(updates)


def partition_spec(schema: Schema, parts: Sequence[tuple[str, str]], *, spec_id: int = 0) -> PartitionSpec:
    """A spec for a new table."""
    return _spec(schema, parts, spec_id, {}, itertools.count(PARTITION_FIELD_ID_START))


def sort_order(schema: Schema, parts: Sequence[tuple[str, str]], order_id: int = 1) -> SortOrder:
    """A sort order by columns, each `asc` or `desc`; no columns are the unsorted order."""
    fields = [
        SortField(
            source_id=schema.find_field(column).field_id,
            transform=IdentityTransform(),
            direction=SortDirection(direction),
        )
        for column, direction in parts
    ]
    return SortOrder(*fields, order_id=order_id) if fields else SortOrder(order_id=0)


def described_spec(spec: PartitionSpec, schema: Schema) -> tuple[tuple[str, str], ...]:
    """Transform and column of each field."""
    return tuple((str(part.transform), _name(schema, part.source_id)) for part in spec.fields)


def described_order(order: SortOrder, schema: Schema) -> tuple[tuple[str, str], ...]:
    """Column and direction of each field."""
    return tuple((_name(schema, part.source_id), str(part.direction.value)) for part in order.fields)


def _name(schema: Schema, field_id: int) -> str:
    return schema.find_column_name(field_id) or f"#{field_id}"


def _spec_updates(metadata: AnyMetadata, schema: Schema, parts: Sequence[tuple[str, str]]) -> list[TableUpdate]:
    known = {(part.source_id, str(part.transform)): part for spec in metadata.partition_specs for part in spec.fields}
    spec_id = 1 + max(spec.spec_id for spec in metadata.partition_specs)
    ids = itertools.count((metadata.last_partition_id or PARTITION_FIELD_ID_START - 1) + 1)
    spec = _spec(schema, parts, spec_id, known, ids)
    same = [other for other in metadata.partition_specs if other.fields == spec.fields]
    if same:
        return [SetDefaultSpecUpdate.model_validate({"spec-id": same[0].spec_id})]
    return [AddPartitionSpecUpdate(spec=spec), SetDefaultSpecUpdate.model_validate({"spec-id": spec_id})]


def _spec(
    schema: Schema,
    parts: Sequence[tuple[str, str]],
    spec_id: int,
    known: dict[tuple[int, str], PartitionField],
    ids: Iterator[int],
) -> PartitionSpec:
    fields = []
    for transform_text, column in parts:
        source_id = schema.find_field(column).field_id
        transform = parse_transform(transform_text)
        part = known.get((source_id, str(transform)))
        if part is None:
            name = _partition_name(column, transform)
            part = PartitionField(source_id=source_id, field_id=next(ids), transform=transform, name=name)
        fields.append(part)
    return PartitionSpec(*fields, spec_id=spec_id)


def _partition_name(column: str, transform: Transform[object, object]) -> str:
    # The names that Iceberg's Java library gives, so that people see the same in all engines.
    kind = str(transform).partition("[")[0]
    return column if kind == "identity" else f"{column}_{'trunc' if kind == 'truncate' else kind}"


def _grown(current: IcebergType, wanted: IcebergType, path: tuple[str, ...], next_id: Callable[[], int]) -> IcebergType:
    match current, wanted:
        case StructType(), StructType():
            return _grown_struct(current, wanted, path, next_id)
        case ListType(), ListType():
            return ListType(
                element_id=current.element_id,
                element=_grown(current.element_type, wanted.element_type, (*path, "element"), next_id),
                element_required=current.element_required and wanted.element_required,
            )
        case MapType(), MapType():
            return MapType(
                key_id=current.key_id,
                key_type=_grown(current.key_type, wanted.key_type, (*path, "key"), next_id),
                value_id=current.value_id,
                value_type=_grown(current.value_type, wanted.value_type, (*path, "value"), next_id),
                value_required=current.value_required and wanted.value_required,
            )
    if current == wanted:
        return current
    if current.is_primitive and wanted.is_primitive:
        return _wider(current, wanted, path)
    raise _cannot(current, wanted, path)


def _grown_struct(
    current: StructType, wanted: StructType, path: tuple[str, ...], next_id: Callable[[], int]
) -> StructType:
    by_name = {part.name: part for part in wanted.fields}
    fields = []
    for part in current.fields:
        other = by_name.pop(part.name, None)
        if other is not None:
            grown = _grown(part.field_type, other.field_type, (*path, part.name), next_id)
            required = part.required and other.required
            if grown != part.field_type or required != part.required:
                part = part.model_copy(update={"field_type": grown, "required": required})
        fields.append(part)
    # A column that is added is optional: the rows that are there have no value for it.
    for part in by_name.values():
        field_id = next_id()
        kind = with_fresh_type(part.field_type, next_id)
        fields.append(part.model_copy(update={"field_id": field_id, "field_type": kind, "required": False}))
    return StructType(*fields)


def _wider(current: IcebergType, wanted: IcebergType, path: tuple[str, ...]) -> IcebergType:
    for narrow, wide in ((current, wanted), (wanted, current)):
        match narrow, wide:
            case (IntegerType(), LongType()) | (FloatType(), DoubleType()):
                return wide
            case DecimalType(), DecimalType() if narrow.scale == wide.scale and narrow.precision <= wide.precision:
                return wide
    raise _cannot(current, wanted, path)


def _cannot(current: IcebergType, wanted: IcebergType, path: tuple[str, ...]) -> CannotEvolveError:
    return CannotEvolveError(
        f"column {'.'.join(path)} is {current} and cannot become {wanted}: rewrite it, or load into another column"
    )
