"""Transactions with Apache's Java producer, and its TransactionsCommand: it prints the same of both brokers."""

import contextlib
import json
from collections.abc import Iterator

import pytest
from kio.schema.errors import ErrorCode

import headwater
from headwater.types import TopicPartition
from peers.apache import ToolFailedError, run_tool
from peers.presence import require_apache

from .actions import (
    BROKER_RESOURCE,
    DELETE,
    LATEST,
    SET,
    Topic,
    alter_incrementally,
    create_topic,
    describe_configs,
    eventually,
    list_offset,
    new_producer,
    produce_ok,
    unique_name,
)
from .batches import AN_HOUR_AGO_MS, Record, batch
from .conftest import Broker
from .isolation import read, settle, stable_offset
from .raw_groups import committed, new_group
from .raw_transactions import TRANSACTIONAL, TransactionalProducer
from .side_by_side import assert_same, on_each
from .wire import Wire

pytestmark = pytest.mark.peer


@pytest.fixture(autouse=True)
def _tools() -> None:
    require_apache()


def copied(broker: Broker, source: Topic, target: Topic, group: str, count: int, *modes: str) -> int:
    """Has so many records copied in transactions, a third of which are aborted; how many the tool has read at last."""
    said = run_tool(
        "org.apache.kafka.tools.TransactionalMessageCopier",
        *("--broker-list", broker.bootstrap, "--transactional-id", unique_name("copier"), "--transaction-size", "10"),
        *("--input-topic", source.name, "--input-partition", "0", "--output-topic", target.name),
        *("--consumer-group", group, "--max-messages", str(count), "--enable-random-aborts", *modes),
    )
    told = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    return int(told[-1]["consumed"])


@pytest.mark.parametrize("mode", ["assigned", "subscribed"])
def test_a_message_copier_copies_each_record_once(broker: Broker, wire: Wire, mode: str) -> None:
    """It reads, writes and commits its offsets in transactions, a third of which it aborts, and goes back for them."""
    source, target, group = create_topic(wire), create_topic(wire), new_group(wire)
    produce_ok(wire, source, batch(*(b"%d" % number for number in range(120))))
    modes = ("--group-mode", "--use-group-metadata") if mode == "subscribed" else ()
    assert copied(broker, source, target, group, 120, *modes) == 120
    assert committed(wire, group, source, require_stable=True)[0].committed_offset == 120
    settle(wire, target)
    assert read(broker, target, "read_committed") == [b"%d" % number for number in range(120)]


