"""A broker that answers what a test tells it to, on a real socket in the test's own event loop.

For what no real broker does: hostile answers, a cluster of many nodes in one process, a leader that moves on command.
"""

import asyncio
import inspect
import ssl
import struct
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Self

from headwater.client.addresses import Address
from headwater.protocol.apis import NEVER, SERVED, Api
from headwater.protocol.errors import ErrorCode
from headwater.protocol.kafka_types import NO_THROTTLE, BrokerId, TopicName, i16, i32
from headwater.protocol.messages import decode_request, encode_response

from kio.schema.api_versions.v3.response import ApiVersion, ApiVersionsResponse  # isort: skip
from kio.schema.metadata.v12.response import (  # isort: skip
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

_APIS: Final = {
    **SERVED,
    17: Api(17, "sasl_handshake", 0, 1, flexible=NEVER),
    36: Api(36, "sasl_authenticate", 0, 2, flexible=2),
}
HANG_UP: Final = object()
SILENCE: Final = object()


class Verbatim(NamedTuple):
    """Bytes that go to the client as they are, in the place of an answer."""

    content: bytes


@dataclass(frozen=True)
class Asked:
    """A request as the stand-in has read it."""

    api: Api
    version: int
    correlation_id: int
    client_id: str
    frame: bytes
    position: int

    @classmethod
    def read(cls, frame: bytes) -> Self:
        key, version, correlation_id, size = struct.unpack_from(">hhih", frame)
        api = _APIS[key]
        position = 10 + size + (version >= api.flexible)
        return cls(api, version, correlation_id, frame[10 : 10 + size].decode(), frame, position)

    @property
    def body(self) -> bytes:
        """The request without its header."""
        return self.frame[self.position :]

    def message(self) -> Any:
        """The request as kio reads it."""
        return decode_request(self.api, self.version, self.frame, self.position)


Answer = Callable[[Asked], Any] | Callable[[Asked], Awaitable[Any]]
"""Gives a kio response, bytes (a body), `Verbatim`, `SILENCE` or `HANG_UP`."""


def served_versions(_: Asked) -> ApiVersionsResponse:
    keys = tuple(
        ApiVersion(api_key=i16(api.key), min_version=i16(api.min_version), max_version=i16(api.max_version))
        for api in _APIS.values()
    )
    return ApiVersionsResponse(error_code=ErrorCode.none, api_keys=keys, throttle_time=NO_THROTTLE)


class StandIn:
    """Listens on a free port; `answers` says by the API's name what is answered.

    >>> async with StandIn({"metadata": lambda asked: HANG_UP}) as broker:
    ...     connection = await Connection.open(broker.address)
    """

    def __init__(self, answers: Mapping[str, Answer], *, tls: ssl.SSLContext | None = None) -> None:
        self.answers: dict[str, Answer] = {"api_versions": served_versions, **answers}
        self.asked: list[Asked] = []
        self.connections = 0
        self.open_connections = 0
        self._tls = tls
        self._port = 0
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    @property
    def address(self) -> Address:
        return Address("127.0.0.1", self._port)

    async def start(self) -> None:
        """Listens, after a stop on the port from before."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port, ssl=self._tls)
        self._port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Breaks all connections and takes no more."""
        assert self._server is not None
        self._server.close()
        self.cut()
        while self.open_connections:
            await asyncio.sleep(0.001)

    def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def count(self, api: str) -> int:
        """How many requests of an API have come."""
        return sum(asked.api.name == api for asked in self.asked)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open_connections += 1
        self._writers.add(writer)
        try:
            while True:
                frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
                if not await self._answer(frame, writer):
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._writers.remove(writer)
            writer.close()
            self.open_connections -= 1

    async def _answer(self, frame: bytes, writer: asyncio.StreamWriter) -> bool:
        asked = Asked.read(frame)
        self.asked.append(asked)
        answer = self.answers[asked.api.name](asked)
        if inspect.isawaitable(answer):
            answer = await answer
        if answer is HANG_UP:
            return False
        if isinstance(answer, Verbatim):
            writer.write(answer.content)
        elif answer is not SILENCE:
            writer.write(encode_response(asked.api, asked.version, asked.correlation_id, answer))
        await writer.drain()
        return True


class Cluster:
    """What stand-ins say about themselves when they are asked for metadata; change it and they say something else."""

    def __init__(self) -> None:
        self.cluster_id = "cluster"
        self.brokers: dict[int, Address] = {}
        self.leaders: dict[str, list[tuple[int, int]]] = {}
        """By topic, the node id and the epoch of each partition's leader."""
        self.topic_ids: dict[str, uuid.UUID] = {}

    def metadata(self, asked: Asked) -> MetadataResponse:
        wanted = asked.message().topics
        names = sorted(self.leaders) if wanted is None else [str(topic.name) for topic in wanted]
        return MetadataResponse(
            throttle_time=NO_THROTTLE,
            brokers=tuple(
                MetadataResponseBroker(node_id=BrokerId(node), host=at.host, port=i32(at.port))
                for node, at in self.brokers.items()
            ),
            cluster_id=self.cluster_id,
            controller_id=BrokerId(next(iter(self.brokers), -1)),
            topics=tuple(self._topic(name) for name in names),
        )

    def _topic(self, name: str) -> MetadataResponseTopic:
        known = name in self.leaders
        return MetadataResponseTopic(
            error_code=ErrorCode.none if known else ErrorCode.unknown_topic_or_partition,
            name=TopicName(name),
            topic_id=self.topic_ids.setdefault(name, uuid.uuid4()) if known else None,
            partitions=tuple(
                MetadataResponsePartition(
                    error_code=ErrorCode.none,
                    partition_index=i32(number),
                    leader_id=BrokerId(node),
                    leader_epoch=i32(epoch),
                )
                for number, (node, epoch) in enumerate(self.leaders.get(name, []))
            ),
        )
