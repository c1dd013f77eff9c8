"""What a consumer counts of its life in a group, and which commits its interceptors hear of: all of them."""

import asyncio
import time
from collections.abc import Mapping
from typing import Any

import pytest

from headwater.client.consumer.consumer import Consumer
from headwater.client.errors import RefusedError, TimedOutError
from headwater.types import TopicPartition

from .actions import create_topic
from .client_members import PROTOCOLS, run
from .conftest import Broker
from .raw_groups import new_group
from .test_client_consumer import numbered, produce
from .wire import Wire

QUICK: dict[str, Any] = {"auto_offset_reset": "earliest", "metadata_max_age_ms": 500}
LIVELY: dict[str, dict[str, Any]] = {
    "classic": {"group_protocol": "classic", "heartbeat_interval_ms": 100, "session_timeout_ms": 10_000},
    "consumer": {"group_protocol": "consumer"},
}


async def poll_until(condition: Any, *consumers: Consumer) -> None:
    async with asyncio.timeout(25):
        while not condition():
            for consumer in consumers:
                await consumer.poll(0.05)


class Ledger:
    """An interceptor that writes down what was committed."""

    def __init__(self) -> None:
        self.committed: list[dict[TopicPartition, int]] = []

    def on_commit(self, offsets: Mapping[TopicPartition, Any]) -> None:
        self.committed.append({place: found.offset for place, found in offsets.items()})


@PROTOCOLS
def test_rebalances_heartbeats_and_commits_are_counted(broker: Broker, wire: Wire, protocol: str) -> None:
    topic, group = create_topic(wire, partitions=2), new_group(wire)
    settings = {**QUICK, **LIVELY[protocol], "group": group, "topics": [topic.name], "enable_auto_commit": False}

    async def case() -> None:
        began_s = time.time()
        async with Consumer(broker.bootstrap, client_id="ann", **settings) as ann:
            counts = ann.statistics.group
            assert ann.statistics.snapshot()["group"]["last_rebalance_at_s"] == 0
            await poll_until(lambda: ann.statistics.assigned_partitions == 2 and counts.heartbeats, ann)
            alone = counts.rebalances
            assert alone >= 1
            assert began_s <= counts.last_rebalance_at_s <= time.time()
            assert began_s <= counts.last_heartbeat_at_s <= time.time()
            assert 0 < counts.last_rebalance_duration_s <= counts.rebalance_latency.total_s
            await ann.commit({TopicPartition(topic.name, 0): 0})
            with pytest.raises(TimedOutError):
                await ann.commit({TopicPartition("no-such-topic", 0): 0}, timeout_s=0.2)
            assert (counts.commits, counts.commits_failed >= 1) == (1, True)
            assert counts.commit_latency.count == 1 + counts.commits_failed
            async with Consumer(broker.bootstrap, **settings) as bob:
                await poll_until(lambda: bob.statistics.assigned_partitions == 1, ann, bob)
            await poll_until(lambda: ann.statistics.assigned_partitions == 2, ann)
            assert counts.rebalances >= alone + 2
            text = ann.statistics.prometheus()
            for line in (
                f'headwater_consumer_rebalances_total{{client_id="ann"}} {counts.rebalances}',
                'headwater_consumer_assigned_partitions{client_id="ann"} 2',
                'headwater_consumer_commits_total{client_id="ann"} 1',
                f'headwater_consumer_rebalance_latency_seconds_count{{client_id="ann"}} {counts.rebalances}',
                f'headwater_consumer_last_rebalance_at_seconds{{client_id="ann"}} {counts.last_rebalance_at_s}',
            ):
                assert f"{line}\n" in text

    run(case())


def test_a_rebalance_that_fails_is_counted(broker: Broker, wire: Wire) -> None:
    topic, group = create_topic(wire), new_group(wire)
    settings = {**QUICK, "group": group, "topics": [topic.name]}

    async def case() -> None:
        async with (
            Consumer(broker.bootstrap, **settings, partition_assignment_strategy="range") as ann,
            Consumer(broker.bootstrap, **settings, partition_assignment_strategy="roundrobin") as bob,
        ):
            await poll_until(ann.assignment, ann)
            with pytest.raises(RefusedError):
                await bob.poll(20)
            assert bob.statistics.group.rebalances_failed >= 1
            assert bob.statistics.group.rebalances == 0

    run(case())


@PROTOCOLS
def test_interceptors_hear_of_every_commit(broker: Broker, wire: Wire, protocol: str) -> None:
    """Those that are asked for, and those that are automatic: when due, before partitions go, and at the end."""
    topic, group = create_topic(wire, partitions=1), new_group(wire)
    place = TopicPartition(topic.name, 0)
    produce(broker, topic.name, numbered(4))
    ledger = Ledger()
    settings = {**QUICK, **LIVELY[protocol], "group": group, "topics": [topic.name], "interceptor_classes": ledger}

    async def read_one(consumer: Consumer) -> None:
        async with asyncio.timeout(25):
            while not await consumer.poll(1.0, max_records=1):
                pass

    async def case() -> None:
        async with Consumer(broker.bootstrap, **settings, enable_auto_commit=False) as consumer:
            await read_one(consumer)
            await consumer.commit()
            assert ledger.committed == [{place: 1}]
            consumer.commit_async({place: 0})
            await poll_until(lambda: ledger.committed[1:] == [{place: 0}], consumer)
            await consumer.commit({})
        assert ledger.committed == [{place: 1}, {place: 0}]
        ledger.committed.clear()

        async with Consumer(broker.bootstrap, **settings, auto_commit_interval_ms=50) as consumer:
            await read_one(consumer)
            consumer.pause([place])
            await poll_until(lambda: {place: 1} in ledger.committed, consumer)
        ledger.committed.clear()

        async with Consumer(broker.bootstrap, **settings, auto_commit_interval_ms=10**6) as consumer:
            await read_one(consumer)
            assert ledger.committed == []
        assert ledger.committed == [{place: 2}]

    run(case())
