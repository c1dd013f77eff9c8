"""A running broker compacts its topics beside the reads and writes of clients, those of its own coordinators too."""

import asyncio
import contextlib
import itertools
import logging
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from kio.schema.errors import ErrorCode

from conformance.actions import (
    BROKER_RESOURCE,
    SET,
    Topic,
    alter_incrementally,
    create_topic,
    eventually,
    fetch,
    produce_ok,
)
from conformance.batches import Record, batch, read_batches, read_records
from conformance.wire import Wire
from headwater.testing import LocalBroker
from integration.test_coordinators import running_broker

EAGER = {"log.cleaner.backoff.ms": 20}
COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0", "internal.segment.bytes": "700"}


@pytest.fixture
def broker() -> Iterator[LocalBroker]:
    with LocalBroker(config=EAGER) as broker:
        yield broker


@pytest.fixture
def wire(broker: LocalBroker) -> Iterator[Wire]:
    with Wire(broker.bootstrap) as wire:
        yield wire


def fill(wire: Wire, topic: Topic, count: int = 60, keys: int = 5, partition: int = 0) -> None:
    for index in range(count):
        record = Record(key=b"%d" % (index % keys), value=b"%d" % index + bytes(60))
        produce_ok(wire, topic, batch(record), partition=partition)


def read_all(wire: Wire, topic: Topic, partition: int = 0) -> dict[int, bytes | None]:
    """Offset and value of everything there is, fetched as a consumer does."""
    found: dict[int, bytes | None] = {}
    offset = 0
    while True:
        answer = fetch(wire, topic, offset, partition=partition)
        assert answer.error_code is ErrorCode.none
        batches = read_batches(answer.records)
        if not batches:
            return found
        found.update({record.offset: record.value for record in read_records(answer.records)})
        offset = batches[-1].last_offset + 1


def is_cleaned(wire: Wire, topic: Topic, partition: int = 0) -> bool:
    """Whether little more is left than a record of each key and what is in the active segment."""
    return len(read_all(wire, topic, partition)) < 20


def cleaner_checkpoint(data: Path) -> str:
    file = data / "cleaner-offset-checkpoint"
    return file.read_text() if file.exists() else ""


def all_is_cleaned(data: Path, topic: Topic) -> bool:
    """Whether the checkpoint says that all but the active segment was cleaned."""
    active = max(int(file.stem) for file in (data / f"{topic.name}-0").glob("*.log"))
    return f"{topic.name} 0 {active}\n" in cleaner_checkpoint(data)


def test_superseded_records_go_and_the_newest_stay(broker: LocalBroker, wire: Wire) -> None:
    topic = create_topic(wire, configs=COMPACTED)
    fill(wire, topic)
    eventually(lambda: is_cleaned(wire, topic), "a cleaned log")
    left = read_all(wire, topic)
    assert {offset: value and value[:2] for offset, value in left.items() if offset >= 55} == {
        offset: b"%d" % offset for offset in range(55, 60)
    }
    eventually(lambda: topic.name in cleaner_checkpoint(broker.data), "the checkpoint")


def test_it_goes_on_after_a_restart_where_it_was(tmp_path: Path) -> None:
    with LocalBroker(data=tmp_path, config=EAGER) as broker, Wire(broker.bootstrap) as wire:
        topic = create_topic(wire, configs=COMPACTED)
        fill(wire, topic)
        eventually(lambda: all_is_cleaned(tmp_path, topic), "the checkpoint")
        left = read_all(wire, topic)
    cleaned = cleaner_checkpoint(tmp_path)
    with LocalBroker(data=tmp_path, config={"log.cleaner.enable": "false"}) as broker, Wire(broker.bootstrap) as wire:
        assert read_all(wire, topic) == left
        fill(wire, topic)
    assert cleaner_checkpoint(tmp_path) == cleaned
    with LocalBroker(data=tmp_path, config=EAGER) as broker, Wire(broker.bootstrap) as wire:
        eventually(lambda: is_cleaned(wire, topic), "a cleaned log")
        assert max(read_all(wire, topic)) == 119


def test_clients_write_and_read_while_it_cleans(broker: LocalBroker, wire: Wire) -> None:
    topic = create_topic(wire, configs=COMPACTED)
    newest: dict[bytes, int] = {}
    stop, problems = threading.Event(), []

    def read() -> None:
        with Wire(broker.bootstrap) as reading:
            while not stop.is_set():
                offsets = list(read_all(reading, topic))
                if offsets != sorted(offsets):
                    problems.append(offsets)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for index in range(400):
            key = b"%d" % (index % 7)
            newest[key] = produce_ok(wire, topic, batch(Record(key=key, value=b"%d" % index + bytes(60))))
    finally:
        stop.set()
        reader.join()
    assert not problems
    eventually(lambda: is_cleaned(wire, topic), "a cleaned log")
    assert set(newest.values()) <= set(read_all(wire, topic))


