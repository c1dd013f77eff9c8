"""Single rows of a table, found by pyiceberg: a few files are opened, no Spark is started."""

from typing import TYPE_CHECKING

from headwater.catalog.names import levels_of
from headwater.lake.errors import LakeUsageError

if TYPE_CHECKING:
    import pyarrow as pa

    from headwater.lake.lake import Lake


def matching_rows(lake: "Lake", table: str, condition: str, *, limit: int) -> "pa.Table":
    """The first rows that meet a condition, `id = 7 and country = 'NL'` say, with all columns."""
    from pyiceberg.exceptions import NoSuchTableError

    try:
        found = lake.iceberg.load_table(levels_of(table))
    except NoSuchTableError:
        raise LakeUsageError(f"there is no table {table} in this lake") from None
    try:
        scan = found.scan(row_filter=condition, limit=limit)
        # Binding the condition to the columns is what finds its mistakes; it happens when the files are planned.
        scan.plan_files()
    except Exception as error:
        raise LakeUsageError(f"{condition} is no condition on the rows of {table}: {error}") from None
    return scan.to_arrow()


def rows_of_offset(lake: "Lake", table: str, topic: str, partition: int, offset: int) -> int | None:
    """How many rows of the table come from this offset; None when its rows do not tell."""
    state = lake.catalog.table_state(table)
    if state is None or not {"_partition_id", "_offset"} <= set(state.schema.names):
        return None
    condition = f"_partition_id = {partition} and _offset = {offset}"
    if "_topic" in state.schema.names:
        condition += f" and _topic = '{topic}'"
    return int(matching_rows(lake, table, condition, limit=2).num_rows)
