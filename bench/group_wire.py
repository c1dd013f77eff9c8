"""A light client for benchmarks: many connections in one event loop, kio's messages, no retries, no cache.

Nothing of headwater is imported here: a benchmark must not share code with what it measures.
"""

import asyncio
import functools
import io
import struct
from collections import deque
from datetime import timedelta
from typing import Any, cast

from kio.index import load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i32, i32Timedelta

_CLIENT_ID = b"bench"


class AnswerError(RuntimeError):
    """The broker answered with an error that the shape does not expect, or closed the connection."""


def milliseconds(value: int) -> i32Timedelta:
    """A duration as messages carry it."""
    return i32Timedelta.parse(timedelta(milliseconds=value))


def encode(entity: Any) -> bytes:
    """The bytes of any entity of kio's."""
    out = io.BytesIO()
    entity_writer(type(entity))(out, entity)
    return out.getvalue()


def decode(schema: type[Any], data: bytes, position: int = 0) -> Any:
    """The entity of this type that stands at this position."""
    return entity_reader(schema)(data, position)[0]


def frame(request: Any) -> bytes:
    """A request of a flexible version as it goes over the wire; every request has correlation id 1."""
    header = struct.pack(">hhih", request.__api_key__, request.__version__, 1, len(_CLIENT_ID)) + _CLIENT_ID + b"\0"
    body = encode(request)
    return struct.pack(">i", len(header) + len(body)) + header + body


@functools.cache
def _response_schema(api_key: int, version: int) -> type[Any]:
    return load_response_schema(api_key, version)


class Connection(asyncio.Protocol):
    """One connection; answers come in the order of the requests."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._waiting: deque[asyncio.Future[bytes]] = deque()

    @classmethod
    async def open(cls, port: int) -> "Connection":
        """Connects to the broker on loopback."""
        _, connection = await asyncio.get_running_loop().create_connection(cls, "127.0.0.1", port)
        return connection

    async def ask(self, request: Any) -> Any:
        """Sends a request of a flexible version and waits for its answer."""
        answer = await self.exchange(frame(request))
        # A correlation id and an empty set of tags come first.
        return decode(_response_schema(request.__api_key__, request.__version__), answer, 5)

    def exchange(self, request: bytes) -> "asyncio.Future[bytes]":
        """Sends bytes as they are; the answer comes without its length."""
        if self._transport is None:
            raise AnswerError("the connection is closed")
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting.append(answer)
        self._transport.write(request)
        return answer

    def close(self) -> None:
        """Ends the connection."""
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Called by the loop: hands on every answer that is whole."""
        self._received += data
        while len(self._received) >= 4:
            end = 4 + int.from_bytes(self._received[:4])
            if len(self._received) < end:
                return
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_result(bytes(self._received[4:end]))
            del self._received[:end]

    def connection_lost(self, error: Exception | None) -> None:
        """Called by the loop."""
        self._transport = None
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_exception(AnswerError(f"the broker closed a connection: {error}"))


def check(error: ErrorCode, what: str) -> None:
    """Raises for everything but success."""
    if error is not ErrorCode.none:
        raise AnswerError(f"{what}: {error.name}")


def int32s(values: "set[int] | list[int]") -> tuple[i32, ...]:
    """Partition numbers as messages carry them."""
    return tuple(i32(value) for value in sorted(values))
