"""Batches made to cost more than they weigh: they are refused or take their time, and other clients do not notice."""

import struct
import threading
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from conformance.actions import LATEST, Topic, create_topic, fetch_all, list_offset, produce, produce_ok
from conformance.batches import batch, now_ms, read_batches, sized, varint
from conformance.crafted_batches import record, seal
from conformance.wire import Wire
from headwater.protocol.compression import compress
from headwater.protocol.records import encode_batch
from integration.raw_client import API_VERSIONS_V0, RawClient
from peers.headwater import HeadwaterProcess

_LONGEST_PING_S = 0.25
"""Of a broker that shares its cores with whatever else runs here; each of these took seconds."""
_GZIP, _SNAPPY, _LZ4, _ZSTD = 1, 2, 3, 4


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HeadwaterProcess]:
    with HeadwaterProcess(tmp_path_factory.mktemp("hostile-batches"), {"num.partitions": "1"}) as broker:
        yield broker


@pytest.fixture
def wire(broker: HeadwaterProcess) -> Iterator[Wire]:
    with Wire(broker.bootstrap) as connection:
        yield connection


@contextmanager
def others_are_served(broker: HeadwaterProcess) -> Iterator[None]:
    """While this goes on, another client asks one thing after the other and is answered each time."""
    pings: list[float] = []
    begun, over = threading.Event(), threading.Event()

    def ask() -> None:
        with RawClient(broker.bootstrap) as client:
            while not over.is_set():
                began = time.monotonic()
                assert client.ask(API_VERSIONS_V0)
                pings.append(time.monotonic() - began)
                begun.set()
                time.sleep(0.002)

    pinging = threading.Thread(target=ask)
    pinging.start()
    try:
        assert begun.wait(10)
        yield
    finally:
        over.set()
        pinging.join()
    assert max(pings) < _LONGEST_PING_S


