"""The producer over a network that fails and to a broker that dies: each record is written once, and in order."""

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from conformance.actions import Topic, create_topic, unique_name
from conformance.isolation import read
from conformance.wire import Wire
from headwater.aio import Producer
from headwater.client.errors import RefusedError, TimedOutError
from headwater.client.producer.handles import SendHandle
from headwater.client.producer.transaction_requests import TransactionRequests
from headwater.protocol.kafka_types import ErrorCode
from headwater.testing import FlakyProxy, LocalBroker
from peers.headwater import HeadwaterProcess

PARTITIONS = 2
# Small batches, so that there are many requests for faults to meet, and quick retries.
BUSY = {"batch_size": 200, "linger_ms": 0, "retry_backoff_ms": 10, "reconnect_backoff_ms": 10}


@pytest.fixture(scope="module")
def network() -> Iterator[FlakyProxy]:
    """A broker behind a network that can be made to fail."""
    with FlakyProxy() as proxy:
        settings = {"advertised.listeners": f"PLAINTEXT://{proxy.address}", "num.partitions": str(PARTITIONS)}
        with LocalBroker(config=settings) as broker:
            proxy.forward_to(broker.port)
            yield proxy


@pytest.fixture
def topic(network: FlakyProxy) -> Topic:
    with Wire(network.address) as wire:
        return create_topic(wire, partitions=PARTITIONS)


