"""Files into tables: each is loaded once, whatever its format and its types; and a changed one as its policy says."""

import gzip
import json
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from headwater.lake import Lake, LakeError, SparkSettings
from peers.spark import lake as lake
from peers.spark import pyspark_leaves_sockets

pytestmark = pyspark_leaves_sockets


def write(path: Path, content: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)


def rows(lake: Lake, statement: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in lake.sql(statement).to_pylist()]


def test_json_in_folders_is_loaded_once_with_what_the_folders_say(lake: Lake, tmp_path: Path) -> None:
    write(
        tmp_path / "day=2026-01-31" / "a.json", '{"id": 1, "at": {"x": 1}}\n\n{"id": "two", "day": "2020-02-02"}\r\n?\n'
    )
    write(tmp_path / "day=2026-02-01" / "b.json.gz", gzip.compress(b'{"id": 3, "at": {"y": [true]}}'))
    write(tmp_path / "_SUCCESS", "")
    report = lake.load(f"files:{tmp_path}", into="files.json")
    assert report.news == f"2 files, {sum(path.stat().st_size for path in tmp_path.glob('*/*')):,} bytes"
    assert (report.counts.rows, report.counts.rescued, report.counts.corrupt) == (4, 1, 1)
    seen = "select id, at, day, _row, _rescued, _corrupt_record from files.json order by _path, _row"
    assert rows(lake, seen) == [
        (1, {"x": 1, "y": None}, date(2026, 1, 31), 0, None, None),
        (None, None, date(2020, 2, 2), 27, [("id", '"two"')], None),
        (None, None, date(2026, 1, 31), 63, None, "?"),
        (3, {"x": None, "y": [True]}, date(2026, 2, 1), 0, None, None),
    ]
    modified = (tmp_path / "day=2026-01-31" / "a.json").stat().st_mtime_ns // 1000
    assert rows(lake, "select max(unix_micros(_modified)) from files.json where _path like '%a.json'") == [(modified,)]
    assert lake.catalog.position("files.json", report.source) == {"load": report.load_id}

    # A Spark that cannot start is not missed where nothing is new.
    with Lake(catalog=lake.uri, token=lake.token, spark=SparkSettings(master="nowhere")) as without_spark:
        assert without_spark.load(f"files:{tmp_path}", into="files.json").load_id is None
    write(tmp_path / "day=2026-02-01" / "c.json", '{"id": 4, "more": 0.5}\n')
    assert lake.load(f"files:{tmp_path}", into="files.json").counts.rows == 1
    assert rows(lake, "select count(*), sum(id), max(more) from files.json") == [(5, 8, 0.5)]
    # What Spark has written is for its user alone, and so are the folders around it.
    for (path,) in rows(lake, "select file_path from files.json.files"):
        file = Path(path.removeprefix("file:"))
        assert not any(each.stat().st_mode & 0o077 for each in (file, file.parent, file.parent.parent))


