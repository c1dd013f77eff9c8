"""What a broker keeps over a clean stop and over kill -9, and what it has on the device before it answers.

A kill leaves the page cache, so everything that was acknowledged must be there again, with its offset.
"""

import errno
import os
import re
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from conformance.actions import (
    LATEST,
    SET,
    Topic,
    alter_incrementally,
    create_topic,
    describe_topic,
    eventually,
    fetch,
    fetch_all,
    list_offset,
    new_producer,
    produce_ok,
    topic_configs,
    wait_for_partitions,
)
from conformance.batches import Record, batch, now_ms, read_batches, read_records, values
from conformance.wire import Wire
from headwater.log.filesystem import FileSystem
from headwater.testing import LocalBroker
from integration.raw_client import RawClient, batch_of, fetch_body, fetched, produce_body, produced
from peers.headwater import HeadwaterProcess

End = Callable[[HeadwaterProcess], object]
ENDS: list[End] = [HeadwaterProcess.stop, HeadwaterProcess.kill]
OUT_OF_ORDER = 45


def ends(function: End) -> str:
    return function.__name__


def log_file(data: Path, topic: Topic, base_offset: int = 0) -> Path:
    return data / f"{topic.name}-0" / f"{base_offset:020}.log"


def leader_epoch(wire: Wire, topic: Topic) -> int:
    (partition,) = describe_topic(wire, topic.name).partitions
    epoch: int = partition.leader_epoch
    return epoch


@pytest.mark.parametrize("end", ENDS, ids=ends)
def test_a_producer_at_work_loses_and_doubles_nothing(tmp_path: Path, end: End) -> None:
    count, delivered = 30_000, dict[tuple[int, int], bytes]()
    with HeadwaterProcess(tmp_path) as broker:
        with Wire(broker.bootstrap) as wire:
            topic = create_topic(wire, partitions=2)
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": broker.bootstrap,
                "enable.idempotence": True,
                "batch.num.messages": 20,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
                "retry.backoff.ms": 20,
                "log_level": 0,
            }
        )

        def on_delivery(error: Any, message: Any) -> None:
            assert error is None, error
            delivered[message.partition(), message.offset()] = message.value()

        for number in range(count):
            producer.produce(topic.name, b"%d" % number, partition=number % 2, on_delivery=on_delivery)
        while len(delivered) < 2000:
            producer.poll(0.01)
        end(broker)
        assert len(delivered) < count, "it was to be interrupted"
        broker.start()
        assert producer.flush(60) == 0
        with Wire(broker.bootstrap) as wire:
            for partition in (0, 1):
                stored = everything(wire, topic, partition)
                assert sorted(map(int, stored.values())) == list(range(partition, count, 2))
                assert list(map(int, stored.values())) == sorted(map(int, stored.values())), "in order"
                told = {offset: value for (index, offset), value in delivered.items() if index == partition}
                assert told == stored


def everything(wire: Wire, topic: Topic, partition: int = 0) -> dict[int, bytes]:
    """All records of a partition: value by offset."""
    found: dict[int, bytes] = {}
    while records := read_records(fetch(wire, topic, len(found), partition=partition).records):
        found |= {record.offset: record.value or b"" for record in records}
    return found


class Story:
    """A broker that was used, ended and started again, and what it had promised before."""

    def __init__(self, broker: HeadwaterProcess, end: End) -> None:
        self.broker, self.killed = broker, end is HeadwaterProcess.kill
        with Wire(broker.bootstrap) as wire:
            self.topic = create_topic(wire, configs={"flush.ms": "77000"})
            alter_incrementally(wire, self.topic.name, ("retention.ms", SET, "123456789"))
            self.wide = create_topic(wire, partitions=20)
            self.idle = create_topic(wire)
            self.producer_id, _ = new_producer(wire)
            self.retried = create_topic(wire)
            for partition in range(20):
                produce_ok(wire, self.wide, batch(b"p%d" % partition), partition=partition)
            self.epoch = leader_epoch(wire, self.topic)
        with RawClient(broker.bootstrap) as client:
            for number in range(0, 30, 3):
                three = batch_of(*(b"%d" % (number + more) for more in range(3)), timestamp_ms=now_ms())
                assert produced(client.ask(produce_body(self.topic.name, three))) == (0, number)
            for sequence in range(7):
                answer = client.ask(produce_body(self.retried.name, self.sequenced(sequence)))
                assert produced(answer) == (0, sequence)
        end(broker)
        broker.start()

    def sequenced(self, sequence: int) -> bytes:
        return sequenced(self.producer_id, sequence)


