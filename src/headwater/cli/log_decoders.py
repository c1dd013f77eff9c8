"""Records of the internal topics as the JSON that Kafka's DumpLogSegments prints for them.

The bytes are read by the coordinators' own tables; here are Kafka's names for what they hold, in Kafka's order, and the
versions that a field is shown in. Records of share and streams groups are left out: headwater serves none.
"""

import base64
import re
import struct
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from uuid import UUID

from headwater.coordinator.group import consumer_protocol
from headwater.coordinator.group import records as groups
from headwater.coordinator.group.partition_rows import TopicPartitions
from headwater.coordinator.schema import ID, INT32, STRING, CorruptRecordError, Field, Struct, array
from headwater.coordinator.transaction import records as transactions
from headwater.protocol.records import Record

_VERSION: Final = struct.Struct(">h")
_ALWAYS: Final = object()
_CONSUMER_PROTOCOL_VERSIONS: Final = range(4)


class _Shown(NamedTuple):
    """A field under Kafka's name; not shown before `since`, after `until`, or when it is `unless`."""

    attribute: str
    name: str
    since: int = 0
    until: int = 99
    unless: object = _ALWAYS


@dataclass(frozen=True, slots=True)
class _PartitionRacks:
    partition: int
    racks: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class _TopicMetadata:
    topic_id: UUID
    topic_name: str
    partition_count: int
    racks: tuple[_PartitionRacks, ...] | None


@dataclass(frozen=True, slots=True)
class _GroupTopics:
    topics: tuple[_TopicMetadata, ...] | None


_RACKS: Final = Struct(_PartitionRacks, Field("partition", INT32), Field("racks", array(STRING)), flexible_since=0)
_TOPIC_METADATA: Final = Struct(
    _TopicMetadata,
    Field("topic_id", ID),
    Field("topic_name", STRING),
    Field("partition_count", INT32),
    Field("racks", array(_RACKS.kind)),
    flexible_since=0,
)
# Kafka 4.0 wrote what a group's topics look like; since 4.1 a hash says it, and of this only tombstones are written.
_GROUP_TOPICS: Final = groups.RecordType(
    4,
    Struct(groups.GroupKey, Field("group", STRING)),
    Struct(_GroupTopics, Field("topics", array(_TOPIC_METADATA.kind)), flexible_since=0),
)

