"""The cluster as it is now: the sum of all changes so far. Pure; `apply` is the only way it changes."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final
from uuid import UUID

from headwater.cluster.changes import (
    BrokerConfigured,
    Change,
    LeaderEpochRaised,
    LogDirsUsed,
    PartitionsAdded,
    ProducerIdsReserved,
    TopicConfigured,
    TopicCreated,
    TopicDeleted,
)

INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state"})
_LEGAL: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
_LONGEST_NAME: Final = 249


def topic_name_problem(name: str) -> str | None:
    """Why `name` cannot name a topic, or None when it can."""
    if not name:
        return "the topic name is empty"
    if name in (".", ".."):
        return f"a topic cannot be called {name!r}"
    if len(name) > _LONGEST_NAME:
        return f"the topic name is {len(name)} characters long, {_LONGEST_NAME} are allowed: {name!r}"
    if not _LEGAL.issuperset(name):
        return f"topic name {name!r} may only hold ASCII letters, digits, '.', '_' and '-'"
    return None


@dataclass(slots=True)
class ClusterImage:
    """Topics, dynamic broker settings (by broker id, '' for all), next producer id, least leader epoch, log dirs."""

    topics: dict[str, TopicCreated] = field(default_factory=dict)
    deleted_ids: dict[UUID, str] = field(default_factory=dict)
    """Topics of which something may be left on a disk, and their names."""
    broker_configs: dict[str, dict[str, str]] = field(default_factory=dict)
    next_producer_id: int = 0
    leader_epoch: int = 0
    directory_ids: set[str] = field(default_factory=set)
    _flat_names: dict[str, str] = field(default_factory=dict)

    def apply(self, change: Change) -> None:
        """Takes `change` in. A change to a topic that is not there is ignored: its deletion came first."""
        match change:
            case TopicCreated():
                self.topics[change.name] = change
                self._flat_names[_flat(change.name)] = change.name
            case TopicDeleted():
                self.topics.pop(change.name, None)
                self._flat_names.pop(_flat(change.name), None)
                self.deleted_ids[change.topic_id] = change.name
            case PartitionsAdded() if change.name in self.topics:
                self.topics[change.name] = replace(self.topics[change.name], partitions=change.partitions)
            case TopicConfigured() if change.name in self.topics:
                self.topics[change.name] = replace(self.topics[change.name], configs=dict(change.configs))
            case BrokerConfigured():
                self.broker_configs[change.broker] = dict(change.configs)
            case ProducerIdsReserved():
                self.next_producer_id = max(self.next_producer_id, change.next_producer_id)
            case LeaderEpochRaised():
                self.leader_epoch = max(self.leader_epoch, change.leader_epoch)
            case LogDirsUsed():
                self.directory_ids = set(change.directory_ids)

    def as_changes(self) -> Iterator[Change]:
        """The shortest row of changes that leads to this image."""
        # Before the topics: one may have the name of a deleted one.
        yield from (TopicDeleted(name=name, topic_id=topic_id) for topic_id, name in self.deleted_ids.items())
        yield from self.topics.values()
        for broker, configs in self.broker_configs.items():
            yield BrokerConfigured(broker=broker, configs=configs)
        yield ProducerIdsReserved(next_producer_id=self.next_producer_id)
        yield LeaderEpochRaised(leader_epoch=self.leader_epoch)
        yield LogDirsUsed(directory_ids=tuple(sorted(self.directory_ids)))

    def colliding_topic(self, name: str) -> str | None:
        """A topic whose name differs from `name` only in '.' and '_', which metrics cannot tell apart."""
        other = self._flat_names.get(_flat(name))
        return None if other == name else other


def _flat(name: str) -> str:
    """The name as metrics write it."""
    return name.replace(".", "_")
