"""A log dir that fails goes offline with its partitions; the rest of the broker serves on."""

import contextlib
import errno
import logging
import os
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from kio.schema.errors import ErrorCode

from conformance.actions import (
    EARLIEST,
    LATEST,
    SET,
    Topic,
    alter_incrementally,
    create_topic,
    describe_topic,
    eventually,
    fetch,
    fetch_all,
    fetch_topic,
    list_offsets,
    produce,
    produce_ok,
)
from conformance.batches import AN_HOUR_AGO_MS, Record, batch, values
from conformance.wire import ConnectionClosedError, Wire
from headwater.coordinator.placement import partition_for
from headwater.testing import FaultyFileSystem, LocalBroker
from integration.offline_dirs import ALWAYS, OFFLINE, SETTINGS, dirs_of, folders, is_offline, two_dirs


def offline_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "offline with its" in record.getMessage()]


@pytest.mark.parametrize(
    ("call", "number", "configs"),
    [
        ("pwrite", errno.EIO, {}),
        ("pwrite", errno.EROFS, {}),
        ("sync", errno.EIO, {"flush.messages": "1"}),
        ("sync", errno.ENOSPC, {"flush.messages": "1"}),
    ],
    ids=["write", "read-only", "fsync", "fsync without room"],
)
def test_one_dir_fails_and_the_other_serves_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, call: Any, number: int, configs: dict[str, str]
) -> None:
    with two_dirs(tmp_path, configs=configs) as place:
        place.fs.fail(call, number, path_part="/b/orders")
        answer = produce(place.wire, place.topic, batch(b"lost"), partition=place.bad)
        assert answer.error_code is OFFLINE
        again = produce(place.wire, place.topic, batch(b"lost"), partition=place.bad)
        assert again.error_code is OFFLINE, "although the disk would take it now"
        assert produce_ok(place.wire, place.topic, batch(b"4"), partition=place.good) == 3
        assert values(fetch_all(place.wire, place.topic, partition=place.good)) == [b"1", b"2", b"3", b"4"]
    (line,) = offline_lines(caplog)
    assert f"the log dir {tmp_path}/b has failed: " in line
    assert "with its 1 partitions" in line
    assert "start the broker again" in line


def test_every_request_about_a_partition_that_is_offline_says_so(tmp_path: Path) -> None:
    with two_dirs(tmp_path) as place:
        place.fail_dir()
        wire, topic, bad = place.wire, place.topic, place.bad
        assert produce(wire, topic, batch(b"4"), partition=bad).error_code is OFFLINE
        assert fetch(wire, topic, 0, partition=bad).error_code is OFFLINE
        for timestamp in (EARLIEST, LATEST, 1_700_000_000_000):
            assert list_offsets(wire, topic.name, {bad: timestamp})[bad].error_code is OFFLINE
        deletion = {"name": topic.name, "partitions": [{"partition_index": bad, "offset": 1}]}
        deleted = wire.send("delete_records", topics=[deletion], timeout=10_000)
        assert deleted.topics[0].partitions[0].error_code is OFFLINE
        epoch = {"partition": bad, "current_leader_epoch": -1, "leader_epoch": 0}
        ended = wire.send(
            "offset_for_leader_epoch", replica_id=-1, topics=[{"topic": topic.name, "partitions": [epoch]}]
        )
        assert ended.topics[0].partitions[0].error_code is OFFLINE
        producers = wire.send("describe_producers", topics=[{"name": topic.name, "partition_indexes": [bad]}])
        assert producers.topics[0].partitions[0].error_code is OFFLINE


