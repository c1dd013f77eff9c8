"""From a frame to its answer: api key and version choose the handler.

Produce and Fetch take the byte lanes. Every other API goes through kio to a module of `handlers` named like the API,
imported at its first request, which speaks one version (`VERSION`). Its `handle` is a plain function or a coroutine
function, or returns a future when the answer waits for somebody else. `adapt`, where there is one, puts right what the
version bridge cannot know. `handle` may also be a generator: what it yields is time for others (`services/turns.py`).

What is long is done in slices: a request in a long frame is read so, and the response to anything written so.
"""

import asyncio
import functools
import importlib
import logging
import types
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from headwater.broker.handlers import fetch, produce
from headwater.broker.services.clock import now_ms
from headwater.broker.services.turns import GivenUpError, Pace, Turns, Work
from headwater.coordinator.outcome import Caller
from headwater.net.connection import PENDING, Connection, ProtocolViolationError
from headwater.protocol.apis import API_VERSIONS, FETCH, PRODUCE, SERVED
from headwater.protocol.errors import MalformedRequestError
from headwater.protocol.headers import RequestHeader, read_header

if TYPE_CHECKING:
    from headwater.broker.broker import Broker

logger = logging.getLogger(__name__)

T = TypeVar("T")

_LONG_FRAME_BYTES: Final = 16 * 1024
"""A longer request is read in slices: up to here kio and the bridge between versions take a few milliseconds."""


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

    @property
    def pace(self) -> Pace:
        """For a handler that does many things one after another."""
        return Pace(self.broker.dispatcher.turns)

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
    decode_long: Callable[[bytes, int], Work[Any]]
    """The same in slices."""
    handle: Callable[[RequestContext, Any], Any]
    encode: Callable[[int, Any], "bytes | Work[bytes]"]
    """Writes the reply with a correlation id, from what `handle` comes to; in slices when it is long."""
    refuse_items: Callable[[], Any]
    """The response to a request with too many items, or None."""


@functools.cache
def _route(key: int, version: int) -> _Route:
    from headwater.protocol import long_messages, messages

    api = SERVED[key]
    module = importlib.import_module(f"headwater.broker.handlers.{api.name}")
    spoken = getattr(module, "VERSION", api.max_version)
    if callable(spoken):
        spoken = spoken(version)
    spoken_type, adapt = messages.request_type(key, spoken), getattr(module, "adapt", None)

    def decode(frame: bytes, body: int) -> Any:
        return messages.convert(messages.decode_request(api, version, frame, body), spoken_type)

    def decode_long(frame: bytes, body: int) -> Work[Any]:
        return long_messages.read_request(api, version, spoken_type, frame, body)

    def encode(correlation_id: int, response: Any) -> bytes | Work[bytes]:
        if adapt is not None:
            response = adapt(response, version)
        if long_messages.is_long(response):
            return long_messages.write_response(api, version, correlation_id, response)
        return messages.encode_response(api, version, correlation_id, response)

    def refuse_items() -> Any:
        return long_messages.refusal(api, version)

    return _Route(decode, decode_long, module.handle, encode, refuse_items)


def _long_steps(
    route: _Route, header: RequestHeader, context: RequestContext, connection: Connection, frame: bytes
) -> "Work[bytes | asyncio.Future[Any]]":
    """Steps to the reply to a long frame, or to the future of its response."""
    from headwater.protocol.long_messages import TooManyItemsError

    try:
        request = yield from _unless_closed(connection, route.decode_long(frame, header.body))
    except TooManyItemsError as error:
        answer = route.refuse_items()
        if answer is None:
            raise MalformedRequestError(f"{header.api.name} v{header.version}: {error}") from error
    else:
        answer = route.handle(context, request)
        if isinstance(answer, types.GeneratorType):
            answer = yield from answer
        elif isinstance(answer, (types.CoroutineType, asyncio.Task)):
            answer = yield answer
        if isinstance(answer, asyncio.Future):
            return answer
    reply = route.encode(header.correlation_id, answer)
    if not isinstance(reply, bytes):
        reply = yield from _unless_closed(connection, reply)
    return reply


