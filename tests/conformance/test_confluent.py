"""confluent-kafka (librdkafka in Python): produce, consume by assignment, administer."""

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka.admin
import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from .actions import create_topic, fetch_all, unique_name, wait_for_partitions
from .batches import AN_HOUR_AGO_MS, read_batches
from .conftest import Broker
from .wire import Wire

# Its type hints do not export what the module offers.
admin_api: Any = confluent_kafka.admin
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


@contextlib.contextmanager
def consuming(broker: Broker, **settings: object) -> Iterator[Consumer]:
    """A consumer without a group's help: it is told its partitions and keeps its offsets to itself."""
    alone = {"group.id": "unused", "enable.auto.commit": False, "log_level": 0}
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, **alone, **settings})
    try:
        yield consumer
    finally:
        consumer.close()


@pytest.fixture
def admin(broker: Broker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


def send_all(broker: Broker, topic: str, messages: list[dict[str, Any]], **settings: object) -> list[Message]:
    """Sends all and returns their delivery reports; any failure is raised."""
    delivered: list[Message] = []

    def report(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            raise KafkaException(error)
        delivered.append(message)

    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0, **settings})
    for message in messages:
        producer.produce(topic, on_delivery=report, **message)
    assert producer.flush(30) == 0
    return delivered


def read(
    broker: Broker,
    topic: str,
    count: int,
    *,
    partition: int = 0,
    offset: int = OFFSET_BEGINNING,
    reset: str = "error",
) -> list[Message]:
    with consuming(broker, **{"auto.offset.reset": reset}) as consumer:
        consumer.assign([TopicPartition(topic, partition, offset)])
        got: list[Message] = []
        deadline = time.monotonic() + 30
        while len(got) < count:
            assert time.monotonic() < deadline, f"{len(got)} of {count} records"
            for message in consumer.consume(count - len(got), timeout=1):
                assert message.error() is None, message.error()
                got.append(message)
        return got


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_round_trip(broker: Broker, wire: Wire, codec: str, acks: str) -> None:
    topic = create_topic(wire)
    messages = [{"value": b"value %d " % number * 20, "key": b"%d" % (number % 7)} for number in range(300)]
    send_all(broker, topic.name, messages, **{"compression.type": codec, "acks": acks, "linger.ms": 20})
    got = read(broker, topic.name, 300)
    assert [(message.key(), message.value()) for message in got] == [(m["key"], m["value"]) for m in messages]
    assert [message.offset() for message in got] == list(range(300))
    assert {one.codec for one in read_batches(fetch_all(wire, topic))} == {codec}


def test_keys_nulls_headers_and_timestamps(broker: Broker, wire: Wire) -> None:
    topic = create_topic(wire)
    messages: list[dict[str, Any]] = [
        {
            "key": b"k",
            "value": b"v",
            "headers": [("a", b"1"), ("a", b"2"), ("none", None)],
            "timestamp": AN_HOUR_AGO_MS,
        },
        {"key": None, "value": None, "timestamp": AN_HOUR_AGO_MS + 1},
        {"key": b"", "value": b"", "timestamp": AN_HOUR_AGO_MS - 5000},
    ]
    send_all(broker, topic.name, messages)
    got = read(broker, topic.name, 3)
    assert [(m.key(), m.value()) for m in got] == [(m["key"], m["value"]) for m in messages]
    assert got[0].headers() == messages[0]["headers"]
    assert [m.timestamp() for m in got] == [(TIMESTAMP_CREATE_TIME, m["timestamp"]) for m in messages]


def test_log_append_time_is_seen_by_the_consumer(broker: Broker, wire: Wire) -> None:
    topic = create_topic(wire, configs={"message.timestamp.type": "LogAppendTime"})
    send_all(broker, topic.name, [{"value": b"v", "timestamp": 1000}], **{"compression.type": "lz4"})
    (message,) = read(broker, topic.name, 1)
    kind, at_ms = message.timestamp()
    assert kind == TIMESTAMP_LOG_APPEND_TIME
    assert abs(at_ms - time.time() * 1000) < 60_000


