"""Data folders change hands: headwater opens what Apache wrote, and Apache's tool finds no fault in ours."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from kio.schema.errors import ErrorCode

from peers.apache import QUICK_START, ApacheKafka, run_tool
from peers.headwater import HeadwaterProcess
from peers.presence import require_apache

from .actions import (
    LATEST,
    Topic,
    create_topic,
    describe_topic,
    fetch_all,
    list_offset,
    new_producer,
    produce,
    produce_ok,
    wait_for_partitions,
)
from .batches import AN_HOUR_AGO_MS, Record, batch, read_batches, values
from .conftest import Broker
from .wire import Wire

pytestmark = pytest.mark.peer

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SMALL_SEGMENTS = {"segment.bytes": str(1024 * 1024)}
SEGMENTED_RECORDS = 40


def write_each_codec(broker: Broker, topic: Topic) -> None:
    """Fifty records by librdkafka's idempotent producer with each compression."""
    for codec in CODECS:
        settings = {"compression.type": codec, "enable.idempotence": True, "linger.ms": 20, "log_level": 0}
        producer = Producer({"bootstrap.servers": broker.bootstrap, **settings})
        for number in range(50):
            value = f"{codec} {number} {'x' * 100}"
            producer.produce(topic.name, value, key=str(number), partition=0, headers={"c": codec})
        assert producer.flush(30) == 0


def expected_values() -> list[bytes]:
    return [f"{codec} {number} {'x' * 100}".encode() for codec in CODECS for number in range(50)]


def write_segments(wire: Wire, topic: Topic, start_ms: int) -> None:
    for number in range(SEGMENTED_RECORDS):
        record = Record(
            key=b"%d" % number, value=b"%d" % number + bytes(100_000), timestamp_ms=start_ms + 1000 * number
        )
        produce_ok(wire, topic, batch(record))


def read_all(broker: Broker, topic: Topic, count: int) -> list[bytes]:
    settings = {"group.id": "unused", "enable.auto.commit": False, "check.crcs": True}
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, **settings})
    try:
        consumer.assign([TopicPartition(topic.name, 0, 0)])
        got: list[bytes] = []
        while len(got) < count:
            messages = consumer.consume(count - len(got), timeout=10)
            assert messages, f"{len(got)} of {count} records"
            for message in messages:
                assert message.error() is None, message.error()
                got.append(message.value() or b"")
        return got
    finally:
        consumer.close()


class Sequenced:
    """A topic that one idempotent producer wrote some batches to."""

    def __init__(self, wire: Wire, batches: int) -> None:
        self.topic = create_topic(wire)
        self.producer_id, self.epoch = new_producer(wire)
        self.batches = batches
        for sequence in range(batches):
            produce_ok(wire, self.topic, self.batch(sequence))

    def batch(self, sequence: int) -> bytes:
        return batch(b"%d" % sequence, producer_id=self.producer_id, producer_epoch=self.epoch, base_sequence=sequence)

    def assert_known(self, wire: Wire) -> None:
        """A retry of the last batch is recognised, a gap refused."""
        answer = produce(wire, self.topic, self.batch(self.batches - 1))
        assert (answer.error_code, answer.base_offset) == (ErrorCode.none, self.batches - 1)
        gap = produce(wire, self.topic, self.batch(self.batches + 4))
        assert gap.error_code is ErrorCode.out_of_order_sequence_number
        assert list_offset(wire, self.topic, LATEST).offset == self.batches


class ApacheFolder:
    """What an Apache broker left behind, after a clean stop and as a kill -9 would have, and what it had been told."""

    def __init__(self, broker: ApacheKafka) -> None:
        self.start_ms = AN_HOUR_AGO_MS
        with broker, Wire(broker.bootstrap) as wire:
            self.compressed = create_topic(wire, partitions=2)
            write_each_codec(broker, self.compressed)
            self.segmented = create_topic(wire, configs=SMALL_SEGMENTS)
            write_segments(wire, self.segmented, self.start_ms)
            self.sequenced = Sequenced(wire, 3)
            # While it runs its indexes are 10 MiB of mostly zeros, and nothing says that it has stopped.
            self.crashed = shutil.copytree(broker.data_dir, broker.folder / "crashed")
            (self.crashed / ".lock").unlink(missing_ok=True)
        self.stopped = broker.data_dir


@pytest.fixture(scope="module")
def apache_folder(tmp_path_factory: pytest.TempPathFactory) -> ApacheFolder:
    require_apache()
    return ApacheFolder(ApacheKafka(tmp_path_factory.mktemp("apache-folder"), jvm_options=QUICK_START))


