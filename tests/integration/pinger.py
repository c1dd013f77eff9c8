"""A client that asks for one topic's metadata every few milliseconds and notes how long that takes.

It is a process of its own, so that a test's work does not delay it: `pinger.py PORT PID`. Each line on its input is
answered with one of JSON about the pings since the line before.

On a busy machine a ping may take long although the broker is not to blame. So each is also measured by the time in
which the broker was running: what it did not even try to answer in, because others had the processors, does not count.
"""

import contextlib
import json
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

TOPIC = b"pinged"
INTERVAL_S = 0.003


class Pinger:
    """The process, from the side of a test."""

    def __init__(self, bootstrap: str, pid: int) -> None:
        command = [sys.executable, "-S", __file__, bootstrap.rpartition(":")[2], str(pid)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def worst(self) -> dict[str, Any]:
        """How many pings were answered since this was asked before, and how long the worst took."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()
        return dict(json.loads(self._process.stdout.readline()))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()


class _Worst:
    def __init__(self) -> None:
        self.pings = 0
        self.worst_s = self.worst_held_s = 0.0


def _running_s(pid: str) -> float:
    """How long the threads of a process have been running so far."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            total += int((task / "schedstat").read_bytes().split()[0])
    return total / 1e9


def _ping(port: str, pid: str) -> None:
    # Metadata v1.
    body = struct.pack(">hhih", 3, 1, 7, -1) + struct.pack(">ih", 1, len(TOPIC)) + TOPIC
    seen = _Worst()
    threading.Thread(target=_answer, args=(lambda: seen,), daemon=True).start()
    with socket.create_connection(("127.0.0.1", int(port))) as sock:
        while True:
            running_s, sent_s = _running_s(pid), time.monotonic()
            sock.sendall(struct.pack(">i", len(body)) + body)
            (left,) = struct.unpack(">i", sock.recv(4, socket.MSG_WAITALL))
            while left:
                left -= len(sock.recv(left))
            took_s = time.monotonic() - sent_s
            seen.pings += 1
            seen.worst_s = max(seen.worst_s, took_s)
            if took_s > seen.worst_held_s:
                seen.worst_held_s = max(seen.worst_held_s, min(took_s, _running_s(pid) - running_s))
            time.sleep(INTERVAL_S)


def _answer(seen: Any) -> None:
    while sys.stdin.readline():
        values = dict(vars(seen()))
        seen().__init__()
        print(json.dumps(values), flush=True)


if __name__ == "__main__":
    with contextlib.suppress(OSError, struct.error, ValueError):
        _ping(sys.argv[1], sys.argv[2])