def test_a_bad_segment_costs_its_partition_and_no_other(
    broker: LocalBroker, wire: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    topic = create_topic(wire, partitions=2, configs={**COMPACTED, "cleanup.policy": "delete"})
    for partition in (0, 1):
        fill(wire, topic, partition=partition)
    victim = min((broker.data / f"{topic.name}-0").glob("*.log"))
    content = bytearray(victim.read_bytes())
    content[100] ^= 1
    victim.write_bytes(content)
    with caplog.at_level(logging.ERROR):
        alter_incrementally(wire, topic.name, ("cleanup.policy", SET, "compact"))
        eventually(lambda: is_cleaned(wire, topic, partition=1), "a cleaned log")
        eventually(lambda: [line for line in caplog.messages if str(victim) in line], "a word in the log")
        fill(wire, topic, partition=1)
        eventually(lambda: is_cleaned(wire, topic, partition=1), "a log cleaned again")
    told = [line for line in caplog.messages if "cannot be cleaned" in line]
    assert len(told) == 1
    assert f"{victim} is damaged at position 0" in told[0]
    assert len(list((broker.data / f"{topic.name}-0").glob("*.log"))) > 5
    assert produce_ok(wire, topic, batch(Record(key=b"k", value=b"still served"))) == 60


def test_threads_set_to_0_hold_it_off_and_set_to_2_let_it_run(broker: LocalBroker, wire: Wire) -> None:
    alter_incrementally(wire, "", ("log.cleaner.threads", SET, "0"), resource_type=BROKER_RESOURCE)
    topics = [create_topic(wire, configs=COMPACTED) for _ in range(3)]
    for topic in topics:
        fill(wire, topic)
    assert not any(is_cleaned(wire, topic) for topic in topics)
    alter_incrementally(wire, "", ("log.cleaner.threads", SET, "2"), resource_type=BROKER_RESOURCE)
    for topic in topics:
        eventually(lambda topic=topic: is_cleaned(wire, topic), "a cleaned log")  # type: ignore[misc]


def test_a_slow_pace_is_kept_and_can_be_lifted(broker: LocalBroker, wire: Wire) -> None:
    pace = "log.cleaner.io.max.bytes.per.second"
    alter_incrementally(wire, "", (pace, SET, "100"), resource_type=BROKER_RESOURCE)
    topic = create_topic(wire, configs=COMPACTED)
    fill(wire, topic)
    assert not is_cleaned(wire, topic)
    alter_incrementally(wire, "", (pace, SET, "1e12"), resource_type=BROKER_RESOURCE)
    eventually(lambda: is_cleaned(wire, topic), "a cleaned log")


def test_a_stop_does_not_wait_for_a_slow_cleaning(tmp_path: Path) -> None:
    config = {**EAGER, "log.cleaner.io.max.bytes.per.second": 100}
    with LocalBroker(data=tmp_path, config=config) as broker, Wire(broker.bootstrap) as wire:
        topic = create_topic(wire, configs=COMPACTED)
        fill(wire, topic)
        before = read_all(wire, topic)
    with LocalBroker(data=tmp_path, config={"log.cleaner.enable": "false"}) as broker, Wire(broker.bootstrap) as wire:
        assert read_all(wire, topic) == before


@pytest.mark.parametrize("turns", range(4))
def test_a_stop_is_heard_although_a_cleaning_ends_at_that_moment(tmp_path: Path, turns: int) -> None:
    async def stop_in_that_moment() -> None:
        async with running_broker(tmp_path) as broker:
            await asyncio.sleep(0.01)
            broker.cleaning._one_is_done.set()
            for _ in range(turns):
                await asyncio.sleep(0)
            async with asyncio.timeout(10):
                await broker.cleaning.stop()

    asyncio.run(stop_in_that_moment())


def test_a_topic_deleted_while_it_is_cleaned_can_be_made_anew(broker: LocalBroker, wire: Wire) -> None:
    alter_incrementally(wire, "", ("log.cleaner.io.max.bytes.per.second", SET, "20000"), resource_type=BROKER_RESOURCE)
    for _ in range(3):
        topic = create_topic(wire, name="again-and-again", configs=COMPACTED)
        fill(wire, topic)
        assert max(read_all(wire, topic)) == 59
        wire.send("delete_topics", topics=[{"name": topic.name, "topic_id": None}], timeout=10_000)


def test_committed_offsets_outlive_the_cleaning_of_their_topic(tmp_path: Path) -> None:
    config = {**EAGER, "offsets.topic.num.partitions": 1, "group.initial.rebalance.delay.ms": 0}
    groups = [f"group-{number}" for number in range(4)]
    with LocalBroker(data=tmp_path, config=config) as broker, Wire(broker.bootstrap) as wire:
        topic = create_topic(wire)
        commit(broker, groups[0], topic, 0)
        settings = [("internal.segment.bytes", SET, "2000"), ("min.cleanable.dirty.ratio", SET, "0")]
        assert alter_incrementally(wire, "__consumer_offsets", *settings).error_code is ErrorCode.none
        for offset, group in itertools.product(range(40), groups):
            commit(broker, group, topic, offset)
        eventually(lambda: "__consumer_offsets" in cleaner_checkpoint(tmp_path), "a cleaned log")
        eventually(lambda: internal_bytes(tmp_path, "__consumer_offsets-0") < 6000, "a small log")
    with LocalBroker(data=tmp_path, config=config) as broker:
        assert [committed(broker, group, topic) for group in groups] == [39] * 4


def test_transactions_go_on_over_the_cleaning_of_their_topic(tmp_path: Path) -> None:
    config = {**EAGER, "transaction.state.log.num.partitions": 1}
    with LocalBroker(data=tmp_path, config=config) as broker, Wire(broker.bootstrap) as wire:
        topic = create_topic(wire, configs=COMPACTED)
        producer = transactional(broker)
        settings = [("internal.segment.bytes", SET, "1000"), ("min.cleanable.dirty.ratio", SET, "0")]
        assert alter_incrementally(wire, "__transaction_state", *settings).error_code is ErrorCode.none
        for number in range(40):
            producer.begin_transaction()
            producer.produce(topic.name, f"{number}", key=f"{number % 3}", partition=0)
            producer.commit_transaction(20) if number % 2 else producer.abort_transaction(20)
        eventually(lambda: internal_bytes(tmp_path, "__transaction_state-0") < 4000, "a small log")
        eventually(lambda: len(committed_values(broker, topic)) < 10, "a cleaned log")
    with LocalBroker(data=tmp_path, config=config) as broker:
        producer = transactional(broker)
        producer.begin_transaction()
        producer.produce(topic.name, "last", key="0", partition=0)
        producer.commit_transaction(20)
        left = committed_values(broker, topic)
        # Of the three keys the newest committed records were 33 or 39, 37 and 35.
        assert left[-1] == b"last"
        assert {b"37", b"35"} <= set(left) <= {b"%d" % number for number in range(1, 40, 2)} | {b"last"}


def transactional(broker: LocalBroker) -> Producer:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "writer", "log_level": 0})
    producer.init_transactions(20)
    return producer