def _unless_closed(connection: Connection, work: Work[T]) -> Work[T]:
    """The same work, given up when there is nobody left to answer."""
    while not connection.closed:
        try:
            next(work)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        yield None
    work.close()
    raise GivenUpError


class Dispatcher:
    """Answers the frames of all connections of one broker."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self.turns: Final = Turns()
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
        context = RequestContext(self._broker, header.version, header.client_id(frame), connection.peer)
        if len(frame) > _LONG_FRAME_BYTES:
            reply = self.turns.begin(_long_steps(route, header, context, connection, bytes(frame)))
            if isinstance(reply, types.CoroutineType):
                return self._start(
                    self._finish(connection, self._settle_long(connection, route, header.correlation_id, reply))
                )
            return self._wait_for(connection, route, header, reply) if isinstance(reply, asyncio.Future) else reply
        answer = route.handle(context, route.decode(bytes(frame), header.body))
        if isinstance(answer, types.GeneratorType):
            answer = self.turns.begin(answer)
        # Not by `Awaitable`, which asks Python code for every answer.
        if not isinstance(answer, (types.CoroutineType, asyncio.Future)):
            reply = self._encode(connection, route, header.correlation_id, answer)
            if isinstance(reply, bytes):
                return reply
            return self._start(self._finish(connection, reply))
        if isinstance(answer, asyncio.Future) and not isinstance(answer, asyncio.Task):
            return self._wait_for(connection, route, header, answer)
        return self._start(self._finish(connection, self._settle(connection, route, header.correlation_id, answer)))

    def _start(self, work: Coroutine[Any, Any, None]) -> Any:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return PENDING

    def _encode(
        self, connection: Connection, route: _Route, correlation_id: int, response: Any
    ) -> "bytes | Coroutine[Any, Any, bytes]":
        """The reply, or what goes on with a long one."""
        reply = route.encode(correlation_id, response)
        return reply if isinstance(reply, bytes) else self.turns.begin(_unless_closed(connection, reply))

    async def _settle(
        self, connection: Connection, route: _Route, correlation_id: int, answer: Awaitable[Any]
    ) -> bytes:
        async with self._queue:
            response = await answer
        reply = self._encode(connection, route, correlation_id, response)
        return reply if isinstance(reply, bytes) else await reply

    async def _settle_long(
        self, connection: Connection, route: _Route, correlation_id: int, work: "Awaitable[bytes | asyncio.Future[Any]]"
    ) -> bytes:
        """The reply to a long request; one that waits for others takes no place among the few meanwhile."""
        reply = await work
        if isinstance(reply, bytes):
            return reply
        encoded = self._encode(connection, route, correlation_id, await reply)
        return encoded if isinstance(encoded, bytes) else await encoded

    def _wait_for(
        self, connection: Connection, route: _Route, header: RequestHeader, answer: "asyncio.Future[Any]"
    ) -> Any:
        """It waits for others, a rebalance say: that is no work, and takes no place in the queue."""
        answer.add_done_callback(functools.partial(self._answer_waiting, connection, route, header.correlation_id))
        return PENDING

    async def _finish(self, connection: Connection, work: Coroutine[Any, Any, bytes]) -> None:
        """Sends the reply when it is there."""
        from headwater.protocol.long_messages import ResponseTooLongError

        try:
            reply = await work
        except GivenUpError:
            return
        except (MalformedRequestError, ResponseTooLongError) as error:
            connection.close(str(error))
            return
        except Exception:
            logger.exception("a request of %s failed; this is a bug in headwater", connection.peer)
            connection.close("its request could not be answered")
            return
        connection.reply(reply)

    def _answer_waiting(
        self, connection: Connection, route: _Route, correlation_id: int, answer: "asyncio.Future[Any]"
    ) -> None:
        if answer.cancelled():
            return
        try:
            reply = self._encode(connection, route, correlation_id, answer.result())
        except Exception:
            logger.exception("a waiting request of %s failed; this is a bug in headwater", connection.peer)
            connection.close("its request could not be answered")
            return
        if isinstance(reply, bytes):
            connection.reply(reply)
        else:
            self._start(self._finish(connection, reply))

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
