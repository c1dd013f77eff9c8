"""`headwater log dump` prints the very lines that Kafka's DumpLogSegments prints for the same files."""

import contextlib
import io
import struct
import subprocess
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
from confluent_kafka import Consumer, Producer

from headwater.cli.commands import app
from headwater.coordinator.group import consumer_protocol
from headwater.coordinator.group import records as groups
from headwater.coordinator.group.partition_rows import TopicPartitions
from headwater.coordinator.outcome import CoordinatorRecord
from headwater.coordinator.transaction import records as transactions
from headwater.log.log import Log
from headwater.protocol.records import encode_batch
from peers.apache import QUICK_START, ApacheKafka, java_command
from peers.headwater import HeadwaterProcess
from peers.presence import require_apache
from unit.log.building import NOW_MS, append, batch, marker, open_log, topic_config

from .actions import eventually, unique_name

pytestmark = pytest.mark.peer

SMALL = topic_config(segment_bytes=2000, index_interval_bytes=300)


@pytest.fixture(autouse=True)
def _tools() -> None:
    require_apache()


def apaches(files: list[Path], *options: str) -> tuple[list[str], list[str]]:
    names = ",".join(map(str, files))
    command = java_command(
        "kafka.tools.DumpLogSegments",
        *("--files", names, *options),
        jvm_options=("-Xmx256m", "-Dstdout.encoding=UTF-8", *QUICK_START),
    )
    done = subprocess.run(command, capture_output=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().splitlines(), done.stderr.decode().splitlines()


def ours(files: list[Path], *options: str) -> tuple[list[str], list[str]]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        app(["log", "dump", *map(str, files), *options], standalone_mode=False)
    return out.getvalue().splitlines(), err.getvalue().splitlines()


def same(files: list[Path], *options: str) -> tuple[list[str], list[str]]:
    """Both dumps are the same, and this is what they say."""
    expected = apaches(files, *options)
    assert ours(files, *options) == expected
    return expected


def files_of(log: Log, *suffixes: str) -> list[Path]:
    return sorted(path for path in Path(log.path).iterdir() if path.suffix in suffixes)


@pytest.fixture
def log(tmp_path: Path) -> Log:
    """Several segments with all that a log can hold: codecs, headers, nulls, producers, transactions."""
    log = open_log(tmp_path, SMALL)
    for number in range(30):
        append(
            log,
            encode_batch(
                [
                    (b"key %d" % number, b"value %d" % number, (), NOW_MS + 10 * number),
                    (None, bytes(40), [("trace", b"x"), ("empty", None)], NOW_MS + 10 * number - 5),
                    (b"gone", None, (), NOW_MS + 10 * number + 3),
                ],
                compression=number % 5,
                producer_id=7 + number % 2,
                producer_epoch=1,
                base_sequence=3 * (number // 2),
            ),
            leader_epoch=number // 10,
        )
    append(log, batch([b"\xc3\xa9\xff text"], producer=(20, 0, 0), transactional=True), leader_epoch=3)
    append(log, marker(20, 0, commit=False, coordinator_epoch=4), leader_epoch=3)
    append(log, batch([b"open"], producer=(21, 0, 0), transactional=True), leader_epoch=3)
    append(log, marker(22, 5, commit=True), leader_epoch=3)
    log.config = replace(SMALL, message_timestamp_type="LogAppendTime")
    append(log, batch([b"stamped"]), leader_epoch=3, now_ms=NOW_MS + 400)
    log.close()
    return log


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--print-data-log",),
        ("--deep-iteration",),
        ("--print-data-log", "--skip-record-metadata"),
        ("--max-bytes", "700"),
    ],
    ids=lambda options: " ".join(options) or "batches",
)
def test_batches_and_records(log: Log, options: tuple[str, ...]) -> None:
    out, err = same(files_of(log, ".log"), *options)
    assert not err
    assert len(out) > len(log.segments) * 3


@pytest.mark.parametrize(
    "options",
    [(), ("--index-sanity-check",), ("--verify-index-only",), ("--max-message-size", "1000000")],
    ids=lambda options: " ".join(options) or "entries",
)
def test_indexes_snapshots_and_transactions(log: Log, options: tuple[str, ...]) -> None:
    files = files_of(log, ".index", ".timeindex", ".txnindex", ".snapshot")
    out, err = same(files, *options)
    assert not err
    assert len(files) >= 10
    assert any(line.startswith("version: 0 producerId: 20") for line in out)
    assert any("currentTxnFirstOffset: OptionalLong[" in line for line in out)