def committed_values(broker: LocalBroker, topic: Topic) -> list[bytes | None]:
    """What a consumer of committed records reads from the beginning."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic.name, 0, 0)])
    found = []
    while (message := consumer.poll(10)) is not None and message.error() is None:
        found.append(message.value())
    consumer.close()
    return found


def internal_bytes(data: Path, folder: str) -> int:
    size = 0
    for file in (data / folder).glob("*.log"):
        with contextlib.suppress(FileNotFoundError):  # the cleaner has just replaced it
            size += file.stat().st_size
    return size


def commit(broker: LocalBroker, group: str, topic: Topic, offset: int) -> None:
    consumer = group_member(broker, group)
    consumer.commit(offsets=[TopicPartition(topic.name, 0, offset)], asynchronous=False)


def committed(broker: LocalBroker, group: str, topic: Topic) -> int:
    (found,) = group_member(broker, group).committed([TopicPartition(topic.name, 0)], timeout=20)
    return int(found.offset)


_members: dict[tuple[str, str], Consumer] = {}


def group_member(broker: LocalBroker, group: str) -> Consumer:
    """A consumer that only commits, kept for the next call: it takes a while to connect."""
    key = (broker.bootstrap, group)
    if key not in _members:
        settings = {"bootstrap.servers": broker.bootstrap, "group.id": group, "enable.auto.commit": False}
        _members[key] = Consumer({**settings, "log_level": 0})
    return _members[key]
