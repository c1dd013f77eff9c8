"""The sender between brokers of a cluster: it follows leaders, and asks no broker for more than it may."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from headwater.client.errors import ClientError, ConnectionLostError, RefusedError
from headwater.client.metadata import Leader
from headwater.client.producer.accumulator import Accumulator
from headwater.client.producer.handles import SendHandle
from headwater.client.producer.idempotence import Sequences
from headwater.client.producer.producer import Producer
from headwater.client.producer.sender import Sender
from headwater.client.producer.settings import producer_settings
from headwater.client.producer.statistics import ProducerStatistics
from headwater.client.statistics import ClientStatistics
from headwater.protocol.kafka_types import ErrorCode
from headwater.protocol.produce_lane import PartitionResult, read_request, response_frame
from headwater.protocol.records import decode_records, parse_header
from scripted_cluster import TOPIC, scripted_cluster
from scripted_cluster import Leader as ScriptedLeader

VERSION = 9
LIMITS = {"request_timeout_ms": 10_000, "delivery_timeout_ms": 12_000}
"""So that a producer that is not as it should be ends soon."""


class FakeBroker:
    """Answers Produce as told: a connection and the broker behind it in one."""

    address = "broker"
    usable = True

    def __init__(self, name: int) -> None:
        self.name = name
        self.values: list[bytes] = []
        self.in_flight = self.most_in_flight = 0
        self.verdict: Callable[[], ErrorCode | ClientError] = lambda: ErrorCode.none

    def supported(self, _: int) -> tuple[int, int]:
        return 0, VERSION

    def submit_raw(
        self, key: int, version: int, body: Any, *, flexible: bool, timeout_s: float, answered: bool
    ) -> "asyncio.Future[memoryview]":
        answer: asyncio.Future[memoryview] = asyncio.get_running_loop().create_future()
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        frame = b"".join(body)
        asyncio.get_running_loop().call_later(0.001, self._answer, frame, answer)
        return answer

    def _answer(self, frame: bytes, answer: "asyncio.Future[memoryview]") -> None:
        self.in_flight -= 1
        verdict = self.verdict()
        if isinstance(verdict, ClientError):
            answer.set_exception(verdict)
            return
        results = []
        for topic, partitions in read_request(memoryview(frame), 0, VERSION).topics:
            answers = []
            for number, start, end in partitions:
                if verdict is ErrorCode.none:
                    self.values += values_of(frame[start:end])
                answers.append(PartitionResult(number, verdict, len(self.values)))
            results.append((topic, answers))
        answer.set_result(memoryview(response_frame(VERSION, 0, results)[9:]))


class FakeCluster:
    """What a sender wants of a `Client`: here the leader changes when somebody asks for news of it."""

    def __init__(self) -> None:
        self.brokers = {1: FakeBroker(1), 2: FakeBroker(2)}
        self.leader = 1
        self.leader_after_refresh: int | None = None
        self.refreshes = 0

    def leader_of(self, topic: str, partition: int) -> Leader:
        return Leader(self.leader, 0)

    def need_refresh(self, topics: object = ()) -> None:
        self.refreshes += 1
        if self.leader_after_refresh is not None:
            self.leader = self.leader_after_refresh

    def topic_error(self, topic: str) -> None:
        return None

    async def connection(self, broker: int) -> FakeBroker:
        return self.brokers[broker]


def values_of(records: bytes) -> list[bytes]:
    return [record.value or b"" for record in decode_records(records, parse_header(records, 0, len(records)))]


def play(cluster: FakeCluster, story: Callable[[Accumulator], Coroutine[Any, Any, None]], **settings: Any) -> None:
    """Runs a story with a sender that has its identity already."""

    async def whole() -> None:
        chosen = producer_settings({"retry_backoff_ms": 1, "linger_ms": 0, **settings})
        accumulator = Accumulator(
            batch_size=chosen.batch_size,
            linger_ms=chosen.linger_ms,
            buffer_memory=chosen.buffer_memory,
            compression=0,
            compression_level=None,
            wake=lambda: sender.wake(),
            retry_backoff_ms=chosen.retry_backoff_ms,
        )
        sequences = Sequences(transactional=False)
        sequences.identify(7, 0)
        fake: Any = cluster
        statistics = ProducerStatistics(ClientStatistics("test"), accumulator)
        sender = Sender(fake, accumulator, chosen, fake, statistics, sequences=sequences, transactions=None)
        try:
            await asyncio.wait_for(story(accumulator), 20)
        finally:
            await sender.stop()

    asyncio.run(whole())


def append(accumulator: Accumulator, count: int) -> list[SendHandle]:
    queue = accumulator.topic("orders")
    handles = [accumulator.append(queue, 0, None, b"%d" % number, None, 1000) for number in range(count)]
    return [handle for handle in handles if handle is not None]


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def test_batches_follow_their_leader_in_order() -> None:
    cluster = FakeCluster()
    cluster.leader_after_refresh = 2
    cluster.brokers[1].verdict = lambda: ErrorCode.not_leader_or_follower

    async def story(accumulator: Accumulator) -> None:
        for handle in append(accumulator, 50):
            await handle

    play(cluster, story, batch_size=80)
    assert cluster.refreshes > 0
    assert cluster.brokers[1].values == []
    assert cluster.brokers[2].values == numbers(50)


def test_a_lost_connection_is_news_of_the_leader_too() -> None:
    cluster = FakeCluster()
    cluster.leader_after_refresh = 2
    cluster.brokers[1].verdict = lambda: ConnectionLostError("gone")

    async def story(accumulator: Accumulator) -> None:
        for handle in append(accumulator, 20):
            await handle

    play(cluster, story, batch_size=80)
    assert cluster.brokers[2].values == numbers(20)


@pytest.mark.parametrize("most", [1, 3, 5])
def test_no_broker_has_more_requests_to_answer_than_it_may(most: int) -> None:
    cluster = FakeCluster()

    async def story(accumulator: Accumulator) -> None:
        for handle in append(accumulator, 60):
            await handle

    play(cluster, story, batch_size=80, max_in_flight_requests_per_connection=most)
    assert cluster.brokers[1].most_in_flight == most
    assert cluster.brokers[1].values == numbers(60)


def test_a_batch_fails_after_its_last_retry() -> None:
    cluster = FakeCluster()
    asked: list[int] = []

    def refuse() -> ErrorCode:
        asked.append(1)
        return ErrorCode.not_enough_replicas

    cluster.brokers[1].verdict = refuse

    async def story(accumulator: Accumulator) -> None:
        (handle,) = append(accumulator, 1)
        with pytest.raises(RefusedError, match="too few replicas are in sync") as refused:
            await handle
        assert refused.value.code is ErrorCode.not_enough_replicas

    play(cluster, story, retries=3)
    assert len(asked) == 4


def test_a_batch_that_is_known_to_be_written_is_done_without_an_offset() -> None:
    cluster = FakeCluster()
    cluster.brokers[1].verdict = lambda: ErrorCode.duplicate_sequence_number

    async def story(accumulator: Accumulator) -> None:
        (handle,) = append(accumulator, 1)
        assert (await handle).offset == -1

    play(cluster, story)


def test_a_leader_that_a_refusal_names_is_written_to_at_once() -> None:
    """Before the metadata know of it, or even of the broker; and without the pause that follows other refusals."""

    async def story() -> None:
        async with scripted_cluster() as cluster:
            cluster.listed = {1}
            settings = {"enable_idempotence": False, "retry_backoff_ms": 60_000, "retry_backoff_max_ms": 60_000}
            async with Producer(cluster.bootstrap, **settings, **LIMITS) as producer:
                await (await producer.send(TOPIC, b"a"))
                cluster.moved[0] = ScriptedLeader(2, 1)
                await (await producer.send(TOPIC, b"b"))
                await (await producer.send(TOPIC, b"c"))
            assert cluster.produced == [(1, 0), (1, 0), (2, 0), (2, 0)]

    asyncio.run(asyncio.wait_for(story(), 20))


def test_a_broker_that_takes_nothing_gets_no_records_without_a_key_until_it_does() -> None:
    async def story() -> None:
        async with scripted_cluster(2) as cluster:
            cluster.leaders[1] = ScriptedLeader(2, 0)
            settings = {"enable_idempotence": False, "linger_ms": 0, "batch_size": 1}
            limits = {"max_in_flight_requests_per_connection": 2, "partitioner_availability_timeout_ms": 20, **LIMITS}
            async with Producer(cluster.bootstrap, **settings, **limits) as producer:
                await (await producer.send(TOPIC, b"first", partition=0))
                cluster.silent.add(2)
                stuck = [await producer.send(TOPIC, b"stuck", partition=1) for _ in range(3)]
                sender = producer._sender
                assert sender is not None
                while not sender.unavailable:
                    await asyncio.sleep(0.005)
                # By chance, half of these went to the other partition; as it is, they do not get stuck.
                for _ in range(40):
                    await (await producer.send(TOPIC, b"free"))
                assert {partition for _, partition in cluster.produced} == {0}
                cluster.silent.clear()
                for handle in stuck:
                    await handle
                while sender.unavailable:
                    await asyncio.sleep(0.005)
                while cluster.produced[-1] != (2, 1):
                    await (await producer.send(TOPIC, b"free"))

    asyncio.run(asyncio.wait_for(story(), 20))