def test_what_is_wrong(log: Log) -> None:
    data, index, times = (files_of(log, suffix)[0] for suffix in (".log", ".index", ".timeindex"))
    content = bytearray(index.read_bytes())
    content[3] += 1
    content[11] += 1
    index.write_bytes(content)
    content = bytearray(times.read_bytes())
    content[7] += 1
    content[12:24] = content[0:8] + content[20:24]
    content[35] += 1
    times.write_bytes(content)
    content = bytearray(data.read_bytes())
    content[100] ^= 1
    data.write_bytes(content + bytes(7))
    _, err = same([data, index, times])
    assert [line.partition(":")[0] for line in err if line[0] == "F"] == [
        "Found timestamp mismatch in ",
        "Found out of order timestamp in ",
    ]
    assert "The following indexed offsets are not found in the log." in err
    assert f"Mismatches in :{index}" in err


def test_offsets_that_do_not_follow_each_other_and_files_of_no_kind(tmp_path: Path) -> None:
    folder = tmp_path / "events-0"
    folder.mkdir()
    data = folder / f"{10:020d}.log"
    data.write_bytes(b"".join(encode_batch([(None, b"x", (), 5)], base_offset=offset) for offset in (10, 12, 20)))
    other = folder / "leader-epoch.other"
    other.write_bytes(b"")
    out, err = same([data], "--deep-iteration")
    assert (len(out), err[1:]) == (8, ["  12 is followed by 20", "  10 is followed by 12"])
    assert same([other])[1] == [f"Ignoring unknown file {other}"]


def write_records(folder: Path, records: list[CoordinatorRecord]) -> Path:
    folder.mkdir()
    data = folder / f"{0:020d}.log"
    data.write_bytes(encode_batch([(record.key, record.value, (), NOW_MS) for record in records]))
    return data


def older(record: CoordinatorRecord, version: int, value: object, kind: groups.RecordType) -> CoordinatorRecord:
    return CoordinatorRecord(record.key, kind.value.encode(value, version))


_GROUP_TOPICS_KEY = struct.pack(">hh", 4, 1) + b"g"


def test_group_records(tmp_path: Path) -> None:
    topic_id = UUID(int=2**127 + 5)
    offset = groups.OffsetValue(
        offset=5, leader_epoch=3, metadata='a "note"\n\x1b\\ é', commit_timestamp_ms=7, expire_timestamp_ms=9
    )
    key = groups.OffsetKey("g", "t", 1)
    subscription = consumer_protocol.Subscription(topics=("t", "u"), user_data=b"\0\xff", rack_id="r")
    assignment = consumer_protocol.Assignment(partitions=(consumer_protocol.NamedPartitions("t", (0, 2)),))
    members = tuple(
        groups.ClassicMemberValue(
            member_id=f"m-{version}",
            instance_id="i",
            client_id="c",
            client_host="/127.0.0.1",
            rebalance_timeout_ms=10,
            session_timeout_ms=20,
            subscription=consumer_protocol.write_subscription(subscription, version),
            assignment=consumer_protocol.write_assignment(assignment, version),
        )
        for version in range(4)
    )
    group = groups.ClassicGroupValue(
        protocol_type="consumer", generation=2, protocol="range", leader="m-1", state_timestamp_ms=8, members=members
    )
    connect = replace(group, protocol_type="connect", protocol=None, leader=None)
    garbled = replace(group, members=(replace(members[0], subscription=b"\0", assignment=b""),))
    classic_key = groups.GroupKey("g")
    member_key = groups.MemberKey("g", "m")
    partitions = (TopicPartitions(topic_id, (0, 1)),)
    consumer = groups.ConsumerMemberValue(
        rack_id="r", client_id="c", client_host="h", subscribed_topics=("t",), subscribed_regex="t.*"
    )
    protocols = groups.ClassicMetadata(9, (groups.ClassicProtocol("range", b"abc"),))
    current = groups.CurrentMemberValue(
        epoch=3, previous_epoch=2, state=1, assigned=partitions, pending_revocation=partitions
    )
    written = [
        groups.OFFSET.record(key, offset),
        groups.OFFSET.record(key, replace(offset, topic_id=topic_id)),
        groups.OFFSET.record(key, None),
        *(older(groups.OFFSET.record(key, offset), version, offset, groups.OFFSET) for version in range(4)),
        *(
            older(groups.CLASSIC_GROUP.record(classic_key, group), version, group, groups.CLASSIC_GROUP)
            for version in range(5)
        ),
        groups.CLASSIC_GROUP.record(classic_key, connect),
        groups.CLASSIC_GROUP.record(classic_key, garbled),
        groups.CLASSIC_GROUP.record(classic_key, None),
        groups.CONSUMER_GROUP.record(classic_key, groups.ConsumerGroupValue(epoch=1)),
        groups.CONSUMER_GROUP.record(classic_key, groups.ConsumerGroupValue(epoch=1, metadata_hash=-77)),
        groups.CONSUMER_MEMBER.record(member_key, consumer),
        groups.CONSUMER_MEMBER.record(member_key, replace(consumer, classic=protocols)),
        groups.CONSUMER_MEMBER.record(member_key, replace(consumer, classic=groups.ClassicMetadata(0, ()))),
        groups.TARGET_EPOCH.record(classic_key, groups.TargetEpochValue(4)),
        groups.TARGET_MEMBER.record(member_key, groups.TargetMemberValue(partitions)),
        groups.CURRENT_MEMBER.record(member_key, current),
        groups.REGEX.record(groups.RegexKey("g", "t.*"), groups.RegexValue(topics=("t",), version=3, timestamp_ms=4)),
        # What Kafka 4.0 wrote of a group's topics: one with a partition in rack r, then the tombstone.
        CoordinatorRecord(_GROUP_TOPICS_KEY, b"\0\0\2" + topic_id.bytes + b"\2t\0\0\0\1\2\0\0\0\0\2\2r\0\0\0"),
        CoordinatorRecord(_GROUP_TOPICS_KEY, None),
        CoordinatorRecord(struct.pack(">h", 99), b"?"),
    ]
    out, err = same([write_records(tmp_path / "__consumer_offsets-0", written)], "--offsets-decoder")
    assert not err
    assert len(out) == 3 + len(written)
    assert '"partitionMetadata":[{"partition":0,"racks":["r"]}]' in out[-3]
    assert out[-1].endswith("key: Unknown record type 99 at offset 26, skipping.")


