"""The catalog keeps its promises on PostgreSQL too, where several servers may share one database."""

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import NamespaceAlreadyExistsError, TableAlreadyExistsError

from catalog_parts import SOURCE, TABLE, Writer, commit_of, error_of, moving, offset, snapshot
from headwater.catalog.entries import COMMITTED
from headwater.catalog.server import EmbeddedCatalog
from peers.postgresql import Postgresql, postgresql  # noqa: F401 - a fixture

ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "name": ["ann", "bob", "eve"]})


@pytest.fixture
def servers(postgresql: Postgresql, tmp_path: Path) -> Iterator[tuple[EmbeddedCatalog, EmbeddedCatalog]]:  # noqa: F811
    """Two servers over one database."""
    database = postgresql.sqlalchemy(postgresql.new_database())
    warehouse = str(tmp_path / "warehouse")
    with EmbeddedCatalog(database, warehouse) as one, EmbeddedCatalog(database, warehouse) as two:
        yield one, two


@pytest.fixture
def writers(servers: tuple[EmbeddedCatalog, EmbeddedCatalog]) -> Iterator[tuple[Writer, Writer]]:
    one, two = (Writer(server.uri) for server in servers)
    one.ledger.evolve(TABLE, ROWS.schema)
    yield one, two
    one.close()
    two.close()


def test_what_one_server_commits_the_other_knows(writers: tuple[Writer, Writer]) -> None:
    one, two = writers
    one.load(None, offset(10))
    two.load(offset(10), offset(20))
    assert one.ledger.position(TABLE, SOURCE) == two.ledger.position(TABLE, SOURCE) == offset(20)
    late = one.ledger.begin_load(table=TABLE, source=SOURCE)
    parent = one.current()
    answer = one.send(commit_of(snapshot(9, parent, moving(offset(10), offset(30), late)), parent=parent))
    assert error_of(answer)[0] == 400


def test_an_answer_that_one_server_gave_the_other_gives_again(writers: tuple[Writer, Writer]) -> None:
    one, two = writers
    load_id = one.ledger.begin_load(table=TABLE, source=SOURCE)
    request = commit_of(snapshot(1, None, moving(None, offset(10), load_id)))
    assert one.send(request).json() == two.send(request).json()
    key = {"Idempotency-Key": str(uuid.uuid4())}
    for writer in writers:
        assert writer.http.delete("/namespaces/db/tables/events", headers=key).status_code == 204


def test_racing_servers_commit_each_load_once(writers: tuple[Writer, Writer]) -> None:
    def run(writer: Writer) -> int:
        committed = 0
        while (read := writer.ledger.position(TABLE, SOURCE)) != offset(60):
            after = offset((read["topics"]["events"]["0"] if read else 0) + 5)
            load_id = writer.ledger.begin_load(table=TABLE, source=SOURCE, before=read, after=after)
            parent = writer.current()
            new = uuid.uuid4().int >> 65
            answer = writer.send(commit_of(snapshot(new, parent, moving(read, after, load_id)), parent=parent))
            assert answer.status_code in (200, 400, 409), answer.text
            committed += answer.status_code == 200
        return committed

    with ThreadPoolExecutor(2) as pool:
        assert sum(pool.map(run, writers)) == 12
    loads = [load for load in writers[0].ledger.loads(limit=1000) if load.state == COMMITTED]
    assert [load.after for load in loads] == [offset(number) for number in range(60, 0, -5)]


def test_files_are_kept_and_told(writers: tuple[Writer, Writer]) -> None:
    one, two = writers
    source = "files:file:///in"
    files = pa.table({"path": ["a", "b"], "modified_ns": [1, 2], "size": [3, 4]})
    load_id = one.ledger.begin_load(table=TABLE, source=source)
    for _ in range(2):
        one.ledger.add_files(load_id, files)
    request = commit_of(snapshot(1, None, moving(None, {"load": load_id}, load_id, source)))
    assert one.send(request).status_code == 200
    assert two.ledger.known_files(TABLE, source).to_pylist() == [
        {"path": "a", "modified_ns": 1, "size": 3, "load_id": load_id},
        {"path": "b", "modified_ns": 2, "size": 4, "load_id": load_id},
    ]


def test_pyiceberg_works_with_it(servers: tuple[EmbeddedCatalog, EmbeddedCatalog]) -> None:
    one, two = (RestCatalog("lake", uri=server.uri) for server in servers)
    one.create_namespace("db", {"owner": "ann"})
    with pytest.raises(NamespaceAlreadyExistsError):
        two.create_namespace("db")
    one.create_table("db.people", ROWS.schema).append(ROWS)
    with pytest.raises(TableAlreadyExistsError):
        two.create_table("db.people", ROWS.schema)
    two.rename_table("db.people", "db.folk")
    assert one.load_table("db.folk").scan().to_arrow() == ROWS
    two.drop_table("db.folk")
    two.drop_namespace("db")
    assert one.list_namespaces() == []
    one.close()
    two.close()
