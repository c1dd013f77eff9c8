"""The bytes that members of protocol type `consumer` hand each other through the classic protocol.

Clients write and read them; the broker looks into them only where a group may hold members of both protocols. Versions
newer than 3 are read as 3, whose fields they begin with.
"""

from dataclasses import dataclass
from typing import Any, Final

from headwater.coordinator.schema import (
    BYTES,
    INT16,
    INT32,
    STRING,
    CorruptRecordError,
    Field,
    Kind,
    Reader,
    Struct,
    array,
)

PROTOCOL_TYPE: Final = "consumer"
_NEWEST: Final = 3


@dataclass(frozen=True, slots=True)
class NamedPartitions:
    """Partitions of one topic, by its name."""

    topic: str
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """What a member says when it joins."""

    topics: tuple[str, ...]
    user_data: bytes | None = None
    owned: tuple[NamedPartitions, ...] = ()
    generation: int = -1
    rack_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """What a member is given."""

    partitions: tuple[NamedPartitions, ...]
    user_data: bytes | None = None


def _present(kind: Kind) -> Kind:
    """`kind`, but null is an error."""

    def read(reader: Reader, version: int, flexible: bool) -> Any:
        value = kind.read(reader, version, flexible)
        if value is None:
            raise CorruptRecordError(f"null before {reader.position}, where the consumer protocol has none")
        return value

    return Kind(read, kind.write)


_PARTITIONS: Final = Struct(
    NamedPartitions, Field("topic", _present(STRING)), Field("partitions", _present(array(INT32)))
)
_SUBSCRIPTION: Final = Struct(
    Subscription,
    Field("topics", _present(array(_present(STRING)))),
    Field("user_data", BYTES),
    Field("owned", _present(array(_PARTITIONS.kind)), since=1),
    Field("generation", INT32, since=2),
    Field("rack_id", STRING, since=3),
)
_ASSIGNMENT: Final = Struct(
    Assignment, Field("partitions", _present(array(_PARTITIONS.kind))), Field("user_data", BYTES)
)


def version_of(data: bytes) -> int:
    """The version that these bytes are read with."""
    version: int = INT16.read(Reader(data), 0, False)
    if version < 0:
        raise CorruptRecordError(f"version {version} of the consumer protocol is not known")
    return min(version, _NEWEST)


def read_subscription(data: bytes) -> Subscription:
    """The subscription of a member; `CorruptRecordError` when the bytes are none."""
    return _SUBSCRIPTION.decode(_as_known(data), _NEWEST)


def read_assignment(data: bytes) -> Assignment:
    """The assignment of a member; no bytes stand for no partitions. `CorruptRecordError` when they are none."""
    return _ASSIGNMENT.decode(_as_known(data), _NEWEST) if data else Assignment(partitions=())


def write_assignment(assignment: Assignment, version: int) -> bytes:
    """The bytes of an assignment, in the version that its reader speaks."""
    return _ASSIGNMENT.encode(assignment, version)


def write_subscription(subscription: Subscription, version: int = _NEWEST) -> bytes:
    """The bytes of a subscription."""
    return _SUBSCRIPTION.encode(subscription, version)


def _as_known(data: bytes) -> bytes:
    known: bytes = INT16.write(version_of(data), 0, False)
    return known + data[2:]


def answer_version(subscription: bytes) -> int:
    """The version to write an assignment in for the client that wrote `subscription`."""
    try:
        return version_of(subscription)
    except CorruptRecordError:
        return 0
