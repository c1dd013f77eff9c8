"""ListOffsets and OffsetForLeaderEpoch: from a moment, or an epoch, to an offset."""

import pytest
from kio.schema.errors import ErrorCode

from .actions import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    Topic,
    create_topic,
    list_offset,
    list_offsets,
    produce_ok,
    unique_name,
)
from .batches import AN_HOUR_AGO_MS, Record, batch, now_ms
from .wire import Wire


@pytest.fixture
def start_ms() -> int:
    return AN_HOUR_AGO_MS


@pytest.fixture
def timed(wire: Wire, start_ms: int) -> Topic:
    """Offsets 0 to 8 in three batches, ten milliseconds apart, with a gap of 40 ms between batches."""
    topic = create_topic(wire)
    for first in (0, 50, 100):
        produce_ok(wire, topic, batch(*(Record(timestamp_ms=start_ms + first + at) for at in (0, 10, 20))))
    return topic


def test_an_empty_partition_starts_and_ends_at_0(wire: Wire) -> None:
    topic = create_topic(wire)
    for timestamp in (EARLIEST, LATEST):
        answer = list_offset(wire, topic, timestamp)
        assert (answer.error_code, answer.offset, answer.timestamp) == (ErrorCode.none, 0, -1)


def test_earliest_and_latest(wire: Wire, timed: Topic) -> None:
    earliest, latest = list_offset(wire, timed, EARLIEST), list_offset(wire, timed, LATEST)
    assert (earliest.offset, earliest.timestamp, earliest.leader_epoch) == (0, -1, 0)
    assert (latest.offset, latest.timestamp, latest.leader_epoch) == (9, -1, 0)


def test_latest_is_the_same_for_both_isolation_levels_without_transactions(wire: Wire, timed: Topic) -> None:
    for isolation_level in (0, 1):
        assert list_offset(wire, timed, LATEST, isolation_level=isolation_level).offset == 9


def test_earliest_follows_deleted_records(wire: Wire, timed: Topic) -> None:
    partitions = [{"partition_index": 0, "offset": 4}]
    wire.send("delete_records", topics=[{"name": timed.name, "partitions": partitions}], timeout=10_000)
    assert list_offset(wire, timed, EARLIEST).offset == 4


def test_by_time_gives_the_first_record_at_or_after_it(wire: Wire, timed: Topic, start_ms: int) -> None:
    for asked, offset, at in [
        (0, 0, 0),
        (10, 1, 10),  # inside of a batch
        (11, 2, 20),
        (20, 2, 20),
        (21, 3, 50),  # between two batches
        (50, 3, 50),
        (119, 8, 120),
        (120, 8, 120),
    ]:
        answer = list_offset(wire, timed, start_ms + asked)
        assert (answer.offset, answer.timestamp) == (offset, start_ms + at), f"asked for start + {asked} ms"
        assert answer.leader_epoch == 0


def test_a_time_before_the_first_record_gives_the_first(wire: Wire, timed: Topic, start_ms: int) -> None:
    for asked in (0, start_ms - 1):
        answer = list_offset(wire, timed, asked)
        assert (answer.offset, answer.timestamp) == (0, start_ms)


def test_a_time_after_the_last_record_gives_none(wire: Wire, timed: Topic, start_ms: int) -> None:
    answer = list_offset(wire, timed, start_ms + 121)
    assert (answer.error_code, answer.offset, answer.timestamp, answer.leader_epoch) == (
        ErrorCode.none,
        -1,
        -1,
        -1,
    )


def test_by_time_skips_what_was_deleted(wire: Wire, timed: Topic, start_ms: int) -> None:
    partitions = [{"partition_index": 0, "offset": 5}]
    wire.send("delete_records", topics=[{"name": timed.name, "partitions": partitions}], timeout=10_000)
    answer = list_offset(wire, timed, start_ms)
    assert (answer.offset, answer.timestamp) == (5, start_ms + 70)


def test_max_timestamp_finds_the_record_with_the_highest(wire: Wire, start_ms: int) -> None:
    topic = create_topic(wire)
    produce_ok(wire, topic, batch(*(Record(timestamp_ms=start_ms + at) for at in (5, 900, 7))))
    produce_ok(wire, topic, batch(*(Record(timestamp_ms=start_ms + at) for at in (1, 2, 3))))
    answer = list_offset(wire, topic, MAX_TIMESTAMP)
    assert (answer.offset, answer.timestamp, answer.leader_epoch) == (1, start_ms + 900, 0)


def test_max_timestamp_of_an_empty_partition_is_none(wire: Wire) -> None:
    answer = list_offset(wire, create_topic(wire), MAX_TIMESTAMP)
    assert (answer.error_code, answer.offset, answer.timestamp) == (ErrorCode.none, -1, -1)


@pytest.fixture
def segmented(wire: Wire, start_ms: int) -> Topic:
    """One record each second over several segments of 1 MiB, the least that a topic may ask for."""
    topic = create_topic(wire, configs={"segment.bytes": str(1024 * 1024), "max.message.bytes": str(1024 * 1024)})
    for second in range(0, 60, 2):
        pair = (Record(value=bytes(100_000), timestamp_ms=start_ms + 1000 * (second + step)) for step in (0, 1))
        produce_ok(wire, topic, batch(*pair))
    return topic


