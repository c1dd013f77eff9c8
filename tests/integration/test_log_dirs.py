"""Several log dirs, and the folders of deleted topics."""

import contextlib
import os
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conformance.actions import (
    LATEST,
    Topic,
    create_topic,
    describe_topic,
    eventually,
    fetch,
    fetch_all,
    list_offset,
    list_offsets,
    produce,
    produce_ok,
    topic_configs,
    unique_name,
    wait_for_partitions,
)
from conformance.batches import batch, values
from conformance.wire import Wire
from headwater.broker.app import StartupError
from headwater.testing import LocalBroker
from peers.headwater import HeadwaterProcess

Settings = dict[str, str]


def three_dirs(folder: Path) -> list[Path]:
    return [folder / name for name in ("a", "b", "c")]


def settings(dirs: list[Path]) -> Settings:
    return {"log.dirs": ",".join(map(str, dirs))}


def partition_folders(log_dir: Path) -> set[str]:
    return {path.name for path in log_dir.iterdir() if path.is_dir()}


def spread(dirs: list[Path]) -> list[int]:
    """How many partitions each dir holds."""
    return [len(partition_folders(log_dir)) for log_dir in dirs]


def properties(log_dir: Path) -> dict[str, str]:
    lines = (log_dir / "meta.properties").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)


def fill(wire: Wire, topic: Topic, partitions: int) -> None:
    for partition in range(partitions):
        produce_ok(wire, topic, batch(b"%d" % partition), partition=partition)


def check(wire: Wire, topic: Topic, partitions: int) -> None:
    """That a topic is as `fill` left it."""
    assert wait_for_partitions(wire, topic.name, partitions).topic_id == topic.id
    for partition in range(partitions):
        assert values(fetch_all(wire, topic, partition=partition)) == [b"%d" % partition]


def test_a_new_partition_goes_to_the_dir_with_the_fewest(tmp_path: Path) -> None:
    dirs = three_dirs(tmp_path)
    with LocalBroker(config=settings(dirs)) as broker, Wire(broker.bootstrap) as wire:
        create_topic(wire, partitions=7)
        assert sorted(spread(dirs)) == [2, 2, 3]
        gone = create_topic(wire, partitions=2)
        assert spread(dirs) == [3, 3, 3]
        wire.send("delete_topics", topics=[{"name": gone.name, "topic_id": None}], timeout=10_000)
        create_topic(wire, partitions=2)
        left = [sum(not name.endswith("-delete") for name in partition_folders(log_dir)) for log_dir in dirs]
        assert left == [3, 3, 3], "what waits to be removed does not count"


def test_clients_are_told_what_lies_where(tmp_path: Path) -> None:
    dirs = three_dirs(tmp_path)
    with LocalBroker(config=settings(dirs)) as broker, Wire(broker.bootstrap) as wire:
        topic = create_topic(wire, partitions=6)
        fill(wire, topic, 6)
        answer = wire.send("describe_log_dirs", topics=None)
        told = {
            Path(result.log_dir): {
                f"{entry.name}-{part.partition_index}" for entry in result.topics for part in entry.partitions
            }
            for result in answer.results
        }
        assert told == {log_dir: partition_folders(log_dir) for log_dir in dirs}


def test_the_dirs_are_of_one_cluster_and_each_has_an_id(tmp_path: Path) -> None:
    dirs = three_dirs(tmp_path)
    with LocalBroker(config=settings(dirs)) as broker, Wire(broker.bootstrap) as wire:
        cluster_id = wire.send("metadata", topics=[]).cluster_id
    found = [properties(log_dir) for log_dir in dirs]
    assert {each["cluster.id"] for each in found} == {cluster_id}
    assert len({each["directory.id"] for each in found}) == 3
    assert all((log_dir / ".kafka_cleanshutdown").exists() for log_dir in dirs)


@pytest.mark.parametrize("killed", [False, True], ids=["stop", "kill"])
def test_everything_comes_back_from_every_dir(tmp_path: Path, killed: bool) -> None:
    dirs = three_dirs(tmp_path)
    with HeadwaterProcess(tmp_path, settings(dirs)) as process:
        with Wire(process.bootstrap) as wire:
            topics = [create_topic(wire, partitions=4, configs={"retention.ms": "987654"}) for _ in range(2)]
            for topic in topics:
                fill(wire, topic, 4)
        if killed:
            process.kill()
    before = {log_dir: partition_folders(log_dir) for log_dir in dirs}
    with LocalBroker(config=settings(dirs)) as broker, Wire(broker.bootstrap) as wire:
        for topic in topics:
            check(wire, topic, 4)
            assert topic_configs(wire, topic.name)["retention.ms"].value == "987654"
        assert {log_dir: partition_folders(log_dir) for log_dir in dirs} == before


