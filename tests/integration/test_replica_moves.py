"""A running broker moves partitions between its log dirs beside the reads and writes of clients."""

import os
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from kio.schema.errors import ErrorCode

from conformance.actions import (
    BROKER_RESOURCE,
    EARLIEST,
    LATEST,
    SET,
    Topic,
    alter_incrementally,
    create_topic,
    eventually,
    fetch,
    list_offset,
    produce_ok,
    unique_name,
)
from conformance.batches import Record, batch, read_records
from conformance.wire import Wire
from headwater.testing import LocalBroker
from peers.headwater import HeadwaterProcess

from .cli_runner import Cli
from .offline_dirs import two_dirs

RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
SMALL = {"internal.segment.bytes": "100000", "file.delete.delay.ms": "0"}


def settings(folder: Path, *names: str, **more: str) -> dict[str, str]:
    return {"log.dirs": ",".join(str(folder / name) for name in names), **more}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LocalBroker]:
    config = settings(tmp_path, "a", "b", "c") | {"log.cleaner.backoff.ms": "20"}
    with LocalBroker(config=config) as broker:
        yield broker


@pytest.fixture
def wire(broker: LocalBroker) -> Iterator[Wire]:
    with Wire(broker.bootstrap) as wire:
        yield wire


def move(wire: Wire, topic: Topic, log_dir: Path | str, *partitions: int) -> ErrorCode:
    """Asks for a move of one or more partitions, and returns the answer that they all got."""
    entry = {"path": str(log_dir), "topics": [{"name": topic.name, "partitions": list(partitions or (0,))}]}
    (answer,) = wire.send("alter_replica_log_dirs", dirs=[entry]).results
    assert answer.topic_name == topic.name
    (code,) = {part.error_code for part in answer.partitions}
    return ErrorCode(code)


def described(wire: Wire, topic: Topic, partition: int = 0) -> dict[tuple[str, bool], Any]:
    """The rows of DescribeLogDirs about a partition: name of the dir, and whether it is the future replica."""
    wanted = [{"topic": topic.name, "partitions": [partition]}]
    return {
        (os.path.basename(result.log_dir), row.is_future_key): row
        for result in wire.send("describe_log_dirs", topics=wanted).results
        for entry in result.topics
        for row in entry.partitions
    }


def place(wire: Wire, topic: Topic, partition: int = 0) -> str:
    """The dir that a partition lies in."""
    ((name, _),) = [key for key in described(wire, topic, partition) if not key[1]]
    return str(name)


def wait_until_in(wire: Wire, topic: Topic, name: str) -> None:
    eventually(lambda: described(wire, topic).keys() == {(name, False)}, f"{topic.name} in {name}")


def set_rate(wire: Wire, bytes_per_second: int | None) -> None:
    value = str(2**63 - 1 if bytes_per_second is None else bytes_per_second)
    answer = alter_incrementally(wire, "1", (RATE, SET, value), resource_type=BROKER_RESOURCE)
    assert answer.error_code is ErrorCode.none, answer


def fill(wire: Wire, topic: Topic, count: int = 20, size: int = 20_000, partition: int = 0) -> None:
    for number in range(count):
        produce_ok(wire, topic, batch(b"%d-" % number + bytes(size)), partition=partition)


def read_all(wire: Wire, topic: Topic) -> dict[int, bytes | None]:
    found: dict[int, bytes | None] = {}
    offset = list_offset(wire, topic, EARLIEST).offset
    while records := read_records(fetch(wire, topic, offset).records or b""):
        found.update({record.offset: record.value for record in records if record.offset >= offset})
        offset = records[-1].offset + 1
    return found


def other_dirs(wire: Wire, topic: Topic) -> list[str]:
    return [name for name in "abc" if name != place(wire, topic)]


