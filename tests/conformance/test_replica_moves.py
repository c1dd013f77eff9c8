"""Partitions move between the log dirs of a broker: the same requests, the same answers, the same folders as Apache."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient
from kio.schema.errors import ErrorCode

from peers.apache import CLUSTER_ID, QUICK_START, ApacheKafka, run_tool
from peers.headwater import HeadwaterProcess
from peers.presence import require_apache

from .actions import (
    BROKER_RESOURCE,
    LATEST,
    SET,
    Topic,
    alter_incrementally,
    create_topic,
    eventually,
    fetch_all,
    list_offset,
    produce_ok,
    unique_name,
)
from .batches import batch, values
from .conftest import Broker
from .wire import Wire

pytestmark = pytest.mark.peer

RATE = "replica.alter.log.dirs.io.max.bytes.per.second"


def two_dirs(folder: Path) -> dict[str, str]:
    """Settings for a broker with two log dirs in a folder; Apache wants the second to say whose it is."""
    fields = {"version": "1", "cluster.id": CLUSTER_ID, "node.id": "1", "directory.id": "c2Vjb25kLWxvZy1kaXIhIQ"}
    (folder / "more").mkdir(exist_ok=True)
    (folder / "more" / "meta.properties").write_text("".join(f"{key}={value}\n" for key, value in fields.items()))
    return {"log.dirs": f"{folder / 'data'},{folder / 'more'}", "node.id": "1"}


@pytest.fixture(scope="module", params=["headwater", "apache"])
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    folder = tmp_path_factory.mktemp(request.param)
    with contextlib.ExitStack() as stack:
        if request.param == "apache":
            require_apache()
            yield stack.enter_context(ApacheKafka(folder, two_dirs(folder), jvm_options=QUICK_START))
        else:
            yield stack.enter_context(HeadwaterProcess(folder, two_dirs(folder)))


@pytest.fixture
def wire(broker: Broker) -> Iterator[Wire]:
    with Wire(broker.bootstrap) as wire:
        yield wire


def ask(wire: Wire, *wanted: tuple[str | Path, str, int]) -> dict[tuple[str, int], str]:
    """Asks for moves, as (dir, topic, partition), and returns the answers by topic and partition."""
    dirs = [{"path": str(path), "topics": [{"name": name, "partitions": [index]}]} for path, name, index in wanted]
    return {
        (topic.topic_name, part.partition_index): part.error_code.name
        for topic in wire.send("alter_replica_log_dirs", dirs=dirs).results
        for part in topic.partitions
    }


def described(wire: Wire, topic: Topic) -> dict[tuple[str, bool], Any]:
    """The rows about partition 0: in which dir, and whether it is the future replica."""
    wanted = [{"topic": topic.name, "partitions": [0]}]
    return {
        (Path(result.log_dir).name, row.is_future_key): row
        for result in wire.send("describe_log_dirs", topics=wanted).results
        for entry in result.topics
        for row in entry.partitions
    }


def places(wire: Wire, broker: Broker, topic: Topic) -> tuple[Path, Path]:
    """The dir that partition 0 lies in, and the other one."""
    names = {name for name, is_future in described(wire, topic) if not is_future}
    here, there = ("data", "more") if names == {"data"} else ("more", "data")
    return broker.folder / here, broker.folder / there


def filled_topic(wire: Wire, **configs: str) -> Topic:
    topic = create_topic(wire, configs={name.replace("_", "."): value for name, value in configs.items()})
    for number in range(20):
        produce_ok(wire, topic, batch(b"%d" % number + bytes(50_000)))
    return topic


def set_rate(wire: Wire, bytes_per_second: int) -> None:
    answer = alter_incrementally(wire, "1", (RATE, SET, str(bytes_per_second)), resource_type=BROKER_RESOURCE)
    assert answer.error_code is ErrorCode.none, answer


def test_a_partition_moves_with_its_records(broker: Broker, wire: Wire) -> None:
    topic = filled_topic(wire, segment_bytes=str(1024 * 1024), file_delete_delay_ms="0")
    before = fetch_all(wire, topic)
    here, there = places(wire, broker, topic)
    size = described(wire, topic)[here.name, False].partition_size
    assert ask(wire, (there, topic.name, 0)) == {(topic.name, 0): "none"}
    eventually(lambda: described(wire, topic).keys() == {(there.name, False)}, "the end of the move")
    row = described(wire, topic)[there.name, False]
    assert (row.partition_size, row.offset_lag) == (size, 0)
    assert fetch_all(wire, topic) == before
    assert produce_ok(wire, topic, batch(b"goes on")) == 20
    assert (there / f"{topic.name}-0").is_dir()
    eventually(lambda: not (here / f"{topic.name}-0").exists(), "the end of the old folder")


def test_what_is_refused(broker: Broker, wire: Wire) -> None:
    topic = create_topic(wire)
    here, there = places(wire, broker, topic)
    long = create_topic(wire, name="t" * 249)
    absent = unique_name("absent")
    for path in ("/nowhere", "data", f"{there}/", f"{there}/../{there.name}", ""):
        assert ask(wire, (path, topic.name, 0)) == {(topic.name, 0): "log_dir_not_found"}, path
    assert ask(wire, (there, topic.name, 5)) == {(topic.name, 5): "unknown_topic_or_partition"}
    assert ask(wire, (there, absent, 0)) == {(absent, 0): "unknown_topic_or_partition"}
    assert ask(wire, (there, long.name, 0)) == {(long.name, 0): "invalid_topic_exception"}
    assert ask(wire, ("/nowhere", absent, 0)) == {(absent, 0): "log_dir_not_found"}
    assert ask(wire, (here, topic.name, 0), ("/nowhere", topic.name, 0)) == {(topic.name, 0): "log_dir_not_found"}
    assert ask(wire, (here, topic.name, 0)) == {(topic.name, 0): "none"}
    assert ask(wire) == {}


@pytest.mark.parametrize("name", ["data", "more"])
def test_a_topic_that_is_made_later_lies_in_the_dir_asked_for(broker: Broker, wire: Wire, name: str) -> None:
    topic = unique_name()
    assert ask(wire, (broker.folder / name, topic, 0)) == {(topic, 0): "unknown_topic_or_partition"}
    assert described(wire, create_topic(wire, name=topic)).keys() == {(name, False)}


def test_a_move_under_way_is_seen_and_taken_back(broker: Broker, wire: Wire) -> None:
    topic = filled_topic(wire, file_delete_delay_ms="0")
    before = fetch_all(wire, topic)
    here, there = places(wire, broker, topic)
    set_rate(wire, 100)
    assert ask(wire, (there, topic.name, 0)) == {(topic.name, 0): "none"}
    rows = described(wire, topic)
    assert rows.keys() == {(here.name, False), (there.name, True)}
    assert 0 < rows[there.name, True].offset_lag <= 20
    (folder,) = there.glob(f"{topic.name}-0.*-future")
    assert len(folder.name) == len(f"{topic.name}-0.-future") + 32
    assert ask(wire, (there, topic.name, 0)) == {(topic.name, 0): "none"}
    assert described(wire, topic).keys() == {(here.name, False), (there.name, True)}
    assert ask(wire, (here, topic.name, 0)) == {(topic.name, 0): "none"}
    eventually(lambda: described(wire, topic).keys() == {(here.name, False)}, "the end of the copy")
    assert fetch_all(wire, topic) == before
    set_rate(wire, 2**40)


def test_kafka_python_moves_a_partition(broker: Broker, wire: Wire) -> None:
    topic = filled_topic(wire)
    _, there = places(wire, broker, topic)
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    try:
        said = admin.alter_replica_log_dirs({(topic.name, 0, 1): str(there), (topic.name, 7, 1): str(there)})
        assert {key.partition: error.__name__ for key, error in said.items()} == {
            0: "NoError",
            7: "UnknownTopicOrPartitionError",
        }
    finally:
        admin.close()
    eventually(lambda: described(wire, topic).keys() == {(there.name, False)}, "the end of the move")


def test_apaches_tool_finds_no_fault_in_a_moved_partition(tmp_path: Path) -> None:
    require_apache()
    with HeadwaterProcess(tmp_path, two_dirs(tmp_path)) as ours:
        with Wire(ours.bootstrap) as wire:
            topic = filled_topic(wire, segment_bytes=str(1024 * 1024))
            here, there = places(wire, ours, topic)
            assert ask(wire, (there, topic.name, 0)) == {(topic.name, 0): "none"}
            eventually(lambda: described(wire, topic).keys() == {(there.name, False)}, "the end of the move")
            produce_ok(wire, topic, batch(b"goes on"))
        ours.stop()
        names = ",".join(str(path) for path in sorted((there / f"{topic.name}-0").glob("0*")))
        said = run_tool("kafka.tools.DumpLogSegments", "--files", names, "--deep-iteration")
        assert "Mismatches" not in said
        assert "lastOffset: 20" in said
        assert not (here / f"{topic.name}-0").exists()


def test_a_move_that_apache_began_is_completed_by_headwater(tmp_path: Path) -> None:
    require_apache()
    with ApacheKafka(tmp_path, two_dirs(tmp_path), jvm_options=QUICK_START) as theirs:
        with Wire(theirs.bootstrap) as wire:
            topic = filled_topic(wire)
            set_rate(wire, 100)
            here, there = places(wire, theirs, topic)
            assert ask(wire, (there, topic.name, 0)) == {(topic.name, 0): "none"}
        theirs.kill()
    assert list(there.glob(f"{topic.name}-0.*-future"))
    with HeadwaterProcess(tmp_path, two_dirs(tmp_path)) as ours, Wire(ours.bootstrap) as wire:
        eventually(lambda: described(wire, topic).keys() == {(there.name, False)}, "the end of the move")
        found = values(fetch_all(wire, topic))
        assert [(value or b"").rstrip(b"\0") for value in found] == [b"%d" % number for number in range(20)]
        assert list_offset(wire, topic, LATEST).offset == 20
        eventually(lambda: not (here / f"{topic.name}-0").exists(), "the end of the old folder")
        assert not list(there.glob(f"{topic.name}-0.*-future"))
