"""Transactions from the command line, on headwater and on Apache Kafka alike."""

import asyncio
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

import pytest
from confluent_kafka import Producer

from headwater.client import Client
from headwater.client.client import duration
from headwater.protocol.kafka_types import ErrorCode, TopicName, i16, i32
from headwater.protocol.records import encode_batch
from peers.apache import run_tool
from peers.presence import require_apache

from .cli_runner import Cli

from kio.schema.produce.v11.request import PartitionProduceData, ProduceRequest, TopicProduceData  # isort: skip
from kio.schema.produce.v11.response import ProduceResponse  # isort: skip
from kio.schema.types import TransactionalId  # isort: skip
from kio.static.primitive import Records  # isort: skip

TRANSACTIONS_COMMAND = "org.apache.kafka.tools.TransactionsCommand"
UNKNOWN_PRODUCER_ID = 4_000_000


@pytest.fixture(params=["headwater", "apache"])
def cli(request: pytest.FixtureRequest) -> Cli:
    """Each case runs once against either."""
    return Cli(request.getfixturevalue(request.param).bootstrap)


@pytest.fixture
def topic(cli: Cli) -> str:
    return cli.new_topic("--partitions", "2")


@pytest.fixture
def transactional_id() -> str:
    return f"shop-{uuid.uuid4().hex[:8]}"


def new_producer(cli: Cli, transactional_id: str) -> Producer:
    producer = Producer({"bootstrap.servers": cli.bootstrap, "transactional.id": transactional_id})
    producer.init_transactions(60)
    return producer


@contextmanager
def open_transaction(cli: Cli, transactional_id: str, topic: str, partition: int) -> Iterator[Producer]:
    """A transaction with one record written; its coordinator aborts it some time later unless the case ends it."""
    producer = new_producer(cli, transactional_id)
    producer.begin_transaction()
    producer.produce(topic, "one crate", partition=partition)
    producer.flush(30)
    yield producer


def kafkas_rows(cli: Cli, *arguments: str) -> list[list[str]]:
    """What Apache's own tool prints about the same cluster, without its heading."""
    printed = run_tool(TRANSACTIONS_COMMAND, "--bootstrap-server", cli.bootstrap, *arguments)
    return [line.split() for line in printed.splitlines()[1:]]


def described(cli: Cli, transactional_id: str) -> dict[str, str]:
    lines = cli.ok("transactions", "describe", transactional_id).out.splitlines()
    return dict(cast(tuple[str, str], line.split()) for line in lines)


def test_transactional_ids_are_listed_with_their_state(cli: Cli, topic: str, transactional_id: str) -> None:
    idle, open_, done = (f"{transactional_id}-{name}" for name in ("idle", "open", "done"))
    new_producer(cli, idle)
    with open_transaction(cli, open_, topic, 0), open_transaction(cli, done, topic, 1) as finished:
        finished.commit_transaction(30)

        def listed(*options: str) -> dict[str, str]:
            rows = cli.ok("transactions", "list", *options).rows
            return {row[0]: row[3] for row in rows if row[0].startswith(transactional_id)}

        assert listed() == {idle: "Empty", open_: "Ongoing", done: "CompleteCommit"}
        assert listed("--state", "ongoing", "--state", "empty") == {idle: "Empty", open_: "Ongoing"}
        found = {entry["transactional_id"]: entry for entry in cli.ok("transactions", "list", "--json").json}
        assert listed("--producer-id", str(found[open_]["producer_id"])) == {open_: "Ongoing"}
        assert found[open_]["coordinator"] == 1
        assert open_ not in listed("--duration-ms", "3600000")
        assert open_ in listed("--duration-ms", "0", "--state", "ongoing")
        heading = cli.ok("transactions", "list").out.split()[:4]
        assert heading == ["TransactionalId", "Coordinator", "ProducerId", "TransactionState"]


