"""Batches that no honest producer writes: Apache and headwater say the same of them, but for differences named here.

Headwater refuses with INVALID_RECORD what Apache
- fails at without a word (UNKNOWN_SERVER_ERROR): compressed bytes that are not sound, most of all;
- accepts although its own consumers cannot read it, or not as it was counted: compressed records whose length is wrong
  (it skips through them without looking at it), offsets that do not follow one another;
- accepts and takes for null: sizes below -1;
- ignores: bytes behind the compressed ones.
It refuses with INVALID_TIMESTAMP records that are out of time in a batch that claims to have the broker's time. Apache
looks at the claimed time of the batch, takes the claim away and keeps the records.
Of a batch with several faults headwater may name another one than Apache.
"""

import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import cramjam
import pytest
from kio.schema.errors import ErrorCode

from headwater.log.filesystem import FileSystem
from headwater.log.inspection.verify import Verification
from headwater.protocol.records import decode_columns, decode_records, scan_headers
from peers.apache import ApacheKafka, run_tool
from peers.headwater import HeadwaterProcess

from .actions import Topic, create_topic, fetch_all, list_offset, produce, produce_ok
from .batches import CODECS, LOG_APPEND_TIME, Record, batch, now_ms, read_batches, values
from .conftest import Broker
from .crafted_batches import Crafted, crafted, mutated, record, seal
from .side_by_side import on_each
from .wire import Wire

_PARTITIONS = 64
_MUTATED = 3_000
_REFUSED = (ErrorCode.invalid_record, ErrorCode.invalid_timestamp, ErrorCode.message_too_large)
_HONEST = {"none: fine", *(f"{codec}: fine" for codec in CODECS)}


def answers(broker: Broker, cases: Sequence[Crafted], *, at_once: int = _PARTITIONS) -> tuple[Topic, list[ErrorCode]]:
    """What a broker says to each, and the topic where it put what it took."""
    found: list[ErrorCode] = []
    with Wire(broker.bootstrap) as wire:
        topic = create_topic(wire, partitions=at_once)
        sent = []
        for first in range(0, len(cases), at_once):
            data = [{"index": at, "records": case.data} for at, case in enumerate(cases[first : first + at_once])]
            entry = {"name": topic.name, "topic_id": topic.id, "partition_data": data}
            sent.append(wire.send_only("produce", acks=-1, timeout=10_000, topic_data=[entry]))
        for correlation_id in sent:
            (topic_answer,) = wire.receive(0, 13, correlation_id).responses
            by_index = {each.index: each.error_code for each in topic_answer.partition_responses}
            found += [by_index[index] for index in range(len(by_index))]
    return topic, found


def oddity(data: bytes) -> str | None:
    """Which of the named differences a batch shows, by a reader that knows nothing of the one under test."""
    attributes, count = struct.unpack_from(">h", data, 21)[0], struct.unpack_from(">i", data, 57)[0]
    try:
        body, rest = _unpacked(attributes & 7, data[61:])
    except (cramjam.DecompressionError, zlib.error, ValueError):
        return "compressed bytes that are not sound"
    if rest:
        return "bytes behind the compressed ones"
    position = 0
    for index in range(count):
        size, position = _number(body, position)
        end = position + size
        _, position = _number(body, position + 1)
        delta, position = _number(body, position)
        if delta != index:
            return "offsets that do not follow one another"
        for _ in range(2):
            size, position = _number(body, position)
            if size < -1:
                return "sizes below -1"
            position += max(size, 0)
        headers, position = _number(body, position)
        for which in range(2 * headers):
            size, position = _number(body, position)
            if size < -(which % 2):
                return "sizes below -1"
            position += max(size, 0)
        if position != end:
            return "records whose length is wrong"
    return None if position == len(body) else "records whose length is wrong"


