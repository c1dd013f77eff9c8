"""A client finds its way back whatever happens to the cluster: brokers gone, moved, made anew; leaders that change."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from random import Random
from typing import Any

import pytest

from event_loops import Run, both_loops, run_limited
from headwater.client.client import Client
from headwater.client.coordinators import Coordinated, Coordinator
from headwater.client.errors import CannotConnectError, ClientError, ClosedError, ConnectionLostError, TimedOutError
from headwater.client.metadata import Leader
from headwater.client.settings import ConnectionSettings
from headwater.protocol.kafka_types import NO_THROTTLE, BrokerId, ErrorCode, i32
from peers.stand_in import HANG_UP, SILENCE, Asked, Cluster, StandIn

from kio.schema.find_coordinator.v3.response import FindCoordinatorResponse  # isort: skip

QUICK = ConnectionSettings(
    request_timeout_ms=2_000,
    reconnect_backoff_ms=5,
    reconnect_backoff_max_ms=20,
    retry_backoff_ms=5,
    retry_backoff_max_ms=20,
)
Case = Callable[["World"], Coroutine[Any, Any, None]]


class World:
    """Two stand-ins that are brokers 1 and 2 of one cluster, and a client of it."""

    def __init__(self) -> None:
        self.cluster = Cluster()
        self.one = StandIn({"metadata": self.cluster.metadata})
        self.two = StandIn({"metadata": self.cluster.metadata})
        self.stack = AsyncExitStack()

    async def start(self) -> None:
        for node, broker in ((1, self.one), (2, self.two)):
            await self.stack.enter_async_context(broker)
            self.cluster.brokers[node] = broker.address
        self.cluster.leaders["orders"] = [(1, 0), (2, 0)]

    async def client(self, settings: ConnectionSettings = QUICK, *, bootstrap: str = "", seed: int = 1) -> Client:
        made = Client(bootstrap or str(self.one.address), settings, chance=Random(seed))
        return await self.stack.enter_async_context(made)

    @property
    def asked_for_metadata(self) -> int:
        return self.one.count("metadata") + self.two.count("metadata")


def in_a_world(case: Case) -> Callable[..., None]:
    """Runs the case on asyncio's own event loop and on uvloop; what hangs has failed."""

    @both_loops
    def run_it(run: Run) -> None:
        async def in_it() -> None:
            world = World()
            async with world.stack:
                await world.start()
                await case(world)

        run_limited(run, in_it())

    run_it.__name__, run_it.__doc__ = case.__name__, case.__doc__
    return run_it


async def eventually(holds: Callable[[], object]) -> None:
    while not holds():
        await asyncio.sleep(0.001)


async def failure(attempt: Awaitable[object]) -> ClientError:
    with pytest.raises(ClientError) as caught:
        await attempt
    return caught.value


@in_a_world
async def test_a_watched_topic_is_known_from_memory(world: World) -> None:
    client = await world.client()
    assert (client.leader_of("orders", 0), client.partition_count("orders"), client.topic_id("orders")) == (None,) * 3
    client.watch(["orders"])
    await client.fresh_metadata()
    assert (client.leader_of("orders", 0), client.leader_of("orders", 1)) == (Leader(1, 0), Leader(2, 0))
    assert (client.leader_of("orders", 2), client.leader_of("payments", 0)) == (None, None)
    assert (client.partition_count("orders"), client.topic_id("orders")) == (2, world.cluster.topic_ids["orders"])
    assert set(client.brokers) == {1, 2}


@in_a_world
async def test_many_who_need_a_picture_share_one_request(world: World) -> None:
    client = await world.client()
    client.watch(["orders"])
    await asyncio.gather(*(client.fresh_metadata() for _ in range(20)))
    assert world.asked_for_metadata == 1
    await client.fresh_metadata()
    assert world.asked_for_metadata == 1
    for _ in range(20):
        client.need_refresh()
    await asyncio.gather(*(client.fresh_metadata() for _ in range(20)))
    assert world.asked_for_metadata == 2
    assert client.statistics.metadata_refreshes == 2


