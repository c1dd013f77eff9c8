"""A connection knows what it talks to: an old broker is spoken to in its own version, a stranger is named."""

import asyncio
import functools
import struct
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from headwater.client.connection import Address, Connection
from headwater.client.errors import CannotConnectError, ConnectionLostError, NotKafkaError, UnsupportedError
from headwater.protocol.kafka_types import ErrorCode

from kio.schema.describe_cluster.v1.request import DescribeClusterRequest  # isort: skip
from kio.schema.describe_cluster.v1.response import DescribeClusterResponse  # isort: skip
from kio.schema.metadata.v12.request import MetadataRequest  # isort: skip
from kio.schema.metadata.v12.response import MetadataResponse  # isort: skip

Answer = Callable[[int, int, int], bytes | None]
"""Key, version and correlation id of a request to the body of its answer; None hangs up."""
SILENCE = b""


def in_a_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    @functools.wraps(test)
    def run() -> None:
        asyncio.run(test())

    return run


@asynccontextmanager
async def server(answer: Answer) -> AsyncIterator[Address]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
                body = answer(*struct.unpack(">hhi", frame[:8]))
                if body is None:
                    break
                if body != SILENCE:
                    writer.write(struct.pack(">i", len(body)) + body)
        except asyncio.IncompleteReadError:
            pass
        writer.close()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with listener:
        yield Address("127.0.0.1", listener.sockets[0].getsockname()[1])


def versions_v0(correlation_id: int, error: ErrorCode, *apis: tuple[int, int, int]) -> bytes:
    head = struct.pack(">ihi", correlation_id, error, len(apis))
    return head + b"".join(struct.pack(">hhh", *api) for api in apis)


@in_a_loop
async def test_a_broker_too_old_for_our_api_versions_is_asked_again_in_version_0() -> None:
    asked = []

    def answer(key: int, version: int, correlation_id: int) -> bytes | None:
        asked.append((key, version))
        if version == 3:
            return versions_v0(correlation_id, ErrorCode.unsupported_version)
        return versions_v0(correlation_id, ErrorCode.none, (3, 0, 4), (18, 0, 0))

    async with server(answer) as address:
        connection = await Connection.open(address, client_id="test")
        await connection.close()
    assert asked == [(18, 3), (18, 0)]
    assert connection.versions == {3: (0, 4), 18: (0, 0)}


@in_a_loop
async def test_requests_go_out_in_the_highest_version_both_speak_and_missing_apis_are_named() -> None:
    asked = []

    def answer(key: int, version: int, correlation_id: int) -> bytes | None:
        asked.append((key, version))
        if key == 18:
            return versions_v0(correlation_id, ErrorCode.unsupported_version, *[(3, 0, 1), (18, 0, 0)])
        brokers, controller, topics = struct.pack(">i", 0), struct.pack(">i", 7), struct.pack(">i", 0)
        return struct.pack(">i", correlation_id) + brokers + controller + topics

    request = MetadataRequest(topics=(), allow_auto_topic_creation=False, include_topic_authorized_operations=False)
    async with server(answer) as address:
        connection = await Connection.open(address, client_id="test")
        metadata = await connection.send(request, MetadataResponse, timeout_s=5)
        with pytest.raises(UnsupportedError, match="does not serve DescribeCluster"):
            await connection.send(
                DescribeClusterRequest(include_cluster_authorized_operations=False),
                DescribeClusterResponse,
                timeout_s=5,
            )
        await connection.close()
    assert asked[-1] == (3, 1)
    assert metadata.controller_id == 7
    assert metadata.cluster_id is None  # a field that version 1 does not have


@in_a_loop
async def test_nobody_listening_says_so_and_what_to_do() -> None:
    async with server(lambda *_: None) as address:
        pass
    with pytest.raises(CannotConnectError, match=rf"{address} \(connection refused\).*`headwater up`"):
        await Connection.open(address, client_id="test")


@in_a_loop
async def test_something_that_hangs_up_at_once_is_no_plaintext_kafka() -> None:
    async with server(lambda *_: None) as address:
        with pytest.raises(NotKafkaError, match="plaintext"):
            await Connection.open(address, client_id="test")


@in_a_loop
async def test_an_http_server_is_not_taken_for_kafka() -> None:
    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()
        writer.close()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with listener:
        address = Address("127.0.0.1", listener.sockets[0].getsockname()[1])
        with pytest.raises(NotKafkaError, match="not in Kafka's protocol"):
            await Connection.open(address, client_id="test")


@in_a_loop
async def test_a_connection_that_dies_fails_every_waiting_request() -> None:
    def answer(key: int, version: int, correlation_id: int) -> bytes | None:
        return versions_v0(correlation_id, ErrorCode.unsupported_version, (3, 0, 1)) if key == 18 else None

    request = MetadataRequest(topics=(), allow_auto_topic_creation=False, include_topic_authorized_operations=False)
    async with server(answer) as address:
        connection = await Connection.open(address, client_id="test")
        answers = [await connection.submit(request, MetadataResponse, timeout_s=5) for _ in range(3)]
        results = await asyncio.gather(*answers, return_exceptions=True)
        await connection.close()
    assert [type(result) for result in results] == [ConnectionLostError] * 3
    assert not connection.usable


@in_a_loop
async def test_a_broker_that_falls_silent_fails_the_late_request_and_those_behind_it() -> None:
    def answer(key: int, version: int, correlation_id: int) -> bytes | None:
        return versions_v0(correlation_id, ErrorCode.unsupported_version, (3, 0, 1)) if key == 18 else SILENCE

    request = MetadataRequest(topics=(), allow_auto_topic_creation=False, include_topic_authorized_operations=False)
    async with server(answer) as address:
        connection = await Connection.open(address, client_id="test")
        answers = [await connection.submit(request, MetadataResponse, timeout_s=0.2) for _ in range(2)]
        results = await asyncio.gather(*answers, return_exceptions=True)
        await connection.close()
    assert [str(result) for result in results] == [f"no answer from {address} within 0.2 s"] * 2