def resident_bytes(broker: HeadwaterProcess) -> int:
    """The most memory that the broker had so far."""
    status = Path(f"/proc/{broker.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def produce_each(wire: Wire, topic: Topic, batches: Sequence[bytes]) -> list[ErrorCode]:
    """One request with a batch for each partition, and the answers by partition."""
    data = [{"index": index, "records": each} for index, each in enumerate(batches)]
    entry = {"name": topic.name, "topic_id": topic.id, "partition_data": data}
    (found,) = wire.send("produce", acks=1, timeout=60_000, topic_data=[entry]).responses
    return [each.error_code for each in sorted(found.partition_responses, key=lambda each: each.index)]


def bomb(codec: int, unpacked_bytes: int) -> bytes:
    return bytes(encode_batch([(None, bytes(unpacked_bytes), (), now_ms())], compression=codec))


def test_fifty_bombs_in_one_request_are_defused_beside_the_event_loop(broker: HeadwaterProcess, wire: Wire) -> None:
    topic = create_topic(wire, partitions=50)
    large, too_large = bomb(_ZSTD, 60_000_000), bomb(_ZSTD, 300_000_000)
    before = resident_bytes(broker)
    with others_are_served(broker):
        codes = produce_each(wire, topic, [large] * 5 + [too_large] * 45)
    assert codes == [ErrorCode.none] * 5 + [ErrorCode.message_too_large] * 45
    assert resident_bytes(broker) - before < 300_000_000


@pytest.mark.parametrize("codec", [_GZIP, _LZ4, _ZSTD])
def test_a_batch_may_grow_to_64_times_the_largest_that_a_topic_takes(
    broker: HeadwaterProcess, wire: Wire, codec: int
) -> None:
    topic = create_topic(wire, configs={"max.message.bytes": "200000"})
    with others_are_served(broker):
        assert produce(wire, topic, bomb(codec, 12_700_000)).error_code is ErrorCode.none
        answer = produce(wire, topic, bomb(codec, 12_900_000))
    assert answer.error_code is ErrorCode.message_too_large
    assert "64 times max.message.bytes" in answer.error_message


def test_gzip_that_claims_to_be_short_is_not_believed(broker: HeadwaterProcess, wire: Wire) -> None:
    body = record(0, value=sized(bytes(50_000_000)))
    packed = bytearray(zlib.compress(body, 9, wbits=31))
    assert len(packed) > 32_768
    topic = create_topic(wire)
    short = bytearray(zlib.compress(record(0, value=sized(bytes(20_000_000))), 9, wbits=31))
    assert len(short) < 32_768
    for stream in (packed, short):
        struct.pack_into("<I", stream, len(stream) - 4, 100)
        with others_are_served(broker):
            answer = produce(wire, topic, seal(b"", count=1, codec=_GZIP, packed=bytes(stream)))
        assert answer.error_code is ErrorCode.invalid_record
    assert list_offset(wire, topic, LATEST).offset == 0


@pytest.mark.parametrize(
    ("codec", "block"),
    [(_ZSTD, b"\0\0\0"), (_SNAPPY, b"\0\0\0\2\1\0"), (_LZ4, b"\1\0\0\x80v")],
    ids=["zstd", "snappy", "lz4"],
)
def test_compressed_data_of_a_million_blocks_holds_nobody_up(
    broker: HeadwaterProcess, wire: Wire, codec: int, block: bytes
) -> None:
    """Blocks that hold nothing, or a byte: their number is what costs."""
    head = {
        _ZSTD: b"\x28\xb5\x2f\xfd\0\x58",
        _SNAPPY: bytes(compress(_SNAPPY, b"")),
        _LZ4: bytes(compress(_LZ4, b""))[:7],
    }
    tail = {_ZSTD: b"\1\0\0", _SNAPPY: b"", _LZ4: bytes(4)}
    topic = create_topic(wire)
    for size in (1_000_000, 30_000):
        packed = head[codec] + block * (size // len(block)) + tail[codec]
        with others_are_served(broker):
            answer = produce(wire, topic, seal(b"", count=3, codec=codec, packed=packed))
        assert answer.error_code is ErrorCode.invalid_record, answer


def test_two_thousand_million_records_that_are_not_there_roll_no_segment(broker: HeadwaterProcess, wire: Wire) -> None:
    topic = create_topic(wire)
    for number in range(20):
        produce_ok(wire, topic, batch(b"honest"))
        claims = seal(record(0), count=2**31 - 1), seal(record(0), count=1, last_delta=2**31 - 1)
        packed = seal(record(0), count=2**31 - 1, codec=_ZSTD)
        for claim in (*claims, packed):
            assert produce(wire, topic, claim).error_code is ErrorCode.invalid_record
        assert list_offset(wire, topic, LATEST).offset == number + 1
    assert len(list((broker.data_dir / f"{topic.name}-0").glob("*.log"))) == 1


def test_of_a_million_wrong_records_a_few_are_told(broker: HeadwaterProcess, wire: Wire) -> None:
    topic = create_topic(wire, partitions=30, configs={"cleanup.policy": "compact"})
    count = 70_000
    body = b"".join(record(number, key=varint(-1), value=varint(-1)) for number in range(count))
    wrong = seal(body, count=count)
    with others_are_served(broker):
        data = [{"index": index, "records": wrong} for index in range(30)]
        entry = {"name": topic.name, "topic_id": topic.id, "partition_data": data}
        (found,) = wire.send("produce", acks=1, timeout=60_000, topic_data=[entry]).responses
    told = [len(each.record_errors) for each in found.partition_responses]
    assert (sum(told), max(told), min(told)) == (1_000, 100, 0)
    for each in found.partition_responses:
        assert each.error_code is ErrorCode.invalid_record
        assert "70000 of them, of which the first 100 are told" in each.error_message
        assert [error.batch_index for error in each.record_errors] == list(range(len(each.record_errors)))


def test_many_batches_in_one_request_are_appended_a_few_at_a_time(broker: HeadwaterProcess, wire: Wire) -> None:
    topic = create_topic(wire, partitions=300)
    one = batch(b"v" * 50)
    data = [{"index": number % 1000, "records": one} for number in range(20_000)]
    entry = {"name": topic.name, "topic_id": topic.id, "partition_data": data}
    with others_are_served(broker):
        (found,) = wire.send("produce", acks=1, timeout=60_000, topic_data=[entry]).responses
    codes = {each.index: each.error_code for each in found.partition_responses}
    expected = {index: ErrorCode.none if index < 300 else ErrorCode.unknown_topic_or_partition for index in range(1000)}
    assert codes == expected
    assert len(found.partition_responses) == 1000


def test_more_partitions_than_any_broker_has_end_the_connection(broker: HeadwaterProcess) -> None:
    head = struct.pack(">hhih", 0, 7, 1, -1) + struct.pack(">hhi", -1, 1, 1000)
    nulls = struct.pack(">ih", 1, 1) + b"t" + struct.pack(">i", 3_000_000) + struct.pack(">ii", 0, -1) * 3_000_000
    no_partitions = struct.pack(">i", 3_000_000) + struct.pack(">hi", 0, 0) * 3_000_000
    for body in (nulls, no_partitions):
        with RawClient(broker.bootstrap) as client, others_are_served(broker):
            client.send(head + body)
            assert client.receive() is None


def test_a_large_uncompressed_batch_is_walked_beside_the_event_loop(broker: HeadwaterProcess, wire: Wire) -> None:
    topic = create_topic(wire, configs={"max.message.bytes": "40000000", "segment.bytes": "100000000"})
    count = 2_500_000
    body = record(0, key=varint(-1), value=varint(-1)) * count
    with others_are_served(broker):
        answer = produce(wire, topic, seal(body, count=count))
    assert answer.error_code is ErrorCode.invalid_record
    assert "record 1 has offset delta 0" in answer.error_message


def test_batches_of_one_connection_keep_their_order_when_some_take_long(wire: Wire) -> None:
    topic = create_topic(wire)
    sent = []
    for number in range(12):
        rows = [(None, b"%d" % number * 100, (), now_ms())] * (9_000 if number % 3 == 0 else 2)
        records = bytes(encode_batch(rows, compression=_ZSTD if number % 2 else _GZIP))
        entry = {"name": topic.name, "topic_id": topic.id, "partition_data": [{"index": 0, "records": records}]}
        sent.append((wire.send_only("produce", acks=-1, timeout=10_000, topic_data=[entry]), len(rows)))
    expected = 0
    for correlation_id, count in sent:
        answer = wire.receive(0, 13, correlation_id).responses[0].partition_responses[0]
        assert (answer.error_code, answer.base_offset) == (ErrorCode.none, expected)
        expected += count


def test_a_batch_that_takes_long_is_whole_when_it_is_appended(wire: Wire) -> None:
    """More of the connection arrives meanwhile, into the memory that frames are received in."""
    topic, other = create_topic(wire), create_topic(wire)
    rows = [(b"%d" % number, b"%d" % number * 20, (), now_ms()) for number in range(20_000)]
    large = bytes(encode_batch(rows, compression=_GZIP))
    noise = batch(b"\xff" * 200_000)
    for _ in range(3):
        ids = []
        for to, records in ((topic, large), (other, noise), (topic, large), (other, noise)):
            entry = {"name": to.name, "topic_id": to.id, "partition_data": [{"index": 0, "records": records}]}
            ids.append(wire.send_only("produce", acks=1, timeout=10_000, topic_data=[entry]))
        for correlation_id in ids:
            code = wire.receive(0, 13, correlation_id).responses[0].partition_responses[0].error_code
            assert code is ErrorCode.none
    written = read_batches(fetch_all(wire, topic))
    assert [(each.count, each.crc_is_right) for each in written] == [(20_000, True)] * 6
    assert {each.body for each in written} == {large[61:]}


def test_with_acks_0_a_refusal_that_took_long_ends_the_connection(broker: HeadwaterProcess, wire: Wire) -> None:
    topic = create_topic(wire)
    with RawClient(broker.bootstrap) as client:
        name = topic.name.encode()
        records = bomb(_ZSTD, 300_000_000)
        head = struct.pack(">hhih", 0, 7, 1, -1) + struct.pack(">hhi", -1, 0, 30_000)
        client.send(head + struct.pack(">ih", 1, len(name)) + name + struct.pack(">iii", 1, 0, len(records)) + records)
        assert client.receive() is None
    assert list_offset(wire, topic, LATEST).offset == 0


def test_a_client_that_hangs_up_meanwhile_harms_nobody(broker: HeadwaterProcess, wire: Wire) -> None:
    topic = create_topic(wire)
    records = bytes(encode_batch([(None, bytes(100), (), now_ms())] * 50_000, compression=_GZIP))
    name = topic.name.encode()
    head = struct.pack(">hhih", 0, 7, 1, -1) + struct.pack(">hhi", -1, 1, 30_000)
    for _ in range(5):
        with RawClient(broker.bootstrap) as client:
            body = struct.pack(">ih", 1, len(name)) + name + struct.pack(">iii", 1, 0, len(records)) + records
            client.send(head + body)
    assert produce_ok(wire, topic, batch(b"v")) % 50_000 == 0
