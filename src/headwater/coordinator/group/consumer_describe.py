"""ConsumerGroupDescribe: a group as people and tools see it."""

from headwater.coordinator.group.consumer_group import ConsumerGroup
from headwater.coordinator.group.consumer_member import ConsumerMember
from headwater.coordinator.group.consumer_partitions import Partitions, by_topic
from headwater.coordinator.outcome import TopicDirectory
from headwater.protocol.kafka_types import ErrorCode, TopicName, i8, i32

from kio.schema.consumer_group_describe.v1.response import (  # isort: skip
    Assignment,
    DescribedGroup,
    Member,
    TopicPartitions,
)
from kio.schema.types import GroupId  # isort: skip

_CLASSIC, _CONSUMER = 0, 1


def describe(group: ConsumerGroup, assignor: str, topics: TopicDirectory) -> DescribedGroup:
    """The group with all its members."""
    return DescribedGroup(
        error_code=ErrorCode.none,
        group_id=GroupId(group.group_id),
        group_state=group.state_name,
        group_epoch=i32(group.epoch),
        assignment_epoch=i32(group.target_epoch),
        assignor_name=assignor,
        members=tuple(_member(member, group.target_of(member.member_id), topics) for member in group.members.values()),
    )


def describe_missing(group_id: str) -> DescribedGroup:
    """The answer for a group that is none, or none of this kind."""
    return DescribedGroup(
        error_code=ErrorCode.group_id_not_found,
        error_message=f"there is no consumer group {group_id}",
        group_id=GroupId(group_id),
        group_state="",
        group_epoch=i32(0),
        assignment_epoch=i32(0),
        assignor_name="",
        members=(),
    )


def _member(member: ConsumerMember, target: Partitions, topics: TopicDirectory) -> Member:
    told = member.told
    return Member(
        member_id=member.member_id,
        instance_id=told.instance_id,
        rack_id=told.rack_id,
        member_epoch=i32(member.epoch),
        client_id=told.client_id,
        client_host=told.client_host,
        subscribed_topic_names=tuple(map(TopicName, told.subscribed_topics)),
        subscribed_topic_regex=told.subscribed_regex or "",
        assignment=_assignment(member.assigned, topics),
        target_assignment=_assignment(target, topics),
        member_type=i8(_CLASSIC if member.is_classic else _CONSUMER),
    )


def _assignment(partitions: Partitions, topics: TopicDirectory) -> Assignment:
    """Partitions with their topics' names; those of topics that are gone are left out."""
    rows = []
    for topic_id, numbers in by_topic(partitions).items():
        name = topics.topic_name(topic_id)
        if name is not None:
            numbers_sent = tuple(map(i32, numbers))
            rows.append(TopicPartitions(topic_id=topic_id, topic_name=TopicName(name), partitions=numbers_sent))
    return Assignment(topic_partitions=tuple(rows))