@in_a_world
async def test_a_need_during_a_request_is_met_by_the_next_one(world: World) -> None:
    gate = asyncio.Event()

    async def slow(asked: Asked) -> object:
        answer = world.cluster.metadata(asked)
        await gate.wait()
        return answer

    world.one.answers["metadata"] = slow
    client = await world.client()
    client.watch(["orders"])
    await eventually(lambda: world.asked_for_metadata == 1)
    world.cluster.leaders["orders"] = [(2, 1), (2, 0)]
    client.need_refresh()
    gate.set()
    await client.fresh_metadata()
    assert client.leader_of("orders", 0) == Leader(2, 1)


@in_a_world
async def test_whoever_stops_waiting_for_a_picture_leaves_it_to_the_others(world: World) -> None:
    client = await world.client()
    client.watch(["orders"])
    waiters = [asyncio.ensure_future(client.fresh_metadata()) for _ in range(3)]
    await asyncio.sleep(0)
    waiters[0].cancel()
    await asyncio.gather(*waiters[1:])
    assert client.partition_count("orders") == 2


@in_a_world
async def test_a_need_again_and_again_is_no_storm_of_requests(world: World) -> None:
    client = await world.client(ConnectionSettings(retry_backoff_ms=200))
    for _ in range(3):
        client.need_refresh(["missing"])
        await client.fresh_metadata()
    loop = asyncio.get_running_loop()
    begin_s, before = loop.time(), world.asked_for_metadata
    while loop.time() - begin_s < 0.5:
        client.need_refresh(["missing"])
        await asyncio.sleep(0.001)
    assert world.asked_for_metadata - before <= 4


@in_a_world
async def test_a_new_topic_does_not_wait_for_the_pause_between_requests(world: World) -> None:
    client = await world.client(ConnectionSettings(retry_backoff_ms=15_000, retry_backoff_max_ms=15_000))
    client.watch(["orders"])
    await client.fresh_metadata()
    world.cluster.leaders["payments"] = [(1, 0)]
    client.need_refresh(["payments"])
    async with asyncio.timeout(5):
        await client.fresh_metadata()
    assert client.partition_count("payments") == 1


@in_a_world
async def test_a_picture_that_gets_too_old_is_replaced_and_only_with_what_is_watched(world: World) -> None:
    client = await world.client(ConnectionSettings(metadata_max_age_ms=30))
    client.watch(["orders"])
    client.need_refresh(["payments"])
    await client.fresh_metadata()
    client.watch(["shipments"])
    await eventually(lambda: world.asked_for_metadata >= 4)
    last = world.one.asked[-1].message()
    assert {topic.name for topic in last.topics} == {"orders", "shipments"}
    client.unwatch(["shipments"])
    await eventually(lambda: len(world.one.asked[-1].message().topics) == 1)


@in_a_world
async def test_all_topics_can_be_watched(world: World) -> None:
    client = await world.client()
    world.cluster.leaders["payments"] = [(1, 0)]
    client.watch(None)
    await client.fresh_metadata()
    assert set(client.known_topics) == {"orders", "payments"}
    del world.cluster.leaders["orders"]
    client.need_refresh()
    await client.fresh_metadata()
    assert set(client.known_topics) == {"payments"}


@in_a_world
async def test_hooks_are_told_of_each_new_picture_and_one_that_fails_stops_nobody(
    world: World,
) -> None:
    client = await world.client()
    seen: list[Leader | None] = []

    def broken() -> None:
        raise ValueError("this hook is broken")

    client.on_metadata += [broken, lambda: seen.append(client.leader_of("orders", 0))]
    client.watch(["orders"])
    await client.fresh_metadata()
    world.cluster.leaders["orders"] = [(2, 1)]
    client.need_refresh()
    await client.fresh_metadata()
    assert seen == [Leader(1, 0), Leader(2, 1)]


@in_a_world
async def test_a_topic_that_is_not_there_says_so(world: World) -> None:
    client = await world.client()
    client.need_refresh(["missing"])
    await client.fresh_metadata()
    assert client.topic_error("missing") is ErrorCode.unknown_topic_or_partition
    assert client.topic_error("orders") is None


@in_a_world
async def test_a_broker_that_dies_is_noticed_without_anybody_asking(world: World) -> None:
    client = await world.client()
    client.watch(["orders"])
    await client.fresh_metadata()
    await client.connection(2)
    world.cluster.leaders["orders"] = [(1, 0), (1, 1)]
    del world.cluster.brokers[2]
    await world.two.stop()
    await eventually(lambda: client.leader_of("orders", 1) == Leader(1, 1))
    assert str(await failure(client.connection(2))) == "broker 2 is not part of the cluster, or not running"
    await world.two.start()


