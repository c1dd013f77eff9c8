"""Our producer against either broker; what it writes is read by confluent-kafka, and compared with what that writes."""

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import confluent_kafka
import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Message, TopicPartition
from kio.schema.errors import ErrorCode

from headwater.aio import Producer
from headwater.client.client import Client
from headwater.client.errors import ClosedError, ProducerFencedError, RecordTooLargeError, RefusedError, TimedOutError
from headwater.client.producer.arrow import SentRows
from headwater.client.producer.handles import RecordMetadata
from headwater.client.producer.interceptors import ProducerInterceptor, ProducerRecord
from headwater.client.producer.partitioners import partition_for_key
from headwater.client.producer.transaction_calls import GroupName
from headwater.client.producer.transaction_requests import TransactionRequests
from headwater.client.producer.transactions import TransactionStateError
from headwater.types import TopicPartition as OurTopicPartition
from peers.apache import run_tool
from peers.presence import require_apache

from .actions import Topic, create_topic, unique_name
from .conftest import Broker
from .isolation import both_views, read
from .raw_groups import committed, new_group
from .wire import Wire


def play(broker: Broker, story: Callable[[Producer], Awaitable[None]], **settings: Any) -> None:
    """Runs a story with a producer that is closed at its end."""

    async def whole() -> None:
        async with Producer(broker.bootstrap, **settings) as producer:
            await story(producer)

    asyncio.run(asyncio.wait_for(whole(), 60))