def _unpacked(codec: int, packed: bytes) -> tuple[bytes, bytes]:
    if codec == 1:
        member = zlib.decompressobj(wbits=31)
        return member.decompress(packed), member.unused_data
    if codec == 2:
        assert packed[:8] == b"\x82SNAPPY\0"
        at, body = 16, b""
        while at + 4 <= len(packed):
            size = int.from_bytes(packed[at : at + 4], "big")
            body += bytes(cramjam.snappy.decompress_raw(packed[at + 4 : at + 4 + size]))
            at += 4 + size
        return body, packed[at:]
    if codec == 3:
        end = 7
        while word := int.from_bytes(packed[end : end + 4], "little"):
            end += 4 + (word & 0x7FFFFFFF)
        return bytes(cramjam.lz4.decompress(packed[: end + 4])), packed[end + 4 :]
    return (bytes(cramjam.zstd.decompress(packed)) if codec else packed), b""


def _number(body: bytes, at: int) -> tuple[int, int]:
    raw = shift = 0
    while True:
        if at >= len(body):
            return 0, len(body)
        raw |= (body[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if body[at - 1] < 0x80:
            return (raw >> 1) ^ -(raw & 1), at


def differences(cases: Iterable[Crafted], ours: Iterable[ErrorCode], theirs: Iterable[ErrorCode]) -> Iterator[str]:
    """Those that have no name."""
    for case, our, their in zip(cases, ours, theirs, strict=True):
        if our is their or (our in _REFUSED and their in (ErrorCode.unknown_server_error, *_REFUSED)):
            continue
        if (our, their) == (ErrorCode.invalid_record, ErrorCode.none) and oddity(case.data):
            continue
        if (our, their) == (ErrorCode.invalid_timestamp, ErrorCode.none) and case.data[22] & LOG_APPEND_TIME:
            continue
        yield f"{case.name}: {our.name}, Apache {their.name}\n{case.data.hex()}"


def assert_readable(broker: Broker, topic: Topic, accepted: int, partitions: int = _PARTITIONS) -> int:
    """All that was taken is read by ours, as records and by column, and has the right times; how many records."""
    read = counted = 0
    with Wire(broker.bootstrap) as wire:
        for partition in range(partitions):
            data = b""
            # A harmed time may have begun another segment, and an answer ends with a segment.
            while more := fetch_all(wire, topic, partition=partition, offset=_next_offset(data)):
                data += more
            columns = decode_columns(data, 0, len(data))
            before = counted
            for header in scan_headers(data, 0, len(data)):
                records = decode_records(data, header)
                assert [each.offset for each in records] == list(range(header.base_offset, header.next_offset))
                assert header.max_timestamp_ms == max(-1, *(each.timestamp_ms for each in records))
                counted += len(records)
                read += 1
            assert len(columns) == counted - before
            assert all(each.crc_is_right for each in read_batches(data))
    assert read == accepted
    return counted


def _next_offset(data: bytes) -> int:
    return max((each.last_offset + 1 for each in read_batches(data)), default=0)


def test_every_crafted_batch_is_answered_as_apache_does(brokers: tuple[Broker, Broker]) -> None:
    cases = crafted()
    # A transactional batch decides what Apache says of a whole request: batches with strange headers go alone.
    alone = [case for case in cases if case.name.startswith("header: ")]
    together = [case for case in cases if case not in alone]
    told = []
    for chosen, at_once in ((alone, 1), (together, _PARTITIONS)):
        ask = partial(answers, cases=chosen, at_once=at_once)
        (topic, ours), (_, theirs) = on_each(brokers, ask)
        told += list(differences(chosen, ours, theirs))
        assert_readable(brokers[0], topic, ours.count(ErrorCode.none), at_once)
        for case, our in zip(chosen, ours, strict=True):
            assert case.name not in _HONEST or our is ErrorCode.none, case.name
    assert not told, "\n".join(told)


def test_mutated_batches_are_answered_as_apache_does(headwater: HeadwaterProcess, apache: ApacheKafka) -> None:
    """And what was accepted passes `headwater log verify` and is read by Java's classes, record by record."""
    cases = list(mutated(_MUTATED, seed=4))
    (topic, ours), (_, theirs) = on_each((headwater, apache), lambda broker: answers(broker, cases))
    told = list(differences(cases, ours, theirs))
    assert not told, "\n".join(told)
    taken = ours.count(ErrorCode.none)
    assert 200 < taken < _MUTATED - 200, "both kinds are among them"
    records_count = assert_readable(headwater, topic, taken)
    folders = [headwater.data_dir / f"{topic.name}-{partition}" for partition in range(_PARTITIONS)]
    for folder in folders:
        assert list(Verification(FileSystem(), str(folder), in_use=True).faults()) == []
    files = ",".join(str(file) for folder in folders for file in sorted(folder.glob("*.log")))
    dumped = run_tool("kafka.tools.DumpLogSegments", "--files", files, "--print-data-log").splitlines()
    assert sum(line.startswith("| offset: ") for line in dumped) == records_count
    assert sum(line.startswith("baseOffset: ") and "isvalid: true" in line for line in dumped) == taken


@pytest.mark.parametrize("codec", range(len(CODECS)), ids=CODECS)
def test_the_largest_timestamp_is_that_of_the_records(wire: Wire, codec: int) -> None:
    """Whatever a client says, of its batch or of its clock: retention and look-ups by time rest on it."""
    topic, now = create_topic(wire), now_ms()
    body = record(0, timestamp=b"\x0a") + record(1) + record(2, timestamp=b"\x09")
    claims: list[dict[str, Any]] = [{"max_time_ms": claimed} for claimed in (2**63 - 1, -(2**63), -1, 0, now + 4)]
    for claim in (*claims, {"attributes": 0x08}, {"attributes": 0x80, "max_time_ms": 1}):
        produce_ok(wire, topic, seal(body, codec=codec, base_time_ms=now, **claim))
    written = read_batches(fetch_all(wire, topic))
    assert [each.crc_is_right for each in written] == [True] * 7
    # Of a batch that claims to have the broker's time Apache keeps the claimed one, and forgets only the claim.
    assert [each.max_timestamp_ms for each in written if each is not written[5]] == [now + 5] * 6
    assert [each.attributes for each in written] == [codec] * 7
    assert list_offset(wire, topic, now + 6).offset == -1


def test_a_producer_may_not_set_the_time_of_an_append(wire: Wire) -> None:
    topic = create_topic(wire, configs={"message.timestamp.type": "LogAppendTime"})
    body = record(0) + record(1) + record(2)
    assert produce(wire, topic, seal(body, attributes=0x08)).error_code is ErrorCode.invalid_timestamp
    assert produce_ok(wire, topic, seal(body, max_time_ms=2**63 - 1)) == 0
    (written,) = read_batches(fetch_all(wire, topic))
    assert (written.is_log_append_time, abs(written.max_timestamp_ms - now_ms()) < 60_000) == (True, True)


def test_a_record_without_key_and_out_of_time_is_a_record_without_key(wire: Wire) -> None:
    topic = create_topic(wire, configs={"cleanup.policy": "compact"})
    answer = produce(wire, topic, batch(Record(key=None, timestamp_ms=now_ms() + 10**10)))
    assert answer.error_code is ErrorCode.invalid_record
    assert [each.batch_index for each in answer.record_errors] == [0]


@pytest.mark.parametrize("version", [12, 13])
def test_of_a_partition_that_is_named_twice_the_last_batch_counts(wire: Wire, version: int) -> None:
    topic = create_topic(wire, partitions=2)

    def entry(*partitions: tuple[int, bytes]) -> dict[str, Any]:
        data = [{"index": index, "records": records} for index, records in partitions]
        return {"name": topic.name, "topic_id": topic.id, "partition_data": data}

    twice = entry((0, batch(b"lost")), (0, batch(b"lost", b"too")))
    sent = [twice, entry((1, batch(b"other")), (0, batch(b"kept")))]
    answer = wire.send("produce", version, acks=-1, timeout=10_000, topic_data=sent)
    (found,) = answer.responses
    told = {(each.index, each.error_code, each.base_offset) for each in found.partition_responses}
    assert told == {(0, ErrorCode.none, 0), (1, ErrorCode.none, 0)}
    assert len(found.partition_responses) == 2
    assert values(fetch_all(wire, topic)) == [b"kept"]
