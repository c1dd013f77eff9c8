"""Log dirs that cannot be used at a start, that are back at the next, that are full; and brokers without any."""

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from kio.schema.errors import ErrorCode

from conformance.actions import (
    LATEST,
    create_topic,
    eventually,
    fetch_all,
    list_offset,
    produce,
    produce_ok,
)
from conformance.batches import batch, values
from conformance.wire import Wire
from headwater.broker.app import StartupError
from headwater.testing import LocalBroker
from integration.offline_dirs import OFFLINE, dirs_of, folders, is_offline, two_dirs
from peers.headwater import HeadwaterProcess


def test_only_what_failed_is_checked_at_the_next_start(tmp_path: Path) -> None:
    with two_dirs(tmp_path) as place:
        place.fail_dir()
    assert (tmp_path / "a/.kafka_cleanshutdown").exists()
    assert not (tmp_path / "b/.kafka_cleanshutdown").exists()
    with LocalBroker(config={"log.dirs": dirs_of(tmp_path)}) as broker, Wire(broker.bootstrap) as wire:
        for partition in (0, 1):
            assert values(fetch_all(wire, place.topic, partition=partition))[:3] == [b"1", b"2", b"3"]


@contextmanager
def real_broker(folder: Path) -> Iterator[HeadwaterProcess]:
    """A broker in a process, which flushes what it acknowledges and looks at its dirs ten times a second."""
    settings = {
        "log.dirs": dirs_of(folder),
        "log.flush.interval.messages": "1",
        "log.flush.offset.checkpoint.interval.ms": "100",
    }
    with HeadwaterProcess(folder, settings) as process:
        yield process


def take_away(log_dir: Path) -> None:
    """The disk is gone from the machine, with all that is on it."""
    log_dir.rename(log_dir.with_suffix(".away"))


def bring_back(log_dir: Path) -> None:
    log_dir.with_suffix(".away").rename(log_dir)


def test_without_any_dir_the_broker_ends(tmp_path: Path) -> None:
    with real_broker(tmp_path) as process:
        with Wire(process.bootstrap) as wire:
            create_topic(wire, partitions=2)
        take_away(tmp_path / "a")
        take_away(tmp_path / "b")
        running = process._process
        assert running is not None
        assert running.wait(timeout=20) == 1
        assert "the broker stops: all log dirs have failed" in process.output()


def test_a_dir_that_cannot_be_used_at_the_start_is_offline_from_the_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config: dict[str, Any] = {"log.dirs": dirs_of(tmp_path)}
    with two_dirs(tmp_path) as place:
        pass
    take_away(tmp_path / "b")
    (tmp_path / "b").touch()
    with LocalBroker(config=config) as broker, Wire(broker.bootstrap) as wire:
        assert is_offline(wire, place.topic, place.bad)
        assert produce(wire, place.topic, batch(b"4"), partition=place.bad).error_code is OFFLINE
        assert produce_ok(wire, place.topic, batch(b"4"), partition=place.good) == 3
        made = create_topic(wire, name="made")
        produce_ok(wire, made, batch(b"v"))
        assert folders(tmp_path / "a") == {f"orders-{place.good}", "made-0"}
        results = {Path(each.log_dir).name: each for each in wire.send("describe_log_dirs", topics=None).results}
        assert results["b"].error_code is OFFLINE
    (line,) = [record.getMessage() for record in caplog.records if "is offline, as it cannot be used" in record.message]
    assert f"{tmp_path}/b" in line
    assert "The 1 partitions" in line
    (tmp_path / "b").unlink()
    bring_back(tmp_path / "b")
    with LocalBroker(config=config) as broker, Wire(broker.bootstrap) as wire:
        assert values(fetch_all(wire, place.topic, partition=place.bad)) == [b"1", b"2", b"3"]
        assert produce_ok(wire, place.topic, batch(b"4"), partition=place.bad) == 3
        assert values(fetch_all(wire, made)) == [b"v"]


def test_no_start_without_the_metadata(tmp_path: Path) -> None:
    with two_dirs(tmp_path):
        pass
    take_away(tmp_path / "a")
    (tmp_path / "a").touch()
    before = sorted((tmp_path / "b").iterdir())
    with pytest.raises(StartupError, match=rf"the metadata of this broker .* {tmp_path}/a: Not a directory"):
        LocalBroker(config={"log.dirs": dirs_of(tmp_path)}).start()
    assert sorted((tmp_path / "b").iterdir()) == before
    (tmp_path / "a").unlink()
    bring_back(tmp_path / "a")
    with LocalBroker(config={"log.dirs": dirs_of(tmp_path)}):
        pass