def messages(broker: Broker, topic: Topic, count: int, partitions: int = 1) -> list[Message]:
    """The first so many messages of a topic, as confluent-kafka reads them."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "unused", "enable.auto.commit": False})
    got: list[Message] = []
    try:
        consumer.assign([TopicPartition(topic.name, number, 0) for number in range(partitions)])
        deadline = time.monotonic() + 20
        while len(got) < count and time.monotonic() < deadline:
            got += consumer.consume(count - len(got), 0.5)
    finally:
        consumer.close()
    return got


def test_a_record_arrives_with_all_it_was_sent_with(broker: Broker, wire: Wire) -> None:
    topic = create_topic(wire)

    async def story(producer: Producer) -> None:
        headers = [("trace", b"1"), ("trace", b"2"), ("empty", None)]
        sent = await producer.send(
            topic.name, "six bottles", key="ann", timestamp_ms=1_700_000_000_123, headers=headers
        )
        assert await sent == RecordMetadata(topic.name, 0, 0, 1_700_000_000_123)
        written = await (await producer.send(topic.name, None, key=b"bob"))
        assert written.offset == 1
        assert abs(written.timestamp_ms - time.time() * 1000) < 60_000

    play(broker, story)
    first, second = messages(broker, topic, 2)
    assert (first.key(), first.value(), first.timestamp()[1]) == (b"ann", b"six bottles", 1_700_000_000_123)
    assert first.headers() == [("trace", b"1"), ("trace", b"2"), ("empty", None)]
    assert (second.key(), second.value(), second.headers()) == (b"bob", None, None)


def test_keys_land_where_confluents_murmur2_puts_them(broker: Broker, wire: Wire) -> None:
    ours, theirs = create_topic(wire, partitions=7), create_topic(wire, partitions=7)
    keys = [b"", b"\xff" * 5, *(f"key {number}".encode() for number in range(200))]

    async def story(producer: Producer) -> None:
        for key in keys:
            await producer.send(ours.name, b"", key=key)

    play(broker, story)
    other = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "partitioner": "murmur2_random"})
    for key in keys:
        other.produce(theirs.name, b"", key)
    assert other.flush(20) == 0
    placed = [{m.key(): m.partition() for m in messages(broker, topic, len(keys), 7)} for topic in (ours, theirs)]
    # librdkafka takes an empty key for none.
    assert {k: v for k, v in placed[0].items() if k} == {k: v for k, v in placed[1].items() if k}
    assert len(placed[0]) == len(keys)


@pytest.mark.peer
def test_keys_land_where_java_puts_them(broker: Broker, wire: Wire) -> None:
    require_apache()
    ours, theirs = create_topic(wire, partitions=7), create_topic(wire, partitions=7)
    keys = [f"ключ {number}" for number in range(100)]

    async def story(producer: Producer) -> None:
        for key in keys:
            await producer.send(ours.name, "", key=key)

    play(broker, story)
    names = ("--property", "parse.key=true", "--property", "key.separator=:")
    run_tool(
        "org.apache.kafka.tools.ConsoleProducer",
        *("--bootstrap-server", broker.bootstrap, "--topic", theirs.name, *names),
        stdin="".join(f"{key}:\n" for key in keys),
    )
    placed = [{m.key(): m.partition() for m in messages(broker, topic, len(keys), 7)} for topic in (ours, theirs)]
    assert placed[0] == placed[1]
    assert len(placed[0]) == len(keys)


def test_records_go_where_another_partitioner_has_them(broker: Broker, wire: Wire) -> None:
    topic = create_topic(wire, partitions=4)

    async def story(producer: Producer) -> None:
        places = [(await (await producer.send(topic.name, b"%d" % n, key=b"k"))).partition for n in range(8)]
        assert sorted(places) == [0, 0, 1, 1, 2, 2, 3, 3]

    async def own_story(producer: Producer) -> None:
        assert (await (await producer.send(topic.name, b"2", key=b"k"))).partition == 2

    play(broker, story, partitioner_class="round_robin")
    play(broker, own_story, partitioner_class=lambda topic, key, value, partitions: int(value) % partitions)


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_compression_is_read(broker: Broker, wire: Wire, compression: str) -> None:
    topic = create_topic(wire)
    values = [b"%d " % number * 50 for number in range(200)]

    async def story(producer: Producer) -> None:
        for value in values:
            await producer.send(topic.name, value)

    play(broker, story, compression_type=compression)
    assert read(broker, topic, "read_committed") == values


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_every_acks_is_served(broker: Broker, wire: Wire, acks: object) -> None:
    topic = create_topic(wire)

    async def story(producer: Producer) -> None:
        handles = [await producer.send(topic.name, b"%d" % number) for number in range(100)]
        await producer.flush()
        offsets = [(await handle).offset for handle in handles]
        assert offsets == ([-1] * 100 if acks == 0 else list(range(100)))

    play(broker, story, acks=acks, enable_idempotence=acks == "all")
    assert read(broker, topic, "read_committed") == [b"%d" % number for number in range(100)]


def test_many_partitions_of_several_topics_are_written_together(broker: Broker, wire: Wire) -> None:
    topics = [create_topic(wire, partitions=5) for _ in range(3)]

    async def story(producer: Producer) -> None:
        for number in range(300):
            await producer.send(topics[number % 3].name, b"%d" % number, partition=number % 5)

    play(broker, story, batch_size=100)
    for place, topic in enumerate(topics):
        for partition in range(5):
            expected = [b"%d" % n for n in range(300) if n % 3 == place and n % 5 == partition]
            assert read(broker, topic, "read_committed", partition=partition) == expected


def test_a_batch_that_the_broker_finds_too_large_is_sent_in_parts(broker: Broker, wire: Wire) -> None:
    topic = create_topic(wire, configs={"max.message.bytes": "1000"})
    values = [b"%d" % number * 100 for number in range(60)]

    async def story(producer: Producer) -> None:
        handles = [await producer.send(topic.name, value) for value in values]
        assert [(await handle).offset for handle in handles] == list(range(60))
        told = producer.statistics.snapshot()
        assert (told["records_written"], told["records_failed"], told["records_pending"]) == (60, 0, 0)
        assert told["batches_split"] > 0
        labels = '{client_id="headwater-producer"}'
        assert f"headwater_producer_records_written_total{labels} 60\n" in producer.statistics.prometheus()

    play(broker, story)
    assert read(broker, topic, "read_committed") == values


def test_a_record_that_is_too_large_fails_alone(broker: Broker, wire: Wire) -> None:
    topic = create_topic(wire, configs={"max.message.bytes": "1000"})

    async def story(producer: Producer) -> None:
        large, small = await producer.send(topic.name, b"x" * 2000), await producer.send(topic.name, b"small")
        with pytest.raises(RefusedError) as refused:
            await large
        assert refused.value.code is ErrorCode.message_too_large
        assert (await small).offset == 0
        with pytest.raises(RecordTooLargeError, match=r"max\.request\.size is 5000"):
            await producer.send(topic.name, b"x" * 6000)

    play(broker, story, linger_ms=50, max_request_size=5000)
    assert read(broker, topic, "read_committed") == [b"small"]


def test_the_record_that_spoilt_its_batch_is_named(broker: Broker, wire: Wire) -> None:
    topic = create_topic(wire, configs={"cleanup.policy": "compact"})

    async def story(producer: Producer) -> None:
        good, bad = await producer.send(topic.name, b"1", key=b"k"), await producer.send(topic.name, b"2")
        await producer.flush()
        for handle, blamed in ((good, False), (bad, True)):
            error = handle.exception()
            assert isinstance(error, RefusedError)
            assert error.code is ErrorCode.invalid_record
            assert ("another record of the same batch" in str(error)) is not blamed
        assert (await (await producer.send(topic.name, b"3", key=b"k"))).offset == 0

    play(broker, story, linger_ms=50)


def test_a_topic_with_its_own_clock_tells_its_time(broker: Broker, wire: Wire) -> None:
    topic = create_topic(wire, configs={"message.timestamp.type": "LogAppendTime"})

    async def story(producer: Producer) -> None:
        written = await (await producer.send(topic.name, b"1", timestamp_ms=1000))
        assert abs(written.timestamp_ms - time.time() * 1000) < 60_000

    play(broker, story)


def test_a_topic_that_is_made_anew_is_written_to_again(broker: Broker, wire: Wire) -> None:
    topic = create_topic(wire)

    async def story(producer: Producer) -> None:
        for _ in range(3):
            await (await producer.send(topic.name, b"before"))
        gone = await asyncio.to_thread(delete_and_make_anew)
        assert gone != topic.id
        assert (await (await producer.send(topic.name, b"after"))).offset == 0

    def delete_and_make_anew() -> uuid.UUID:
        with Wire(broker.bootstrap) as other:
            answer = other.send("delete_topics", topics=[{"name": topic.name}], timeout=10_000)
            assert answer.responses[0].error_code is ErrorCode.none
            deadline = time.monotonic() + 20
            while True:
                try:
                    return create_topic(other, name=topic.name).id
                except AssertionError:
                    # Apache has said that it is deleted before it is.
                    assert time.monotonic() < deadline

    play(broker, story)
    assert read(broker, topic, "read_committed") == [b"after"]


def test_what_is_not_there_is_said_after_max_block_ms(broker: Broker, wire: Wire) -> None:
    topic = create_topic(wire, partitions=2)

    async def story(producer: Producer) -> None:
        with pytest.raises(TimedOutError, match="it has 2 partitions, and 2 is not among them"):
            await producer.send(topic.name, b"", partition=2)
        with pytest.raises(RefusedError, match="not a topic name"):
            await producer.send("no/topic", b"")

    play(broker, story, max_block_ms=300)


def test_partitions_are_told(broker: Broker, wire: Wire) -> None:
    topic = create_topic(wire, partitions=2)

    async def story(producer: Producer) -> None:
        told = await producer.partitions_for(topic.name)
        assert [(info.partition, info.leader, info.in_sync_replicas) for info in told] == [(0, 1, (1,)), (1, 1, (1,))]

    play(broker, story)


def test_memory_is_bounded_and_a_full_one_is_waited_for(broker: Broker, wire: Wire) -> None:
    topic = create_topic(wire)

    async def story(producer: Producer) -> None:
        most = 0
        for number in range(3000):
            await producer.send(topic.name, b"%04d" % number * 100)
            most = max(most, producer.accumulator.used_bytes)
        assert most <= 65536

    play(broker, story, buffer_memory=65536)
    assert read(broker, topic, "read_committed") == [b"%04d" % number * 100 for number in range(3000)]


def test_closing_sends_what_is_left_and_takes_no_more(broker: Broker, wire: Wire) -> None:
    topic = create_topic(wire)

    async def story() -> None:
        producer = Producer(broker.bootstrap, linger_ms=20_000)
        handles = [await producer.send(topic.name, b"%d" % number) for number in range(50)]
        assert not any(handle.done() for handle in handles)
        await producer.close()
        assert [handle.result().offset for handle in handles] == list(range(50))
        with pytest.raises(ClosedError):
            await producer.send(topic.name, b"late")
        await producer.close()

    asyncio.run(story())


def test_serializers_interceptors_and_callbacks_see_each_record(broker: Broker, wire: Wire) -> None:
    topic = create_topic(wire)
    told: list[tuple[Exception | None, int | None]] = []

    class Signing(ProducerInterceptor):
        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            return ProducerRecord(topic=record.topic, value=record.value + 1, key=record.key, headers=[("by", b"us")])

        def on_acknowledgement(self, metadata: RecordMetadata | None, error: Exception | None) -> None:
            told.append((error, metadata and metadata.offset))

    class Failing(ProducerInterceptor):
        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            raise ZeroDivisionError

    called: list[object] = []

    async def story(producer: Producer) -> None:
        await producer.send(topic.name, 41, key="k", on_delivery=lambda *outcome: called.append(outcome))
        await producer.flush()

    serializers = {"value_serializer": lambda value: str(value).encode(), "key_serializer": str.encode}
    play(broker, story, interceptor_classes=[Failing(), Signing()], **serializers)
    (found,) = messages(broker, topic, 1)
    assert (found.value(), found.key(), found.headers()) == (b"42", b"k", [("by", b"us")])
    assert told == [(None, 0)]
    assert called == [(None, (topic.name, 0, 0, found.timestamp()[1]))]


@pytest.fixture
def protocol(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Version 1 has transactions as clients before Kafka 4 do them; version 2 is what both brokers announce."""
    version: int = request.param
    if version == 1:

        async def never(_: TransactionRequests) -> bool:
            return False

        monkeypatch.setattr(TransactionRequests, "adds_by_writing", never)
    return version


