"""The shapes of load on groups and transactions, each run by a worker process against one broker.

Members are light: a hundred of them in one event loop, so that the broker is what is measured. Whatever a shape leaves
behind in the broker it takes away again, outside of the time that counts.
"""

import asyncio
import os
import statistics
import time
import uuid
from collections.abc import Callable, Coroutine
from typing import Any

import uvloop
from kio.schema.errors import ErrorCode
from kio.schema.find_coordinator.v6.request import FindCoordinatorRequest
from kio.schema.heartbeat.v4.request import HeartbeatRequest
from kio.schema.offset_commit.v9.request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i8, i32, i64

import classic_members
import consumer_members
from classic_members import ClassicMember, Protocol
from consumer_members import ConsumerMember
from group_wire import AnswerError, Connection, check, frame

GROUP, TRANSACTION = 0, 1
_NOT_YET = {
    ErrorCode.coordinator_not_available,
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.not_coordinator,
}

Figures = dict[str, float]


def run(shape: str, **task: Any) -> Figures:
    """Runs one shape; `port` and `topic` say where."""
    return uvloop.run(_SHAPES[shape](**task))


async def find_coordinator(connection: Connection, key: str, kind: int) -> None:
    """Waits until the key has a coordinator; the first one to ask makes the broker create the internal topic."""
    request = FindCoordinatorRequest(key_type=i8(kind), coordinator_keys=(key,))
    while (answer := await connection.ask(request)).coordinators[0].error_code in _NOT_YET:
        await asyncio.sleep(0.05)
    check(answer.coordinators[0].error_code, "FindCoordinator")


async def find_group_coordinator(connection: Connection, group: str) -> None:
    """The same for a group, and waits until the coordinator knows that a stranger is not its member.

    While Apache loads a coordinator, it answers any heartbeat with success.
    """
    await find_coordinator(connection, group, GROUP)
    request = HeartbeatRequest(group_id=GroupId(group), generation_id=i32(0), member_id="nobody")
    while (await connection.ask(request)).error_code is not ErrorCode.unknown_member_id:
        await asyncio.sleep(0.05)


async def _classic_members(
    port: int, group: str, topic: str, partitions: int, members: int, protocol: Protocol
) -> list[ClassicMember]:
    connections = [await Connection.open(port) for _ in range(members)]
    await find_group_coordinator(connections[0], group)
    return [ClassicMember(connection, group, topic, partitions, protocol) for connection in connections]


async def _form(members: list[ClassicMember]) -> None:
    """All join at once; it is over when all have been given partitions in one generation."""

    async def live(member: ClassicMember) -> None:
        await member.join()
        while not (all(other.settled for other in members) and len({other.generation for other in members}) == 1):
            await asyncio.sleep(0.01)
            # While a rebalance waits for it, a member must come back soon, or all others wait with it.
            if member.settled and await member.heartbeat():
                await member.join()

    await asyncio.gather(*(live(member) for member in members))


def _new_group() -> str:
    return f"bench-{uuid.uuid4().hex[:8]}"


async def form_classic(port: int, topic: str, partitions: int, members: int) -> Figures:
    """A group of eager members is formed."""
    everybody = await _classic_members(port, _new_group(), topic, partitions, members, "range")
    begin = time.perf_counter()
    await _form(everybody)
    seconds = time.perf_counter() - begin
    classic_members.check_shares(everybody, partitions)
    await asyncio.gather(*(member.leave() for member in everybody))
    return {"ms": seconds * 1000}


async def one_joins_classic(
    port: int, topic: str, partitions: int, members: int, protocol: Protocol, times: int
) -> Figures:
    """One more joins a group that stands, again and again; the median of its rebalances."""
    group = _new_group()
    standing = await _classic_members(port, group, topic, partitions, members, protocol)
    await _form(standing)
    # Cooperative members may have to give up something before all have equal shares.
    await _settle_cooperatively(standing)
    taken = []
    for _ in range(times):
        newcomer = ClassicMember(await Connection.open(port), group, topic, partitions, protocol)
        begin = time.perf_counter()
        await _rebalance([newcomer], standing)
        await _settle_cooperatively([*standing, newcomer])
        taken.append(time.perf_counter() - begin)
        classic_members.check_shares([*standing, newcomer], partitions)
        await newcomer.leave()
        await asyncio.gather(*(member.notice_and_rejoin() for member in standing))
        classic_members.check_shares(standing, partitions)
    await asyncio.gather(*(member.leave() for member in standing))
    return {"ms": statistics.median(taken) * 1000}


async def _rebalance(first: list[ClassicMember], others: list[ClassicMember]) -> None:
    """The first ones join; the others learn of it by a heartbeat and follow."""
    joining = [asyncio.ensure_future(member.join()) for member in first]
    await first[0].join_sent.wait()
    await asyncio.gather(*joining, *(member.notice_and_rejoin() for member in others))


async def _settle_cooperatively(members: list[ClassicMember]) -> None:
    """The second phase: who gave up partitions joins again, so that others get them."""
    while rejoining := [member for member in members if member.must_rejoin]:
        await _rebalance(rejoining, [member for member in members if not member.must_rejoin])


async def _consumer_members(port: int, group: str, topic: str, members: int) -> list[ConsumerMember]:
    connections = [await Connection.open(port) for _ in range(members)]
    await find_group_coordinator(connections[0], group)
    return [ConsumerMember(connection, group, topic) for connection in connections]


