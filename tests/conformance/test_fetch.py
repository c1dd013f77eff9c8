"""Fetch without sessions: which bytes come back, how many, and when."""

import threading
import time
import uuid

import pytest
from kio.schema.errors import ErrorCode

from .actions import Topic, create_topic, fetch, fetch_topic, produce, produce_ok, unique_name
from .batches import AN_HOUR_AGO_MS, Record, batch, read_batches, read_records, values
from .conftest import Broker
from .wire import Wire


@pytest.fixture
def topic(wire: Wire) -> Topic:
    """Offsets 0 to 8 in three batches of three, with the offset as value."""
    made = create_topic(wire)
    for first in (0, 3, 6):
        produce_ok(wire, made, batch(*(b"%d" % (first + step) for step in range(3))))
    return made


def test_everything_comes_back_in_order_with_offsets_and_epoch(wire: Wire, topic: Topic) -> None:
    answer = fetch(wire, topic, 0)
    assert [(record.offset, record.value) for record in read_records(answer.records)] == [
        (offset, b"%d" % offset) for offset in range(9)
    ]
    assert all(one.crc_is_right and one.leader_epoch == 0 for one in read_batches(answer.records))
    assert (answer.high_watermark, answer.last_stable_offset, answer.log_start_offset) == (9, 9, 0)
    assert answer.preferred_read_replica == -1


def test_keys_headers_timestamps_and_nulls_come_back_as_they_were_sent(wire: Wire) -> None:
    topic = create_topic(wire)
    sent = [
        Record(
            key=b"k",
            value=b"v",
            headers=(("a", b"1"), ("a", None), ("b", b"")),
            timestamp_ms=AN_HOUR_AGO_MS,
        ),
        Record(key=None, value=None, timestamp_ms=AN_HOUR_AGO_MS + 123),
        Record(key=b"", value=b"", timestamp_ms=AN_HOUR_AGO_MS - 5000),
    ]
    produce_ok(wire, topic, batch(*sent))
    got = read_records(fetch(wire, topic, 0).records)
    assert [(one.key, one.value, one.headers, one.timestamp_ms) for one in got] == [
        (one.key, one.value, one.headers, one.timestamp_ms) for one in sent
    ]


def test_trap_an_offset_in_the_middle_of_a_batch_brings_that_whole_batch(wire: Wire, topic: Topic) -> None:
    for offset in (3, 4, 5):
        assert values(fetch(wire, topic, offset).records)[0] == b"3", offset


def test_the_end_of_the_log_is_empty_and_no_error(wire: Wire, topic: Topic) -> None:
    answer = fetch(wire, topic, 9)
    assert (answer.error_code, answer.records or b"", answer.high_watermark) == (ErrorCode.none, b"", 9)


def test_past_the_end_is_out_of_range(wire: Wire, topic: Topic) -> None:
    answer = fetch(wire, topic, 10)
    assert answer.error_code is ErrorCode.offset_out_of_range
    assert (answer.high_watermark, answer.log_start_offset, answer.last_stable_offset) == (-1, -1, -1)
    assert not answer.records


def test_before_the_start_is_out_of_range(wire: Wire, topic: Topic) -> None:
    partitions = [{"partition_index": 0, "offset": 4}]
    wire.send("delete_records", topics=[{"name": topic.name, "partitions": partitions}], timeout=10_000)
    assert fetch(wire, topic, 3).error_code is ErrorCode.offset_out_of_range
    answer = fetch(wire, topic, 4)
    assert (answer.error_code, answer.log_start_offset) == (ErrorCode.none, 4)
    assert values(answer.records)[0] == b"3", "the batch is whole although its first record is deleted"


@pytest.mark.parametrize(
    "limits", [{"max_bytes": 1}, {"partition_max_bytes": 1}, {"max_bytes": 1, "partition_max_bytes": 1}]
)
def test_trap_a_limit_smaller_than_the_first_batch_still_brings_that_batch(
    wire: Wire, topic: Topic, limits: dict[str, int]
) -> None:
    answer = fetch(wire, topic, 3, **limits)
    assert values(answer.records)[:3] == [b"3", b"4", b"5"]
    assert len(values(answer.records)) == 3, "but no more than that"


def test_trap_the_oldest_version_makes_progress_too(wire: Wire, topic: Topic) -> None:
    answer = fetch(wire, topic, 0, version=4, max_bytes=1, partition_max_bytes=1)
    assert values(answer.records) == [b"0", b"1", b"2"]


