"""One connection to one broker: frames, versions, and answers matched to requests.

Requests may be sent before earlier answers are in; a broker answers in order. Nothing here retries.
"""

import asyncio
import io
import os
import re
import socket
import struct
from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

from headwater.client.errors import (
    CannotConnectError,
    ClientError,
    ConnectionLostError,
    NotKafkaError,
    TimedOutError,
    UnsupportedError,
)
from headwater.protocol.kafka_types import ErrorCode
from headwater.protocol.messages import convert, request_type, response_type

from kio.schema.api_versions.v3.request import ApiVersionsRequest  # isort: skip
from kio.schema.api_versions.v3.response import ApiVersionsResponse  # isort: skip
from kio.serial import entity_reader, entity_writer  # isort: skip
from kio.serial.errors import SerialError  # isort: skip

R = TypeVar("R")

MAX_ANSWER_BYTES: Final = 512 * 1024 * 1024
CONNECT_TIMEOUT_S: Final = 5.0
_STREAM_LIMIT_BYTES: Final = 8 * 1024 * 1024
_HEADER: Final = struct.Struct(">ihhih")
_API_VERSIONS_KEY: Final = 18
_UNSUPPORTED_VERSION: Final = ErrorCode.unsupported_version.to_bytes(2, "big")


class Address(NamedTuple):
    """Where a broker listens.

    >>> str(Address("localhost", 9092))
    'localhost:9092'
    """

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class _Pending(NamedTuple):
    correlation_id: int
    decode: Callable[[bytes], Any]
    answer: "asyncio.Future[Any]"


