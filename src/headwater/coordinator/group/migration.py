"""A group with members changes its kind: classic to consumer (upgrade) or back (downgrade), as its clients change.

`group.consumer.migration.policy` allows it, one way or both. An upgrade comes with the first member that speaks the
consumer protocol; the others stay as they are, with the partitions that they have, and are served by the consumer group
from then on. A downgrade comes when the last member that speaks it goes; the group then rebalances the classic way.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from headwater.config.broker_attributes import BrokerAttributes
from headwater.coordinator.group.classic_group import ClassicGroup
from headwater.coordinator.group.classic_member import ClassicMember
from headwater.coordinator.group.consumer_decision import Decision
from headwater.coordinator.group.consumer_group import ConsumerGroup
from headwater.coordinator.group.consumer_member import ConsumerMember
from headwater.coordinator.group.consumer_partitions import Partition, Partitions, by_topic, topic_key
from headwater.coordinator.group.consumer_protocol import (
    PROTOCOL_TYPE,
    Assignment,
    NamedPartitions,
    answer_version,
    read_assignment,
    read_subscription,
    write_assignment,
)
from headwater.coordinator.group.consumer_target import metadata_hash
from headwater.coordinator.group.records import (
    CLASSIC_GROUP,
    ClassicGroupValue,
    ClassicMemberValue,
    ClassicMetadata,
    ClassicProtocol,
    ConsumerMemberValue,
    GroupKey,
)
from headwater.coordinator.outcome import TopicDirectory
from headwater.coordinator.schema import CorruptRecordError
from headwater.protocol.errors import ApiError, ErrorCode


@dataclass(frozen=True, slots=True)
class _Migrant:
    """A classic member as the consumer group will know it."""

    member_id: str
    told: ConsumerMemberValue
    partitions: Partitions


def upgrade(group: ClassicGroup, config: BrokerAttributes, topics: TopicDirectory) -> Decision:
    """The decision that makes a classic group with members a consumer group; ApiError when that cannot be."""
    _check_upgrade(group, config)
    migrants = _migrants(group, topics)
    decision = Decision(ConsumerGroup(group.group_id), replaces=group)
    for migrant in migrants:
        decision.set_told(migrant.member_id, migrant.told)
    epoch = group.generation
    decision.set_epoch(epoch, metadata_hash(decision.group.subscribed_topics, topics))
    for migrant in migrants:
        decision.set_target(migrant.member_id, migrant.partitions)
    decision.set_target_epoch(epoch)
    for migrant in migrants:
        member = decision.group.members[migrant.member_id]
        decision.set_current(member.settled(epoch, migrant.partitions))
    return decision


def _check_upgrade(group: ClassicGroup, config: BrokerAttributes) -> None:
    if not _allows(config, "upgrade"):
        reason = "group.consumer.migration.policy does not allow it"
    elif group.protocol_type != PROTOCOL_TYPE:
        reason = f"its members are no consumers but {group.protocol_type!r}"
    elif len(group.members) > config.group_consumer_max_size:
        reason = f"it has more than {config.group_consumer_max_size} members; see group.consumer.max.size"
    else:
        return
    raise _not_upgraded(group, reason)


def _allows(config: BrokerAttributes, way: str) -> bool:
    return config.group_consumer_migration_policy.lower() in (way, "bidirectional")


def _not_upgraded(group: ClassicGroup, reason: str) -> ApiError:
    return ApiError(
        ErrorCode.group_id_not_found, f"the classic group {group.group_id} cannot become a consumer group: {reason}"
    )


def _migrants(group: ClassicGroup, topics: TopicDirectory) -> list[_Migrant]:
    taken: set[Partition] = set()
    migrants = []
    for member in group.members.values():
        try:
            subscription = read_subscription(member.metadata(group.protocol) or member.protocols[0].metadata)
            assignment = read_assignment(member.assignment)
        except CorruptRecordError as error:
            raise _not_upgraded(group, f"what member {member.member_id} said cannot be read: {error}") from error
        if assignment.user_data:
            raise _not_upgraded(group, "its own assignor keeps data with the assignments, which would be lost")
        # A custom assignor may have given a partition to two; here it has one holder.
        partitions = to_ids(assignment.partitions, topics) - taken
        taken |= partitions
        migrants.append(
            _Migrant(member.member_id, _told(member, subscription.topics, subscription.rack_id), partitions)
        )
    return migrants


def _told(member: ClassicMember, topics: Iterable[str], rack_id: str | None) -> ConsumerMemberValue:
    return ConsumerMemberValue(
        instance_id=member.instance_id,
        rack_id=rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topics=tuple(sorted(set(topics))),
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic=ClassicMetadata(member.session_timeout_ms, tuple(member.protocols)),
    )


def downgrade(decision: Decision, config: BrokerAttributes, topics: TopicDirectory, now_ms: int) -> bool:
    """Makes the group a classic one, if all its members speak the classic protocol and it may be; whether it was."""
    group = decision.group
    members = list(group.members.values())
    protocols = [member.told.classic.protocols if member.told.classic else () for member in members]
    protocol = _everybodys_choice(protocols)
    if not members or protocol is None or len(members) > config.group_max_size or not _allows(config, "downgrade"):
        return False
    value = ClassicGroupValue(
        protocol_type=PROTOCOL_TYPE,
        generation=group.epoch,
        protocol=protocol,
        leader=members[0].member_id,
        state_timestamp_ms=now_ms,
        members=tuple(_classic_value(member, protocol, topics) for member in members),
    )
    decision.records += [*group.tombstones(), CLASSIC_GROUP.record(GroupKey(group.group_id), value)]
    return True


def _everybodys_choice(protocols: Sequence[Sequence[ClassicProtocol]]) -> str | None:
    """Of the protocols that every member has, the one that most like best; None when they have none in common."""
    common = set.intersection(*({protocol.name for protocol in listed} for listed in protocols)) if protocols else set()
    if not common:
        return None
    votes = Counter(next(protocol.name for protocol in listed if protocol.name in common) for listed in protocols)
    return max(votes, key=votes.__getitem__)


def _classic_value(member: ConsumerMember, protocol: str, topics: TopicDirectory) -> ClassicMemberValue:
    """The member with what it has, not with what it was to have: that may still be somebody else's."""
    classic = member.told.classic
    if classic is None:
        raise ValueError(f"{member.member_id} does not speak the classic protocol")
    subscription = next(listed.metadata for listed in classic.protocols if listed.name == protocol)
    return ClassicMemberValue(
        member_id=member.member_id,
        instance_id=member.told.instance_id,
        client_id=member.told.client_id,
        client_host=member.told.client_host,
        rebalance_timeout_ms=member.told.rebalance_timeout_ms,
        session_timeout_ms=classic.session_timeout_ms,
        subscription=subscription,
        assignment=embedded_assignment(member.assigned, subscription, topics),
    )


def embedded_assignment(partitions: Partitions, subscription: bytes, topics: TopicDirectory) -> bytes:
    """Partitions as the classic client reads them that wrote `subscription`."""
    rows = tuple(
        NamedPartitions(name, tuple(numbers))
        for topic_id, numbers in by_topic(partitions).items()
        if (name := topics.topic_name(topic_id)) is not None
    )
    return write_assignment(Assignment(partitions=rows), answer_version(subscription))


def to_ids(rows: Collection[NamedPartitions], topics: TopicDirectory) -> Partitions:
    """Partitions that a classic client named, by topic id; those of topics that are gone are left out."""
    return frozenset(
        Partition(topic_key(topic_id), number)
        for row in rows
        if (topic_id := topics.topic_id(row.topic)) is not None
        for number in row.partitions
    )