def test_a_partition_limit_is_kept_when_it_has_room_for_a_batch(wire: Wire, topic: Topic) -> None:
    sizes = [one.size_bytes for one in read_batches(fetch(wire, topic, 0).records)]
    records = fetch(wire, topic, 0, partition_max_bytes=sizes[0] + sizes[1]).records
    assert values(records) == [b"%d" % offset for offset in range(6)]
    assert len(records) <= sizes[0] + sizes[1]


def test_the_whole_limit_is_shared_by_the_partitions_in_the_order_asked(wire: Wire) -> None:
    topic = create_topic(wire, partitions=3)
    for partition in range(3):
        produce_ok(wire, topic, batch(bytes(1000)), partition=partition)
    size = len(batch(bytes(1000)))
    answer = wire.send("fetch", max_bytes=size * 2, topics=[fetch_topic(topic, {2: 0, 0: 0, 1: 0})])
    got = {part.partition_index: len(read_batches(part.records)) for part in answer.responses[0].partitions}
    assert got == {2: 1, 0: 1, 1: 0}


def test_one_batch_larger_than_the_whole_limit_comes_alone(wire: Wire) -> None:
    topic = create_topic(wire, partitions=2)
    for partition in range(2):
        produce_ok(wire, topic, batch(bytes(1000)), partition=partition)
    answer = wire.send("fetch", max_bytes=10, topics=[fetch_topic(topic, {1: 0, 0: 0})])
    got = {part.partition_index: len(read_batches(part.records)) for part in answer.responses[0].partitions}
    assert got == {1: 1, 0: 0}


def test_several_topics_in_one_request(wire: Wire, topic: Topic) -> None:
    other = create_topic(wire)
    produce_ok(wire, other, batch(b"other"))
    answer = wire.send("fetch", topics=[fetch_topic(topic, {0: 6}), fetch_topic(other, {0: 0})])
    got = {found.topic_id: values(found.partitions[0].records) for found in answer.responses}
    assert got == {topic.id: [b"6", b"7", b"8"], other.id: [b"other"]}


def test_unknown_partitions_topics_and_ids(wire: Wire, topic: Topic) -> None:
    assert fetch(wire, topic, 0, partition=5).error_code is ErrorCode.unknown_topic_or_partition
    by_name = Topic(name=unique_name("absent"), id=uuid.uuid4())
    assert fetch(wire, by_name, 0, version=12).error_code is ErrorCode.unknown_topic_or_partition
    answer = fetch(wire, by_name, 0)
    assert (answer.error_code, answer.high_watermark) == (ErrorCode.unknown_topic_id, -1)
    assert not answer.records


def test_the_leader_epoch_of_the_client_is_checked(wire: Wire, topic: Topic) -> None:
    assert fetch(wire, topic, 0, current_leader_epoch=0).error_code is ErrorCode.none
    assert fetch(wire, topic, 0, current_leader_epoch=3).error_code is ErrorCode.unknown_leader_epoch


def test_a_client_that_read_beyond_the_end_of_its_epoch_is_told_where_it_diverged(wire: Wire, topic: Topic) -> None:
    asked = fetch_topic(topic, {0: 12}, last_fetched_epoch=0, current_leader_epoch=0)
    (answer,) = wire.send("fetch", topics=[asked]).responses[0].partitions
    assert answer.error_code is ErrorCode.none
    assert (answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset) == (0, 9)
    assert not answer.records


def test_a_client_that_read_an_epoch_the_leader_never_had_is_out_of_range(wire: Wire, topic: Topic) -> None:
    asked = fetch_topic(topic, {0: 9}, last_fetched_epoch=4, current_leader_epoch=0)
    (answer,) = wire.send("fetch", topics=[asked]).responses[0].partitions
    assert answer.error_code is ErrorCode.offset_out_of_range


def test_read_committed_without_transactions_sees_all_and_lists_no_aborted(wire: Wire, topic: Topic) -> None:
    answer = fetch(wire, topic, 0, isolation_level=1)
    assert len(values(answer.records)) == 9
    assert answer.aborted_transactions == ()
    assert fetch(wire, topic, 0, isolation_level=0).aborted_transactions is None


