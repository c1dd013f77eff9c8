"""`headwater.LocalBroker`: a broker inside the test's own process, as users' tests use it."""

import asyncio
import multiprocessing
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as KafkaPythonPartition

import headwater
from conformance.actions import (
    BROKER_RESOURCE,
    create_topic,
    describe_configs,
    describe_topic,
    fetch_all,
    produce_ok,
)
from conformance.batches import batch, values
from conformance.wire import Wire
from headwater.broker.app import StartupError
from headwater.config import ConfigError
from headwater.testing import LocalBroker

VALUES = [b"%d" % number for number in range(50)]


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary folders are made during the test."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def broker_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if "headwater" in thread.name]


def test_both_ways_to_its_name_lead_to_the_same() -> None:
    assert headwater.LocalBroker is LocalBroker


def test_several_live_side_by_side_and_do_not_mix() -> None:
    with ExitStack() as stack:
        brokers = [stack.enter_context(LocalBroker()) for _ in range(4)]
        assert len({broker.port for broker in brokers}) == 4
        assert len({broker.data for broker in brokers}) == 4
        wires = [stack.enter_context(Wire(broker.bootstrap)) for broker in brokers]
        assert len({wire.send("metadata", topics=[]).cluster_id for wire in wires}) == 4
        topics = [create_topic(wire, name="orders") for wire in wires]
        for number, (wire, topic) in enumerate(zip(wires, topics, strict=True)):
            produce_ok(wire, topic, batch(b"of broker %d" % number))
        for number, (wire, topic) in enumerate(zip(wires, topics, strict=True)):
            assert values(fetch_all(wire, topic)) == [b"of broker %d" % number]
        brokers[0].stop()
        assert values(fetch_all(wires[1], topics[1])) == [b"of broker 1"], "the others go on"


def test_data_in_a_folder_of_ones_own_is_kept_over_two_runs(tmp_path: Path) -> None:
    data = tmp_path / "new" / "data"
    with LocalBroker(data=data) as broker, Wire(broker.bootstrap) as wire:
        assert broker.data == data
        topic = create_topic(wire, configs={"retention.ms": "987654"})
        produce_ok(wire, topic, batch(b"one"))
    with LocalBroker(data=str(data)) as broker, Wire(broker.bootstrap) as wire:
        assert describe_topic(wire, topic.name).topic_id == topic.id
        assert values(fetch_all(wire, topic)) == [b"one"]
    assert (data / ".kafka_cleanshutdown").exists()


def test_temporary_data_lives_as_long_as_the_broker(temporary: Path) -> None:
    broker = LocalBroker()
    assert list(temporary.iterdir()) == [], "nothing is made before the start"
    with broker:
        (data,) = temporary.iterdir()
        assert broker.data == data
        with Wire(broker.bootstrap) as wire:
            create_topic(wire, name="orders")
        assert (data / "orders-0").is_dir()
    assert list(temporary.iterdir()) == []
    with pytest.raises(RuntimeError, match="not started"):
        _ = broker.data


def test_the_port_is_free_or_the_one_that_was_asked_for() -> None:
    with LocalBroker() as broker:
        port = broker.port
        assert broker.bootstrap == f"127.0.0.1:{port}"
    with LocalBroker(port=port) as again, Wire(again.bootstrap) as wire:
        assert again.port == port
        (node,) = wire.send("metadata", topics=[]).brokers
        assert (node.host, node.port) == ("127.0.0.1", port)


def test_config_goes_by_kafkas_names_and_topics_are_created_when_used() -> None:
    config: dict[str, str | int] = {"num.partitions": 3, "message.max.bytes": "12345", "node.id": 5}
    with LocalBroker(config=config) as broker, Wire(broker.bootstrap) as wire:
        found = describe_configs(wire, BROKER_RESOURCE, "5", "num.partitions", "message.max.bytes")
        assert {name: entry.value for name, entry in found.items()} == {
            "num.partitions": "3",
            "message.max.bytes": "12345",
        }
        (made,) = wire.send("metadata", topics=[{"name": "new"}], allow_auto_topic_creation=True).topics
        assert len(made.partitions) == 3
        assert made.partitions[0].leader_id == 5


def test_auto_creation_can_be_turned_off() -> None:
    with LocalBroker(config={"auto.create.topics.enable": False}) as broker, Wire(broker.bootstrap) as wire:
        (missing,) = wire.send("metadata", topics=[{"name": "new"}], allow_auto_topic_creation=True).topics
        assert missing.error_code.name == "unknown_topic_or_partition"