BOTH_PROTOCOLS = pytest.mark.parametrize("protocol", [1, 2], indirect=True)


def test_both_brokers_have_agreed_on_version_2_of_transactions(broker: Broker) -> None:
    async def story() -> None:
        async with Client(broker.bootstrap) as client:
            back_off = {"retry_backoff_ms": 100, "retry_backoff_max_ms": 1000}
            requests = TransactionRequests(client, "any", transaction_timeout_ms=1000, **back_off)
            assert await requests.adds_by_writing()

    asyncio.run(story())


@BOTH_PROTOCOLS
def test_transactions_are_seen_whole_or_not_at_all(broker: Broker, wire: Wire, protocol: int) -> None:
    topic = create_topic(wire)

    async def story(producer: Producer) -> None:
        await producer.init_transactions()
        async with producer.transaction():
            await producer.send(topic.name, b"committed 1")
        with suppress(ZeroDivisionError):
            async with producer.transaction():
                await (await producer.send(topic.name, b"aborted"))
                raise ZeroDivisionError
        async with producer.transaction():
            pass
        async with producer.transaction():
            await producer.send(topic.name, b"committed 2")

    play(broker, story, transactional_id=unique_name("transactional-id"))
    assert both_views(broker, topic) == (
        [b"committed 1", b"committed 2"],
        [b"committed 1", b"aborted", b"committed 2"],
    )


