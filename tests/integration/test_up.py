"""`headwater up` as a process: one ready line, a clean stop by signal, and refusals in one sentence.

What `test_cli_up` checks of the command line is not repeated here.
"""

import json
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from conformance.actions import BROKER_RESOURCE, create_topic, describe_configs, fetch_all, produce_ok
from conformance.batches import batch, values
from conformance.wire import Wire
from headwater.testing import LocalBroker
from integration.cli_runner import Cli, Done, Started
from integration.raw_client import RawClient, fetch_body

NOWHERE = Cli("127.0.0.1:1")
USAGE, REFUSED = 2, 1


@contextmanager
def up(*arguments: str, port: str = "0") -> Iterator[tuple[Started, str, str]]:
    """A broker, its address and its data dir, both as its ready line tells them."""
    with NOWHERE.started("up", "--port", port, *arguments) as broker:
        line = broker.line()
        assert line.startswith("headwater is ready at "), line or broker.finish()
        address, _, data = line.removeprefix("headwater is ready at ").rstrip("\n").partition(", data in ")
        yield broker, address, data


def refusal(*arguments: str) -> str:
    """The sentence with which `headwater up` declines; it must be one, and no traceback."""
    done = NOWHERE("up", *arguments, timeout_s=30)
    assert (done.code in (REFUSED, USAGE), done.out) == (True, ""), done
    assert done.err.startswith("headwater: "), done
    assert done.err.count("\n") == 1, done.err
    assert done.err.endswith("\n"), done.err
    return done.err


def test_the_ready_line_is_all_it_prints_and_is_true(tmp_path: Path) -> None:
    with up("--data", str(tmp_path / "data")) as (broker, address, data):
        assert data == str(tmp_path / "data")
        with Wire(address) as wire:
            (node,) = wire.send("metadata", topics=[]).brokers
            assert f"{node.host}:{node.port}" == address
        assert broker.finish(signal.SIGTERM) == Done(0, "", "")


def test_it_answers_within_a_second(tmp_path: Path) -> None:
    took_s = []
    for number in range(4):
        started = time.monotonic()
        with up("--data", str(tmp_path / str(number))) as (broker, address, _), Wire(address) as wire:
            assert wire.send("api_versions", 0).api_keys
            took_s.append(time.monotonic() - started - waited_for_a_core_s(broker.process.pid))
        # The machine may be busy with other things, now and then, but not always.
        if took_s[-1] < 1:
            return
    pytest.fail(f"it took {took_s} seconds")


