"""What the cleaner's tests share: keyed batches, a cleaning in one call, and what is left of a log."""

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from headwater.config import TopicConfig
from headwater.log.cleaning.cleanable import Cleanable, find_cleanable
from headwater.log.cleaning.cleaner import CleanerLimits, Cleaning, clean
from headwater.log.log import Log
from headwater.log.throttle import Throttle
from headwater.protocol.records import BatchHeader, Record, decode_records, encode_batch

from .building import NOW_MS, topic_config

DAY_MS = 86_400_000
KeyValue = tuple[bytes | None, bytes | None]


def compacted(segment_bytes: int = 400, **overrides: object) -> TopicConfig:
    """A compacted topic that is cleaned as soon as anything is dirty; names with underscores for dots."""
    settings = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": 0, "index_interval_bytes": 100}
    return topic_config(segment_bytes, **{**settings, **overrides})


def keyed(*records: KeyValue, timestamp_ms: int = NOW_MS, **options: Any) -> bytearray:
    """A batch of keys and values; None for a value makes a tombstone."""
    return encode_batch([(key, value, (), timestamp_ms) for key, value in records], **options)


def limits(map_bytes: int = 1 << 20, stopped: threading.Event | None = None, map_load: float = 0.9) -> CleanerLimits:
    stopped = stopped or threading.Event()
    return CleanerLimits(
        map_bytes=map_bytes,
        map_load=map_load,
        chunk_bytes=1 << 16,
        throttle=Throttle(lambda: 1e12, stopped),
        stopped=stopped,
    )


def to_clean(log: Log, now_ms: int = NOW_MS) -> Cleanable:
    """What there is to clean, which must be something."""
    cleanable = find_cleanable(log, stable_offset=log.last_stable_offset, now_ms=now_ms)
    assert cleanable is not None
    return cleanable


def clean_once(log: Log, now_ms: int = NOW_MS, within: CleanerLimits | None = None) -> Cleaning:
    """Clean all that can be cleaned, or as much of it as fits the map."""
    return clean(log, to_clean(log, now_ms), within or limits(), now_ms=now_ms)


def begin_cleaning(log: Log, now_ms: int = NOW_MS) -> Cleaning:
    """A cleaning whose steps are taken by the test."""
    return Cleaning(log, to_clean(log, now_ms), limits(), now_ms=now_ms)


def take_steps(cleaning: Cleaning, after: int, then: Callable[[], object]) -> None:
    """Take all steps of a cleaning, and do something else after one of them."""
    for number, step in enumerate(cleaning.steps()):
        step()
        if number == after:
            then()


def stored_batches(log: Log) -> list[tuple[BatchHeader, list[Record]]]:
    """Every batch of the log with its records, markers and empty ones too."""
    return [
        (batch.header, decode_records(batch.buffer, batch.header))
        for segment in log.segments
        for batch in segment.batches()
    ]


def survivors(log: Log) -> list[tuple[int, bytes | None, bytes | None]]:
    """Offset, key and value of every record that is no marker."""
    return [
        (record.offset, record.key, record.value)
        for header, records in stored_batches(log)
        if not header.is_control
        for record in records
    ]


def offsets(log: Log) -> list[int]:
    """The offsets of every record that is no marker."""
    return [offset for offset, _, _ in survivors(log)]


def newest_of_each_key(records: Iterable[tuple[int, bytes | None, bytes | None]], below: int) -> list[int]:
    """The offsets that a cleaning up to an offset leaves of plain records with keys."""
    found: Sequence[tuple[int, bytes | None, bytes | None]] = list(records)
    newest = {key: offset for offset, key, _ in found if offset < below}
    return [offset for offset, key, _ in found if offset >= below or newest[key] == offset]


def file_names(log: Log) -> set[str]:
    """What is in the log's folder."""
    return set(log.fs.list_dir(log.path))