def test_a_partition_moves_and_its_old_folder_goes(wire: Wire, tmp_path: Path) -> None:
    topic = create_topic(wire, configs=SMALL)
    fill(wire, topic)
    before, source, (target, _) = read_all(wire, topic), place(wire, topic), other_dirs(wire, topic)
    assert move(wire, topic, tmp_path / target) is ErrorCode.none
    wait_until_in(wire, topic, target)
    assert read_all(wire, topic) == before
    assert produce_ok(wire, topic, batch(b"goes on")) == len(before)
    assert (tmp_path / target / f"{topic.name}-0").is_dir()
    eventually(lambda: not list((tmp_path / source).glob(f"{topic.name}-0*")), "the end of the old folder")


def test_how_far_a_move_is_can_be_seen(wire: Wire, tmp_path: Path) -> None:
    topic = create_topic(wire, configs=SMALL)
    fill(wire, topic)
    source, (target, _) = place(wire, topic), other_dirs(wire, topic)
    set_rate(wire, 100_000)
    assert move(wire, topic, tmp_path / target) is ErrorCode.none
    future = described(wire, topic)[target, True]
    assert len(list((tmp_path / target).glob(f"{topic.name}-0.*-future"))) == 1
    whole = described(wire, topic)[source, False]
    assert 0 < future.offset_lag <= 20
    eventually(lambda: 0 < described(wire, topic)[target, True].partition_size < whole.partition_size)
    eventually(lambda: 0 < described(wire, topic)[target, True].offset_lag < 20)
    set_rate(wire, None)
    wait_until_in(wire, topic, target)
    assert described(wire, topic)[target, False].partition_size == whole.partition_size


def test_another_dir_and_the_same_dir_and_the_old_dir(wire: Wire, tmp_path: Path) -> None:
    topic = create_topic(wire, configs=SMALL)
    fill(wire, topic)
    before, source, (first, second) = read_all(wire, topic), place(wire, topic), other_dirs(wire, topic)
    set_rate(wire, 50_000)
    for target in (first, first, second):
        assert move(wire, topic, tmp_path / target) is ErrorCode.none
        assert described(wire, topic).keys() == {(source, False), (target, True)}
    assert move(wire, topic, tmp_path / source) is ErrorCode.none
    assert described(wire, topic).keys() == {(source, False)}
    eventually(lambda: not list(tmp_path.glob(f"*/{topic.name}-0.*")), "the end of the copies")
    assert read_all(wire, topic) == before
    set_rate(wire, None)


def test_a_move_that_waits_for_its_turn_is_taken_back_at_once(tmp_path: Path) -> None:
    config = settings(tmp_path, "a", "b") | {"num.replica.alter.log.dirs.threads": "1", RATE: "10000"}
    with LocalBroker(config=config) as broker, Wire(broker.bootstrap) as wire:
        topics = [create_topic(wire, configs=SMALL) for _ in range(3)]
        for topic in topics:
            fill(wire, topic)
            (target,) = set("ab") - {place(wire, topic)}
            assert move(wire, topic, tmp_path / target) is ErrorCode.none
        for topic in topics[1:]:
            (future,) = [key for key in described(wire, topic) if key[1]]
            assert described(wire, topic)[future].partition_size == 0
        began_s = time.monotonic()
        assert move(wire, topics[1], tmp_path / place(wire, topics[1])) is ErrorCode.none
        wire.send("delete_topics", topics=[{"name": topics[2].name, "topic_id": None}], timeout=10_000)
        eventually(lambda: not list(tmp_path.glob(f"*/{topics[2].name}-0*")), "the end of the folders")
        assert time.monotonic() - began_s < 5
        assert len(described(wire, topics[1])) == 1
        assert len(described(wire, topics[0])) == 2


def test_what_is_refused(wire: Wire, tmp_path: Path) -> None:
    topic = create_topic(wire)
    for not_ours in (tmp_path / "d", "a", f"{tmp_path}/a/", ""):
        assert move(wire, topic, not_ours) is ErrorCode.log_dir_not_found
    assert move(wire, topic, tmp_path / "a", 7) is ErrorCode.unknown_topic_or_partition
    longest = create_topic(wire, name="t" * 249)
    assert move(wire, longest, tmp_path / "a") is ErrorCode.invalid_topic_exception