class Place:
    """What `read` wants to know of a broker."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap


def written(network: FlakyProxy | HeadwaterProcess, topic: Topic, isolation: str = "read_uncommitted") -> list[bytes]:
    """All values of a topic, partition after partition."""
    place: Any = Place(network.address if isinstance(network, FlakyProxy) else network.bootstrap)
    return [value for number in range(PARTITIONS) for value in read(place, topic, isolation, partition=number)]


def in_order(count: int) -> list[bytes]:
    """What partitions hold when value n went to partition n % PARTITIONS, once each and in order."""
    return [b"%d" % n for number in range(PARTITIONS) for n in range(number, count, PARTITIONS)]


async def send_numbers(producer: Producer, topic: Topic, first: int, count: int) -> list[SendHandle]:
    handles = []
    for n in range(first, first + count):
        handles.append(await producer.send(topic.name, b"%d" % n, partition=n % PARTITIONS))
        if n % 10 == 0:
            await asyncio.sleep(0)
    return handles


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, 60))


@pytest.mark.parametrize("fault", ["answers", "requests"])
def test_what_a_network_loses_is_sent_again_and_written_once(network: FlakyProxy, topic: Topic, fault: str) -> None:
    async def story() -> None:
        async with Producer(network.address, **BUSY) as producer:
            lost_before = network.lost
            for round_ in range(10):
                (network.lose_answers if fault == "answers" else network.lose_requests)("produce")
                await send_numbers(producer, topic, round_ * 50, 50)
                await producer.flush(30)
            assert network.lost - lost_before == 10

    run(story())
    assert written(network, topic) == in_order(500)


def test_connections_that_break_all_the_time_lose_and_double_nothing(network: FlakyProxy, topic: Topic) -> None:
    done = threading.Event()

    def break_connections() -> None:
        while not done.wait(0.05):
            network.cut()

    async def story() -> None:
        async with Producer(network.address, **BUSY) as producer:
            handles = []
            for n in range(0, 1500, 10):
                handles += await send_numbers(producer, topic, n, 10)
                await asyncio.sleep(0.01)
            done.set()
            for handle in handles:
                await handle

    breaking = threading.Thread(target=break_connections)
    breaking.start()
    try:
        run(story())
    finally:
        done.set()
        breaking.join()
    assert written(network, topic) == in_order(1500)


def test_answers_that_come_too_late_are_asked_for_again(network: FlakyProxy, topic: Topic) -> None:
    async def story() -> None:
        async with Producer(network.address, request_timeout_ms=300, **BUSY) as producer:
            await send_numbers(producer, topic, 0, 20)
            await producer.flush(30)
            network.delay_answers(0.6)
            try:
                await send_numbers(producer, topic, 20, 20)
                await asyncio.sleep(0.8)
            finally:
                network.delay_answers(0)
            await producer.flush(30)

    run(story())
    assert written(network, topic) == in_order(40)


def test_without_idempotence_a_lost_answer_doubles_records(network: FlakyProxy, topic: Topic) -> None:
    async def story() -> None:
        async with Producer(network.address, enable_idempotence=False, retry_backoff_ms=10) as producer:
            await producer.flush()
            network.lose_answers("produce")
            await (await producer.send(topic.name, b"0", partition=0))

    run(story())
    assert written(network, topic) == [b"0", b"0"]


def test_a_record_that_cannot_be_delivered_in_time_says_why(network: FlakyProxy, topic: Topic) -> None:
    async def story() -> None:
        impatient = {"request_timeout_ms": 100, "delivery_timeout_ms": 400, "linger_ms": 0}
        async with Producer(network.address, **impatient) as producer:
            await (await producer.send(topic.name, b"0", partition=0))
            network.delay_answers(5)
            try:
                late = await producer.send(topic.name, b"1", partition=0)
                with pytest.raises(
                    TimedOutError, match=rf"partition 0 of topic {topic.name}: .*delivery\.timeout\.ms = 400"
                ):
                    await late
            finally:
                network.delay_answers(0)
                network.cut()
            await (await producer.send(topic.name, b"2", partition=0))

    run(story())
    assert written(network, topic) in ([b"0", b"2"], [b"0", b"1", b"2"])


def test_without_retries_a_lost_request_is_a_lost_record(network: FlakyProxy, topic: Topic) -> None:
    async def story() -> None:
        async with Producer(network.address, enable_idempotence=False, retries=0) as producer:
            await producer.partitions_for(topic.name)
            network.lose_requests("produce")
            with pytest.raises(RefusedError) as lost:
                await (await producer.send(topic.name, b"0", partition=0))
            assert lost.value.code is ErrorCode.network_exception
            await (await producer.send(topic.name, b"1", partition=0))

    run(story())
    assert written(network, topic) == [b"1"]


def test_one_request_at_a_time_keeps_the_order_without_idempotence(network: FlakyProxy, topic: Topic) -> None:
    async def story() -> None:
        alone = {"enable_idempotence": False, "max_in_flight_requests_per_connection": 1}
        async with Producer(network.address, **alone, **BUSY) as producer:
            for round_ in range(5):
                network.lose_requests("produce")
                await send_numbers(producer, topic, round_ * 50, 50)
                await producer.flush(30)

    run(story())
    assert written(network, topic) == in_order(250)


def test_records_for_a_topic_that_was_deleted_say_so_in_the_end(tmp_path: Path) -> None:
    with HeadwaterProcess(tmp_path) as broker, Wire(broker.bootstrap) as wire:
        topic = create_topic(wire)

        async def story() -> None:
            impatient = {"request_timeout_ms": 100, "delivery_timeout_ms": 400, "max_block_ms": 300}
            async with Producer(broker.bootstrap, **impatient) as producer:
                await (await producer.send(topic.name, b"0"))
                wire.send("delete_topics", topics=[{"name": topic.name}], timeout=10_000)
                with pytest.raises(TimedOutError, match=r"delivery\.timeout\.ms = 400; last: topic .*no such topic"):
                    await (await producer.send(topic.name, b"1"))
                with pytest.raises(TimedOutError, match=r"not known within max\.block\.ms = 300: .*no such topic"):
                    await producer.send(topic.name, b"2")

        run(story())


@pytest.mark.parametrize(
    ("protocol", "api"),
    [
        (2, "init_producer_id"),
        (2, "produce"),
        (2, "end_txn"),
        (1, "add_partitions_to_txn"),
        (1, "produce"),
        (1, "end_txn"),
    ],
)
def test_transactions_are_whole_whatever_answer_is_lost(
    network: FlakyProxy, topic: Topic, protocol: int, api: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def is_version_2(_: TransactionRequests) -> bool:
        return protocol == 2

    monkeypatch.setattr(TransactionRequests, "adds_by_writing", is_version_2)

    async def story() -> None:
        name = unique_name("transactional-id")
        async with Producer(network.address, transactional_id=name, **BUSY) as producer:
            if api == "init_producer_id":
                network.lose_answers(api)
            await producer.init_transactions()
            for number in range(6):
                if api != "init_producer_id":
                    network.lose_answers(api)
                try:
                    async with producer.transaction():
                        await send_numbers(producer, topic, number // 2 * 20, 20)
                        if number % 2 == 0:
                            raise InterruptedError
                except InterruptedError:
                    pass

    run(story())
    assert written(network, topic, "read_committed") == in_order(60)


@pytest.mark.parametrize("transactional_id", [None, "survivor"])
def test_a_broker_that_is_killed_and_comes_back_has_each_record_once(
    tmp_path: Path, transactional_id: str | None
) -> None:
    with HeadwaterProcess(tmp_path) as broker:
        with Wire(broker.bootstrap) as wire:
            topic = create_topic(wire, partitions=PARTITIONS)

        async def story() -> None:
            async with Producer(broker.bootstrap, transactional_id=transactional_id, **BUSY) as producer:
                if transactional_id is not None:
                    await producer.init_transactions()
                    await producer.begin_transaction()
                handles = []
                for round_ in range(2):
                    handles += await send_numbers(producer, topic, round_ * 300, 150)
                    broker.kill()
                    handles += await send_numbers(producer, topic, round_ * 300 + 150, 150)
                    broker.start()
                    await producer.flush(30)
                if transactional_id is not None:
                    await producer.commit_transaction()
                for handle in handles:
                    assert (await handle).offset >= 0

        run(story())
        assert written(broker, topic, "read_committed") == in_order(600)
