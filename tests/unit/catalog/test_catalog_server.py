"""The catalog as a server: it is ready when it says so, ends when it is told to, and survives every death."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from catalog_parts import SOURCE, TABLE, Writer, commit_of, moving, offset, snapshot
from headwater.catalog.client import CatalogClient
from headwater.catalog.entries import COMMITTED, PENDING
from headwater.catalog.places import default_database, warehouse_url
from headwater.catalog.server import EmbeddedCatalog, die_at
from headwater.cli.catalog import app
from peers.processes import dies_with_parent, end

HEADWATER = Path(sys.executable).with_name("headwater")


@contextmanager
def server(folder: Path, dies_at: str = "", more: Sequence[str] = ()) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A catalog in a process of its own, and its address."""
    command = [
        str(HEADWATER),
        "catalog",
        "serve",
        "--warehouse",
        str(folder),
        "--listen",
        "127.0.0.1:0",
        "--json",
        *more,
    ]
    environment = {**os.environ, "HEADWATER_CATALOG_DIES_AT": dies_at}
    process = subprocess.Popen(dies_with_parent(command), stdout=subprocess.PIPE, env=environment)
    assert process.stdout is not None
    try:
        yield process, json.loads(process.stdout.readline())["uri"]
    finally:
        if process.poll() is None:
            end(process)
        process.stdout.close()


def test_an_embedded_catalog_is_reachable_at_once_and_leaves_nothing_behind(tmp_path: Path) -> None:
    threads = set(threading.enumerate())
    with EmbeddedCatalog(str(tmp_path / "c.db"), str(tmp_path / "w")) as catalog, CatalogClient(catalog.uri) as client:
        assert client.loads() == []
    assert {thread for thread in threading.enumerate() if "headwater" in thread.name} <= threads
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{catalog.uri}/v1/config", trust_env=False)


def test_an_embedded_catalog_ends_although_a_client_keeps_its_connection(tmp_path: Path) -> None:
    with EmbeddedCatalog(str(tmp_path / "c.db"), str(tmp_path / "w")) as catalog:
        client = CatalogClient(catalog.uri)
        client.loads()
    client.close()


def test_what_was_committed_is_there_after_a_restart(tmp_path: Path) -> None:
    for _ in range(2):
        with EmbeddedCatalog(str(tmp_path / "c.db"), str(tmp_path / "w")) as catalog:
            writer = Writer(catalog.uri)
            writer.ledger.evolve(TABLE, pa.schema([("id", pa.int64())]))
            before = writer.ledger.position(TABLE, SOURCE)
            writer.load(before, offset(10) if before is None else offset(20))
            writer.close()
    with EmbeddedCatalog(str(tmp_path / "c.db"), str(tmp_path / "w")) as catalog, CatalogClient(catalog.uri) as client:
        assert client.position(TABLE, SOURCE) == offset(20)
        assert [load.after for load in client.loads()] == [offset(20), offset(10)]


def test_two_processes_may_share_a_database(tmp_path: Path) -> None:
    """Two jobs with an embedded catalog each: the compare-and-set is the database's, not the process's."""
    paths = str(tmp_path / "c.db"), str(tmp_path / "w")
    with EmbeddedCatalog(*paths) as first, EmbeddedCatalog(*paths) as second:
        one, two = Writer(first.uri), Writer(second.uri)
        one.ledger.evolve(TABLE, pa.schema([("id", pa.int64())]))
        one.load(None, offset(10))
        two.load(offset(10), offset(20))
        assert one.ledger.position(TABLE, SOURCE) == offset(20)
        one.close()
        two.close()


def test_a_folder_with_an_unusual_name_is_a_warehouse_like_others(tmp_path: Path) -> None:
    folder = tmp_path / "my lake #1 100%"
    with EmbeddedCatalog(default_database(str(folder)), str(folder)) as catalog, CatalogClient(catalog.uri) as client:
        state = client.evolve(TABLE, pa.schema([("id", pa.int64())]))
    assert state.location == f"file://{folder}/db/events"
    assert len(list((folder / "db" / "events" / "metadata").iterdir())) == 1
    assert (folder / "catalog.db").exists()


def test_warehouses_are_urls() -> None:
    assert warehouse_url("/data/lake") == "file:///data/lake"
    assert warehouse_url("s3://bucket/lake/") == "s3://bucket/lake"
    with pytest.raises(ValueError, match="s3://bucket/lake needs a database"):
        default_database("s3://bucket/lake")


