"""One connection to one broker: frames, versions, and answers matched to requests. Nothing here retries.

Requests may be sent before earlier answers are in; a broker answers in order. An answer that is late, that belongs to
no request, or that cannot be read ends the connection, since nothing behind it could be trusted. Whoever stops waiting
for an answer changes nothing: it is still owed, taken from the stream in its turn, and dropped.

There are two lanes. `send` and `submit` speak kio's messages and convert between versions. `submit_raw` is for Produce
and Fetch: the caller's bytes go out as they are, and the answer comes back in the memory it was received into.
"""

import asyncio
import io
import math
import os
import re
import socket
import ssl
import struct
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar, cast

from headwater.client.addresses import Address as Address
from headwater.client.answer_frames import AnswerFrames, BadLengthError
from headwater.client.errors import (
    AuthenticationError,
    CannotConnectError,
    ClientError,
    ConnectionLostError,
    NoTalkError,
    NotKafkaError,
    RefusedError,
    TimedOutError,
    UnsupportedError,
)
from headwater.client.receiving import receive, receivers_of
from headwater.client.security import tls_failure
from headwater.client.settings import ConnectionSettings
from headwater.client.statistics import ConnectionStatistics
from headwater.protocol.errors import MalformedRequestError, MalformedResponseError
from headwater.protocol.kafka_types import ErrorCode
from headwater.protocol.messages import convert, decode_response, request_type
from headwater.protocol.wire import Cursor

from kio.schema.api_versions.v3.request import ApiVersionsRequest  # isort: skip
from kio.schema.api_versions.v3.response import ApiVersionsResponse  # isort: skip
from kio.serial import entity_writer  # isort: skip

R = TypeVar("R")

_HEADER: Final = struct.Struct(">ihhih")
_CORRELATION_ID: Final = struct.Struct(">i")
_LARGEST_CORRELATION_ID: Final = 2**31 - 1
_API_VERSIONS_KEY: Final = 18
_JOINED_BYTES: Final = 16 * 1024
"""Parts smaller than this are cheaper to copy together than to hand to the system one by one."""
_GOODBYE_S: Final = 1.0
_GRACE_S: Final = 0.1
_UNREADABLE: Final = (MalformedRequestError, MalformedResponseError)
_NOTHING: Final = memoryview(b"")
_REST_WITHIN_MS: Final = 1
_AHEAD_S: Final = 0.02
"""How long to receive at a time before others on the loop get their turn."""


class _Pending:
    """A request that is owed an answer."""

    __slots__ = ("answer", "correlation_id", "deadline_s", "decode", "sent_s", "tagged_header", "timeout_s")

    def __init__(
        self,
        correlation_id: int,
        answer: "asyncio.Future[Any]",
        decode: Callable[[memoryview, int], Any] | None,
        tagged_header: bool,
        sent_s: float,
        timeout_s: float,
    ) -> None:
        self.correlation_id = correlation_id
        self.answer = answer
        self.decode = decode
        self.tagged_header = tagged_header
        self.sent_s = sent_s
        self.timeout_s = timeout_s
        self.deadline_s = sent_s + timeout_s


