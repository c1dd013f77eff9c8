"""Folders become tables: one for files that belong together, none for what is no data."""

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater.lake import LakeUsageError
from headwater.lake.crawling import folders
from headwater.lake.crawling.folders import crawl_folder
from headwater.lake.crawling.proposals import Crawl, Proposal, lake_toml
from headwater.lake.datasource.file_manifest import ManifestFile
from headwater.lake.lake_file import parse_lake_file
from headwater.lake.sources.listing import Place, list_files, parse_place

ORDER = '{"id": 1, "created_at": "2026-01-01T00:00:00Z", "total": 1.5}\n'


def write(folder: Path, name: str, content: str | bytes) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


def proposed(crawl: Crawl) -> dict[str, Proposal]:
    return {each.into.partition(".")[2]: each for each in crawl.proposals}


def loaded_by(proposal: Proposal, folder: Path) -> set[str]:
    """The files that a load of the proposed source would take."""
    place = parse_place(proposal.source.removeprefix("files:"))
    return {str(Path(each.path).relative_to(folder)) for each in list_files(place)}


def test_key_value_and_dated_folders_are_parts_of_one_table(tmp_path: Path) -> None:
    names = [f"orders/day=2026-01-0{day}/part-{day}.json" for day in (1, 2, 3)]
    names += [f"visits/2026/01/0{day}/visits.jsonl" for day in (1, 2)]
    for name in names:
        write(tmp_path, name, ORDER)
    found = proposed(crawl_folder(str(tmp_path)))
    assert found.keys() == {"orders", "visits"}
    assert found["orders"].source == f"files:{tmp_path}/orders"
    assert loaded_by(found["orders"], tmp_path) | loaded_by(found["visits"], tmp_path) == set(names)
    assert found["orders"].event_time == "created_at"
    assert not found["orders"].options


def test_a_folder_with_several_formats_becomes_several_tables_that_share_no_file(tmp_path: Path) -> None:
    groups = {
        "in_json": ("in/a.json", "in/b.json.gz"),
        "in_csv": ("in/day=1/a.csv",),
        "in_parquet": ("in/x.parquet",),
        "in_log": ("in/log.txt",),
    }
    write(tmp_path, "in/a.json", ORDER)
    write(tmp_path, "in/b.json.gz", gzip.compress(ORDER.encode()))
    write(tmp_path, "in/day=1/a.csv", "id;name\n1;ann\n")
    write(tmp_path, "in/log.txt", "it began\nit ended\n")
    pq.write_table(
        pa.table({"pickup_datetime": pa.array([0], pa.timestamp("us")), "fare": [1.5]}), tmp_path / "in/x.parquet"
    )
    found = crawl_folder(str(tmp_path / "in"))
    taken = [loaded_by(each, tmp_path) for each in found.proposals]
    assert sorted(map(sorted, taken)) == sorted(map(sorted, groups.values()))
    by_files = {frozenset(files): each for files, each in zip(taken, found.proposals, strict=True)}
    assert by_files[frozenset(groups["in_csv"])].options == {"delimiter": ";"}
    assert by_files[frozenset(groups["in_parquet"])].event_time == "pickup_datetime"


def test_files_of_one_format_with_other_fields_are_other_tables_and_new_fields_are_not(tmp_path: Path) -> None:
    write(tmp_path, "orders-2024.csv", "id,created,amount\n1,2024-01-01 00:00:00,2\n")
    write(tmp_path, "orders-2025.csv", "id,created,amount,note\n1,2025-01-01 00:00:00,2,x\n")
    write(tmp_path, "customers-2025.csv", "customer,name,city\n1,ann,Aachen\n")
    found = {frozenset(loaded_by(each, tmp_path)): each for each in crawl_folder(str(tmp_path)).proposals}
    assert found.keys() == {
        frozenset({"orders-2024.csv", "orders-2025.csv"}),
        frozenset({"customers-2025.csv"}),
    }
    assert found[frozenset({"orders-2024.csv", "orders-2025.csv"})].event_time == "created"