def test_a_real_client_goes_on_while_a_dir_is_gone_and_finds_everything_when_it_is_back(tmp_path: Path) -> None:
    acknowledged: dict[int, list[bytes]] = {0: [], 1: []}
    with real_broker(tmp_path) as process:
        with Wire(process.bootstrap) as wire:
            topic = create_topic(wire, name="orders", partitions=2)
        bad = 0 if "orders-0" in folders(tmp_path / "b") else 1

        def noted(error: KafkaError | None, message: Any) -> None:
            if error is None:
                acknowledged[message.partition()].append(message.value())

        producer = Producer(
            {"bootstrap.servers": process.bootstrap, "linger.ms": 0, "message.timeout.ms": 60_000, "acks": "all"}
        )
        for number in range(200):
            producer.produce("orders", b"before %d" % number, partition=number % 2, callback=noted)
        assert producer.flush(20) == 0
        take_away(tmp_path / "b")
        with Wire(process.bootstrap) as wire:
            eventually(lambda: is_offline(wire, topic, bad), "the end of the dir")
        for number in range(100):
            producer.produce("orders", b"after %d" % number, partition=1 - bad, callback=noted)
            producer.produce("orders", b"after %d" % number, partition=bad, callback=noted)
        deadline = time.monotonic() + 20
        while len(acknowledged[1 - bad]) < 200:
            producer.poll(0.1)
            assert time.monotonic() < deadline, "the good dir does not take records"
        assert len(acknowledged[bad]) == 100
        process.stop()
        bring_back(tmp_path / "b")
        process.start()
        assert producer.flush(60) == 0, "what waited for the dir is written when it is back"
        consumer = Consumer({"bootstrap.servers": process.bootstrap, "group.id": "all"})
        consumer.assign([TopicPartition("orders", partition, 0) for partition in (0, 1)])
        found: dict[int, list[bytes]] = {0: [], 1: []}
        while any(len(found[partition]) < 200 for partition in (0, 1)):
            message = consumer.poll(20)
            assert message is not None, "records are missing"
            assert message.error() is None
            found[message.partition() or 0].append(message.value() or b"")
        consumer.close()
    assert found == acknowledged


@contextmanager
def small_disk(at: Path) -> Iterator[Path]:
    """A file system of 4 MiB of its own, where that is allowed."""
    at.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(at)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"not allowed to mount a tmpfs: {mounted.stderr.decode().strip()}")
    try:
        yield at
    finally:
        subprocess.run(["umount", "-l", str(at)], check=True)


@pytest.mark.skipif(shutil.which("mount") is None, reason="no mount command")
def test_a_disk_that_is_really_full_heals_when_there_is_room(tmp_path: Path) -> None:
    acknowledged = []
    with small_disk(tmp_path / "b") as disk, real_broker(tmp_path) as process:
        with Wire(process.bootstrap) as wire:
            topic = create_topic(wire, name="orders", partitions=2)
            full = 0 if "orders-0" in folders(disk) else 1
            ballast = disk / "ballast"
            ballast.write_bytes(bytes(2 << 20))
            refused: ErrorCode = ErrorCode.none
            for number in range(200):
                value = b"%d " % number + bytes(50_000)
                refused = produce(wire, topic, batch(value), partition=full).error_code
                if refused is not ErrorCode.none:
                    break
                acknowledged.append(value)
            assert refused is OFFLINE
            assert acknowledged
            produce_ok(wire, topic, batch(b"fits"), partition=1 - full)
            assert not is_offline(wire, topic, full), "a full disk is not a broken one"
            ballast.unlink()
            for number in range(5):
                acknowledged.append(b"after %d" % number)
                produce_ok(wire, topic, batch(acknowledged[-1]), partition=full)
            assert values(fetch_all(wire, topic, partition=full)) == acknowledged
        process.kill()
        process.start()
        with Wire(process.bootstrap) as wire:
            assert values(fetch_all(wire, topic, partition=full)) == acknowledged
            assert list_offset(wire, topic, LATEST).error_code is ErrorCode.none