@pytest.mark.parametrize("asked", ["gzip", "snappy", "lz4", "zstd", "uncompressed"])
@pytest.mark.parametrize("sent", ["none", "zstd"])
def test_recompressed_records_are_the_same(broker: Broker, wire: Wire, asked: str, sent: str) -> None:
    topic = create_topic(wire, configs={"compression.type": asked})
    messages = [
        {
            "key": b"k%d" % n,
            "value": b"v%d" % n * 30,
            "headers": [("h", b"%d" % n)],
            "timestamp": AN_HOUR_AGO_MS + n,
        }
        for n in range(100)
    ]
    send_all(
        broker,
        topic.name,
        messages,
        **{"compression.type": sent, "linger.ms": 20, "enable.idempotence": True},
    )
    got = read(broker, topic.name, 100)
    assert [(m.key(), m.value(), m.headers(), m.timestamp()[1], m.offset()) for m in got] == [
        (m["key"], m["value"], m["headers"], m["timestamp"], n) for n, m in enumerate(messages)
    ]


def test_a_record_as_large_as_the_topic_allows(broker: Broker, wire: Wire) -> None:
    topic = create_topic(wire, configs={"max.message.bytes": str(5_000_000)})
    value = bytes(range(256)) * 19_000
    send_all(broker, topic.name, [{"value": value}], **{"message.max.bytes": 6_000_000})
    (message,) = read(broker, topic.name, 1)
    assert message.value() == value


def test_a_record_too_large_for_the_topic_fails_at_the_producer(broker: Broker, wire: Wire) -> None:
    topic = create_topic(wire, configs={"max.message.bytes": "1000"})
    with pytest.raises(KafkaException) as failure:
        send_all(broker, topic.name, [{"value": bytes(5000)}])
    assert failure.value.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE


def test_an_idempotent_producer_keeps_order_over_many_batches(broker: Broker, wire: Wire) -> None:
    topic = create_topic(wire)
    settings = {"enable.idempotence": True, "batch.num.messages": 10, "linger.ms": 1}
    send_all(broker, topic.name, [{"value": b"%d" % number} for number in range(2000)], **settings)
    got = read(broker, topic.name, 2000)
    assert [int(message.value() or b"") for message in got] == list(range(2000))


def test_keys_choose_partitions_and_keep_order_within_them(broker: Broker, wire: Wire) -> None:
    topic = create_topic(wire, partitions=4)
    delivered = send_all(broker, topic.name, [{"key": b"k%d" % (n % 10), "value": b"%d" % n} for n in range(400)])
    counts = {partition: sum(m.partition() == partition for m in delivered) for partition in range(4)}
    assert sum(counts.values()) == 400
    for partition, count in counts.items():
        got = [int(message.value() or b"") for message in read(broker, topic.name, count, partition=partition)]
        assert got == sorted(got)


def test_seeking_into_the_middle_of_a_compressed_batch(broker: Broker, wire: Wire) -> None:
    topic = create_topic(wire)
    settings = {"compression.type": "lz4", "linger.ms": 100}
    send_all(broker, topic.name, [{"value": b"%d" % number} for number in range(100)], **settings)
    got = read(broker, topic.name, 50, offset=50)
    assert [message.offset() for message in got] == list(range(50, 100))


def test_watermarks_and_offsets_for_times(broker: Broker, wire: Wire) -> None:
    topic = create_topic(wire)
    send_all(broker, topic.name, [{"value": b"v", "timestamp": AN_HOUR_AGO_MS + n * 1000} for n in range(10)])
    with consuming(broker) as consumer:
        assert consumer.get_watermark_offsets(TopicPartition(topic.name, 0), timeout=10) == (0, 10)
        for after_ms, offset in [(3500, 4), (0, 0), (3_000_000, -1)]:
            asked = TopicPartition(topic.name, 0, AN_HOUR_AGO_MS + after_ms)
            (found,) = consumer.offsets_for_times([asked], timeout=10)
            assert found.offset == offset


