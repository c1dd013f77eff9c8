"""A bad network, brokers that die, polls that are cancelled: a consumer sees all records, in order, once."""

import asyncio
import contextlib
import random
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

import headwater
from conformance.actions import unique_name
from headwater.client.consumer.consumer import Consumer
from headwater.client.consumer.group_errors import CommitFailedError, RebalanceInProgressError
from headwater.client.consumer.records import Record
from headwater.testing import FlakyProxy, LocalBroker
from peers.headwater import HeadwaterProcess

PARTITIONS = 3
IMPATIENT: dict[str, Any] = {
    "reconnect_backoff_ms": 10,
    "reconnect_backoff_max_ms": 100,
    "retry_backoff_ms": 10,
    "retry_backoff_max_ms": 100,
}
PATIENCE_S = 25


@pytest.fixture
def network() -> Iterator[FlakyProxy]:
    """A proxy with a broker behind it that advertises the proxy's address."""
    with (
        FlakyProxy() as proxy,
        LocalBroker(
            config={
                "advertised.listeners": f"PLAINTEXT://{proxy.address}",
                "num.partitions": str(PARTITIONS),
                "group.initial.rebalance.delay.ms": "0",
                "group.min.session.timeout.ms": "100",
            }
        ) as broker,
    ):
        proxy.forward_to(broker.port)
        yield proxy