class Connection(asyncio.BufferedProtocol):
    """A connection that has asked the broker which versions it serves. Made by `Connection.open`.

    It is its own asyncio protocol: the methods at the end of the class are called by the event loop, by nobody else.
    """

    def __init__(self, address: Address, settings: ConnectionSettings, statistics: ConnectionStatistics) -> None:
        self.address = address
        self.versions: dict[int, tuple[int, int]] = {}
        self.features: dict[str, int] = {}
        """The levels of the features that the cluster has agreed on, as `transaction.version`."""
        self.statistics = statistics
        self.on_lost: Callable[[ClientError], None] | None = None
        """Told once when the connection ends, unless it was closed from this side."""
        self._settings = settings
        self._client_id = settings.client_id.encode()
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._ended = self._loop.create_future()
        self._room = asyncio.Event()
        self._room.set()
        self._frames = AnswerFrames()
        self._fd = -1
        self._receivers = receivers_of(self._loop)
        self._pending: deque[_Pending] = deque()
        self._last_correlation_id = 0
        self._failure: ClientError | None = None
        self._last_used_s = time.monotonic()
        self._deadline_timer: asyncio.TimerHandle | None = None
        self._deadline_checked_s = math.inf

    @classmethod
    async def open(
        cls,
        address: Address,
        settings: ConnectionSettings | None = None,
        *,
        client_id: str | None = None,
        statistics: ConnectionStatistics | None = None,
    ) -> "Connection":
        """Connects, proves who we are and asks for versions; every error names the address.

        Raises `CannotConnectError`, `NotKafkaError` or `AuthenticationError`.
        """
        settings = settings or ConnectionSettings(client_id=client_id or "headwater")
        limit_s = settings.socket_connection_setup_timeout_ms / 1000
        ends_s = time.monotonic() + limit_s
        connection = cls(address, settings, statistics or ConnectionStatistics())
        await connection._connect(limit_s)
        try:
            await connection._negotiate(ends_s - time.monotonic())
            if settings.security.sasl is not None:
                await connection._authenticate(ends_s - time.monotonic())
        except BaseException:
            await connection.close()
            raise
        return connection

    @property
    def usable(self) -> bool:
        """Whether requests can still be sent."""
        return self._failure is None

    @property
    def in_flight(self) -> int:
        """How many answers are owed."""
        return len(self._pending)

    @property
    def idle_s(self) -> float:
        """How long ago the last request or answer was; 0 while an answer is owed."""
        return 0.0 if self._pending else time.monotonic() - self._last_used_s

    async def send(self, request: Any, answer_type: type[R], *, timeout_s: float) -> R:
        """Sends one request and waits for its answer."""
        return await (await self.submit(request, answer_type, timeout_s=timeout_s))

    async def submit(self, request: Any, answer_type: type[R], *, timeout_s: float) -> "asyncio.Future[R]":
        """Writes one request and returns the answer to come, so that more can be sent meanwhile.

        When the answer is late the connection is closed, since those behind it would be late too.
        `request` and `answer_type` are of the newest version that the caller speaks; an older broker gets and
        gives its own newest version, converted.
        """
        key, version = int(request.__api_key__), self.version_for(request)
        wanted = request_type(key, version)
        body = io.BytesIO()
        entity_writer(wanted)(body, convert(request, wanted))
        decode = _decoder(key, version, answer_type)
        answer = self._write(key, version, [body.getbuffer()], wanted.__flexible__, decode, timeout_s)
        await self.drained()
        return answer

    def submit_raw(
        self,
        api_key: int,
        version: int,
        body: Sequence[bytes | bytearray | memoryview],
        *,
        flexible: bool,
        timeout_s: float,
        answered: bool = True,
    ) -> "asyncio.Future[memoryview]":
        """Writes one request, whose body is the parts one after the other, and returns the answer's body to come.

        Large parts are not copied: leave them as they are until the answer is in. The answer is a memoryview over
        memory that is the caller's alone for as long as it, or a slice of it, is kept. `flexible` says whether this
        version of the API has tagged fields. Produce with acks=0 gets no answer: with `answered=False` the result is
        there at once, and empty.
        `await drained()` between requests keeps what is not sent yet small.
        """
        if answered:
            return self._write(api_key, version, body, flexible, None, timeout_s)
        answer: asyncio.Future[memoryview] = self._loop.create_future()
        if (failure := self._failure_by_now()) is not None:
            return _failed(answer, failure)
        self._send(api_key, version, body, flexible)
        answer.set_result(_NOTHING)
        return answer

    async def drained(self) -> None:
        """Waits while too much is written and not sent yet. A connection that ends lets go: answers carry the error."""
        if not self._room.is_set():
            await self._room.wait()

    def supported(self, api_key: int) -> tuple[int, int]:
        """The oldest and the newest version that the broker serves of an API; (0, -1) when it does not know it."""
        return self.versions.get(api_key, (0, -1))

    def version_for(self, request: Any) -> int:
        """The highest version of the request's API that both sides speak."""
        oldest, newest = self.supported(request.__api_key__)
        version = min(newest, int(request.__version__))
        if version < oldest:
            name = type(request).__name__.removesuffix("Request")
            raise UnsupportedError(
                f"the broker at {self.address} does not serve {name} in a version that this client speaks"
            )
        return version

    async def close(self) -> None:
        """Closes the socket; requests still unanswered fail with `ConnectionLostError`."""
        self.end("was closed")
        if self._transport is not None:
            await asyncio.wait([self._ended], timeout=_GOODBYE_S)

    def end(self, what_happened: str) -> None:
        """Closes without waiting for the socket to be gone, and without telling `on_lost`."""
        self.on_lost = None
        self._fail(ConnectionLostError(f"the connection to {self.address} {what_happened}"))

    async def _connect(self, limit_s: float) -> None:
        security = self._settings.security
        name = (security.server_hostname or self.address.host) if security.tls is not None else None
        try:
            async with asyncio.timeout(limit_s):
                await self._loop.create_connection(lambda: self, *self.address, ssl=security.tls, server_hostname=name)
        except TimeoutError:
            raise CannotConnectError(
                f"cannot connect to {self.address}: no answer in {limit_s:g} s; is the address right?"
            ) from None
        except ssl.SSLError as error:
            raise CannotConnectError(f"cannot connect to {self.address}: {tls_failure(error)}") from None
        except (OSError, ValueError, OverflowError) as error:
            # Metadata may name any host and port: one with a NUL, or a port that does not exist, is no OSError.
            if security.tls is not None and isinstance(error, ConnectionResetError | ConnectionAbortedError):
                raise CannotConnectError(
                    f"cannot connect to {self.address}: the TLS handshake was cut off: is it a TLS listener?"
                ) from None
            raise CannotConnectError(
                f"cannot connect to {self.address} ({_reason(error)}): "
                "is a broker running? start one with `headwater up`"
            ) from None

    async def _negotiate(self, limit_s: float) -> None:
        """Asks for the served versions with ApiVersions v3, or v0 where the broker is too old for that."""
        self.versions = {_API_VERSIONS_KEY: (0, 3)}
        request = ApiVersionsRequest(client_software_name="headwater", client_software_version="1")
        try:
            answer = await self.send(request, ApiVersionsResponse, timeout_s=limit_s)
            if answer.error_code is ErrorCode.unsupported_version:
                self.versions = {_API_VERSIONS_KEY: (0, 0)}
                answer = await self.send(request, ApiVersionsResponse, timeout_s=limit_s)
        except ConnectionLostError:
            kind = "TLS" if self._settings.security.tls is not None else "plaintext"
            raise NoTalkError(f"{self.address} closes the connection at once: is it a {kind} Kafka listener?") from None
        except TimedOutError:
            raise NoTalkError(f"{self.address} accepts connections but does not answer: is it Kafka?") from None
        self.versions = {int(api.api_key): (api.min_version, api.max_version) for api in answer.api_keys}
        self.features = {feature.name: int(feature.max_version_level) for feature in answer.finalized_features}

    async def _authenticate(self, limit_s: float) -> None:
        assert self._settings.security.sasl is not None
        try:
            async with asyncio.timeout(limit_s):
                await self._settings.security.sasl(self)
        except TimeoutError:
            raise AuthenticationError(f"{self.address} did not finish the authentication in {limit_s:.3g} s") from None
        except (RefusedError, ConnectionLostError) as error:
            raise AuthenticationError(f"{self.address} refuses the authentication: {error}") from error

    def _write(
        self,
        api_key: int,
        version: int,
        body: Sequence[bytes | bytearray | memoryview],
        flexible: bool,
        decode: Callable[[memoryview, int], Any] | None,
        timeout_s: float,
    ) -> "asyncio.Future[Any]":
        answer: asyncio.Future[Any] = self._loop.create_future()
        if (failure := self._failure_by_now()) is not None:
            return _failed(answer, failure)
        correlation_id = self._send(api_key, version, body, flexible)
        # The answer to ApiVersions never has tagged fields in its header: it is read before versions are known.
        tagged_header = flexible and api_key != _API_VERSIONS_KEY
        pending = _Pending(correlation_id, answer, decode, tagged_header, self._last_used_s, timeout_s)
        self._pending.append(pending)
        self.statistics.in_flight += 1
        if pending.deadline_s < self._deadline_checked_s:
            self._check_deadlines_at(pending.deadline_s)
        return answer

    def _failure_by_now(self) -> ClientError | None:
        """Why nothing can be sent any more; the transport knows before it says so."""
        assert self._transport is not None
        if self._failure is None and self._transport.is_closing():
            self._fail(ConnectionLostError(f"the connection to {self.address} was lost"))
        return self._failure

    def _send(self, api_key: int, version: int, body: Sequence[bytes | bytearray | memoryview], flexible: bool) -> int:
        """Writes header and body; returns the correlation id."""
        assert self._transport is not None
        correlation_id = self._last_correlation_id = self._last_correlation_id % _LARGEST_CORRELATION_ID + 1
        client_id = self._client_id
        size = _HEADER.size - 4 + len(client_id) + flexible + sum(map(len, body))
        small: list[bytes | bytearray | memoryview] = [
            _HEADER.pack(size, api_key, version, correlation_id, len(client_id)),
            client_id,
        ]
        if flexible:
            small.append(b"\0")
        for part in body:
            if len(part) < _JOINED_BYTES:
                small.append(part)
            else:
                if small:
                    self._transport.write(b"".join(small))
                    small = []
                self._transport.write(part)
        if small:
            self._transport.write(b"".join(small))
        self._last_used_s = time.monotonic()
        self.statistics.requests += 1
        self.statistics.bytes_out += size + 4
        return correlation_id

    def _settle(self, frame: memoryview) -> None:
        """Hands one answer to whoever waits for it."""
        (correlation_id,) = _CORRELATION_ID.unpack_from(frame)
        if not self._pending or self._pending[0].correlation_id != correlation_id:
            raise NotKafkaError(f"{self.address} answered a request that was not sent ({correlation_id})")
        pending = self._pending[0]
        message: Any = None
        if not pending.answer.done():
            try:
                body = _after_tags(frame) if pending.tagged_header else 4
                message = pending.decode(frame, body) if pending.decode else frame[body:]
            except _UNREADABLE as error:
                raise NotKafkaError(f"{self.address} sent an answer that cannot be read: {error}") from error
        self._pending.popleft()
        self._last_used_s = time.monotonic()
        statistics = self.statistics
        statistics.answers += 1
        statistics.in_flight -= 1
        statistics.bytes_in += len(frame) + 4
        statistics.latency.add(self._last_used_s - pending.sent_s)
        if not pending.answer.done():
            pending.answer.set_result(message)

    def _check_deadlines_at(self, when_s: float) -> None:
        # One timer for all: a timer for each request would cost as much as the rest of the request. The loop's own
        # clock is not asked: uvloop's counts whole milliseconds.
        if self._deadline_timer is not None:
            self._deadline_timer.cancel()
        self._deadline_checked_s = when_s
        self._deadline_timer = self._loop.call_later(when_s - time.monotonic(), self._check_deadlines)

    def _check_deadlines(self) -> None:
        held_up_s = time.monotonic() - self._deadline_checked_s
        self._deadline_timer, self._deadline_checked_s = None, math.inf
        if not self._pending:
            return
        next_one = min(self._pending, key=lambda pending: pending.deadline_s)
        if held_up_s > _GRACE_S:
            # This process was asleep or busy, not the broker: what has come meanwhile is read first.
            self._check_deadlines_at(time.monotonic() + _GRACE_S / 2)
        elif next_one.deadline_s <= time.monotonic():
            self._fail(TimedOutError(f"no answer from {self.address} within {next_one.timeout_s:g} s"))
        else:
            self._check_deadlines_at(next_one.deadline_s)

    def _fail(self, failure: ClientError) -> None:
        """Ends the connection; the first reason is the one everybody hears."""
        if self._failure is not None:
            return
        self._failure = failure
        if self._transport is not None:
            self._transport.abort()
        if self._deadline_timer is not None:
            self._deadline_timer.cancel()
        self.statistics.in_flight -= len(self._pending)
        while self._pending:
            answer = self._pending.popleft().answer
            if not answer.done():
                _failed(answer, failure)
        self._room.set()
        if self.on_lost is not None:
            self.on_lost(failure)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The event loop has connected."""
        self._transport = cast(asyncio.Transport, transport)
        found = transport.get_extra_info("socket")
        found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, size in (
            (socket.SO_SNDBUF, self._settings.send_buffer_bytes),
            (socket.SO_RCVBUF, self._settings.receive_buffer_bytes),
        ):
            if size > 0:
                found.setsockopt(socket.SOL_SOCKET, option, size)
        if self._receivers is not None and transport.get_extra_info("sslcontext") is None:
            self._fd = found.fileno()
            self._receivers[self._fd] = self._receive_ahead

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the event loop writes what it receives."""
        return self._frames.room()

    def buffer_updated(self, nbytes: int) -> None:
        """The event loop has received."""
        try:
            answers = self._frames.received(nbytes)
        except BadLengthError:
            self._fail_as_no_kafka()
        else:
            self._settle_all(answers)

    def _receive_ahead(self) -> bool:
        """Receives the rest of an answer that has begun to come, and is called while the loop may not do anything.

        So the stream is cut into answers here, which concerns nobody else; the next step of the loop does the rest.
        """
        gives_up_at_s = time.monotonic() + _AHEAD_S
        received = False
        try:
            while count := receive(self._fd, self._frames.room(), _REST_WITHIN_MS if received else 0):
                received = True
                if answers := self._frames.received(count):
                    self._loop.call_soon(self._settle_all, answers)
                if not self._frames.answer_begun or time.monotonic() > gives_up_at_s:
                    break
        except BadLengthError:
            self._loop.call_soon(self._fail_as_no_kafka)
        return received

    def _settle_all(self, answers: Sequence[memoryview]) -> None:
        try:
            for answer in answers:
                self._settle(answer)
        except ClientError as error:
            self._fail(error)
        except BaseException as error:
            # Where the next answer begins is unknown now: better no connection than one that is out of step.
            self._fail(ConnectionLostError(f"the connection to {self.address} was given up: {error!r}"))
            raise

    def _fail_as_no_kafka(self) -> None:
        self._fail(NotKafkaError(f"{self.address} answers, but not in Kafka's protocol: is it a Kafka listener?"))

    def connection_lost(self, exc: Exception | None) -> None:
        """The event loop has lost the connection, or closed it as it was told."""
        if self._receivers is not None:
            self._receivers.pop(self._fd, None)
        reason = f": {exc}" if exc is not None else ""
        self._fail(ConnectionLostError(f"the broker at {self.address} closed the connection{reason}"))
        if not self._ended.done():
            self._ended.set_result(None)

    def pause_writing(self) -> None:
        """The event loop holds enough unsent bytes."""
        self._room.clear()

    def resume_writing(self) -> None:
        """The event loop has sent them."""
        self._room.set()


def _failed(answer: "asyncio.Future[R]", failure: ClientError) -> "asyncio.Future[R]":
    """The answer that will not come. Nobody may be waiting any more, and that is fine."""
    answer.set_exception(failure)
    answer.exception()
    return answer


def _reason(error: Exception) -> str:
    """Why a connection failed, in the system's words; asyncio puts several attempts into one text."""
    if isinstance(error, socket.gaierror):
        return str(error.strerror).lower()
    found = re.search(r"\[Errno (\d+)\]", str(error))
    return os.strerror(int(found[1])).lower() if found else str(error)


def _after_tags(frame: memoryview) -> int:
    """Where the body of an answer begins whose header may have tagged fields. None is defined yet: all are skipped."""
    if len(frame) > _CORRELATION_ID.size and frame[_CORRELATION_ID.size] == 0:
        return _CORRELATION_ID.size + 1
    cursor = Cursor(frame, _CORRELATION_ID.size)
    cursor.tags(True)
    return cursor.position


def _decoder(api_key: int, version: int, answer_type: type[R]) -> Callable[[memoryview, int], R]:
    """Reads an answer of `version` and gives it as an `answer_type`."""
    return lambda frame, position: convert(decode_response(api_key, version, frame, position), answer_type)
