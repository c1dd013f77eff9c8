"""From a frame to its answer: api key and version choose the handler.

Produce and Fetch take the byte lanes. Every other API goes to a module of `handlers` named like the API, imported at
its first request, which speaks one version (`VERSION`) in kio's dataclasses. Its `handle` is a plain function or a
coroutine function, or returns a future when the answer waits for somebody else. `adapt`, where there is one, puts right
what the version bridge cannot know. `handle` may also be a generator: what it yields is time for others
(`services/turns.py`).

Long work is done in slices: the bridge between versions for a request in a long frame, and the writing of any long
response. What has not begun is dropped when the client hangs up, as is what is read or written for it; what a handler
has begun is finished.
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
from headwater.broker.services.turns import Pace, Turns, Work
from headwater.coordinator.outcome import Caller
from headwater.net.connection import LONG_S, PENDING, Connection, ProtocolViolationError
from headwater.protocol.apis import API_VERSIONS, FETCH, PRODUCE, SERVED
from headwater.protocol.errors import ApiError, MalformedRequestError, ResponseTooLongError, TooManyItemsError
from headwater.protocol.headers import RequestHeader, read_header

if TYPE_CHECKING:
    from headwater.broker.broker import Broker

logger = logging.getLogger(__name__)

_LONG_FRAME_BYTES: Final = 16 * 1024
"""A longer request is converted in slices: up to here the bridge between versions takes a few milliseconds."""


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
    """The same, with the bridge between versions in slices."""
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


class _Work:
    """A request that is worked on: `steps` come to its reply, or to None when it is given later."""

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
        """The requests that are worked on, or wait for it, in words."""
        return map(str, list(self._tasks.values()))

    def _handle_message(self, connection: Connection, header: RequestHeader, frame: memoryview) -> Any:
        route = self._routes.get((header.api.key, header.version))
        if route is None:
            copy = bytes(frame)
            return self._start(_Work(connection, header, len(copy), self._first_of_its_kind(connection, header, copy)))
        context = RequestContext(self._broker, header.version, header.client_id(frame), connection.peer)
        if len(frame) > _LONG_FRAME_BYTES:
            steps = self._answer_long(connection, route, header, context, bytes(frame))
            return self._start(_Work(connection, header, len(frame), steps))
        answer = route.handle(context, route.decode(bytes(frame), header.body))
        if isinstance(answer, types.GeneratorType):
            answer = self.turns.begin(answer)
        # Not by `Awaitable`, which asks Python code for every answer.
        if not isinstance(answer, (types.CoroutineType, asyncio.Future)):
            reply = self._encode(route, header.correlation_id, answer)
            return reply if isinstance(reply, bytes) else self._start(_Work(connection, header, len(frame), reply))
        if isinstance(answer, asyncio.Future) and not isinstance(answer, asyncio.Task):
            # It waits for others, a rebalance say: that is no work, and takes no place in the queue. What was asked
            # stands without the client: a member of a group stays one until its session ends, as in Kafka.
            callback = functools.partial(self._answer_waiting, connection, route, header)
            answer.add_done_callback(callback)
            connection.may_drop(functools.partial(answer.remove_done_callback, callback))
            return PENDING
        steps = self._settle(connection, route, header.correlation_id, answer)
        return self._start(_Work(connection, header, len(frame), steps, answer))

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
        """Replies when the steps have come to it."""
        task = asyncio.ensure_future(self._carry_out(work))
        self._tasks[task] = work
        # The steps say when they must not be dropped any more.
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
            reply = await work.steps
        except Exception as error:
            connection.close(reason_to_close(connection, error))
            return
        if reply is not None:
            connection.reply(reply)

    def _encode(self, route: _Route, correlation_id: int, response: Any) -> "bytes | Coroutine[Any, Any, bytes]":
        """The reply, or what goes on with a long one."""
        reply = route.encode(correlation_id, response)
        return reply if isinstance(reply, bytes) else self.turns.begin(reply)

    async def _settle(
        self, connection: Connection, route: _Route, correlation_id: int, answer: Awaitable[Any]
    ) -> bytes:
        async with self._queue:
            connection.on_close = None  # from here on it is finished, so that nothing is left half done
            response = await answer
        reply = self._encode(route, correlation_id, response)
        return reply if isinstance(reply, bytes) else await self._droppable(connection, reply)

    async def _droppable(self, connection: Connection, steps: Awaitable[bytes]) -> bytes:
        task = asyncio.current_task()
        assert task is not None
        connection.may_drop(task.cancel)
        return await steps

    async def _answer_long(
        self, connection: Connection, route: _Route, header: RequestHeader, context: RequestContext, frame: bytes
    ) -> bytes:
        """The reply to a long frame. What it becomes in memory is a multiple of it, so only a few are looked at."""
        turns = self.turns
        async with turns.few:
            try:
                request = await turns.finish(route.decode_long(frame, header.body))
            except TooManyItemsError as error:
                answer = route.refuse_items()
                if answer is None:
                    raise MalformedRequestError(f"{header.api.name} v{header.version}: {error}") from error
            else:
                del frame
                await turns.next()
                connection.on_close = None
                answer = route.handle(context, request)
                if isinstance(answer, types.GeneratorType):
                    answer = await turns.finish(answer)
                elif isinstance(answer, types.CoroutineType):
                    answer = await answer
            if not isinstance(answer, asyncio.Future):
                reply = route.encode(header.correlation_id, answer)
                return reply if isinstance(reply, bytes) else await self._droppable(connection, turns.finish(reply))
        encoded = self._encode(route, header.correlation_id, await self._droppable(connection, answer))
        return encoded if isinstance(encoded, bytes) else await encoded

    def _answer_waiting(
        self, connection: Connection, route: _Route, header: RequestHeader, answer: "asyncio.Future[Any]"
    ) -> None:
        if answer.cancelled() or connection.closed:
            return
        try:
            reply = self._encode(route, header.correlation_id, answer.result())
        except Exception as error:
            connection.close(reason_to_close(connection, error))
            return
        if isinstance(reply, bytes):
            connection.reply(reply)
        else:
            self._start(_Work(connection, header, 0, reply))

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
    if isinstance(error, (MalformedRequestError, ProtocolViolationError, ResponseTooLongError, ApiError)):
        return str(error)
    logger.error("a request of %s failed; this is a bug in headwater", connection.peer, exc_info=error)
    return "its request could not be answered"
