"""kafka-python: produce, consume by assignment, administer."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition, codec
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import MessageSizeTooLargeError, TopicAlreadyExistsError

from .actions import create_topic, fetch_all, unique_name, wait_for_config, wait_for_partitions
from .batches import AN_HOUR_AGO_MS, read_batches
from .conftest import Broker
from .wire import Wire

# The client compresses with what is installed beside it.
CODECS = [None, *(name for name in ("gzip", "snappy", "lz4", "zstd") if getattr(codec, f"has_{name}")())]


def send_all(broker: Broker, topic: str, messages: list[dict[str, Any]], **settings: Any) -> list[Any]:
    with closing(KafkaProducer(bootstrap_servers=broker.bootstrap, linger_ms=5, **settings)) as producer:
        futures = [producer.send(topic, **message) for message in messages]
        producer.flush(30)
        return [future.get(timeout=30) for future in futures]


def read(broker: Broker, topic: str, count: int, *, offset: int = 0) -> list[Any]:
    settings = {"consumer_timeout_ms": 20_000, "fetch_max_wait_ms": 50, "group_id": None}
    with closing(KafkaConsumer(bootstrap_servers=broker.bootstrap, **settings)) as consumer:
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        consumer.seek(partition, offset)
        return [next(consumer) for _ in range(count)]


@pytest.fixture
def admin(broker: Broker) -> Iterator[KafkaAdminClient]:
    with closing(KafkaAdminClient(bootstrap_servers=broker.bootstrap)) as client:
        yield client


@pytest.mark.parametrize("compression", CODECS)
@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_round_trip(broker: Broker, wire: Wire, compression: str | None, acks: int | str) -> None:
    topic = create_topic(wire)
    messages = [{"value": b"value %d " % number * 20, "key": b"%d" % (number % 7)} for number in range(200)]
    idempotent = acks == "all"
    settings = {"compression_type": compression, "acks": acks, "enable_idempotence": idempotent}
    send_all(broker, topic.name, messages, **settings)
    got = read(broker, topic.name, 200)
    assert [(record.key, record.value) for record in got] == [(m["key"], m["value"]) for m in messages]
    assert [record.offset for record in got] == list(range(200))
    assert {one.codec for one in read_batches(fetch_all(wire, topic))} == {compression or "none"}


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
    sent = send_all(broker, topic.name, messages)
    assert [report.offset for report in sent] == [0, 1, 2]
    got = read(broker, topic.name, 3)
    assert [(record.key, record.value, record.timestamp) for record in got] == [
        (m["key"], m["value"], m["timestamp_ms"]) for m in messages
    ]
    assert [tuple(header) for header in got[0].headers] == [("a", b"1"), ("a", b"2")]


def test_from_the_middle_of_a_batch(broker: Broker, wire: Wire) -> None:
    topic = create_topic(wire)
    send_all(broker, topic.name, [{"value": b"%d" % number} for number in range(50)], compression_type="gzip")
    assert [record.offset for record in read(broker, topic.name, 20, offset=30)] == list(range(30, 50))


def test_a_record_too_large_for_the_topic_fails_at_the_producer(broker: Broker, wire: Wire) -> None:
    topic = create_topic(wire, configs={"max.message.bytes": "1000"})
    with pytest.raises(MessageSizeTooLargeError):
        send_all(broker, topic.name, [{"value": bytes(5000)}])


def test_offsets(broker: Broker, wire: Wire) -> None:
    topic = create_topic(wire)
    send_all(broker, topic.name, [{"value": b"v", "timestamp_ms": AN_HOUR_AGO_MS + n * 1000} for n in range(10)])
    partition = TopicPartition(topic.name, 0)
    with closing(KafkaConsumer(bootstrap_servers=broker.bootstrap, group_id=None)) as consumer:
        assert consumer.beginning_offsets([partition]) == {partition: 0}
        assert consumer.end_offsets([partition]) == {partition: 10}
        assert consumer.offsets_for_times({partition: AN_HOUR_AGO_MS + 4500})[partition].offset == 5
        assert topic.name in consumer.topics()


def test_administration(wire: Wire, admin: KafkaAdminClient) -> None:
    name = unique_name()
    new = {name: {"num_partitions": 2, "replication_factor": 1, "configs": {"flush.ms": "99"}}}
    admin.create_topics(new)
    wait_for_partitions(wire, name, 2)
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics(new)
    assert name in admin.list_topics()
    admin.create_partitions({name: 4})
    wait_for_partitions(wire, name, 4)
    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, name, {"flush.ms": "100"})])
    wait_for_config(wire, name, "flush.ms", "100")
    described = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, name)])
    assert "flush.ms" in str(described)
    assert admin.describe_cluster()["cluster_id"]
    admin.delete_topics([name])
