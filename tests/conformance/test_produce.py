"""Produce: what is written, with which offsets and times, and what is refused with which error."""

import struct
import uuid

import crc32c
import pytest
from kio.schema.errors import ErrorCode

from .actions import (
    LATEST,
    Topic,
    create_topic,
    describe_topic,
    eventually,
    fetch,
    fetch_all,
    list_offset,
    produce,
    produce_ok,
    produce_values,
    unique_name,
)
from .batches import Record, batch, now_ms, read_batches, read_records, values
from .conftest import Broker
from .wire import Wire, plain

DAY_MS = 86_400_000


@pytest.fixture
def topic(wire: Wire) -> Topic:
    return create_topic(wire)


def is_empty(wire: Wire, topic: Topic) -> bool:
    return bool(list_offset(wire, topic, LATEST).offset == 0)


@pytest.mark.parametrize("acks", [1, -1])
def test_offsets_follow_one_another(wire: Wire, topic: Topic, acks: int) -> None:
    for base_offset, count in [(0, 3), (3, 1), (4, 2)]:
        answer = produce(wire, topic, batch(*[b"v"] * count), acks=acks)
        assert (answer.error_code, answer.base_offset) == (ErrorCode.none, base_offset)
        assert (answer.log_append_time, answer.log_start_offset) == (None, 0)
        assert (answer.record_errors, answer.error_message) == ((), None)


def test_partitions_of_several_topics_in_one_request(wire: Wire) -> None:
    first, second = create_topic(wire, partitions=2), create_topic(wire)
    request = produce_values(first, batch(b"a"), partition=1)
    request["topic_data"][0]["partition_data"].append({"index": 0, "records": batch(b"b", b"c")})
    request["topic_data"] += produce_values(second, batch(b"d"))["topic_data"]
    answer = wire.send("produce", **request)
    got = {
        (found.topic_id, part.index): (part.error_code, part.base_offset)
        for found in answer.responses
        for part in found.partition_responses
    }
    assert got == dict.fromkeys([(first.id, 1), (first.id, 0), (second.id, 0)], (ErrorCode.none, 0))
    assert values(fetch_all(wire, first, partition=0)) == [b"b", b"c"]
    assert values(fetch_all(wire, first, partition=1)) == [b"a"]
    assert values(fetch_all(wire, second)) == [b"d"]


def test_one_bad_partition_does_not_harm_the_others(wire: Wire, topic: Topic) -> None:
    request = produce_values(topic, batch(b"good"))
    request["topic_data"][0]["partition_data"].append({"index": 9, "records": batch(b"lost")})
    answer = wire.send("produce", **request)
    got = {part.index: part.error_code for part in answer.responses[0].partition_responses}
    assert got == {0: ErrorCode.none, 9: ErrorCode.unknown_topic_or_partition}
    assert values(fetch_all(wire, topic)) == [b"good"]


def test_an_unknown_topic_is_refused_by_name_and_by_id(wire: Wire) -> None:
    absent = Topic(name=unique_name("absent"), id=uuid.uuid4())
    by_name = produce(wire, absent, batch(b"v"), version=12)
    assert (by_name.error_code, by_name.base_offset) == (ErrorCode.unknown_topic_or_partition, -1)
    assert produce(wire, absent, batch(b"v")).error_code is ErrorCode.unknown_topic_id


@pytest.mark.parametrize("acks", [2, -2])
def test_acks_must_be_0_1_or_all(wire: Wire, topic: Topic, acks: int) -> None:
    answer = produce(wire, topic, batch(b"v"), acks=acks)
    assert (answer.error_code, answer.base_offset) == (ErrorCode.invalid_required_acks, -1)
    assert is_empty(wire, topic)


@pytest.mark.parametrize("damage", ["unknown partition", "corrupt"])
def test_an_error_with_acks_0_closes_the_connection_as_there_is_no_answer_to_tell_it(
    broker: Broker, wire: Wire, topic: Topic, damage: str
) -> None:
    partition, crc = (9, None) if damage == "unknown partition" else (0, 12345)
    with Wire(broker.bootstrap, timeout_s=10) as other:
        other.send_only("produce", **produce_values(topic, batch(b"v", crc=crc), partition=partition, acks=0))
        assert other.is_closed_by_peer()
    assert is_empty(wire, topic)


def test_the_id_of_a_topic_made_anew_is_another(wire: Wire, topic: Topic) -> None:
    wire.send("delete_topics", topics=[{"name": topic.name, "topic_id": None}], timeout=10_000)
    unknown = ErrorCode.unknown_topic_or_partition
    eventually(lambda: describe_topic(wire, topic.name).error_code is unknown, "the deletion")
    again = create_topic(wire, name=topic.name)
    assert produce(wire, topic, batch(b"old")).error_code is ErrorCode.unknown_topic_id
    assert fetch(wire, topic, 0).error_code is ErrorCode.unknown_topic_id
    assert produce_ok(wire, again, batch(b"new")) == 0