def test_clients_are_told_that_nobody_leads_it(tmp_path: Path) -> None:
    with two_dirs(tmp_path) as place:
        place.fail_dir()
        node = place.wire.send("metadata", topics=[]).controller_id
        rows = {part.partition_index: part for part in describe_topic(place.wire, "orders").partitions}
        bad, good = rows[place.bad], rows[place.good]
        assert (bad.error_code, bad.leader_id) == (ErrorCode.leader_not_available, -1)
        assert (bad.replica_nodes, bad.isr_nodes, bad.offline_replicas) == ((node,), (node,), (node,))
        assert (good.error_code, good.leader_id, good.offline_replicas) == (ErrorCode.none, node, ())
        (described,) = place.wire.send(
            "describe_topic_partitions", topics=[{"name": "orders"}], response_partition_limit=10
        ).topics
        rows = {part.partition_index: part for part in described.partitions}
        assert (rows[place.bad].leader_id, rows[place.bad].offline_replicas) == (-1, (node,))
        assert (rows[place.good].leader_id, rows[place.good].offline_replicas) == (node, ())
        results = {Path(each.log_dir).name: each for each in place.wire.send("describe_log_dirs", topics=None).results}
        assert (results["b"].error_code, results["b"].topics) == (OFFLINE, ())
        assert results["a"].error_code is ErrorCode.none
        assert [entry.name for entry in results["a"].topics] == ["orders"]


def test_the_settings_of_its_topic_can_still_be_changed(tmp_path: Path) -> None:
    with two_dirs(tmp_path) as place:
        place.fail_dir()
        changed = alter_incrementally(place.wire, "orders", ("max.message.bytes", SET, "1000"))
        assert changed.error_code is ErrorCode.none
        assert (
            produce(place.wire, place.topic, batch(bytes(2000)), partition=place.good).error_code is not ErrorCode.none
        )
        assert (
            produce(place.wire, place.topic, batch(bytes(2000)), partition=place.bad).error_code is not ErrorCode.none
        )


def test_a_read_that_fails_takes_the_dir_offline_too(tmp_path: Path) -> None:
    with two_dirs(tmp_path) as place:
        place.fs.fail("pread", errno.EIO, path_part="/b/orders")
        assert fetch(place.wire, place.topic, 1, partition=place.bad).error_code is OFFLINE
        assert is_offline(place.wire, place.topic, place.bad)
        assert values(fetch(place.wire, place.topic, 1, partition=place.good).records) == [b"2", b"3"]


def test_damage_is_the_matter_of_one_partition(tmp_path: Path) -> None:
    with two_dirs(tmp_path) as place:
        data = tmp_path / f"b/orders-{place.bad}/00000000000000000000.log"
        size = len(batch(b"1"))
        with data.open("r+b") as file:
            file.seek(size)
            file.write(bytes(size))
        wanted = fetch_topic(place.topic, {place.bad: 2, place.good: 2})
        answer = place.wire.send("fetch", max_wait=0, min_bytes=0, max_bytes=1_000_000, topics=[wanted])
        bad, good = answer.responses[0].partitions
        assert bad.error_code is ErrorCode.corrupt_message
        assert values(good.records) == [b"3"]
        by_time = list_offsets(place.wire, "orders", {place.bad: AN_HOUR_AGO_MS, place.good: AN_HOUR_AGO_MS})
        assert by_time[place.good].offset == 0
        assert not is_offline(place.wire, place.topic, place.bad)
        assert values(fetch(place.wire, place.topic, 0, partition=place.bad, partition_max_bytes=1).records) == [b"1"]


def test_records_that_cannot_be_read_from_a_cold_disk_are_answered_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def warm(part: Any) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with two_dirs(tmp_path) as place:
        monkeypatch.setattr("headwater.broker.services.page_cache.is_cold", lambda part: True)
        monkeypatch.setattr("headwater.broker.services.page_cache.warm", warm)
        assert fetch(place.wire, place.topic, 0, partition=place.bad).error_code is OFFLINE
        monkeypatch.undo()
        assert is_offline(place.wire, place.topic, place.bad)
        assert not is_offline(place.wire, place.topic, place.good)


def test_a_fetch_that_waits_is_woken_and_answered(tmp_path: Path) -> None:
    with two_dirs(tmp_path) as place, Wire(place.wire.bootstrap) as waiting:
        at = {"partition": place.bad, "fetch_offset": 3, "partition_max_bytes": 1_000_000}
        asked = {"topic": "orders", "topic_id": place.topic.id, "partitions": [at]}
        number = waiting.send_only("fetch", max_wait=20_000, min_bytes=1, max_bytes=1_000_000, topics=[asked])
        time.sleep(0.1)
        began_s = time.monotonic()
        place.fail_dir()
        (answer,) = waiting.receive(1, 18, number).responses[0].partitions
        assert answer.error_code is OFFLINE
        assert time.monotonic() - began_s < 10


