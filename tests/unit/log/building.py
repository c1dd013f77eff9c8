"""What the log's tests build with: configs, batches, and the appends and reads that a broker would do."""

import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from headwater.config import BrokerConfig, TopicConfig
from headwater.log.filesystem import FileSystem
from headwater.log.log import Log
from headwater.log.log_types import AppendInfo
from headwater.protocol.records import (
    Record,
    check_batches,
    decode_records,
    encode_batch,
    scan_headers,
)

NOW_MS = 1_700_000_000_000
BROKER = BrokerConfig.from_values({})


def topic_config(segment_bytes: int = 1 << 20, **overrides: object) -> TopicConfig:
    """A topic's config; names with underscores for dots."""
    values = {name.replace("_", "."): str(value) for name, value in overrides.items()}
    return TopicConfig.from_values({"internal.segment.bytes": str(segment_bytes), **values}, BROKER)


def open_log(path: Path, config: TopicConfig | None = None, **options: Any) -> Log:
    """Open the log of the partition `events-0` in a folder."""
    options.setdefault("now_ms", NOW_MS)
    return Log.open(FileSystem(), str(path / "events-0"), config=config or topic_config(), **options)


def batch(
    values: Iterable[bytes] = (b"value",),
    *,
    timestamp_ms: int = NOW_MS,
    producer: tuple[int, int, int] | None = None,
    transactional: bool = False,
) -> bytearray:
    """A batch with one record per value, a millisecond apart; `producer` is id, epoch and first sequence."""
    producer_id, epoch, sequence = producer or (-1, -1, -1)
    return encode_batch(
        [(b"key", value, (), timestamp_ms + index) for index, value in enumerate(values)],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )


def marker(producer_id: int, epoch: int, *, commit: bool, coordinator_epoch: int = 0) -> bytearray:
    """A control batch that ends a transaction."""
    key, value = struct.pack(">hh", 0, int(commit)), struct.pack(">hi", 0, coordinator_epoch)
    return encode_batch(
        [(key, value, (), NOW_MS)],
        producer_id=producer_id,
        producer_epoch=epoch,
        control=True,
        transactional=True,
    )


def append(log: Log, *batches: bytearray, leader_epoch: int = 0, now_ms: int = NOW_MS, **options: Any) -> AppendInfo:
    """Append batches in one go, checked as a broker checks them."""
    buffer = memoryview(bytearray(b"".join(batches)))
    headers = check_batches(buffer, 0, len(buffer))
    return log.append_as_leader(buffer, 0, len(buffer), headers, leader_epoch=leader_epoch, now_ms=now_ms, **options)


def records_from(log: Log, offset: int, max_bytes: int = 1 << 20, up_to_offset: int | None = None) -> list[Record]:
    """The records of the whole batches of one read."""
    up_to = log.log_end_offset if up_to_offset is None else up_to_offset
    content = log.read(offset, max_bytes, up_to_offset=up_to).read()
    return [record for header in scan_headers(content, 0, len(content)) for record in decode_records(content, header)]


def all_records(log: Log) -> list[tuple[int, bytes | None]]:
    """Offset and value of every record from the log's start, read piece by piece as a consumer does."""
    found: list[tuple[int, bytes | None]] = []
    offset = log.log_start_offset
    while pieces := records_from(log, offset):
        found += [(record.offset, record.value) for record in pieces if record.offset >= offset]
        offset = pieces[-1].offset + 1
    return found
