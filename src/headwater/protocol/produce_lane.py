"""Produce as bytes: finds the record batches inside a request without copying them, and writes the response.

Versions 3 to 13. The request's records stay where they are in the receive buffer; what leaves here is their place.
Compiled by Cython (pure Python mode) and correct without it.
"""
# mypy: disallow-untyped-decorators=False

from __future__ import annotations

import struct

from headwater.protocol.errors import MalformedRequestError

try:
    import cython
except ImportError:
    from headwater.protocol import without_cython as cython

if cython.compiled:
    from cython.cimports.headwater.protocol.wire import Cursor, length_bytes, string_bytes
else:
    from headwater.protocol.wire import Cursor, length_bytes, string_bytes

_FIRST_FLEXIBLE = cython.declare(cython.int, 9)
_FIRST_WITH_TOPIC_ID = cython.declare(cython.int, 13)
# No broker has as many; each of them takes time and memory before it is looked at.
_MOST_PARTITIONS = cython.declare(cython.longlong, 20_000)
_INT32 = struct.Struct(">i")
_RESULT_V3 = struct.Struct(">ihqq")
_RESULT_V5 = struct.Struct(">ihqqq")


@cython.final
@cython.cclass
class ProduceRequest:
    """A Produce request whose records were left in place.

    `topics` holds for each topic its name (up to version 12) or the 16 bytes of its id, and for each of its partitions
    the index and where its records begin and end in the frame; they begin at -1 where they are null.
    """

    transactional_id: str | None = cython.declare(object, visibility="public")
    acks: int = cython.declare(cython.int, visibility="public")
    timeout_ms: int = cython.declare(cython.int, visibility="public")
    topics: list[tuple[str | bytes, list[tuple[int, int, int]]]] = cython.declare(list, visibility="public")


@cython.final
@cython.cclass
class PartitionResult:
    """The answer for one partition; `record_errors` are the index of a record in its batch and what is wrong."""

    partition: int = cython.declare(cython.int, visibility="public")
    error_code: int = cython.declare(cython.int, visibility="public")
    base_offset: int = cython.declare(cython.longlong, visibility="public")
    log_append_time_ms: int = cython.declare(cython.longlong, visibility="public")
    log_start_offset: int = cython.declare(cython.longlong, visibility="public")
    record_errors: tuple[tuple[int, str | None], ...] = cython.declare(tuple, visibility="public")
    error_message: str | None = cython.declare(object, visibility="public")

    def __init__(
        self,
        partition: cython.int,
        error_code: cython.int,
        base_offset: cython.longlong = -1,
        log_append_time_ms: cython.longlong = -1,
        log_start_offset: cython.longlong = -1,
        record_errors: tuple[tuple[int, str | None], ...] = (),
        error_message: str | None = None,
    ) -> None:
        self.partition = partition
        self.error_code = error_code
        self.base_offset = base_offset
        self.log_append_time_ms = log_append_time_ms
        self.log_start_offset = log_start_offset
        self.record_errors = record_errors
        self.error_message = error_message


def read_request(frame: memoryview, position: cython.Py_ssize_t, version: cython.int) -> ProduceRequest:
    """Reads the request body that starts at `position` of `frame`."""
    flexible: cython.bint = version >= _FIRST_FLEXIBLE
    index: cython.longlong
    count: cython.longlong
    size: cython.longlong
    start: cython.Py_ssize_t
    cursor: Cursor = Cursor(frame, position)
    request: ProduceRequest = ProduceRequest()
    request.transactional_id = cursor.string(flexible)
    request.acks = cursor.int16()
    request.timeout_ms = cursor.int32()
    request.topics = []
    room: cython.longlong = _MOST_PARTITIONS
    for _ in range(_within(room, cursor.array(flexible, 3))):
        topic = cursor.uuid() if version >= _FIRST_WITH_TOPIC_ID else cursor.string(flexible) or ""
        partitions: list[tuple[int, int, int]] = []
        count = _within(room, cursor.array(flexible, 5))
        room -= count
        for _ in range(count):
            index = cursor.int32()
            size = cursor.length(flexible)
            start = -1 if size < 0 else cursor.advance(size)
            partitions.append((index, start, start + size))
            cursor.tags(flexible)
        cursor.tags(flexible)
        request.topics.append((topic, partitions))
    cursor.tags(flexible)
    return request


@cython.cfunc
def _within(room: cython.longlong, count: cython.longlong) -> cython.longlong:
    """The count, unless it is beyond what one request may hold."""
    if count > room:
        raise MalformedRequestError(f"more than {_MOST_PARTITIONS} topics or partitions in one Produce")
    return count


def response_frame(
    version: cython.int, correlation_id: cython.int, results: list[tuple[str | bytes, list[PartitionResult]]]
) -> bytes:
    """The whole response frame, length first."""
    flexible: cython.bint = version >= _FIRST_FLEXIBLE
    end_of_struct = b"\0" if flexible else b""
    parts = [_INT32.pack(correlation_id), end_of_struct, length_bytes(len(results), flexible)]
    for topic, partitions in results:
        parts.append(topic if isinstance(topic, bytes) else string_bytes(topic, flexible))
        parts.append(length_bytes(len(partitions), flexible))
        parts += [_partition_bytes(result, version, flexible) for result in partitions]
        parts.append(end_of_struct)
    parts.append(b"\0\0\0\0\0" if flexible else b"\0\0\0\0")
    body = b"".join(parts)
    return _INT32.pack(len(body)) + body


@cython.cfunc
def _partition_bytes(result: PartitionResult, version: cython.int, flexible: cython.bint) -> bytes:
    if version < 5:
        return _RESULT_V3.pack(result.partition, result.error_code, result.base_offset, result.log_append_time_ms)
    leading = _RESULT_V5.pack(
        result.partition, result.error_code, result.base_offset, result.log_append_time_ms, result.log_start_offset
    )
    if version < 8:
        return leading
    if not result.record_errors and result.error_message is None:
        return leading + (b"\1\0\0" if flexible else b"\0\0\0\0\xff\xff")
    end_of_struct = b"\0" if flexible else b""
    errors = [
        _INT32.pack(batch_index) + string_bytes(text, flexible) + end_of_struct
        for batch_index, text in result.record_errors
    ]
    count = length_bytes(len(result.record_errors), flexible)
    return b"".join([leading, count, *errors, string_bytes(result.error_message, flexible), end_of_struct])
