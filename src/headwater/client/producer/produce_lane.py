"""Produce as bytes, from the client's side: versions 3 to 13 of the request written, and of the response read.

Record batches are not copied: a request is a list of parts, in which they stand as they are. Sends nothing.
"""

import struct
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, TypeAlias

from headwater.client.leader_hints import NodeEndpoint, read_endpoints
from headwater.protocol.wire import MAX_RESPONSE_ITEMS, Cursor, length_bytes, string_bytes

PRODUCE_KEY: Final = 0
OLDEST_VERSION: Final = 3
NEWEST_VERSION: Final = 13
FIRST_FLEXIBLE_VERSION: Final = 9
_FIRST_VERSION_WITH_LEADERS: Final = 10
FIRST_VERSION_THAT_ADDS_TO_TRANSACTIONS: Final = 12
FIRST_VERSION_WITH_TOPIC_ID: Final = 13

TopicKey: TypeAlias = str | bytes
"""A topic's name, or from version 13 on the 16 bytes of its id."""
Part: TypeAlias = bytes | bytearray | memoryview

_ACKS_AND_TIMEOUT: Final = struct.Struct(">hi")
_INT32: Final = struct.Struct(">i")
_CURRENT_LEADER_TAG: Final = 0


class PartitionAnswer(NamedTuple):
    """What became of one partition's batch; `record_errors` are the index of a record in it and what is wrong."""

    partition: int
    error_code: int
    base_offset: int
    log_append_time_ms: int
    log_start_offset: int
    record_errors: tuple[tuple[int, str | None], ...] = ()
    error_message: str | None = None
    current_leader: tuple[int, int] | None = None
    """Node and epoch, where a broker says that another one leads (version 10 on)."""


class ProduceAnswer(NamedTuple):
    """The answers of a response by topic, and where the leaders are that it names."""

    topics: list[tuple[TopicKey, list[PartitionAnswer]]]
    endpoints: list[NodeEndpoint]


def encode_produce(
    version: int,
    transactional_id: str | None,
    acks: int,
    timeout_ms: int,
    topics: Iterable[tuple[TopicKey, Sequence[tuple[int, Part]]]],
) -> list[Part]:
    """The body of a request: for each topic its partitions, each with one batch."""
    flexible = version >= FIRST_FLEXIBLE_VERSION
    end_of_struct = b"\0" if flexible else b""
    listed = list(topics)
    head = string_bytes(transactional_id, flexible) + _ACKS_AND_TIMEOUT.pack(acks, timeout_ms)
    # What stands between two batches is gathered, so that there are few parts besides the batches themselves.
    gathered = bytearray(head + length_bytes(len(listed), flexible))
    parts: list[Part] = []
    for topic, partitions in listed:
        gathered += topic if isinstance(topic, bytes) else string_bytes(topic, flexible)
        gathered += length_bytes(len(partitions), flexible)
        for partition, records in partitions:
            gathered += _INT32.pack(partition) + length_bytes(len(records), flexible)
            parts += (gathered, records)
            gathered = bytearray(end_of_struct)
        gathered += end_of_struct
    gathered += end_of_struct
    if gathered:
        parts.append(gathered)
    return parts


def decode_produce(version: int, body: memoryview) -> ProduceAnswer:
    """The response in these bytes; `MalformedRequestError` when they are none."""
    flexible = version >= FIRST_FLEXIBLE_VERSION
    cursor = Cursor(body, 0, MAX_RESPONSE_ITEMS)
    topics: list[tuple[TopicKey, list[PartitionAnswer]]] = []
    for _ in range(cursor.array(flexible, 3)):
        with_id = version >= FIRST_VERSION_WITH_TOPIC_ID
        topic: TopicKey = cursor.uuid() if with_id else cursor.string(flexible) or ""
        answers = [_partition(cursor, version, flexible) for _ in range(cursor.array(flexible, 22))]
        cursor.tags(flexible)
        topics.append((topic, answers))
    endpoints: list[NodeEndpoint] = []
    if version >= _FIRST_VERSION_WITH_LEADERS:
        cursor.int32()  # how long we are asked to wait, which nothing is made of here
        endpoints = read_endpoints(cursor)
    return ProduceAnswer(topics, endpoints)


def _partition(cursor: Cursor, version: int, flexible: bool) -> PartitionAnswer:
    partition, error_code = cursor.int32(), cursor.int16()
    base_offset, log_append_time_ms = cursor.int64(), cursor.int64()
    log_start_offset = cursor.int64() if version >= 5 else -1
    record_errors: tuple[tuple[int, str | None], ...] = ()
    error_message = None
    if version >= 8:
        record_errors = tuple([_record_error(cursor, flexible) for _ in range(cursor.array(flexible, 5))])
        error_message = cursor.string(flexible)
    leader = None
    if version >= _FIRST_VERSION_WITH_LEADERS:
        leader = _current_leader(cursor)
    else:
        cursor.tags(flexible)
    return PartitionAnswer(
        partition, error_code, base_offset, log_append_time_ms, log_start_offset, record_errors, error_message, leader
    )


def _current_leader(cursor: Cursor) -> tuple[int, int] | None:
    """The tagged fields of a partition, of which one is its leader's node and epoch."""
    leader = None
    for _ in range(cursor.tag_count()):
        tag, size = cursor.uvarint(), cursor.uvarint()
        start = cursor.advance(size)
        if tag == _CURRENT_LEADER_TAG:
            content = Cursor(cursor.data[start : start + size], 0)
            leader = content.int32(), content.int32()
    return leader


def _record_error(cursor: Cursor, flexible: bool) -> tuple[int, str | None]:
    found = cursor.int32(), cursor.string(flexible)
    cursor.tags(flexible)
    return found