async def form_consumer(port: int, topic: str, partitions: int, members: int) -> Figures:
    """A group of the new protocol is formed."""
    group = _new_group()
    everybody = await _consumer_members(port, group, topic, members)
    begin = time.perf_counter()
    await asyncio.gather(*(member.join() for member in everybody))
    await consumer_members.reconcile(everybody, partitions)
    seconds = time.perf_counter() - begin
    await consumer_members.check_stable(await Connection.open(port), group)
    await asyncio.gather(*(member.leave() for member in everybody))
    return {"ms": seconds * 1000}


async def one_joins_consumer(port: int, topic: str, partitions: int, members: int, times: int) -> Figures:
    """One more joins a group of the new protocol, again and again; the median of its rebalances."""
    group = _new_group()
    standing = await _consumer_members(port, group, topic, members)
    observer = await Connection.open(port)
    await asyncio.gather(*(member.join() for member in standing))
    await consumer_members.reconcile(standing, partitions)
    taken = []
    for _ in range(times):
        newcomer = ConsumerMember(await Connection.open(port), group, topic)
        begin = time.perf_counter()
        await newcomer.join()
        await consumer_members.reconcile([*standing, newcomer], partitions)
        taken.append(time.perf_counter() - begin)
        await consumer_members.check_stable(observer, group)
        await newcomer.leave()
        await asyncio.gather(*(member.heartbeat() for member in standing))
        await consumer_members.reconcile(standing, partitions)
    await asyncio.gather(*(member.leave() for member in standing))
    return {"ms": statistics.median(taken) * 1000}


async def commits(port: int, topic: str, partitions: int, members: int, warm_s: float, run_s: float) -> Figures:
    """Every member of a group commits the offsets of its partitions, waits for the answer, and commits again."""
    import loadgen

    group = _new_group()
    everybody = await _classic_members(port, group, topic, partitions, members, "range")
    await _form(everybody)
    requests = [frame(_commit_request(group, topic, member)) for member in everybody]
    # Length, correlation id, tags, throttle time, one topic, its name, the count of its partitions, the first one.
    error_position = 4 + 4 + 1 + 4 + 1 + 1 + len(topic) + 1 + 4
    count, seconds, latencies = loadgen.closed_loop(port, requests, error_position, warm_s, run_s)
    await asyncio.gather(*(member.leave() for member in everybody))
    ordered = sorted(latencies)
    return {"rate": count / seconds, "p99_ms": ordered[int(len(ordered) * 0.99)] / 1e6}


def _commit_request(group: str, topic: str, member: ClassicMember) -> OffsetCommitRequest:
    partitions = tuple(
        OffsetCommitRequestPartition(partition_index=i32(number), committed_offset=i64(1000), committed_metadata="")
        for number in sorted(member.owned)
    )
    return OffsetCommitRequest(
        group_id=GroupId(group),
        generation_id_or_member_epoch=i32(member.generation),
        member_id=member.member_id,
        topics=(OffsetCommitRequestTopic(name=TopicName(topic), partitions=partitions),),
    )


async def commits_by_librdkafka(port: int, topic: str, run_s: float) -> Figures:
    """One member of confluent-kafka's commits synchronously in a loop."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": f"127.0.0.1:{port}",
            "group.id": _new_group(),
            "enable.auto.commit": False,
            "auto.offset.reset": "latest",
        }
    )
    consumer.subscribe([topic])
    while not consumer.assignment():
        consumer.poll(0.05)
    offsets = [TopicPartition(topic, partition.partition, 1000) for partition in consumer.assignment()[:3]]
    for _ in range(50):
        consumer.commit(offsets=offsets, asynchronous=False)
    count, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < run_s:
        consumer.commit(offsets=offsets, asynchronous=False)
        count += 1
    seconds = time.perf_counter() - begin
    consumer.close()
    return {"rate": count / seconds}


async def transactions(port: int, topic: str, producers: int, records: int, warm_s: float, run_s: float) -> Figures:
    """Producers on connections of their own: Produce, EndTxn, and again, each to a partition of its own."""
    from transactional_producer import TransactionalProducer

    values = [os.urandom(100) for _ in range(records)]
    everybody = [
        TransactionalProducer(await Connection.open(port), topic, partition, values) for partition in range(producers)
    ]
    for producer in everybody:
        await find_coordinator(producer.connection, producer.transactional_id, TRANSACTION)
        await producer.begin()
    await asyncio.gather(*(producer.commit_until(time.perf_counter() + warm_s) for producer in everybody))
    begin = time.perf_counter()
    counts = await asyncio.gather(*(producer.commit_until(begin + run_s) for producer in everybody))
    seconds = time.perf_counter() - begin
    if not all(counts):
        raise AnswerError(f"a producer committed nothing in {run_s} s: {counts}")
    return {"rate": sum(counts) / seconds}


async def transactions_by_librdkafka(port: int, topic: str, records: int, run_s: float) -> Figures:
    """One transactional producer of confluent-kafka's, one transaction after the other."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": f"127.0.0.1:{port}", "transactional.id": _new_group()})
    producer.init_transactions()
    value = os.urandom(100)

    def commit_one() -> None:
        producer.begin_transaction()
        for _ in range(records):
            producer.produce(topic, value, partition=0)
        producer.commit_transaction()

    for _ in range(10):
        commit_one()
    count, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < run_s:
        commit_one()
        count += 1
    return {"rate": count / (time.perf_counter() - begin)}


_SHAPES: dict[str, Callable[..., Coroutine[Any, Any, Figures]]] = {
    "form_classic": form_classic,
    "form_consumer": form_consumer,
    "one_joins_classic": one_joins_classic,
    "one_joins_consumer": one_joins_consumer,
    "commits": commits,
    "commits_by_librdkafka": commits_by_librdkafka,
    "transactions": transactions,
    "transactions_by_librdkafka": transactions_by_librdkafka,
}
