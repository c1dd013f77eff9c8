"""From a frame to its answer: api key and version choose the handler.

Produce and Fetch take the byte lanes. Every other API goes through kio to a module of `handlers` named like the API,
imported at its first request, which speaks one version (`VERSION`). Its `handle` is a plain function or a coroutine
function, or returns a future when the answer waits for somebody else. `adapt`, where there is one, puts right what the
version bridge cannot know.

What waits for its place in the queue is dropped when the client hangs up; what has begun is finished.
"""

import asyncio
import functools
import importlib
import logging
import time
import types
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headwater.broker.handlers import fetch, produce
from headwater.broker.services.clock import now_ms
from headwater.broker.services.turns import Turns
from headwater.coordinator.outcome import Caller
from headwater.net.connection import LONG_S, PENDING, Connection, ProtocolViolationError
from headwater.protocol.apis import API_VERSIONS, FETCH, PRODUCE, SERVED
from headwater.protocol.errors import ApiError, MalformedRequestError
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


class _Work:
    """A request that takes a place in the queue: `steps` come to its reply, or to None when it is given later."""

    __slots__ = ("connection", "coroutines", "frame_bytes", "header", "steps")

    def __init__(
        self,
        connection: Connection,
        header: RequestHeader,
        frame_bytes: int,
        steps: Coroutine[Any, Any, bytes | None],
        answer: Any = None,
    ) -> None:
        self.connection = connection
        self.header = header
        self.frame_bytes = frame_bytes
        self.steps = steps
        self.coroutines = (steps, answer) if isinstance(answer, types.CoroutineType) else (steps,)

    def __str__(self) -> str:
        api, version = self.header.api.name, self.header.version
        return f"{api} v{version} ({self.frame_bytes} bytes) of {self.connection.peer}"


class Dispatcher:
    """Answers the frames of all connections of one broker."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self.turns: Final = Turns()
        self._queue = asyncio.Semaphore(broker.config.queued_max_requests)
        self._tasks: dict[asyncio.Task[None], _Work] = {}
        self._routes: dict[tuple[int, int], _Route] = {}
        # One: threads that run Python take turns with the loop, and the more there are, the longer it waits for its.
        self.thread: Final = ThreadPoolExecutor(1, "headwater-requests")
        """Reads what would hold up the loop."""
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
        except Exception as error:
            raise ProtocolViolationError(reason_to_close(connection, error)) from error

    async def close(self) -> None:
        """Ends the requests that are still being worked on."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.thread.shutdown(wait=False, cancel_futures=True)

    def under_way(self) -> Iterator[str]:
        """The requests that have a place in the queue or wait for one, in words."""
        return map(str, list(self._tasks.values()))

    def _handle_message(self, connection: Connection, header: RequestHeader, frame: memoryview) -> Any:
        route = self._routes.get((header.api.key, header.version))
        if route is None:
            copy = bytes(frame)
            return self._start(_Work(connection, header, len(copy), self._first_of_its_kind(connection, header, copy)))
        request = route.decode(bytes(frame), header.body)
        context = RequestContext(self._broker, header.version, header.client_id(frame), connection.peer)
        answer = route.handle(context, request)
        encode = functools.partial(route.encode, header.correlation_id)
        # Not by `Awaitable`, which asks Python code for every answer.
        if not isinstance(answer, (types.CoroutineType, asyncio.Future)):
            return encode(answer)
        if isinstance(answer, asyncio.Future) and not isinstance(answer, asyncio.Task):
            # It waits for others, a rebalance say: that is no work, and takes no place in the queue. What was asked
            # stands without the client: a member of a group stays one until its session ends, as in Kafka.
            callback = functools.partial(self._answer_waiting, connection, encode)
            answer.add_done_callback(callback)
            connection.may_drop(functools.partial(answer.remove_done_callback, callback))
            return PENDING
        return self._start(_Work(connection, header, len(frame), self._finish(answer, encode), answer))

    async def _first_of_its_kind(self, connection: Connection, header: RequestHeader, frame: bytes) -> bytes | None:
        """The first request of a version imports its modules, which may take longer than anything that it asks for."""
        kind = header.api.key, header.version
        self._routes[kind] = await asyncio.get_running_loop().run_in_executor(self.thread, _route, *kind)
        if connection.closed:
            return None
        began = time.monotonic()
        reply = self._handle_message(connection, header, memoryview(frame))
        if time.monotonic() - began > LONG_S:
            self._broker.watchdog.request_took(connection, memoryview(frame), time.monotonic() - began)
        return None if reply is PENDING else reply

    def _start(self, work: _Work) -> Any:
        """Works on a request when the queue has a place for it, and replies."""
        task = asyncio.ensure_future(self._carry_out(work))
        self._tasks[task] = work
        work.connection.may_drop(task.cancel)
        task.add_done_callback(self._ended)
        return PENDING

    def _ended(self, task: asyncio.Task[None]) -> None:
        work = self._tasks.pop(task)
        self._broker.watchdog.work_ended(work)
        # What was never begun would otherwise be reported as forgotten.
        for coroutine in work.coroutines:
            coroutine.close()

    async def _carry_out(self, work: _Work) -> None:
        connection = work.connection
        try:
            async with self._queue:
                connection.on_close = None  # from here on it is finished, so that nothing is left half done
                reply = await work.steps
        except Exception as error:
            connection.close(reason_to_close(connection, error))
            return
        if reply is not None:
            connection.reply(reply)

    async def _finish(self, answer: Awaitable[Any], encode: Callable[[Any], bytes]) -> bytes:
        return encode(await answer)

    def _answer_waiting(
        self, connection: Connection, encode: Callable[[Any], bytes], answer: "asyncio.Future[Any]"
    ) -> None:
        if answer.cancelled() or connection.closed:
            return
        try:
            reply = encode(answer.result())
        except Exception as error:
            connection.close(reason_to_close(connection, error))
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


def reason_to_close(connection: Connection, error: Exception) -> str:
    """What the log says of a connection that ends because of its request. Only a fault of ours gets a traceback."""
    if isinstance(error, (MalformedRequestError, ProtocolViolationError, ApiError)):
        return str(error)
    logger.error("a request of %s failed; this is a bug in headwater", connection.peer, exc_info=error)
    return "its request could not be answered"
