"""What a client knows of a cluster: brokers, topics, who leads what since when. No I/O, no clock.

A picture only gets newer: of the same topic, a partition's older leader epoch never replaces a newer one, however late
or from however far behind a broker the answer comes. A topic that was made anew (another id) and a cluster that was
made anew (another cluster id) begin from nothing.
"""

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from headwater.client.addresses import Address
from headwater.client.leader_hints import LeaderHint, NodeEndpoint
from headwater.protocol.kafka_types import BrokerId, ErrorCode, i32

from kio.schema.metadata.v12.response import (  # isort: skip
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

_UNKNOWN_EPOCH = -1


class Leader(NamedTuple):
    """Who leads a partition; the epoch is -1 where the broker is too old to tell."""

    node_id: int
    epoch: int


class Broker(NamedTuple):
    """A broker of the cluster."""

    node_id: int
    address: Address
    rack: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPicture:
    """A topic as the cluster describes it."""

    name: str
    topic_id: uuid.UUID | None
    is_internal: bool
    partitions: Mapping[int, MetadataResponsePartition]
    leaders: Mapping[int, Leader]
    """The partitions that have a leader."""


class ClusterPicture:
    """The newest that is known. `apply` and `take_hints` take an answer in; everything else reads."""

    def __init__(self) -> None:
        self.cluster_id: str | None = None
        self.controller_id: int | None = None
        self.brokers: dict[int, Broker] = {}
        self.topics: dict[str, TopicPicture] = {}
        self.errors: dict[str, ErrorCode] = {}
        """Of topics that were asked for, why nothing is known of them."""

    def apply(self, answer: MetadataResponse, *, all_topics: bool = False) -> None:
        """Takes in an answer; with `all_topics` a topic that it does not name is gone."""
        if self.cluster_id is not None and answer.cluster_id not in (None, self.cluster_id):
            self.topics.clear()
        self.cluster_id = answer.cluster_id or self.cluster_id
        self.controller_id = int(answer.controller_id) if answer.controller_id >= 0 else None
        if answer.brokers:
            self.brokers = {
                int(broker.node_id): Broker(int(broker.node_id), Address(broker.host, int(broker.port)), broker.rack)
                for broker in answer.brokers
            }
        if all_topics:
            named = {topic.name for topic in answer.topics}
            self.topics = {name: topic for name, topic in self.topics.items() if name in named}
            self.errors.clear()
        for topic in answer.topics:
            if topic.name is not None:
                self._apply_topic(str(topic.name), topic)

    def take_hints(self, hints: Iterable[LeaderHint], endpoints: Iterable[NodeEndpoint]) -> bool:
        """Takes in who leads now, where that is newer than what is known and the broker's address is known too."""
        addresses = {end.node_id: Broker(end.node_id, Address(end.host, end.port), end.rack) for end in endpoints}
        by_topic: dict[str, list[LeaderHint]] = {}
        for hint in hints:
            known = self.topics.get(hint.partition.topic)
            before = None if known is None else known.partitions.get(hint.partition.partition)
            is_newer = before is not None and hint.epoch > before.leader_epoch
            if is_newer and hint.node_id >= 0 and (hint.node_id in addresses or hint.node_id in self.brokers):
                by_topic.setdefault(hint.partition.topic, []).append(hint)
        for topic, newer in by_topic.items():
            self._take_leaders(self.topics[topic], newer)
            self.brokers = {
                **self.brokers,
                **{h.node_id: addresses[h.node_id] for h in newer if h.node_id in addresses},
            }
        return bool(by_topic)

    def leader_of(self, topic: str, partition: int) -> Leader | None:
        """The partition's leader, if it is known and there is one."""
        found = self.topics.get(topic)
        return None if found is None else found.leaders.get(partition)

    def _take_leaders(self, known: TopicPicture, hints: Iterable[LeaderHint]) -> None:
        partitions, leaders = dict(known.partitions), dict(known.leaders)
        for (_, number), node_id, epoch in hints:
            partitions[number] = replace(partitions[number], leader_id=BrokerId(node_id), leader_epoch=i32(epoch))
            leaders[number] = Leader(node_id, epoch)
        self.topics[known.name] = replace(known, partitions=partitions, leaders=leaders)

    def _apply_topic(self, name: str, topic: MetadataResponseTopic) -> None:
        if topic.error_code is not ErrorCode.none:
            self.errors[name] = topic.error_code
            # Other errors pass, and what was known may still hold; this one says that it does not.
            if topic.error_code is ErrorCode.unknown_topic_or_partition:
                self.topics.pop(name, None)
            return
        self.errors.pop(name, None)
        known = self.topics.get(name)
        # A negative number is no partition, whatever the broker says; our own lists would read it as the last one.
        named = {int(p.partition_index): p for p in topic.partitions if p.partition_index >= 0}
        if known is not None and known.topic_id == topic.topic_id:
            partitions = {number: _newer(known, p) for number, p in named.items()}
            if topic.topic_id is not None:
                # Partitions are never removed: an answer with fewer is from a broker that is behind.
                partitions = {**known.partitions, **partitions}
        else:
            partitions = named
        self.topics[name] = TopicPicture(
            name=name,
            topic_id=topic.topic_id,
            is_internal=topic.is_internal,
            partitions=partitions,
            leaders={
                number: Leader(int(p.leader_id), int(p.leader_epoch))
                for number, p in partitions.items()
                if p.leader_id >= 0
            },
        )


def _newer(known: TopicPicture, partition: MetadataResponsePartition) -> MetadataResponsePartition:
    before = known.partitions.get(int(partition.partition_index))
    if before is None or partition.leader_epoch == _UNKNOWN_EPOCH or partition.leader_epoch >= before.leader_epoch:
        return partition
    return before
