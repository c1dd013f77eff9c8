"""The catalog on PostgreSQL does what it does on SQLite, and for several servers at once."""

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pyarrow as pa
import pytest

from catalog_parts import SOURCE, TABLE, Writer, commit_of, moving, offset, snapshot
from headwater.catalog.client import CatalogError
from headwater.catalog.entries import COMMITTED
from headwater.catalog.server import EmbeddedCatalog
from peers.postgresql import HOST, USER, Postgresql
from peers.postgresql import postgresql as postgresql
from peers.processes import dies_with_parent, end

pytest.register_assert_rewrite("unit.catalog.test_catalog_commits", "unit.catalog.test_catalog_ledger")
from unit.catalog import test_catalog_commits, test_catalog_ledger  # noqa: E402
from unit.catalog.conftest import ledger as ledger  # noqa: E402
from unit.catalog.conftest import rest as rest  # noqa: E402
from unit.catalog.conftest import writer as writer  # noqa: E402

HEADWATER = Path(sys.executable).with_name("headwater")


@pytest.fixture
def embedded(postgresql: Postgresql, tmp_path: Path) -> Iterator[EmbeddedCatalog]:
    database = postgresql.sqlalchemy(postgresql.new_database())
    with EmbeddedCatalog(database, str(tmp_path / "warehouse")) as catalog:
        yield catalog


# The promises about commits and the ledger are the same: with the catalog above, their tests run here too.
for _module in (test_catalog_commits, test_catalog_ledger):
    globals().update({name: test for name, test in vars(_module).items() if name.startswith("test_")})


@contextmanager
def server(folder: Path, postgresql: Postgresql, database: str, dies_at: str = "") -> Iterator[str]:
    """The address of a catalog in a process of its own. Its command line, which all can see, has no password."""
    place = f"postgresql://{USER}@{HOST}:{postgresql.port}/{database}"
    command = [str(HEADWATER), "catalog", "serve", "--warehouse", str(folder), "--database", place, "--json"]
    environment = {**os.environ, "PGPASSWORD": postgresql.password, "HEADWATER_CATALOG_DIES_AT": dies_at}
    process = subprocess.Popen(
        dies_with_parent([*command, "--listen", "127.0.0.1:0"]), stdout=subprocess.PIPE, env=environment
    )
    assert process.stdout is not None
    try:
        yield json.loads(process.stdout.readline())["uri"]
        assert not dies_at or process.wait(30) == -signal.SIGKILL
    finally:
        if process.poll() is None:
            end(process)
        process.stdout.close()


def load_tens(servers: Sequence[str], last: int) -> int:
    """Loads records in tens, up to the last, at the first server that is there; how many of its commits it heard of."""
    heard = 0
    with ExitStack() as opened:
        writers = [Writer(uri) for uri in servers]
        for each in writers:
            opened.callback(each.close)
        while writers:
            try:
                while True:
                    read = writers[0].ledger.position(TABLE, SOURCE)
                    number = read["topics"]["events"]["0"] if read else 0
                    if number >= last:
                        return heard
                    after = offset(number + 10)
                    load_id = writers[0].ledger.begin_load(table=TABLE, source=SOURCE, before=read, after=after)
                    parent = writers[0].current()
                    new = snapshot(uuid.uuid4().int >> 65, parent, moving(read, after, load_id))
                    answer = writers[0].send(commit_of(new, parent=parent))
                    assert answer.status_code in (200, 400, 409), answer.text
                    heard += answer.status_code == 200
            except (httpx.TransportError, CatalogError):
                del writers[0]
        raise AssertionError("no server is left")


@pytest.mark.parametrize("point", ["before-swap:3", "after-swap:3"])
def test_writers_race_on_two_servers_of_which_one_dies(postgresql: Postgresql, tmp_path: Path, point: str) -> None:
    database = postgresql.new_database()
    with server(tmp_path, postgresql, database) as lasting, server(tmp_path, postgresql, database, point) as dying:
        writer = Writer(lasting)
        writer.ledger.evolve(TABLE, pa.schema([("id", pa.int64())]))
        # Those of the server that lasts leave enough for the other to reach its end.
        orders = [(lasting, dying), (dying, lasting)] * 2
        with ThreadPoolExecutor(len(orders)) as pool:
            heard = sum(pool.map(load_tens, orders, [50, 100] * 2))
        # Two may have been waiting for an answer of the one that died.
        assert 8 <= heard <= (9 if point.startswith("after") else 10)
        loads = [load for load in writer.ledger.loads(limit=1000) if load.state == COMMITTED]
        assert [load.after for load in loads] == [offset(number) for number in range(100, 0, -10)]
        assert len(writer.metadata()["snapshots"]) == 10
        writer.close()
