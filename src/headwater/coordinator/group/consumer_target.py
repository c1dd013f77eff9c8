"""The target of a consumer group: which partitions each member is to have, and from which topics they come."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence

from headwater.coordinator.group.assignor import Subscribers
from headwater.coordinator.group.assignors import ASSIGNORS
from headwater.coordinator.group.consumer_decision import Decision
from headwater.coordinator.group.consumer_group import ConsumerGroup
from headwater.coordinator.group.consumer_member import Wish
from headwater.coordinator.group.consumer_partitions import NONE, TopicKey, topic_key
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
    votes: dict[str | None, int] = {}
    for wish, count in group.wishes.items():
        votes[wish.assignor] = votes.get(wish.assignor, 0) + count
    return max(available, key=lambda name: votes.get(name, 0))


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
    wanted = {wish: frozenset([keys[name] for name in group.topics_in(wish) if name in keys]) for wish in group.wishes}
    given = ASSIGNORS[assignor](_subscribers(group, wanted), counts)
    before = group.targets.get
    for member_id, partitions in [(one, its) for one, its in given.items() if its is not before(one)]:
        if partitions != before(member_id):
            decision.set_target(member_id, partitions)
    decision.set_target_epoch(group.epoch)


def _subscribers(group: ConsumerGroup, wanted: Mapping[Wish, frozenset[TopicKey]]) -> Subscribers:
    """The members as assignors see them; nearly always all of them want the same topics."""
    member_ids = sorted(group.members)
    told = [group.members[member_id].told for member_id in member_ids]
    alike = set(wanted.values())
    return Subscribers(
        member_ids=member_ids,
        topics=[alike.pop()] * len(told) if len(alike) == 1 else [wanted[Wish.of(one)] for one in told],
        instance_ids=[one.instance_id for one in told],
        partitions=[group.targets.get(member_id, NONE) for member_id in member_ids],
    )