def waited_for_a_core_s(pid: int) -> float:
    """How long a process could have run, and others did."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_cleanly_with_everything_written_down(tmp_path: Path, number: signal.Signals) -> None:
    with up("--data", str(tmp_path)) as (broker, address, _):
        with Wire(address) as wire:
            topic = create_topic(wire, name="orders")
            produce_ok(wire, topic, batch(b"one", b"two", b"three"))
        assert not (tmp_path / ".kafka_cleanshutdown").exists(), "while it runs, a crash must be recognizable"
        assert broker.finish(number) == Done(0, "", "")
    assert json.loads((tmp_path / ".kafka_cleanshutdown").read_text()) == {"version": 0, "brokerEpoch": -1}
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        assert (tmp_path / name).read_text() == "0\n1\norders 0 3\n"
    assert (tmp_path / "log-start-offset-checkpoint").read_text() == "0\n0\n"
    with up("--data", str(tmp_path)) as (_, address, _), Wire(address) as wire:
        assert not (tmp_path / ".kafka_cleanshutdown").exists()
        assert values(fetch_all(wire, topic)) == [b"one", b"two", b"three"]


def test_clients_that_wait_do_not_hold_up_the_stop(tmp_path: Path) -> None:
    with up("--data", str(tmp_path)) as (broker, address, _):
        with Wire(address) as wire:
            topic = create_topic(wire)
        with RawClient(address) as waiting, RawClient(address) as idle:
            waiting.send(fetch_body(topic.name, 0, max_wait_ms=60_000))
            time.sleep(0.1)
            before = time.monotonic()
            assert broker.finish(signal.SIGTERM) == Done(0, "", "")
            assert time.monotonic() - before < 5
            assert (waiting.receive(), idle.receive()) == (None, None)
    assert (tmp_path / ".kafka_cleanshutdown").exists()


def test_a_port_in_use_is_refused(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = refusal("--port", str(port), "--data", str(tmp_path))
    assert f"127.0.0.1:{port}" in said
    assert "in use" in said
    assert "--port" in said
    with up("--data", str(tmp_path)):
        pass


def test_an_address_of_another_machine_is_refused(tmp_path: Path) -> None:
    said = refusal("--host", "192.0.2.1", "--port", "0", "--data", str(tmp_path))
    assert "192.0.2.1" in said
    assert "--host" in said


def test_clients_of_a_broker_on_all_addresses_are_not_sent_to_their_own_machine(tmp_path: Path) -> None:
    """0.0.0.0 is where it listens; to a client on another machine it would mean that machine."""
    with up("--host", "0.0.0.0", "--data", str(tmp_path)) as (_, address, _):
        port = address.rpartition(":")[2]
        with Wire(f"127.0.0.1:{port}") as wire:
            (node,) = wire.send("metadata", topics=[]).brokers
    assert node.port == int(port)
    assert node.host not in ("0.0.0.0", "", "::")


def test_a_data_dir_of_a_running_broker_is_refused_and_that_one_goes_on(tmp_path: Path) -> None:
    with LocalBroker(data=tmp_path) as broker:
        said = refusal("--port", "0", "--data", str(tmp_path))
        assert str(tmp_path) in said
        assert "another broker" in said
        with Wire(broker.bootstrap) as wire:
            create_topic(wire)


def test_a_data_dir_of_another_node_is_refused(tmp_path: Path) -> None:
    with LocalBroker(data=tmp_path, config={"node.id": 7}):
        pass
    said = refusal("--port", "0", "--data", str(tmp_path), "-o", "node.id=8")
    assert "node 7, not 8" in said
    assert str(tmp_path) in said


def test_data_dirs_of_two_clusters_are_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        with LocalBroker(data=tmp_path / name):
            pass
    said = refusal("--port", "0", "-o", f"log.dirs={tmp_path / 'a'},{tmp_path / 'b'}")
    assert "different clusters" in said
    for name in ("a", "b"):
        lines = (tmp_path / name / "meta.properties").read_text().splitlines()
        (cluster_id,) = (line.partition("=")[2] for line in lines if line.startswith("cluster.id="))
        assert cluster_id in said


def a_file(folder: Path) -> Path:
    (folder / "file").write_text("mine")
    return folder / "file"


def below_a_file(folder: Path) -> Path:
    return a_file(folder) / "data"


def where_nothing_can_be_made(folder: Path) -> Path:
    """A folder that takes no files, not even from root."""
    return Path("/proc/headwater")


def without_rights(folder: Path) -> Path:
    (folder / "locked").mkdir(mode=0o500, exist_ok=True)
    return folder / "locked"


UNUSABLE = [a_file, below_a_file, where_nothing_can_be_made]
if os.geteuid() != 0:  # root has all rights
    UNUSABLE.append(without_rights)


@pytest.mark.parametrize("place", UNUSABLE)
def test_a_data_dir_that_cannot_be_one_is_refused(tmp_path: Path, place: Callable[[Path], Path]) -> None:
    said = refusal("--port", "0", "--data", str(place(tmp_path)))
    assert str(place(tmp_path)) in said


def test_a_file_stays_as_it_is_when_it_is_given_as_data_dir(tmp_path: Path) -> None:
    refusal("--port", "0", "--data", str(a_file(tmp_path)))
    assert (tmp_path / "file").read_text() == "mine"


def garbled_owner(data: Path) -> None:
    (data / "meta.properties").write_text("version=many\n")


def garbled_journal(data: Path) -> None:
    (journal,) = data.glob("*.jsonl")
    journal.write_text("not a change\n" + journal.read_text())


def journal_that_cannot_be_read(data: Path) -> None:
    """A folder in the file's place: stands for every error of the system at this point."""
    (journal,) = data.glob("*.jsonl")
    journal.unlink()
    journal.mkdir()


def log_that_cannot_be_read(data: Path) -> None:
    log = data / "orders-0" / f"{0:020}.log"
    log.unlink()
    log.mkdir()


