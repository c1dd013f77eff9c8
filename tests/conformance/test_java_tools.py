"""Apache Kafka's own command-line tools. Each run is a JVM of its own, so the cases are few and long."""

import re
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from peers.apache import ToolFailedError, run_tool
from peers.presence import require_apache

from .actions import (
    Topic,
    create_topic,
    describe_topic,
    eventually,
    fetch_all,
    list_offsets,
    produce_ok,
    topic_configs,
    unique_name,
    wait_for_partitions,
)
from .batches import batch, read_batches, read_records, values
from .conftest import Broker
from .wire import Wire

pytestmark = pytest.mark.peer


@pytest.fixture(autouse=True)
def _tools() -> None:
    require_apache()


def topics(broker: Broker, *arguments: str) -> str:
    return run_tool("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", broker.bootstrap, *arguments)


def configs(broker: Broker, topic: Topic, *arguments: str) -> str:
    entity = ("--entity-type", "topics", "--entity-name", topic.name)
    return run_tool("kafka.admin.ConfigCommand", "--bootstrap-server", broker.bootstrap, *entity, *arguments)


def test_topic_command(broker: Broker, wire: Wire) -> None:
    name = unique_name()
    made = topics(broker, "--create", "--topic", name, "--partitions", "2", "--config", "retention.ms=5000")
    assert f"Created topic {name}." in made
    wait_for_partitions(wire, name, 2)
    topics(broker, "--alter", "--topic", name, "--partitions", "3")
    wait_for_partitions(wire, name, 3)
    described = topics(broker, "--describe", "--topic", name)
    assert re.search(
        rf"Topic: {name}\s+TopicId: \S+\s+PartitionCount: 3\s+"
        r"ReplicationFactor: 1\s+Configs: .*retention\.ms=5000",
        described,
    )
    node = wire.send("metadata", topics=[]).brokers[0].node_id
    for partition in range(3):
        assert re.search(rf"Partition: {partition}\s+Leader: {node}\s+Replicas: {node}\s+Isr: {node}", described)
    assert name in topics(broker, "--list").split()
    topics(broker, "--delete", "--topic", name)
    eventually(lambda: describe_topic(wire, name).error_code is ErrorCode.unknown_topic_or_partition, "the deletion")


def test_topic_command_shows_the_brokers_error(broker: Broker, wire: Wire) -> None:
    topic = create_topic(wire)
    with pytest.raises(ToolFailedError, match="already exists"):
        topics(broker, "--create", "--topic", topic.name)


def test_config_command(broker: Broker, wire: Wire) -> None:
    topic = create_topic(wire)
    added = "retention.ms=77777,cleanup.policy=[compact,delete]"
    assert "Completed updating config" in configs(broker, topic, "--alter", "--add-config", added)
    described = configs(broker, topic, "--describe", "--all")
    assert "retention.ms=77777 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=77777" in described
    assert "cleanup.policy=compact,delete" in described
    assert (
        "segment.bytes=1073741824 sensitive=false synonyms={DEFAULT_CONFIG:log.segment.bytes=1073741824}" in described
    )
    configs(broker, topic, "--alter", "--delete-config", "retention.ms")
    eventually(
        lambda: topic_configs(wire, topic.name, "retention.ms")["retention.ms"].value != "77777",
        "the deletion",
    )


def test_config_command_for_the_broker(broker: Broker, wire: Wire) -> None:
    node = str(wire.send("metadata", topics=[]).brokers[0].node_id)
    arguments = ("--bootstrap-server", broker.bootstrap, "--entity-type", "brokers", "--entity-name", node)
    described = run_tool("kafka.admin.ConfigCommand", *arguments, "--describe", "--all")
    assert "num.partitions=2 sensitive=false synonyms={STATIC_BROKER_CONFIG:num.partitions=2" in described


def console_producer(broker: Broker, topic: Topic, lines: str, *arguments: str) -> None:
    run_tool(
        "org.apache.kafka.tools.ConsoleProducer",
        "--bootstrap-server",
        broker.bootstrap,
        "--topic",
        topic.name,
        *arguments,
        stdin=lines,
    )


