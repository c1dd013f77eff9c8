"""headwater's consumer reads either broker alike: positions, seeks, resets, pauses, columns, transactions, groups."""

import asyncio
import functools
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any

import confluent_kafka
import pytest
from kio.schema.errors import ErrorCode

from headwater.client.consumer.consumer import Consumer
from headwater.client.consumer.errors import NoOffsetError, OffsetOutOfRangeError, SubscriptionError
from headwater.client.consumer.membership import OffsetAndMetadata
from headwater.client.consumer.records import Record, TimestampType
from headwater.client.errors import CannotConnectError, ClientError, ClosedError, RecordError, RefusedError
from headwater.types import TopicPartition
from peers.readiness import free_port

from .actions import create_topic, describe_topic, eventually, unique_name
from .conftest import Broker
from .wire import Wire

PATIENCE_S = 20


def in_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **kwargs), PATIENCE_S))

    return run


@pytest.fixture
def topic(broker: Broker) -> str:
    """A topic with three partitions."""
    return new_topic(broker)


def new_topic(broker: Broker, name: str | None = None, *, partitions: int = 3) -> str:
    with Wire(broker.bootstrap) as wire:
        return create_topic(wire, name=name, partitions=partitions).name


def produce(broker: Broker, topic: str, records: Iterable[dict[str, Any]], **settings: object) -> None:
    """Sends records in their order and waits until they are written."""
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0, **settings})
    for record in records:
        producer.produce(topic, **record)
    assert producer.flush(PATIENCE_S) == 0


def delete_before(broker: Broker, topic: str, offset: int) -> None:
    """Deletes the records of partition 0 before an offset."""
    partition = {"partition_index": 0, "offset": offset}
    with Wire(broker.bootstrap) as wire:
        answer = wire.send("delete_records", topics=[{"name": topic, "partitions": [partition]}], timeout=10_000)
    assert answer.topics[0].partitions[0].low_watermark == offset, answer


def numbered(count: int, *, first: int = 0, partition: int = 0) -> list[dict[str, Any]]:
    return [{"value": b"%d" % number, "partition": partition} for number in range(first, first + count)]


def values(records: Iterable[Record]) -> list[int]:
    return [int(record.value) for record in records]


async def read(consumer: Consumer, count: int) -> list[Record]:
    """Polls until so many records are there; more would be too many."""
    records: list[Record] = []
    while len(records) < count:
        records += await consumer.poll(5.0)
    assert len(records) == count
    return records


async def until(condition: Callable[[], Awaitable[object]]) -> None:
    while not await condition():
        await asyncio.sleep(0.02)


@in_a_loop
async def test_everything_about_a_record_arrives(broker: Broker, topic: str) -> None:
    headers = [("trace", b"1"), ("trace", b"2"), ("none", None)]
    produce(
        broker,
        topic,
        [
            {"value": b"v", "key": b"k", "partition": 1, "timestamp": 1_700_000_000_123, "headers": headers},
            {"value": None, "key": b"gone", "partition": 1, "timestamp": 1_700_000_000_124},
        ],
    )
    async with Consumer(broker.bootstrap, topics=[topic], auto_offset_reset="earliest") as consumer:
        first, second = await read(consumer, 2)
    assert (first.topic, first.partition, first.offset, first.key, first.value) == (topic, 1, 0, b"k", b"v")
    assert (first.timestamp_ms, first.timestamp_type) == (1_700_000_000_123, TimestampType.CREATE_TIME)
    assert list(first.headers) == headers
    assert (second.key, second.value, second.headers) == (b"gone", None, ())
    assert first.leader_epoch is not None


@in_a_loop
async def test_each_partition_is_read_in_order_and_none_is_left_waiting(broker: Broker, topic: str) -> None:
    for partition in range(3):
        produce(broker, topic, numbered(1000, partition=partition))
    settings: dict[str, Any] = {"auto_offset_reset": "earliest", "max_poll_records": 100}
    async with Consumer(broker.bootstrap, topics=[topic], **settings) as consumer:
        records: list[Record] = []
        while len(records) < 3000:
            polled = await consumer.poll(5.0)
            assert len(polled) <= 100
            records += polled
    for partition in range(3):
        assert values(record for record in records if record.partition == partition) == list(range(1000))
    early = Counter(record.partition for record in records[:1500])
    assert min(early[partition] for partition in range(3)) >= 300, early


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@in_a_loop
async def test_compressed_batches_are_read(broker: Broker, topic: str, codec: str) -> None:
    produce(broker, topic, numbered(500), **{"compression.type": codec, "linger.ms": 20})
    async with Consumer(broker.bootstrap, topics=[topic], auto_offset_reset="earliest") as consumer:
        assert values(await read(consumer, 500)) == list(range(500))


