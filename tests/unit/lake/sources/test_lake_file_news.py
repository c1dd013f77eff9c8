"""What is new among files, and what becomes of changed ones; what folders say; and that only new files are opened."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

from headwater.catalog.client import CatalogClient
from headwater.lake.datasource.file_manifest import Manifest, ManifestFile
from headwater.lake.datasource.file_streams import Files
from headwater.lake.datasource.files_reader import FileSplit, read_rows, splits_of
from headwater.lake.errors import LakeError, LakeUsageError
from headwater.lake.shapes import Policies, plan_schema, shape_of_json
from headwater.lake.sources.file_changes import file_changes
from headwater.lake.sources.files import FilesNews, FilesSource, parse_files, with_path_keys
from headwater.lake.sources.listing import FoundFile, list_files
from headwater.lake.sources.path_keys import path_keys


class Ledger:
    """A catalog that knows the files of earlier loads, as these registered them."""

    def __init__(self) -> None:
        self.files: dict[str, tuple[int, int]] = {}

    def known_files(self, table: str, source: str) -> pa.Table:
        return pa.table(
            {
                "path": pa.array(list(self.files), pa.string()),
                "modified_ns": pa.array([modified_ns for modified_ns, _ in self.files.values()], pa.int64()),
                "size": pa.array([size for _, size in self.files.values()], pa.int64()),
                "load_id": pa.nulls(len(self.files), pa.string()),
            }
        )

    def add_files(self, load_id: str, files: pa.Table) -> None:
        for row in files.to_pylist():
            self.files[row["path"]] = (row["modified_ns"], row["size"])

    def look(self, source: FilesSource) -> FilesNews | None:
        return source.look(cast(CatalogClient, self), "db.t", None)

    def load(self, source: FilesSource) -> FilesNews | None:
        news = self.look(source)
        if news is not None:
            news.register(cast(CatalogClient, self), "load")
        return news


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


def names(files: Sequence[FoundFile]) -> list[str]:
    return [Path(file.path).name for file in files]


def test_a_file_is_new_once(tmp_path: Path, ledger: Ledger) -> None:
    source = parse_files(str(tmp_path))
    (tmp_path / "a.json").write_text("{}\n")
    first = ledger.load(source)
    assert first is not None
    assert first.words == "1 file, 3 bytes"
    assert ledger.look(source) is None
    (tmp_path / "b.json").write_text("{}\n")
    second = ledger.look(source)
    assert second is not None
    assert names(second.files) == ["b.json"]


@pytest.mark.parametrize("how", ["size", "time"])
def test_a_changed_file_is_loaded_again_unless_the_policy_says_otherwise(
    tmp_path: Path, ledger: Ledger, how: str
) -> None:
    file = tmp_path / "a.json"
    file.write_text("{}\n")
    source = parse_files(str(tmp_path))
    ledger.load(source)
    before = file.stat()
    if how == "size":
        file.write_text('{"a": 1}\n')
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    else:
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    appended = ledger.look(source)
    assert appended is not None
    assert (names(appended.files), appended.replaced) == (["a.json"], ())
    assert appended.words.endswith("1 of them changed")
    replaced = ledger.look(replace(source, changed="replace"))
    assert replaced is not None
    assert replaced.replaced == [str(file)]
    assert ledger.look(replace(source, changed="ignore")) is None
    with pytest.raises(LakeError, match=r"a\.json changed after being loaded"):
        ledger.look(replace(source, changed="fail"))


def test_files_that_are_still_written_and_empty_ones_are_left_for_later(tmp_path: Path, ledger: Ledger) -> None:
    (tmp_path / "empty.json").touch()
    (tmp_path / "a.json").write_text("{}\n")
    written_ns = (tmp_path / "a.json").stat().st_mtime_ns
    source = parse_files(str(tmp_path), settle_s="30s")
    assert source.settle_s == 30
    assert ledger.look(replace(source, clock=lambda: written_ns + 29_999_999_999)) is None
    settled = ledger.look(replace(source, clock=lambda: written_ns + 30_000_000_001))
    assert settled is not None
    assert names(settled.files) == ["a.json"]


def test_the_format_is_told_by_names_or_by_the_user(tmp_path: Path, ledger: Ledger) -> None:
    (tmp_path / "part-0").write_text("x")
    with pytest.raises(LakeUsageError, match="does not tell its format"):
        ledger.look(parse_files(str(tmp_path)))
    (tmp_path / "a.jsonl.gz").write_text("x")
    news = ledger.look(parse_files(str(tmp_path)))
    assert news is not None
    assert (news.format, names(news.files)) == ("json", ["a.jsonl.gz"])
    assert "1 of unknown format left out" in news.words
    (tmp_path / "a.csv").write_text("x")
    with pytest.raises(LakeUsageError, match="several formats"):
        ledger.look(parse_files(str(tmp_path)))
    everything = ledger.look(parse_files(str(tmp_path), format="text"))
    assert everything is not None
    assert len(everything.files) == 3


@pytest.mark.parametrize(
    "options", [{"colour": "red"}, {"format": "xml"}, {"changed": "maybe"}, {"delimiter": "ab"}, {"header": "perhaps"}]
)
def test_options_that_make_no_sense_are_the_callers_mistake(tmp_path: Path, options: dict[str, str]) -> None:
    with pytest.raises(LakeUsageError):
        parse_files(str(tmp_path), **options)


def test_folders_give_fields_that_get_types_behind_those_of_the_data() -> None:
    keys = [
        path_keys(path, "/in")
        for path in (
            "/in/year=2026/month=01/city=K%C3%B6ln/a=9/x.json",
            "/in/year=2025/month=12/city=__HIVE_DEFAULT_PARTITION__/a=8/y.json",
        )
    ]
    assert keys[0] == {"year": "2026", "month": "1", "city": "Köln", "a": "9"}
    assert keys[1]["city"] is None
    shape = with_path_keys(shape_of_json(pa.array([b'{"z": 1, "a": "the record\'s own"}'])), keys)
    plan = plan_schema(shape)
    assert [(field.name, str(field.type)) for field in plan.schema] == [
        ("z", "int64"),
        ("a", "string"),
        ("year", "int64"),
        ("month", "int64"),
        ("city", "string"),
    ]
    assert shape.records == 1


def test_of_many_files_only_the_new_ones_are_opened(
    tmp_path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20_000):
        if number % 1000 == 0:
            folder = tmp_path / f"part={number // 1000}"
            folder.mkdir()
        os.close(os.open(folder / f"{number}.json", os.O_CREAT | os.O_WRONLY))
    old = list(list_files(parse_files(str(tmp_path)).place))
    assert len(old) == 20_000
    # As if each had been loaded with a byte in it; a look that opened them would find none.
    ledger.files = {file.path: (file.modified_ns, 1) for file in old}
    monkeypatch.setattr(
        "headwater.lake.sources.files.list_files",
        lambda place: (file._replace(size_bytes=file.size_bytes or 1) for file in list_files(place)),
    )
    for number in range(10):
        (tmp_path / "part=7" / f"new{number}.json").write_text(f'{{"n": {number}}}\n')
    opened: list[str] = []
    really_opened = Files.opened

    def watched(self: Files, file: ManifestFile, **how: Any) -> Any:
        opened.append(file.path)
        return really_opened(self, file, **how)

    monkeypatch.setattr(Files, "opened", watched)
    news = ledger.look(parse_files(str(tmp_path)))
    assert news is not None
    assert not opened
    fields = pa.schema([("n", pa.int64()), ("part", pa.int64()), ("_path", pa.string())])
    rows = [row for split in splits_of(news.manifest(), 1 << 20) for row in read(split, fields)]
    assert sorted(row["n"] for row in rows) == list(range(10))
    assert {row["part"] for row in rows} == {7}
    assert len(opened) == 10


def read(split: FileSplit, fields: pa.Schema) -> list[dict[str, Any]]:
    return [row for batch in read_rows(split, fields, Policies()) for row in batch.to_pylist()]


def test_what_spark_is_told_of_files_comes_through_a_file(tmp_path: Path, ledger: Ledger) -> None:
    (tmp_path / "k=1").mkdir()
    (tmp_path / "k=1" / "ü.csv").write_text("a\n1\n")
    news = ledger.look(parse_files(str(tmp_path), delimiter="tab", header="no"))
    assert news is not None
    kept = news.notes.keep(news.manifest())
    assert Manifest.from_file(kept) == news.manifest()
    del news
    assert not kept.exists()


def test_a_name_that_is_no_utf_8_does_not_keep_others_from_being_found(tmp_path: Path) -> None:
    odd = os.fsdecode(os.fsencode(tmp_path) + b"/odd-\xff.tmp")
    known = pa.table({"path": [str(tmp_path / "a.json")], "modified_ns": [1], "size": [1]})
    found = [FoundFile(odd, 1, 1), FoundFile(str(tmp_path / "a.json"), 1, 1), FoundFile(str(tmp_path / "b.json"), 1, 1)]
    changes = file_changes(found, known, "append", before_ns=2)
    assert [file.path for file in changes.files] == [str(tmp_path / "b.json"), odd]