def test_transaction_records(tmp_path: Path) -> None:
    value = transactions.TransactionValue(
        producer_id=3, producer_epoch=1, timeout_ms=60_000, status=0, partitions=None, last_update_ms=5, start_ms=-1
    )
    ongoing = replace(
        value,
        status=1,
        partitions=(transactions.TopicPartitions("t", (0, 1)),),
        previous_producer_id=2,
        next_producer_id=4,
        next_producer_epoch=0,
        client_transaction_version=2,
    )
    written = [
        transactions.encode("id", value),
        transactions.encode("id", ongoing),
        transactions.encode("id", None),
        CoordinatorRecord(struct.pack(">h", 7), b"?"),
    ]
    out, _ = same([write_records(tmp_path / "__transaction_state-0", written)], "--transaction-log-decoder")
    assert out[4].endswith('"clientTransactionVersion":2}}')
    assert out[5].endswith("payload: <DELETE>")


def test_what_apache_wrote_itself(apache: ApacheKafka) -> None:
    topic, group = unique_name(), unique_name()
    producer = Producer({"bootstrap.servers": apache.bootstrap, "transactional.id": topic, "compression.type": "zstd"})
    producer.init_transactions(30)
    producer.begin_transaction()
    for number in range(20):
        producer.produce(topic, b"value %d" % number, key=b"key", partition=0, headers=[("h", b"1")])
    producer.commit_transaction(30)
    consumer = Consumer({"bootstrap.servers": apache.bootstrap, "group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    seen = []

    def caught_up() -> bool:
        message = consumer.poll(0.2)
        if message is not None and not message.error():
            seen.append(message.value())
        return len(seen) == 20

    eventually(caught_up, "the records")
    consumer.commit(asynchronous=False)
    consumer.close()
    data = apache.data_dir / f"{topic}-0" / f"{0:020d}.log"
    out, _ = same([data], "--print-data-log")
    assert sum(" payload: value" in line for line in out) == 20
    offsets = sorted(apache.data_dir.glob("__consumer_offsets-*/*.log"))
    out, _ = same(offsets, "--offsets-decoder")
    assert any(f'"group":"{group}"' in line and '"assignedPartitions"' in line for line in out)
    states = sorted(apache.data_dir.glob("__transaction_state-*/*.log"))
    out, _ = same(states, "--transaction-log-decoder")
    assert any(f'"transactionalId":"{topic}"' in line for line in out)


def test_the_indexes_of_a_running_broker_are_not_empty(tmp_path: Path) -> None:
    with HeadwaterProcess(tmp_path / "broker", {"auto.create.topics.enable": "true"}) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0, "batch.size": 2000})
        for number in range(200):
            producer.produce("live", bytes(500), timestamp=NOW_MS + number)
        producer.flush(30)
        files = [broker.data_dir / "live-0" / f"{0:020d}{suffix}" for suffix in (".index", ".timeindex")]
        eventually(lambda: all(path.stat().st_size for path in files), "entries in both files")
        offsets, problems = same(files[:1])
        assert sum(line.startswith("offset: ") for line in offsets) > 5
        times, more_problems = same(files[1:])
        assert sum(line.startswith("timestamp: ") for line in times) > 5
        assert problems == more_problems == []
        assert (broker.data_dir / "live-0" / "leader-epoch-checkpoint").read_text() == "0\n1\n0 0\n"