@pytest.fixture(params=["stopped", "crashed"])
def taken_over(
    apache_folder: ApacheFolder, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[HeadwaterProcess]:
    """headwater on a copy of Apache's folder."""
    copy = tmp_path / "copy"
    shutil.copytree(getattr(apache_folder, request.param), copy)
    with HeadwaterProcess(tmp_path / "run", {"node.id": "1"}, data_dir=copy) as broker:
        yield broker


def test_an_apache_folder_is_opened_with_its_topics_and_ids(
    apache_folder: ApacheFolder, taken_over: HeadwaterProcess
) -> None:
    with Wire(taken_over.bootstrap) as wire:
        for topic, partitions in [
            (apache_folder.compressed, 2),
            (apache_folder.segmented, 1),
            (apache_folder.sequenced.topic, 1),
        ]:
            wait_for_partitions(wire, topic.name, partitions)
            assert describe_topic(wire, topic.name).topic_id == topic.id
        assert "__cluster_metadata" not in {found.name for found in wire.send("metadata", topics=None).topics}


def test_records_that_apache_wrote_are_read_with_each_compression(
    apache_folder: ApacheFolder, taken_over: HeadwaterProcess
) -> None:
    assert read_all(taken_over, apache_folder.compressed, 250) == expected_values()


def test_segments_that_apache_wrote_are_searched_and_continued(
    apache_folder: ApacheFolder, taken_over: HeadwaterProcess
) -> None:
    topic = apache_folder.segmented
    with Wire(taken_over.bootstrap) as wire:
        for number in range(SEGMENTED_RECORDS):
            found = list_offset(wire, topic, apache_folder.start_ms + 1000 * number - 500)
            assert (found.offset, found.timestamp) == (number, apache_folder.start_ms + 1000 * number)
        assert produce_ok(wire, topic, batch(b"on")) == SEGMENTED_RECORDS
        assert values(fetch_all(wire, topic, offset=SEGMENTED_RECORDS)) == [b"on"]


def test_what_producers_sent_to_apache_is_known(apache_folder: ApacheFolder, taken_over: HeadwaterProcess) -> None:
    with Wire(taken_over.bootstrap) as wire:
        apache_folder.sequenced.assert_known(wire)


class OurFolder:
    """What headwater left behind after a clean stop."""

    def __init__(self, broker: HeadwaterProcess) -> None:
        self.start_ms = AN_HOUR_AGO_MS
        with broker, Wire(broker.bootstrap) as wire:
            self.compressed = create_topic(wire)
            write_each_codec(broker, self.compressed)
            self.segmented = create_topic(wire, configs=SMALL_SEGMENTS)
            write_segments(wire, self.segmented, self.start_ms)
            self.sequenced = Sequenced(wire, 6)
            self.batches = len(read_batches(fetch_all(wire, self.compressed)))
        self.path = broker.data_dir

    def files(self, topic: Topic, ending: str) -> list[str]:
        return [str(path) for path in sorted((self.path / f"{topic.name}-0").glob(f"*{ending}"))]


@pytest.fixture(scope="module")
def our_folder(tmp_path_factory: pytest.TempPathFactory) -> OurFolder:
    require_apache()
    return OurFolder(HeadwaterProcess(tmp_path_factory.mktemp("our-folder")))


def dump(*arguments: str) -> str:
    return run_tool("kafka.tools.DumpLogSegments", *arguments)


def assert_no_fault(said: str) -> None:
    assert not re.search(
        r"(?i)mismatch|corrupt|invalid|exception|non-consecutive|isvalid: false|found timestamp", said
    ), said


def test_dump_log_segments_reads_our_records(our_folder: OurFolder) -> None:
    files = our_folder.files(our_folder.compressed, ".log")
    said = dump("--deep-iteration", "--print-data-log", "--files", ",".join(files))
    assert_no_fault(said)
    assert len(re.findall(r"^baseOffset: ", said, re.MULTILINE)) == our_folder.batches
    payloads = re.findall(r"payload: (.*)$", said, re.MULTILINE)
    assert [payload.encode() for payload in payloads] == expected_values()
    for codec in CODECS:
        assert f"compresscodec: {codec}" in said
    assert "isvalid: true" in said


def test_dump_log_segments_finds_our_indexes_right(our_folder: OurFolder) -> None:
    """For each index Apache checks every entry against the log beside it, and the whole against its rules."""
    logs = our_folder.files(our_folder.segmented, ".log")
    assert len(logs) >= 4
    indexes = our_folder.files(our_folder.segmented, ".index") + our_folder.files(our_folder.segmented, ".timeindex")
    assert len(indexes) == 2 * len(logs)
    entries = dump("--files", ",".join(indexes))
    assert_no_fault(entries)
    assert len(re.findall(r"^offset: \d+ position: \d+$", entries, re.MULTILINE)) >= 20
    assert len(re.findall(r"^timestamp: \d+ offset: \d+$", entries, re.MULTILINE)) >= 20
    sanity = dump("--index-sanity-check", "--files", ",".join(indexes))
    assert_no_fault(sanity)
    assert sanity.count("passed sanity check") == len(indexes)


def test_dump_log_segments_reads_our_producer_snapshots(our_folder: OurFolder) -> None:
    snapshots = our_folder.files(our_folder.compressed, ".snapshot")
    assert snapshots, "a clean stop leaves one"
    said = dump("--files", ",".join(snapshots))
    assert_no_fault(said)
    states = re.findall(r"^producerId: \d+ producerEpoch: 0 .*lastSequence: 49 ", said, re.MULTILINE)
    assert len(states) == len(CODECS), said


def test_apache_serves_partitions_that_we_wrote(our_folder: OurFolder, tmp_path: Path) -> None:
    """Our partition folders are put in the place of empty ones of Apache's."""
    require_apache()
    broker = ApacheKafka(tmp_path, jvm_options=QUICK_START)
    with broker:
        with Wire(broker.bootstrap) as wire:
            names = (our_folder.compressed.name, our_folder.sequenced.topic.name)
            theirs = [create_topic(wire, name=name) for name in names]
        broker.stop()
        for topic in theirs:
            folder = broker.data_dir / f"{topic.name}-0"
            metadata = (folder / "partition.metadata").read_text()
            shutil.rmtree(folder)
            shutil.copytree(our_folder.path / folder.name, folder)
            (folder / "partition.metadata").write_text(metadata)
        broker.start()
        with Wire(broker.bootstrap) as wire:
            for topic in theirs:
                wait_for_partitions(wire, topic.name, 1)
            assert list_offset(wire, theirs[0], LATEST).offset == 250
            our_folder.sequenced.topic = theirs[1]
            our_folder.sequenced.assert_known(wire)
        assert read_all(broker, theirs[0], 250) == expected_values()
