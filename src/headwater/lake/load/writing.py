"""Writes the rows of a load into its table, in one commit that carries the position.

Every mode ends in exactly one snapshot with the load's properties. The catalog refuses it when the position has moved.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from headwater.catalog.names import sql_text
from headwater.lake.datasource.columns import TOMBSTONE
from headwater.lake.errors import LakeUsageError
from headwater.lake.load.request import LoadRequest
from headwater.lake.load.session_properties import own_properties, session_properties

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType
    from pyspark.sql.window import WindowSpec

_SNAPSHOT_PROPERTY: Final = "snapshot-property."
_NEWS: Final = "headwater_news"


def write(
    rows: "DataFrame", request: LoadRequest, properties: Mapping[str, str], replaced: "Sequence[str]" = ()
) -> None:
    """Appends or merges all rows, or puts them in the place of all there are; in one commit with these properties.

    `replaced` are paths of files whose rows of earlier loads go in the same commit.
    """
    if request.mode in ("append", "replace") and not replaced:
        with own_properties():
            _add(rows, request, properties)
        return
    with session_properties(rows.sparkSession, properties):
        if replaced:
            statement = _replacement(rows, request, replaced)
        else:
            statement = _upsert(rows, request) if request.mode == "upsert" else _dedup(rows, request)
        rows.sparkSession.sql(statement)


def _add(rows: "DataFrame", request: LoadRequest, properties: Mapping[str, str]) -> None:
    from pyspark.sql import functions as f

    writer = rows.writeTo(sql_text(request.table)).option("fanout-enabled", "true")
    for name, value in properties.items():
        writer = writer.option(_SNAPSHOT_PROPERTY + name, value)
    if request.mode == "append":
        writer.append()
    else:
        writer.overwrite(f.lit(True))


def _replacement(rows: "DataFrame", request: LoadRequest, replaced: "Sequence[str]") -> str:
    """All rows are new; for each path there is one more, which no row of the table outlives that has this path."""
    from pyspark.sql import functions as f

    if request.mode != "append":
        raise LakeUsageError(
            f"rows of changed files cannot be replaced when {request.table} is loaded with mode {request.mode}: its "
            "keys say already what replaces what. Load with changed = append"
        )
    goes = "_headwater_goes"
    # No path is like this, and no two rows have the same: tasks of the join get equal shares.
    nobody = f.concat_ws("\0", f.lit(""), f.col("_path"), f.col("_row"))
    gone = rows.sparkSession.createDataFrame([(path,) for path in replaced], f"{goes} string")
    gone = gone.select(*(f.lit(None).cast(field.dataType).alias(field.name) for field in rows.schema), goes)
    rows.withColumn(goes, nobody).union(gone).createOrReplaceTempView(_NEWS)
    return f"""
        merge into {sql_text(request.table)} t using {_NEWS} s on t._path = s.{goes}
        when matched then delete
        when not matched and s._row is not null then {_insert(rows.columns)}
    """


def _upsert(rows: "DataFrame", request: LoadRequest) -> str:
    """The newest of each key replaces what is there, unless that is newer; a tombstone deletes it."""
    newest_first = [column.desc() for column in age(rows, request)]
    _one_of_each_key(rows, request, newest_first).createOrReplaceTempView(_NEWS)
    columns = [name for name in rows.columns if name != TOMBSTONE]
    newer = _is_newer(rows, request)
    dies = f"s.{TOMBSTONE}" if TOMBSTONE in rows.columns else "false"
    return f"""
        merge into {sql_text(request.table)} t using {_NEWS} s on {_same_key(request)}
        when matched and {dies} and {newer} then delete
        when matched and {newer} then update set {", ".join(f"t.{_q(name)} = s.{_q(name)}" for name in columns)}
        when not matched and not {dies} then {_insert(columns)}
    """


def _dedup(rows: "DataFrame", request: LoadRequest) -> str:
    """The first row of each key is kept; one whose key the table has had within the window is dropped."""
    _one_of_each_key(rows, request, age(rows, request)).createOrReplaceTempView(_NEWS)
    within = ""
    if request.window_s is not None:
        time = _q(request.event_time or "_timestamp")
        within = f"and t.{time} >= s.{time} - make_interval(0, 0, 0, 0, 0, 0, {request.window_s})"
    return f"""
        merge into {sql_text(request.table)} t using {_NEWS} s on {_same_key(request)} {within}
        when not matched then {_insert(rows.columns)}
    """


def age(rows: "DataFrame", request: LoadRequest) -> "list[Column]":
    """What rows of one key are ordered by, the oldest first."""
    from pyspark.sql import functions as f

    order = []
    if request.newest_by is not None:
        order.append(f.col(_q(request.newest_by)))
        if TOMBSTONE in rows.columns:
            # It has no fields. Its record's time stands in for one that is a time; else it is the last word.
            is_time = isinstance(rows.schema[request.newest_by].dataType, _time_types())
            order = [f.coalesce(order[0], f.col("_timestamp"))] if is_time else [f.col(TOMBSTONE), *order]
    if "_offset" in rows.columns:
        partitions = f.col("_partition_id")
        same = f.min(partitions).over(_by_key(request)) == f.max(partitions).over(_by_key(request))
        # Offsets tell the order within a partition. A key that changed its partition has only time to go by.
        order += [f.when(~same, f.col("_timestamp")), f.col("_offset"), partitions]
    elif "_row" in rows.columns:
        order += [f.col("_modified"), f.col("_path"), f.col("_row")]
    return order or [f.lit(0)]


def _is_newer(rows: "DataFrame", request: LoadRequest) -> str:
    if request.newest_by is not None:
        name = _q(request.newest_by)
        dies = f"s.{TOMBSTONE} or " if TOMBSTONE in rows.columns else ""
        return f"({dies}t.{name} is null or s.{name} >= t.{name})"
    if "_offset" in rows.columns:
        return "if(s._partition_id = t._partition_id, s._offset > t._offset, s._timestamp >= t._timestamp)"
    if "_row" in rows.columns:
        return "s._modified >= t._modified"
    return "true"


def _one_of_each_key(rows: "DataFrame", request: LoadRequest, order: "Sequence[Column]") -> "DataFrame":
    """The first of each key by this order. Rows without a key stay: nothing says that they are the same."""
    from pyspark.sql import functions as f

    rank = "_headwater_rank"
    keyless = " or ".join(f"{_q(name)} is null" for name in request.key)
    ranked = rows.withColumn(rank, f.row_number().over(_by_key(request).orderBy(*order)))
    return ranked.where(f"{rank} = 1 or {keyless}").drop(rank)


def _by_key(request: LoadRequest) -> "WindowSpec":
    from pyspark.sql import Window

    return Window.partitionBy(*map(_q, request.key))


def _same_key(request: LoadRequest) -> str:
    return " and ".join(f"t.{_q(name)} = s.{_q(name)}" for name in request.key)


def _insert(columns: "Sequence[str]") -> str:
    return f"insert ({', '.join(map(_q, columns))}) values ({', '.join('s.' + _q(name) for name in columns)})"


def _q(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _time_types() -> "tuple[type[DataType], ...]":
    from pyspark.sql.types import TimestampNTZType, TimestampType

    return TimestampType, TimestampNTZType
