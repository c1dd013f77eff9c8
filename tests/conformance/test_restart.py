"""What survives a clean stop and a kill -9: records, topics, configs, ids, and what producers have sent."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from peers.apache import QUICK_START, ApacheKafka
from peers.headwater import HeadwaterProcess
from peers.presence import require_apache

from .actions import (
    EARLIEST,
    LATEST,
    SET,
    alter_incrementally,
    create_topic,
    describe_topic,
    eventually,
    fetch_all,
    list_offset,
    new_producer,
    produce,
    produce_ok,
    topic_configs,
    wait_for_config,
    wait_for_partitions,
)
from .batches import AN_HOUR_AGO_MS, Record, batch, values
from .conftest import Broker
from .wire import Wire

# After a kill Apache's controller waits for the dead broker's session to end: the less, the better.
QUICK_SESSION = {"broker.session.timeout.ms": "1500", "broker.heartbeat.interval.ms": "300"}


def stop(broker: Broker) -> None:
    broker.stop()


def kill(broker: Broker) -> None:
    broker.kill()


class Story:
    """A broker that was used, ended and started again, and what it had promised before."""

    def __init__(self, broker: Broker, ended_by: Callable[[Broker], None]) -> None:
        self.broker = broker
        self.ended_by = ended_by
        with Wire(broker.bootstrap) as wire:
            self.cluster_id = wire.send("metadata", topics=[]).cluster_id
            self.topic = create_topic(wire, configs={"flush.ms": "77"})
            produce_ok(wire, self.topic, batch(*(b"%d" % number for number in range(5))))
            produce_ok(wire, self.topic, batch(*(b"%d" % number for number in range(5, 8))))
            alter_incrementally(wire, self.topic.name, ("retention.ms", SET, "123456789"))
            wait_for_config(wire, self.topic.name, "retention.ms", "123456789")
            self.compacted = create_topic(wire, configs={"cleanup.policy": "compact"})
            self.shortened = create_topic(wire)
            produce_ok(wire, self.shortened, batch(b"0", b"1", b"2"))
            entry = {"name": self.shortened.name, "partitions": [{"partition_index": 0, "offset": 2}]}
            wire.send("delete_records", topics=[entry], timeout=10_000)
            self.retried = create_topic(wire)
            self.producer_id, self.epoch = new_producer(wire)
            for sequence in range(6):
                produce_ok(wire, self.retried, self.sequenced(sequence))

    def sequenced(self, sequence: int) -> bytes:
        return batch(
            b"%d" % sequence,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
        )


@pytest.fixture(
    scope="module",
    params=[(name, end) for name in ("headwater", "apache") for end in (stop, kill)],
    ids=lambda pair: f"{pair[0]}-{pair[1].__name__}",
)
def story(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    name, end = request.param
    folder = tmp_path_factory.mktemp(f"{name}-{end.__name__}")
    made: Broker
    if name == "apache":
        require_apache()
        made = ApacheKafka(folder, QUICK_SESSION, jvm_options=QUICK_START)
    else:
        made = HeadwaterProcess(folder)
    with made:
        told = Story(made, end)
        end(made)
        made.start()
        with Wire(made.bootstrap) as wire:
            for topic in (told.topic, told.compacted, told.shortened, told.retried):
                wait_for_partitions(wire, topic.name, 1)
        yield told


@pytest.fixture
def after(story: Story) -> Iterator[Wire]:
    """A connection to the broker after its restart."""
    with Wire(story.broker.bootstrap) as wire:
        yield wire


def test_acknowledged_records_survive_and_the_log_goes_on(story: Story, after: Wire) -> None:
    assert list_offset(after, story.topic, LATEST).offset == 8
    assert values(fetch_all(after, story.topic)) == [b"%d" % number for number in range(8)]
    assert produce_ok(after, story.topic, batch(b"on")) == 8


def test_the_cluster_and_its_topics_keep_their_ids(story: Story, after: Wire) -> None:
    assert after.send("metadata", topics=[]).cluster_id == story.cluster_id
    assert describe_topic(after, story.topic.name).topic_id == story.topic.id


def test_configs_survive_and_hold(story: Story, after: Wire) -> None:
    configs = topic_configs(after, story.topic.name)
    assert (configs["flush.ms"].value, configs["retention.ms"].value) == ("77", "123456789")
    assert produce(after, story.compacted, batch(b"no key")).error_code is ErrorCode.invalid_record


def test_deleted_records_stay_deleted(story: Story, after: Wire) -> None:
    """After a kill they may come back, as the start of the log is written down only from time to time."""
    expected = (2,) if story.ended_by is stop else (0, 2)
    assert list_offset(after, story.shortened, EARLIEST).offset in expected
    assert list_offset(after, story.shortened, LATEST).offset == 3


def test_no_producer_id_is_given_twice(story: Story, after: Wire) -> None:
    assert new_producer(after)[0] > story.producer_id


def test_trap_a_retry_after_a_restart_is_not_written_twice(story: Story, after: Wire) -> None:
    # Apache's snapshot of producers holds the last batch of each, ours the last five.
    for sequence in (5,) if isinstance(story.broker, ApacheKafka) else range(1, 6):
        answer = produce(after, story.retried, story.sequenced(sequence))
        assert (answer.error_code, answer.base_offset) == (ErrorCode.none, sequence)
    assert list_offset(after, story.retried, LATEST).offset == 6
    gap = produce(after, story.retried, story.sequenced(9))
    assert gap.error_code is ErrorCode.out_of_order_sequence_number
    assert produce_ok(after, story.retried, story.sequenced(6)) == 6
    assert values(fetch_all(after, story.retried)) == [b"%d" % number for number in range(7)]


@pytest.mark.parametrize("end", [stop, kill])
def test_offsets_by_time_are_right_after_a_restart(tmp_path: Path, end: Callable[[Broker], None]) -> None:
    """The indexes of several segments are read again, or rebuilt."""
    start_ms = AN_HOUR_AGO_MS
    broker = HeadwaterProcess(tmp_path)
    with broker:
        with Wire(broker.bootstrap) as wire:
            topic = create_topic(wire, configs={"segment.bytes": str(1024 * 1024)})
            for number in range(30):
                produce_ok(wire, topic, batch(Record(value=bytes(100_000), timestamp_ms=start_ms + 1000 * number)))
        end(broker)
        broker.start()
        with Wire(broker.bootstrap) as wire:
            for number in range(30):
                found = list_offset(wire, topic, start_ms + 1000 * number - 500)
                assert (found.offset, found.timestamp) == (number, start_ms + 1000 * number)
            assert list_offset(wire, topic, LATEST).offset == 30


def test_a_deleted_topic_stays_deleted(tmp_path: Path) -> None:
    with HeadwaterProcess(tmp_path) as broker:
        with Wire(broker.bootstrap) as wire:
            kept, gone = create_topic(wire), create_topic(wire)
            produce_ok(wire, gone, batch(b"v"))
            wire.send("delete_topics", topics=[{"name": gone.name, "topic_id": None}], timeout=10_000)
            eventually(
                lambda: describe_topic(wire, gone.name).error_code is ErrorCode.unknown_topic_or_partition,
                "it",
            )
        broker.restart()
        with Wire(broker.bootstrap) as wire:
            listed = {found.name for found in wire.send("metadata", topics=None).topics}
    assert kept.name in listed
    assert gone.name not in listed


def test_partitions_added_while_running_are_there_after_a_restart(tmp_path: Path) -> None:
    with HeadwaterProcess(tmp_path) as broker:
        with Wire(broker.bootstrap) as wire:
            topic = create_topic(wire)
            entry = {"name": topic.name, "count": 3, "assignments": None}
            wire.send("create_partitions", topics=[entry], timeout=5000)
            wait_for_partitions(wire, topic.name, 3)
            produce_ok(wire, topic, batch(b"v"), partition=2)
        broker.restart()
        with Wire(broker.bootstrap) as wire:
            wait_for_partitions(wire, topic.name, 3)
            assert values(fetch_all(wire, topic, partition=2)) == [b"v"]


def test_a_torn_tail_is_cut_and_the_log_goes_on(tmp_path: Path) -> None:
    """A kill in the middle of a write leaves half a batch, which nobody has been promised."""
    with HeadwaterProcess(tmp_path) as broker:
        with Wire(broker.bootstrap) as wire:
            topic = create_topic(wire)
            produce_ok(wire, topic, batch(b"one", b"two"))
        broker.kill()
        log = broker.data_dir / f"{topic.name}-0" / f"{0:020}.log"
        torn = bytearray(batch(b"three", b"four"))
        torn[:8] = (2).to_bytes(8, "big")
        with log.open("ab") as file:
            file.write(torn[:-7])
        broker.start()
        with Wire(broker.bootstrap) as wire:
            wait_for_partitions(wire, topic.name, 1)
            assert list_offset(wire, topic, LATEST).offset == 2
            assert produce_ok(wire, topic, batch(b"after")) == 2
            assert values(fetch_all(wire, topic)) == [b"one", b"two", b"after"]


def test_a_clean_stop_ends_with_exit_code_0(tmp_path: Path) -> None:
    broker = HeadwaterProcess(tmp_path)
    broker.start()
    assert broker.stop() == 0
