"""The changes that a cluster's metadata can go through, and their form in a store's journal. Pure."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicCreated:
    """A topic came to be."""

    name: str
    topic_id: UUID
    partitions: int
    configs: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDeleted:
    """A topic is gone; its folders may still be on the way out."""

    name: str
    topic_id: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionsAdded:
    """A topic now has `partitions` partitions."""

    name: str
    partitions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfigured:
    """The whole of a topic's own settings."""

    name: str
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfigured:
    """The whole of the dynamic settings of one broker, or of all brokers when `broker` is empty."""

    broker: str
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerIdsReserved:
    """Every producer id below `next_producer_id` may have been handed out."""

    next_producer_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderEpochRaised:
    """No partition is led in an epoch below `leader_epoch` any more: an unclean stop may have cost it records."""

    leader_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirsUsed:
    """The ids of all the log dirs that partitions may lie in."""

    directory_ids: Sequence[str]


Change = (
    TopicCreated
    | TopicDeleted
    | PartitionsAdded
    | TopicConfigured
    | BrokerConfigured
    | ProducerIdsReserved
    | LeaderEpochRaised
    | LogDirsUsed
)

_KINDS: Final[dict[str, type[Any]]] = {
    "topic-created": TopicCreated,
    "topic-deleted": TopicDeleted,
    "partitions-added": PartitionsAdded,
    "topic-configured": TopicConfigured,
    "broker-configured": BrokerConfigured,
    "producer-ids-reserved": ProducerIdsReserved,
    "leader-epoch-raised": LeaderEpochRaised,
    "log-dirs-used": LogDirsUsed,
}
_NAMES: Final = {kind: name for name, kind in _KINDS.items()}


def to_line(change: Change) -> str:
    """One line of JSON without its line end."""
    fields = {field.name: getattr(change, field.name) for field in dataclasses.fields(change)}
    if "topic_id" in fields:
        fields["topic_id"] = str(fields["topic_id"])
    return json.dumps({"change": _NAMES[type(change)], **fields}, separators=(",", ":"))


def from_line(line: str) -> Change:
    """The change that `to_line` wrote; ValueError for anything else."""
    fields = json.loads(line)
    try:
        kind = _KINDS[fields.pop("change")]
        if "topic_id" in fields:
            fields["topic_id"] = UUID(fields["topic_id"])
        if "directory_ids" in fields:
            fields["directory_ids"] = tuple(fields["directory_ids"])
        change: Change = kind(**fields)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a metadata change: {line[:200]!r}") from error
    return change