@in_a_loop
async def test_a_record_larger_than_every_limit_is_still_read(broker: Broker, topic: str) -> None:
    produce(broker, topic, [{"value": bytes(100_000), "partition": 0}, *numbered(1)])
    small: dict[str, Any] = {"max_partition_fetch_bytes": 1000, "fetch_max_bytes": 1000, "prefetch_max_bytes": 1000}
    async with Consumer(broker.bootstrap, topics=[topic], auto_offset_reset="earliest", **small) as consumer:
        assert [len(record.value) for record in await read(consumer, 2)] == [100_000, 1]


@in_a_loop
async def test_seeks_go_to_offsets_ends_and_times(broker: Broker, topic: str) -> None:
    begin_ms = 1_700_000_000_000
    produce(broker, topic, [{**record, "timestamp": begin_ms + 10 * n} for n, record in enumerate(numbered(100))])
    place = TopicPartition(topic, 0)
    async with Consumer(broker.bootstrap) as consumer:
        consumer.assign([place])
        consumer.seek(place, 42)
        assert await consumer.position(place) == 42
        assert values(await consumer.poll(5.0))[:2] == [42, 43]
        consumer.seek_to_beginning([place])
        assert await consumer.position(place) == 0
        assert values(await consumer.poll(5.0))[0] == 0
        consumer.seek_to_end()
        assert await consumer.position(place) == 100
        assert await consumer.poll(0.3) == []
        await consumer.seek_to_time(begin_ms + 705)
        assert values(await consumer.poll(5.0))[0] == 71
        await consumer.seek_to_time(begin_ms + 5000)
        assert await consumer.position(place) == 100
        found = await consumer.offsets_for_times({place: begin_ms + 500, TopicPartition(topic, 1): 0})
        assert found[TopicPartition(topic, 1)] is None
        there = found[place]
        assert there is not None
        assert (there.offset, there.timestamp_ms) == (50, begin_ms + 500)


@in_a_loop
async def test_ends_positions_and_lag(broker: Broker, topic: str) -> None:
    produce(broker, topic, numbered(30))
    delete_before(broker, topic, 10)
    place, empty = TopicPartition(topic, 0), TopicPartition(topic, 2)
    async with Consumer(broker.bootstrap, auto_offset_reset="earliest", max_poll_records=5) as consumer:
        assert await consumer.beginning_offsets([place, empty]) == {place: 10, empty: 0}
        assert await consumer.end_offsets([place, empty]) == {place: 30, empty: 0}
        consumer.assign([place])
        assert consumer.lag(place) is None
        assert await consumer.position(place) == 10
        assert values(await consumer.poll(5.0)) == [10, 11, 12, 13, 14]
        assert (await consumer.position(place), consumer.lag(place)) == (15, 15)
        assert await consumer.partitions_for(topic) == [TopicPartition(topic, number) for number in range(3)]
        assert topic in await consumer.topics()


@in_a_loop
async def test_a_paused_partition_holds_its_records_back_and_drops_none(broker: Broker, topic: str) -> None:
    produce(broker, topic, numbered(200, partition=0))
    produce(broker, topic, numbered(200, partition=1))
    held, flowing = TopicPartition(topic, 0), TopicPartition(topic, 1)
    async with Consumer(broker.bootstrap, auto_offset_reset="earliest", max_poll_records=10) as consumer:
        consumer.assign([held, flowing])
        records = await read(consumer, 20)
        consumer.pause([held])
        assert consumer.paused() == {held}
        seen = Counter(record.partition for record in records)
        others = await read(consumer, 200 - seen[1])
        assert {record.partition for record in others} <= {1}
        assert await consumer.poll(0.2) == []
        before = consumer.statistics.bytes_fetched
        consumer.resume([held])
        records += await read(consumer, 200 - seen[0])
        assert consumer.statistics.bytes_fetched == before, "what had been fetched was kept"
    assert values(record for record in records if record.partition == 0) == list(range(200))


