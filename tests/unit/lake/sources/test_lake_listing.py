"""Which files a place has: folders, patterns, hidden names, links; nothing is opened."""

from pathlib import Path
from urllib.parse import urlsplit

import pytest
from pyarrow import fs

from headwater.lake.datasource import file_streams
from headwater.lake.errors import LakeUsageError
from headwater.lake.sources.listing import Place, list_files, parse_place


def write(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")


def names(place: Place, below: Path) -> list[str]:
    return sorted(file.path.removeprefix(f"{below}/") for file in list_files(place))


def test_a_folder_means_all_below_it_but_what_is_hidden(tmp_path: Path) -> None:
    write(tmp_path, "a.json", "deep/er/b.json", "_SUCCESS", ".c.json.crc", "_temporary/0/d.json", ".git/e.json")
    write(tmp_path, "_day=2026-01-31/f.json", "g.json._COPYING_")
    assert names(parse_place(str(tmp_path)), tmp_path) == ["_day=2026-01-31/f.json", "a.json", "deep/er/b.json"]


def test_a_file_is_itself_also_when_its_name_is_hidden(tmp_path: Path) -> None:
    write(tmp_path, "_odd.json")
    found = list(list_files(parse_place(str(tmp_path / "_odd.json"))))
    seen = (tmp_path / "_odd.json").stat()
    assert [(file.path, file.modified_ns, file.size_bytes) for file in found] == [
        (str(tmp_path / "_odd.json"), seen.st_mtime_ns, 1)
    ]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*.json", ["a.json"]),
        ("2026-*/x.json", ["2026-01/x.json", "2026-02/x.json"]),
        ("2026-0[2-9]", ["2026-02/x.json", "2026-02/y.csv"]),
        ("**/*.csv", ["2026-02/y.csv", "b.csv"]),
        ("nothing*", []),
    ],
)
@pytest.mark.parametrize("is_store", [False, True])
def test_a_pattern_means_what_fits_it_and_folders_that_fit_with_all_in_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pattern: str, expected: list[str], is_store: bool
) -> None:
    bucket = tmp_path / "bucket"
    write(bucket, "a.json", "b.csv", "2026-01/x.json", "2026-02/x.json", "2026-02/y.csv", "2026-02/_z.json")
    if not is_store:
        assert names(parse_place(f"{bucket}/{pattern}"), bucket) == expected
        return
    # A folder stands in for the store: what is asked of pyarrow is the same.
    store = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    monkeypatch.setattr(file_streams, "open_store", lambda url: (store, urlsplit(url).netloc + urlsplit(url).path))
    place = parse_place(f"s3://bucket/{pattern}?region=nowhere")
    assert sorted(file.path.removeprefix("s3://bucket/") for file in list_files(place)) == expected


def test_the_name_of_a_place_tells_no_secrets_and_leads_back_to_it(tmp_path: Path) -> None:
    place = parse_place("s3://key:secret@bucket/in/*.json?region=x")
    assert place.url == "s3://bucket/in/*.json"
    assert place.store == "s3://key:secret@bucket/in?region=x"
    for text in (f"{tmp_path}/100%25 sure/ü", f"{tmp_path}/a b/*.json"):
        local = parse_place(text)
        assert parse_place(local.url) == local


def test_a_place_that_is_not_there_is_the_callers_mistake(tmp_path: Path) -> None:
    with pytest.raises(LakeUsageError, match="is not there: name a folder"):
        list(list_files(parse_place(str(tmp_path / "gone"))))


def test_links_are_followed_but_not_in_circles(tmp_path: Path) -> None:
    write(tmp_path, "elsewhere/a.json", "in/b.json")
    write(tmp_path, "i/c.json")
    (tmp_path / "in" / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "in" / "like").symlink_to(tmp_path / "i")
    (tmp_path / "elsewhere" / "back").symlink_to(tmp_path / "in")
    (tmp_path / "in" / "self").symlink_to(tmp_path / "in")
    (tmp_path / "in" / "broken.json").symlink_to(tmp_path / "nowhere")
    assert names(parse_place(str(tmp_path / "in")), tmp_path / "in") == ["b.json", "like/c.json", "link/a.json"]
