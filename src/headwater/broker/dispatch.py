"""From a frame to its answer: api key and version choose the handler.

Produce and Fetch take the byte lanes. Every other API goes through kio to a module of `handlers` named like the API,
imported at its first request, which speaks one version (`VERSION`). Its `handle` is a plain function or a coroutine
function, or returns a future when the answer waits for somebody else. `adapt`, where there is one, puts right what the
version bridge cannot know.
"""

import asyncio
import functools
import importlib
import logging
import types
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from headwater.broker.handlers import fetch, produce
from headwater.broker.services.clock import now_ms
from headwater.coordinator.outcome import Caller
from headwater.net.connection import PENDING, Connection, ProtocolViolationError
from headwater.protocol.apis import API_VERSIONS, FETCH, PRODUCE, SERVED
from headwater.protocol.errors import MalformedRequestError
from headwater.protocol.headers import RequestHeader, read_header

if TYPE_CHECKING:
    from headwater.broker.broker import Broker

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RequestContext:
    """What a handler may know besides the request itself."""

    broker: "Broker"
    version: int
    client_id: str | None
    peer: str

    @property
    def caller(self) -> Caller:
        """Who asks, as coordinators know it; the host is written as Java does."""
        return _caller(self.version, self.client_id or "", self.peer)

    @property
    def now_ms(self) -> int:
        """The coordinators' time."""
        return now_ms()

    async def settle(self, answer: Any) -> Any:
        """A coordinator's answer, waited for if it waits."""
        return await answer if isinstance(answer, asyncio.Future) else answer


@functools.lru_cache(maxsize=1_000)
def _caller(version: int, client_id: str, peer: str) -> Caller:
    return Caller(version=version, client_id=client_id, host=f"/{peer.rpartition(':')[0]}")


class _Route(NamedTuple):
    """What serves one version of an API."""

    decode: Callable[[bytes, int], Any]
    """Reads the request, whose body begins at a position of the frame, as `handle` takes it."""
    handle: Callable[[RequestContext, Any], Any]
    encode: Callable[[int, Any], bytes]
    """Writes the reply with a correlation id, from what `handle` comes to."""


@functools.cache
def _route(key: int, version: int) -> _Route:
    from headwater.protocol import messages

    api = SERVED[key]
    module = importlib.import_module(f"headwater.broker.handlers.{api.name}")
    spoken = getattr(module, "VERSION", api.max_version)
    if callable(spoken):
        spoken = spoken(version)
    spoken_type, adapt = messages.request_type(key, spoken), getattr(module, "adapt", None)

    def decode(frame: bytes, body: int) -> Any:
        return messages.convert(messages.decode_request(api, version, frame, body), spoken_type)

    def encode(correlation_id: int, response: Any) -> bytes:
        if adapt is not None:
            response = adapt(response, version)
        return messages.encode_response(api, version, correlation_id, response)

    return _Route(decode, module.handle, encode)


class Dispatcher:
    """Answers the frames of all connections of one broker."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._queue = asyncio.Semaphore(broker.config.queued_max_requests)
        self._tasks: set[asyncio.Task[None]] = set()
        self.requests = 0
        """How many came so far."""

    def handle(self, connection: Connection, frame: memoryview) -> Any:
        """The reply to `frame`, or PENDING. The frame's memory is the connection's again when this returns."""
        self.requests += 1
        try:
            header = read_header(frame)
            if not header.supported:
                return self._refuse_version(header)
            if header.api is PRODUCE:
                return produce.handle(self._broker, connection, header, frame)
            if header.api is FETCH:
                return fetch.handle(self._broker, connection, header, frame)
            return self._handle_message(connection, header, frame)
        except MalformedRequestError as error:
            raise ProtocolViolationError(str(error)) from error
        except ProtocolViolationError:
            raise
        except Exception:
            logger.exception("a request of %s failed; this is a bug in headwater", connection.peer)
            raise ProtocolViolationError("its request could not be answered") from None

    async def close(self) -> None:
        """Ends the requests that are still being worked on."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _handle_message(self, connection: Connection, header: RequestHeader, frame: memoryview) -> Any:
        route = _route(header.api.key, header.version)
        request = route.decode(bytes(frame), header.body)
        context = RequestContext(self._broker, header.version, header.client_id(frame), connection.peer)
        answer = route.handle(context, request)
        encode = functools.partial(route.encode, header.correlation_id)
        # Not by `Awaitable`, which asks Python code for every answer.
        if not isinstance(answer, (types.CoroutineType, asyncio.Future)):
            return encode(answer)
        if isinstance(answer, asyncio.Future) and not isinstance(answer, asyncio.Task):
            # It waits for others, a rebalance say: that is no work, and takes no place in the queue.
            answer.add_done_callback(functools.partial(self._answer_waiting, connection, encode))
            return PENDING
        task = asyncio.ensure_future(self._finish(connection, answer, encode))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return PENDING

    async def _finish(self, connection: Connection, answer: Awaitable[Any], encode: Callable[[Any], bytes]) -> None:
        try:
            async with self._queue:
                reply = encode(await answer)
        except Exception:
            logger.exception("a request of %s failed; this is a bug in headwater", connection.peer)
            connection.close("its request could not be answered")
            return
        connection.reply(reply)

    def _answer_waiting(
        self, connection: Connection, encode: Callable[[Any], bytes], answer: "asyncio.Future[Any]"
    ) -> None:
        if answer.cancelled():
            return
        try:
            reply = encode(answer.result())
        except Exception:
            logger.exception("a waiting request of %s failed; this is a bug in headwater", connection.peer)
            connection.close("its request could not be answered")
            return
        connection.reply(reply)

    def _refuse_version(self, header: RequestHeader) -> bytes:
        """A version that is not served ends the connection, except for ApiVersions: KIP-511 answers it in version 0."""
        if header.api is not API_VERSIONS:
            raise MalformedRequestError(
                f"{header.api.name} version {header.version} is not served (versions {header.api.min_version}"
                f" to {header.api.max_version} are)"
            )
        from headwater.broker.handlers import api_versions
        from headwater.protocol import messages

        return messages.encode_response(API_VERSIONS, 0, header.correlation_id, api_versions.unsupported())
