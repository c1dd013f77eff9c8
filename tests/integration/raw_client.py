"""A client of nothing but a socket: sends frames as they are, reads the answers as bytes."""

import socket
import struct
from types import TracebackType
from typing import Any, Self

from headwater.protocol import records

API_VERSIONS_V0 = struct.pack(">hhih", 18, 0, 7, -1)


class RawClient:
    def __init__(self, bootstrap: str, timeout_s: float = 20.0) -> None:
        host, _, port = bootstrap.rpartition(":")
        self.sock = socket.create_connection((host, int(port)), timeout=timeout_s)

    def send(self, body: bytes) -> None:
        self.sock.sendall(struct.pack(">i", len(body)) + body)

    def receive(self) -> bytes | None:
        """The next answer without its length; None when the broker has closed the connection."""
        try:
            head = self._exactly(4)
            return self._exactly(struct.unpack(">i", head)[0])
        except ConnectionError:
            return None

    def ask(self, body: bytes) -> bytes | None:
        self.send(body)
        return self.receive()

    def close(self) -> None:
        self.sock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self.sock.recv(size - len(data))
            if not part:
                raise ConnectionResetError("closed by the broker")
            data += part
        return bytes(data)


def produce_body(topic: str, batch: bytes, *, partition: int = 0, acks: int = -1, correlation_id: int = 1) -> bytes:
    """A Produce request of version 7 with one batch."""
    name = topic.encode()
    head = struct.pack(">hhih", 0, 7, correlation_id, -1) + struct.pack(">hhi", -1, acks, 30_000)
    return head + struct.pack(">ih", 1, len(name)) + name + struct.pack(">iii", 1, partition, len(batch)) + batch


def fetch_body(
    topic: str,
    offset: int,
    *,
    partition: int = 0,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
) -> bytes:
    """A Fetch request of version 4 for one partition."""
    name = topic.encode()
    head = struct.pack(">hhih", 1, 4, 2, -1) + struct.pack(">iiiib", -1, max_wait_ms, min_bytes, max_bytes, 0)
    return head + struct.pack(">ih", 1, len(name)) + name + struct.pack(">iiqi", 1, partition, offset, max_bytes)


def produced(answer: bytes | None) -> tuple[int, int]:
    """Error code and base offset of the only partition in the answer to `produce_body`."""
    assert answer is not None
    name_size = struct.unpack_from(">h", answer, 8)[0]
    _, error_code, base_offset = struct.unpack_from(">ihq", answer, 10 + name_size + 4)
    return error_code, base_offset


def fetched(answer: bytes | None) -> tuple[int, int, bytes]:
    """Error code, high watermark and records of the only partition in the answer to `fetch_body`."""
    assert answer is not None
    name_size = struct.unpack_from(">h", answer, 12)[0]
    at = 14 + name_size + 4
    _, error_code, high_watermark, _, _, size = struct.unpack_from(">ihqqii", answer, at)
    return error_code, high_watermark, answer[at + 30 : at + 30 + size]


def batch_of(*values: bytes, timestamp_ms: int = 1_700_000_000_000, **fields: Any) -> bytes:
    """A record batch without keys."""
    return bytes(records.encode_batch([(None, value, (), timestamp_ms) for value in values], **fields))
