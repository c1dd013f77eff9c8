"""Batches of Apache Kafka, librdkafka, aiokafka and kafka-python are read, and theirs read ours.

The segments in `data/` were written by Apache Kafka 4.1: `java-*` came from its console producer, the
others from librdkafka, twenty records each; `compacted` has been through the log cleaner.
"""

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

DATA = Path(__file__).with_name("data")
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
T0 = 1_700_000_000_000

ROWS: list[tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...], int]] = [
    (
        None if i % 5 == 0 else b"key-%d" % i,
        None if i % 7 == 6 else b"value-%d " % i * 8,
        (("origin", b"test"), ("empty", None)) if i % 4 == 0 else (),
        T0 + i * 1000 - (500 if i % 3 == 0 else 0),
    )
    for i in range(20)
]

# Enough that every codec needs more than one of its blocks.
MANY_ROWS = [(key, (value or b"") * 90, headers, time_ms) for key, value, headers, time_ms in ROWS * 10]


def segment(name: str) -> bytes:
    return (DATA / f"{name}.log").read_bytes()


def rows_of(decoded: list[Any]) -> list[Any]:
    return [(r.key, r.value, r.headers, r.timestamp_ms) for r in decoded]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("producer", ["java", "librdkafka"])
def test_segments_of_apache_kafka_are_read(records: ModuleType, producer: str, codec: str) -> None:
    data = segment(f"{producer}-{codec}")
    (header,) = records.check_batches(data, 0, len(data))
    assert (header.compression, header.records_count, header.last_offset) == (CODECS[codec], 20, 19)
    decoded = records.decode_records(data, header)
    assert [r.offset for r in decoded] == list(range(20))
    assert [row[:3] for row in rows_of(decoded)] == [row[:3] for row in ROWS]
    columns = records.decode_columns(data, 0, len(data))
    assert [columns.keys[i] for i in range(20)] == [row[0] for row in ROWS]
    assert [columns.headers(i) for i in range(20)] == [row[2] for row in ROWS]
    if producer == "librdkafka":
        assert columns.timestamps_ms.tolist() == [row[3] for row in ROWS]
    else:
        assert columns.timestamps_ms.tolist() == [r.timestamp_ms for r in decoded]
        assert header.max_timestamp_ms == max(r.timestamp_ms for r in decoded)


@pytest.mark.parametrize("producer", ["java", "librdkafka"])
def test_we_write_the_bytes_that_they_write(records: ModuleType, producer: str) -> None:
    data = segment(f"{producer}-none")
    (header,) = records.check_batches(data, 0, len(data))
    again = records.encode_batch(
        rows_of(records.decode_records(data, header)),
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        leader_epoch=header.leader_epoch,
    )
    assert bytes(again) == data


def test_transactions_end_with_markers(records: ModuleType) -> None:
    data = segment("transactions")
    headers = records.check_batches(data, 0, len(data))
    markers = [records.decode_records(data, h)[0] for h in headers if h.is_control]
    assert [h.is_control for h in headers] == [False, True] * 3
    assert all(h.is_transactional for h in headers)
    # Version 0 of the key; 1 commits and 0 aborts.
    assert [marker.key for marker in markers] == [b"\0\0\0\1", b"\0\0\0\1", b"\0\0\0\0"]
    assert [h.base_sequence for h in headers if h.is_control] == [-1, -1, -1]
    columns = records.decode_columns(data, 0, len(data))
    assert columns.offsets.tolist() == [0, 1, 2, 4, 5, 6, 8, 9]
    assert columns.next_offset == 11


def test_the_brokers_time_is_that_of_every_record(records: ModuleType) -> None:
    data = segment("append-time")
    (header,) = records.check_batches(data, 0, len(data))
    assert header.is_log_append_time
    assert header.base_timestamp_ms == T0
    times = {r.timestamp_ms for r in records.decode_records(data, header)}
    assert times == {header.max_timestamp_ms}
    assert header.max_timestamp_ms > T0


def test_what_the_cleaner_left_is_read(records: ModuleType) -> None:
    data = segment("compacted")
    with pytest.raises(records.CorruptBatchError, match="only 6 records for 8 offsets"):
        records.check_batches(data, 0, len(data))
    first, second = records.check_batches(data, 0, len(data), strict=False)
    decoded = records.decode_records(data, first)
    assert [(r.offset, r.key) for r in decoded if r.value is None] == [(19, b"k3")]
    assert (first.base_offset, [r.offset for r in decoded]) == (16, [18, 19, 20, 21, 22, 23])
    assert second.delete_horizon_ms is None
    # The horizon takes the place of the base timestamp: the records' times must not move with it.
    assert first.delete_horizon_ms is not None
    assert first.delete_horizon_ms > first.max_timestamp_ms
    assert all(first.max_timestamp_ms - 60_000 < r.timestamp_ms <= first.max_timestamp_ms for r in decoded)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("rows", [ROWS, MANY_ROWS], ids=["few", "many"])
def test_aiokafka_reads_ours(records: ModuleType, codec: str, rows: list[Any]) -> None:
    batch = records.encode_batch(rows, base_offset=30, compression=CODECS[codec])
    theirs = AiokafkaBatch(bytes(batch))
    assert theirs.validate_crc()
    assert [(r.key, r.value, tuple(r.headers), r.timestamp) for r in theirs] == rows


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("rows", [ROWS, MANY_ROWS], ids=["few", "many"])
def test_aiokafka_is_read(records: ModuleType, codec: str, rows: list[Any]) -> None:
    builder = AiokafkaBuilder(
        magic=2,
        compression_type=CODECS[codec],
        is_transactional=1,
        producer_id=7,
        producer_epoch=1,
        base_sequence=9,
        batch_size=1 << 24,
    )
    for index, (key, value, headers, time_ms) in enumerate(rows):
        builder.append(index, timestamp=time_ms, key=key, value=value, headers=list(headers))
    data = bytes(builder.build())
    (header,) = records.check_batches(data, 0, len(data))
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 1, 9)
    assert rows_of(records.decode_records(data, header)) == rows


def kafka_python_rows(batch: Any) -> Iterator[Any]:
    for record in batch:
        yield (record.key, record.value, tuple(record.headers), record.timestamp)


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_kafka_python_and_we_read_each_other(records: ModuleType, codec: str) -> None:
    ours = records.encode_batch(ROWS, compression=CODECS[codec])
    theirs = KafkaPythonBatch(bytes(ours))
    assert theirs.validate_crc()
    assert list(kafka_python_rows(theirs)) == ROWS

    builder = KafkaPythonBuilder(
        magic=2,
        compression_type=CODECS[codec],
        is_transactional=False,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 20,
    )
    for index, (key, value, headers, time_ms) in enumerate(ROWS):
        builder.append(index, time_ms, key, value, list(headers))
    data = bytes(builder.build())
    (header,) = records.check_batches(data, 0, len(data))
    assert rows_of(records.decode_records(data, header)) == ROWS
