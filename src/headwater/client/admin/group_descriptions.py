"""A group with its members, of either protocol: asked for as a consumer group first, then as a classic one."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from headwater.client.admin.results import Results
from headwater.client.admin.routing import ask_each, coordinators
from headwater.client.client import Client
from headwater.client.coordinators import Coordinated, Coordinator
from headwater.client.errors import ClientError, RefusedError, UnsupportedError
from headwater.coordinator.group.consumer_protocol import read_assignment
from headwater.coordinator.schema import CorruptRecordError
from headwater.protocol.kafka_types import ErrorCode
from headwater.types import TopicPartition

from kio.schema.consumer_group_describe.v1.request import ConsumerGroupDescribeRequest  # isort: skip
from kio.schema.consumer_group_describe.v1.response import (  # isort: skip
    Assignment,
    ConsumerGroupDescribeResponse,
)
from kio.schema.consumer_group_describe.v1.response import DescribedGroup as DescribedConsumerGroup  # isort: skip
from kio.schema.describe_groups.v6.request import DescribeGroupsRequest  # isort: skip
from kio.schema.describe_groups.v6.response import (  # isort: skip
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
)
from kio.schema.types import GroupId  # isort: skip

# What a classic group of consumers calls its protocol; others (Connect's, for one) share out no partitions.
_CONSUMERS = "consumer"
_GONE = "Dead"
_NOT_OF_THE_CONSUMER_PROTOCOL = (ErrorCode.group_id_not_found, ErrorCode.unsupported_version)


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A member of a group; epoch and target are known of members of the consumer protocol only."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...]
    target_assignment: tuple[TopicPartition, ...] | None = None
    epoch: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A group with its members, as its coordinator describes it."""

    group_id: str
    group_type: str
    protocol_type: str
    state: str
    assignor: str
    coordinator: Coordinator
    members: tuple[Member, ...]


async def describe_groups(client: Client, group_ids: Collection[str]) -> Results[str, Group]:
    """Groups of either protocol; one that is not there is refused with GROUP_ID_NOT_FOUND."""

    async def ask(coordinator: Coordinator, rest: Sequence[str]) -> Mapping[str, Group | ClientError]:
        found = await _describe_consumer(client, coordinator, rest)
        others = [group_id for group_id in rest if group_id not in found]
        return found | (await _describe_classic(client, coordinator, others) if others else {})

    return await ask_each(client, group_ids, coordinators(client, Coordinated.GROUP), ask)


async def _describe_consumer(
    client: Client, coordinator: Coordinator, group_ids: Sequence[str]
) -> dict[str, Group | ClientError]:
    """Those that are groups of the consumer protocol."""
    request = ConsumerGroupDescribeRequest(
        group_ids=tuple(map(GroupId, group_ids)), include_authorized_operations=False
    )
    try:
        answer = await client.send(request, ConsumerGroupDescribeResponse, to=coordinator.broker)
    except UnsupportedError:
        return {}
    return {
        found.group_id: _consumer_group(found, coordinator)
        if found.error_code is ErrorCode.none
        else RefusedError(f"group {found.group_id}", found.error_code, found.error_message)
        for found in answer.groups
        if found.error_code not in _NOT_OF_THE_CONSUMER_PROTOCOL
    }


async def _describe_classic(
    client: Client, coordinator: Coordinator, group_ids: Sequence[str]
) -> dict[str, Group | ClientError]:
    request = DescribeGroupsRequest(groups=tuple(map(GroupId, group_ids)), include_authorized_operations=False)
    answer = await client.send(request, DescribeGroupsResponse, to=coordinator.broker)
    return {found.group_id: _classic_or_refused(found, coordinator) for found in answer.groups}


def _classic_or_refused(found: DescribedGroup, coordinator: Coordinator) -> Group | ClientError:
    subject = f"group {found.group_id}"
    if found.error_code is not ErrorCode.none:
        return RefusedError(subject, found.error_code, found.error_message)
    if found.group_state == _GONE:  # how brokers before version 6 say that there is none
        return RefusedError(subject, ErrorCode.group_id_not_found)
    try:
        return _classic_group(found, coordinator)
    except CorruptRecordError as error:
        return ClientError(f"{subject}: an assignment of its leader cannot be read: {error}")


def _consumer_group(found: DescribedConsumerGroup, coordinator: Coordinator) -> Group:
    return Group(
        group_id=found.group_id,
        group_type="consumer",
        protocol_type=_CONSUMERS,
        state=found.group_state,
        assignor=found.assignor_name,
        coordinator=coordinator,
        members=tuple(
            Member(
                member_id=member.member_id,
                instance_id=member.instance_id,
                client_id=member.client_id,
                host=member.client_host,
                assignment=_assigned(member.assignment),
                target_assignment=_assigned(member.target_assignment),
                epoch=member.member_epoch,
            )
            for member in found.members
        ),
    )


def _assigned(assignment: Assignment) -> tuple[TopicPartition, ...]:
    return tuple(
        sorted(TopicPartition(topic.topic_name, n) for topic in assignment.topic_partitions for n in topic.partitions)
    )


def _classic_group(found: DescribedGroup, coordinator: Coordinator) -> Group:
    shares_partitions = found.protocol_type == _CONSUMERS
    return Group(
        group_id=found.group_id,
        group_type="classic",
        protocol_type=found.protocol_type,
        state=found.group_state,
        assignor=found.protocol_data,
        coordinator=coordinator,
        members=tuple(
            Member(
                member_id=member.member_id,
                instance_id=member.group_instance_id,
                client_id=member.client_id,
                host=member.client_host,
                assignment=_assigned_by_leader(member) if shares_partitions else (),
            )
            for member in found.members
        ),
    )


def _assigned_by_leader(member: DescribedGroupMember) -> tuple[TopicPartition, ...]:
    """Reads the assignment that the group's leader made: a version, which later ones only add to, and the rest."""
    if len(member.member_assignment) <= 2:
        return ()
    assignment = read_assignment(member.member_assignment)
    return tuple(sorted(TopicPartition(entry.topic, n) for entry in assignment.partitions for n in entry.partitions))
