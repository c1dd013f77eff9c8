"""Tells when a Kafka broker answers, with nothing but a socket: no client's retries blur the moment."""

import contextlib
import itertools
import os
import random
import socket
import struct
import subprocess
import time
from pathlib import Path

# Metadata version 1 for no topics: length, key 3, version 1, correlation id 1, no client id, an empty list.
_METADATA_REQUEST = struct.pack(">ihhihi", 14, 3, 1, 1, -1, 0)


class BrokerNotReadyError(Exception):
    """The broker ended, or did not answer in time; the message holds the last lines of its log."""


# Below the ports that the system gives to connections, which could take one between our look and the broker's start.
_PORTS = range(12_000, 32_000)
_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
# Workers of one run go through ports of their own; runs side by side begin at different ones.
_candidates = itertools.cycle(_PORTS[_WORKER::_WORKERS])
for _ in range(random.randrange(len(_PORTS) // _WORKERS)):
    next(_candidates)


def free_port() -> int:
    """A loopback port that nobody listens on, and that nobody else is told of for a long time."""
    for port in itertools.islice(_candidates, len(_PORTS)):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise BrokerNotReadyError(f"no free port in {_PORTS}")


def answers(host: str, port: int, *, brokers: int = 1) -> bool:
    """Whether a broker there lists itself in its metadata, as it does once it takes requests; or so many brokers."""
    try:
        with socket.create_connection((host, port), timeout=2) as connection:
            connection.sendall(_METADATA_REQUEST)
            answer = b""
            while len(answer) < 12:
                received = connection.recv(4096)
                if not received:
                    return False
                answer += received
    except OSError:
        return False
    (listed,) = struct.unpack_from(">i", answer, 8)
    return bool(listed >= brokers)


def wait_until_answering(
    process: subprocess.Popen[bytes], host: str, port: int, *, log: Path, brokers: int = 1, timeout_s: float = 60
) -> None:
    """Returns once the broker that runs as `process` answers; raises BrokerNotReadyError when it will not.

    In a cluster that is when it knows of so many `brokers`.
    """
    deadline = time.monotonic() + timeout_s
    while not answers(host, port, brokers=brokers):
        if process.poll() is not None:
            raise BrokerNotReadyError(f"the broker ended with {process.returncode}:\n{tail(log)}")
        if time.monotonic() > deadline:
            raise BrokerNotReadyError(f"no answer from {host}:{port} within {timeout_s} s:\n{tail(log)}")
        time.sleep(0.05)


def tail(log: Path, lines: int = 30) -> str:
    """The last lines of a log file."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:]) if log.exists() else "(no log)"
