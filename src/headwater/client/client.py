"""The cluster as a client sees it: bootstrap, who leads what, and requests sent to the right broker."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any, Final, Self, TypeVar

from headwater.client.connection import Address, Connection
from headwater.client.errors import (
    CannotConnectError,
    ClientError,
    ConnectionLostError,
    RefusedError,
    TimedOutError,
)
from headwater.protocol.kafka_types import ErrorCode, TopicName, i32Timedelta

from kio.schema.metadata.v12.request import MetadataRequest, MetadataRequestTopic  # isort: skip
from kio.schema.metadata.v12.response import (  # isort: skip
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

R = TypeVar("R")
T = TypeVar("T")

DEFAULT_PORT: Final = 9092
FIRST_BACK_OFF_S: Final = 0.05
LONGEST_BACK_OFF_S: Final = 1.0
_AUTO_CREATE_PATIENCE_S: Final = 2.0


def parse_bootstrap(text: str) -> list[Address]:
    """The addresses in `host:port,host:port`; a missing port is 9092.

    >>> parse_bootstrap("localhost:9092,[::1]:9093,kafka")
    [Address(host='localhost', port=9092), Address(host='::1', port=9093), Address(host='kafka', port=9092)]
    """
    addresses = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        host, separator, port = part.rpartition(":")
        if not separator or port.endswith("]"):
            host, port = part, str(DEFAULT_PORT)
        if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
            raise ValueError(f"{part!r} is not HOST:PORT")
        addresses.append(Address(host.removeprefix("[").removesuffix("]"), int(port)))
    if not addresses:
        raise ValueError("no address given: use HOST:PORT")
    return addresses


def duration(seconds: float) -> i32Timedelta:
    """Seconds as the protocol's messages carry them."""
    return i32Timedelta.parse(timedelta(milliseconds=round(seconds * 1000)))


