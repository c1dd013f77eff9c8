"""Files as Spark's workers read them: every record once however a file is cut; damage costs no other record."""

import base64
import bz2
import gzip
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import fs

from headwater.lake.datasource import csv_reader, file_streams
from headwater.lake.datasource.csv_reader import csv_batches
from headwater.lake.datasource.file_manifest import CsvOptions, Manifest, ManifestFile
from headwater.lake.datasource.file_splits import FilePiece, file_splits
from headwater.lake.datasource.file_streams import Files, line_batches, whole_file
from headwater.lake.errors import LakeError


def found(path: Path) -> ManifestFile:
    seen = path.stat()
    return ManifestFile(path=str(path), modified_ns=seen.st_mtime_ns, size_bytes=seen.st_size)


def lines(
    file: ManifestFile, start: int = 0, end: int | None = None, *, blank: bool = True
) -> Iterator[tuple[int, bytes]]:
    piece = FilePiece(file=file, start=start, end=file.size_bytes if end is None else end)
    for batch in line_batches(Files(None), piece, keep_blank=blank):
        assert set(batch.column("_path").to_pylist()) == {file.path}
        yield from zip(batch.column("_row").to_pylist(), batch.column("value").to_pylist(), strict=True)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    content=st.lists(st.sampled_from([b"", b"\n", b"\n\n", b"\r\n", b"a", b"bcd", b"x" * 40, b"\r"])).map(b"".join),
    cuts=st.lists(st.integers(0, 300), max_size=5),
    block=st.integers(1, 70),
)
def test_every_line_is_read_once_however_the_file_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, cuts: list[int], block: int
) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(content)
    monkeypatch.setattr(file_streams, "BLOCK_BYTES", block)
    monkeypatch.setattr(file_streams, "_BEYOND_BYTES", max(1, block // 3))
    file = found(path)
    expected = []
    at = 0
    for line in content.split(b"\n"):
        expected.append((at, line.removesuffix(b"\r")))
        at += len(line) + 1
    if content.endswith(b"\n") or not content:
        expected.pop()
    places = sorted({0, len(content), *(cut for cut in cuts if cut < len(content))})
    pieces = [line for start, end in pairwise(places) for line in lines(file, start, end)]
    assert pieces == expected
    assert [entry for entry in expected if entry[1].strip()] == list(lines(file, blank=False))


@pytest.mark.parametrize(
    ("name", "pack"),
    [
        ("a.json.gz", lambda data: gzip.compress(data[:7]) + gzip.compress(data[7:])),
        ("a.json.bz2", bz2.compress),
        ("a.json.zst", zstandard.ZstdCompressor().compress),
        ("a.json.lz4", lambda data: bytes(pa.compress(data, "lz4"))),
        ("a.json", lambda data: b"\xef\xbb\xbf" + data),
    ],
)
def test_compressed_files_are_read_as_what_is_in_them(
    tmp_path: Path, name: str, pack: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / name
    path.write_bytes(pack(b'{"a": 1}\n{"a": 2}'))
    read = list(lines(found(path)))
    assert [value for _, value in read] == [b'{"a": 1}', b'{"a": 2}']
    if name != "a.json":
        assert [row for row, _ in read] == [0, 9]


def test_a_file_that_is_cut_short_is_named(tmp_path: Path) -> None:
    path = tmp_path / "short.json.gz"
    path.write_bytes(gzip.compress(os.urandom(5000))[:-2000])
    with pytest.raises(LakeError, match=r"short\.json\.gz cannot be read"):
        list(lines(found(path)))


def test_a_file_that_changed_since_the_load_was_planned_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("one\n")
    planned = found(path)
    path.write_text("one\ntwo\n")
    with pytest.raises(LakeError, match=r"a\.txt was changed while it was being loaded"):
        list(lines(planned))
    reading = lines(found(path))
    next(reading)
    path.unlink()
    with pytest.raises(LakeError, match="is gone while"):
        list(reading)


def test_a_whole_file_is_one_record_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(b"x"))
    file = found(path)
    (batch,) = whole_file(Files(None), FilePiece(file=file, start=0, end=file.size_bytes))
    assert batch.column("value").to_pylist() == [path.read_bytes()]


def test_large_files_of_lines_are_cut_and_small_ones_are_put_together() -> None:
    def file(name: str, size_bytes: int) -> ManifestFile:
        return ManifestFile(path=name, modified_ns=0, size_bytes=size_bytes)

    mebibyte = 1 << 20
    large = Manifest(format="json", files=[file("a.json", 100 * mebibyte)])
    splits = file_splits(large, 10 * mebibyte)
    assert len(splits) == 10
    assert [(pieces[0].start, pieces[0].end) for pieces in splits][:2] == [
        (0, 10 * mebibyte),
        (10 * mebibyte, 20 * mebibyte),
    ]
    assert len(file_splits(replace(large, files=[file("a.json.gz", 100 * mebibyte)]), 10 * mebibyte)) == 1
    assert len(file_splits(replace(large, format="csv"), 10 * mebibyte)) == 1
    many = Manifest(format="json", files=[file(f"{number}.json", 10) for number in range(100_000)])
    splits = file_splits(many, 32 * mebibyte)
    assert sum(len(pieces) for pieces in splits) == 100_000
    assert len(splits) < 1000


def rows(path: Path, **options: Any) -> tuple[list[dict[str, Any]], list[tuple[int, str]]]:
    """The records of a CSV file with their numbers, and those that were kept whole."""
    good: list[dict[str, Any]] = []
    corrupt: list[tuple[int, str]] = []
    for batch in csv_batches(Files(None), found(path), CsvOptions(**options)):
        numbers = batch.rows.to_pylist()
        good += [{"row": number, **row} for number, row in zip(numbers, batch.columns.to_pylist(), strict=True)]
        corrupt += batch.corrupt
    return good, corrupt


def test_csv_records_that_do_not_fit_the_header_are_kept_whole_and_all_are_numbered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.csv"
    expected: list[dict[str, Any]] = []
    kept: list[tuple[int, str]] = []
    text = "id,name\n"
    for number in range(500):
        if number % 7 == 3:
            text += f"{number}\n"
            kept.append((number, f"{number}"))
        elif number % 11 == 5:
            text += f'{number},"a, ""b""\nc",more\n'
            kept.append((number, f'{number},"a, ""b""\nc",more'))
        else:
            text += f'{number},"x\n{number}"\n\n'
            expected.append({"row": number, "id": f"{number}", "name": f"x\n{number}"})
    path.write_text(text)
    monkeypatch.setattr(csv_reader, "BLOCK_BYTES", 200)
    good, corrupt = rows(path)
    assert good == expected
    assert sorted(corrupt) == kept


def test_csv_bytes_that_are_no_text_cost_their_record_only(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_bytes(b"id\tname\n1\t\xff\n2\tok\n\xfe\n")
    good, corrupt = rows(path)
    assert good == [{"row": 1, "id": "2", "name": "ok"}]
    assert dict(corrupt)[0] == "base64:" + base64.b64encode(b"1\t\xff").decode()
    assert 2 in dict(corrupt)


@pytest.mark.parametrize(
    ("content", "options", "expected"),
    [
        (b"a;b\n1;'x;y'\n", {"delimiter": ";", "quote": "'"}, [{"row": 0, "a": "1", "b": "x;y"}]),
        (b"1,2\n3,4\n", {"header": False}, [{"row": 0, "_c0": "1", "_c1": "2"}, {"row": 1, "_c0": "3", "_c1": "4"}]),
        ("n\nKöln\n".encode("latin-1"), {"encoding": "latin-1"}, [{"row": 0, "n": "Köln"}]),
        (b'\xef\xbb\xbf"a"," b "\n1,2\n', {}, [{"row": 0, "a": "1", "b": "2"}]),
        (b'a,b\n"1,2\n', {"quote": ""}, [{"row": 0, "a": '"1', "b": "2"}]),
        (b"\n\na,\n1,2\n", {}, [{"row": 0, "a": "1", "_c1": "2"}]),
        (b"a,b\n", {}, []),
        (b"\n", {}, []),
    ],
)
def test_csv_is_read_as_its_options_say(
    tmp_path: Path, content: bytes, options: dict[str, Any], expected: list[dict[str, Any]]
) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(content)
    assert rows(path, **options) == (expected, [])


def test_csv_with_a_record_longer_than_a_block_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "long.csv"
    path.write_text('a,b\n1,"' + "x" * 5000 + '"\n')
    monkeypatch.setattr(csv_reader, "BLOCK_BYTES", 100)
    with pytest.raises(LakeError, match=r"long\.csv cannot be read"):
        rows(path)


def test_a_store_is_read_like_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bucket").mkdir()
    path = tmp_path / "bucket" / "a.txt"
    path.write_text("one\ntwo\n")
    # A folder stands in for the store: what is asked of pyarrow is the same.
    store = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    monkeypatch.setattr(file_streams, "open_store", lambda url: (store, ""))
    # Asked for a single object, a store tells whole seconds.
    file = replace(found(path), path="s3://bucket/a.txt", modified_ns=found(path).modified_ns // 10**9 * 10**9)
    piece = FilePiece(file=file, start=2, end=file.size_bytes)
    (batch,) = line_batches(Files("s3://bucket?region=nowhere"), piece, keep_blank=False)
    assert batch.select(["_path", "_row", "value"]).to_pylist() == [{"_path": file.path, "_row": 4, "value": b"two"}]
