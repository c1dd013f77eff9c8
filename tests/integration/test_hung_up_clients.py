"""Clients that hang up: what waits for their sake is dropped at once, what was begun is finished, and nothing is left.

The broker runs on the test's own event loop, so that the test can see what it still holds.
"""

import asyncio
import contextlib
import logging
import socket
import struct
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import uvloop

from headwater.broker.broker import Broker
from headwater.config import BrokerConfig
from headwater.protocol import apis
from headwater.protocol.apis import SERVED
from integration.attacks import TOPIC, request
from integration.raw_client import API_VERSIONS_V0, batch_of, fetch_body, fetched, produce_body, produced

FOREVER_MS = 2**31 - 1


@contextlib.asynccontextmanager
async def started(folder: Path, **settings: str) -> AsyncIterator[Broker]:
    values = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(folder), "auto.create.topics.enable": "true"}
    values |= {"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "100"}
    values |= {name.replace("_", "."): value for name, value in settings.items()}
    broker = Broker(BrokerConfig.from_values(values))
    await broker.start()
    try:
        yield broker
    finally:
        await broker.stop()


class Client:
    """A socket that waits without holding the loop."""

    def __init__(self, broker: Broker) -> None:
        self._loop = asyncio.get_running_loop()
        self.sock = socket.create_connection(("127.0.0.1", broker.listening_port))
        self.sock.setblocking(False)

    async def send(self, *bodies: bytes) -> None:
        stream = b"".join(struct.pack(">i", len(body)) + body for body in bodies)
        await self._loop.sock_sendall(self.sock, stream)

    async def receive(self) -> bytes:
        """The next answer; empty when the broker has closed the connection."""
        data = b""
        while len(data) < 4 or len(data) < 4 + struct.unpack_from(">i", data)[0]:
            part = await asyncio.wait_for(self._loop.sock_recv(self.sock, 65536), 10)
            if not part:
                return b""
            data += part
        return data[4:]

    async def ask(self, body: bytes) -> bytes:
        await self.send(body)
        return await self.receive()

    def close(self, *, reset: bool = False) -> None:
        if reset:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()


async def eventually(holds: Callable[[], bool], what: str, within_s: float = 10.0) -> None:
    until = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < until, what
        await asyncio.sleep(0.01)


async def make_topic(client: Client, partitions: int = 1) -> None:
    ask = request(apis.CREATE_TOPICS, 1, 0, name=TOPIC, num_partitions=partitions, replication_factor=1, timeout=9000)
    assert TOPIC.encode() in await client.ask(ask)


@pytest.mark.parametrize("is_reset", [False, True], ids=["closed", "reset"])
@pytest.mark.parametrize("behind", [0, 10_000], ids=["alone", "with requests behind it"])
def test_a_long_poll_ends_with_its_client(tmp_path: Path, behind: int, is_reset: bool) -> None:
    async def run() -> None:
        async with started(tmp_path) as broker:
            client = Client(broker)
            await make_topic(client)
            poll = fetch_body(TOPIC, 0, max_wait_ms=FOREVER_MS)
            await client.send(poll, *[API_VERSIONS_V0] * behind)
            await eventually(lambda: len(broker.purgatory) == 1, "the fetch waits")
            await asyncio.sleep(0.05)
            client.close(reset=is_reset)
            await eventually(lambda: not broker.server.connections, "the connection is closed")
            assert len(broker.purgatory) == 0

    uvloop.run(run())


def test_a_long_poll_of_many_partitions_ends_with_its_client_and_is_answered_otherwise(tmp_path: Path) -> None:
    async def run() -> None:
        async with started(tmp_path) as broker:
            client, other = Client(broker), Client(broker)
            await make_topic(client, 600)
            limits = {"max_wait": FOREVER_MS, "min_bytes": 1, "max_bytes": 1 << 20, "partition_max_bytes": 1 << 20}
            poll = bytearray(request(apis.FETCH, 1, 600, version=4, topic=TOPIC, **limits))
            for index in range(600):
                struct.pack_into(">i", poll, len(poll) - 16 * (600 - index), index)
            await client.send(bytes(poll))
            await eventually(lambda: len(broker.purgatory) == 1, "the fetch waits")
            client.close()
            await eventually(lambda: len(broker.server.connections) == 1, "the connection is closed")
            assert len(broker.purgatory) == 0
            await other.send(bytes(poll))
            await eventually(lambda: len(broker.purgatory) == 1, "the other's waits")
            third = Client(broker)
            batch = batch_of(b"at last")
            assert produced(await third.ask(produce_body(TOPIC, batch, partition=599)))[0] == 0
            assert b"at last" in await other.receive()
            other.close()
            third.close()

    uvloop.run(run())


def test_a_long_poll_lasts_no_longer_than_half_the_idle_limit(tmp_path: Path) -> None:
    async def run() -> None:
        async with started(tmp_path, connections_max_idle_ms="1000") as broker:
            client = Client(broker)
            await make_topic(client)
            began = time.monotonic()
            assert fetched(await client.ask(fetch_body(TOPIC, 0, max_wait_ms=FOREVER_MS))) == (0, 0, b"")
            assert time.monotonic() - began >= 0.4
            assert await client.ask(API_VERSIONS_V0)
            client.close()

    uvloop.run(run())


def test_a_member_that_hangs_up_in_a_join_stays_until_its_session_ends(tmp_path: Path) -> None:
    async def run() -> None:
        settings = {"group_initial_rebalance_delay_ms": "60000", "offsets_topic_num_partitions": "1"}
        async with started(tmp_path, **settings) as broker:
            client, other = Client(broker), Client(broker)
            await make_topic(client)
            await coordinator_of_group(client, broker)
            await client.send(
                request(
                    apis.JOIN_GROUP,
                    version=3,
                    group_id="group",
                    session_timeout=60_000,
                    rebalance_timeout=60_000,
                    protocol_type="consumer",
                    name="range",
                )
            )
            await asyncio.sleep(0.2)
            client.close()
            await eventually(lambda: len(broker.server.connections) == 1, "the connection is closed")
            assert b"PreparingRebalance" in await other.ask(request(apis.DESCRIBE_GROUPS, version=4, groups="group"))
            other.close()

    async def coordinator_of_group(client: Client, broker: Broker) -> None:
        """The first question makes the broker create the topic of the groups."""
        while b"\0\0\0\1\0\0" not in (await client.ask(request(apis.FIND_COORDINATOR, version=0, key="group")))[4:10]:
            if (await client.ask(request(apis.FIND_COORDINATOR, version=0, key="group")))[4:6] == b"\0\0":
                break
            await asyncio.sleep(0.05)
        while b"Dead" not in await client.ask(request(apis.DESCRIBE_GROUPS, version=4, groups="group")):
            await asyncio.sleep(0.05)

    uvloop.run(run())


def test_requests_that_wait_for_their_place_go_with_their_clients_and_what_is_begun_is_finished(tmp_path: Path) -> None:
    def creation(name: str) -> bytes:
        return request(apis.CREATE_TOPICS, 1, 0, name=name, num_partitions=1, replication_factor=1, timeout=9000)

    async def run() -> None:
        async with started(tmp_path, queued_max_requests="1") as broker:
            last = Client(broker)
            assert b"known" in await last.ask(creation("known"))
            clients = [Client(broker) for _ in range(30)]
            for number, client in enumerate(clients):
                client.sock.send(struct.pack(">i", len(creation(f"t-{number:02}"))) + creation(f"t-{number:02}"))
                client.close()
            await eventually(lambda: any(name.startswith("t-") for name in broker.topics.by_name), "the first is done")
            await eventually(lambda: not list(broker.dispatcher.under_way()), "all are done or dropped")
            await eventually(lambda: len(broker.server.connections) == 1, "and gone")
            assert b"last" in await last.ask(creation("last"))
            made = [name for name in broker.topics.by_name if name.startswith("t-")]
            assert 0 < len(made) < 30
            last.close()

    uvloop.run(run())


def test_what_a_peer_does_wrong_is_no_bug_of_headwater(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        async with started(tmp_path) as broker:
            for api in SERVED.values():
                head = struct.pack(">hhih", api.key, api.max_version, 1, -1)
                for body in (b"", b"\xff" * 40, b"\x7f" * 40, b"\xff" * 40_000):
                    client = Client(broker)
                    await client.send(head + body)
                    client.sock.shutdown(socket.SHUT_WR)
                    await client.receive()
                    client.close()

    with caplog.at_level(logging.WARNING):
        uvloop.run(run())
    assert not [record for record in caplog.records if record.exc_info or "bug" in record.message]
    assert len(caplog.records) > len(SERVED)


def test_a_frame_above_the_bound_of_its_api_is_refused_before_it_comes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        async with started(tmp_path) as broker:
            client = Client(broker)
            start = struct.pack(">ihh", 50 << 20, apis.METADATA.key, 9)
            await asyncio.get_running_loop().sock_sendall(client.sock, start)
            assert await client.receive() == b""
            client.close()

    with caplog.at_level(logging.WARNING):
        uvloop.run(run())
    assert f"a frame of {50 << 20} bytes; metadata takes at most {8 << 20}" in caplog.text