def test_a_folder_with_files_and_with_tables_below_it_takes_only_its_own_files(tmp_path: Path) -> None:
    write(tmp_path, "top.json", ORDER)
    write(tmp_path, "below/other.json", '{"x": 1}\n')
    found = [loaded_by(each, tmp_path) for each in crawl_folder(str(tmp_path)).proposals]
    assert sorted(map(sorted, found)) == [["below/other.json"], ["top.json"]]


def test_names_that_tell_nothing_are_judged_by_what_is_in_the_files(tmp_path: Path) -> None:
    write(tmp_path, "a/part-0000", ORDER * 2)
    write(tmp_path, "b/part-0000", "id\tname\n1\tann\n2\tbob\n")
    write(tmp_path, "c/part-0000", b"\x00\x01\x02")
    write(tmp_path, "d/part-0000", "just words\nand more of them\n")
    found = proposed(crawl_folder(str(tmp_path)))
    assert {name: dict(each.options) for name, each in found.items()} == {
        "a": {"format": "json"},
        "b": {"format": "csv", "delimiter": "\t"},
        "c": {"format": "raw"},
        "d": {"format": "text"},
    }


def test_a_csv_file_without_names_is_said_to_have_none(tmp_path: Path) -> None:
    write(tmp_path, "x.csv", "1,2026-01-01,ann\n2,2026-01-02,bob\n")
    (found,) = crawl_folder(str(tmp_path)).proposals
    assert found.options == {"header": "false"}


def test_what_cannot_be_loaded_is_left_out_and_said_so(tmp_path: Path) -> None:
    write(tmp_path, "orders/a.json", ORDER)
    write(tmp_path, "orders/_SUCCESS", "")
    write(tmp_path, "orders/b.avro", b"Obj\x01")
    write(tmp_path, "documents/all.json", json.dumps([{"id": 1}], indent=2))
    write(tmp_path, "broken/x.parquet", b"PAR1")
    found = crawl_folder(str(tmp_path))
    assert [each.into for each in found.proposals] == [f"{tmp_path.name.lower()}.orders"]
    words = "\n".join(found.left_out)
    assert "b.avro): Avro" in words
    assert "all.json): it is one JSON document" in words
    assert "x.parquet): it cannot be read" in words


def test_a_folder_without_data_is_an_error(tmp_path: Path) -> None:
    write(tmp_path, "_SUCCESS", "")
    with pytest.raises(LakeUsageError, match="no files"):
        crawl_folder(str(tmp_path))


def test_few_files_are_opened_however_many_there_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(300):
        write(tmp_path, f"events/day=2026-01-{number % 28 + 1:02}/part-{number:05}.json", ORDER)
    opened: list[str] = []
    head = folders._head

    def watched(file: ManifestFile, place: Place) -> bytes:
        opened.append(file.path)
        return head(file, place)

    monkeypatch.setattr(folders, "_head", watched)
    (found,) = crawl_folder(str(tmp_path)).proposals
    assert len(opened) <= folders.SAMPLED_FILES
    assert "300 files" in found.reasons[0]


def test_the_proposal_is_a_lake_file_that_can_be_run(tmp_path: Path) -> None:
    write(tmp_path, 'odd "names" [x]/a.csv', "id;name\n1;ann\n")
    write(tmp_path, 'odd "names" [x]/b.txt', "words\n")
    write(tmp_path, "orders/a.json", ORDER)
    write(tmp_path, "orders/x.avro", b"Obj\x01")
    found = crawl_folder(str(tmp_path))
    text = lake_toml(found)
    jobs = parse_lake_file(text, folder=tmp_path).jobs
    assert [job.source for job in jobs] == [each.source for each in found.proposals]
    assert [job.request.table for job in jobs] == [each.into for each in found.proposals]
    taken = [loaded_by(each, tmp_path) for each in found.proposals]
    assert {'odd "names" [x]/a.csv'} in taken
    assert {'odd "names" [x]/b.txt'} in taken
    assert "# - 1 file" in text


def test_no_two_proposals_share_a_table(tmp_path: Path) -> None:
    write(tmp_path, "a-b/x.json", ORDER)
    write(tmp_path, "a_b/x.json", ORDER)
    names = [each.into.partition(".")[2] for each in crawl_folder(str(tmp_path)).proposals]
    assert names == ["a_b", "a_b_2"]