def sequenced(producer_id: int, sequence: int) -> bytes:
    # A producer whose newest record is older than producer.id.expiration.ms would be forgotten.
    now = now_ms()
    return batch_of(
        b"%d" % sequence, timestamp_ms=now, producer_id=producer_id, producer_epoch=0, base_sequence=sequence
    )


@pytest.fixture(scope="module", params=ENDS, ids=ends)
def story(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    with HeadwaterProcess(tmp_path_factory.mktemp("story")) as broker:
        yield Story(broker, request.param)


@pytest.fixture
def after(story: Story) -> Iterator[Wire]:
    """A connection after the restart."""
    with Wire(story.broker.bootstrap) as wire:
        yield wire


def test_topics_ids_configs_and_records_are_as_before(story: Story, after: Wire) -> None:
    for topic, partitions in ((story.topic, 1), (story.wide, 20), (story.idle, 1)):
        assert wait_for_partitions(after, topic.name, partitions).topic_id == topic.id
    configs = topic_configs(after, story.topic.name)
    assert (configs["flush.ms"].value, configs["retention.ms"].value) == ("77000", "123456789")
    assert everything(after, story.topic) == {number: b"%d" % number for number in range(30)}
    for partition in range(20):
        assert everything(after, story.wide, partition) == {0: b"p%d" % partition}
    assert list_offset(after, story.idle, LATEST).offset == 0


def test_a_retried_batch_is_acknowledged_with_its_old_offset_and_not_written_again(story: Story, after: Wire) -> None:
    with RawClient(story.broker.bootstrap) as client:
        assert produced(client.ask(produce_body(story.retried.name, story.sequenced(6)))) == (0, 6)
        assert fetched(client.ask(fetch_body(story.retried.name, 7)))[:2] == (0, 7), "the log still ends at 7"
        gap = produced(client.ask(produce_body(story.retried.name, story.sequenced(8))))
        assert gap[0] == OUT_OF_ORDER
        assert produced(client.ask(produce_body(story.retried.name, story.sequenced(7)))) == (0, 7)
    assert values(fetch_all(after, story.retried)) == [b"%d" % number for number in range(8)]


def test_the_leader_epoch_rises_after_a_kill_and_only_then(story: Story, after: Wire) -> None:
    epoch = leader_epoch(after, story.topic)
    assert epoch == story.epoch + story.killed
    assert produce_ok(after, story.topic, batch(b"new")) == 30
    written = read_batches(fetch_all(after, story.topic))
    assert {one.leader_epoch for one in written if one.base_offset < 30} == {story.epoch}
    assert [one.leader_epoch for one in written if one.base_offset >= 30] == [epoch]


def test_a_leader_epoch_never_goes_back(tmp_path: Path) -> None:
    """A client that has seen an epoch takes no word from a broker with a smaller one."""
    seen = []
    broker = HeadwaterProcess(tmp_path)
    with broker:
        with Wire(broker.bootstrap) as wire:
            topic = create_topic(wire)
            produce_ok(wire, topic, batch(b"one"))
            seen.append(leader_epoch(wire, topic))
        broker.kill()
    for _ in range(2):  # nothing is written in the new epoch, and the stop is clean
        with LocalBroker(data=broker.data_dir) as local, Wire(local.bootstrap) as wire:
            seen.append(leader_epoch(wire, topic))
    assert seen == sorted(seen)
    assert seen[1] > seen[0]


def test_an_epoch_in_which_nothing_was_written_ends_where_the_log_does(tmp_path: Path) -> None:
    """Told nothing instead, a consumer that has seen the epoch would begin from the start."""

    def end_of(epoch: int, topic: Topic) -> tuple[int, int]:
        ask = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": epoch}
        answer = wire.send(
            "offset_for_leader_epoch", replica_id=-1, topics=[{"topic": topic.name, "partitions": [ask]}]
        )
        found = answer.topics[0].partitions[0]
        return found.leader_epoch, found.end_offset

    broker = HeadwaterProcess(tmp_path)
    with broker:
        with Wire(broker.bootstrap) as wire:
            written, empty = create_topic(wire), create_topic(wire)
            produce_ok(wire, written, batch(b"one", b"two"))
        for _ in range(2):
            broker.kill()
            broker.start()
        with Wire(broker.bootstrap) as wire:
            assert leader_epoch(wire, written) == 2
            assert [end_of(epoch, written) for epoch in range(4)] == [(0, 2), (0, 2), (2, 2), (-1, -1)]
            assert [end_of(epoch, empty) for epoch in range(4)] == [(0, 0), (1, 0), (2, 0), (-1, -1)]


def half_a_batch(next_offset: int) -> bytes:
    return with_offset(batch(b"never", b"acknowledged"), next_offset)[:-7]


def half_a_header(next_offset: int) -> bytes:
    return with_offset(batch(b"never"), next_offset)[:30]


def a_wrong_byte(next_offset: int) -> bytes:
    torn = bytearray(with_offset(batch(b"never"), next_offset))
    torn[-3] ^= 1
    return bytes(torn)


def random_bytes(next_offset: int) -> bytes:
    return bytes(range(7, 207)) * 3


def zeros(next_offset: int) -> bytes:
    """What some file systems leave when the length is on the device and the data is not."""
    return bytes(4096)


def with_offset(data: bytes, offset: int) -> bytes:
    return offset.to_bytes(8, "big") + data[8:]


TORN: list[Callable[[int], bytes]] = [half_a_batch, half_a_header, a_wrong_byte, random_bytes, zeros]


def test_torn_tails_are_cut_and_the_rest_is_served(tmp_path: Path) -> None:
    with HeadwaterProcess(tmp_path) as broker:
        with Wire(broker.bootstrap) as wire:
            topics = {torn: create_topic(wire, name=torn.__name__) for torn in TORN}
            whole = create_topic(wire, name="whole")
            for topic in (*topics.values(), whole):
                produce_ok(wire, topic, batch(b"one", b"two"))
                produce_ok(wire, topic, batch(b"three"))
        broker.kill()
        good_bytes = log_file(broker.data_dir, whole).stat().st_size
        for torn, topic in topics.items():
            with log_file(broker.data_dir, topic).open("ab") as file:
                file.write(torn(3))
        broker.start()
        with Wire(broker.bootstrap) as wire:
            for topic in (*topics.values(), whole):
                assert log_file(broker.data_dir, topic).stat().st_size == good_bytes, topic.name
                assert list_offset(wire, topic, LATEST).offset == 3
                assert produce_ok(wire, topic, batch(b"four")) == 3
                assert values(fetch_all(wire, topic)) == [b"one", b"two", b"three", b"four"]


def test_a_torn_tail_in_the_middle_of_a_producers_row_lets_it_go_on(tmp_path: Path) -> None:
    """The batch that was torn is sent again by its producer: it must be taken, not called a duplicate."""
    with HeadwaterProcess(tmp_path) as broker:
        with Wire(broker.bootstrap) as wire:
            topic = create_topic(wire)
            producer_id, _ = new_producer(wire)
        rows = [sequenced(producer_id, number) for number in range(4)]
        with RawClient(broker.bootstrap) as client:
            for row in rows:
                client.ask(produce_body(topic.name, row))
        broker.kill()
    log = log_file(broker.data_dir, topic)
    log.write_bytes(log.read_bytes()[:-5])
    with LocalBroker(data=broker.data_dir) as local, RawClient(local.bootstrap) as client:
        assert produced(client.ask(produce_body(topic.name, rows[2]))) == (0, 2), "known"
        assert produced(client.ask(produce_body(topic.name, rows[3]))) == (0, 3), "written anew"
        assert produced(client.ask(produce_body(topic.name, rows[3]))) == (0, 3), "and known now"
        with Wire(local.bootstrap) as wire:
            assert values(fetch_all(wire, topic)) == [b"0", b"1", b"2", b"3"]


def test_a_torn_last_line_of_the_journal_is_dropped_and_later_changes_hold(tmp_path: Path) -> None:
    with HeadwaterProcess(tmp_path) as broker:
        with Wire(broker.bootstrap) as wire:
            first = create_topic(wire, partitions=3, configs={"retention.ms": "1234567"})
        broker.kill()
    (journal,) = broker.data_dir.glob("*.jsonl")
    *_, last = journal.read_text().splitlines()
    with journal.open("a") as file:
        file.write(last.replace(first.name, "half-made")[:-9])
    with LocalBroker(data=broker.data_dir) as local, Wire(local.bootstrap) as wire:
        assert {topic.name for topic in wire.send("metadata", topics=None).topics} == {first.name}
        second = create_topic(wire)
    with LocalBroker(data=broker.data_dir) as local, Wire(local.bootstrap) as wire:
        listed = {topic.name: topic.topic_id for topic in wire.send("metadata", topics=None).topics}
        assert listed == {first.name: first.id, second.name: second.id}
        assert len(describe_topic(wire, first.name).partitions) == 3
        assert topic_configs(wire, first.name)["retention.ms"].value == "1234567"


def test_no_producer_id_is_given_twice_however_the_broker_ends(tmp_path: Path) -> None:
    given: list[int] = []
    broker = HeadwaterProcess(tmp_path)
    for end in (HeadwaterProcess.kill, HeadwaterProcess.stop, HeadwaterProcess.kill):
        broker.start()
        with Wire(broker.bootstrap) as wire:
            given += [new_producer(wire)[0] for _ in range(5)]
        end(broker)
    with LocalBroker(data=broker.data_dir) as local, Wire(local.bootstrap) as wire:
        given += [new_producer(wire)[0] for _ in range(1100)]  # more than one block of ids
    assert [number for number, times in Counter(given).items() if times > 1] == []


def recovery_point(broker: LocalBroker, topic: Topic) -> int:
    """How far the broker says the partition is on the device; -1 as long as it says nothing."""
    checkpoint = broker.data / "recovery-point-offset-checkpoint"
    found = re.search(rf"^{topic.name} 0 (\d+)$", checkpoint.read_text(), re.M) if checkpoint.exists() else None
    return int(found[1]) if found else -1


@pytest.fixture
def checkpointing() -> Iterator[LocalBroker]:
    """A broker that writes its recovery points down all the time, and flushes only when told."""
    settings = {
        "log.flush.offset.checkpoint.interval.ms": 50,
        "log.flush.scheduler.interval.ms": 50,
        "log.flush.interval.ms": 2**63 - 1,  # else the interval of the scheduler counts
    }
    with LocalBroker(config=settings) as broker:
        yield broker


def test_flush_messages_moves_the_recovery_point_with_every_so_many_records(checkpointing: LocalBroker) -> None:
    with Wire(checkpointing.bootstrap) as wire:
        every = create_topic(wire, configs={"flush.messages": "1"})
        third = create_topic(wire, configs={"flush.messages": "3"})
        never = create_topic(wire)
        for number in range(4):
            for topic in (every, third, never):
                produce_ok(wire, topic, batch(b"%d" % number))
        eventually(lambda: recovery_point(checkpointing, every) == 4, "the flush of each record")
        eventually(lambda: recovery_point(checkpointing, third) == 3, "the flush of the third record")
        assert recovery_point(checkpointing, never) == 0


def test_flush_ms_is_honoured_in_the_background(checkpointing: LocalBroker) -> None:
    with Wire(checkpointing.bootstrap) as wire:
        soon = create_topic(wire, configs={"flush.ms": "100"})
        later = create_topic(wire, configs={"flush.ms": "3600000"})
        produce_ok(wire, soon, batch(b"one", b"two"))
        produce_ok(wire, later, batch(b"one", b"two"))
        eventually(lambda: recovery_point(checkpointing, soon) == 2, "the first flush")
        produce_ok(wire, soon, batch(b"three"))
        eventually(lambda: recovery_point(checkpointing, soon) == 3, "the next flush")
        assert recovery_point(checkpointing, later) == 0


def test_a_finished_segment_is_flushed_in_the_background(checkpointing: LocalBroker) -> None:
    with Wire(checkpointing.bootstrap) as wire:
        topic = create_topic(wire, configs={"internal.segment.bytes": "1000"})
        produce_ok(wire, topic, batch(bytes(600)))
        assert recovery_point(checkpointing, topic) in (-1, 0)
        produce_ok(wire, topic, batch(bytes(600)))
        eventually(lambda: recovery_point(checkpointing, topic) >= 1, "the flush of the first segment")


def test_flush_messages_1_is_answered_after_the_device_has_it_and_holds_up_nobody_else(
    checkpointing: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Wire(checkpointing.bootstrap) as wire:
        careful = create_topic(wire, configs={"flush.messages": "1"})
        quick = create_topic(wire)
    begun, synced, sync = threading.Event(), threading.Event(), FileSystem.sync
    log = log_file(checkpointing.data, careful).stat()

    def slow_sync(self: FileSystem, descriptor: int) -> None:
        sync(self, descriptor)
        if os.fstat(descriptor).st_ino == log.st_ino:
            begun.set()
            time.sleep(0.5)
            synced.set()

    with (
        RawClient(checkpointing.bootstrap) as one,
        RawClient(checkpointing.bootstrap) as other,
        monkeypatch.context() as patch,
    ):
        patch.setattr(FileSystem, "sync", slow_sync)
        one.send(produce_body(careful.name, batch_of(b"careful")))
        assert begun.wait(5)
        assert produced(other.ask(produce_body(quick.name, batch_of(b"quick")))) == (0, 0)
        assert not synced.is_set(), "the quick one did not wait"
        assert produced(one.receive()) == (0, 0)
        assert synced.is_set()


def test_what_the_device_refused_is_not_acknowledged_and_the_client_is_told(
    checkpointing: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Wire(checkpointing.bootstrap) as wire:
        careful = create_topic(wire, configs={"flush.messages": "1"})

    def failing_sync(self: FileSystem, descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with RawClient(checkpointing.bootstrap, timeout_s=3) as client:
        with monkeypatch.context() as patch:
            patch.setattr(FileSystem, "sync", failing_sync)
            answer = client.ask(produce_body(careful.name, batch_of(b"careful")))
        assert answer is None or produced(answer)[0] != 0
    assert recovery_point(checkpointing, careful) in (-1, 0)


def test_a_failed_flush_of_one_partition_leaves_the_answers_of_the_others(
    checkpointing: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Told to try again, a client would write a batch twice that is already there."""
    with Wire(checkpointing.bootstrap) as wire:
        careful = create_topic(wire, configs={"flush.messages": "1"})
        easy = create_topic(wire)

    def failing_sync(self: FileSystem, descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    body = struct.pack(">hhih", 0, 7, 1, -1) + struct.pack(">hhi", -1, -1, 30_000) + struct.pack(">i", 2)
    for topic in (careful, easy):
        name, data = topic.name.encode(), batch_of(b"one of two")
        body += struct.pack(">h", len(name)) + name + struct.pack(">iii", 1, 0, len(data)) + data
    with RawClient(checkpointing.bootstrap, timeout_s=3) as client, monkeypatch.context() as patch:
        patch.setattr(FileSystem, "sync", failing_sync)
        answer = client.ask(body)
    assert answer is not None
    codes = {}
    at = 8
    for _ in range(2):
        (size,) = struct.unpack_from(">h", answer, at)
        (codes[answer[at + 2 : at + 2 + size].decode()],) = struct.unpack_from(">h", answer, at + 2 + size + 8)
        at += 2 + size + 4 + 4 + 2 + 8 + 8 + 8
    assert codes == {careful.name: 56, easy.name: 0}


def segment_bases(data: Path, topic: Topic) -> list[int]:
    return sorted(int(path.stem) for path in (data / f"{topic.name}-0").glob("*.log"))


def test_segments_roll_by_size_and_by_time_and_come_back(tmp_path: Path) -> None:
    start_ms = now_ms() - 3_600_000
    with HeadwaterProcess(tmp_path) as broker:
        with Wire(broker.bootstrap) as wire:
            by_size = create_topic(wire, configs={"segment.bytes": str(1024 * 1024)})
            by_time = create_topic(wire, configs={"segment.ms": "1000"})
            for number in range(10):
                produce_ok(wire, by_size, batch(Record(value=bytes(300_000), timestamp_ms=start_ms + 1000 * number)))
                produce_ok(wire, by_time, batch(Record(value=b"v", timestamp_ms=start_ms + 400 * number)))
        assert segment_bases(broker.data_dir, by_size) == [0, 3, 6, 9]
        # The first that is more than a second younger than the segment's first begins the next one.
        assert segment_bases(broker.data_dir, by_time) == [0, 3, 6, 9]
        for base_offset in (0, 3, 6):
            for topic in (by_size, by_time):
                path = log_file(broker.data_dir, topic, base_offset)
                assert path.with_suffix(".index").exists()
                assert path.with_suffix(".timeindex").stat().st_size >= 12
        broker.kill()
    with LocalBroker(data=broker.data_dir) as local, Wire(local.bootstrap) as wire:
        for topic, step_ms in ((by_size, 1000), (by_time, 400)):
            assert segment_bases(local.data, topic) == [0, 3, 6, 9]
            for number in range(10):
                (first, *_) = read_batches(fetch(wire, topic, number).records)
                assert first.base_offset == number
                found = list_offset(wire, topic, start_ms + step_ms * number - 1)
                assert (found.offset, found.timestamp) == (number, start_ms + step_ms * number)
            assert list_offset(wire, topic, LATEST).offset == 10
