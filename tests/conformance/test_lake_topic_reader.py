"""The lake reads ranges of either broker alike, as Arrow batches: exactly from start to end, whatever lies there."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import confluent_kafka
import pyarrow as pa
import pytest

from headwater.client.errors import TimedOutError
from headwater.lake.datasource.brokers import Brokers
from headwater.lake.datasource.columns import TOPIC_COLUMNS
from headwater.lake.datasource.splits import split_ranges
from headwater.lake.datasource.spots import DataLoss
from headwater.lake.datasource.topic_offsets import TopicRange, resolve_ranges
from headwater.lake.datasource.topic_reader import read_range
from headwater.lake.errors import LakeError, LakeUsageError

from .actions import create_topic, unique_name
from .conftest import Broker
from .wire import Wire

PATIENCE_S = 20
BEGIN_MS = 1_700_000_000_000


@pytest.fixture
def topic(broker: Broker) -> str:
    """A topic with one partition."""
    with Wire(broker.bootstrap) as wire:
        return create_topic(wire, partitions=1).name


@pytest.fixture
def brokers(broker: Broker) -> Iterator[Brokers]:
    with Brokers(broker.bootstrap, {}) as brokers:
        yield brokers


def producer(broker: Broker, **settings: Any) -> confluent_kafka.Producer:
    return confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0, **settings})


def produce(broker: Broker, topic: str, first: int, behind: int, **settings: Any) -> None:
    """Numbers as values, in batches of several, a second apart."""
    sending = producer(broker, **{"linger.ms": 50, "batch.num.messages": 100, **settings})
    for number in range(first, behind):
        sending.produce(topic, b"%d" % number, partition=0, timestamp=BEGIN_MS + 1000 * number)
    assert sending.flush(PATIENCE_S) == 0


def transactional(broker: Broker) -> confluent_kafka.Producer:
    sending = producer(broker, **{"transactional.id": unique_name("reader")})
    sending.init_transactions(PATIENCE_S)
    return sending


def in_transaction(sending: confluent_kafka.Producer, topic: str, *values: bytes) -> None:
    sending.begin_transaction()
    for value in values:
        sending.produce(topic, value, partition=0)
    assert sending.flush(PATIENCE_S) == 0


def part(topic: str, start: int, end: int) -> TopicRange:
    return TopicRange(topic=topic, partition=0, start=start, end=end, size_bytes=100 * (end - start))


def values(brokers: Brokers, wanted: TopicRange, data_loss: DataLoss = "fail") -> list[bytes]:
    batches = read_range(brokers, wanted, columns={"value"}, data_loss=data_loss)
    return [value for batch in batches for value in batch.column("value").to_pylist()]


def numbers(first: int, behind: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, behind)]


def delete_before(broker: Broker, topic: str, offset: int) -> None:
    partition = {"partition_index": 0, "offset": offset}
    with Wire(broker.bootstrap) as wire:
        answer = wire.send("delete_records", topics=[{"name": topic, "partitions": [partition]}], timeout=10_000)
    assert answer.topics[0].partitions[0].low_watermark == offset, answer


def test_everything_about_a_record_arrives(broker: Broker, brokers: Brokers, topic: str) -> None:
    sending = producer(broker)
    headers: list[tuple[str, str | bytes | None]] = [("trace", b"1"), ("trace", b"2"), ("none", None)]
    sending.produce(topic, b"v", key=b"k", partition=0, timestamp=BEGIN_MS + 123, headers=headers)
    sending.produce(topic, None, key=b"gone", partition=0, timestamp=BEGIN_MS)
    assert sending.flush(PATIENCE_S) == 0
    (found,) = resolve_ranges(broker.bootstrap, [topic])
    table = pa.Table.from_batches(read_range(brokers, found, columns=TOPIC_COLUMNS.names))
    assert table.schema.equals(TOPIC_COLUMNS)
    assert table.to_pylist() == [
        {
            "_topic": topic,
            "_partition": 0,
            "_offset": 0,
            "_timestamp": datetime.fromtimestamp(BEGIN_MS / 1000, UTC).replace(microsecond=123_000),
            "_key": b"k",
            "value": b"v",
            "_headers": [{"key": name, "value": content} for name, content in headers],
        },
        {
            "_topic": topic,
            "_partition": 0,
            "_offset": 1,
            "_timestamp": datetime.fromtimestamp(BEGIN_MS / 1000, UTC),
            "_key": b"gone",
            "value": None,
            "_headers": [],
        },
    ]


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_range_begins_and_ends_exactly_also_within_a_batch(
    broker: Broker, brokers: Brokers, topic: str, codec: str
) -> None:
    produce(broker, topic, 0, 1000, **{"compression.type": codec})
    for start, end in ((0, 1000), (0, 1), (37, 38), (50, 250), (999, 1000), (10, 10)):
        assert values(brokers, part(topic, start, end)) == numbers(start, end)


def test_one_partition_is_cut_by_its_size_and_nothing_is_lost_or_read_twice(
    broker: Broker, brokers: Brokers, topic: str
) -> None:
    produce(broker, topic, 0, 5000)
    whole = resolve_ranges(broker.bootstrap, [topic])
    assert whole[0].size_bytes > 5000 * 8
    pieces = split_ranges(whole, whole[0].size_bytes // 6 + 1)
    assert len(pieces) == 6
    assert [value for piece in pieces for value in values(brokers, piece)] == numbers(0, 5000)


def test_a_record_larger_than_what_is_asked_for_at_once_is_read(broker: Broker, brokers: Brokers, topic: str) -> None:
    sending = producer(broker)
    for size in (10, 300_000, 20):
        sending.produce(topic, bytes(size), partition=0)
        assert sending.flush(PATIENCE_S) == 0
    assert [len(value) for value in values(brokers, part(topic, 0, 3))] == [10, 300_000, 20]


def test_only_what_is_committed_is_read_and_a_range_ends_in_markers_and_aborted_records(
    broker: Broker, brokers: Brokers, topic: str
) -> None:
    sending = transactional(broker)
    in_transaction(sending, topic, b"kept", b"kept too")
    sending.commit_transaction(PATIENCE_S)
    in_transaction(sending, topic, b"aborted")
    sending.abort_transaction(PATIENCE_S)
    (found,) = resolve_ranges(broker.bootstrap, [topic])
    assert (found.start, found.end) == (0, 5)
    assert values(brokers, found) == [b"kept", b"kept too"]
    assert values(brokers, part(topic, 3, 5)) == []
    with Brokers(broker.bootstrap, {"isolation.level": "read_uncommitted"}) as all_brokers:
        assert values(all_brokers, found) == [b"kept", b"kept too", b"aborted"]


def test_a_transaction_that_is_open_is_the_end_of_what_there_is(broker: Broker, topic: str) -> None:
    produce(broker, topic, 0, 3)
    sending = transactional(broker)
    in_transaction(sending, topic, b"maybe")
    (committed,) = resolve_ranges(broker.bootstrap, [topic])
    (everything,) = resolve_ranges(broker.bootstrap, [topic], settings={"isolation.level": "read_uncommitted"})
    assert (committed.end, everything.end) == (3, 4)
    with pytest.raises(LakeError, match=r"ends at offset 3, and 4 is asked for.*a transaction is still open"):
        resolve_ranges(broker.bootstrap, [topic], ending=f'{{"{topic}": {{"0": 4}}}}')
    # A range that goes on behind it is waited for, and never taken for one without records.
    with (
        Brokers(broker.bootstrap, {"default.api.timeout.ms": "300", "fetch.max.wait.ms": "50"}) as brokers,
        pytest.raises(TimedOutError, match=r"offset 3: its leader has nothing there.*to offset 4"),
    ):
        values(brokers, part(topic, 0, 4))
    sending.abort_transaction(PATIENCE_S)


def test_starts_and_ends_are_named_by_offset_and_by_time(broker: Broker, topic: str) -> None:
    produce(broker, topic, 0, 100)

    def bounds(starting: str, ending: str = "latest") -> tuple[int, int]:
        (found,) = resolve_ranges(broker.bootstrap, [topic], starting, ending)
        return found.start, found.end

    assert bounds("earliest") == (0, 100)
    assert bounds("latest") == (100, 100)
    assert bounds(f'{{"{topic}": {{"0": 7}}}}', f'{{"{topic}": {{"0": 9}}}}') == (7, 9)
    assert bounds(f"ts:{BEGIN_MS + 41_001}", f"ts:{BEGIN_MS + 50_000}") == (42, 50)
    assert bounds(f"ts:{datetime.fromtimestamp(BEGIN_MS / 1000 + 3, UTC).isoformat()}", "ts:2100-01-01") == (3, 100)
    assert bounds("ts:2100-01-01T00:00:00Z") == (100, 100)


def test_what_the_log_has_lost_is_an_error_unless_it_may_be_skipped(
    broker: Broker, brokers: Brokers, topic: str
) -> None:
    produce(broker, topic, 0, 100)
    planned = part(topic, 0, 100)
    delete_before(broker, topic, 60)
    from_zero = f'{{"{topic}": {{"0": 0}}}}'
    with pytest.raises(LakeError, match=rf"partition {topic}-0 has lost offsets 0 to 59: .*data\.loss = skip"):
        resolve_ranges(broker.bootstrap, [topic], from_zero)
    with pytest.raises(LakeError, match=rf"partition {topic}-0 has lost offset 0 since the read was planned"):
        values(brokers, planned)
    (left,) = resolve_ranges(broker.bootstrap, [topic], from_zero, data_loss="skip")
    assert (left.start, left.end) == (60, 100)
    assert values(brokers, planned, "skip") == numbers(60, 100)
    assert values(brokers, part(topic, 0, 50), "skip") == []
    (none,) = resolve_ranges(broker.bootstrap, [topic], f'{{"{topic}": {{"0": 500}}}}', data_loss="skip")
    assert (none.start, none.end) == (100, 100)


def test_what_is_not_there_is_said(broker: Broker, topic: str) -> None:
    with pytest.raises(LakeUsageError, match="topic no-such-topic does not exist at"):
        resolve_ranges(broker.bootstrap, [topic, "no-such-topic"])
    with pytest.raises(LakeUsageError, match=f"starting names partitions that are not read, or not there: {topic}-7"):
        resolve_ranges(broker.bootstrap, [topic], f'{{"{topic}": {{"7": 0}}}}')
