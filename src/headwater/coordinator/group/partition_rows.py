"""Partitions as records have them: rows, topic by topic; and the records of members that hold them.

A rebalance writes the same sets of partitions again and again, and replays each twice, when it is decided and when it
is written. So what this broker decides on goes into a record as a set together with its bytes, by the shortest way;
what is read from a log is rows, in the order in which they stand there.
"""

import functools
import struct
from typing import Any, Final, NamedTuple, TypeVar
from uuid import UUID

from headwater.coordinator.group.consumer_partitions import Partitions, by_key, from_rows, topic_id
from headwater.coordinator.schema import ID, INT32, Field, Kind, Struct, array, varint

T = TypeVar("T")
_PROGRESS: Final = struct.Struct(">hiib")
_VERSION: Final = 0
_VERSION_BYTES: Final = b"\0\0"
_NO_TAGS: Final = b"\0"


class TopicPartitions(NamedTuple):
    """Partitions of one topic."""

    topic_id: UUID
    partitions: tuple[int, ...]


class EncodedPartitions:
    """A set of partitions with its bytes; equal to the rows that are read from them."""

    __slots__ = ("encoded", "partitions")

    def __init__(self, partitions: Partitions) -> None:
        self.partitions: Final = partitions
        self.encoded: Final = _encode(partitions)

    @property
    def rows(self) -> tuple[TopicPartitions, ...]:
        """The rows that are read from the bytes, in an order that depends on nothing but the partitions."""
        topics = sorted(by_key(self.partitions).items())
        return tuple([TopicPartitions(topic_id(topic), tuple(numbers)) for topic, numbers in topics])

    def __eq__(self, other: object) -> bool:
        return self.rows == (other.rows if isinstance(other, EncodedPartitions) else other)

    def __hash__(self) -> int:
        return hash(self.rows)


PartitionRows = tuple[TopicPartitions, ...] | EncodedPartitions
encoded: Final = functools.lru_cache(maxsize=1_000)(EncodedPartitions)
"""Partitions as they go into a record."""


def to_partitions(rows: PartitionRows) -> Partitions:
    """The partitions of a record."""
    return rows.partitions if isinstance(rows, EncodedPartitions) else from_rows(rows)


def _encode(partitions: Partitions) -> bytes:
    topics = by_key(partitions)
    parts = [varint(len(topics) + 1)]
    for topic in sorted(topics):
        numbers = topics[topic]
        count = len(numbers)
        parts += topic.to_bytes(16, "big"), varint(count + 1), struct.pack(f">{count}i", *numbers), _NO_TAGS
    return b"".join(parts)


_ROW: Final = Struct(TopicPartitions, Field("topic_id", ID), Field("partitions", array(INT32)), flexible_since=0)
_ROWS: Final = array(_ROW.kind)


def _write(rows: PartitionRows, version: int, flexible: bool) -> bytes:
    return rows.encoded if isinstance(rows, EncodedPartitions) else _ROWS.write(rows, version, flexible)


PARTITION_ROWS: Final = Kind(_ROWS.read, _write)
"""The field of a record that holds partitions."""


class TargetValues(Struct[T]):
    """What a member is to have, quick for what this broker decides."""

    def encode(self, value: Any, version: int) -> bytes:
        """The bytes of a target."""
        rows = value.partitions
        if version != _VERSION or type(rows) is not EncodedPartitions:
            return super().encode(value, version)
        return _VERSION_BYTES + rows.encoded + _NO_TAGS


class CurrentValues(Struct[T]):
    """Where a member is on its way to its target, quick for what this broker decides."""

    def encode(self, value: Any, version: int) -> bytes:
        """The bytes of a member's progress."""
        assigned, pending = value.assigned, value.pending_revocation
        if version != _VERSION or type(assigned) is not EncodedPartitions or type(pending) is not EncodedPartitions:
            return super().encode(value, version)
        head = _PROGRESS.pack(version, value.epoch, value.previous_epoch, value.state)
        return head + assigned.encoded + pending.encoded + _NO_TAGS
