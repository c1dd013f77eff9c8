"""DeleteRecords and DescribeLogDirs: what leaves the log, and what lies on disk."""

from collections.abc import Mapping
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from .actions import EARLIEST, LATEST, Topic, create_topic, fetch, list_offset, produce_ok, unique_name
from .batches import batch, values
from .conftest import Broker
from .wire import Wire


@pytest.fixture
def topic(wire: Wire) -> Topic:
    made = create_topic(wire)
    for first in (0, 3, 6):
        produce_ok(wire, made, batch(*(b"%d" % (first + step) for step in range(3))))
    return made


def delete(wire: Wire, name: str, offsets: Mapping[int, int]) -> dict[int, tuple[ErrorCode, int]]:
    partitions = [{"partition_index": index, "offset": offset} for index, offset in offsets.items()]
    answer = wire.send("delete_records", topics=[{"name": name, "partitions": partitions}], timeout=10_000)
    return {part.partition_index: (part.error_code, part.low_watermark) for part in answer.topics[0].partitions}


def test_records_before_the_offset_are_gone(wire: Wire, topic: Topic) -> None:
    assert delete(wire, topic.name, {0: 4}) == {0: (ErrorCode.none, 4)}
    assert (list_offset(wire, topic, EARLIEST).offset, list_offset(wire, topic, LATEST).offset) == (4, 9)
    assert fetch(wire, topic, 3).error_code is ErrorCode.offset_out_of_range


def test_minus_1_deletes_up_to_the_high_watermark(wire: Wire, topic: Topic) -> None:
    assert delete(wire, topic.name, {0: -1}) == {0: (ErrorCode.none, 9)}
    answer = fetch(wire, topic, 9)
    assert (answer.error_code, values(answer.records), answer.log_start_offset) == (ErrorCode.none, [], 9)
    assert produce_ok(wire, topic, batch(b"goes on")) == 9


def test_the_start_never_goes_back(wire: Wire, topic: Topic) -> None:
    delete(wire, topic.name, {0: 5})
    assert delete(wire, topic.name, {0: 2}) == {0: (ErrorCode.none, 5)}
    assert list_offset(wire, topic, EARLIEST).offset == 5


@pytest.mark.parametrize("offset", [10, -2])
def test_an_offset_beyond_the_end_or_below_minus_1_is_out_of_range(wire: Wire, topic: Topic, offset: int) -> None:
    assert delete(wire, topic.name, {0: offset}) == {0: (ErrorCode.offset_out_of_range, -1)}
    assert list_offset(wire, topic, EARLIEST).offset == 0


def test_unknown_partitions_and_topics(wire: Wire, topic: Topic) -> None:
    assert delete(wire, topic.name, {0: 1, 8: 1}) == {
        0: (ErrorCode.none, 1),
        8: (ErrorCode.unknown_topic_or_partition, -1),
    }
    assert delete(wire, unique_name("absent"), {0: 0}) == {0: (ErrorCode.unknown_topic_or_partition, -1)}


def test_a_topic_that_only_compacts_keeps_its_records(wire: Wire) -> None:
    topic = create_topic(wire, configs={"cleanup.policy": "compact"})
    assert delete(wire, topic.name, {0: 0}) == {0: (ErrorCode.policy_violation, -1)}


def describe(wire: Wire, topics: Any) -> Any:
    answer = wire.send("describe_log_dirs", topics=topics)
    assert answer.error_code is ErrorCode.none
    (folder,) = answer.results
    assert folder.error_code is ErrorCode.none
    return folder


def test_log_dirs_tell_the_size_of_each_partition(broker: Broker, wire: Wire) -> None:
    topic = create_topic(wire, partitions=2)
    produce_ok(wire, topic, batch(bytes(1000)), partition=1)
    folder = describe(wire, [{"topic": topic.name, "partitions": [0, 1]}])
    assert folder.log_dir == str(broker.data_dir)
    (found,) = folder.topics
    assert found.name == topic.name
    sizes = {part.partition_index: part.partition_size for part in found.partitions}
    assert sizes == {0: 0, 1: len(batch(bytes(1000)))}
    assert all((part.offset_lag, part.is_future_key) == (0, False) for part in found.partitions)
    assert folder.total_bytes > folder.usable_bytes > 0


def test_log_dirs_of_all_topics(wire: Wire, topic: Topic) -> None:
    assert topic.name in {found.name for found in describe(wire, None).topics}


def test_log_dirs_list_only_what_is_asked_for_and_there(wire: Wire) -> None:
    topic = create_topic(wire, partitions=2)
    asked = [{"topic": topic.name, "partitions": [1, 9]}, {"topic": unique_name("absent"), "partitions": [0]}]
    folder = describe(wire, asked)
    assert [(found.name, [part.partition_index for part in found.partitions]) for found in folder.topics] == [
        (topic.name, [1])
    ]
