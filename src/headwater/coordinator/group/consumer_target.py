"""The target of a consumer group: which partitions each member is to have, and from which topics they come."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence

from headwater.coordinator.group.assignor import Subscriber
from headwater.coordinator.group.assignors import ASSIGNORS
from headwater.coordinator.group.consumer_decision import Decision
from headwater.coordinator.group.consumer_group import ConsumerGroup
from headwater.coordinator.group.consumer_partitions import TopicKey, topic_key
from headwater.coordinator.outcome import TopicDirectory


def metadata_hash(names: Iterable[str], topics: TopicDirectory) -> int:
    """A number that changes when one of these topics comes, goes or grows; 0 when none exists.

    Apache hashes the racks of the replicas too. No assignor looks at them, so here they cause no rebalance.
    """
    digest = None
    for name in sorted(names):
        topic_id, count = topics.topic_id(name), topics.partition_count(name)
        if topic_id is not None and count is not None:
            digest = digest or hashlib.blake2b(digest_size=8)
            digest.update(topic_id.bytes + count.to_bytes(4, "big"))
    return int.from_bytes(digest.digest(), "big", signed=True) if digest else 0


def preferred_assignor(group: ConsumerGroup, available: Sequence[str]) -> str:
    """The assignor that most members ask for; the first available one when nobody asks, or for equal votes."""
    votes = Counter([member.told.server_assignor for member in group.members.values()])
    return max(available, key=lambda name: votes[name])


def write_target(decision: Decision, assignor: str, topics: TopicDirectory) -> None:
    """Makes a target for the group's epoch: a record for each member whose partitions change."""
    group = decision.group
    counts: dict[TopicKey, int] = {}
    keys: dict[str, TopicKey] = {}
    for name in group.subscribed_topics:
        topic_id, count = topics.topic_id(name), topics.partition_count(name)
        if topic_id is not None and count is not None:
            key = topic_key(topic_id)
            keys[name], counts[key] = key, count
    # Most members of a group subscribe alike, and the set for many topics takes time to make.
    subscriptions: dict[object, frozenset[TopicKey]] = {}
    subscribers = []
    for member in group.members.values():
        alike = member.told.subscribed_topics, member.told.subscribed_regex
        if alike not in subscriptions:
            subscriptions[alike] = frozenset(keys[name] for name in group.topics_of(member) if name in keys)
        subscribers.append(
            Subscriber(
                member.member_id, subscriptions[alike], member.told.instance_id, group.target_of(member.member_id)
            )
        )
    for member_id, partitions in ASSIGNORS[assignor](subscribers, counts).items():
        before = group.targets.get(member_id)
        if partitions is not before and partitions != before:
            decision.set_target(member_id, partitions)
    decision.set_target_epoch(group.epoch)
