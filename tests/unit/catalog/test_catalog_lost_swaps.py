"""Whatever happens between a commit's decision and its swap, the commit is decided again on what is there then."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from catalog_parts import SOURCE, TABLE, Writer, commit_of, error_of, moving, offset, snapshot
from headwater.catalog.client import CatalogClient
from headwater.catalog.entries import COMMITTED, FAILED
from headwater.catalog.server import EmbeddedCatalog


class Meanwhile:
    """Does something once, just before the next swap."""

    def __init__(self) -> None:
        self.then: Callable[[], object] | None = None

    def __call__(self, point: str) -> None:
        then, self.then = (self.then, None) if point == "before-swap" else (None, self.then)
        if then is not None:
            then()


@pytest.fixture
def meanwhile() -> Meanwhile:
    return Meanwhile()


@pytest.fixture
def writer(meanwhile: Meanwhile, tmp_path: Path) -> Iterator[Writer]:
    with EmbeddedCatalog(str(tmp_path / "c.db"), str(tmp_path / "w"), at=meanwhile) as catalog:
        writer = Writer(catalog.uri)
        writer.ledger.evolve(TABLE, pa.schema([("id", pa.int64())]))
        yield writer
        writer.close()


def metadata_files(folder: Path) -> int:
    return len(list((folder / "w" / "db" / "events" / "metadata").iterdir()))


def test_the_same_commit_was_quicker(writer: Writer, meanwhile: Meanwhile, tmp_path: Path) -> None:
    load_id = writer.ledger.begin_load(table=TABLE, source=SOURCE)
    request = commit_of(snapshot(1, None, moving(None, offset(10), load_id)))
    meanwhile.then = lambda: writer.send(request)
    assert writer.send(request).status_code == 200
    assert len(writer.metadata()["snapshots"]) == 1
    assert metadata_files(tmp_path) == 2, "the file of the lost swap is gone"


def test_the_same_commit_without_a_load_was_quicker(writer: Writer, meanwhile: Meanwhile) -> None:
    request = commit_of(snapshot(1, None))
    meanwhile.then = lambda: writer.send(request)
    assert writer.send(request).status_code == 200
    assert len(writer.metadata()["snapshots"]) == 1


def test_another_commit_was_quicker(writer: Writer, meanwhile: Meanwhile) -> None:
    meanwhile.then = writer.insert
    assert error_of(writer.send(commit_of(snapshot(1, None))))[:2] == (409, "CommitFailedException")


def test_another_load_was_quicker(writer: Writer, meanwhile: Meanwhile) -> None:
    """A conflict, so that the client looks at the table again; then it learns that its data is loaded."""
    load_id = writer.ledger.begin_load(table=TABLE, source=SOURCE)
    summary = moving(None, offset(10), load_id)
    meanwhile.then = lambda: writer.load(None, offset(10))
    assert writer.send(commit_of(snapshot(1, None, summary))).status_code == 409
    parent = writer.current()
    assert writer.send(commit_of(snapshot(1, parent, summary), parent=parent)).status_code == 400


def test_a_change_that_does_not_matter_was_quicker(writer: Writer, meanwhile: Meanwhile) -> None:
    update = {"action": "set-properties", "updates": {"team": "lake"}}
    meanwhile.then = lambda: writer.send({"requirements": [], "updates": [update]})
    assert writer.send(commit_of(snapshot(1, None))).status_code == 200
    metadata = writer.metadata()
    assert (metadata["current-snapshot-id"], metadata["properties"]) == (1, {"team": "lake"})


def test_the_load_was_given_up(writer: Writer, meanwhile: Meanwhile) -> None:
    """Its job is told that it failed, so the commit must not happen after that."""
    load_id = writer.ledger.begin_load(table=TABLE, source=SOURCE)
    meanwhile.then = lambda: writer.ledger.fail_load(load_id, "stopped")
    assert writer.send(commit_of(snapshot(1, None, moving(None, offset(10), load_id)))).status_code == 400
    assert writer.ledger.load(load_id).state == FAILED
    assert writer.current() is None


def test_the_table_was_dropped(writer: Writer, meanwhile: Meanwhile) -> None:
    meanwhile.then = lambda: writer.http.delete("/namespaces/db/tables/events")
    assert error_of(writer.send(commit_of(snapshot(1, None))))[:2] == (404, "NoSuchTableException")


def test_somebody_else_created_the_table(writer: Writer, meanwhile: Meanwhile) -> None:
    schema = {"type": "struct", "fields": [{"id": 1, "name": "id", "required": False, "type": "long"}]}
    request = {"name": "new", "schema": schema}
    meanwhile.then = lambda: writer.http.post("/namespaces/db/tables", json=request)
    answer = writer.http.post("/namespaces/db/tables", json=request)
    assert error_of(answer)[:2] == (409, "AlreadyExistsException")


def test_somebody_else_grew_the_table(writer: Writer, meanwhile: Meanwhile) -> None:
    meanwhile.then = lambda: writer.ledger.evolve(TABLE, pa.schema([("theirs", pa.string())]))
    state = writer.ledger.evolve(TABLE, pa.schema([("ours", pa.string())]))
    assert state.schema.names == ["id", "theirs", "ours"]


def test_the_position_of_a_rewind_was_moved(writer: Writer, meanwhile: Meanwhile) -> None:
    meanwhile.then = lambda: writer.ledger.rewind(TABLE, SOURCE, offset(9))
    rewound = writer.ledger.rewind(TABLE, SOURCE, offset(1))
    assert (rewound.state, rewound.before) == (COMMITTED, offset(9))
    assert writer.ledger.position(TABLE, SOURCE) == offset(1)


def test_processes_that_share_a_database_wait_for_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them reads before it writes, which SQLite refuses to who has not taken the write lock for both."""
    monkeypatch.setattr("headwater.catalog.client._PAUSES_S", ())
    paths = str(tmp_path / "c.db"), str(tmp_path / "w")
    files = pa.table({"path": ["a"], "modified_ns": [1], "size": [1]})

    def run(uri: str) -> None:
        with CatalogClient(uri) as client:
            for _ in range(25):
                client.add_files(client.begin_load(table=TABLE, source=SOURCE), files)

    with EmbeddedCatalog(*paths) as one, EmbeddedCatalog(*paths) as two, ThreadPoolExecutor(4) as pool:
        list(pool.map(run, [one.uri, two.uri, one.uri, two.uri]))
