"""What the command line sends in bulk arrives whole, and its account says what became of each record."""

import asyncio
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater import LocalBroker
from headwater.cli.bulk_sending import Acknowledged, BulkSender
from headwater.cli.consume_patience import Patience
from headwater.client.admin.topics import NewTopic, create_topics
from headwater.client.consumer.consumer import Consumer
from headwater.client.errors import RefusedError, TimedOutError
from headwater.client.producer.producer import Producer
from headwater.types import TopicPartition


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    with LocalBroker() as started:
        yield started


def run(operation: Coroutine[Any, Any, None]) -> None:
    asyncio.run(operation)


async def sender_to(producer: Producer, topic: str, partitions: int = 1, **configs: str) -> BulkSender:
    named = {name.replace("_", "."): value for name, value in configs.items()}
    (await create_topics(producer.client, [NewTopic(topic, partitions=partitions, configs=named)])).or_raise()
    await producer.wait_for_topic(topic)
    return BulkSender(producer, topic)


async def values_in(broker: LocalBroker, topic: str, count: int, partition: int = 0) -> list[bytes]:
    async with Consumer(broker.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, partition)])
        found: list[bytes] = []
        while len(found) < count:
            found += [record.value for record in await consumer.poll(10)]
        return found


def test_values_and_records_are_counted_by_partition(broker: LocalBroker) -> None:
    async def scenario() -> None:
        async with Producer(broker.bootstrap, batch_size=1000) as producer:
            sender = await sender_to(producer, "counted", partitions=2)
            values = [b"%d" % number for number in range(1000)]
            await sender.send_values(1, values)
            await sender.send([(b"key", b"value", (("name", b"1"),)), (None, None, ())], partition=0)
            await sender.send_values(1, [b"last"])
            await sender.flush()
        assert sender.acknowledged_records == 1003
        assert sender.acknowledged == {
            0: Acknowledged(records=2, first_offset=0, last_offset=1),
            1: Acknowledged(records=1001, first_offset=0, last_offset=1000),
        }
        assert await values_in(broker, "counted", 1001, partition=1) == [*values, b"last"]

    run(scenario())


def test_records_with_and_without_keys_stay_in_order_in_the_partition_asked_for(broker: LocalBroker) -> None:
    async def scenario() -> None:
        async with Producer(broker.bootstrap, batch_size=200) as producer:
            sender = await sender_to(producer, "in-order", partitions=3)
            values = [b"%d" % number for number in range(100)]
            await sender.send([(b"key" if at % 3 else None, value, ()) for at, value in enumerate(values)], partition=2)
            await sender.flush()
        assert await values_in(broker, "in-order", 100, partition=2) == values

    run(scenario())


def test_a_flush_that_is_cut_short_counts_what_is_acknowledged_and_the_next_one_the_rest(tmp_path: Path) -> None:
    async def scenario() -> None:
        with LocalBroker(data=tmp_path) as broker:
            port = int(broker.bootstrap.rpartition(":")[2])
            producer = Producer(broker.bootstrap)
            sender = await sender_to(producer, "cut-short")
            await sender.send_values(0, [b"in"] * 10)
            await producer.flush()
        await sender.send_values(0, [b"late"] * 10)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(sender.flush(), 0.1)
        assert sender.acknowledged_records == 10
        with LocalBroker(data=tmp_path, port=port):
            await sender.flush()
            await producer.close()
        assert sender.acknowledged == {0: Acknowledged(records=20, first_offset=0, last_offset=19)}

    run(scenario())


def test_the_record_that_is_to_blame_is_named_and_not_those_that_went_down_with_it(broker: LocalBroker) -> None:
    async def scenario() -> None:
        async with Producer(broker.bootstrap, linger_ms=10_000) as producer:
            sender = await sender_to(producer, "blamed", cleanup_policy="compact")
            await sender.send([(b"key", b"1", ()), (b"key", b"2", ()), (None, b"no key", ()), (b"key", b"4", ())])
            with pytest.raises(RefusedError, match="key") as refused:
                await sender.flush()
        assert "another record" not in str(refused.value)
        assert sender.acknowledged_records == 0

    run(scenario())


def test_what_is_acknowledged_beside_a_refusal_counts(broker: LocalBroker) -> None:
    async def scenario() -> None:
        async with Producer(broker.bootstrap, batch_size=100, max_request_size=1 << 20) as producer:
            sender = await sender_to(producer, "partly", max_message_bytes="5000")
            await sender.send_values(0, [b"small"] * 50 + [b"x" * 10_000] + [b"small"] * 50)
            with pytest.raises(RefusedError, match=r"max\.message\.bytes"):
                await sender.flush()
        assert sender.acknowledged == {0: Acknowledged(records=100, first_offset=0, last_offset=99)}

    run(scenario())


def test_a_batch_too_large_for_the_topic_goes_in_parts_that_are_all_counted(broker: LocalBroker) -> None:
    async def scenario() -> None:
        async with Producer(broker.bootstrap, batch_size=100_000) as producer:
            sender = await sender_to(producer, "in-parts", max_message_bytes="5000")
            values = [b"%01000d" % number for number in range(64)]
            await sender.send_values(0, values)
            await sender.flush()
        assert sender.acknowledged == {0: Acknowledged(records=64, first_offset=0, last_offset=63)}
        assert await values_in(broker, "in-parts", 64) == values

    run(scenario())


def test_more_than_the_producers_memory_is_sent_as_it_becomes_free(broker: LocalBroker) -> None:
    async def scenario() -> None:
        async with Producer(broker.bootstrap, batch_size=1000, buffer_memory=4000) as producer:
            sender = await sender_to(producer, "little-memory")
            await sender.send_values(0, [b"%0100d" % number for number in range(500)])
            await sender.flush()
        assert sender.acknowledged_records == 500

    run(scenario())


def test_patience_ends_when_no_broker_answers() -> None:
    async def poll_until_over(consumer: Consumer, patience: Patience) -> None:
        while not patience.is_over(bool(await consumer.poll(0.05))):
            pass

    async def scenario() -> None:
        with LocalBroker() as broker:
            async with Producer(broker.bootstrap) as producer:
                await sender_to(producer, "gone")
            consumer = Consumer(broker.bootstrap, auto_offset_reset="earliest", request_timeout_ms=1000)
            consumer.assign([TopicPartition("gone", 0)])
            patience = Patience(consumer, None)
            for _ in range(3):
                assert not patience.is_over(bool(await consumer.poll(0.5)))
        async with consumer:
            with pytest.raises(TimedOutError, match="gave up after 1 s"):
                await poll_until_over(consumer, patience)

    run(scenario())
