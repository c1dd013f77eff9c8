"""What headwater makes on a disk is for its owner alone, whatever the umask; and data that others can read is named."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from catalog_parts import TABLE
from headwater.broker.app import fleeting_dirs
from headwater.catalog.client import CatalogClient
from headwater.catalog.server import EmbeddedCatalog
from headwater.testing import LocalBroker

from .cli_runner import HEADWATER, Cli, Done


@pytest.fixture
def no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def readable_by_others(folder: Path) -> list[str]:
    return [str(path) for path in (folder, *folder.rglob("*")) if path.stat().st_mode & 0o077]


def up(*arguments: str) -> Done:
    """Starts a broker, asks it something, and ends it."""
    process = subprocess.Popen(
        [HEADWATER, "up", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, umask=0
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    cli = Cli(line.removeprefix("headwater is ready at ").partition(",")[0])
    if line:
        assert cli("topics", "create", "orders", "--if-not-exists").code == 0
        assert cli("produce", "orders", stdin="a\nb\n").code == 0
        process.terminate()
    out, err = process.communicate(timeout=30)
    return Done(process.returncode, line + out, err)


def test_the_data_of_a_broker_is_private_and_what_means_nothing_in_its_file_is_one_line(tmp_path: Path) -> None:
    data = tmp_path / "deep" / "data"
    file = tmp_path / "server.properties"
    file.write_text(
        f"broker.id=0\nlisteners=PLAINTEXT://127.0.0.1:0\nlog.dirs={data}\nnum.io.threads=8\n"
        "zookeeper.connect=localhost:2181\nzookeeper.connection.timeout.ms=18000\nconfluent.support.metrics.enable=true\n"
        "offsets.topic.num.partitions=1\n"
    )
    done = up("--config", str(file))
    assert done.code == 0
    ignored, temporary = done.err.splitlines()
    assert ignored.endswith(
        "these settings have no effect here: num.io.threads, zookeeper.connect, zookeeper.connection.timeout.ms, "
        "confluent.support.metrics.enable"
    )
    assert f"log.dirs has {data} among the temporary files" in temporary
    assert (data / "orders-0" / "00000000000000000000.log").stat().st_size > 0
    assert readable_by_others(tmp_path / "deep") == []


def test_settings_of_tls_are_told_together_with_what_is_done_instead(tmp_path: Path) -> None:
    settings = [part for name in ("ssl.keystore.location", "ssl.client.auth") for part in ("-o", f"{name}=required")]
    done = up("--data", str(tmp_path / "data"), "--port", "0", *settings)
    assert done.err.endswith(
        "these settings have no effect here: ssl.keystore.location, ssl.client.auth; "
        "the broker has neither TLS nor SASL yet and listens in plain text: let only hosts that you trust reach it\n"
    )
    assert done.err.count("\n") == 1


def test_data_that_others_can_read_is_named_and_left_as_it_is(tmp_path: Path) -> None:
    assert up("--data", str(tmp_path / "data"), "--port", "0").err == ""
    for path in (tmp_path / "data", tmp_path / "data" / "orders-0"):
        path.chmod(0o755)
    done = up("--data", str(tmp_path / "data"), "--port", "0")
    assert done.err.count("\n") == 1
    assert f"other users of this machine can read the records in {tmp_path / 'data'}: forbid it with chmod" in done.err
    assert (tmp_path / "data").stat().st_mode & 0o777 == 0o755


def test_temporary_places_are_those_that_the_system_empties(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link = tmp_path / "link"
    link.symlink_to("/tmp")
    for place in ("/tmp/kafka-logs", "/var/tmp/a/b", "/dev/shm/x", f"{link}/kafka-logs"):
        assert fleeting_dirs([place, "/var/lib/kafka"]) == [place]
    assert fleeting_dirs(["/var/lib/kafka", "/tmpfiles", "/home/ann/tmp/x"]) == []


def test_a_broker_inside_a_test_is_not_told_where_its_data_is(caplog: pytest.LogCaptureFixture) -> None:
    with LocalBroker():
        pass
    assert "temporary" not in caplog.text


@pytest.mark.usefixtures("no_umask")
def test_a_catalog_and_what_it_writes_are_private(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    with EmbeddedCatalog(str(lake / "catalog.db"), str(lake)) as catalog, CatalogClient(catalog.uri) as client:
        client.evolve(TABLE, pa.schema([("id", pa.int64())]))
        assert len(list(lake.rglob("*.metadata.json"))) == 1
        assert {path.name for path in lake.iterdir() if path.is_file()} >= {"catalog.db", "catalog.db-wal"}
        assert readable_by_others(lake) == []
