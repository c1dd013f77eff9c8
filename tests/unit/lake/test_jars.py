"""Java runs what is in a jar: one that is not what it should be is refused, fetched or found."""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from headwater.lake import jars as lake_jars
from headwater.lake.errors import LakeError
from headwater.lake.jars import ICEBERG, ICEBERG_AWS, POSTGRESQL, Coordinates, jars

GOOD = b"what Maven Central has"
TOOL = Coordinates("org.example", "tool", "1.0", hashlib.sha256(GOOD).hexdigest())


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HEADWATER_JARS", str(tmp_path / "jars"))
    return tmp_path / "jars"


@pytest.fixture
def fetches(monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], None]:
    """Says what the network brings."""

    def bring(content: bytes) -> None:
        def retrieve(coordinates: Coordinates, scratch: Path) -> str:
            (scratch / coordinates.file_name).write_bytes(content)
            return ""

        monkeypatch.setattr(lake_jars, "_retrieve", retrieve)

    return bring


def test_what_is_fetched_and_is_right_is_kept_for_its_user_alone(
    folder: Path, fetches: Callable[[bytes], None]
) -> None:
    fetches(GOOD)
    assert jars([TOOL]) == [folder / "tool-1.0.jar"]
    assert folder.stat().st_mode & 0o077 == 0
    fetches(b"never asked for")
    assert jars([TOOL]) == [folder / "tool-1.0.jar"]


def test_what_is_fetched_and_is_another_is_thrown_away(folder: Path, fetches: Callable[[bytes], None]) -> None:
    fetches(GOOD + b"!")
    with pytest.raises(
        LakeError, match=r"fetched as org\.example:tool:1\.0 is not what headwater was tested with.*SHA-256"
    ):
        jars([TOOL])
    assert list(folder.iterdir()) == []


def test_a_jar_that_lies_there_is_looked_at_too(folder: Path) -> None:
    folder.mkdir()
    (folder / "tool-1.0.jar").write_bytes(b"put there by somebody")
    with pytest.raises(LakeError, match=r"tool-1\.0\.jar is not the org\.example:tool:1\.0 .* Remove the file"):
        jars([TOOL])
    assert jars([replace(TOOL, sha256=None)]) == [folder / "tool-1.0.jar"]


def test_all_that_a_lake_loads_is_pinned() -> None:
    for coordinates in (ICEBERG, ICEBERG_AWS, POSTGRESQL):
        assert coordinates.sha256 is not None
        assert len(bytes.fromhex(coordinates.sha256)) == 32