def test_a_dir_that_is_added_later_takes_the_new_partitions(tmp_path: Path) -> None:
    a, b, _ = three_dirs(tmp_path)
    with LocalBroker(config=settings([a])) as broker, Wire(broker.bootstrap) as wire:
        old = create_topic(wire, partitions=3)
        fill(wire, old, 3)
    with LocalBroker(config=settings([a, b])) as broker, Wire(broker.bootstrap) as wire:
        check(wire, old, 3)
        new = create_topic(wire, partitions=3)
        assert partition_folders(b) == {f"{new.name}-{partition}" for partition in range(3)}
        assert properties(a)["cluster.id"] == properties(b)["cluster.id"]


def test_the_order_of_the_dirs_does_not_matter(tmp_path: Path) -> None:
    dirs = three_dirs(tmp_path)
    with LocalBroker(config=settings(dirs)) as broker, Wire(broker.bootstrap) as wire:
        topic = create_topic(wire, partitions=4, configs={"retention.ms": "987654"})
        fill(wire, topic, 4)
    for order in (dirs[::-1], dirs):
        with LocalBroker(config=settings(order)) as broker, Wire(broker.bootstrap) as wire:
            check(wire, topic, 4)
            assert topic_configs(wire, topic.name)["retention.ms"].value == "987654"


def test_a_dir_that_is_left_out_is_noticed(tmp_path: Path) -> None:
    """Its partitions must not come up empty: a consumer would take that for the truth."""
    a, b, _ = three_dirs(tmp_path)
    with LocalBroker(config=settings([a, b])) as broker, Wire(broker.bootstrap) as wire:
        topic = create_topic(wire, partitions=2)
        fill(wire, topic, 2)
    with contextlib.suppress(StartupError), LocalBroker(config=settings([a])) as broker, Wire(broker.bootstrap) as wire:
        ends = list_offsets(wire, topic.name, {0: LATEST, 1: LATEST})
        assert all(part.offset == 1 or part.error_code.name != "none" for part in ends.values()), ends
    with LocalBroker(config=settings([a, b])) as broker, Wire(broker.bootstrap) as wire:
        check(wire, topic, 2)


def test_a_partition_that_lies_in_two_dirs_stops_the_start(tmp_path: Path) -> None:
    a, b, _ = three_dirs(tmp_path)
    with LocalBroker(config=settings([a, b])) as broker, Wire(broker.bootstrap) as wire:
        create_topic(wire, name="orders")
    (b / "orders-0").mkdir()
    with pytest.raises(StartupError, match="orders-0"):
        LocalBroker(config=settings([a, b])).start()
    shutil.rmtree(b / "orders-0")
    with LocalBroker(config=settings([a, b])):
        pass


def test_one_locked_dir_keeps_the_broker_off_all_of_them(tmp_path: Path) -> None:
    a, b, c = three_dirs(tmp_path)
    with LocalBroker(config=settings([b])):
        with pytest.raises(StartupError, match=str(b)):
            LocalBroker(config=settings([a, b, c])).start()
        with LocalBroker(config=settings([a])):
            pass


@pytest.fixture
def broker() -> Iterator[LocalBroker]:
    with LocalBroker() as broker:
        yield broker


@pytest.fixture
def wire(broker: LocalBroker) -> Iterator[Wire]:
    with Wire(broker.bootstrap) as wire:
        yield wire


def delete(wire: Wire, topic: Topic) -> Any:
    answer = wire.send("delete_topics", topics=[{"name": topic.name, "topic_id": None}], timeout=10_000)
    return answer.responses[0].error_code.name


def doomed(data: Path, topic: Topic) -> list[str]:
    """The folders of a topic that wait to be removed."""
    return sorted(name for name in partition_folders(data) if name.startswith(topic.name[:20]) and "-delete" in name)


def test_the_folder_of_a_deleted_topic_is_renamed_at_once_and_goes_after_the_delay(
    broker: LocalBroker, wire: Wire
) -> None:
    soon = create_topic(wire, partitions=2, configs={"file.delete.delay.ms": "1000"})
    later = create_topic(wire, configs={"file.delete.delay.ms": "120000"})
    for topic in (soon, later):
        produce_ok(wire, topic, batch(b"v"))
        assert delete(wire, topic) == "none"
    deleted_at = time.monotonic()
    assert partition_folders(broker.data) == {*doomed(broker.data, soon), *doomed(broker.data, later)}
    assert [name.partition(".")[0] for name in doomed(broker.data, soon)] == [f"{soon.name}-0", f"{soon.name}-1"]
    eventually(lambda: not doomed(broker.data, soon), "the end of the folders")
    assert time.monotonic() - deleted_at >= 1
    assert len(doomed(broker.data, later)) == 1, "it has another minute"