def test_no_topics_is_an_empty_answer(wire: Wire) -> None:
    assert wire.send("produce", acks=-1, timeout=1000, topic_data=[]).responses == ()


def test_trap_a_batch_above_max_message_bytes_is_too_large(wire: Wire) -> None:
    topic = create_topic(wire, configs={"max.message.bytes": "2000"})
    fits = batch(bytes(2000 - len(batch(bytes(1000))) + 1000))
    assert len(fits) == 2000
    assert produce_ok(wire, topic, fits) == 0
    answer = produce(wire, topic, batch(bytes(len(fits))))
    assert (answer.error_code, answer.base_offset) == (ErrorCode.message_too_large, -1)
    assert list_offset(wire, topic, LATEST).offset == 1


def test_trap_the_default_limit_is_enforced_too(wire: Wire, topic: Topic) -> None:
    """1 MiB and the overhead of one batch: 1,048,588 bytes."""
    overhead = len(batch(bytes(1_000_000))) - 1_000_000
    assert produce_ok(wire, topic, batch(bytes(1_048_588 - overhead))) == 0
    answer = produce(wire, topic, batch(bytes(1_048_589 - overhead)))
    assert answer.error_code is ErrorCode.message_too_large


def test_a_wrong_checksum_is_corrupt(wire: Wire, topic: Topic) -> None:
    answer = produce(wire, topic, batch(b"v", crc=12345))
    assert (answer.error_code, answer.base_offset) == (ErrorCode.corrupt_message, -1)
    assert is_empty(wire, topic)


def test_a_flipped_byte_is_corrupt(wire: Wire, topic: Topic) -> None:
    damaged = bytearray(batch(b"a value of some length"))
    damaged[-5] ^= 0x10
    assert produce(wire, topic, bytes(damaged)).error_code is ErrorCode.corrupt_message
    assert is_empty(wire, topic)


@pytest.mark.parametrize(
    ("magic", "error"),
    [(0, ErrorCode.invalid_record), (1, ErrorCode.invalid_record), (3, ErrorCode.corrupt_message)],
)
def test_a_magic_other_than_2_is_refused(wire: Wire, topic: Topic, magic: int, error: ErrorCode) -> None:
    assert produce(wire, topic, batch(b"v", magic=magic)).error_code is error
    assert is_empty(wire, topic)


def test_two_batches_for_one_partition_are_an_invalid_record(wire: Wire, topic: Topic) -> None:
    answer = produce(wire, topic, batch(b"one") + batch(b"two"))
    assert answer.error_code is ErrorCode.invalid_record
    assert is_empty(wire, topic)


def test_no_batch_for_a_partition_is_an_invalid_record(wire: Wire, topic: Topic) -> None:
    assert produce(wire, topic, b"").error_code is ErrorCode.invalid_record
    assert is_empty(wire, topic)


def test_a_count_that_does_not_fit_the_offsets_is_an_invalid_record(wire: Wire, topic: Topic) -> None:
    wrong = bytearray(batch(b"one", b"two"))
    struct.pack_into(">i", wrong, 57, 5)
    struct.pack_into(">I", wrong, 17, crc32c.crc32c(bytes(wrong[21:])))
    assert produce(wire, topic, bytes(wrong)).error_code is ErrorCode.invalid_record
    assert is_empty(wire, topic)


def test_control_batches_are_not_for_clients(wire: Wire, topic: Topic) -> None:
    assert produce(wire, topic, batch(b"v", attributes=0x20)).error_code is ErrorCode.invalid_record
    assert is_empty(wire, topic)


def test_trap_a_record_without_key_is_refused_on_a_compacted_topic(wire: Wire) -> None:
    topic = create_topic(wire, configs={"cleanup.policy": "compact"})
    answer = produce(wire, topic, batch(Record(key=b"k"), Record(key=None), Record(key=b"l"), Record(key=None)))
    assert (answer.error_code, answer.base_offset) == (ErrorCode.invalid_record, -1)
    assert [error.batch_index for error in answer.record_errors] == [1, 3]
    assert all(error.batch_index_error_message for error in answer.record_errors)
    assert answer.error_message
    assert is_empty(wire, topic)
    assert produce_ok(wire, topic, batch(Record(key=b"k", value=None))) == 0


def test_a_record_without_key_is_refused_on_a_topic_that_compacts_and_deletes(wire: Wire) -> None:
    topic = create_topic(wire, configs={"cleanup.policy": "compact,delete"})
    assert produce(wire, topic, batch(Record(key=None))).error_code is ErrorCode.invalid_record