@BOTH_PROTOCOLS
def test_offsets_are_committed_with_the_transaction_or_not_at_all(broker: Broker, wire: Wire, protocol: int) -> None:
    topic, group = create_topic(wire), new_group(wire)

    async def story(producer: Producer) -> None:
        await producer.init_transactions()
        partition = OurTopicPartition(topic.name, 0)
        async with producer.transaction():
            await producer.send(topic.name, b"1")
            await producer.send_offsets_to_transaction({partition: 41}, group)
        with suppress(ZeroDivisionError):
            async with producer.transaction():
                await producer.send_offsets_to_transaction({partition: 99}, group)
                raise ZeroDivisionError

    play(broker, story, transactional_id=unique_name("transactional-id"))
    assert committed(wire, group, topic, require_stable=False)[0].committed_offset == 41


@BOTH_PROTOCOLS
def test_offsets_of_somebody_who_is_not_in_the_group_spoil_the_transaction(
    broker: Broker, wire: Wire, protocol: int
) -> None:
    topic, group = create_topic(wire), new_group(wire)

    async def story(producer: Producer) -> None:
        await producer.init_transactions()
        await producer.begin_transaction()
        ghost = GroupName(group, generation_id=5, member_id="ghost")
        with pytest.raises(RefusedError) as refused:
            await producer.send_offsets_to_transaction({OurTopicPartition(topic.name, 0): 1}, ghost)
        assert refused.value.code is ErrorCode.illegal_generation
        with pytest.raises(RefusedError):
            await producer.commit_transaction()
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send(topic.name, b"after")

    play(broker, story, transactional_id=unique_name("transactional-id"))
    assert read(broker, topic, "read_committed") == [b"after"]