def test_nothing_is_moved_while_a_dir_is_offline(tmp_path: Path) -> None:
    """The partition may have a copy there, and there must not be two."""
    with LocalBroker(config=settings(tmp_path, "a", "b")) as broker, Wire(broker.bootstrap) as wire:
        topic = create_topic(wire)
    (tmp_path / "file").touch()
    with LocalBroker(config=settings(tmp_path, "a", "b", "file/c")) as broker, Wire(broker.bootstrap) as wire:
        offline, here = tmp_path / "file" / "c", place(wire, topic)
        there = tmp_path / ("b" if here == "a" else "a")
        assert move(wire, topic, offline) is ErrorCode.kafka_storage_error
        assert move(wire, topic, there) is ErrorCode.kafka_storage_error
        assert move(wire, topic, tmp_path / here) is ErrorCode.none
        assert move(wire, topic, tmp_path / "d") is ErrorCode.log_dir_not_found
        refused = Cli(broker.bootstrap)("log", "move", f"{topic.name}-0", "--to", str(there))
        assert (refused.code, "offline" in refused.err) == (1, True)


def test_a_target_that_fails_leaves_the_partition_where_it_is(tmp_path: Path) -> None:
    with two_dirs(tmp_path, {RATE: "50000"}, SMALL) as at:
        fill(at.wire, at.topic, partition=at.good)
        assert move(at.wire, at.topic, tmp_path / "b", at.good) is ErrorCode.none
        eventually(lambda: described(at.wire, at.topic, at.good)["b", True].partition_size > 0)
        at.break_dir("b")
        eventually(lambda: described(at.wire, at.topic, at.good).keys() == {("a", False)}, "the end of the move")
        assert produce_ok(at.wire, at.topic, batch(b"goes on"), partition=at.good) == 23


def test_a_source_that_fails_leaves_the_copy_for_when_it_is_back(tmp_path: Path) -> None:
    with two_dirs(tmp_path, {RATE: "50000"}, SMALL) as at:
        fill(at.wire, at.topic, partition=at.bad)
        assert move(at.wire, at.topic, tmp_path / "a", at.bad) is ErrorCode.none
        eventually(lambda: described(at.wire, at.topic, at.bad)["a", True].partition_size > 0)
        at.fail_dir()
        eventually(lambda: not described(at.wire, at.topic, at.bad), "the end of the move")
        assert produce_ok(at.wire, at.topic, batch(b"goes on"), partition=at.good) == 3
    assert list((tmp_path / "a").glob(f"orders-{at.bad}.*-future"))
    with LocalBroker(config=settings(tmp_path, "a", "b")) as broker, Wire(broker.bootstrap) as wire:
        eventually(lambda: described(wire, at.topic, at.bad).keys() == {("a", False)}, "the end of the move")
        assert fetch(wire, at.topic, 22, partition=at.bad).error_code is ErrorCode.none


def test_a_topic_that_is_not_there_yet_is_made_in_the_dir_asked_for(wire: Wire, tmp_path: Path) -> None:
    for name in ("c", "c", "b", "b", "c"):
        topic = Topic(name=unique_name(), id=None)  # type: ignore[arg-type]
        assert move(wire, topic, tmp_path / name) is ErrorCode.unknown_topic_or_partition
        assert place(wire, create_topic(wire, name=topic.name)) == name


def test_a_deleted_topic_is_moved_no_further(wire: Wire, tmp_path: Path) -> None:
    topic = create_topic(wire, configs=SMALL)
    fill(wire, topic)
    set_rate(wire, 50_000)
    assert move(wire, topic, tmp_path / other_dirs(wire, topic)[0]) is ErrorCode.none
    wire.send("delete_topics", topics=[{"name": topic.name, "topic_id": None}], timeout=10_000)
    eventually(lambda: not list(tmp_path.glob(f"*/{topic.name}-0*")), "the end of all folders")
    again = create_topic(wire, name=topic.name)
    assert read_all(wire, again) == {}
    set_rate(wire, None)


