"""Produce as bytes: finds the record batches inside a request without copying them, and writes the response.

Versions 3 to 13. The request's records stay where they are in the receive buffer; what leaves here is their place.
"""

import struct
from typing import Final, NamedTuple

from headwater.protocol.wire import Cursor, length_bytes, string_bytes

_FIRST_FLEXIBLE: Final = 9
_FIRST_WITH_TOPIC_ID: Final = 13
_LEADING: Final = struct.Struct(">ihqqq")
_LEADING_V4: Final = struct.Struct(">ihqq")
_INT32: Final = struct.Struct(">i")


class PartitionData(NamedTuple):
    """Where one partition's records stand in the frame; `start` is -1 for null."""

    partition: int
    start: int
    end: int


class TopicData(NamedTuple):
    """A topic by name (up to version 12) or by the 16 bytes of its id."""

    topic: str | bytes
    partitions: list[PartitionData]


class ProduceRequest(NamedTuple):
    """A Produce request whose records were left in place."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[TopicData]


class PartitionResult(NamedTuple):
    """The answer for one partition."""

    partition: int
    error_code: int
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    record_errors: tuple[tuple[int, str | None], ...] = ()
    error_message: str | None = None


def read_request(frame: memoryview, position: int, version: int) -> ProduceRequest:
    """Reads the request body that starts at `position` of `frame`."""
    flexible = version >= _FIRST_FLEXIBLE
    cursor = Cursor(frame, position)
    transactional_id = cursor.string(flexible)
    acks, timeout_ms = cursor.int16(), cursor.int32()
    topics = []
    for _ in range(cursor.array(flexible, 3)):
        topic = cursor.uuid() if version >= _FIRST_WITH_TOPIC_ID else cursor.string(flexible) or ""
        partitions = []
        for _ in range(cursor.array(flexible, 5)):
            index = cursor.int32()
            size = cursor.length(flexible)
            start = -1 if size < 0 else cursor.advance(size)
            partitions.append(PartitionData(index, start, start + size))
            cursor.tags(flexible)
        cursor.tags(flexible)
        topics.append(TopicData(topic, partitions))
    cursor.tags(flexible)
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


def response_frame(
    version: int, correlation_id: int, results: list[tuple[str | bytes, list[PartitionResult]]]
) -> bytes:
    """The whole response frame, length first."""
    flexible = version >= _FIRST_FLEXIBLE
    end_of_struct = b"\0" if flexible else b""
    parts = [_INT32.pack(correlation_id) + end_of_struct, length_bytes(len(results), flexible)]
    for topic, partitions in results:
        parts.append(topic if isinstance(topic, bytes) else string_bytes(topic, flexible))
        parts.append(length_bytes(len(partitions), flexible))
        parts.extend([_partition_bytes(result, version, flexible) for result in partitions])
        parts.append(end_of_struct)
    parts.append(b"\0\0\0\0" + end_of_struct)
    body = b"".join(parts)
    return _INT32.pack(len(body)) + body


def _partition_bytes(result: PartitionResult, version: int, flexible: bool) -> bytes:
    index, error_code, base_offset, append_time_ms, log_start_offset, record_errors, error_message = result
    if version < 5:
        return _LEADING_V4.pack(index, error_code, base_offset, append_time_ms)
    leading = _LEADING.pack(index, error_code, base_offset, append_time_ms, log_start_offset)
    if version < 8:
        return leading
    if not record_errors and error_message is None:
        return leading + (b"\1\0\0" if flexible else b"\0\0\0\0\xff\xff")
    errors = b"".join(
        _INT32.pack(batch_index) + string_bytes(text, flexible) + (b"\0" if flexible else b"")
        for batch_index, text in record_errors
    )
    tail = string_bytes(error_message, flexible) + (b"\0" if flexible else b"")
    return leading + length_bytes(len(record_errors), flexible) + errors + tail