@in_a_loop
async def test_without_a_policy_a_missing_or_lost_offset_is_an_error(broker: Broker, topic: str) -> None:
    produce(broker, topic, numbered(30))
    place = TopicPartition(topic, 0)
    async with Consumer(broker.bootstrap, auto_offset_reset="none") as consumer:
        consumer.assign([place])
        for _ in range(2):
            with pytest.raises(NoOffsetError, match=f"{topic}-0"):
                await consumer.poll(5.0)
        consumer.seek(place, 31)
        for _ in range(2):
            with pytest.raises(OffsetOutOfRangeError, match="offset 31"):
                await consumer.poll(5.0)
        consumer.seek(place, 28)
        assert values(await read(consumer, 2)) == [28, 29]


@pytest.mark.parametrize(("policy", "first"), [("earliest", 10), ("latest", 30), ("by_duration:P1D", 20)])
@in_a_loop
async def test_a_position_outside_of_the_log_is_reset_by_the_policy(
    broker: Broker, topic: str, policy: str, first: int
) -> None:
    old = [{**record, "timestamp": 1_700_000_000_000} for record in numbered(20)]
    produce(broker, topic, [*old, *numbered(10, first=20)])
    delete_before(broker, topic, 10)
    place = TopicPartition(topic, 0)
    async with Consumer(broker.bootstrap, auto_offset_reset=policy) as consumer:
        consumer.assign([place])
        consumer.seek(place, 3)

        async def is_reset() -> bool:
            await consumer.poll(0.0)
            return await consumer.position(place) != 3

        records = await consumer.poll(0.5)
        if not records:
            await until(is_reset)
            produce(broker, topic, numbered(1, first=30))
            records = await read(consumer, 1)
        assert records[0].offset == first


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
@in_a_loop
async def test_readers_of_committed_records_see_no_others(broker: Broker, topic: str, level: str) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap, "transactional.id": unique_name("tx"), "log_level": 0}
    )
    producer.init_transactions(PATIENCE_S)
    for number, ends in enumerate([producer.commit_transaction, producer.abort_transaction] * 3):
        producer.begin_transaction()
        for value in range(10):
            producer.produce(topic, b"%d" % (number * 10 + value), partition=0)
        # What is not written yet would not be written at all if it is aborted.
        assert producer.flush(PATIENCE_S) == 0
        ends(PATIENCE_S)
    async with Consumer(
        broker.bootstrap, topics=[topic], auto_offset_reset="earliest", isolation_level=level
    ) as consumer:
        committed = [number for number in range(60) if number // 10 % 2 == 0]
        expected = committed if level == "read_committed" else list(range(60))
        assert values(await read(consumer, len(expected))) == expected

        async def is_behind_the_markers() -> bool:
            assert await consumer.poll(0.05) == []
            return await consumer.position(TopicPartition(topic, 0)) == 66

        await until(is_behind_the_markers)


@in_a_loop
async def test_a_table_has_all_that_waits_and_moves_the_positions(broker: Broker, topic: str) -> None:
    produce(broker, topic, numbered(1500, partition=0))
    produce(broker, topic, [{"value": None, "key": b"k", "headers": [("h", b"x")], "partition": 1}])
    async with Consumer(broker.bootstrap, topics=[topic], auto_offset_reset="earliest") as consumer:
        rows: list[dict[str, Any]] = []
        while len(rows) < 1501:
            rows += (await consumer.poll_arrow(5.0)).to_pylist()
        assert await consumer.position(TopicPartition(topic, 0)) == 1500
        assert (await consumer.poll_arrow(0.1)).num_rows == 0
    assert [int(row["value"]) for row in rows if row["partition"] == 0] == list(range(1500))
    (keyed,) = [row for row in rows if row["partition"] == 1]
    assert (keyed["topic"], keyed["offset"], keyed["key"], keyed["value"]) == (topic, 0, b"k", None)
    assert keyed["headers"] == [{"key": "h", "value": b"x"}]


@in_a_loop
async def test_iterating_moves_the_position_record_by_record(broker: Broker, topic: str) -> None:
    produce(broker, topic, numbered(100))
    place = TopicPartition(topic, 0)
    async with Consumer(broker.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([place])
        seen = []
        async for record in consumer:
            seen.append(int(record.value))
            assert await consumer.position(place) == record.offset + 1
            if len(seen) == 30:
                break
        assert seen == list(range(30))
        assert values(await read(consumer, 70)) == list(range(30, 100))


@in_a_loop
async def test_a_deserializer_that_fails_stops_at_its_record_and_nowhere_else(broker: Broker, topic: str) -> None:
    produce(broker, topic, [*numbered(5), {"value": b"five", "partition": 0}, *numbered(2, first=6)])
    place = TopicPartition(topic, 0)
    async with Consumer(broker.bootstrap, auto_offset_reset="earliest", value_deserializer=int) as consumer:
        consumer.assign([place])
        assert [record.value for record in await read(consumer, 5)] == [0, 1, 2, 3, 4]
        for _ in range(2):
            with pytest.raises(RecordError, match="record 5"):
                await consumer.poll(5.0)
        assert await consumer.position(place) == 5
        consumer.seek(place, 6)
        assert [record.value for record in await read(consumer, 2)] == [6, 7]


@in_a_loop
async def test_interceptors_see_records_and_may_change_them_but_not_stop_them(broker: Broker, topic: str) -> None:
    class Doubling:
        def on_consume(self, records: list[Record]) -> list[Record]:
            return [record for record in records for _ in range(2)]

    class Failing:
        def on_consume(self, records: list[Record]) -> list[Record]:
            raise OSError("disk full")

    produce(broker, topic, numbered(3))
    async with Consumer(
        broker.bootstrap, topics=[topic], auto_offset_reset="earliest", interceptor_classes=[Failing(), Doubling()]
    ) as consumer:
        assert values(await read(consumer, 6)) == [0, 0, 1, 1, 2, 2]


@in_a_loop
async def test_a_pattern_takes_topics_that_are_made_later(broker: Broker) -> None:
    prefix = unique_name("pattern")
    produce(broker, new_topic(broker, f"{prefix}-a"), numbered(1))
    new_topic(broker, f"other-{prefix}-a")
    async with Consumer(broker.bootstrap, auto_offset_reset="earliest", metadata_max_age_ms=100) as consumer:
        consumer.subscribe(re.compile(f"{prefix}-.*"))
        assert (await read(consumer, 1))[0].topic == f"{prefix}-a"
        produce(broker, new_topic(broker, f"{prefix}-b"), numbered(1))
        assert (await read(consumer, 1))[0].topic == f"{prefix}-b"
        assert consumer.subscription() == {f"{prefix}-a", f"{prefix}-b"}
        await consumer.unsubscribe()
        assert consumer.assignment() == set()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@in_a_loop
async def test_a_group_goes_on_where_it_committed(broker: Broker, topic: str, protocol: str) -> None:
    produce(broker, topic, numbered(100))
    place, group = TopicPartition(topic, 0), unique_name("group")
    settings: dict[str, Any] = {
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "group_protocol": protocol,
    }
    async with Consumer(broker.bootstrap, group, [topic], max_poll_records=40, **settings) as consumer:
        assert values(await read(consumer, 40)) == list(range(40))
        await consumer.commit()
        assert values(await read(consumer, 40)) == list(range(40, 80))
        assert (await consumer.committed([place]))[place] == OffsetAndMetadata(40, 0)
        await consumer.commit({place: OffsetAndMetadata(50, metadata="half way")})
    async with Consumer(broker.bootstrap, group, [topic], **settings) as consumer:
        assert values(await read(consumer, 50)) == list(range(50, 100))
        assert consumer.assignment() == {TopicPartition(topic, number) for number in range(3)}
        found = (await consumer.committed([place]))[place]
        assert found is not None
        assert found.metadata == "half way"


@in_a_loop
async def test_what_was_handed_out_last_is_committed_by_closing_unless_an_error_ended_it(
    broker: Broker, topic: str
) -> None:
    produce(broker, topic, numbered(30))
    place, group = TopicPartition(topic, 0), unique_name("group")
    settings: dict[str, Any] = {"auto_offset_reset": "earliest", "max_poll_records": 10}

    async def fail_in_the_second_poll() -> None:
        async with Consumer(broker.bootstrap, group, [topic], **settings) as consumer:
            await read(consumer, 10)
            await read(consumer, 10)
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        await fail_in_the_second_poll()
    async with Consumer(broker.bootstrap, group, [topic], **settings) as consumer:
        assert values(await read(consumer, 10)) == list(range(10, 20))
    async with Consumer(broker.bootstrap, group, **settings) as consumer:
        assert (await consumer.committed([place]))[place] == OffsetAndMetadata(20, 0)


@in_a_loop
async def test_a_topic_that_is_not_there_yet_is_read_once_it_is_made(broker: Broker) -> None:
    name = unique_name()
    settings: dict[str, Any] = {"auto_offset_reset": "earliest", "allow_auto_create_topics": False}
    async with Consumer(broker.bootstrap, topics=[name], **settings) as consumer:
        assert await consumer.poll(0.2) == []
        produce(broker, new_topic(broker, name), numbered(3))
        assert values(await read(consumer, 3)) == [0, 1, 2]


@in_a_loop
async def test_a_topic_that_is_made_anew_is_read_from_its_new_beginning(broker: Broker, topic: str) -> None:
    produce(broker, topic, numbered(10))
    async with Consumer(broker.bootstrap, topics=[topic], auto_offset_reset="earliest") as consumer:
        await read(consumer, 10)
        with Wire(broker.bootstrap) as wire:
            wire.send("delete_topics", topics=[{"name": topic}], timeout=10_000)
            eventually(lambda: describe_topic(wire, topic).error_code is ErrorCode.unknown_topic_or_partition)
        produce(broker, new_topic(broker, topic), numbered(3, first=100))
        assert values(await read(consumer, 3)) == [100, 101, 102]


@in_a_loop
async def test_closing_ends_a_poll_that_waits(broker: Broker, topic: str) -> None:
    async with Consumer(broker.bootstrap, topics=[topic]) as consumer:
        polling = asyncio.create_task(consumer.poll(60.0))
        await until(lambda: asyncio.sleep(0, consumer.assignment()))
        with pytest.raises(ClientError, match="another task"):
            await consumer.poll(1.0)
        await consumer.close()
        with pytest.raises(ClosedError):
            await polling
        with pytest.raises(ClosedError):
            await consumer.poll(1.0)


@in_a_loop
async def test_statistics_count_what_was_done(broker: Broker, topic: str) -> None:
    produce(broker, topic, numbered(30))
    async with Consumer(
        broker.bootstrap, topics=[topic], auto_offset_reset="earliest", max_poll_records=10, client_id="me"
    ) as consumer:
        assert len(await consumer.poll(5.0)) == 10
        snapshot = consumer.statistics.snapshot()
        assert (snapshot["records"], snapshot["lag"][f"{topic}-0"]) == (10, 20)
        assert snapshot["bytes_fetched"] > 0
        lines = consumer.statistics.prometheus().splitlines()
        assert 'headwater_consumer_records_total{client_id="me"} 10' in lines
        assert f'headwater_consumer_lag{{client_id="me",topic="{topic}",partition="0"}} 20' in lines


@in_a_loop
async def test_what_cannot_be_done_is_said(broker: Broker, topic: str) -> None:
    place = TopicPartition(topic, 0)
    async with Consumer(broker.bootstrap) as consumer:
        with pytest.raises(SubscriptionError, match="nothing to read"):
            await consumer.poll(1.0)
        with pytest.raises(SubscriptionError, match="not assigned"):
            consumer.seek(place, 0)
        consumer.assign([place])
        with pytest.raises(SubscriptionError, match="without a group"):
            await consumer.commit()
        with pytest.raises(SubscriptionError, match="unsubscribe"):
            consumer.subscribe([topic])
    async with Consumer(broker.bootstrap, topics=["no topic!"]) as consumer:
        for _ in range(2):
            with pytest.raises(RefusedError, match="not a topic name"):
                await consumer.poll(5.0)
    async with Consumer(f"127.0.0.1:{free_port()}", topics=[topic]) as consumer:
        with pytest.raises(CannotConnectError):
            await consumer.poll(5.0)