def test_deleted_records_stay_deleted(wire: Wire, tmp_path: Path) -> None:
    topic = create_topic(wire, configs=SMALL)
    fill(wire, topic)
    (target, _) = other_dirs(wire, topic)
    set_rate(wire, 200_000)
    assert move(wire, topic, tmp_path / target) is ErrorCode.none
    entry = {"name": topic.name, "partitions": [{"partition_index": 0, "offset": 12}]}
    assert wire.send("delete_records", topics=[entry], timeout=10_000).topics[0].partitions[0].low_watermark == 12
    set_rate(wire, None)
    wait_until_in(wire, topic, target)
    assert sorted(read_all(wire, topic)) == list(range(12, 20))
    segments = sorted((tmp_path / target / f"{topic.name}-0").glob("*.log"))
    assert int(segments[0].stem) > 0


def test_a_compacted_topic_is_cleaned_after_its_move(wire: Wire, tmp_path: Path) -> None:
    configs = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "internal.segment.bytes": "2000"}
    topic = create_topic(wire, configs=configs)
    (target, _) = other_dirs(wire, topic)
    set_rate(wire, 10_000)
    assert move(wire, topic, tmp_path / target) is ErrorCode.none
    for number in range(60):
        produce_ok(wire, topic, batch(Record(key=b"%d" % (number % 3), value=b"%d" % number + bytes(100))))
    set_rate(wire, None)
    wait_until_in(wire, topic, target)
    eventually(lambda: len(read_all(wire, topic)) < 25, "the end of old records")
    last = {value.rstrip(b"\0") for value in read_all(wire, topic).values() if value}
    assert {b"57", b"58", b"59"} <= last


def test_clients_notice_nothing(broker: LocalBroker, wire: Wire, tmp_path: Path) -> None:
    """Back and forth under an idempotent producer and a consumer: every record once, in order."""
    topic = create_topic(wire, configs={"internal.segment.bytes": "300000", "flush.messages": "50"})
    stop, sent = threading.Event(), list[int]()

    def produce() -> None:
        producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "linger.ms": 1})
        failed: list[Any] = []
        while not stop.is_set():
            producer.produce(
                topic.name, b"%d" % len(sent) + bytes(500), on_delivery=lambda e, _: failed.append(e) if e else None
            )
            sent.append(len(sent))
            producer.poll(0)
            if len(producer) > 500:
                producer.flush()
        producer.flush(20)
        assert not failed

    thread = threading.Thread(target=produce)
    thread.start()
    for _ in range(4):
        # The first batches of a producer take a while; a move beside which nothing is sent would show nothing.
        least = len(sent) + 600
        eventually(lambda: len(sent) > least, "records on their way")  # noqa: B023 (called before it changes)
        (target, _) = other_dirs(wire, topic)
        assert move(wire, topic, tmp_path / target) is ErrorCode.none
        wait_until_in(wire, topic, target)
    stop.set()
    thread.join(30)
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": unique_name(), "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic.name])
    read: list[int] = []
    deadline = time.monotonic() + 30
    while len(read) < len(sent) and time.monotonic() < deadline:
        read += [
            int((message.value() or b"").rstrip(b"\0"))
            for message in consumer.consume(1000, 0.2)
            if not message.error()
        ]
    consumer.close()
    assert len(sent) > 1000
    assert read == sent


