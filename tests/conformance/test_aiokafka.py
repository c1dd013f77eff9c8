"""aiokafka: produce, consume by assignment, administer, on an event loop."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from .actions import create_topic, fetch_all, unique_name, wait_for_config, wait_for_partitions
from .batches import AN_HOUR_AGO_MS, read_batches
from .conftest import Broker
from .wire import Wire

Acks = int | str


async def send_all(broker: Broker, topic: str, messages: Iterable[dict[str, Any]], **settings: Any) -> list[Any]:
    async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap, linger_ms=5, **settings) as producer:
        futures = [await producer.send(topic, **message) for message in messages]
        return list(await asyncio.gather(*futures))


async def read(broker: Broker, topic: str, count: int, *, offset: int = 0, **settings: Any) -> list[Any]:
    async with AIOKafkaConsumer(bootstrap_servers=broker.bootstrap, **settings) as consumer:
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        consumer.seek(partition, offset)
        return [await asyncio.wait_for(consumer.getone(), 20) for _ in range(count)]


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_round_trip(broker: Broker, wire: Wire, codec: str | None, acks: Acks) -> None:
    topic = create_topic(wire)
    messages = [{"value": b"value %d " % number * 20, "key": b"%d" % (number % 7)} for number in range(200)]

    async def go() -> list[Any]:
        await send_all(broker, topic.name, messages, compression_type=codec, acks=acks)
        return await read(broker, topic.name, 200)

    got = asyncio.run(go())
    assert [(record.key, record.value) for record in got] == [(m["key"], m["value"]) for m in messages]
    assert [record.offset for record in got] == list(range(200))
    assert {one.codec for one in read_batches(fetch_all(wire, topic))} == {codec or "none"}


def test_keys_nulls_headers_and_timestamps(broker: Broker, wire: Wire) -> None:
    topic = create_topic(wire)
    messages: list[dict[str, Any]] = [
        {
            "key": b"k",
            "value": b"v",
            "headers": [("a", b"1"), ("a", b"2")],
            "timestamp_ms": AN_HOUR_AGO_MS,
        },
        {"key": b"only a key", "value": None, "timestamp_ms": AN_HOUR_AGO_MS + 1},
        {"key": None, "value": b"", "timestamp_ms": AN_HOUR_AGO_MS - 5000},
    ]

    async def go() -> list[Any]:
        await send_all(broker, topic.name, messages)
        return await read(broker, topic.name, 3)

    got = asyncio.run(go())
    assert [(record.key, record.value, record.timestamp) for record in got] == [
        (m["key"], m["value"], m["timestamp_ms"]) for m in messages
    ]
    assert got[0].headers == (("a", b"1"), ("a", b"2"))


def test_an_idempotent_producer(broker: Broker, wire: Wire) -> None:
    topic = create_topic(wire)
    messages = [{"value": b"%d" % number} for number in range(500)]

    async def go() -> list[Any]:
        await send_all(broker, topic.name, messages, enable_idempotence=True, max_batch_size=300)
        return await read(broker, topic.name, 500)

    assert [int(record.value) for record in asyncio.run(go())] == list(range(500))


def test_from_the_middle_with_read_committed(broker: Broker, wire: Wire) -> None:
    topic = create_topic(wire)

    async def go() -> list[Any]:
        await send_all(broker, topic.name, [{"value": b"%d" % number} for number in range(50)])
        return await read(broker, topic.name, 20, offset=30, isolation_level="read_committed")

    assert [record.offset for record in asyncio.run(go())] == list(range(30, 50))


def test_offsets(broker: Broker, wire: Wire) -> None:
    topic = create_topic(wire)
    partition = TopicPartition(topic.name, 0)

    async def go() -> tuple[Any, Any, Any]:
        messages = [{"value": b"v", "timestamp_ms": AN_HOUR_AGO_MS + n * 1000} for n in range(10)]
        await send_all(broker, topic.name, messages)
        async with AIOKafkaConsumer(bootstrap_servers=broker.bootstrap) as consumer:
            return (
                await consumer.beginning_offsets([partition]),
                await consumer.end_offsets([partition]),
                await consumer.offsets_for_times({partition: AN_HOUR_AGO_MS + 4500}),
            )

    beginning, end, by_time = asyncio.run(go())
    assert (beginning, end) == ({partition: 0}, {partition: 10})
    assert by_time[partition].offset == 5


@contextlib.asynccontextmanager
async def administrator(broker: Broker) -> AsyncIterator[AIOKafkaAdminClient]:
    client = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
    await client.start()
    try:
        yield client
    finally:
        await client.close()


def test_administration(broker: Broker, wire: Wire) -> None:
    name = unique_name()

    async def make() -> Any:
        async with administrator(broker) as admin:
            return await admin.create_topics([NewTopic(name, 2, 1, topic_configs={"flush.ms": "99"})])

    async def change() -> Any:
        async with administrator(broker) as admin:
            await admin.create_partitions({name: NewPartitions(4)})
            resource = ConfigResource(ConfigResourceType.TOPIC, name, configs={"flush.ms": "100"})
            await admin.alter_configs([resource])
            assert name in await admin.list_topics()
            return await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, name)])

    async def remove() -> Any:
        async with administrator(broker) as admin:
            return await admin.delete_topics([name])

    assert asyncio.run(make()).topic_errors[0][1] == 0
    wait_for_partitions(wire, name, 2)
    described = asyncio.run(change())
    assert {entry[0] for entry in described[0].resources[0][4]} >= {"flush.ms", "retention.ms"}
    wait_for_partitions(wire, name, 4)
    wait_for_config(wire, name, "flush.ms", "100")
    assert asyncio.run(remove()).topic_error_codes == [(name, 0)]