@in_a_world
async def test_a_cluster_made_anew_at_the_same_address_heals(world: World) -> None:
    world.cluster.leaders["orders"] = [(1, 7)]
    client = await world.client()
    client.watch(["orders"])
    await client.fresh_metadata()
    await world.one.stop()
    await world.two.stop()
    world.cluster.cluster_id = "another"
    world.cluster.brokers = {5: world.one.address}
    world.cluster.leaders["orders"] = [(5, 0)]
    await asyncio.sleep(0.05)
    await world.one.start()
    await world.two.start()
    await eventually(lambda: client.leader_of("orders", 0) == Leader(5, 0))
    assert (await client.connection(5)).address == world.one.address


@in_a_world
async def test_a_broker_that_moves_to_another_address_is_found_there(world: World) -> None:
    client = await world.client()
    client.watch(["orders"])
    await client.fresh_metadata()
    assert (await client.connection(2)).address == world.two.address
    moved = StandIn({"metadata": world.cluster.metadata})
    await world.stack.enter_async_context(moved)
    world.cluster.brokers[2] = moved.address
    world.two.cut()
    client.need_refresh()
    await client.fresh_metadata()
    assert (await client.connection(2)).address == moved.address


@in_a_world
async def test_while_nobody_answers_each_attempt_is_heard_of_and_the_need_stays(world: World) -> None:
    client = await world.client()
    client.watch(["orders"])
    await world.one.stop()
    for _ in range(3):
        error = await failure(client.fresh_metadata())
        assert isinstance(error, CannotConnectError)
        assert str(world.one.address) in str(error)
    await world.one.start()
    await eventually(lambda: client.partition_count("orders") == 2)
    assert client.statistics.metadata_failures >= 3


@in_a_world
async def test_any_address_of_the_bootstrap_list_will_do_and_chance_decides_which_is_first(world: World) -> None:
    both = f"{world.one.address},{world.two.address}"
    for seed in range(8):
        client = await world.client(bootstrap=both, seed=seed)
        await client.metadata(())
    assert world.one.connections > 0
    assert world.two.connections > 0
    await world.one.stop()
    for seed in range(8):
        client = await world.client(bootstrap=both, seed=seed)
        await client.metadata(())
    await world.two.stop()
    for seed in range(8):
        client = await world.client(bootstrap=both, seed=seed)
        assert str(world.one.address) in str(await failure(client.metadata(())))
    await world.one.start()
    await world.two.start()


@in_a_world
async def test_those_who_want_the_same_connection_share_it_and_one_attempt(world: World) -> None:
    client = await world.client()
    await client.metadata(())
    before = world.two.connections
    connections = await asyncio.gather(*(client.connection(2) for _ in range(10)))
    assert len(set(map(id, connections))) == 1
    other = await client.connection(2, lane="group")
    assert other is not connections[0]
    assert other is await client.connection(2, lane="group")
    assert world.two.connections - before == 2


@in_a_world
async def test_whoever_stops_waiting_for_a_connection_leaves_it_to_the_others(world: World) -> None:
    client = await world.client()
    await client.metadata(())
    waiters = [asyncio.ensure_future(client.connection(2)) for _ in range(2)]
    await asyncio.sleep(0)
    waiters[0].cancel()
    assert (await waiters[1]).usable


@in_a_world
async def test_a_broker_that_keeps_failing_is_tried_less_and_less_often(world: World) -> None:
    settings = ConnectionSettings(reconnect_backoff_ms=40, reconnect_backoff_max_ms=400, request_timeout_ms=2_000)
    client = await world.client(settings)
    await client.metadata(())
    world.two.answers["api_versions"] = lambda _: HANG_UP
    loop = asyncio.get_running_loop()
    begin_s = loop.time()
    for _ in range(5):
        await failure(client.connection(2))
    # 40, 80, 160 and 320 ms lie between five attempts, less a fifth.
    assert loop.time() - begin_s > 0.6 * 0.8
    assert world.two.connections == 5
    assert client.statistics.snapshot()["connections"][str(world.two.address)]["failures"] == 5