@BOTH_PROTOCOLS
def test_an_older_instance_is_fenced(broker: Broker, wire: Wire, protocol: int) -> None:
    topic, name = create_topic(wire), unique_name("transactional-id")

    async def story(older: Producer) -> None:
        await older.init_transactions()
        await older.begin_transaction()
        await (await older.send(topic.name, b"older"))
        async with Producer(broker.bootstrap, transactional_id=name) as newer:
            await newer.init_transactions()
            async with newer.transaction():
                await newer.send(topic.name, b"newer")
        with pytest.raises(ProducerFencedError):
            await older.commit_transaction()
        with pytest.raises(ProducerFencedError):
            await older.send(topic.name, b"never")

    play(broker, story, transactional_id=name)
    assert read(broker, topic, "read_committed") == [b"newer"]


@BOTH_PROTOCOLS
@pytest.mark.parametrize("alone", [True, False], ids=["alone", "after another"])
def test_a_transaction_with_a_refused_record_can_only_be_aborted(
    broker: Broker, wire: Wire, protocol: int, alone: bool
) -> None:
    topic = create_topic(wire, configs={"max.message.bytes": "1000"})

    async def story(producer: Producer) -> None:
        await producer.init_transactions()
        await producer.begin_transaction()
        if not alone:
            await (await producer.send(topic.name, b"small"))
        await producer.send(topic.name, b"x" * 2000)
        with pytest.raises(RefusedError) as refused:
            await producer.commit_transaction()
        assert refused.value.code is ErrorCode.message_too_large
        with pytest.raises(RefusedError):
            await producer.send(topic.name, b"never")
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send(topic.name, b"after")

    play(broker, story, transactional_id=unique_name("transactional-id"))
    assert read(broker, topic, "read_committed") == [b"after"]


def test_closing_aborts_an_open_transaction(broker: Broker, wire: Wire) -> None:
    topic = create_topic(wire)

    async def story(producer: Producer) -> None:
        await producer.init_transactions()
        await producer.begin_transaction()
        await (await producer.send(topic.name, b"never"))

    play(broker, story, transactional_id=unique_name("transactional-id"))
    assert both_views(broker, topic) == ([], [b"never"])


def test_records_outside_of_a_transaction_are_refused(broker: Broker, wire: Wire) -> None:
    async def story(producer: Producer) -> None:
        with pytest.raises(TransactionStateError, match="call init_transactions first"):
            await producer.send("orders", b"")
        await producer.init_transactions()
        with pytest.raises(TransactionStateError, match="call begin_transaction first"):
            await producer.send("orders", b"")

    play(broker, story, transactional_id=unique_name("transactional-id"))