class Connection:
    """A connection that has asked the broker which versions it serves. Made by `Connection.open`."""

    def __init__(
        self, address: Address, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, client_id: str
    ) -> None:
        self.address = address
        self.versions: dict[int, tuple[int, int]] = {}
        self._reader = reader
        self._writer = writer
        self._client_id = client_id.encode()
        self._next_correlation_id = 0
        self._pending: deque[_Pending] = deque()
        self._failure: ClientError | None = None
        self._reading = asyncio.create_task(self._read_answers())

    @classmethod
    async def open(cls, address: Address, *, client_id: str) -> "Connection":
        """Connects and negotiates; raises `CannotConnectError` or `NotKafkaError`, which name the address."""
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                reader, writer = await asyncio.open_connection(*address, limit=_STREAM_LIMIT_BYTES)
        except TimeoutError:
            raise CannotConnectError(
                f"cannot connect to {address}: no answer in {CONNECT_TIMEOUT_S:.0f} s; is the address right?"
            ) from None
        except (OSError, UnicodeError) as error:
            raise CannotConnectError(
                f"cannot connect to {address} ({_reason(error)}): is a broker running? start one with `headwater up`"
            ) from None
        connection = cls(address, reader, writer, client_id)
        try:
            await connection._negotiate()
        except BaseException:
            await connection.close()
            raise
        return connection

    @property
    def usable(self) -> bool:
        """Whether requests can still be sent."""
        return self._failure is None

    async def send(self, request: Any, answer_type: type[R], *, timeout_s: float) -> R:
        """Sends one request and waits for its answer."""
        return await (await self.submit(request, answer_type, timeout_s=timeout_s))

    async def submit(self, request: Any, answer_type: type[R], *, timeout_s: float) -> "asyncio.Future[R]":
        """Writes one request and returns the answer to come, so that more can be sent meanwhile.

        When the answer is late the connection is closed, since those behind it would be late too.
        `request` and `answer_type` are of the newest version that the caller speaks; an older broker gets and
        gives its own newest version, converted.
        """
        version = self.version_for(request)
        wanted = request_type(request.__api_key__, version)
        answer = self._write(wanted, convert(request, wanted), _decoder(request.__api_key__, version, answer_type))
        deadline = asyncio.get_running_loop().call_later(timeout_s, self._expire, answer, timeout_s)
        answer.add_done_callback(lambda _: deadline.cancel())
        try:
            await self._writer.drain()
        except OSError as error:
            self._fail(ConnectionLostError(f"the connection to {self.address} was lost: {error}"))
        return answer

    def version_for(self, request: Any) -> int:
        """The highest version of the request's API that both sides speak."""
        oldest, newest = self.versions.get(request.__api_key__, (0, -1))
        version = min(newest, int(request.__version__))
        if version < oldest:
            name = type(request).__name__.removesuffix("Request")
            raise UnsupportedError(
                f"the broker at {self.address} does not serve {name} in a version that this client speaks"
            )
        return version

    async def close(self) -> None:
        """Closes the socket; requests still unanswered fail with `ConnectionLostError`."""
        self._fail(ConnectionLostError(f"the connection to {self.address} was closed"))
        try:
            await self._reading
            await self._writer.wait_closed()
        except (OSError, asyncio.CancelledError):
            pass

    async def _negotiate(self) -> None:
        """Asks for the served versions with ApiVersions v3, or v0 where the broker is too old for that."""
        self.versions = {_API_VERSIONS_KEY: (0, 3)}
        request = ApiVersionsRequest(client_software_name="headwater", client_software_version="1")
        try:
            answer = await self.send(request, ApiVersionsResponse, timeout_s=CONNECT_TIMEOUT_S)
            if answer.error_code is ErrorCode.unsupported_version:
                self.versions = {_API_VERSIONS_KEY: (0, 0)}
                answer = await self.send(request, ApiVersionsResponse, timeout_s=CONNECT_TIMEOUT_S)
        except ConnectionLostError:
            raise NotKafkaError(
                f"{self.address} closes the connection at once: is it a plaintext Kafka listener?"
            ) from None
        except TimedOutError:
            raise NotKafkaError(f"{self.address} accepts connections but does not answer: is it Kafka?") from None
        self.versions = {int(api.api_key): (api.min_version, api.max_version) for api in answer.api_keys}

    def _write(self, wanted: type[Any], body: Any, decode: Callable[[bytes], R]) -> "asyncio.Future[R]":
        answer: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        if self._failure is not None:
            answer.set_exception(self._failure)
            return answer
        self._next_correlation_id += 1
        correlation_id = self._next_correlation_id
        frame = io.BytesIO()
        frame.seek(_HEADER.size)
        frame.write(self._client_id + (b"\0" if wanted.__flexible__ else b""))
        entity_writer(wanted)(frame, body)
        buffer = frame.getbuffer()
        _HEADER.pack_into(
            buffer,
            0,
            len(buffer) - 4,
            wanted.__api_key__,
            wanted.__version__,
            correlation_id,
            len(self._client_id),
        )
        self._pending.append(_Pending(correlation_id, decode, answer))
        self._writer.write(buffer)
        return answer

    async def _read_answers(self) -> None:
        try:
            while True:
                size = int.from_bytes(await self._reader.readexactly(4), "big", signed=True)
                if not 4 <= size <= MAX_ANSWER_BYTES:
                    raise NotKafkaError(f"{self.address} answers, but not in Kafka's protocol: is it a Kafka listener?")
                self._settle(await self._reader.readexactly(size))
        except ClientError as error:
            self._fail(error)
        except (OSError, EOFError) as error:
            reason = f": {error}" if isinstance(error, OSError) else ""
            self._fail(ConnectionLostError(f"the broker at {self.address} closed the connection{reason}"))

    def _settle(self, frame: bytes) -> None:
        """Hands one answer to whoever waits for it."""
        correlation_id = int.from_bytes(frame[:4], "big", signed=True)
        if not self._pending or self._pending[0].correlation_id != correlation_id:
            raise NotKafkaError(f"{self.address} answered a request that was not sent ({correlation_id})")
        pending = self._pending.popleft()
        try:
            message = pending.decode(frame)
        except SerialError as error:
            raise NotKafkaError(f"{self.address} sent an answer that cannot be read: {error}") from error
        if not pending.answer.done():
            pending.answer.set_result(message)

    def _expire(self, answer: "asyncio.Future[Any]", timeout_s: float) -> None:
        if not answer.done():
            self._fail(TimedOutError(f"no answer from {self.address} within {timeout_s:g} s"))

    def _fail(self, failure: ClientError) -> None:
        """Ends the connection; the first reason is the one everybody hears."""
        if self._failure is None:
            self._failure = failure
        self._writer.transport.abort()
        if self._reading is not asyncio.current_task():
            self._reading.cancel()
        while self._pending:
            answer = self._pending.popleft().answer
            if not answer.done():
                answer.set_exception(self._failure)
                # Nobody may be waiting any more, and that is fine.
                answer.exception()


def _reason(error: Exception) -> str:
    """Why a connection failed, in the system's words; asyncio puts several attempts into one text."""
    if isinstance(error, socket.gaierror):
        return str(error.strerror).lower()
    found = re.search(r"\[Errno (\d+)\]", str(error))
    return os.strerror(int(found[1])).lower() if found else str(error)


def _decoder(api_key: int, version: int, answer_type: type[R]) -> Callable[[bytes], R]:
    """Reads an answer of `version` and gives it as an `answer_type`."""
    schema = response_type(api_key, version)
    # Header version 1 has tagged fields, of which there are none yet; ApiVersions never uses it.
    body = 5 if schema.__flexible__ and api_key != _API_VERSIONS_KEY else 4

    def decode(frame: bytes) -> R:
        found = schema
        if api_key == _API_VERSIONS_KEY and frame[4:6] == _UNSUPPORTED_VERSION:
            found = response_type(api_key, 0)  # a broker too old for the asked version says so in version 0
        return convert(entity_reader(found)(frame, body)[0], answer_type)

    return decode
