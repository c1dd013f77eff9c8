"""What members of a classic consumer group tell each other, as bytes: subscriptions, assignments, sticky user data.

Pure. The bytes themselves are `coordinator.group.consumer_protocol`'s, which the broker reads too; here they get the
shape that assignors work with, and errors that a client may show.
"""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from headwater.client.errors import ClientError
from headwater.coordinator.group import consumer_protocol
from headwater.coordinator.group.consumer_protocol import PROTOCOL_TYPE, NamedPartitions
from headwater.coordinator.schema import CorruptRecordError
from headwater.types import TopicPartition

__all__ = [
    "NO_GENERATION",
    "PROTOCOL_TYPE",
    "StickyUserData",
    "Subscription",
    "decode_assignment",
    "decode_generation",
    "decode_sticky_user_data",
    "decode_subscription",
    "encode_assignment",
    "encode_generation",
    "encode_sticky_user_data",
    "encode_subscription",
]

NO_GENERATION: Final = -1
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """What the leader knows of a member: its topics, what it owns since which generation, where it runs.

    A negative generation stands for none; the instance id comes from the group, not from these bytes.
    """

    topics: tuple[str, ...]
    user_data: bytes | None = None
    owned: tuple[TopicPartition, ...] = ()
    generation: int = NO_GENERATION
    rack: str | None = None
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class StickyUserData:
    """What a member of the sticky assignor had before it gave everything up; old clients name no generation."""

    owned: tuple[TopicPartition, ...] = ()
    generation: int | None = None


def encode_subscription(subscription: Subscription, version: int = 3) -> bytes:
    """The bytes of a subscription, topics and partitions sorted as Java's clients sort them."""
    return consumer_protocol.write_subscription(
        consumer_protocol.Subscription(
            topics=tuple(sorted(subscription.topics)),
            user_data=subscription.user_data,
            owned=_by_topic(sorted(subscription.owned)),
            generation=max(subscription.generation, NO_GENERATION),
            rack_id=subscription.rack,
        ),
        version,
    )


def decode_subscription(data: bytes, *, member: str = "?", instance_id: str | None = None) -> Subscription:
    """The subscription of `member` in version 0 to 3, newer ones as far as they are known."""
    try:
        found = consumer_protocol.read_subscription(data)
    except CorruptRecordError as error:
        raise ClientError(f"the subscription of member {member} cannot be read: {error}") from error
    return Subscription(
        topics=found.topics,
        user_data=found.user_data,
        owned=_flat(found.owned),
        generation=found.generation,
        rack=found.rack_id or None,
        instance_id=instance_id,
    )


def encode_assignment(partitions: Iterable[TopicPartition], version: int = 3) -> bytes:
    """The bytes of what one member is given."""
    return consumer_protocol.write_assignment(consumer_protocol.Assignment(partitions=_by_topic(partitions)), version)


def decode_assignment(data: bytes) -> tuple[TopicPartition, ...]:
    """The partitions that the leader gave us; no bytes at all are none."""
    try:
        return _flat(consumer_protocol.read_assignment(data).partitions)
    except CorruptRecordError as error:
        raise ClientError(f"the assignment that the group's leader made cannot be read: {error}") from error


def encode_sticky_user_data(owned: Iterable[TopicPartition], generation: int) -> bytes:
    """Version 1 of the sticky assignor's user data."""
    topics = _by_topic(owned)
    parts = [_INT32.pack(len(topics))]
    for entry in topics:
        name = entry.topic.encode()
        count = len(entry.partitions)
        parts += [_INT16.pack(len(name)), name, struct.pack(f">i{count}i", count, *entry.partitions)]
    return b"".join([*parts, _INT32.pack(generation)])


def decode_sticky_user_data(data: bytes | None) -> StickyUserData:
    """Version 1, else version 0 without a generation; what is neither tells nothing, as in Java."""
    if not data:
        return StickyUserData()
    try:
        owned, position = _read_owned(data)
    except (struct.error, UnicodeDecodeError, ValueError):
        return StickyUserData((), NO_GENERATION)
    if len(data) - position < _INT32.size:
        return StickyUserData(owned, None)
    return StickyUserData(owned, _INT32.unpack_from(data, position)[0])


def encode_generation(generation: int) -> bytes:
    """The user data of the cooperative sticky assignor."""
    return _INT32.pack(generation)


def decode_generation(data: bytes | None) -> int | None:
    """The generation in the cooperative sticky assignor's user data, None where there is none."""
    if data is None:
        return None
    return int(_INT32.unpack_from(data)[0]) if len(data) >= _INT32.size else NO_GENERATION


def _read_owned(data: bytes) -> tuple[tuple[TopicPartition, ...], int]:
    owned: list[TopicPartition] = []
    topics, position = _read_count(data, 0)
    for _ in range(topics):
        size = _INT16.unpack_from(data, position)[0]
        position += _INT16.size
        if not 0 <= size <= len(data) - position:
            raise ValueError(f"a name of {size} bytes")
        name = data[position : position + size].decode()
        partitions, position = _read_count(data, position + size)
        owned += (TopicPartition(name, n) for n in struct.unpack_from(f">{partitions}i", data, position))
        position += _INT32.size * partitions
    return tuple(owned), position


def _read_count(data: bytes, position: int) -> tuple[int, int]:
    count = int(_INT32.unpack_from(data, position)[0])
    position += _INT32.size
    if not 0 <= count <= len(data) - position:
        raise ValueError(f"{count} entries")
    return count, position


def _by_topic(partitions: Iterable[TopicPartition]) -> tuple[NamedPartitions, ...]:
    """Grouped by topic, topics in the order in which they first occur."""
    found: dict[str, list[int]] = {}
    for topic, partition in partitions:
        found.setdefault(topic, []).append(partition)
    return tuple(NamedPartitions(topic, tuple(numbers)) for topic, numbers in found.items())


def _flat(topics: Sequence[NamedPartitions]) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(entry.topic, number) for entry in topics for number in entry.partitions)