@pytest.mark.parametrize("codec", CODECS[1:])
def test_offsets_for_times_look_into_compressed_batches(broker: Broker, wire: Wire, codec: str) -> None:
    topic = create_topic(wire)
    messages = [{"value": b"v" * 50, "timestamp": AN_HOUR_AGO_MS + n * 1000} for n in range(10)]
    send_all(broker, topic.name, messages, **{"compression.type": codec, "linger.ms": 50})
    with consuming(broker) as consumer:
        asked = TopicPartition(topic.name, 0, AN_HOUR_AGO_MS + 6001)
        (found,) = consumer.offsets_for_times([asked], timeout=10)
    assert found.offset == 7


def test_the_end_of_the_partition_is_reported(broker: Broker, wire: Wire) -> None:
    topic = create_topic(wire)
    send_all(broker, topic.name, [{"value": b"v"}])
    with consuming(broker, **{"enable.partition.eof": True}) as consumer:
        consumer.assign([TopicPartition(topic.name, 0, 0)])
        first, second = consumer.poll(10), consumer.poll(10)
    assert first is not None
    assert first.value() == b"v"
    error = second.error() if second is not None else None
    assert error is not None
    assert error.code() == KafkaError._PARTITION_EOF


def test_an_offset_out_of_range_resets_to_the_earliest(broker: Broker, wire: Wire) -> None:
    topic = create_topic(wire)
    send_all(broker, topic.name, [{"value": b"first"}])
    (message,) = read(broker, topic.name, 1, offset=500, reset="earliest")
    assert message.value() == b"first"


def result_of(futures: dict[Any, Any]) -> Any:
    (future,) = futures.values()
    return future.result(20)


def failure_of(call: Callable[[], dict[Any, Any]]) -> int:
    with pytest.raises(KafkaException) as failure:
        result_of(call())
    code: int = failure.value.args[0].code()
    return code


def test_topics_are_made_described_grown_and_deleted(wire: Wire, admin: AdminClient) -> None:
    name = unique_name()
    result_of(admin.create_topics([admin_api.NewTopic(name, 2, 1, config={"retention.ms": "60000"})]))
    wait_for_partitions(wire, name, 2)
    assert failure_of(lambda: admin.create_topics([admin_api.NewTopic(name, 1, 1)])) == KafkaError.TOPIC_ALREADY_EXISTS
    assert sorted(admin.list_topics(name, timeout=10).topics[name].partitions) == [0, 1]
    result_of(admin.create_partitions([admin_api.NewPartitions(name, 3)]))
    wait_for_partitions(wire, name, 3)
    result_of(admin.delete_topics([name]))
    assert failure_of(lambda: admin.delete_topics([unique_name()])) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_configs_are_described_and_altered(wire: Wire, admin: AdminClient) -> None:
    topic = create_topic(wire)
    resource = admin_api.ConfigResource(admin_api.ResourceType.TOPIC, topic.name)
    assert result_of(admin.describe_configs([resource]))["cleanup.policy"].value == "delete"
    append = admin_api.ConfigEntry(
        "cleanup.policy", "compact", incremental_operation=admin_api.AlterConfigOpType.APPEND
    )
    change = admin_api.ConfigResource(admin_api.ResourceType.TOPIC, topic.name, incremental_configs=[append])
    result_of(admin.incremental_alter_configs([change]))
    deadline = time.monotonic() + 10
    while result_of(admin.describe_configs([resource]))["cleanup.policy"].value != "delete,compact":
        assert time.monotonic() < deadline


def test_offsets_cluster_and_deletion_of_records(broker: Broker, wire: Wire, admin: AdminClient) -> None:
    topic = create_topic(wire)
    send_all(broker, topic.name, [{"value": b"v"}] * 5)
    partition = TopicPartition(topic.name, 0)
    assert result_of(admin.list_offsets({partition: admin_api.OffsetSpec.latest()})).offset == 5
    assert result_of(admin.list_offsets({partition: admin_api.OffsetSpec.max_timestamp()})).offset >= 0
    assert result_of(admin.delete_records([TopicPartition(topic.name, 0, 3)])).low_watermark == 3
    assert result_of(admin.list_offsets({partition: admin_api.OffsetSpec.earliest()})).offset == 3
    cluster = admin.describe_cluster().result(20)
    assert [f"{node.host}:{node.port}" for node in cluster.nodes] == [broker.bootstrap]
