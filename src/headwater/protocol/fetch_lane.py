"""Fetch as bytes: reads the request, and writes the response around byte ranges that never enter the process.

Versions 4 to 18. Topics go by name up to version 12 and by the 16 bytes of their id from version 13 on.
Compiled by Cython (pure Python mode) and correct without it.
"""
# mypy: disallow-untyped-decorators=False

from __future__ import annotations

import struct
from typing import Any, NamedTuple

try:
    import cython
except ImportError:
    from headwater.protocol import without_cython as cython

if cython.compiled:
    from cython.cimports.headwater.protocol.wire import Cursor, length_bytes, string_bytes, uvarint_bytes
else:
    from headwater.protocol.wire import Cursor, length_bytes, string_bytes, uvarint_bytes

_FIRST_FLEXIBLE = cython.declare(cython.int, 12)
_FIRST_WITH_TOPIC_ID = cython.declare(cython.int, 13)
_INT32 = struct.Struct(">i")
_LIMITS = struct.Struct(">iii")
_PARTITION_V4 = struct.Struct(">iqi")
_PARTITION_V5 = struct.Struct(">iqqi")
_PARTITION_V9 = struct.Struct(">iiqqi")
_PARTITION_V12 = struct.Struct(">iiqiqi")
_RESULT_V4 = struct.Struct(">ihqq")
_RESULT_V5 = struct.Struct(">ihqqq")
_ABORTED = struct.Struct(">qq")
_TOP = struct.Struct(">ihi")


class FetchPartition(NamedTuple):
    """What a client wants of one partition. -1 stands for an epoch that it did not give."""

    partition: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    max_bytes: int


class FetchRequest(NamedTuple):
    """A Fetch request; `forgotten` are the partitions that leave an incremental session."""

    replica_id: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    topics: list[tuple[str | bytes, list[FetchPartition]]]
    forgotten: list[tuple[str | bytes, list[int]]]


class PartitionResult(NamedTuple):
    """The answer for one partition; `records` is what stands for them in the reply, `records_size` bytes long."""

    partition: int
    error_code: int
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    aborted: list[tuple[int, int]] | None = None
    records: Any = None
    records_size: int = 0
    diverging_epoch: tuple[int, int] | None = None


def read_request(frame: memoryview, position: cython.Py_ssize_t, version: cython.int) -> FetchRequest:
    """Reads the request body that starts at `position` of `frame`."""
    flexible: cython.bint = version >= _FIRST_FLEXIBLE
    cursor: Cursor = Cursor(frame, position)
    replica_id = cursor.int32() if version < 15 else -1
    max_wait_ms, min_bytes, max_bytes = _LIMITS.unpack_from(frame, cursor.advance(12))
    isolation_level = cursor.int8()
    session_id = cursor.int32() if version >= 7 else 0
    session_epoch = cursor.int32() if version >= 7 else -1
    topics = []
    for _ in range(cursor.array(flexible, 3)):
        topic = cursor.uuid() if version >= _FIRST_WITH_TOPIC_ID else cursor.string(flexible) or ""
        partitions = [_read_partition(cursor, version) for _ in range(cursor.array(flexible, 16))]
        cursor.tags(flexible)
        topics.append((topic, partitions))
    forgotten = []
    for _ in range(cursor.array(flexible, 3) if version >= 7 else 0):
        topic = cursor.uuid() if version >= _FIRST_WITH_TOPIC_ID else cursor.string(flexible) or ""
        forgotten.append((topic, [cursor.int32() for _ in range(cursor.array(flexible, 4))]))
        cursor.tags(flexible)
    if version >= 11:
        cursor.string(flexible)  # the client's rack: there is one replica to choose from
    if flexible:
        replica_id = _read_replica_tag(cursor, version, replica_id)
    return FetchRequest(
        replica_id,
        max_wait_ms,
        min_bytes,
        max_bytes,
        isolation_level,
        session_id,
        session_epoch,
        topics,
        forgotten,
    )


def _read_partition(cursor: Cursor, version: cython.int) -> FetchPartition:
    data = cursor.data
    if version >= 12:
        partition = FetchPartition(*_PARTITION_V12.unpack_from(data, cursor.advance(32)))
        cursor.tags(True)
        return partition
    if version >= 9:
        index, epoch, offset, start, limit = _PARTITION_V9.unpack_from(data, cursor.advance(28))
        return FetchPartition(index, epoch, offset, -1, start, limit)
    if version >= 5:
        index, offset, start, limit = _PARTITION_V5.unpack_from(data, cursor.advance(24))
        return FetchPartition(index, -1, offset, -1, start, limit)
    index, offset, limit = _PARTITION_V4.unpack_from(data, cursor.advance(16))
    return FetchPartition(index, -1, offset, -1, -1, limit)


def _read_replica_tag(cursor: Cursor, version: int, replica_id: int) -> int:
    """The tags at the end of the request; from version 15 on, tag 1 says which replica asks."""
    for _ in range(cursor.tag_count()):
        tag, size = cursor.uvarint(), cursor.uvarint()
        start = cursor.advance(size)
        if tag == 1 and version >= 15 and size >= 4:
            replica_id = _INT32.unpack_from(cursor.data, start)[0]
    return replica_id


def response_parts(
    version: int,
    correlation_id: int,
    error_code: int,
    session_id: int,
    results: list[tuple[str | bytes, list[PartitionResult]]],
) -> list[Any]:
    """The response as bytes and byte ranges in the order of the wire, length first."""
    flexible: cython.bint = version >= _FIRST_FLEXIBLE
    end_of_struct = b"\0" if flexible else b""
    head = _INT32.pack(correlation_id) + end_of_struct
    head += _TOP.pack(0, error_code, session_id) if version >= 7 else b"\0\0\0\0"
    pending = [head, length_bytes(len(results), flexible)]
    parts: list[Any] = []
    total = 0
    for topic, partitions in results:
        pending.append(topic if isinstance(topic, bytes) else string_bytes(topic, flexible))
        pending.append(length_bytes(len(partitions), flexible))
        for result in partitions:
            pending.append(_partition_bytes(result, version, flexible))
            if result.records_size:
                block = b"".join(pending)
                total += len(block) + result.records_size
                parts += (block, result.records)
                pending = []
            pending.append(_partition_tags(result) if flexible else b"")
        pending.append(end_of_struct)
    pending.append(end_of_struct)
    block = b"".join(pending)
    total += len(block)
    if block:
        parts.append(block)
    parts[0] = _INT32.pack(total) + parts[0]
    return parts


def _partition_bytes(result: PartitionResult, version: int, flexible: bool) -> bytes:
    index, error_code, high_watermark, stable, log_start_offset, aborted, _, records_size, _ = result
    if version >= 5:
        data = _RESULT_V5.pack(index, error_code, high_watermark, stable, log_start_offset)
    else:
        data = _RESULT_V4.pack(index, error_code, high_watermark, stable)
    if aborted is None:
        data += b"\0" if flexible else b"\xff\xff\xff\xff"
    else:
        data += length_bytes(len(aborted), flexible)
        data += b"".join(_ABORTED.pack(*entry) + (b"\0" if flexible else b"") for entry in aborted)
    if version >= 11:
        data += b"\xff\xff\xff\xff"  # no other replica is preferred
    return b"".join([data, length_bytes(records_size, flexible)])


def _partition_tags(result: PartitionResult) -> bytes:
    if result.diverging_epoch is None:
        return b"\0"
    epoch, end_offset = result.diverging_epoch
    body = struct.pack(">iqB", epoch, end_offset, 0)
    return b"".join([b"\1\0", uvarint_bytes(len(body)), body])
