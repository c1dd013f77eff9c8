"""A client, a broker and a bad network between them: nothing hangs, every error names the address, all heals."""

import asyncio
import signal
import struct
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from conformance.actions import unique_name
from event_loops import Run, both_loops, run_limited
from headwater.client.admin.records import list_offsets
from headwater.client.client import Client, duration
from headwater.client.errors import ClientError, ConnectionLostError, RefusedError, TimedOutError
from headwater.client.settings import ConnectionSettings
from headwater.protocol.kafka_types import ErrorCode, TopicName, i16, i32
from headwater.protocol.records import encode_batch
from headwater.testing import FlakyProxy
from headwater.types import TopicPartition
from peers.apache import QUICK_START, ApacheKafka
from peers.headwater import HeadwaterProcess
from peers.presence import require_apache

from kio.schema.produce.v9.request import PartitionProduceData, ProduceRequest, TopicProduceData  # isort: skip
from kio.schema.produce.v9.response import ProduceResponse  # isort: skip
from kio.static.primitive import Records  # isort: skip

SETTINGS = ConnectionSettings(request_timeout_ms=1_000, retry_backoff_ms=20, reconnect_backoff_ms=20)
Case = Callable[["World"], Coroutine[Any, Any, None]]


class World:
    """A broker behind a proxy; clients of it know the proxy's address alone."""

    def __init__(self, broker: HeadwaterProcess | ApacheKafka, network: FlakyProxy) -> None:
        self.broker = broker
        self.network = network

    @asynccontextmanager
    async def client(self, *, settings: ConnectionSettings = SETTINGS) -> AsyncIterator[Client]:
        async with Client(self.network.address, settings) as client:
            yield client

    @asynccontextmanager
    async def topic(self) -> AsyncIterator[tuple[Client, str]]:
        """A client that watches a fresh topic."""
        async with self.client() as client:
            name = unique_name()
            client.watch([name])
            await leads(client, name)
            # Apache names a leader before that knows that it leads.
            await client.retry(lambda: end_of(client, name), deadline_s=15)
            yield client, name


@pytest.fixture(scope="module", params=["headwater", pytest.param("apache", marks=pytest.mark.peer)])
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("broker")
    with FlakyProxy() as network:
        settings = {
            "node.id": "1",
            "auto.create.topics.enable": "true",
            "advertised.listeners": f"PLAINTEXT://{network.address}",
        }
        if request.param == "headwater":
            broker: HeadwaterProcess | ApacheKafka = HeadwaterProcess(folder, settings)
        else:
            require_apache()
            settings |= {"broker.session.timeout.ms": "1000", "broker.heartbeat.interval.ms": "200"}
            broker = ApacheKafka(folder, settings, jvm_options=QUICK_START)
        with broker:
            network.forward_to(broker.port)
            yield World(broker, network)


def case(test: Case) -> Callable[..., None]:
    """Runs the case on asyncio's own event loop and on uvloop; what hangs has failed."""

    @both_loops
    def run_it(world: World, run: Run) -> None:
        run_limited(run, test(world))

    run_it.__name__, run_it.__doc__ = test.__name__, test.__doc__
    return run_it


async def leads(client: Client, topic: str) -> int:
    """Waits until the topic has a leader that is known."""
    while (leader := client.leader_of(topic, 0)) is None:
        client.need_refresh([topic])
        try:
            await client.fresh_metadata()
        except (ConnectionLostError, TimedOutError):
            continue
    return leader.node_id


async def end_of(client: Client, topic: str) -> int:
    """Where the topic ends."""
    place = TopicPartition(topic, 0)
    return (await list_offsets(client, [place])).one(place).offset


async def produce(client: Client, topic: str, value: bytes) -> int:
    """Writes one record; returns its offset."""
    batch = bytes(encode_batch([(None, value, (), 0)]))
    request = ProduceRequest(
        acks=i16(-1),
        timeout=duration(5),
        topic_data=(
            TopicProduceData(
                name=TopicName(topic),
                partition_data=(PartitionProduceData(index=i32(0), records=cast(Records, batch)),),
            ),
        ),
    )
    answer = await client.send(request, ProduceResponse, to=await leads(client, topic))
    found = answer.responses[0].partition_responses[0]
    if found.error_code is not ErrorCode.none:
        client.need_refresh()
        raise RefusedError(f"topic {topic}", found.error_code)
    return int(found.base_offset)


async def fetch(client: Client, topic: str) -> bytes:
    """What the topic holds, by the raw lane: Fetch version 4."""
    connection = await client.connection(await leads(client, topic))
    name = topic.encode()
    body = struct.pack(">iiiibi", -1, 500, 1, 2**30, 0, 1) + struct.pack(">h", len(name)) + name
    body += struct.pack(">iiqi", 1, 0, 0, 2**30)
    answer = await connection.submit_raw(1, 4, [body], flexible=False, timeout_s=10)
    return bytes(answer)


async def failure(attempt: Awaitable[object]) -> ClientError:
    with pytest.raises(ClientError) as caught:
        await attempt
    return caught.value