def test_java_reads_what_our_producer_committed_and_our_consumer_what_java_did(broker: Broker, wire: Wire) -> None:
    source, target, group = create_topic(wire), create_topic(wire), new_group(wire)
    kept = [b"%d" % number for number in range(60) if number // 10 % 2 == 0]
    with headwater.Producer(broker.bootstrap, transactional_id=unique_name("ours")) as producer:
        producer.init_transactions()
        for first in range(0, 60, 10):
            producer.begin_transaction()
            handles = [producer.send(source.name, b"%d" % number) for number in range(first, first + 10)]
            handles[-1].result(20)
            if first // 10 % 2 == 0:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
    assert copied(broker, source, target, group, len(kept)) == len(kept)
    settle(wire, target)
    reading = {"auto_offset_reset": "earliest", "isolation_level": "read_committed"}
    found: list[bytes | None] = []
    place = TopicPartition(target.name, 0)
    with headwater.Consumer(broker.bootstrap, **reading) as consumer:
        consumer.assign([place])
        end = consumer.end_offsets([place])[place]
        while consumer.position(place) < end:
            found += [record.value for record in consumer.poll(timeout=1.0)]
    assert found == kept


# Columns that chance or the clock fills.
VOLATILE = ("ProducerId", "LastTimestamp", "CurrentTransactionStartTimeMs", "TransactionDurationMs", "Duration(min)")


def transactions_command(broker: Broker, *arguments: str) -> str:
    """What it prints, or the last of what it prints when it fails."""
    command = ("org.apache.kafka.tools.TransactionsCommand", "--bootstrap-server", broker.bootstrap)
    try:
        return run_tool(*command, *arguments)
    except ToolFailedError as error:
        return str(error).partition("\n")[2].strip().splitlines()[-1]


def table(said: str) -> list[dict[str, str]]:
    """The rows under the names of their columns."""
    names, *rows = [[cell.strip() for cell in line.split("\t")] for line in said.splitlines() if line.strip()]
    return [{name: cell for name, cell in zip(names, row, strict=True) if name not in VOLATILE} for row in rows]


def test_transactions_command_shows_the_same(brokers: tuple[Broker, Broker]) -> None:
    names = {key: unique_name(key) for key in ("topic", "running", "ended")}

    def story(broker: Broker) -> list[object]:
        with Wire(broker.bootstrap) as wire:
            topic = create_topic(wire, name=names["topic"], partitions=2)
            running, ended = (TransactionalProducer(wire, names[key]) for key in ("running", "ended"))
            for producer in (ended, running):
                producer.add(topic, 0, 1)
                producer.send(topic, b"a", b"b")
            ended.end(committed=True)
            ended.wait_until_complete()
            listed = table(transactions_command(broker, "list"))
            described = table(transactions_command(broker, "describe", "--transactional-id", running.transactional_id))
            partition = ("--topic", topic.name, "--partition", "0")
            producers = table(transactions_command(broker, "describe-producers", *partition))
            absent = transactions_command(broker, "describe", "--transactional-id", "no-such-id")
            terminate = ("forceTerminateTransaction", "--transactionalId", running.transactional_id)
            terminated = transactions_command(broker, *terminate)
            settle(wire, topic)
            # A new producer id is taken in its place, which ends the transaction.
            eventually(lambda: running.state() == "Empty", "the end of the transaction")
        mine = [row for row in listed if row["TransactionalId"] in names.values()]
        by_id = sorted(mine, key=lambda row: row["TransactionalId"])
        by_start = sorted(producers, key=lambda row: row["CurrentTransactionStartOffset"])
        described[0]["TopicPartitions"] = ",".join(sorted(described[0]["TopicPartitions"].split(",")))
        return [by_id, described, by_start, absent, terminated]

    listed, described, producers, absent, _ = assert_same(on_each(brokers, story))
    assert [row["TransactionState"] for row in listed] == ["CompleteCommit", "Ongoing"]
    assert described[0]["TopicPartitions"] == f"{names['topic']}-0,{names['topic']}-1"
    assert [row["CurrentTransactionStartOffset"] for row in producers] == ["2", "None"]
    assert "could not be found" in absent


@contextlib.contextmanager
def without_verification(wire: Wire) -> Iterator[None]:
    """The broker takes transactional records that no coordinator knows of, as brokers before 3.6 did."""
    name = "transaction.partition.verification.enable"

    def change(operation: int, value: str | None, shown: str) -> None:
        alter_incrementally(wire, "", (name, operation, value), resource_type=BROKER_RESOURCE)
        eventually(lambda: describe_configs(wire, BROKER_RESOURCE, "1", name)[name].value == shown, f"{name}={shown}")

    change(SET, "false", "false")
    try:
        yield
    finally:
        change(DELETE, None, "true")


def test_a_hanging_transaction_is_found_and_aborted(brokers: tuple[Broker, Broker]) -> None:
    name = unique_name("topic")

    def story(broker: Broker) -> list[object]:
        with Wire(broker.bootstrap) as wire:
            topic = create_topic(wire, name=name)
            producer_id, epoch = new_producer(wire)
            given = {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": 0}
            records = batch(Record(value=b"hanging", timestamp_ms=AN_HOUR_AGO_MS), **given, attributes=TRANSACTIONAL)
            with without_verification(wire):
                answer = TransactionalProducer(wire).send_batch(topic, records)
                assert answer.error_code is ErrorCode.none
            assert stable_offset(wire, topic) == 0
            where = ("--topic", name, "--partition", "0")
            found = table(transactions_command(broker, "find-hanging", *where))
            said = transactions_command(broker, "abort", *where, "--start-offset", "0")
            settle(wire, topic)
            left = table(transactions_command(broker, "find-hanging", *where))
            return [found, said, left, list_offset(wire, topic, LATEST).offset]

    found, _, left, end = assert_same(on_each(brokers, story))
    assert [(row["Topic"], row["StartOffset"]) for row in found] == [(name, "0")]
    assert (left, end) == ([], 2)
