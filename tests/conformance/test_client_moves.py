"""Our clients in a cluster of Apache Kafka whose nodes are stopped and killed: leaders and coordinators move, the
users of the clients are told nothing, and each record is written and read once and in order."""

import asyncio
import contextlib
import functools
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from typing import Any, Final

import pytest

from headwater.aio import Admin, Consumer, Producer
from headwater.client.consumer.listeners import RebalanceListener
from headwater.client.coordinators import Coordinated
from headwater.client.producer.handles import SendHandle
from headwater.types import TopicPartition
from peers.apache_cluster import CONTROLLER, ApacheCluster, rack_of
from peers.presence import require_apache

from .actions import Topic
from .cluster_state import (
    coordinator,
    make_whole,
    name_coordinated_by,
    replicated_topic,
    spread_coordinators,
    until,
    wait_for_leader,
)
from .isolation import both_views

pytestmark = pytest.mark.peer

# Before, during and after a move.
COUNT: Final = 1500
TRANSACTIONS: Final = 12
_CASE_S: Final = 150


@pytest.fixture(scope="module")
def running_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheCluster]:
    require_apache()
    with ApacheCluster(tmp_path_factory.mktemp("cluster"), {"group.initial.rebalance.delay.ms": "0"}) as cluster:
        asyncio.run(spread_coordinators(cluster))
        yield cluster


@pytest.fixture
def cluster(running_cluster: ApacheCluster) -> ApacheCluster:
    """All nodes run, whatever the case before has done to them."""
    asyncio.run(make_whole(running_cluster))
    return running_cluster


def in_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **kwargs), _CASE_S))

    return run


