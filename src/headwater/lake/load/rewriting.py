"""Rewrites columns of a table as string, because values of other types have come: one commit, planned and asked for.

Iceberg cannot turn a number into a text, so all data is written anew, with the texts that JSON would have. The commit
names the table as it was read; the catalog refuses it when anybody has changed the table since. It carries all
positions forward, and ends the loads that are under way into the columns as they were: they begin again.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from headwater.catalog.entries import COMMITTED, SchemaChange, TableState
from headwater.catalog.names import sql_text
from headwater.catalog.snapshot_properties import LOAD, REPLACES, state_replaced
from headwater.lake.arrow_types import spark_schema
from headwater.lake.errors import LakeError, LakeUsageError
from headwater.lake.load.session_properties import session_properties
from headwater.lake.shapes import SchemaPlan
from headwater.lake.spark import first_line

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType

    from headwater.catalog.client import CatalogClient

REWRITE: Final = "rewrite"
"""The kind of a schema change that needs this, and the mode of the load that it is in the ledger."""

_VIEW: Final = "headwater_rewritten"
_OF_TIMES: Final = {"year": "years", "month": "months", "day": "days", "hour": "hours"}


def rewrites_of(plan: SchemaPlan) -> list[SchemaChange]:
    """The columns that a plan rewrites."""
    return [
        SchemaChange(kind=each.kind, path=each.path, old_type=each.old_type, new_type=each.new_type)
        for each in plan.changes
        if each.kind == REWRITE
    ]


def rewrite(spark: "SparkSession", catalog: "CatalogClient", state: TableState, plan: SchemaPlan, source: str) -> bool:
    """Makes the columns strings that the plan says; False when another writer changed the table meanwhile."""
    table = spark.table(sql_text(state.table))
    rows = _rewritten(table, plan)
    statement = _statement(state, table, rows)
    position = state.positions.get(source)
    load_id = catalog.begin_load(
        table=state.table,
        source=source,
        mode=REWRITE,
        before=position,
        after=position,
        details={"changes": [asdict(change) for change in rewrites_of(plan)]},
    )
    properties = {
        REPLACES: state_replaced(schema_id=state.schema_id, snapshot_id=state.snapshot_id),
        LOAD: load_id,
    }
    try:
        with session_properties(spark, properties):
            rows.createOrReplaceTempView(_VIEW)
            spark.sql(statement)
    except Exception as error:
        if catalog.fail_load(load_id, first_line(error)).state == COMMITTED:
            return True
        now = catalog.table_state(state.table)
        if now is not None and (now.schema_id, now.snapshot_id) != (state.schema_id, state.snapshot_id):
            return False
        raise LakeError(
            f"rewriting columns of {state.table} as string failed and changed nothing: {first_line(error)}"
        ) from error
    return True


def _rewritten(table: "DataFrame", plan: SchemaPlan) -> "DataFrame":
    """All columns in their order, those that the plan rewrites as texts; the plan's other changes come later."""
    from pyspark.sql import functions as f

    from headwater.lake.load.conforming import converted

    wanted = {field.name: field.dataType for field in spark_schema(plan.schema)}
    columns: list[Column] = []
    for field in table.schema:
        column = f.col(_quoted([field.name]))
        type_ = _with_texts(field.dataType, wanted.get(field.name, field.dataType))
        if type_ != field.dataType:
            column = converted(column, field.dataType, type_).alias(field.name)
        columns.append(column)
    return table.select(*columns)


def _with_texts(have: "DataType", wanted: "DataType") -> "DataType":
    """A type with a string wherever one is wanted."""
    from pyspark.sql.types import ArrayType, MapType, StringType, StructField, StructType

    if isinstance(wanted, StringType):
        return wanted
    if isinstance(have, StructType) and isinstance(wanted, StructType):
        types = {field.name: field.dataType for field in wanted}
        return StructType(
            [
                StructField(each.name, _with_texts(each.dataType, types.get(each.name, each.dataType)), each.nullable)
                for each in have
            ]
        )
    if isinstance(have, ArrayType) and isinstance(wanted, ArrayType):
        return ArrayType(_with_texts(have.elementType, wanted.elementType), have.containsNull)
    if isinstance(have, MapType) and isinstance(wanted, MapType):
        return MapType(have.keyType, _with_texts(have.valueType, wanted.valueType), have.valueContainsNull)
    return have


def _statement(state: TableState, table: "DataFrame", rows: "DataFrame") -> str:
    strange = [field.name for field in state.schema if _is_strange(field.type)]
    if strange:
        raise LakeUsageError(
            f"{state.table} cannot be rewritten: Spark knows no such type as that of {', '.join(strange)}. Load "
            "without --rewrite, so that values of another type are kept in _rescued"
        )
    parts = [_partition(state.table, transform, column, table, rows) for transform, column in state.partition_spec]
    partitioned = f"partitioned by ({', '.join(parts)})" if parts else ""
    order = [f"{_column(column, rows)} {direction}" for column, direction in state.sort_order]
    ordered = f"order by {', '.join(order)}" if order else ""
    name = sql_text(state.table)
    return f"replace table {name} using iceberg {partitioned} as select * from {_VIEW} {ordered}"


def _is_strange(type_: pa.DataType) -> bool:
    """Whether a copy by Spark has another type: its uuid is a string, its fixed bytes are bytes."""
    if isinstance(type_, pa.BaseExtensionType) or pa.types.is_fixed_size_binary(type_):
        return True
    return any(_is_strange(type_.field(place).type) for place in range(type_.num_fields))


def _partition(table_name: str, transform: str, column: str, table: "DataFrame", rows: "DataFrame") -> str:
    """A partition field in a statement."""
    name = _column(column, rows)
    kind, _, width = transform.rstrip("]").partition("[")
    if rows.select(name).dtypes != table.select(name).dtypes:
        raise LakeUsageError(
            f"{column} cannot become a string: {table_name} is partitioned by it. Load without --rewrite, or with "
            f"another policy for it (--on-conflict {column}=corrupt)"
        )
    if kind in _OF_TIMES:
        return f"{_OF_TIMES[kind]}({name})"
    if kind in ("bucket", "truncate"):
        return f"{kind}({width}, {name})"
    if kind != "identity":
        raise LakeUsageError(
            f"{table_name} cannot be rewritten: it is partitioned by {transform} of {column}. Load without --rewrite"
        )
    return name


def _column(name: str, rows: "DataFrame") -> str:
    """A column by the name that Iceberg knows it by: dots lead into structs, or belong to a name."""
    return _quoted([name] if name in rows.columns else name.split("."))


def _quoted(parts: Sequence[str] | Iterable[str]) -> str:
    return ".".join(f"`{part.replace('`', '``')}`" for part in parts)