_KEY_NAMES: Final = {
    0: ("group", "topic", "partition"),
    1: ("group", "topic", "partition"),
    2: ("group",),
    3: ("groupId",),
    4: ("groupId",),
    5: ("groupId", "memberId"),
    6: ("groupId",),
    7: ("groupId", "memberId"),
    8: ("groupId", "memberId"),
    16: ("groupId", "regularExpression"),
}
_VALUE_NAMES: Final[dict[type, tuple[_Shown, ...]]] = {
    groups.OffsetValue: (
        _Shown("offset", "offset"),
        _Shown("leader_epoch", "leaderEpoch", since=3),
        _Shown("metadata", "metadata"),
        _Shown("commit_timestamp_ms", "commitTimestamp"),
        _Shown("expire_timestamp_ms", "expireTimestamp", since=1, until=1),
        _Shown("topic_id", "topicId", since=4, unless=None),
    ),
    groups.ClassicGroupValue: (
        _Shown("protocol_type", "protocolType"),
        _Shown("generation", "generation"),
        _Shown("protocol", "protocol"),
        _Shown("leader", "leader"),
        _Shown("state_timestamp_ms", "currentStateTimestamp", since=2),
        _Shown("members", "members"),
    ),
    groups.ClassicMemberValue: (
        _Shown("member_id", "memberId"),
        _Shown("instance_id", "groupInstanceId", since=3),
        _Shown("client_id", "clientId"),
        _Shown("client_host", "clientHost"),
        _Shown("rebalance_timeout_ms", "rebalanceTimeout", since=1),
        _Shown("session_timeout_ms", "sessionTimeout"),
        _Shown("subscription", "subscription"),
        _Shown("assignment", "assignment"),
    ),
    groups.ConsumerGroupValue: (
        _Shown("epoch", "epoch"),
        _Shown("metadata_hash", "metadataHash", unless=0),
    ),
    groups.ConsumerMemberValue: (
        _Shown("instance_id", "instanceId"),
        _Shown("rack_id", "rackId"),
        _Shown("client_id", "clientId"),
        _Shown("client_host", "clientHost"),
        _Shown("subscribed_topics", "subscribedTopicNames"),
        _Shown("subscribed_regex", "subscribedTopicRegex"),
        _Shown("rebalance_timeout_ms", "rebalanceTimeoutMs"),
        _Shown("server_assignor", "serverAssignor"),
        _Shown("classic", "classicMemberMetadata", unless=groups.ClassicMetadata(0, ())),
    ),
    groups.ClassicMetadata: (
        _Shown("session_timeout_ms", "sessionTimeoutMs"),
        _Shown("protocols", "supportedProtocols"),
    ),
    groups.ClassicProtocol: (_Shown("name", "name"), _Shown("metadata", "metadata")),
    groups.TargetEpochValue: (_Shown("epoch", "assignmentEpoch"),),
    groups.TargetMemberValue: (_Shown("partitions", "topicPartitions"),),
    TopicPartitions: (_Shown("topic_id", "topicId"), _Shown("partitions", "partitions")),
    groups.CurrentMemberValue: (
        _Shown("epoch", "memberEpoch"),
        _Shown("previous_epoch", "previousMemberEpoch"),
        _Shown("state", "state"),
        _Shown("assigned", "assignedPartitions"),
        _Shown("pending_revocation", "partitionsPendingRevocation"),
    ),
    groups.RegexValue: (
        _Shown("topics", "topics"),
        _Shown("version", "version"),
        _Shown("timestamp_ms", "timestamp"),
    ),
    _GroupTopics: (_Shown("topics", "topics"),),
    _TopicMetadata: (
        _Shown("topic_id", "topicId"),
        _Shown("topic_name", "topicName"),
        _Shown("partition_count", "numPartitions"),
        _Shown("racks", "partitionMetadata"),
    ),
    _PartitionRacks: (_Shown("partition", "partition"), _Shown("racks", "racks")),
    consumer_protocol.Subscription: (
        _Shown("topics", "topics"),
        _Shown("user_data", "userData"),
        _Shown("owned", "ownedPartitions", since=1),
        _Shown("generation", "generationId", since=2),
        _Shown("rack_id", "rackId", since=3),
    ),
    consumer_protocol.Assignment: (_Shown("partitions", "assignedPartitions"), _Shown("user_data", "userData")),
    consumer_protocol.NamedPartitions: (_Shown("topic", "topic"), _Shown("partitions", "partitions")),
    transactions.TransactionValue: (
        _Shown("producer_id", "producerId"),
        _Shown("previous_producer_id", "previousProducerId", since=1, unless=-1),
        _Shown("next_producer_id", "nextProducerId", since=1, unless=-1),
        _Shown("producer_epoch", "producerEpoch"),
        _Shown("next_producer_epoch", "nextProducerEpoch", since=1, unless=-1),
        _Shown("timeout_ms", "transactionTimeoutMs"),
        _Shown("status", "transactionStatus"),
        _Shown("partitions", "transactionPartitions"),
        _Shown("last_update_ms", "transactionLastUpdateTimestampMs"),
        _Shown("start_ms", "transactionStartTimestampMs"),
        _Shown("client_transaction_version", "clientTransactionVersion", since=1, unless=0),
    ),
    transactions.TopicPartitions: (_Shown("topic", "topic"), _Shown("partitions", "partitionIds")),
}


class MissingKeyError(ValueError):
    """A record without a key, which none of an internal topic is."""

    def __init__(self, offset: int) -> None:
        super().__init__(
            f"Failed to decode message at offset {offset} using the specified decoder (message had a missing key)"
        )