def test_the_rows_of_a_table_arrive_by_their_keys(broker: Broker, wire: Wire) -> None:
    topic = create_topic(wire, partitions=3)
    count = 40_000
    table = pa.table(
        {
            "customer": pa.array([None if n % 10 == 0 else f"customer {n % 97}" for n in range(count)]),
            "order": pa.array([None if n % 11 == 0 else b"order %d" % n for n in range(count)], pa.large_binary()),
            "at": pa.array([1_700_000_000_000 + n for n in range(count)], pa.timestamp("ms", "UTC")),
        }
    )
    expected = {
        (None if row["customer"] is None else row["customer"].encode(), row["order"], 1_700_000_000_000 + n)
        for n, row in enumerate(table.to_pylist())
    }

    async def story(producer: Producer) -> None:
        handle = await producer.send_arrow(topic.name, table, key="customer", value="order", timestamp="at")
        sent = await handle
        assert sum(rows.count for rows in sent.values()) == handle.count == count
        assert {(rows.first_offset, rows.last_offset - rows.count + 1) for rows in sent.values()} == {(0, 0)}

    play(broker, story)
    found = messages(broker, topic, count, 3)
    assert {(message.key(), message.value(), message.timestamp()[1]) for message in found} == expected
    for message in found:
        if key := message.key():
            assert message.partition() == partition_for_key(key, 3)


def test_a_column_can_choose_partitions_in_the_keys_place(broker: Broker, wire: Wire) -> None:
    topic = create_topic(wire, partitions=4)
    table = pa.table({"v": [str(n) for n in range(100)], "place": [n % 4 for n in range(100)], "by": ["x"] * 100})

    async def story(producer: Producer) -> None:
        by_number = await (await producer.send_arrow(topic.name, table, value="v", partition_by="place"))
        assert [rows.count for rows in by_number.values()] == [25] * 4
        by_text = await (await producer.send_arrow(topic.name, table.slice(3, 50), value="v", partition_by="by"))
        assert {number: rows.count for number, rows in by_text.items()} == {partition_for_key(b"x", 4): 50}
        anywhere = await (await producer.send_arrow(topic.name, table.to_batches()[0], value="v"))
        assert [rows.count for rows in anywhere.values()] == [25] * 4
        with pytest.raises(ValueError, match="'place' names partitions from 0 to 8 of 4"):
            await producer.send_arrow(
                topic.name, pa.table({"v": ["a", "b"], "place": [0, 8]}), value="v", partition_by="place"
            )
        with pytest.raises(KeyError, match="the table has no column 'order': it has v, place, by"):
            await producer.send_arrow(topic.name, table, value="order")
        with pytest.raises(TypeError, match="'place' is of type int64"):
            await producer.send_arrow(topic.name, table, value="place")

    play(broker, story)


def test_rows_have_headers_and_go_through_little_memory(broker: Broker, wire: Wire) -> None:
    topic = create_topic(wire)
    headers = [[{"key": "n", "value": b"%d" % n}] if n % 2 else None for n in range(50)]
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    table = pa.table({"v": [b"%d" % n * 200 for n in range(50)], "h": pa.array(headers, kind)})

    async def story(producer: Producer) -> None:
        await (await producer.send_arrow(topic.name, table, value="v", headers="h"))
        large = pa.table({"v": [b"%d" % n * 200 for n in range(5000)]})
        sent = await (await producer.send_arrow(topic.name, large, value="v"))
        assert sent == {0: SentRows(5000, 50, 5049)}

    play(broker, story, buffer_memory=40_000)
    found = messages(broker, topic, 5050)
    assert [message.headers() for message in found[:50]] == [[("n", b"%d" % n)] if n % 2 else None for n in range(50)]
    assert [message.value() for message in found[50:]] == [b"%d" % n * 200 for n in range(5000)]