JOBS = {
    "flush": ({}, {"flush.ms": "100"}, ("sync", "/b/orders")),
    "checkpoint": ({"log.flush.offset.checkpoint.interval.ms": 100}, {}, ("pwrite", "/b/recovery-point")),
    "retention": (
        {"log.retention.check.interval.ms": 100},
        {"retention.bytes": "1", "internal.segment.bytes": "100"},
        ("rename", "/b/orders"),
    ),
    "cleaner": (
        {"log.cleaner.backoff.ms": 100},
        {
            "cleanup.policy": "compact",
            "internal.segment.bytes": "100",
            "min.cleanable.dirty.ratio": "0.01",
        },
        ("rename", "/b/orders"),
    ),
}


@pytest.mark.parametrize("job", JOBS)
def test_what_fails_in_the_background_takes_the_dir_offline(tmp_path: Path, job: str) -> None:
    settings, configs, (call, part) = JOBS[job]
    record = Record(key=b"k", value=b"v")
    fs = FaultyFileSystem(str(tmp_path))
    config: dict[str, Any] = {"log.dirs": dirs_of(tmp_path), **settings}
    with LocalBroker(config=config, fs=fs) as broker, Wire(broker.bootstrap) as wire:
        topic = create_topic(wire, name="orders", partitions=2, configs=configs)
        fs.fail(call, errno.EIO, path_part=part, times=ALWAYS)  # type: ignore[arg-type]
        bad = 0 if "orders-0" in folders(tmp_path / "b") else 1
        for partition in (0, 1):
            for _ in range(4):
                produce(wire, topic, batch(record), partition=partition)
        eventually(lambda: is_offline(wire, topic, bad), "the end of the dir")
        assert not is_offline(wire, topic, 1 - bad)
        produce_ok(wire, topic, batch(record), partition=1 - bad)


def test_new_partitions_are_made_in_the_dir_that_works(tmp_path: Path) -> None:
    with two_dirs(tmp_path) as place:
        place.fail_dir()
        made = create_topic(place.wire, name="made", partitions=3)
        assert folders(tmp_path / "a") == {f"orders-{place.good}", "made-0", "made-1", "made-2"}
        for partition in range(3):
            produce_ok(place.wire, made, batch(b"v"), partition=partition)
        added = [{"name": "orders", "count": 4, "assignments": None}]
        assert place.wire.send("create_partitions", topics=added, timeout=10_000).results[0].error_code == 0
        for partition in (2, 3):
            produce_ok(place.wire, place.topic, batch(b"v"), partition=partition)
        assert is_offline(place.wire, place.topic, place.bad)


def test_a_partition_whose_dir_fails_while_it_is_made_is_offline(tmp_path: Path) -> None:
    with two_dirs(tmp_path) as place:
        place.break_dir()
        answer = place.wire.send(
            "create_topics", topics=[{"name": "made", "num_partitions": 4, "replication_factor": 1}], timeout=10_000
        )
        assert answer.topics[0].error_code is ErrorCode.none
        made = Topic(name="made", id=answer.topics[0].topic_id)
        rows = describe_topic(place.wire, "made").partitions
        assert sorted(part.leader_id for part in rows) == [-1, 1, 1, 1]
        for part in rows:
            expected = OFFLINE if part.leader_id == -1 else ErrorCode.none
            answered = produce(place.wire, made, batch(b"v"), partition=part.partition_index)
            assert answered.error_code is expected
    with LocalBroker(config={"log.dirs": dirs_of(tmp_path)}) as broker, Wire(broker.bootstrap) as wire:
        ends = list_offsets(wire, "made", dict.fromkeys(range(4), LATEST))
        assert sorted(end.offset for end in ends.values()) == [0, 1, 1, 1]