def test_a_timestamp_too_far_back_is_refused(wire: Wire) -> None:
    topic = create_topic(wire, configs={"message.timestamp.before.max.ms": str(DAY_MS)})
    answer = produce(wire, topic, batch(Record(), Record(timestamp_ms=now_ms() - 2 * DAY_MS)))
    assert (answer.error_code, answer.base_offset) == (ErrorCode.invalid_timestamp, -1)
    assert [error.batch_index for error in answer.record_errors] == [1]
    assert is_empty(wire, topic)
    assert produce_ok(wire, topic, batch(Record(timestamp_ms=now_ms() - DAY_MS // 2))) == 0


def test_a_timestamp_too_far_ahead_is_refused(wire: Wire) -> None:
    topic = create_topic(wire, configs={"message.timestamp.after.max.ms": str(DAY_MS)})
    answer = produce(wire, topic, batch(Record(timestamp_ms=now_ms() + 2 * DAY_MS)))
    assert answer.error_code is ErrorCode.invalid_timestamp
    assert is_empty(wire, topic)
    assert produce_ok(wire, topic, batch(Record(timestamp_ms=now_ms() + DAY_MS // 2))) == 0


def test_an_hour_ahead_is_the_default_limit(wire: Wire, topic: Topic) -> None:
    assert (
        produce(wire, topic, batch(Record(timestamp_ms=now_ms() + 2 * 3_600_000))).error_code
        is ErrorCode.invalid_timestamp
    )
    assert produce_ok(wire, topic, batch(Record(timestamp_ms=now_ms() + 1_800_000))) == 0
    assert produce_ok(wire, topic, batch(Record(timestamp_ms=0))) == 1, "the past is without limit"


def test_log_append_time_overwrites_the_clients_time(wire: Wire) -> None:
    topic = create_topic(wire, configs={"message.timestamp.type": "LogAppendTime"})
    before_ms = now_ms()
    answer = produce(wire, topic, batch(Record(timestamp_ms=5), Record(timestamp_ms=now_ms() + 9 * DAY_MS)))
    assert answer.error_code is ErrorCode.none
    append_ms = plain(answer.log_append_time)
    assert before_ms - 1 <= append_ms <= now_ms() + 1
    (written,) = read_batches(fetch_all(wire, topic))
    assert written.is_log_append_time
    assert written.crc_is_right
    assert written.max_timestamp_ms == append_ms
    assert {record.timestamp_ms for record in read_records(fetch_all(wire, topic))} == {append_ms}


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_a_topic_with_its_own_compression_compresses_what_comes(wire: Wire, codec: str) -> None:
    topic = create_topic(wire, configs={"compression.type": codec})
    produce_ok(wire, topic, batch(*[Record(key=b"k", value=bytes(5000))] * 3))
    (written,) = read_batches(fetch_all(wire, topic))
    assert (written.codec, written.count, written.crc_is_right) == (codec, 3, True)
    assert written.size_bytes < 5000


def test_a_topic_that_wants_no_compression_keeps_plain_batches(wire: Wire) -> None:
    topic = create_topic(wire, configs={"compression.type": "uncompressed"})
    produce_ok(wire, topic, batch(b"plain"))
    assert values(fetch_all(wire, topic)) == [b"plain"]


def test_the_size_limit_counts_for_what_was_sent_not_for_what_would_be_written(wire: Wire) -> None:
    topic = create_topic(wire, configs={"compression.type": "zstd", "max.message.bytes": "2000"})
    assert produce(wire, topic, batch(bytes(20_000))).error_code is ErrorCode.message_too_large


def test_a_leader_epoch_of_the_producers_own_is_overwritten(wire: Wire, topic: Topic) -> None:
    claimed = bytearray(batch(b"v"))
    claimed[12:16] = (5).to_bytes(4, "big")
    assert produce_ok(wire, topic, bytes(claimed)) == 0
    (written,) = read_batches(fetch_all(wire, topic))
    assert (written.base_offset, written.leader_epoch, written.crc_is_right) == (0, 0, True)


def test_a_base_offset_of_the_producers_own_is_an_invalid_record(wire: Wire, topic: Topic) -> None:
    claimed = bytearray(batch(b"v"))
    claimed[:8] = (777).to_bytes(8, "big")
    assert produce(wire, topic, bytes(claimed)).error_code is ErrorCode.invalid_record
    assert is_empty(wire, topic)


def test_zstd_needs_version_7(wire: Wire, topic: Topic) -> None:
    answer = produce(wire, topic, batch(b"v", attributes=4), version=6)
    assert answer.error_code is ErrorCode.unsupported_compression_type


def test_bytes_that_claim_a_compression_they_do_not_have_are_refused(wire: Wire) -> None:
    """On a compacted topic the broker must look inside. Apache blames itself; any error will do."""
    topic = create_topic(wire, configs={"cleanup.policy": "compact"})
    for codec in (1, 2, 3, 4):
        answer = produce(wire, topic, batch(Record(key=b"k", value=bytes(100)), attributes=codec))
        assert answer.error_code is not ErrorCode.none, codec
    assert is_empty(wire, topic)


def test_min_insync_replicas_asks_for_no_more_than_there_are_replicas(wire: Wire) -> None:
    topic = create_topic(wire, configs={"min.insync.replicas": "2"})
    assert produce(wire, topic, batch(b"v")).error_code is ErrorCode.none