def test_a_transactional_id_is_described_before_during_and_after_a_transaction(
    cli: Cli, topic: str, transactional_id: str
) -> None:
    producer = new_producer(cli, transactional_id)
    before = described(cli, transactional_id)
    assert before == {
        "CoordinatorId": "1",
        "TransactionalId": transactional_id,
        "ProducerId": before["ProducerId"],
        "ProducerEpoch": "0",
        "TransactionState": "Empty",
        "TransactionTimeoutMs": "60000",
        "CurrentTransactionStartTimeMs": "-",
        "TransactionDurationMs": "-",
        "TopicPartitions": "-",
    }
    producer.begin_transaction()
    producer.produce(topic, "six bottles", partition=1)
    producer.flush(30)
    during = described(cli, transactional_id)
    assert (during["TransactionState"], during["TopicPartitions"]) == ("Ongoing", f"{topic}-1")
    assert abs(int(during["CurrentTransactionStartTimeMs"]) - time.time() * 1000) < 60_000
    assert 0 <= int(during["TransactionDurationMs"]) < 60_000
    producer.abort_transaction(30)
    after = described(cli, transactional_id)
    assert (after["TransactionState"], after["TopicPartitions"]) == ("CompleteAbort", "-")

    (found,) = cli.ok("transactions", "describe", transactional_id, "--json").json
    assert (found["state"], found["timeout_ms"], found["partitions"]) == ("CompleteAbort", 60000, [])


def test_an_id_that_is_not_there_is_one_sentence_and_exit_code_1(cli: Cli, transactional_id: str) -> None:
    new_producer(cli, transactional_id)
    done = cli("transactions", "describe", transactional_id, "nobody")
    assert (done.code, done.err.count("\n")) == (1, 1)
    assert transactional_id in done.out
    assert done.err.startswith("headwater: transactional id nobody: no such transactional id; ")


@pytest.mark.peer
def test_descriptions_are_those_of_kafkas_own_tool(cli: Cli, topic: str, transactional_id: str) -> None:
    require_apache()
    with open_transaction(cli, transactional_id, topic, 0):
        ours = described(cli, transactional_id)
        (theirs,) = kafkas_rows(cli, "describe", "--transactional-id", transactional_id)
        durations = ours.pop("TransactionDurationMs"), theirs.pop(7)
        assert list(ours.values()) == theirs
        assert int(durations[0]) <= int(durations[1])

        ours_listed, theirs_listed = cli.ok("transactions", "list").rows, kafkas_rows(cli, "list")
        assert {row[0] for row in ours_listed} == {row[0] for row in theirs_listed}
        assert only(ours_listed, transactional_id) == only(theirs_listed, transactional_id)
        scope = ("describe-producers", "--topic", topic, "--partition", "0")
        assert cli.ok("transactions", *scope).rows == kafkas_rows(cli, *scope)


def test_an_open_transaction_is_aborted_in_a_partition(cli: Cli, topic: str, transactional_id: str) -> None:
    cli.ok("produce", topic, "--partition", "0", stdin="before\n")
    place = ("--topic", topic, "--partition", "0")
    with open_transaction(cli, transactional_id, topic, 0):
        cli.ok("produce", topic, "--partition", "0", stdin="after\n")
        assert readable(cli, topic) == ["before"]
        producers = cli.ok("transactions", "describe-producers", *place, "--json").json
        (ours,) = [producer for producer in producers if producer["transaction_start_offset"] is not None]
        assert ours["transaction_start_offset"] == 1

        wrong = cli("transactions", "abort", *place, "--start-offset", "0")
        assert (wrong.code, wrong.out) == (1, "")
        assert "no transaction that starts at offset 0 is open" in wrong.err

        done = cli.ok("transactions", "abort", *place, "--start-offset", "1")
        who = f"producer {ours['producer_id']}, epoch {ours['producer_epoch']}"
        assert done.out == f"Wrote an abort marker for {who}, to partition 0 of topic {topic}.\n"
        assert readable(cli, topic) == ["before", "after"]
        producers = cli.ok("transactions", "describe-producers", *place, "--json").json
        assert {producer["transaction_start_offset"] for producer in producers} == {None}