def test_a_port_in_use_raises_and_the_broker_can_be_started_later(temporary: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        broker = LocalBroker(port=taken.getsockname()[1])
        for _ in range(2):
            with pytest.raises(StartupError, match="in use"):
                broker.start()
        assert list(temporary.iterdir()) == []
        assert broker_threads() == []
        broker.stop()
    with broker, Wire(broker.bootstrap) as wire:
        create_topic(wire)


def test_a_data_dir_in_use_raises_and_can_be_taken_later(tmp_path: Path) -> None:
    second = LocalBroker(data=tmp_path)
    with LocalBroker(data=tmp_path) as first:
        with pytest.raises(StartupError, match=str(tmp_path)):
            second.start()
        with Wire(first.bootstrap) as wire:
            topic = create_topic(wire)
    with second, Wire(second.bootstrap) as wire:
        assert describe_topic(wire, topic.name).topic_id == topic.id


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"num.partition": 3}, "num.partitions"),
        ({"num.partitions": 0}, "num.partitions"),
        ({"log.dirs": ""}, "log.dirs"),
    ],
)
def test_a_config_that_cannot_be_raises_and_leaves_nothing_behind(
    temporary: Path, config: dict[str, Any], says: str
) -> None:
    broker = LocalBroker(config=config)
    with pytest.raises((ConfigError, StartupError), match=says):
        broker.start()
    assert list(temporary.iterdir()) == []
    assert broker_threads() == []
    broker.stop()


def test_an_error_of_the_disk_at_start_raises_and_lets_go_of_the_data(tmp_path: Path) -> None:
    with LocalBroker(data=tmp_path):
        pass
    (journal,) = tmp_path.glob("*.jsonl")
    journal.unlink()
    journal.mkdir()
    broker = LocalBroker(data=tmp_path)
    with pytest.raises(StartupError, match="jsonl"):
        broker.start()
    journal.rmdir()
    with broker:
        pass


def test_stop_may_be_called_at_any_time_and_start_after_it(temporary: Path) -> None:
    broker = LocalBroker()
    broker.stop()
    for _ in range(2):
        broker.start()
        with pytest.raises(RuntimeError, match="started already"):
            broker.start()
        with Wire(broker.bootstrap) as wire:
            assert wire.send("metadata", topics=None).topics == (), "temporary data is not found again"
            create_topic(wire)
        broker.stop()
        broker.stop()
    assert list(temporary.iterdir()) == []
    assert broker_threads() == []


def test_an_error_in_the_block_stops_the_broker_and_comes_out() -> None:
    with pytest.raises(ZeroDivisionError), LocalBroker() as broker:
        _ = 1 / 0
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", broker.port), timeout=5)


def open_files_after_brokers() -> list[int]:
    """How many files this process has open after each of some brokers."""
    counts = []
    for _ in range(4):
        with LocalBroker() as broker, Wire(broker.bootstrap) as wire:
            topic = create_topic(wire, partitions=5)
            for partition in range(5):
                produce_ok(wire, topic, batch(b"v"), partition=partition)
                fetch_all(wire, topic, partition=partition)
        counts.append(len(list(Path("/proc/self/fd").iterdir())))
    return counts


def test_a_stopped_broker_leaves_no_open_files() -> None:
    # In a process of its own: here, clients of earlier tests open and close files when they like.
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as alone:
        first, *later = alone.submit(open_files_after_brokers).result(60)
    assert max(later) <= first


def test_a_script_that_forgets_to_stop_it_ends_all_the_same(tmp_path: Path) -> None:
    script = "import headwater; print(headwater.LocalBroker().start().bootstrap)"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={"TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("127.0.0.1:")
    assert list(tmp_path.iterdir()) == [], "its data was temporary"


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    with LocalBroker(config={"num.partitions": 1}) as broker:
        yield broker


def with_confluent(bootstrap: str, topic: str) -> list[bytes]:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    for value in VALUES:
        producer.produce(topic, value)
    assert producer.flush(20) == 0
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    messages = consumer.consume(len(VALUES), timeout=20)
    consumer.close()
    return [message.value() or b"" for message in messages]


def with_aiokafka(bootstrap: str, topic: str) -> list[bytes]:
    async def talk() -> list[bytes]:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
            sent = [await producer.send(topic, value) for value in VALUES]
            await asyncio.gather(*sent)
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
        async with consumer:
            consumer.assign([AioPartition(topic, 0)])
            return [(await asyncio.wait_for(consumer.getone(), 20)).value for _ in VALUES]

    return asyncio.run(talk())


def with_kafka_python(bootstrap: str, topic: str) -> list[bytes]:
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    for value in VALUES:
        producer.send(topic, value)
    producer.close(timeout=20)
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=20_000)
    consumer.assign([KafkaPythonPartition(topic, 0)])
    found = [message.value for _, message in zip(VALUES, consumer, strict=False)]
    consumer.close()
    return found


@pytest.mark.parametrize("client", [with_confluent, with_aiokafka, with_kafka_python])
def test_clients_produce_and_consume(broker: LocalBroker, client: Callable[[str, str], list[bytes]]) -> None:
    assert client(broker.bootstrap, client.__name__) == VALUES


def test_it_serves_clients_that_run_on_the_event_loop_of_the_test() -> None:
    async def test() -> bytes:
        with LocalBroker() as broker:
            async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap) as producer:
                sent = await producer.send_and_wait("orders", b"one", partition=0)
            with Wire(broker.bootstrap) as wire:
                found = describe_topic(wire, sent.topic)
                assert found.error_code.name == "none"
            return b"done"

    assert asyncio.run(test()) == b"done"
