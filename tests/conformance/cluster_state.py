"""Where leaders and coordinators of a cluster of Apache Kafka are, and how they get to where a case wants them."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from confluent_kafka import ElectionType
from confluent_kafka.admin import AdminClient

from headwater.aio import Admin
from headwater.client.admin.topic_descriptions import PartitionDescription
from headwater.client.coordinators import Coordinated, find_coordinator
from peers.apache_cluster import CONTROLLER, ApacheCluster

from .actions import unique_name
from .wire import Wire

T = TypeVar("T")
PATIENCE_S: Final = 60


async def until(condition: Callable[[], Awaitable[T]], what: str) -> T:
    """Waits for a true value and returns it."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not (value := await condition()):
        assert time.monotonic() < deadline_s, f"{what} did not come within {PATIENCE_S} s"
        await asyncio.sleep(0.05)
    return value


async def make_whole(cluster: ApacheCluster) -> None:
    """Every node runs, every replica is in sync, and every partition is led by the first of its replicas."""
    cluster.launch()
    await asyncio.to_thread(cluster.wait_until_answering)
    await _until_all(cluster, lambda each: set(each.isr_nodes) == set(each.replica_nodes), "all replicas in sync")
    elections = AdminClient({"bootstrap.servers": cluster.nodes[CONTROLLER].bootstrap, "log_level": 0})
    await asyncio.to_thread(elections.elect_leaders(ElectionType.PREFERRED).result, PATIENCE_S)
    await _until_all(
        cluster, lambda each: each.leader_id == each.replica_nodes[0], "the election of the first replicas"
    )


async def spread_coordinators(cluster: ApacheCluster) -> None:
    """Makes the topics of coordinators before brokers do: each node coordinates a third of groups and transactions."""
    nodes = [*cluster.nodes]
    rotated = {number: nodes[number:] + nodes[:number] for number in range(len(nodes))}
    async with Admin(cluster.bootstrap) as admin:
        for topic in ("__consumer_offsets", "__transaction_state"):
            await admin.create_topic(topic, assignments=rotated, configs={"cleanup.policy": "compact"})


async def replicated_topic(admin: Admin, *replicas: list[int]) -> str:
    """A topic with a partition for each list of nodes, led by the first of them, which takes requests."""
    name = unique_name()
    await admin.create_topic(name, assignments=dict(enumerate(replicas)))

    async def is_led() -> bool:
        found = [topic for topic in await admin.list_topics() if topic.name == name]
        return bool(found) and all(_led_by_the_first(each) for each in found[0].partitions)

    await until(is_led, f"the leaders of {name}")
    return name


async def wait_for_leader(admin: Admin, topic: str, node: int) -> None:
    """Waits until this node leads partition 0."""

    async def leads() -> bool:
        return (await admin.describe_topic(topic)).partitions[0].leader == node

    await until(leads, f"{node} as the leader of {topic}")


async def name_coordinated_by(admin: Admin, kind: Coordinated, node: int) -> str:
    """The name of a new group or transactional id whose coordinator is this node."""

    async def try_another() -> str | None:
        name = unique_name(kind.name.lower())
        return name if await coordinator(admin, kind, name) == node else None

    return await until(try_another, f"a name coordinated by {node}") or ""


async def coordinator(admin: Admin, kind: Coordinated, name: str) -> int:
    """The node that coordinates a group or transactional id; the first time, the brokers make a topic for it."""
    return (await admin.client.retry(lambda: find_coordinator(admin.client, kind, name))).broker


def _led_by_the_first(partition: PartitionDescription) -> bool:
    return partition.leader == partition.replicas[0]


async def _until_all(cluster: ApacheCluster, condition: Callable[[Any], bool], what: str) -> None:
    """Waits until the condition holds for every partition in the eyes of each node: some hear of news later."""
    with contextlib.ExitStack() as wires:
        connections = [wires.enter_context(Wire(node.bootstrap)) for node in cluster.nodes.values()]

        async def holds() -> bool:
            topics = [topic for wire in connections for topic in wire.send("metadata", topics=None).topics]
            return all(condition(partition) for topic in topics for partition in topic.partitions)

        await until(holds, what)