def test_records_across_segments_come_segment_by_segment(wire: Wire) -> None:
    topic = create_topic(wire, configs={"segment.bytes": str(1024 * 1024)})
    for number in range(8):
        produce_ok(wire, topic, batch(b"%d" % number + bytes(400_000)))
    seen: list[int] = []
    while len(seen) < 8:
        records = read_records(fetch(wire, topic, len(seen), partition_max_bytes=2_000_000).records)
        assert records, "no progress"
        seen += [record.offset for record in records if record.offset >= len(seen)]
    assert seen == list(range(8))


def timed_fetch(wire: Wire, topic: Topic, offset: int, **limits: int) -> tuple[float, int]:
    start = time.monotonic()
    answer = fetch(wire, topic, offset, **limits)
    return time.monotonic() - start, len(values(answer.records))


def test_a_fetch_at_the_end_waits_as_long_as_it_may(wire: Wire, topic: Topic) -> None:
    took_s, count = timed_fetch(wire, topic, 9, max_wait=400, min_bytes=1)
    assert count == 0
    assert 0.35 < took_s < 1.5


def test_a_fetch_that_finds_enough_does_not_wait(wire: Wire, topic: Topic) -> None:
    took_s, count = timed_fetch(wire, topic, 0, max_wait=5000, min_bytes=1)
    assert (count, took_s < 1) == (9, True)


def test_a_fetch_that_finds_too_little_waits_and_then_brings_it(wire: Wire, topic: Topic) -> None:
    took_s, count = timed_fetch(wire, topic, 0, max_wait=400, min_bytes=1_000_000)
    assert count == 9
    assert took_s > 0.35


def test_min_bytes_0_answers_at_once(wire: Wire, topic: Topic) -> None:
    took_s, count = timed_fetch(wire, topic, 9, max_wait=5000, min_bytes=0)
    assert (count, took_s < 1) == (0, True)


def test_an_error_answers_at_once(wire: Wire, topic: Topic) -> None:
    start = time.monotonic()
    assert fetch(wire, topic, 99, max_wait=5000, min_bytes=1).error_code is ErrorCode.offset_out_of_range
    assert time.monotonic() - start < 1


def test_a_waiting_fetch_is_woken_by_the_append(broker: Broker, wire: Wire, topic: Topic) -> None:
    def append_later() -> None:
        time.sleep(0.3)
        with Wire(broker.bootstrap) as other:
            produce_ok(other, topic, batch(b"late"))

    appender = threading.Thread(target=append_later)
    appender.start()
    start = time.monotonic()
    answer = fetch(wire, topic, 9, max_wait=10_000, min_bytes=1)
    took_s = time.monotonic() - start
    appender.join()
    assert values(answer.records) == [b"late"]
    assert 0.25 < took_s < 2


def test_a_waiting_fetch_over_several_partitions_adds_up_their_bytes(broker: Broker, wire: Wire) -> None:
    topic = create_topic(wire, partitions=2)
    size = len(batch(bytes(1000)))
    sent = wire.send_only("fetch", max_wait=10_000, min_bytes=2 * size, topics=[fetch_topic(topic, {0: 0, 1: 0})])
    start = time.monotonic()
    with Wire(broker.bootstrap) as other:
        time.sleep(0.2)
        produce_ok(other, topic, batch(bytes(1000)), partition=0)
        time.sleep(0.2)
        produce_ok(other, topic, batch(bytes(1000)), partition=1)
    answer = wire.receive(1, 18, sent)
    assert 0.35 < time.monotonic() - start < 3
    assert sorted(len(read_batches(part.records)) for part in answer.responses[0].partitions) == [1, 1]


def test_answers_keep_the_order_of_the_requests_of_a_connection(wire: Wire, topic: Topic) -> None:
    """A long poll holds back what the same connection asked for after it, as answers carry no other order."""
    waiting = wire.send_only("fetch", max_wait=300, min_bytes=1, topics=[fetch_topic(topic, {0: 9})])
    after = wire.send_only("metadata", topics=[])
    assert wire.receive(1, 18, waiting).error_code is ErrorCode.none
    assert wire.receive(3, 13, after).brokers


def test_acks_0_produce_is_read_back_although_it_has_no_answer(wire: Wire) -> None:
    topic = create_topic(wire)
    entry = {
        "name": topic.name,
        "topic_id": topic.id,
        "partition_data": [{"index": 0, "records": batch(b"quiet")}],
    }
    wire.send_only("produce", acks=0, timeout=1000, topic_data=[entry])
    answer = fetch(wire, topic, 0, max_wait=5000, min_bytes=1)
    assert values(answer.records) == [b"quiet"]
    assert produce(wire, topic, batch(b"loud")).base_offset == 1