def test_console_producer_without_keys(broker: Broker, wire: Wire) -> None:
    topic = create_topic(wire, partitions=3)
    console_producer(broker, topic, "one\ntwo\nthree\n")
    got = [value for partition in range(3) for value in values(fetch_all(wire, topic, partition=partition))]
    assert sorted(value or b"" for value in got) == [b"one", b"three", b"two"]


def test_console_producer_with_keys_puts_them_where_java_does(broker: Broker, wire: Wire) -> None:
    topic = create_topic(wire, partitions=3)
    lines = "".join(f"h:1\tkey{number}:value{number}\n" for number in range(6))
    properties = ("parse.key=true", "key.separator=:", "parse.headers=true")
    arguments = [part for each in properties for part in ("--property", each)]
    console_producer(broker, topic, lines, *arguments)
    placed = {
        record.key: partition
        for partition in range(3)
        for record in read_records(fetch_all(wire, topic, partition=partition))
    }
    # murmur2 of the key, modulo 3
    assert placed == {b"key0": 1, b"key1": 2, b"key2": 2, b"key3": 1, b"key4": 0, b"key5": 1}


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_producer_performance_with_each_compression(broker: Broker, wire: Wire, codec: str) -> None:
    topic = create_topic(wire)
    load = ("--num-records", "20000", "--record-size", "100", "--throughput", "-1")
    properties = (f"bootstrap.servers={broker.bootstrap}", f"compression.type={codec}", "acks=all")
    said = run_tool(
        "org.apache.kafka.tools.ProducerPerformance",
        "--topic",
        topic.name,
        *load,
        "--producer-props",
        *properties,
    )
    assert "20000 records sent" in said
    written = read_batches(fetch_all(wire, topic))
    assert sum(one.count for one in written) == 20_000
    assert {one.codec for one in written} == {codec}
    assert all(one.crc_is_right and one.producer_id >= 0 for one in written), "the Java producer is idempotent"


def test_console_consumer_reads_a_partition(broker: Broker, wire: Wire) -> None:
    topic = create_topic(wire)
    produce_ok(wire, topic, batch(b"one", b"two", b"three"))
    said = run_tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", broker.bootstrap, "--topic", topic.name),
        *("--partition", "0", "--offset", "1", "--max-messages", "2", "--timeout-ms", "20000"),
    )
    assert said.split() == ["two", "three"]


def test_get_offset_shell(broker: Broker, wire: Wire) -> None:
    topic = create_topic(wire, partitions=2)
    produce_ok(wire, topic, batch(b"a", b"b", b"c"), partition=1)
    shell = (
        "org.apache.kafka.tools.GetOffsetShell",
        "--bootstrap-server",
        broker.bootstrap,
        "--topic",
        topic.name,
    )
    assert run_tool(*shell).split() == [f"{topic.name}:0:0", f"{topic.name}:1:3"]
    newest = run_tool(*shell, "--partitions", "1", "--time", "max-timestamp")
    assert newest.split() in [[f"{topic.name}:1:{offset}"] for offset in range(3)]


def test_delete_records_command(broker: Broker, wire: Wire, tmp_path: Path) -> None:
    topic = create_topic(wire)
    produce_ok(wire, topic, batch(b"a", b"b", b"c"))
    plan = tmp_path / "plan.json"
    plan.write_text(f'{{"partitions": [{{"topic": "{topic.name}", "partition": 0, "offset": 2}}], "version": 1}}')
    command = ("org.apache.kafka.tools.DeleteRecordsCommand", "--bootstrap-server", broker.bootstrap)
    said = run_tool(*command, "--offset-json-file", str(plan))
    assert f"partition: {topic.name}-0\tlow_watermark: 2" in said
    assert list_offsets(wire, topic.name, {0: -2})[0].offset == 2


def test_log_dirs_command(broker: Broker, wire: Wire) -> None:
    topic = create_topic(wire)
    produce_ok(wire, topic, batch(bytes(500)))
    command = ("org.apache.kafka.tools.LogDirsCommand", "--bootstrap-server", broker.bootstrap, "--describe")
    said = run_tool(*command, "--topic-list", topic.name)
    assert f'"partition":"{topic.name}-0","size":{len(batch(bytes(500)))}' in said
    assert str(broker.data_dir) in said
