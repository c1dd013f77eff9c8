"""The answer to Metadata: what it says, as bytes.

Clients ask for all topics again and again. As kio's message, 5,000 partitions take 50 to 100 ms of the event
loop; as bytes, a few: a partition with one replica is the same row but for its index and leader epoch. One that is
offline has no leader and its replica among the offline ones, as in Apache.
"""

import struct
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from headwater.broker.services.authorized_operations import NOT_ASKED
from headwater.broker.services.partition import Partition
from headwater.broker.services.turns import Work
from headwater.protocol.errors import ErrorCode
from headwater.protocol.wire import length_bytes, string_bytes

_INT32: Final = struct.Struct(">i")
_INT16: Final = struct.Struct(">h")
_NO_ID: Final = bytes(16)
_ROWS_AT_ONCE: Final = 500

_FIRST_WITH_RACKS: Final = 1
_FIRST_WITH_CLUSTER_ID: Final = 2
_FIRST_WITH_THROTTLING: Final = 3
_FIRST_WITH_OFFLINE_REPLICAS: Final = 5
_FIRST_WITH_LEADER_EPOCHS: Final = 7
_WITH_CLUSTER_OPERATIONS: Final = range(8, 11)
_FIRST_WITH_TOPIC_OPERATIONS: Final = 8
_FIRST_FLEXIBLE: Final = 9
_FIRST_WITH_TOPIC_IDS: Final = 10
_FIRST_WITH_ERROR: Final = 13

RowMaker = Callable[[int, int], bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """The broker as clients reach it."""

    node_id: int
    host: str
    port: int
    rack: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicAnswer:
    """One topic, or why there is none: then `partitions` is empty."""

    error_code: ErrorCode
    name: str | None
    topic_id: UUID | None
    is_internal: bool = False
    partitions: Sequence[Partition] = ()
    operations: int = NOT_ASKED


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataAnswer:
    """All that an answer says; without a `node` it is a refusal of the whole request."""

    node: Node | None
    cluster_id: str | None
    topics: Collection[TopicAnswer]
    cluster_operations: int = NOT_ASKED
    error_code: ErrorCode = ErrorCode.none


def metadata_body(answer: MetadataAnswer, version: int) -> Work[bytes]:
    """Steps to the body of the response in `version`."""
    flexible = version >= _FIRST_FLEXIBLE
    end_of_struct = b"\0" if flexible else b""
    node = answer.node
    node_id = -1 if node is None else node.node_id
    parts = [bytes(4) if version >= _FIRST_WITH_THROTTLING else b""]
    parts.append(length_bytes(0 if node is None else 1, flexible))
    if node is not None:
        parts += (_INT32.pack(node_id), string_bytes(node.host, flexible), _INT32.pack(node.port))
        if version >= _FIRST_WITH_RACKS:
            parts.append(string_bytes(node.rack, flexible))
        parts.append(end_of_struct)
    if version >= _FIRST_WITH_CLUSTER_ID:
        parts.append(string_bytes(answer.cluster_id, flexible))
    if version >= _FIRST_WITH_RACKS:
        parts.append(_INT32.pack(node_id))
    parts.append(length_bytes(len(answer.topics), flexible))
    rows = _row_maker(version, node_id), _row_maker(version, node_id, offline=True)
    for topic in answer.topics:
        yield from _add_topic(parts, topic, version, *rows)
    if version in _WITH_CLUSTER_OPERATIONS:
        parts.append(_INT32.pack(answer.cluster_operations))
    if version >= _FIRST_WITH_ERROR:
        parts.append(_INT16.pack(answer.error_code))
    parts.append(end_of_struct)
    return b"".join(parts)


def _add_topic(
    parts: list[bytes], topic: TopicAnswer, version: int, row: RowMaker, offline_row: RowMaker
) -> Work[None]:
    flexible = version >= _FIRST_FLEXIBLE
    parts += (_INT16.pack(topic.error_code), string_bytes(topic.name, flexible))
    if version >= _FIRST_WITH_TOPIC_IDS:
        parts.append(_NO_ID if topic.topic_id is None else topic.topic_id.bytes)
    if version >= _FIRST_WITH_RACKS:
        parts.append(b"\1" if topic.is_internal else b"\0")
    parts.append(length_bytes(len(topic.partitions), flexible))
    for first in range(0, len(topic.partitions), _ROWS_AT_ONCE):
        some = topic.partitions[first : first + _ROWS_AT_ONCE]
        parts.append(
            b"".join([(offline_row if each.is_offline else row)(each.index, each.leader_epoch) for each in some])
        )
        yield None
    if version >= _FIRST_WITH_TOPIC_OPERATIONS:
        parts.append(_INT32.pack(topic.operations))
    if flexible:
        parts.append(b"\0")
    yield None


def _row_maker(version: int, node_id: int, *, offline: bool = False) -> RowMaker:
    """What turns the index and leader epoch of a partition into its bytes; its only replica leads it or is offline."""
    flexible = version >= _FIRST_FLEXIBLE
    error_code, leader = (ErrorCode.leader_not_available, -1) if offline else (ErrorCode.none, node_id)
    replicas = length_bytes(1, flexible) + _INT32.pack(node_id)
    tail = replicas + replicas
    if version >= _FIRST_WITH_OFFLINE_REPLICAS:
        tail += replicas if offline else length_bytes(0, flexible)
    if flexible:
        tail += b"\0"
    if version < _FIRST_WITH_LEADER_EPOCHS:
        return lambda index, _: _INT16.pack(error_code) + _INT32.pack(index) + _INT32.pack(leader) + tail
    pack = struct.Struct(f">hiii{len(tail)}s").pack
    return lambda index, epoch: pack(error_code, index, leader, epoch, tail)
