"""Loads as Spark makes them, made by pyiceberg: the same ledger, the same commit, in milliseconds."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from headwater.catalog.positions import Position, canonical
from headwater.lake import Lake

TOPIC_ROWS = pa.schema([("id", pa.int64()), ("_partition_id", pa.int32()), ("_offset", pa.int64())])
FILE_ROWS = pa.schema([("id", pa.int64()), ("_path", pa.string())])


def load_offsets(
    lake: Lake,
    table: str,
    topic: str,
    ends: Mapping[int, int],
    *,
    starts: Mapping[int, int] | None = None,
    rows: bool = True,
    mode: str = "append",
    **details: Any,
) -> str:
    """Loads a topic up to these offsets, one row for each; `starts` are for what was lost or skipped before."""
    before = lake.catalog.position(table, f"topic:{topic}")
    read = {} if before is None else {int(name): each for name, each in before["topics"][topic].items()}
    begins = {partition: (starts or {}).get(partition, read.get(partition, 0)) for partition in ends}
    offsets = [(each, offset) for each, end in ends.items() for offset in range(begins[each], end)] if rows else []
    data = [{"id": offset, "_partition_id": each, "_offset": offset} for each, offset in offsets]
    return _load(
        lake,
        table,
        f"topic:{topic}",
        pa.Table.from_pylist(data, schema=TOPIC_ROWS),
        before=before,
        after={"topics": {topic: {str(each): end for each, end in {**read, **ends}.items()}}},
        mode=mode,
        details={"from": {topic: {str(each): start for each, start in begins.items()}}, **details},
    )


def load_files(lake: Lake, table: str, folder: str, files: Mapping[str, tuple[int, int]], **details: Any) -> str:
    """Loads files, each with the time and the size that it has."""
    source = f"files:file://{folder}"
    data = [{"id": number, "_path": path} for number, path in enumerate(files)]
    return _load(
        lake,
        table,
        source,
        pa.Table.from_pylist(data, schema=FILE_ROWS),
        before=lake.catalog.position(table, source),
        after=None,
        mode="append",
        details=details,
        files=pa.table(
            {
                "path": list(files),
                "modified_ns": pa.array([modified_ns for modified_ns, _ in files.values()], pa.int64()),
                "size": pa.array([size for _, size in files.values()], pa.int64()),
            }
        ),
    )


def load_up_to(lake: Lake, table: str, source: str, value: int) -> str:
    """Loads a table of a database up to an id."""
    return load_database(lake, table, source, {"column": "id", "value": str(value)})


def load_database(lake: Lake, table: str, source: str, after: Position, *, mode: str = "append", **details: Any) -> str:
    """Loads a table of a database up to a position; what is loaded is one row, whatever was there."""
    return _load(
        lake,
        table,
        source,
        pa.table({"id": pa.array([1], pa.int64())}),
        before=lake.catalog.position(table, source),
        after=after,
        mode=mode,
        details=details,
    )


def _load(
    lake: Lake,
    table: str,
    source: str,
    data: pa.Table,
    *,
    before: Position | None,
    after: Position | None,
    mode: str,
    details: Mapping[str, Any],
    files: pa.Table | None = None,
) -> str:
    load_id = lake.catalog.begin_load(
        table=table, source=source, mode=mode, before=before, after=after, details=details
    )
    if files is not None:
        lake.catalog.add_files(load_id, files)
    lake.catalog.evolve(table, data.schema, source=source, position=before, load_id=load_id)
    properties = {
        "headwater.expect": canonical({source: before}),
        "headwater.offsets": canonical({source: after or {"load": load_id}}),
        "headwater.load": load_id,
    }
    lake.iceberg.load_table(table).append(data, snapshot_properties=properties)
    lake.catalog.finish_load(load_id, rows=data.num_rows, rescued=0, corrupt=0, seconds=0.5)
    return load_id