@case
async def test_a_large_answer_comes_whole_through_a_slow_network(world: World) -> None:
    async with world.topic() as (client, topic):
        value = bytes(range(256)) * 3_000
        for number in range(8):
            assert await produce(client, topic, value) == number
        world.network.delay_answers(0.1)
        try:
            answers = await asyncio.gather(*(fetch(client, topic) for _ in range(3)))
        finally:
            world.network.delay_answers(0)
        assert [answer.count(value) for answer in answers] == [8, 8, 8]


@case
async def test_an_answer_cut_in_the_middle_is_a_lost_connection_and_the_next_request_goes_through(
    world: World,
) -> None:
    async with world.topic() as (client, topic):
        await produce(client, topic, bytes(500_000))
        world.network.cut_answers("fetch")
        error = await failure(fetch(client, topic))
        assert isinstance(error, ConnectionLostError)
        assert world.network.address in str(error)
        assert len(await fetch(client, topic)) > 500_000


@case
async def test_a_connection_that_falls_silent_ends_in_time_and_another_takes_its_place(world: World) -> None:
    async with world.topic() as (client, topic):
        connection = await client.connection(1)
        world.network.silence()
        begin_s = time.monotonic()
        error = await failure(client.metadata([topic]))
        assert isinstance(error, TimedOutError)
        assert str(error) == f"no answer from {world.network.address} within 1 s"
        assert time.monotonic() - begin_s < 5
        assert not connection.usable
        await produce(client, topic, b"goes through")


@case
async def test_silence_is_broken_without_anybody_asking(world: World) -> None:
    async with world.topic() as (client, topic):
        refreshes = client.statistics.metadata_refreshes
        world.network.silence()
        client.need_refresh()
        while client.statistics.metadata_refreshes == refreshes:
            await asyncio.sleep(0.01)
        assert client.leader_of(topic, 0) is not None
        assert client.statistics.metadata_failures > 0


@case
async def test_an_answer_that_is_delayed_but_not_late_is_taken(world: World) -> None:
    async with world.client() as client:
        await client.metadata(())
        world.network.delay_answers(0.3)
        try:
            await client.metadata(())
        finally:
            world.network.delay_answers(0)
        snapshot = client.statistics.snapshot()["connections"][world.network.address]
        assert 300 <= snapshot["latency_max_ms"] < 1_000


@case
async def test_whoever_stops_waiting_in_the_middle_of_an_answer_leaves_the_others_in_step(world: World) -> None:
    async with world.topic() as (client, topic):
        value = bytes(range(256)) * 3_000
        await produce(client, topic, value)
        waiters = [asyncio.create_task(fetch(client, topic)) for _ in range(40)]
        await waiters[0]
        for waiter in waiters[1::2]:
            waiter.cancel()
        assert [(await waiter).count(value) for waiter in waiters[2::2]] == [1] * 19
        assert await produce(client, topic, b"in step") == 1


@case
async def test_every_request_under_a_network_that_keeps_breaking_ends_one_way_or_the_other(world: World) -> None:
    async with world.topic() as (client, topic):

        async def ask() -> str:
            try:
                found = await client.metadata([topic])
            except ClientError as error:
                return str(error)
            assert found.topics[0].name == topic
            return "answered"

        waiters = []
        for _ in range(10):
            waiters += [asyncio.create_task(ask()) for _ in range(20)]
            await asyncio.sleep(0.02)
            world.network.cut()
        fates = await asyncio.gather(*waiters)
        assert len(fates) == 200
        assert "answered" in fates
        failed = [fate for fate in fates if fate != "answered"]
        assert failed
        assert [fate for fate in failed if world.network.address not in fate] == []
        await client.retry(lambda: produce(client, topic, b"heals"))  # the last cut may be noticed only now
        while client.statistics.snapshot()["connections"][world.network.address]["in_flight"]:
            await asyncio.sleep(0.01)


@case
async def test_a_broker_that_is_killed_and_comes_back_is_found_by_a_client_that_only_waits(world: World) -> None:
    async with world.topic() as (client, topic):
        await produce(client, topic, b"before")
        world.broker.kill()
        error = await failure(client.metadata([topic]))
        assert world.network.address in str(error)
        refreshes = client.statistics.metadata_refreshes
        world.broker.start()  # in this thread: the broker dies with the thread that starts it
        while client.statistics.metadata_refreshes == refreshes:
            await asyncio.sleep(0.01)
        assert await client.retry(lambda: produce(client, topic, b"after"), deadline_s=15) == 1
        snapshot = client.statistics.snapshot()["connections"][world.network.address]
        assert snapshot["reconnects"] >= 1


def test_ctrl_c_ends_a_client_that_waits_for_ever(world: World) -> None:
    program = f"""
import asyncio
from headwater.client.client import Client
from headwater.client.settings import ConnectionSettings

async def main():
    async with Client("{world.network.address}", ConnectionSettings(request_timeout_ms=600_000)) as client:
        await client.metadata(())
        connection = await client.connection(1)
        print("ready", flush=True)
        await connection.submit_raw(1, 4, [bytes.fromhex("ffffffff 0001d4c0 00000001 7fffffff 00 00000000")],
                                    flexible=False, timeout_s=600)

asyncio.run(main())
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=10)
    assert process.returncode in (1, -signal.SIGINT, 130)
    assert errors.decode().rstrip().endswith("KeyboardInterrupt")
