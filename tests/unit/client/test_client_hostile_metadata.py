"""Metadata with places and numbers that cannot be: a client waits or fails with its own errors, and never spins."""

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import pytest

from event_loops import Run, both_loops, run_limited
from headwater import TopicPartition, aio
from headwater.client.errors import ClientError
from scripted_cluster import TOPIC, ScriptedCluster, scripted_cluster

SOON: dict[str, Any] = {"request_timeout_ms": 200, "retry_backoff_ms": 20}
PLACES = [{"host": "a\0b"}, {"host": "a" * 70}, {"port": -1}, {"port": 65_536}, {"port": 2**31 - 1}]


def brokers(**lies: Any) -> Callable[[Any], Any]:
    return lambda answer: dataclasses.replace(
        answer, brokers=tuple(dataclasses.replace(each, **lies) for each in answer.brokers)
    )


def partitions(*numbers: int) -> Callable[[Any], Any]:
    def change(answer: Any) -> Any:
        (topic,) = answer.topics
        found = tuple(dataclasses.replace(topic.partitions[0], partition_index=number) for number in numbers)
        return dataclasses.replace(answer, topics=(dataclasses.replace(topic, partitions=found),))

    return change


def lie(cluster: ScriptedCluster, change: Callable[[Any], Any]) -> None:
    honest = cluster._metadata
    cluster._metadata = lambda request: change(honest(request))  # type: ignore[method-assign]


async def produce(cluster: ScriptedCluster) -> str:
    """The words of the error that one record ends with; no other kind of error is caught."""
    settings = {**SOON, "delivery_timeout_ms": 300, "max_block_ms": 300, "linger_ms": 0}
    try:
        async with aio.Producer(cluster.bootstrap, enable_idempotence=False, **settings) as producer:
            await (await producer.send(TOPIC, b"value"))
    except ClientError as error:
        return str(error)
    return ""


async def meets_places_that_cannot_be(place: dict[str, Any]) -> None:
    async with scripted_cluster() as cluster:
        lie(cluster, brokers(**place))
        cluster.write(0, b"value")
        before_s = time.process_time()
        assert "delivery.timeout.ms" in await produce(cluster)
        async with aio.Consumer(cluster.bootstrap, default_api_timeout_ms=300, **SOON) as consumer:
            consumer.assign([TopicPartition(TOPIC, 0)])
            assert not await consumer.poll(0.2)
        async with aio.Admin(cluster.bootstrap, default_api_timeout_ms=300, **SOON) as admin:
            (found,) = (await admin.list_offsets({TopicPartition(TOPIC, 0): "latest"})).values()
            assert isinstance(found, ClientError)
        # A client that tries again at once, and logs each try, takes all there is.
        assert time.process_time() - before_s < 0.4


async def meets_partitions_that_cannot_be(numbers: tuple[int, ...]) -> None:
    async with scripted_cluster() as cluster:
        lie(cluster, partitions(*numbers))
        assert await produce(cluster)
        assert not cluster.produced


@both_loops
@pytest.mark.parametrize("place", PLACES, ids=repr)
def test_a_place_that_cannot_be_is_a_broker_that_cannot_be_reached(place: dict[str, Any], run: Run) -> None:
    run_limited(run, meets_places_that_cannot_be(place))


@both_loops
@pytest.mark.parametrize("numbers", [(), (-3,), (-(2**31), -1), (5, 1_000_005), (2**31 - 1,)], ids=repr)
def test_partitions_that_cannot_be_take_no_record(numbers: tuple[int, ...], run: Run) -> None:
    run_limited(run, meets_partitions_that_cannot_be(numbers))