@pytest.mark.parametrize(
    ("damage", "names"),
    [
        (garbled_owner, "meta.properties"),
        (garbled_journal, ".jsonl, line 1"),
        (journal_that_cannot_be_read, ".jsonl"),
        (log_that_cannot_be_read, ".log"),
    ],
)
def test_damaged_data_is_refused_and_the_file_is_named(
    tmp_path: Path, damage: Callable[[Path], None], names: str
) -> None:
    with LocalBroker(data=tmp_path) as broker, Wire(broker.bootstrap) as wire:
        create_topic(wire, name="orders")
    damage(tmp_path)
    assert names in refusal("--port", "0", "--data", str(tmp_path))


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("log.retention.hour=3", "log.retention.hours"),
        ("Num.Partitions=3", "num.partitions"),
        ("socket.request.max.byte=1", "socket.request.max.bytes"),
        ("num.partitions=0", "num.partitions"),
        ("socket.request.max.bytes=-5", "socket.request.max.bytes"),
        ("log.segment.bytes=9999999999", "log.segment.bytes"),
        ("compression.type=brotli", "zstd"),
        ("auto.create.topics.enable=maybe", "true"),
        ("listeners=SSL://127.0.0.1:0", "PLAINTEXT"),
        ("listeners=nonsense", "host:port"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_with_what_can(tmp_path: Path, setting: str, says: str) -> None:
    said = refusal("--data", str(tmp_path / "data"), "-o", setting)
    assert says in said
    assert not (tmp_path / "data").exists(), "nothing is touched before the settings are good"


def test_a_port_that_is_none_is_refused(tmp_path: Path) -> None:
    done = NOWHERE("up", "--port", "65536", "--data", str(tmp_path / "data"))
    assert (done.code, done.out) == (USAGE, "")
    assert "65535" in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("broken.toml", "num.partitions = \n", "line 1"),
        ("broken.properties", "log.dirs=\\u12x\n", "\\u12x"),
        ("unknown.properties", "num.partition=3\n", "num.partitions"),
        ("unknown.toml", "[num]\npartition = 3\n", "num.partitions"),
        ("range.toml", "num.partitions = 0\n", "num.partitions"),
        ("dates.toml", "num.partitions = 2020-01-01\n", "num.partitions"),
    ],
)
def test_a_broken_config_file_is_refused(tmp_path: Path, name: str, content: str, says: str) -> None:
    (tmp_path / name).write_text(content)
    assert says in refusal("--config", str(tmp_path / name), "--data", str(tmp_path / "data"))


def test_a_config_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "absent.properties", tmp_path):
        assert str(path) in refusal("--config", str(path), "--data", str(tmp_path / "data"))


PROPERTIES = """\
# Kafka's own names, as in any server.properties
listeners=PLAINTEXT://127.0.0.1:0
log.dirs={data}
num.partitions = 3
auto.create.topics.enable: false
message.max.bytes=\\
    54321
"""
TOML = """\
listeners = "PLAINTEXT://127.0.0.1:0"
log.dirs = "{data}"
num.partitions = 3
auto.create.topics.enable = false

[message]
max.bytes = 54321
"""


@pytest.mark.parametrize(("name", "content"), [("server.properties", PROPERTIES), ("server.toml", TOML)])
def test_the_config_file_takes_kafkas_names_and_the_command_line_wins(tmp_path: Path, name: str, content: str) -> None:
    file = tmp_path / name
    file.write_text(content.format(data=tmp_path / "data"))
    with NOWHERE.started("up", "--config", str(file), "-o", "num.partitions=5", "--json") as broker:
        ready = json.loads(broker.line())
        assert ready["data"] == str(tmp_path / "data")
        assert not ready["bootstrap"].endswith(":9092")
        with Wire(ready["bootstrap"]) as wire:
            found = describe_configs(wire, BROKER_RESOURCE, "1")
            assert found["num.partitions"].value == "5"
            assert found["message.max.bytes"].value == "54321"
            assert found["auto.create.topics.enable"].value == "false"
            wish = {"name": "made", "num_partitions": -1, "replication_factor": -1}
            assert wire.send("create_topics", topics=[wish]).topics[0].num_partitions == 5


def test_port_0_is_another_free_port_for_each(tmp_path: Path) -> None:
    with up("--data", str(tmp_path / "a")) as (_, one, _), up("--data", str(tmp_path / "b")) as (_, other, _):
        assert one != other
        for address in (one, other):
            assert int(address.rpartition(":")[2]) > 0
            with Wire(address) as wire:
                assert wire.send("metadata", topics=[]).brokers[0].port == int(address.rpartition(":")[2])


@pytest.mark.parametrize(("variable", "below"), [("XDG_DATA_HOME", "headwater"), ("HOME", ".local/share/headwater")])
def test_data_goes_to_the_users_data_folder_and_not_where_temporary_files_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, below: str
) -> None:
    temporary, mine = tmp_path / "temporary", tmp_path / "mine"
    temporary.mkdir()
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setenv(variable, str(mine))
    with up() as (broker, address, data):
        assert data == str(mine / below)
        with Wire(address) as wire:
            create_topic(wire, name="orders")
        assert (mine / below / "orders-0").is_dir()
        assert broker.finish(signal.SIGTERM).code == 0
    assert list(temporary.iterdir()) == []