class Client:
    """Connections to a cluster, opened as they are needed; a context manager that closes them."""

    def __init__(self, bootstrap: str, *, client_id: str = "headwater", timeout_s: float = 30.0) -> None:
        self.timeout_s = timeout_s
        self._bootstrap = parse_bootstrap(bootstrap)
        self._client_id = client_id
        self._brokers: dict[int, Address] = {}
        self._connections: dict[Address, Connection] = {}
        self._partitions: dict[str, dict[int, MetadataResponsePartition]] = {}
        self._opening = asyncio.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes every connection."""
        while self._connections:
            _, connection = self._connections.popitem()
            await connection.close()

    async def connection(self, broker: int | None = None) -> Connection:
        """An open connection to `broker`, or to any broker of the bootstrap list."""
        if broker is None:
            return await self._any_connection()
        if broker not in self._brokers:
            await self.metadata(())
        if broker not in self._brokers:
            raise CannotConnectError(f"broker {broker} is not part of the cluster, or not running")
        return await self._open(self._brokers[broker])

    async def send(
        self, request: Any, answer_type: type[R], *, to: int | None = None, timeout_s: float | None = None
    ) -> R:
        """Sends a request to broker `to` (any by default) in the highest version both sides speak."""
        connection = await self.connection(to)
        return await connection.send(request, answer_type, timeout_s=timeout_s or self.timeout_s)

    async def send_to_controller(self, request: Any, answer_type: type[R]) -> R:
        """Sends a request to the broker that the metadata names as the controller."""
        controller = int((await self.metadata(())).controller_id)
        return await self.send(request, answer_type, to=controller if controller in self._brokers else None)

    async def metadata(self, topics: Sequence[str] | None = None, *, create_missing: bool = False) -> MetadataResponse:
        """The brokers and `topics` (None: all topics, empty: none)."""
        names = None if topics is None else tuple(_named(topic) for topic in topics)
        request = MetadataRequest(
            topics=names, allow_auto_topic_creation=create_missing, include_topic_authorized_operations=False
        )
        answer = await self.send(request, MetadataResponse)
        self._brokers = {int(broker.node_id): Address(broker.host, broker.port) for broker in answer.brokers}
        for topic in answer.topics:
            if topic.name is not None and topic.error_code is ErrorCode.none:
                self._partitions[topic.name] = {int(p.partition_index): p for p in topic.partitions}
        return answer

    async def topic(self, name: str, *, create_missing: bool = False) -> MetadataResponseTopic:
        """What the cluster says about one topic; `RefusedError` when it is not there.

        With `create_missing` a broker that creates topics by itself is given the time to do so.
        """
        patience_ends = time.monotonic() + (_AUTO_CREATE_PATIENCE_S if create_missing else 0)

        async def look_up() -> MetadataResponseTopic:
            while True:
                answer = await self.metadata([name], create_missing=create_missing)
                found = next(topic for topic in answer.topics if topic.name == name)
                missing = found.error_code is ErrorCode.unknown_topic_or_partition
                if not missing or time.monotonic() > patience_ends:
                    break
                await asyncio.sleep(FIRST_BACK_OFF_S)
            if found.error_code is not ErrorCode.none:
                raise RefusedError(f"topic {name}", found.error_code)
            return found

        return await self.retry(look_up)

    async def partitions(self, topic: str) -> dict[int, MetadataResponsePartition]:
        """The partitions of a topic by number, from memory where it was asked for before."""
        if topic not in self._partitions:
            await self.topic(topic)
        return self._partitions[topic]

    async def leader(self, topic: str, partition: int) -> int:
        """The broker that leads a partition; `RefusedError` when there is no such partition or no leader."""
        subject = f"partition {partition} of topic {topic}"
        found = (await self.partitions(topic)).get(partition)
        if found is None:
            raise RefusedError(subject, ErrorCode.unknown_topic_or_partition)
        if found.leader_id < 0:
            raise RefusedError(subject, ErrorCode.leader_not_available)
        return int(found.leader_id)

    def forget_leaders(self) -> None:
        """Makes the next look-up of a leader ask the cluster."""
        self._partitions.clear()

    def may_pass(self, error: ClientError) -> bool:
        """Whether waiting may cure it: a broker that was there may be restarting."""
        if isinstance(error, RefusedError):
            return error.retriable
        if isinstance(error, CannotConnectError):
            return bool(self._brokers)
        return isinstance(error, ConnectionLostError | TimedOutError)

    async def retry(self, operation: Callable[[], Awaitable[T]], *, deadline_s: float | None = None) -> T:
        """Runs `operation` until it succeeds, fails for good, or the deadline passes."""
        limit_s = deadline_s or self.timeout_s
        gives_up_at = time.monotonic() + limit_s
        back_off_s = FIRST_BACK_OFF_S
        while True:
            try:
                return await operation()
            except ClientError as error:
                if not self.may_pass(error):
                    raise
                if time.monotonic() + back_off_s > gives_up_at:
                    raise TimedOutError(f"gave up after {limit_s:g} s: {error}") from error
            self.forget_leaders()
            await asyncio.sleep(back_off_s)
            back_off_s = min(back_off_s * 2, LONGEST_BACK_OFF_S)

    async def _any_connection(self) -> Connection:
        for connection in self._connections.values():
            if connection.usable:
                return connection
        failures: list[ClientError] = []
        for address in [*self._bootstrap, *self._brokers.values()]:
            try:
                return await self._open(address)
            except ClientError as error:
                failures.append(error)
        raise failures[0]

    async def _open(self, address: Address) -> Connection:
        async with self._opening:
            connection = self._connections.get(address)
            if connection is None or not connection.usable:
                connection = await Connection.open(address, client_id=self._client_id)
                self._connections[address] = connection
            return connection


def _named(topic: str) -> MetadataRequestTopic:
    return MetadataRequestTopic(topic_id=None, name=TopicName(topic))