def test_trap_by_time_is_right_across_segments(wire: Wire, segmented: Topic, start_ms: int) -> None:
    for second in range(60):
        exact = list_offset(wire, segmented, start_ms + 1000 * second)
        assert (exact.offset, exact.timestamp) == (second, start_ms + 1000 * second)
        earlier = list_offset(wire, segmented, start_ms + 1000 * second - 999)
        assert (earlier.offset, earlier.timestamp) == (second, start_ms + 1000 * second)
    assert list_offset(wire, segmented, start_ms + 59_001).offset == -1
    assert list_offset(wire, segmented, MAX_TIMESTAMP).offset == 59


def test_trap_by_time_is_right_across_segments_whose_times_go_back(wire: Wire, start_ms: int) -> None:
    topic = create_topic(wire, configs={"segment.bytes": str(1024 * 1024)})
    seconds = [10, 50, 20, 5, 60, 30]
    for second in seconds:
        produce_ok(wire, topic, batch(Record(value=bytes(700_000), timestamp_ms=start_ms + 1000 * second)))
    for asked, offset in [(0, 0), (11, 1), (20, 1), (50, 1), (51, 4), (60, 4)]:
        answer = list_offset(wire, topic, start_ms + 1000 * asked)
        assert (answer.offset, answer.timestamp) == (offset, start_ms + 1000 * seconds[offset]), asked
    assert list_offset(wire, topic, start_ms + 61_000).offset == -1


def test_by_time_goes_by_the_time_of_append_where_the_topic_says_so(wire: Wire, start_ms: int) -> None:
    topic = create_topic(wire, configs={"message.timestamp.type": "LogAppendTime"})
    before_ms = now_ms() - 1
    produce_ok(wire, topic, batch(*(Record(timestamp_ms=start_ms + at) for at in (0, 10, 20))))
    assert list_offset(wire, topic, start_ms).offset == 0
    answer = list_offset(wire, topic, before_ms)
    assert answer.offset == 0
    assert before_ms <= answer.timestamp <= now_ms() + 1
    assert list_offset(wire, topic, now_ms() + 10_000).offset == -1


def test_an_unknown_partition_or_topic_is_an_error(wire: Wire, timed: Topic) -> None:
    answer = list_offsets(wire, timed.name, {7: LATEST})[7]
    assert (answer.error_code, answer.offset) == (ErrorCode.unknown_topic_or_partition, -1)
    answer = list_offsets(wire, unique_name("absent"), {0: LATEST})[0]
    assert (answer.error_code, answer.offset) == (ErrorCode.unknown_topic_or_partition, -1)


def test_the_leader_epoch_of_the_client_is_checked(wire: Wire, timed: Topic) -> None:
    assert list_offset(wire, timed, LATEST, current_leader_epoch=0).error_code is ErrorCode.none
    ahead = list_offset(wire, timed, LATEST, current_leader_epoch=1)
    assert ahead.error_code is ErrorCode.unknown_leader_epoch


def test_special_timestamps_of_tiered_storage(wire: Wire, timed: Topic) -> None:
    """-4 is the earliest offset on local disk, -5 the last one in remote storage, which is not there."""
    assert list_offset(wire, timed, -4).offset == 0
    remote = list_offset(wire, timed, -5)
    assert (remote.error_code, remote.offset) == (ErrorCode.none, -1)


def test_a_timestamp_of_a_version_that_does_not_know_it_is_unsupported(wire: Wire, timed: Topic) -> None:
    assert list_offset(wire, timed, MAX_TIMESTAMP, version=6).error_code is ErrorCode.unsupported_version


def test_the_same_partition_twice_is_an_invalid_request(wire: Wire, timed: Topic) -> None:
    partitions = [{"partition_index": 0, "timestamp": LATEST}] * 2
    answer = wire.send("list_offsets", replica_id=-1, topics=[{"name": timed.name, "partitions": partitions}])
    assert {part.error_code for part in answer.topics[0].partitions} == {ErrorCode.invalid_request}


def ask_epoch(
    wire: Wire, topic: Topic, leader_epoch: int, *, partition: int = 0, current: int = -1
) -> tuple[object, ...]:
    ask = {"partition": partition, "current_leader_epoch": current, "leader_epoch": leader_epoch}
    answer = wire.send("offset_for_leader_epoch", replica_id=-1, topics=[{"topic": topic.name, "partitions": [ask]}])
    found = answer.topics[0].partitions[0]
    return found.error_code, found.leader_epoch, found.end_offset


def test_the_end_of_the_present_epoch_is_the_end_of_the_log(wire: Wire, timed: Topic) -> None:
    assert ask_epoch(wire, timed, 0) == (ErrorCode.none, 0, 9)


def test_an_epoch_yet_to_come_has_no_end(wire: Wire, timed: Topic) -> None:
    assert ask_epoch(wire, timed, 5) == (ErrorCode.none, -1, -1)


def test_the_present_epoch_of_an_empty_partition_ends_at_0(wire: Wire) -> None:
    assert ask_epoch(wire, create_topic(wire), 0) == (ErrorCode.none, 0, 0)


def test_epochs_of_unknown_partitions_and_unknown_current_epochs_are_errors(wire: Wire, timed: Topic) -> None:
    assert ask_epoch(wire, timed, 0, partition=3)[0] is ErrorCode.unknown_topic_or_partition
    assert ask_epoch(wire, timed, 0, current=4)[0] is ErrorCode.unknown_leader_epoch
