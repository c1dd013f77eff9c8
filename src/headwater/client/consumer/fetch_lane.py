"""Fetch as bytes, from the client's side: writes the request and reads the answer, whose records stay where they are.

Versions 4 to 17. Topics go by name up to version 12 and by the 16 bytes of their id from version 13 on. No I/O and no
state: sessions are numbers that the caller keeps. Compiled by Cython (pure Python mode) and correct without it.
"""
# mypy: disallow-untyped-decorators=False

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from headwater.client.errors import NotKafkaError
from headwater.client.leader_hints import NodeEndpoint, read_endpoints
from headwater.protocol.errors import MalformedRequestError
from headwater.protocol.fetch_lane import FetchPartition
from headwater.protocol.wire import MAX_RESPONSE_ITEMS

try:
    import cython
except ImportError:
    from headwater.protocol import without_cython as cython

if cython.compiled:
    from cython.cimports.headwater.protocol.wire import Cursor, length_bytes, string_bytes
else:
    from headwater.protocol.wire import Cursor, length_bytes, string_bytes

__all__ = [
    "NEWEST_VERSION",
    "OLDEST_VERSION",
    "FetchAnswer",
    "FetchPartition",
    "PartitionAnswer",
    "Topic",
    "decode_fetch",
    "encode_fetch",
]

OLDEST_VERSION = 4
NEWEST_VERSION = 17

Topic: TypeAlias = str | bytes
"""A topic's name, or from version 13 on the 16 bytes of its id."""

_FIRST_FLEXIBLE = cython.declare(cython.int, 12)
_FIRST_WITH_TOPIC_ID = cython.declare(cython.int, 13)
_FIRST_WITH_ENDPOINTS = cython.declare(cython.int, 16)
# An error code, three offsets and empty lists of aborted transactions and records take more than this.
_SMALLEST_PARTITION_BYTES = cython.declare(cython.int, 30)
_ABORTED_BYTES = cython.declare(cython.int, 16)
_INT32 = struct.Struct(">i")
_INT32_PAIR = struct.Struct(">ii")
_LIMITS = struct.Struct(">iiib")
_PARTITION_V4 = struct.Struct(">iqi")
_PARTITION_V5 = struct.Struct(">iqqi")
_PARTITION_V9 = struct.Struct(">iiqqi")
_PARTITION_V12 = struct.Struct(">iiqiqib")
_ANSWER_V4 = struct.Struct(">ihqq")
_ANSWER_V5 = struct.Struct(">ihqqq")
_ABORTED = struct.Struct(">qq")
_EPOCH_AND_OFFSET = struct.Struct(">iq")


class PartitionAnswer(NamedTuple):
    """What a broker says about one partition; -1 stands for an offset or a replica that it does not name.

    `aborted` are pairs of producer id and first offset, for those who read committed records only. `records` is a part
    of the answer's own memory. `diverging_epoch` (epoch and its end offset) and `current_leader` (node and epoch) are
    None unless the broker has cause to tell.
    """

    topic: Topic
    partition: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: list[tuple[int, int]] | None
    preferred_read_replica: int
    records: memoryview
    diverging_epoch: tuple[int, int] | None
    current_leader: tuple[int, int] | None


class FetchAnswer(NamedTuple):
    """The answer to a Fetch. In a session only partitions with news are in it."""

    throttle_ms: int
    error_code: int
    session_id: int
    partitions: list[PartitionAnswer]
    endpoints: list[NodeEndpoint]


def encode_fetch(
    version: cython.int,
    topics: Sequence[tuple[Topic, Sequence[FetchPartition]]],
    *,
    max_wait_ms: int,
    min_bytes: int,
    max_bytes: int,
    isolation_level: int = 0,
    session_id: int = 0,
    session_epoch: int = -1,
    forgotten: Sequence[tuple[Topic, Sequence[int]]] = (),
    rack_id: str = "",
) -> list[bytes]:
    """The body of a consumer's Fetch request; what a version has no field for is left out.

    Session 0 with epoch -1 asks for no session, with epoch 0 for a new one.

    >>> wanted = FetchPartition(0, -1, 42, -1, -1, 1 << 20)
    >>> body = encode_fetch(12, [("orders", [wanted])], max_wait_ms=500, min_bytes=1, max_bytes=50 << 20)
    """
    flexible: cython.bint = version >= _FIRST_FLEXIBLE
    if not OLDEST_VERSION <= version <= NEWEST_VERSION:
        raise ValueError(f"Fetch version {version} is not spoken here, only {OLDEST_VERSION} to {NEWEST_VERSION}")
    end_of_struct = b"\0" if flexible else b""
    # From version 15 on the replica that asks is a tagged field, which consumers leave out.
    parts = [b"\xff\xff\xff\xff"] if version < 15 else []
    parts.append(_LIMITS.pack(max_wait_ms, min_bytes, max_bytes, isolation_level))
    if version >= 7:
        parts.append(_INT32_PAIR.pack(session_id, session_epoch))
    parts.append(length_bytes(len(topics), flexible))
    for topic, partitions in topics:
        parts.append(_topic_bytes(topic, version))
        parts.append(length_bytes(len(partitions), flexible))
        parts += [_partition_bytes(partition, version) for partition in partitions]
        parts.append(end_of_struct)
    if version >= 7:
        parts.append(length_bytes(len(forgotten), flexible))
        for topic, indexes in forgotten:
            parts.append(_topic_bytes(topic, version))
            parts.append(length_bytes(len(indexes), flexible))
            parts += [_INT32.pack(index) for index in indexes]
            parts.append(end_of_struct)
    if version >= 11:
        parts.append(string_bytes(rack_id, flexible))
    parts.append(end_of_struct)
    return [b"".join(parts)]


