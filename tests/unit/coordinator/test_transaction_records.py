"""The records of `__transaction_state` are Apache's: it reads ours, and for the same story we write its bytes."""

import re
from pathlib import Path

import confluent_kafka
import pytest

from headwater.coordinator.outcome import CoordinatorRecord
from headwater.coordinator.transaction import records
from headwater.coordinator.transaction.transaction import LAST_EPOCH, Transaction
from headwater.protocol.records import decode_records, encode_batch, scan_headers
from headwater.types import TopicPartition
from peers.apache import ApacheKafka, run_tool
from peers.presence import require_apache

from .test_transaction_init import with_epoch
from .transaction_building import Runtime, told

TOPIC = "topic-1-b189c7f5"
# What Apache Kafka 4.1 wrote (only the values, in hex) when a client of transaction version 2 began a transaction with
# one partition and then another, committed, aborted without having begun, began again and was fenced by a new instance.
APACHES_STORY = [
    "0001000000000000000000000000ea600000000001a1e2f88313ffffffffffffffff00",
    "0001000000000000000000000000ea60010211746f7069632d312d6231383963376635020000000000000001a1e2f88478000001a1e2f884780102020002",
    "0001000000000000000000000000ea60010211746f7069632d312d623138396337663503000000000000000100000001a1e2f8848e000001a1e2f884780102020002",
    "0001000000000000000000010000ea60020211746f7069632d312d623138396337663503000000000000000100000001a1e2f884bc000001a1e2f884780102020002",
    "0001000000000000000000010000ea600401000001a1e2f884ce000001a1e2f884780102020002",
    "0001000000000000000000020000ea600301000001a1e2f8851b000001a1e2f8851b0102020002",
    "0001000000000000000000020000ea600501000001a1e2f8851c000001a1e2f8851b0102020002",
    "0001000000000000000000020000ea60010211746f7069632d312d6231383963376635020000000000000001a1e2f88522000001a1e2f885220102020002",
    "0001000000000000000000030000ea60030211746f7069632d312d6231383963376635020000000000000001a1e2f8852b000001a1e2f885220102020002",
    "0001000000000000000000030000ea600501000001a1e2f8852c000001a1e2f885220102020002",
    "0001000000000000000000040000ea600000000001a1e2f88543ffffffffffffffff0102020002",
]


def test_a_story_of_version_2_is_written_in_apaches_bytes() -> None:
    expected = [bytes.fromhex(line) for line in APACHES_STORY]
    runtime = Runtime()
    runtime.next_producer_id = -1
    runtime.writes_markers = False

    def set_clock() -> None:
        key = records.encode("story-tv2", None).key
        decoded = records.decode(key, expected[len(runtime.log)])
        assert decoded is not None
        assert decoded[1] is not None
        runtime.now_ms = decoded[1].last_update_ms

    def finish() -> None:
        set_clock()
        runtime.write_markers()
        set_clock()

    set_clock()
    producer = runtime.identity("story-tv2")
    for partition in (0, 1):
        set_clock()
        runtime.add_for("story-tv2", producer, TopicPartition(TOPIC, partition))
    set_clock()
    producer = told(runtime.end("story-tv2", producer))
    finish()
    producer = told(runtime.end("story-tv2", producer, commit=False))
    finish()
    runtime.add_for("story-tv2", producer, TopicPartition(TOPIC, 0))
    set_clock()
    runtime.init("story-tv2")
    finish()
    assert told(runtime.init("story-tv2")) == (0, 4)
    assert [record.value for record in runtime.log] == expected


@pytest.mark.peer
def test_a_story_of_librdkafka_is_written_in_apaches_bytes(apache: ApacheKafka) -> None:
    transactional_id = "story-of-librdkafka"
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": apache.bootstrap, "transactional.id": transactional_id, "log_level": 0}
    )
    producer.init_transactions(30)
    for commit in (True, False):
        producer.begin_transaction()
        producer.produce("story-of-librdkafka", b"value", partition=0)
        producer.flush(30)
        (producer.commit_transaction if commit else producer.abort_transaction)(30)
    # The next instance gets its epoch only when the abort is complete, so everything is in the log then.
    confluent_kafka.Producer(
        {"bootstrap.servers": apache.bootstrap, "transactional.id": transactional_id, "log_level": 0}
    ).init_transactions(30)
    theirs = [value for name, value in transaction_records(apache.data_dir) if name == transactional_id]
    assert all(value is not None for value in theirs)
    states = [Transaction.from_value(value).state.label for value in theirs if value is not None]
    one = ["Ongoing", "Prepare{}", "Complete{}"]
    assert states == [
        "Empty",
        *(state.format("Commit") for state in one),
        *(state.format("Abort") for state in one),
        "Empty",
    ]
    ours = Runtime()
    first = theirs[0]
    assert first is not None
    ours.next_producer_id = first.producer_id - 1
    ours.writes_markers = False
    clock = iter([value.last_update_ms for value in theirs if value is not None])
    ours.now_ms = next(clock)
    identity = ours.identity(transactional_id)
    for commit in (True, False):
        ours.now_ms = next(clock)
        ours.add(transactional_id, identity, TopicPartition("story-of-librdkafka", 0))
        ours.now_ms = next(clock)
        ours.end(transactional_id, identity, commit=commit, version=4)
        ours.now_ms = next(clock)
        ours.write_markers()
    ours.now_ms = next(clock)
    ours.identity(transactional_id)
    assert ours.log == [records.encode(transactional_id, value) for value in theirs]


def transaction_records(folder: Path) -> list[tuple[str, records.TransactionValue | None]]:
    """What is in the log of a broker's transaction coordinator; each record is one that we would write like that."""
    found = []
    for segment in sorted(folder.glob("__transaction_state-*/*.log")):
        content = segment.read_bytes()
        for header in scan_headers(content, 0, len(content)):
            for record in decode_records(content, header):
                decoded = records.decode(record.key or b"", record.value)
                assert decoded is not None
                assert records.encode(*decoded) == CoordinatorRecord(record.key or b"", record.value)
                found.append(decoded)
    return found


@pytest.mark.peer
def test_apaches_tool_reads_what_we_write(tmp_path: Path) -> None:
    require_apache()
    runtime = Runtime()
    last = with_epoch(runtime, "a", LAST_EPOCH)
    runtime.add_for("a", last, TopicPartition("orders", 3), TopicPartition("payments", 0))
    after = told(runtime.end("a", last))
    runtime.identity("a", after)
    runtime.now_ms += runtime.config.transactional_id_expiration_ms
    runtime.expire()
    batches = [
        encode_batch([(record.key, record.value, (), runtime.now_ms)], base_offset=offset)
        for offset, record in enumerate(runtime.log)
    ]
    segment = tmp_path / f"{0:020d}.log"
    segment.write_bytes(b"".join(batches))
    dumped = run_tool("kafka.tools.DumpLogSegments", "--transaction-log-decoder", "--files", str(segment))
    payloads = re.findall(r"payload: (.*)", dumped)
    assert len(payloads) == len(runtime.log)
    states = [re.search(r'"transactionStatus":(\d+)', payload) for payload in payloads]
    assert [match and match[1] for match in states] == ["0", "1", "2", "4", "0", None]
    assert f'"nextProducerId":{after.producer_id}' in payloads[2]
    assert f'"previousProducerId":{last.producer_id}' in payloads[3]
    assert '"topic":"payments"' in payloads[1]
    assert payloads[5] == "<DELETE>"
