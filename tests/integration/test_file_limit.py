"""A broker whose clients connect without end still has files to open for its data."""

import contextlib
import socket
import struct
import subprocess
import sys
from pathlib import Path

from integration.raw_client import RawClient, batch_of, produce_body, produced

FILES = 150
BROKER = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[2]), int(sys.argv[2])))
from headwater.broker.app import run_foreground
from headwater.config import BrokerConfig
settings = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": sys.argv[1], "log.segment.bytes": "1048576"}
config = BrokerConfig.from_values(settings)
run_foreground(config, on_ready=lambda address: print(address.port, flush=True), dirs_are_meant=True)
"""


def test_connections_leave_files_for_data(tmp_path: Path) -> None:
    command = [sys.executable, "-c", BROKER, str(tmp_path / "data"), str(FILES)]
    log = tmp_path / "log"
    with (
        log.open("wb") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors) as broker,
        contextlib.ExitStack() as opened,
    ):
        try:
            assert broker.stdout is not None
            port = int(broker.stdout.readline())
            client = opened.enter_context(RawClient(f"127.0.0.1:{port}"))
            for _ in range(2 * FILES):
                opened.enter_context(socket.create_connection(("127.0.0.1", port)))
            # CreateTopics v2 imports its handler, makes files and writes to the journal; each batch rolls a segment.
            body = struct.pack(">ih1sihiiib", 1, 1, b"t", 1, 1, 0, 0, 10_000, 0)
            answer = client.ask(struct.pack(">hhih", 19, 2, 1, -1) + body)
            assert answer is not None
            assert b"Too many open files" not in answer
            batch = batch_of(bytes(900_000))
            assert [produced(client.ask(produce_body("t", batch)))[0] for _ in range(5)] == [0] * 5
            assert "cannot accept a connection" in log.read_text()
        finally:
            broker.terminate()