def test_the_command_serves_under_the_names_and_with_the_folders_it_is_told(tmp_path: Path) -> None:
    more = ["--allow-host", "Catalog", "--allow-location", str(tmp_path / "more"), "--max-body-bytes", "1000"]
    with server(tmp_path / "lake", more=more) as (_, uri):
        for host, status in (("catalog:8181", 200), ("other:8181", 403)):
            assert httpx.get(f"{uri}/v1/config", headers={"Host": host}, trust_env=False).status_code == status
        schema = {"type": "struct", "fields": [{"id": 1, "name": "id", "type": "long", "required": False}]}
        with httpx.Client(base_url=f"{uri}/v1", trust_env=False) as http:
            http.post("/namespaces", json={"namespace": ["db"]}).raise_for_status()
            for name, folder, status in (("t", "more", 200), ("u", "elsewhere", 403)):
                request = {"name": name, "schema": schema, "location": f"file://{tmp_path}/{folder}/t"}
                assert http.post("/namespaces/db/tables", json=request).status_code == status
            assert http.post("/namespaces", json={"namespace": ["x" * 1000]}).status_code == 413


def test_the_command_serves_until_it_is_told_to_stop(tmp_path: Path) -> None:
    with server(tmp_path / "lake") as (process, uri):
        with CatalogClient(uri) as client:
            assert client.table_state(TABLE) is None
        second = CliRunner().invoke(app, ["serve", "-w", str(tmp_path), "--listen", uri.removeprefix("http://")])
        assert (second.exit_code, "cannot listen on" in second.stderr) == (1, True), second.stderr
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


@pytest.mark.parametrize(
    ("arguments", "words", "code"),
    [
        (["--listen", "nonsense"], "nonsense is not HOST:PORT", 2),
        (["--warehouse", "s3://bucket/lake"], "needs a database", 2),
        (["--database", "oracle://x"], "not in oracle", 2),
        (["--allow-host", "http://catalog"], "'http://catalog' is no host", 2),
        (["--allow-location", "gs://bucket/x"], "not gs://", 2),
    ],
)
def test_what_cannot_be_served_is_said_in_a_sentence(arguments: list[str], words: str, code: int) -> None:
    done = CliRunner().invoke(app, ["serve", *arguments])
    assert (done.exit_code, words in done.stderr) == (code, True), done.stderr


def test_who_has_not_installed_the_catalog_is_told_how(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "headwater.catalog.server", None)
    done = CliRunner().invoke(app, ["serve"])
    assert (done.exit_code, 'pip install "headwater[lake]"' in done.stderr) == (1, True), done.stderr


@pytest.mark.parametrize(
    ("point", "committed"),
    [("before-swap:2", False), ("after-swap:2", True)],  # the first swap creates the table
)
def test_a_commit_is_exactly_once_although_the_server_dies_in_it(tmp_path: Path, point: str, committed: bool) -> None:
    with server(tmp_path, dies_at=point) as (process, uri):
        writer = Writer(uri)
        writer.ledger.evolve(TABLE, pa.schema([("id", pa.int64())]))
        load_id = writer.ledger.begin_load(table=TABLE, source=SOURCE, after=offset(10))
        request = commit_of(snapshot(1, None, moving(None, offset(10), load_id)))
        with pytest.raises(httpx.TransportError):
            writer.send(request)
        assert process.wait(30) == -signal.SIGKILL
        writer.close()
    with EmbeddedCatalog(default_database(str(tmp_path)), str(tmp_path)) as catalog:
        writer = Writer(catalog.uri)
        assert writer.ledger.position(TABLE, SOURCE) == (offset(10) if committed else None)
        assert writer.ledger.load(load_id).state == (COMMITTED if committed else PENDING)
        for _ in range(2):
            assert writer.send(request).status_code == 200
        assert writer.ledger.position(TABLE, SOURCE) == offset(10)
        assert len(writer.metadata()["snapshots"]) == 1
        writer.close()


def test_a_death_is_armed_for_one_point_and_one_count(monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[int] = []
    monkeypatch.setattr(os, "kill", lambda process, _number: killed.append(process))
    at = die_at("after-swap:2")
    for point in ("before-swap", "after-swap", "before-swap", "before-swap"):
        at(point)
    assert killed == []
    at("after-swap")
    assert killed == [os.getpid()]