@in_a_world
async def test_a_lost_connection_is_made_again_after_a_pause(world: World) -> None:
    settings = ConnectionSettings(reconnect_backoff_ms=100, reconnect_backoff_max_ms=100)
    client = await world.client(settings)
    await client.metadata(())
    connection = await client.connection(2)
    loop = asyncio.get_running_loop()
    world.two.cut()
    await eventually(lambda: not connection.usable)
    begin_s = loop.time()
    again = await client.connection(2)
    assert again.usable
    assert 0.05 < loop.time() - begin_s < 2
    assert client.statistics.snapshot()["connections"][str(world.two.address)]["reconnects"] == 1


@in_a_world
async def test_connections_that_nobody_uses_are_closed_and_made_again(world: World) -> None:
    client = await world.client(ConnectionSettings(connections_max_idle_ms=100))
    await client.metadata(())
    busy = asyncio.Event()

    async def slow(_: Asked) -> object:
        await busy.wait()
        return world.cluster.metadata(_)

    world.two.answers["metadata"] = slow
    idle, used = await client.connection(1), await client.connection(2)
    answer = used.submit_raw(3, 1, [b"\0\0\0\0"], flexible=False, timeout_s=10)
    await eventually(lambda: not idle.usable)
    assert used.usable
    busy.set()
    await answer
    await eventually(lambda: world.one.open_connections == world.two.open_connections == 0)
    assert (await client.connection(1)).usable
    failures = [one["failures"] for one in client.statistics.snapshot()["connections"].values()]
    assert failures == [0, 0], "closing an idle connection is no failure"


@in_a_world
async def test_a_question_goes_by_the_connection_that_owes_the_fewest_answers(world: World) -> None:
    client = await world.client()
    await client.metadata(())
    await client.connection(2)
    world.one.answers["fetch"] = lambda _: SILENCE
    stuck = (await client.connection(1)).submit_raw(1, 4, [b"?"], flexible=False, timeout_s=10)
    async with asyncio.timeout(5):
        await client.metadata(())
    assert not stuck.done()


@in_a_world
async def test_a_coordinator_is_remembered_until_it_is_forgotten(world: World) -> None:
    node = 1

    def coordinator(_: Asked) -> FindCoordinatorResponse:
        address = world.cluster.brokers[node]
        return FindCoordinatorResponse(
            throttle_time=NO_THROTTLE,
            error_code=ErrorCode.none,
            error_message=None,
            node_id=BrokerId(node),
            host=address.host,
            port=i32(address.port),
        )

    world.one.answers["find_coordinator"] = coordinator
    client = await world.client()
    for _ in range(3):
        assert await client.coordinator(Coordinated.GROUP, "g") == Coordinator(1, world.one.address)
    node = 2
    assert (await client.coordinator(Coordinated.TRANSACTION, "g")).broker == 2
    assert (await client.coordinator(Coordinated.GROUP, "g")).broker == 1
    client.forget_coordinator(Coordinated.GROUP, "g")
    assert await client.coordinator(Coordinated.GROUP, "g") == Coordinator(2, world.two.address)
    assert world.one.count("find_coordinator") == 3


@in_a_world
async def test_closing_lets_go_of_everybody_who_waits(world: World) -> None:
    world.one.answers["metadata"] = lambda _: SILENCE
    world.two.answers["api_versions"] = lambda _: SILENCE
    client = Client(f"{world.one.address}", QUICK)
    client.watch(["orders"])
    waiters: list[asyncio.Future[Any]] = [
        asyncio.ensure_future(client.fresh_metadata()),
        asyncio.ensure_future(client.metadata(())),
    ]
    await eventually(lambda: world.one.count("metadata") == 2)
    waiters.append(asyncio.ensure_future(client._connections.get(world.two.address)))
    await eventually(lambda: world.two.count("api_versions") == 1)
    await client.close()
    fates = await asyncio.gather(*waiters, return_exceptions=True)
    assert [type(fate) for fate in fates] == [ClosedError, ConnectionLostError, ClosedError]
    assert isinstance(await failure(client.metadata(())), ClosedError)
    assert isinstance(await failure(client.fresh_metadata()), ClosedError)
    await client.close()


@in_a_world
async def test_an_answer_that_never_comes_ends_in_time_and_names_the_address(world: World) -> None:
    world.one.answers["metadata"] = lambda _: SILENCE
    client = await world.client(ConnectionSettings(request_timeout_ms=100))
    error = await failure(client.metadata(()))
    assert isinstance(error, TimedOutError)
    assert str(error) == f"no answer from {world.one.address} within 0.1 s"
