"""The records of `__consumer_offsets`, by the number their keys begin with; Kafka 4.1's formats.

Values are written in the newest version that Apache 4.1 writes itself; every older one is read. Key types that are not
here (share and streams groups) are passed over when a log is loaded.
"""

from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from uuid import UUID

from headwater.coordinator.group.offsets_layout import CachedKeys, OffsetValues
from headwater.coordinator.group.partition_rows import PARTITION_ROWS, CurrentValues, PartitionRows, TargetValues
from headwater.coordinator.outcome import CoordinatorRecord
from headwater.coordinator.schema import (
    BYTES,
    ID,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    CorruptRecordError,
    Field,
    Reader,
    Struct,
    array,
    nullable,
)


class OffsetKey(NamedTuple):
    """Whose offset: the key of a committed offset."""

    group: str
    topic: str
    partition: int


class GroupKey(NamedTuple):
    """The key of what a classic group, or a consumer group as a whole, keeps."""

    group: str


class MemberKey(NamedTuple):
    """The key of what is kept for one member of a consumer group."""

    group: str
    member_id: str


class RegexKey(NamedTuple):
    """The key of what a pattern of a consumer group matched."""

    group: str
    pattern: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetValue:
    """A committed offset."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_timestamp_ms: int
    expire_timestamp_ms: int = -1
    topic_id: UUID | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicMemberValue:
    """A member of a classic group."""

    member_id: str
    instance_id: str | None = None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int = -1
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicGroupValue:
    """A classic group after a rebalance: everything that a restart must know of it."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_timestamp_ms: int = -1
    members: tuple[ClassicMemberValue, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupValue:
    """A consumer group's epoch, and a hash of what its topics look like."""

    epoch: int
    metadata_hash: int = 0


@dataclass(frozen=True, slots=True)
class ClassicProtocol:
    """A protocol that a classic member of a consumer group supports."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True)
class ClassicMetadata:
    """What a consumer group keeps of a member that still speaks the classic protocol."""

    session_timeout_ms: int
    protocols: tuple[ClassicProtocol, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMemberValue:
    """What a member of a consumer group told about itself."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str
    client_host: str
    subscribed_topics: tuple[str, ...]
    subscribed_regex: str | None = None
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    classic: ClassicMetadata | None = None


@dataclass(frozen=True, slots=True)
class TargetEpochValue:
    """The group epoch that the target assignment was made for."""

    epoch: int


@dataclass(frozen=True, slots=True)
class TargetMemberValue:
    """The partitions that a member is to have."""

    partitions: PartitionRows


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentMemberValue:
    """Where a member is on its way to its target."""

    epoch: int
    previous_epoch: int
    state: int
    assigned: PartitionRows
    pending_revocation: PartitionRows


@dataclass(frozen=True, slots=True, kw_only=True)
class RegexValue:
    """The topics that a pattern matched."""

    topics: tuple[str, ...]
    version: int
    timestamp_ms: int


_CLASSIC_MEMBER: Final = Struct(
    ClassicMemberValue,
    Field("member_id", STRING),
    Field("instance_id", STRING, since=3),
    Field("client_id", STRING),
    Field("client_host", STRING),
    Field("rebalance_timeout_ms", INT32, since=1),
    Field("session_timeout_ms", INT32),
    Field("subscription", BYTES),
    Field("assignment", BYTES),
    flexible_since=4,
)
_CLASSIC_PROTOCOL: Final = Struct(ClassicProtocol, Field("name", STRING), Field("metadata", BYTES), flexible_since=0)
_CLASSIC_METADATA: Final = Struct(
    ClassicMetadata,
    Field("session_timeout_ms", INT32),
    Field("protocols", array(_CLASSIC_PROTOCOL.kind)),
    flexible_since=0,
)
_GROUP_KEY: Final[Struct[Any]] = CachedKeys(GroupKey, Field("group", STRING))
_MEMBER_KEY: Final[Struct[Any]] = CachedKeys(MemberKey, Field("group", STRING), Field("member_id", STRING))


@dataclass(frozen=True, slots=True)
class RecordType:
    """One kind of record: the number of its key, its layouts, the value version that is written and the newest."""

    number: int
    key: Struct[Any]
    value: Struct[Any]
    written_version: int = 0
    newest_version: int = 0

    def record(self, key: object, value: object | None, version: int | None = None) -> CoordinatorRecord:
        """A record of this kind; a tombstone without a value. `version` where another than the usual one is needed."""
        encoded_key = self.key.encode(key, self.number)
        if version is not None:
            return CoordinatorRecord(encoded_key, None if value is None else self.value.encode(value, version))
        encoded = None if value is None else self.value.encode(value, self.written_version)
        return CoordinatorRecord(encoded_key, encoded, (self, key, value))


OFFSET: Final = RecordType(
    1,
    CachedKeys(OffsetKey, Field("group", STRING), Field("topic", STRING), Field("partition", INT32)),
    OffsetValues(
        OffsetValue,
        Field("offset", INT64),
        Field("leader_epoch", INT32, since=3),
        Field("metadata", STRING),
        Field("commit_timestamp_ms", INT64),
        Field("expire_timestamp_ms", INT64, since=1, until=1),
        Field("topic_id", ID, since=4, tag=0),
        flexible_since=4,
    ),
    written_version=4,
    newest_version=4,
)
CLASSIC_GROUP: Final = RecordType(
    2,
    _GROUP_KEY,
    Struct(
        ClassicGroupValue,
        Field("protocol_type", STRING),
        Field("generation", INT32),
        Field("protocol", STRING),
        Field("leader", STRING),
        Field("state_timestamp_ms", INT64, since=2),
        Field("members", array(_CLASSIC_MEMBER.kind)),
        flexible_since=4,
    ),
    written_version=3,
    newest_version=4,
)
CONSUMER_GROUP: Final = RecordType(
    3,
    _GROUP_KEY,
    Struct(ConsumerGroupValue, Field("epoch", INT32), Field("metadata_hash", INT64, tag=0), flexible_since=0),
)
CONSUMER_MEMBER: Final = RecordType(
    5,
    _MEMBER_KEY,
    Struct(
        ConsumerMemberValue,
        Field("instance_id", STRING),
        Field("rack_id", STRING),
        Field("client_id", STRING),
        Field("client_host", STRING),
        Field("subscribed_topics", array(STRING)),
        Field("subscribed_regex", STRING),
        Field("rebalance_timeout_ms", INT32),
        Field("server_assignor", STRING),
        # Kafka's schema means null for one that is left out, its generated code an empty one.
        Field("classic", nullable(_CLASSIC_METADATA.kind), tag=0, absent=ClassicMetadata(0, ())),
        flexible_since=0,
    ),
)
TARGET_EPOCH: Final = RecordType(6, _GROUP_KEY, Struct(TargetEpochValue, Field("epoch", INT32), flexible_since=0))
TARGET_MEMBER: Final = RecordType(
    7,
    _MEMBER_KEY,
    TargetValues(TargetMemberValue, Field("partitions", PARTITION_ROWS), flexible_since=0),
)
CURRENT_MEMBER: Final = RecordType(
    8,
    _MEMBER_KEY,
    CurrentValues(
        CurrentMemberValue,
        Field("epoch", INT32),
        Field("previous_epoch", INT32),
        Field("state", INT8),
        Field("assigned", PARTITION_ROWS),
        Field("pending_revocation", PARTITION_ROWS),
        flexible_since=0,
    ),
)
REGEX: Final = RecordType(
    16,
    Struct(RegexKey, Field("group", STRING), Field("pattern", STRING)),
    Struct(
        RegexValue,
        Field("topics", array(STRING)),
        Field("version", INT64),
        Field("timestamp_ms", INT64),
        flexible_since=0,
    ),
)

_BY_NUMBER: Final = {
    kind.number: kind
    for kind in (
        OFFSET,
        CLASSIC_GROUP,
        CONSUMER_GROUP,
        CONSUMER_MEMBER,
        TARGET_EPOCH,
        TARGET_MEMBER,
        CURRENT_MEMBER,
        REGEX,
    )
}
# Keys of the first committed offsets had the number 0, with the same fields.
_BY_NUMBER[0] = OFFSET


def decode(key: bytes, value: bytes | None) -> tuple[RecordType, Any, Any] | None:
    """The kind of a record, its key and its value (None for a tombstone); None for a kind that is not served.

    CorruptRecordError when the bytes are no record.
    """
    number = INT16.read(Reader(key), 0, False)
    kind = _BY_NUMBER.get(number)
    if kind is None:
        if number < 0:
            raise CorruptRecordError(f"a key begins with {number}")
        return None
    decoded = None if value is None else kind.value.decode(value, kind.newest_version)
    return kind, kind.key.decode(key, number), decoded