def _topic_bytes(topic: Topic, version: int) -> bytes:
    if version < _FIRST_WITH_TOPIC_ID:
        if not isinstance(topic, str):
            raise TypeError(f"Fetch version {version} takes topics by name, not {topic!r}")
        name: bytes = string_bytes(topic, version >= _FIRST_FLEXIBLE)
        return name
    if not isinstance(topic, bytes) or len(topic) != 16:
        raise TypeError(f"Fetch version {version} takes topics by the 16 bytes of their id, not {topic!r}")
    return topic


def _partition_bytes(wanted: FetchPartition, version: int) -> bytes:
    index, leader_epoch, offset, last_fetched_epoch, log_start_offset, max_bytes = wanted
    if version >= 12:
        # The last byte says that no tagged fields follow.
        return _PARTITION_V12.pack(index, leader_epoch, offset, last_fetched_epoch, log_start_offset, max_bytes, 0)
    if version >= 9:
        return _PARTITION_V9.pack(index, leader_epoch, offset, log_start_offset, max_bytes)
    if version >= 5:
        return _PARTITION_V5.pack(index, offset, log_start_offset, max_bytes)
    return _PARTITION_V4.pack(index, offset, max_bytes)


def decode_fetch(version: int, body: memoryview) -> FetchAnswer:
    """The answer in these bytes, which begin behind the response header; NotKafkaError if they are none.

    The memory of `body` is referred to and never copied: it has to stay as it is while the records are in use.
    """
    if not OLDEST_VERSION <= version <= NEWEST_VERSION:
        raise ValueError(f"Fetch version {version} is not spoken here, only {OLDEST_VERSION} to {NEWEST_VERSION}")
    try:
        return _read_answer(Cursor(body, 0, MAX_RESPONSE_ITEMS), version)
    except MalformedRequestError as error:
        words = f"a broker answered a fetch (version {version}) with bytes that make no sense: {error}"
        raise NotKafkaError(words) from error


def _read_answer(cursor: Cursor, version: cython.int) -> FetchAnswer:
    flexible: cython.bint = version >= _FIRST_FLEXIBLE
    throttle_ms = cursor.int32()
    error_code = cursor.int16() if version >= 7 else 0
    session_id = cursor.int32() if version >= 7 else 0
    partitions: list[PartitionAnswer] = []
    for _ in range(cursor.array(flexible, 3)):
        topic = cursor.uuid() if version >= _FIRST_WITH_TOPIC_ID else cursor.string(flexible) or ""
        for _ in range(cursor.array(flexible, _SMALLEST_PARTITION_BYTES)):
            partitions.append(_read_partition(cursor, topic, version))  # noqa: PERF401
        cursor.tags(flexible)
    endpoints: list[NodeEndpoint] = []
    if version >= _FIRST_WITH_ENDPOINTS:
        endpoints = read_endpoints(cursor)
    else:
        cursor.tags(flexible)
    return FetchAnswer(throttle_ms, error_code, session_id, partitions, endpoints)


def _read_partition(cursor: Cursor, topic: Topic, version: cython.int) -> PartitionAnswer:
    flexible: cython.bint = version >= _FIRST_FLEXIBLE
    start: cython.Py_ssize_t
    size: cython.longlong
    log_start_offset = -1
    if version >= 5:
        answer = _ANSWER_V5.unpack_from(cursor.data, cursor.advance(30))
        index, error_code, high_watermark, stable_offset, log_start_offset = answer
    else:
        index, error_code, high_watermark, stable_offset = _ANSWER_V4.unpack_from(cursor.data, cursor.advance(22))
    aborted = _read_aborted(cursor, flexible)
    preferred = cursor.int32() if version >= 11 else -1
    size = cursor.length(flexible)
    start = cursor.advance(size if size > 0 else 0)
    records = cursor.data[start : cursor.position]
    diverging, leader = _read_partition_tags(cursor) if flexible else (None, None)
    return PartitionAnswer(
        topic,
        index,
        error_code,
        high_watermark,
        stable_offset,
        log_start_offset,
        aborted,
        preferred,
        records,
        diverging,
        leader,
    )


def _read_aborted(cursor: Cursor, flexible: cython.bint) -> list[tuple[int, int]] | None:
    aborted: list[tuple[int, int]] = []
    size: cython.longlong = cursor.items(flexible, _ABORTED_BYTES)
    if size < 0:
        return None
    for _ in range(size):
        producer_id, first_offset = _ABORTED.unpack_from(cursor.data, cursor.advance(_ABORTED_BYTES))
        cursor.tags(flexible)
        aborted.append((producer_id, first_offset))
    return aborted


def _read_partition_tags(cursor: Cursor) -> tuple[tuple[int, int] | None, tuple[int, int] | None]:
    """Tag 0 is where the log diverges from the client's, tag 1 the current leader; all others are of no concern."""
    tag: cython.longlong
    start: cython.Py_ssize_t
    diverging = leader = None
    for _ in range(cursor.tag_count()):
        tag = cursor.uvarint()
        size = cursor.uvarint()
        start = cursor.advance(size)
        if tag == 0:
            diverging = _EPOCH_AND_OFFSET.unpack_from(_tag_content(cursor, start, size, 12))
        elif tag == 1:
            leader = _INT32_PAIR.unpack_from(_tag_content(cursor, start, size, 8))
    return diverging, leader


def _tag_content(cursor: Cursor, start: int, size: int, smallest_bytes: int) -> memoryview:
    if size < smallest_bytes:
        raise MalformedRequestError(f"a tagged field of {size} bytes at {start}, where {smallest_bytes} are needed")
    content: memoryview = cursor.data[start : start + size]
    return content