def group_record(record: Record) -> tuple[str | None, str | None]:
    """A record of `__consumer_offsets`."""
    key = _key_of(record)
    try:
        found = _group_topics(key, record.value) or groups.decode(key, record.value)
        if found is None:
            return _unknown(key, record), None
        number = _VERSION.unpack_from(key)[0]
        _, decoded_key, value = found
        data = dict(zip(_KEY_NAMES[number], decoded_key, strict=True))
        return _key_text(number, data), _value_text(record, value)
    except CorruptRecordError as error:
        return f"Error at offset {record.offset}, skipping. {error}", None


def _group_topics(key: bytes, value: bytes | None) -> tuple[groups.RecordType, Any, Any] | None:
    """A record that the coordinator has no use for, None when it is another."""
    kind = _GROUP_TOPICS
    if key[: _VERSION.size] != _VERSION.pack(kind.number):
        return None
    return kind, kind.key.decode(key, kind.number), None if value is None else kind.value.decode(value, 0)


def transaction_record(record: Record) -> tuple[str | None, str | None]:
    """A record of `__transaction_state`."""
    key = _key_of(record)
    try:
        found = transactions.decode(key, record.value)
        if found is None:
            return _unknown(key, record), None
        transactional_id, value = found
        return _key_text(0, {"transactionalId": transactional_id}), _value_text(record, value)
    except CorruptRecordError as error:
        return f"Error at offset {record.offset}, skipping. {error}", None


def _key_of(record: Record) -> bytes:
    if record.key is None:
        raise MissingKeyError(record.offset)
    return record.key


def _unknown(key: bytes, record: Record) -> str:
    return f"Unknown record type {_VERSION.unpack_from(key)[0]} at offset {record.offset}, skipping."


def _key_text(number: int, data: dict[str, Any]) -> str:
    return _json({"type": str(number), "data": data})


def _value_text(record: Record, value: object) -> str:
    if record.value is None:
        return "<DELETE>"
    version = _VERSION.unpack_from(record.value)[0]
    shown = _named(value, version)
    if isinstance(value, groups.ClassicGroupValue) and value.protocol_type == consumer_protocol.PROTOCOL_TYPE:
        for member, named in zip(value.members, shown["members"], strict=True):
            named["subscription"] = _embedded(member.subscription, consumer_protocol.read_subscription)
            named["assignment"] = _embedded(member.assignment, consumer_protocol.read_assignment)
    return _json({"version": str(version), "data": shown})


def _embedded(content: bytes, read: Any) -> object:
    """What members of protocol type `consumer` tell each other; the bytes as they are when they are not that."""
    try:
        version = _VERSION.unpack_from(content)[0]
        return _named(read(content), version) if version in _CONSUMER_PROTOCOL_VERSIONS else content
    except (CorruptRecordError, struct.error):
        return content


def _named(value: Any, version: int) -> Any:
    """A value with Kafka's names for its fields, nested ones too."""
    shown = _VALUE_NAMES.get(type(value))
    if shown is None:
        return [_named(item, version) for item in value] if isinstance(value, tuple) else value
    return {
        field.name: _named(content, version)
        for field in shown
        if field.since <= version <= field.until and (content := getattr(value, field.attribute)) != field.unless
    }


def _json(value: object) -> str:
    """JSON as Kafka's library writes it: no spaces, text as it is, bytes and ids in base 64."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{_quoted(name)}:{_json(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(_json, value)) + "]"
    if isinstance(value, UUID):
        return _quoted(base64.urlsafe_b64encode(value.bytes).decode().rstrip("="))
    if isinstance(value, bytes):
        return _quoted(base64.b64encode(value).decode())
    if isinstance(value, str):
        return _quoted(value)
    return "null" if value is None else str(value)


_ESCAPES: Final = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def _quoted(text: str) -> str:
    escaped = re.sub(r'["\\\x00-\x1f]', lambda match: _ESCAPES.get(match[0]) or f"\\u{ord(match[0]):04X}", text)
    return f'"{escaped}"'
