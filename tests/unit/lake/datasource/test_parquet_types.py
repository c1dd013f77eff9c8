"""Types of Parquet files that Spark's reader does not take: every value arrives, in a type that a table has."""

import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from headwater.lake.datasource.file_manifest import ManifestFile
from headwater.lake.datasource.file_streams import ORIGIN_COLUMNS, Files
from headwater.lake.datasource.parquet_reader import parquet_batches, readable_columns

WHEN = "1970-01-01T00:00:00.000001"


def read(folder: Path, column: pa.Array, name: str = "v") -> list[dict[str, Any]]:
    path = folder / "a.parquet"
    parquet.write_table(pa.table({name: column}), path)
    seen = path.stat()
    file = ManifestFile(path=str(path), modified_ns=seen.st_mtime_ns, size_bytes=seen.st_size)
    columns = readable_columns(parquet.read_schema(path))
    batches = list(parquet_batches(Files(None), file, pa.schema([*columns, *ORIGIN_COLUMNS])))
    rows: list[dict[str, Any]] = pa.Table.from_batches(batches).to_pylist()
    assert [row.pop("_row") for row in rows] == list(range(len(column)))
    assert {row.pop("_path") for row in rows} == {str(path)}
    for row in rows:
        del row["_modified"]
    return rows


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array([2**63, None], pa.uint64()), [2**63, None]),
        (pa.array([1_001], pa.time64("ns")), ["00:00:00.000001001"]),
        (pa.array([1.5], pa.float16()), [1.5]),
        (pa.array([b"\xff" * 4], pa.binary(4)), [b"\xff" * 4]),
        (pa.array([uuid.UUID(int=7).bytes], pa.uuid()), [str(uuid.UUID(int=7))]),
        (pa.array([1, None], pa.duration("ms")), ["1", None]),
        (pa.array([Decimal("1" * 60)], pa.decimal256(60, 0)), ["1" * 60]),
        (pa.array(["x", "y", "x"]).dictionary_encode(), ["x", "y", "x"]),
        (pa.array([[1, 2]], pa.list_(pa.int8(), 2)), [[1, 2]]),
        (pa.array([{"a": 1, "b": None}], pa.struct([("a", pa.uint32()), ("b", pa.float32())])), [{"a": 1, "b": None}]),
    ],
    ids=str,
)
def test_every_value_arrives(tmp_path: Path, column: pa.Array, expected: list[Any]) -> None:
    assert [row["v"] for row in read(tmp_path, column)] == expected


def test_times_are_cut_to_microseconds_and_whole_beside_where_that_loses_something(tmp_path: Path) -> None:
    cut, whole, nothing = read(tmp_path, pa.array([1_001, 1_000, None], pa.timestamp("ns")))
    assert (cut["v"].isoformat(), cut["v#ns"]) == (WHEN, "1970-01-01 00:00:00.000001001")
    assert (whole["v"].isoformat(), whole["v#ns"]) == (WHEN, None)
    assert nothing == {"v": None, "v#ns": None}
    nested = pa.array([{"at": [1_001], "n": 1}], pa.struct([("at", pa.list_(pa.timestamp("ns"))), ("n", pa.int32())]))
    (row,) = read(tmp_path, nested)
    assert row["v"]["at"][0].isoformat() == WHEN
    assert row["v#ns"] == '{"at": ["1970-01-01 00:00:00.000001001"], "n": 1}'


def test_a_column_that_is_called_like_one_of_ours_is_not_lost(tmp_path: Path) -> None:
    assert read(tmp_path, pa.array(["mine"]), name="_path") == [{"_path#data": "mine"}]