async def send_all_through(producer: Producer, topic: str, move: Callable[[], Awaitable[object]]) -> None:
    """Sends numbers without a pause for anybody; a third of them before the move begins and a third after it ended."""
    handles: list[SendHandle] = []

    async def send_third() -> None:
        for _ in range(COUNT // 3):
            handles.append(await producer.send(topic, b"%d" % len(handles), partition=0))
            await asyncio.sleep(0.0005)

    await send_third()
    moving = asyncio.ensure_future(move())
    await send_third()
    await moving
    await send_third()
    offsets = [(await handle).offset for handle in handles]
    assert offsets == list(range(COUNT))


def numbers() -> list[bytes]:
    return [b"%d" % number for number in range(COUNT)]


async def views(cluster: ApacheCluster, topic: str) -> tuple[list[bytes], list[bytes]]:
    """What another client reads from partition 0: what is committed, and all there is."""
    # It finds the others by way of the node that is always there.
    return await asyncio.to_thread(both_views, cluster.nodes[CONTROLLER], Topic(name=topic, id=uuid.UUID(int=0)))


@in_a_loop
async def test_an_idempotent_producer_outlives_the_leader_of_its_partition(cluster: ApacheCluster) -> None:
    async with Admin(cluster.bootstrap) as admin, Producer(cluster.bootstrap, batch_size=400, linger_ms=0) as producer:
        topic = await replicated_topic(admin, [2, 3, 1])

        async def kill() -> None:
            await asyncio.to_thread(cluster.kill, 2)

        await send_all_through(producer, topic, kill)
        await wait_for_leader(admin, topic, 3)
    assert await views(cluster, topic) == (numbers(), numbers())


@in_a_loop
async def test_an_idempotent_producer_follows_leaders_that_change_in_good_order(cluster: ApacheCluster) -> None:
    async with Admin(cluster.bootstrap) as admin, Producer(cluster.bootstrap, batch_size=400, linger_ms=0) as producer:
        topic = await replicated_topic(admin, [2, 3, 1])

        async def stop_and_come_back() -> None:
            await asyncio.to_thread(cluster.stop, 2)
            await wait_for_leader(admin, topic, 3)
            await make_whole(cluster)
            await wait_for_leader(admin, topic, 2)

        await send_all_through(producer, topic, stop_and_come_back)
    assert await views(cluster, topic) == (numbers(), numbers())


class Notes(RebalanceListener):
    """What a member was told of its partition."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self.told += ["assigned"] * len(partitions)

    def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self.told += ["revoked"] * len(partitions)


@pytest.mark.parametrize(
    ("what_dies", "protocol"), [("leader", "classic"), ("coordinator", "classic"), ("coordinator", "consumer")]
)
@in_a_loop
async def test_a_consumer_in_a_group_outlives_a_node(cluster: ApacheCluster, what_dies: str, protocol: str) -> None:
    leader, coordinator_node = (2, 3) if what_dies == "leader" else (3, 2)
    seen: list[bytes | None] = []
    notes = Notes()
    async with Admin(cluster.bootstrap) as admin, Producer(cluster.bootstrap, linger_ms=0) as producer:
        topic = await replicated_topic(admin, [leader, 1, coordinator_node])
        group = await name_coordinated_by(admin, Coordinated.GROUP, coordinator_node)
        consumer = Consumer(
            cluster.bootstrap,
            group=group,
            group_protocol=protocol,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        consumer.subscribe([topic], listener=notes)

        async def consume() -> None:
            while len(seen) < COUNT:
                seen.extend(record.value for record in await consumer.poll(1.0))
                await consumer.commit()

        async def kill() -> None:
            while not seen:
                await asyncio.sleep(0.02)
            await asyncio.to_thread(cluster.kill, 2)
            if what_dies == "leader":
                await wait_for_leader(admin, topic, 1)

        async with consumer, asyncio.TaskGroup() as tasks:
            tasks.create_task(consume())
            tasks.create_task(send_all_through(producer, topic, kill))
        assert seen == numbers()
        assert notes.told == ["assigned", "revoked"], "only when it came and when it left"
        assert (await admin.list_group_offsets(group))[TopicPartition(topic, 0)].offset == COUNT
        if what_dies == "coordinator":
            assert await coordinator(admin, Coordinated.GROUP, group) != 2


class ChangeOfMindError(Exception):
    """Why a transaction is aborted."""


@in_a_loop
async def test_transactions_outlive_their_coordinator(cluster: ApacheCluster) -> None:
    async with Admin(cluster.bootstrap) as admin:
        topic = await replicated_topic(admin, [3, 1, 2])
        name = await name_coordinated_by(admin, Coordinated.TRANSACTION, 2)
        async with Producer(cluster.bootstrap, transactional_id=name, linger_ms=0) as producer:
            await producer.init_transactions()
            killing: asyncio.Task[None] | None = None
            for number in range(TRANSACTIONS):
                with contextlib.suppress(ChangeOfMindError):
                    async with producer.transaction():
                        for value in values_of_transaction(number):
                            await producer.send(topic, value, partition=0)
                        await producer.flush()
                        if number == TRANSACTIONS // 3:
                            # The commit that follows comes to a node that is dead or dying.
                            killing = asyncio.create_task(asyncio.to_thread(cluster.kill, 2))
                        if number % 2:
                            raise ChangeOfMindError
            assert killing is not None
            await killing
        assert await coordinator(admin, Coordinated.TRANSACTION, name) != 2
    committed, everything = await views(cluster, topic)
    assert committed == [value for number in range(0, TRANSACTIONS, 2) for value in values_of_transaction(number)]
    assert everything == [value for number in range(TRANSACTIONS) for value in values_of_transaction(number)]


def values_of_transaction(number: int) -> list[bytes]:
    return [b"%d/%d" % (number, index) for index in range(20)]


class RackReader:
    """A consumer in the rack of node 3, and what it received from which node: that shows where it reads."""

    ROUND: Final = 20
    ROUND_BYTES: Final = ROUND * 10_000

    def __init__(self, cluster: ApacheCluster, topic: str, producer: Producer) -> None:
        self.consumer = Consumer(cluster.bootstrap, client_rack=rack_of(3), auto_offset_reset="earliest")
        self.consumer.assign([TopicPartition(topic, 0)])
        self._addresses = {node: kafka.bootstrap for node, kafka in cluster.nodes.items()}
        self._topic = topic
        self._producer = producer
        self._count = 0

    async def reads_from(self, node: int) -> bool:
        """Sends some records and reads them, none left out and none twice; whether they came from this node alone."""
        before = self._received_bytes()
        sent = [b"%d " % number + bytes(10_000) for number in range(self._count, self._count + self.ROUND)]
        for value in sent:
            await self._producer.send(self._topic, value, partition=0)
        seen: list[bytes | None] = []
        while len(seen) < self.ROUND:
            seen += [record.value for record in await self.consumer.poll(1.0)]
        assert seen == sent
        self._count += self.ROUND
        received = {each: total - before[each] for each, total in self._received_bytes().items()}
        others = sum(received.values()) - received[node]
        return received[node] >= self.ROUND_BYTES and others < self.ROUND_BYTES // 10

    def _received_bytes(self) -> dict[int, int]:
        connections = self.consumer.statistics.client.snapshot()["connections"]
        totals = {node: connections.get(address, {}) for node, address in self._addresses.items()}
        return {node: int(total.get("bytes_in", 0)) for node, total in totals.items()}


@in_a_loop
async def test_a_consumer_reads_from_the_follower_in_its_rack_while_there_is_one(cluster: ApacheCluster) -> None:
    async with Admin(cluster.bootstrap) as admin, Producer(cluster.bootstrap, linger_ms=0) as producer:
        topic = await replicated_topic(admin, [2, 3, 1])
        reader = RackReader(cluster, topic, producer)
        async with reader.consumer:
            await until(lambda: reader.reads_from(3), "records from the follower")
            await asyncio.to_thread(cluster.stop, 3)
            await until(lambda: reader.reads_from(2), "records from the leader")
            cluster.launch(3)
            await asyncio.to_thread(cluster.wait_until_answering)
            await until(lambda: reader.reads_from(3), "records from the follower that is back")