def test_one_large_file_is_read_by_several_tasks(lake: Lake, tmp_path: Path) -> None:
    records = 60_000
    write(tmp_path / "a.jsonl", "".join(f'{{"n":{number},"text":"{"x" * 30}"}}\n' for number in range(records)))
    lake.load(f"files:{tmp_path}", into="files.large")
    assert rows(lake, "select count(*), count(distinct _row), sum(n) from files.large") == [
        (records, records, records * (records - 1) // 2)
    ]
    assert rows(lake, "select count(*) > 1 from files.large.files") == [(True,)]
    # Where a record begins in the file does not depend on who has read it.
    whole = (tmp_path / "a.jsonl").read_bytes()
    for number, row in rows(lake, "select n, _row from files.large where n % 7919 = 0"):
        assert json.loads(whole[row : whole.index(b"\n", row)])["n"] == number


def test_csv_columns_go_by_name_and_the_rows_of_a_changed_file_are_replaced(lake: Lake, tmp_path: Path) -> None:
    write(tmp_path / "a.csv", 'id,name,since\n1,"a, b",2024-02-29\n2,c\n3,d,\n')
    write(tmp_path / "b.csv", "name,id\ne,4\nf,007\n")
    how: Any = {"into": "files.csv", "source_options": {"changed": "replace", "format": "csv"}}
    first = lake.load(f"files:{tmp_path}", **how)
    assert (first.counts.rows, first.counts.corrupt) == (5, 1)
    seen = "select id, name, since, _corrupt_record from files.csv order by _path, _row"
    expected = [
        ("1", "a, b", date(2024, 2, 29), None),
        (None, None, None, "2,c"),
        ("3", "d", None, None),
        ("4", "e", None, None),
        ("007", "f", None, None),
    ]
    assert rows(lake, seen) == expected
    write(tmp_path / "b.csv", "id,name,weight\n5,g,1.5\n")
    write(tmp_path / "c.csv", "id\n6\n")
    second = lake.load(f"files:{tmp_path}", **how)
    assert second.counts.rows == 2
    assert rows(lake, seen) == [*expected[:3], ("5", "g", None, None), ("6", None, None, None)]
    # One snapshot for each load: nobody ever saw neither the old rows nor the new ones.
    loads = [dict(summary)["headwater.load"] for (summary,) in rows(lake, "select summary from files.csv.snapshots")]
    assert loads == [first.load_id, second.load_id]
    assert lake.load(f"files:{tmp_path}", **how).load_id is None


def test_parquet_of_any_types_fits_into_one_table(lake: Lake, tmp_path: Path) -> None:
    def parquet_file(name: str, **columns: Any) -> None:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        parquet.write_table(pa.table(columns), tmp_path / name)

    parquet_file("k=1/a b+c%20ü.parquet", id=pa.array([1, 2], pa.int32()), what=["x", "y"])
    parquet_file("k=2/b.parquet", what=["z"], id=[2**40], _path=["the user's"], large=pa.array([2**63], pa.uint64()))
    # What Spark's own reader does not take: nanoseconds, times of day, names that it would take for patterns.
    nanoseconds = pa.array([1_001, 2_000], pa.timestamp("ns"))
    parquet_file("k=3/c.parquet", id=[3, 4], at=nanoseconds, time=pa.array([1, 2], pa.time64("us")))
    parquet_file("k=__HIVE_DEFAULT_PARTITION__/[d].parquet", id=[5], nothing=pa.nulls(1), deep=[{"a": [1, None]}])
    parquet_file("e.parquet", id=[6], k=[66])
    report = lake.load(f"files:{tmp_path}", into="files.parquet")
    assert report.counts.rows == 7
    assert rows(
        lake, "select id, k, _row, replace(_path, '" + f"{tmp_path}/" + "', '') from files.parquet order by id"
    ) == [
        (1, 1, 0, "k=1/a b+c%20ü.parquet"),
        (2, 1, 1, "k=1/a b+c%20ü.parquet"),
        (3, 3, 0, "k=3/c.parquet"),
        (4, 3, 1, "k=3/c.parquet"),
        (5, None, 0, "k=__HIVE_DEFAULT_PARTITION__/[d].parquet"),
        (6, 66, 0, "e.parquet"),
        (2**40, 2, 0, "k=2/b.parquet"),
    ]
    assert rows(lake, "select what, large, _rescued from files.parquet where k = 2") == [
        ("z", 2**63, [("_path", "the user's")])
    ]
    assert rows(lake, "select at, time, _rescued from files.parquet where k = 3 order by id") == [
        (
            datetime.fromisoformat("1970-01-01T00:00:00.000001"),
            "00:00:00.000001",
            [('["at#ns"]', "1970-01-01 00:00:00.000001001")],
        ),
        (datetime.fromisoformat("1970-01-01T00:00:00.000002"), "00:00:00.000002", None),
    ]
    assert rows(lake, "select deep from files.parquet where id = 5") == [({"a": [1, None]},)]
    # Other types and other folders than before: what fits is kept, and what does not is rescued.
    parquet_file("k=four/f.parquet", id=["7"], what=[8])
    assert lake.load(f"files:{tmp_path}", into="files.parquet").counts.rescued == 1
    assert rows(lake, "select id, what, k, _rescued from files.parquet where what = '8'") == [
        (None, "8", None, [("id", "7"), ("k", "four")])
    ]


def test_a_file_that_cannot_be_read_is_named_and_nothing_of_the_load_is_seen(lake: Lake, tmp_path: Path) -> None:
    write(tmp_path / "a.txt", "one\n\ntwo\n\xff\n".encode("latin-1"))
    write(tmp_path / "b.txt.gz", gzip.compress(b"three\n" * 1000)[:-9])
    with pytest.raises(LakeError, match=r"nothing of it was written: [^ ]+b\.txt\.gz cannot be read"):
        lake.load(f"files:{tmp_path}", into="files.text")
    with pytest.raises(LakeError, match=r"nothing was loaded: [^ ]+b\.txt\.gz cannot be read"):
        lake.load(f"files:{tmp_path}", into="files.text", source_options={"format": "json"})
    write(tmp_path / "b.txt.gz", gzip.compress(b"three\n"))
    assert lake.load(f"files:{tmp_path}", into="files.text").counts.rows == 5
    assert rows(lake, "select value, _row, _corrupt_record from files.text order by _path, _row") == [
        ("one", 0, None),
        ("", 4, None),
        ("two", 5, None),
        (None, 9, "base64:/w=="),
        ("three", 0, None),
    ]