def test_a_transaction_that_its_coordinator_runs_does_not_hang(cli: Cli, topic: str, transactional_id: str) -> None:
    with open_transaction(cli, transactional_id, topic, 0):
        done = cli("transactions", "find-hanging", "--topic", topic, "--max-transaction-timeout", "0")
        assert (done.code, done.rows) == (0, [])
        assert done.err == "headwater: no transaction hangs in 2 partitions\n"


def test_a_hanging_transaction_is_found_and_aborted(cli: Cli, topic: str) -> None:
    with unchecked_transactions(cli):
        asyncio.run(write_unknown_transaction(cli, topic, 1))
    search = ("transactions", "find-hanging", "--topic", topic)
    assert cli(*search).rows == [], "it is younger than a quarter of an hour"
    found = cli(*search, "--max-transaction-timeout", "0")
    (row,) = found.rows
    assert row[:6] == [topic, "1", str(UNKNOWN_PRODUCER_ID), "0", "-1", "0"]
    assert "headwater transactions abort" in found.err
    (hanging,) = cli.ok(*search, "--partition", "1", "--max-transaction-timeout", "0", "--json").json
    assert hanging["producer_id"] == UNKNOWN_PRODUCER_ID
    everywhere = cli("transactions", "find-hanging", "--max-transaction-timeout", "0").rows
    assert row[:-1] in [other[:-1] for other in everywhere]

    place = ("--topic", topic, "--partition", "1")
    epochs = ("--producer-epoch", "0", "--coordinator-epoch", "-1")
    cli.ok("transactions", "abort", *place, "--producer-id", str(UNKNOWN_PRODUCER_ID), *epochs)
    assert cli(*search, "--max-transaction-timeout", "0").rows == []


@pytest.mark.peer
def test_hanging_transactions_are_those_that_kafkas_own_tool_finds(cli: Cli, topic: str) -> None:
    require_apache()
    with unchecked_transactions(cli):
        asyncio.run(write_unknown_transaction(cli, topic, 0))
    search = ("find-hanging", "--topic", topic, "--max-transaction-timeout", "0")
    (ours,), (theirs,) = cli("transactions", *search).rows, kafkas_rows(cli, *search)
    assert ours[:-1] == theirs[:-1], "all but the minutes since then"
    run_tool(
        TRANSACTIONS_COMMAND, "--bootstrap-server", cli.bootstrap, "abort", "--topic", topic, "--partition", "0",
        "--start-offset", "0",
    )  # fmt: skip
    assert cli("transactions", *search).rows == []


def only(rows: list[list[str]], name: str) -> list[list[str]]:
    return [row for row in rows if row[0] == name]


def readable(cli: Cli, topic: str) -> list[str]:
    """The records of partition 0 that a reader of committed ones gets."""
    options = ("--partition", "0", "--from-beginning", "--until-end", "--read-committed")
    return cli.ok("consume", topic, *options).out.split()


@contextmanager
def unchecked_transactions(cli: Cli) -> Iterator[None]:
    """Makes brokers take transactional records of producers that no coordinator has heard of, as old ones did."""
    name = "transaction.partition.verification.enable"
    cli.ok("configs", "alter", "brokers", "default", "--set", f"{name}=false")
    try:
        yield
    finally:
        cli.ok("configs", "alter", "brokers", "default", "--delete", name)


async def write_unknown_transaction(cli: Cli, topic: str, partition: int) -> None:
    """A transactional record of a producer that no coordinator knows, so that nobody will ever end it."""
    batch = encode_batch(
        [(None, b"left behind", [], time.time_ns() // 1_000_000)],
        producer_id=UNKNOWN_PRODUCER_ID,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    data = PartitionProduceData(index=i32(partition), records=cast(Records, batch))
    request = ProduceRequest(
        transactional_id=TransactionalId("nobody"),
        acks=i16(-1),
        timeout=duration(30),
        topic_data=(TopicProduceData(name=TopicName(topic), partition_data=(data,)),),
    )
    async with Client(cli.bootstrap) as client:
        answer = await client.send(request, ProduceResponse)
    assert answer.responses[0].partition_responses[0].error_code is ErrorCode.none, answer