def test_a_move_that_a_stop_or_a_kill_interrupts_goes_on(tmp_path: Path) -> None:
    config = settings(tmp_path, "a", "b") | {RATE: "100000"}
    with HeadwaterProcess(tmp_path, config) as process:
        with Wire(process.bootstrap) as wire:
            topic = create_topic(wire, configs=SMALL)
            fill(wire, topic)
            before, (target,) = read_all(wire, topic), [name for name in "ab" if name != place(wire, topic)]
            assert move(wire, topic, tmp_path / target) is ErrorCode.none
        for interrupt in (process.stop, process.kill):
            interrupt()
            process.start()
            with Wire(process.bootstrap) as wire:
                assert (target, True) in described(wire, topic)
                assert read_all(wire, topic) == before
        with Wire(process.bootstrap) as wire:
            set_rate(wire, None)
            wait_until_in(wire, topic, target)
            assert read_all(wire, topic) == before
        process.kill()
        process.start()
        with Wire(process.bootstrap) as wire:
            assert place(wire, topic) == target
            assert read_all(wire, topic) == before
    assert sorted(path.name for path in tmp_path.glob(f"?/{topic.name}-*") if "-delete" not in path.name) == [
        f"{topic.name}-0"
    ]


def test_kills_under_load_lose_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    chance, acknowledged = random.Random(11), dict[int, bytes]()
    config = settings(tmp_path, "a", "b") | {"node.id": "1"}
    with HeadwaterProcess(tmp_path, config) as process:
        with Wire(process.bootstrap) as wire:
            topic = create_topic(wire, configs={"internal.segment.bytes": "3000000", "file.delete.delay.ms": "0"})
            fill(wire, topic, count=10, size=900_000)
            first = list_offset(wire, topic, LATEST).offset
        for _ in range(6):
            ends_s = time.monotonic() + chance.uniform(0, 0.4)
            with Wire(process.bootstrap) as wire:
                assert move(wire, topic, tmp_path / ("b" if place(wire, topic) == "a" else "a")) is ErrorCode.none
                while time.monotonic() < ends_s:
                    value = b"%d" % len(acknowledged) + bytes(5000)
                    acknowledged[produce_ok(wire, topic, batch(value))] = value
            process.kill()
            process.start()
            with Wire(process.bootstrap) as wire:
                found = read_all(wire, topic)
                assert sorted(found) == list(range(len(found)))
                assert {offset: found.get(offset) for offset in acknowledged} == acknowledged
        assert len(acknowledged) > 100
        assert min(acknowledged) == first
    assert len(list(tmp_path.glob(f"?/{topic.name}-0"))) == 1


def test_the_command_line_moves_and_waits(broker: LocalBroker, wire: Wire, tmp_path: Path) -> None:
    cli, topic = Cli(broker.bootstrap), create_topic(wire, partitions=2, configs=SMALL)
    for partition in (0, 1):
        fill(wire, topic, partition=partition)
    names = [f"{topic.name}-0", f"{topic.name}-1"]
    done = cli.ok("log", "move", *names, "--to", str(tmp_path / "c"), "--json").json
    assert [(each["partition"], each["moved"], each["error"]) for each in done] == [(0, True, None), (1, True, None)]
    assert [place(wire, topic, partition) for partition in (0, 1)] == ["c", "c"]
    assert cli.ok("log", "move", names[0], "--to", str(tmp_path / "c")).rows[0][-1] == "there"
    set_rate(wire, 50_000)
    begun = cli.ok("log", "move", names[0], "--to", str(tmp_path / "a"), "--no-wait")
    assert begun.rows[0][-3:] == ["on", "its", "way"]
    set_rate(wire, None)
    wait_until_in(wire, topic, "a")


def test_the_command_line_says_what_is_wrong(broker: LocalBroker, wire: Wire, tmp_path: Path) -> None:
    cli, topic = Cli(broker.bootstrap), create_topic(wire)
    wrong_dir = cli("log", "move", f"{topic.name}-0", "--to", "/nowhere")
    assert (wrong_dir.code, wrong_dir.out) == (1, "")
    assert str(tmp_path / "b") in wrong_dir.err
    unknown = cli("log", "move", f"{topic.name}-5", "--to", str(tmp_path / "b"))
    assert unknown.code == 1
    assert f"{topic.name}-5: no such topic or partition" in unknown.err
    assert cli("log", "move", "orders", "--to", str(tmp_path / "b")).code == 2
    assert cli("log", "move", f"{topic.name}-0", "--to", str(tmp_path / "b"), "--broker", "9").code == 1