def test_a_topic_that_is_deleted_meanwhile_is_gone_when_the_dir_is_back(tmp_path: Path) -> None:
    with two_dirs(tmp_path) as place:
        place.fail_dir()
        answer = place.wire.send("delete_topics", topics=[{"name": "orders", "topic_id": None}], timeout=10_000)
        assert answer.responses[0].error_code is ErrorCode.none
        new = create_topic(place.wire, name="orders", partitions=2)
        for partition in (0, 1):
            produce_ok(place.wire, new, batch(b"new"), partition=partition)
    assert f"orders-{place.bad}" in folders(tmp_path / "b"), "nothing in a failed dir was touched"
    with LocalBroker(config={"log.dirs": dirs_of(tmp_path)}) as broker, Wire(broker.bootstrap) as wire:
        for partition in (0, 1):
            assert values(fetch_all(wire, new, partition=partition)) == [b"new"]
        eventually(lambda: not folders(tmp_path / "b"), "the end of the old folder")


def commit(wire: Wire, group: str) -> ErrorCode:
    at = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
    topics = [{"name": "orders", "partitions": [at]}]
    answer = wire.send("offset_commit", group_id=group, generation_id_or_member_epoch=-1, member_id="", topics=topics)
    return ErrorCode(answer.topics[0].partitions[0].error_code)


def find_coordinator(wire: Wire, group: str) -> ErrorCode:
    (found,) = wire.send("find_coordinator", key_type=0, coordinator_keys=[group]).coordinators
    return ErrorCode(found.error_code)


def test_groups_whose_coordinator_lies_in_the_dir_have_none(tmp_path: Path) -> None:
    with two_dirs(tmp_path) as place:
        eventually(lambda: find_coordinator(place.wire, "any") is ErrorCode.none, "the offsets topic")
        gone = 0 if "__consumer_offsets-0" in folders(tmp_path / "b") else 1
        groups = {partition_for(f"group-{number}", 2): f"group-{number}" for number in range(20)}
        for group in groups.values():
            eventually(lambda group=group: commit(place.wire, group) is ErrorCode.none, "the coordinator")  # type: ignore[misc]
        place.fail_dir()
        assert find_coordinator(place.wire, groups[gone]) is ErrorCode.coordinator_not_available
        assert commit(place.wire, groups[gone]) is ErrorCode.not_coordinator
        assert find_coordinator(place.wire, groups[1 - gone]) is ErrorCode.none
        assert commit(place.wire, groups[1 - gone]) is ErrorCode.none
        listed = {group.group_id for group in place.wire.send("list_groups", states_filter=[], types_filter=[]).groups}
        assert listed == {groups[1 - gone]}


def test_a_coordinator_that_cannot_write_goes_offline_with_its_dir(tmp_path: Path) -> None:
    with two_dirs(tmp_path) as place:
        eventually(lambda: find_coordinator(place.wire, "any") is ErrorCode.none, "the offsets topic")
        gone = 0 if "__consumer_offsets-0" in folders(tmp_path / "b") else 1
        group = next(name for name in map(str, range(20)) if partition_for(name, 2) == gone)
        eventually(lambda: commit(place.wire, group) is ErrorCode.none, "the coordinator")
        place.break_dir()
        assert commit(place.wire, group) is ErrorCode.coordinator_not_available
        assert commit(place.wire, group) is ErrorCode.not_coordinator
        assert is_offline(place.wire, place.topic, place.bad)


