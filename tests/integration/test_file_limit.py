"""A broker whose clients connect without end still has files to open for its data, and answers when it has none."""

import contextlib
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from integration.raw_client import RawClient, batch_of, produce_body, produced

FILES = 150
BROKER = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[2]), int(sys.argv[2])))
from headwater.broker.app import run_foreground
from headwater.net import server
if sys.argv[3] == "nothing kept":
    server._open_files_limit = lambda: 2**31 - 1
from headwater.config import BrokerConfig
settings = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": sys.argv[1], "log.segment.bytes": "1048576"}
config = BrokerConfig.from_values(settings)
run_foreground(config, on_ready=lambda address: print(address.port, flush=True), dirs_are_meant=True)
"""
# v2; the first one imports its handler, makes files and writes to the journal.
CREATE_TOPIC = struct.pack(">hhih", 19, 2, 1, -1) + struct.pack(">ih1sihiiib", 1, 1, b"t", 1, 1, 0, 0, 10_000, 0)


@contextlib.contextmanager
def flooded(folder: Path, mode: str = "") -> Iterator[RawClient]:
    """A client of a broker to which more others have connected than it may have files."""
    command = [sys.executable, "-c", BROKER, str(folder / "data"), str(FILES), mode]
    with (
        (folder / "log").open("wb") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log) as broker,
        contextlib.ExitStack() as opened,
    ):
        try:
            assert broker.stdout is not None
            port = int(broker.stdout.readline())
            client = opened.enter_context(RawClient(f"127.0.0.1:{port}"))
            for _ in range(2 * FILES):
                opened.enter_context(socket.create_connection(("127.0.0.1", port)))
            yield client
        finally:
            broker.terminate()


def test_connections_leave_files_for_data(tmp_path: Path) -> None:
    with flooded(tmp_path) as client:
        answer = client.ask(CREATE_TOPIC)
        assert answer is not None
        assert b"Too many open files" not in answer
        batch = batch_of(bytes(900_000))  # each rolls a segment
        assert [produced(client.ask(produce_body("t", batch)))[0] for _ in range(5)] == [0] * 5
        assert "cannot accept a connection" in (tmp_path / "log").read_text()


def test_a_request_for_which_no_file_is_left_ends_its_connection(tmp_path: Path) -> None:
    with flooded(tmp_path, "nothing kept") as client:
        assert client.ask(CREATE_TOPIC) is None
        assert "its request could not be answered" in (tmp_path / "log").read_text()