def produce(bootstrap: str, topic: str, numbers: range) -> None:
    """Number n goes to partition n % PARTITIONS; what is written is on the broker's device."""
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 1,
            "batch.num.messages": 20,
            "log_level": 0,
        }
    )
    for number in numbers:
        producer.produce(topic, b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(20) == 0


class Seen:
    """Checks at each record that it is the next of its partition: no gap, nothing twice."""

    def __init__(self) -> None:
        self.count = 0
        self._next: defaultdict[int, int] = defaultdict(int)

    def add(self, records: list[Record]) -> None:
        for record in records:
            offset = self._next[record.partition]
            assert record.offset == offset, f"partition {record.partition}: {record.offset} instead of {offset}"
            assert record.value == b"%d" % (offset * PARTITIONS + record.partition)
            self._next[record.partition] += 1
            self.count += 1


def small_answers(**settings: Any) -> dict[str, Any]:
    """Settings with which there are many answers."""
    return {
        "auto_offset_reset": "earliest",
        "max_partition_fetch_bytes": 2000,
        "max_poll_records": 50,
        "fetch_max_wait_ms": 50,
        **IMPATIENT,
        **settings,
    }


def consumer_of(bootstrap: str, topic: str, **settings: Any) -> Consumer:
    return Consumer(bootstrap, topics=[topic], **small_answers(**settings))


def test_lost_answers_and_cut_connections_cost_no_record_and_double_none(network: FlakyProxy) -> None:
    topic, chance, wanted = unique_name(), random.Random(1), 6000
    produce(network.address, topic, range(wanted))

    async def read() -> Consumer:
        seen, next_fault = Seen(), 0
        # Whoever hears nothing notices it by the time.
        async with (
            consumer_of(network.address, topic, request_timeout_ms=300) as consumer,
            asyncio.timeout(PATIENCE_S),
        ):
            while seen.count < wanted:
                seen.add(await consumer.poll(1.0))
                if seen.count >= next_fault:
                    next_fault += 200
                    disturb(network, chance)
        return consumer

    consumer = asyncio.run(read())
    assert network.lost >= 10
    assert consumer.statistics.fetch_failures >= 15


@pytest.mark.parametrize("by", ["row", "column"])
def test_a_blocking_consumer_which_receives_while_others_work_misses_nothing_either(
    network: FlakyProxy, by: str
) -> None:
    topic, chance, wanted = unique_name(), random.Random(2), 6000
    produce(network.address, topic, range(wanted))
    read, ends_s = dict.fromkeys(range(PARTITIONS), b""), time.monotonic() + PATIENCE_S
    count = next_fault = 0
    # Little is read ahead, so that there are many polls, and a fault after every few.
    settings = small_answers(request_timeout_ms=300, prefetch_max_bytes=6000)
    with headwater.Consumer(network.address, topics=[topic], **settings) as consumer:
        while count < wanted and time.monotonic() < ends_s:
            if by == "row":
                parts = [(each.partition, [each.value]) for each in consumer.poll(timeout=1.0)]
            else:
                polled = consumer.poll_columns(1.0)
                parts = [(number, [each.values[row] for row in range(len(each))]) for _, number, each in polled]
            for partition, values in parts:
                read[partition] += b"".join(b"%b " % (value or b"") for value in values)
                count += len(values)
            if count >= next_fault:
                next_fault += 200
                disturb(network, chance)
        failures = consumer.statistics.fetch_failures
    assert read == {
        partition: b"".join(b"%d " % number for number in range(partition, wanted, PARTITIONS))
        for partition in range(PARTITIONS)
    }
    assert network.lost >= 10
    assert failures >= 10


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_behind_a_bad_network_misses_nothing(network: FlakyProxy, protocol: str) -> None:
    topic, chance, wanted = unique_name(), random.Random(3), 2000
    produce(network.address, topic, range(wanted))
    apis = ["offset_commit", "offset_fetch", "find_coordinator", "fetch"]
    apis += ["join_group", "sync_group", "heartbeat"] if protocol == "classic" else ["consumer_group_heartbeat"]
    settings = {"group_protocol": protocol, "enable_auto_commit": False, "request_timeout_ms": 500}
    if protocol == "classic":
        settings |= {"heartbeat_interval_ms": 100, "session_timeout_ms": 1000}

    async def read() -> None:
        reached: defaultdict[int, int] = defaultdict(int)
        async with asyncio.timeout(PATIENCE_S):
            # Each consumer begins where the one before it has committed.
            for part in range(1, 5):
                async with consumer_of(network.address, topic, group_id="billing", **settings) as consumer:
                    while sum(reached.values()) < wanted * part // 4:
                        for record in await consumer.poll(1.0):
                            # A rebalance may lead back to what was committed, but never past what was not read.
                            assert record.offset <= reached[record.partition]
                            reached[record.partition] = max(reached[record.partition], record.offset + 1)
                        with contextlib.suppress(CommitFailedError, RebalanceInProgressError):
                            await consumer.commit()
                        network.lose_answers(chance.choice(apis))
        assert sum(reached.values()) == wanted

    asyncio.run(read())
    assert network.lost >= 10


def disturb(network: FlakyProxy, chance: random.Random) -> None:
    match chance.randrange(7):
        case 0:
            network.cut()
        case 1:
            network.lose_requests("fetch")
        case 2:
            network.lose_answers("fetch")
        case 3:
            network.cut_answers("fetch")
        case 4:
            network.silence_answers("fetch")
        case 5:
            network.lose_answers(chance.choice(["metadata", "api_versions"]))
        case 6:
            network.delay_answers(chance.choice([0, 0, 0.01]))


def test_polls_that_are_cancelled_at_any_moment_lose_and_double_nothing(network: FlakyProxy) -> None:
    topic, chance, wanted = unique_name(), random.Random(2), 3000
    produce(network.address, topic, range(wanted))
    cancelled = 0

    async def read() -> None:
        nonlocal cancelled
        seen = Seen()
        network.delay_answers(0.002)
        async with consumer_of(network.address, topic) as consumer, asyncio.timeout(PATIENCE_S):
            while seen.count < wanted:
                polling = asyncio.create_task(consumer.poll(1.0))
                await asyncio.sleep(chance.choice([0, 0, 0.001, 0.003]))
                polling.cancel()
                try:
                    seen.add(await polling)
                except asyncio.CancelledError:
                    cancelled += 1

    asyncio.run(read())
    assert cancelled > 10


def test_a_broker_that_is_killed_again_and_again_is_read_to_the_end(tmp_path: Path) -> None:
    kills, a_round = 3, 1500
    with HeadwaterProcess(tmp_path, {"num.partitions": str(PARTITIONS), "auto.create.topics.enable": "true"}) as broker:
        topic = unique_name()

        async def read() -> None:
            seen = Seen()
            async with consumer_of(broker.bootstrap, topic) as consumer, asyncio.timeout(PATIENCE_S):
                for number in range(kills + 1):
                    await asyncio.to_thread(
                        produce, broker.bootstrap, topic, range(number * a_round, (number + 1) * a_round)
                    )
                    while seen.count < number * a_round + a_round // 2:
                        seen.add(await consumer.poll(1.0))
                    if number < kills:
                        # In the middle of things: half is read, fetches are under way.
                        broker.kill()
                        starting = asyncio.create_task(asyncio.to_thread(broker.start))
                        while not starting.done():
                            seen.add(await consumer.poll(0.05))
                        await starting
                while seen.count < (kills + 1) * a_round:
                    seen.add(await consumer.poll(1.0))

        asyncio.run(read())
