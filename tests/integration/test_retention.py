"""A running broker lets old records go, by the settings of the moment, and serves on."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from conformance.actions import (
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
)
from conformance.batches import Record, batch, values
from conformance.wire import Wire
from headwater.testing import LocalBroker

HOUR_MS = 3_600_000
CHECK_OFTEN = {"log.retention.check.interval.ms": 50}


@pytest.fixture
def broker() -> Iterator[LocalBroker]:
    with LocalBroker(config=CHECK_OFTEN) as broker:
        yield broker


@pytest.fixture
def wire(broker: LocalBroker) -> Iterator[Wire]:
    with Wire(broker.bootstrap) as wire:
        yield wire


def fill(wire: Wire, topic: Topic, *, hours_ago: float, count: int = 10) -> None:
    timestamp_ms = time.time_ns() // 1_000_000 - int(hours_ago * HOUR_MS)
    for _ in range(count):
        produce_ok(wire, topic, batch(Record(value=bytes(100), timestamp_ms=timestamp_ms)))


def earliest(wire: Wire, topic: Topic) -> int:
    return int(list_offset(wire, topic, EARLIEST).offset)


def test_old_segments_go_and_the_rest_is_served(wire: Wire) -> None:
    topic = create_topic(wire, configs={"internal.segment.bytes": "700", "retention.ms": "-1"})
    fill(wire, topic, hours_ago=3, count=12)
    fill(wire, topic, hours_ago=1, count=12)
    # Only now: retention that runs while the records are written would find other segments.
    alter_incrementally(wire, topic.name, ("retention.ms", SET, str(2 * HOUR_MS)))
    start = eventually(lambda: earliest(wire, topic), "a later start")
    assert 8 <= start <= 12
    assert list_offset(wire, topic, LATEST).offset == 24
    assert fetch(wire, topic, 0).error_code is ErrorCode.offset_out_of_range
    assert len(values(fetch(wire, topic, start).records)) >= 4


def test_a_topic_whose_records_are_all_too_old_is_empty_and_goes_on(wire: Wire) -> None:
    topic = create_topic(wire, configs={"retention.ms": str(HOUR_MS)})
    fill(wire, topic, hours_ago=2)
    eventually(lambda: earliest(wire, topic) == 10, "an empty log")
    assert produce_ok(wire, topic, batch(b"new")) == 10
    assert values(fetch(wire, topic, 10).records) == [b"new"]


def test_sizes_and_ages_changed_while_running_take_effect(wire: Wire) -> None:
    topic = create_topic(wire, configs={"internal.segment.bytes": "700", "retention.ms": "-1"})
    fill(wire, topic, hours_ago=100, count=30)
    alter_incrementally(wire, topic.name, ("retention.bytes", SET, "2000"))
    start = eventually(lambda: earliest(wire, topic), "a later start by size")
    assert start < 20
    alter_incrementally(wire, topic.name, ("retention.ms", SET, str(HOUR_MS)))
    eventually(lambda: earliest(wire, topic) == 30, "an empty log by age")


def test_compacted_topics_are_not_touched_unless_they_delete_too(wire: Wire) -> None:
    kept, both = (
        create_topic(wire, configs={"cleanup.policy": policy, "retention.ms": str(HOUR_MS)})
        for policy in ("compact", "compact,delete")
    )
    old_ms = time.time_ns() // 1_000_000 - 2 * HOUR_MS
    for topic in (kept, both):
        produce_ok(wire, topic, batch(Record(key=b"k", value=b"v", timestamp_ms=old_ms)))
    eventually(lambda: earliest(wire, both) == 1, "an empty log")
    assert earliest(wire, kept) == 0


def deleted_files(data: Path, topic: Topic) -> list[Path]:
    return list((data / f"{topic.name}-0").glob("*.deleted"))


def test_removed_files_wait_for_their_delay(broker: LocalBroker, wire: Wire) -> None:
    slow, quick = (
        create_topic(wire, configs={"retention.ms": str(HOUR_MS), "file.delete.delay.ms": delay})
        for delay in ("60000", "1")
    )
    for topic in (slow, quick):
        fill(wire, topic, hours_ago=2)
    for topic in (slow, quick):
        eventually(lambda topic=topic: earliest(wire, topic) == 10, "an empty log")  # type: ignore[misc]
    eventually(lambda: not deleted_files(broker.data, quick), "the end of the files")
    # A look in the middle of filling removes a segment of its own: there may be more than one of each.
    kinds = {path.name.split(".", 1)[1] for path in deleted_files(broker.data, slow)}
    assert kinds == {"log.deleted", "index.deleted", "timeindex.deleted"}


def test_the_start_is_known_after_a_restart(tmp_path: Path) -> None:
    with LocalBroker(data=tmp_path, config=CHECK_OFTEN) as broker, Wire(broker.bootstrap) as wire:
        topic = create_topic(wire, configs={"internal.segment.bytes": "700", "retention.ms": str(2 * HOUR_MS)})
        fill(wire, topic, hours_ago=3, count=12)
        fill(wire, topic, hours_ago=1, count=12)
        start = eventually(lambda: earliest(wire, topic), "a later start")
    with LocalBroker(data=tmp_path) as broker, Wire(broker.bootstrap) as wire:
        assert earliest(wire, topic) == start
        assert fetch(wire, topic, 0).error_code is ErrorCode.offset_out_of_range