def test_a_topic_made_again_is_empty_and_another(broker: LocalBroker, wire: Wire) -> None:
    name = unique_name()
    old = create_topic(wire, name=name, configs={"retention.ms": "987654"})
    produce_ok(wire, old, batch(b"old", b"older"))
    assert delete(wire, old) == "none"
    new = create_topic(wire, name=name)
    assert new.id != old.id
    assert describe_topic(wire, name).topic_id == new.id
    assert list_offset(wire, new, LATEST).offset == 0
    assert topic_configs(wire, name)["retention.ms"].value != "987654"
    assert fetch(wire, old, 0).error_code.name == "unknown_topic_id"
    assert produce(wire, old, batch(b"late")).error_code.name == "unknown_topic_id"
    assert produce_ok(wire, new, batch(b"new")) == 0
    assert values(fetch_all(wire, new)) == [b"new"]


def test_a_topic_made_again_stays_so_after_a_kill(tmp_path: Path) -> None:
    with HeadwaterProcess(tmp_path) as process:
        with Wire(process.bootstrap) as wire:
            old = create_topic(wire, name="orders", partitions=3)
            fill(wire, old, 3)
            assert delete(wire, old) == "none"
            new = create_topic(wire, name="orders", partitions=2)
            fill(wire, new, 2)
            gone = create_topic(wire)
            assert delete(wire, gone) == "none"
        process.kill()
    with LocalBroker(data=process.data_dir) as broker, Wire(broker.bootstrap) as wire:
        check(wire, new, 2)
        assert describe_topic(wire, gone.name).error_code.name == "unknown_topic_or_partition"
        names = Counter(name.partition(".")[0] for name in partition_folders(process.data_dir))
        assert not {"orders-2.", gone.name} & names.keys()


def test_what_a_crash_left_of_a_deletion_is_removed_by_the_next_broker(tmp_path: Path) -> None:
    with LocalBroker(data=tmp_path) as broker, Wire(broker.bootstrap) as wire:
        kept, gone = create_topic(wire), create_topic(wire, configs={"file.delete.delay.ms": "1000"})
        fill(wire, kept, 1)
        assert delete(wire, gone) == "none"
    (tmp_path / f"halfway-0.{os.urandom(16).hex()}-delete").mkdir()
    with LocalBroker(data=tmp_path, config={"log.segment.delete.delay.ms": 1000}) as broker:
        with Wire(broker.bootstrap) as wire:
            check(wire, kept, 1)
        eventually(lambda: partition_folders(tmp_path) == {f"{kept.name}-0"}, "the end of the old folders")


def test_a_fetch_under_way_is_not_harmed_by_the_deletion(broker: LocalBroker, wire: Wire) -> None:
    """The bytes are on their way to the client when the files lose their names."""
    topic = create_topic(wire, configs={"file.delete.delay.ms": "0", "max.message.bytes": "20000000"})
    large = bytes(10_000_000)
    produce_ok(wire, topic, batch(large))
    with Wire(broker.bootstrap) as slow:
        at = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 50_000_000}
        asked = {"topic": topic.name, "topic_id": topic.id, "partitions": [at]}
        number = slow.send_only("fetch", max_wait=0, min_bytes=1, max_bytes=50_000_000, topics=[asked])
        time.sleep(0.2)
        assert delete(wire, topic) == "none"
        eventually(lambda: not doomed(broker.data, topic), "the end of the folder")
        (answer,) = slow.receive(1, 18, number).responses[0].partitions
        assert values(answer.records) == [large]


def test_the_segments_of_deleted_records_leave_the_disk(broker: LocalBroker, wire: Wire) -> None:
    topic = create_topic(wire, configs={"segment.bytes": str(1024 * 1024), "file.delete.delay.ms": "500"})
    for _ in range(10):
        produce_ok(wire, topic, batch(bytes(300_000)))
    folder = broker.data / f"{topic.name}-0"
    assert sorted(path.stem for path in folder.glob("*.log")) == [f"{offset:020}" for offset in (0, 3, 6, 9)]
    entry = {"name": topic.name, "partitions": [{"partition_index": 0, "offset": 7}]}
    answer = wire.send("delete_records", topics=[entry], timeout=10_000)
    assert answer.topics[0].partitions[0].low_watermark == 7
    assert sorted(path.stem for path in folder.glob("*.log")) == [f"{offset:020}" for offset in (6, 9)]
    eventually(lambda: not [path for path in folder.iterdir() if path.stem < f"{6:020}"], "the end of the files")
    for offset in (7, 8, 9):
        assert values(fetch(wire, topic, offset).records)[:1] == [bytes(300_000)]