def committed(bootstrap: str, partition: int, count: int) -> list[bytes]:
    """So many records of a partition as a consumer gets them that waits for the end of transactions."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "any", "isolation.level": "read_committed"})
    consumer.assign([TopicPartition("orders", partition, 0)])
    found: list[bytes] = []
    while len(found) < count:
        message = consumer.poll(20)
        assert message is not None, f"only {found}"
        assert message.error() is None
        found.append(message.value() or b"")
    consumer.close()
    return found


def test_a_transaction_ends_in_an_offline_partition_when_that_is_back(tmp_path: Path) -> None:
    with two_dirs(tmp_path) as place:
        answer = place.wire.send("find_coordinator", key_type=1, coordinator_keys=["any"])
        assert answer.coordinators[0].error_code is ErrorCode.none
        kept = 0 if "__transaction_state-0" in folders(tmp_path / "a") else 1
        name = next(name for name in map(str, range(20)) if partition_for(name, 2) == kept)
        producer = Producer({"bootstrap.servers": place.wire.bootstrap, "transactional.id": name})
        producer.init_transactions(20)
        producer.begin_transaction()
        for partition in (0, 1):
            producer.produce("orders", b"in a transaction", partition=partition)
        assert producer.flush(20) == 0
        place.fail_dir()
        producer.commit_transaction(20)
        assert committed(place.wire.bootstrap, place.good, 4)[3] == b"in a transaction"
    with LocalBroker(config={"log.dirs": dirs_of(tmp_path), **SETTINGS}) as broker:
        assert committed(broker.bootstrap, place.bad, 4)[3] == b"in a transaction"


def test_without_its_metadata_the_broker_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with two_dirs(tmp_path) as place:

        def fail(self: Any, data: bytes) -> None:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        monkeypatch.setattr("headwater.cluster.embedded.EmbeddedStore._write", fail)
        wanted = [{"name": "new", "num_partitions": 1, "replication_factor": 1}]
        place.wire.send_only("create_topics", topics=wanted, timeout=10_000)
        with contextlib.suppress(ConnectionClosedError):
            place.wire.receive_bytes()
        assert place.wire.is_closed_by_peer()
        with pytest.raises(ConnectionRefusedError):
            Wire(place.wire.bootstrap)


def test_the_dir_of_the_metadata_may_fail_as_long_as_the_metadata_can_be_written(tmp_path: Path) -> None:
    with two_dirs(tmp_path) as place:
        place.break_dir("a")
        assert produce(place.wire, place.topic, batch(b"lost"), partition=place.good).error_code is OFFLINE
        made = create_topic(place.wire, name="made")
        produce_ok(place.wire, made, batch(b"v"))
        assert folders(tmp_path / "b") == {f"orders-{place.bad}", "made-0"}


def test_metadata_without_room_is_refused_and_heals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with two_dirs(tmp_path) as place:

        def fail(self: Any, data: bytes) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        with monkeypatch.context() as patch:
            patch.setattr("headwater.cluster.embedded.EmbeddedStore._write", fail)
            answer = place.wire.send(
                "create_topics", topics=[{"name": "new", "num_partitions": 1, "replication_factor": 1}], timeout=10_000
            )
            assert answer.topics[0].error_code is OFFLINE
            given = place.wire.send("init_producer_id", transactional_id=None, transaction_timeout=60_000)
            assert given.error_code is ErrorCode.coordinator_load_in_progress
        produce_ok(place.wire, create_topic(place.wire, name="new"), batch(b"v"))


def test_a_topic_for_which_there_is_no_room_is_not_half_made(tmp_path: Path) -> None:
    with two_dirs(tmp_path) as place:
        place.fs.fail("open", errno.ENOSPC, path_part="/new-2/")
        wanted = [{"name": "new", "num_partitions": 4, "replication_factor": 1}]
        answer = place.wire.send("create_topics", topics=wanted, timeout=10_000)
        assert answer.topics[0].error_code is OFFLINE
        assert describe_topic(place.wire, "new").error_code is ErrorCode.unknown_topic_or_partition
        new = create_topic(place.wire, name="new", partitions=4)
        for partition in range(4):
            assert produce_ok(place.wire, new, batch(b"v"), partition=partition) == 0
    with LocalBroker(config={"log.dirs": dirs_of(tmp_path)}) as broker, Wire(broker.bootstrap) as wire:
        assert len(describe_topic(wire, "new").partitions) == 4
        assert values(fetch_all(wire, new, partition=3)) == [b"v"]


def test_a_full_dir_refuses_and_heals_while_the_other_goes_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR), two_dirs(tmp_path) as place:
        place.fs.fail("pwrite", errno.ENOSPC, path_part="/b/orders", times=5)
        codes = [produce(place.wire, place.topic, batch(b"4"), partition=place.bad).error_code for _ in range(20)]
        assert set(codes) == {OFFLINE, ErrorCode.none}
        assert codes[-1] is ErrorCode.none
        produce_ok(place.wire, place.topic, batch(b"4"), partition=place.good)
        kept = values(fetch_all(place.wire, place.topic, partition=place.bad))
        assert kept == [b"1", b"2", b"3"] + [b"4"] * codes.count(ErrorCode.none)
    assert not offline_lines(caplog)
    assert sum("Clients are told to try again" in record.getMessage() for record in caplog.records) == 1
