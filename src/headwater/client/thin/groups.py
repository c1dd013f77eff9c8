"""Groups as an operator sees them: which there are, who is in them, what they have committed.

A group is asked about at its coordinator. Calls that look for one raise `RefusedError` when it is not there.
"""

from dataclasses import dataclass

from headwater.client.client import Client
from headwater.client.coordinators import Coordinated, Coordinator, broker_ids, find_coordinator
from headwater.client.errors import ClientError, RefusedError, UnsupportedError
from headwater.protocol.kafka_types import ErrorCode
from headwater.types import TopicPartition

from kio.schema.consumer_group_describe.v1.request import ConsumerGroupDescribeRequest  # isort: skip
from kio.schema.consumer_group_describe.v1.response import (  # isort: skip
    Assignment,
    ConsumerGroupDescribeResponse,
)
from kio.schema.consumer_group_describe.v1.response import DescribedGroup as DescribedConsumerGroup  # isort: skip
from kio.schema.consumer_protocol_assignment.v0.data import ConsumerProtocolAssignment  # isort: skip
from kio.schema.delete_groups.v2.request import DeleteGroupsRequest  # isort: skip
from kio.schema.delete_groups.v2.response import DeleteGroupsResponse  # isort: skip
from kio.schema.describe_groups.v6.request import DescribeGroupsRequest  # isort: skip
from kio.schema.describe_groups.v6.response import (  # isort: skip
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
)
from kio.schema.list_groups.v5.request import ListGroupsRequest  # isort: skip
from kio.schema.list_groups.v5.response import ListGroupsResponse  # isort: skip
from kio.schema.types import GroupId  # isort: skip
from kio.serial import entity_reader  # isort: skip
from kio.serial.errors import SerialError  # isort: skip

# What a classic group of consumers calls its protocol; others (Connect's, for one) share out no partitions.
_CONSUMERS = "consumer"
_GONE = "Dead"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedGroup:
    """A line in the list of groups; old brokers leave type and state empty."""

    group_id: str
    group_type: str
    protocol_type: str
    state: str
    coordinator: int


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


async def list_groups(client: Client) -> list[ListedGroup]:
    """The groups of all brokers, by name."""

    async def ask_all() -> list[ListedGroup]:
        return [group for broker in await broker_ids(client) for group in await _list_on(client, broker)]

    return sorted(await client.retry(ask_all), key=lambda group: group.group_id)


async def describe_group(client: Client, group_id: str) -> Group:
    """One group of either type."""

    async def ask() -> Group:
        coordinator = await find_coordinator(client, Coordinated.GROUP, group_id)
        return await _describe_consumer(client, coordinator, group_id) or await _describe_classic(
            client, coordinator, group_id
        )

    return await client.retry(ask)


async def delete_group(client: Client, group_id: str) -> None:
    """Deletes a group without members, with its offsets."""

    async def ask() -> None:
        coordinator = await find_coordinator(client, Coordinated.GROUP, group_id)
        request = DeleteGroupsRequest(groups_names=(GroupId(group_id),))
        answer = await client.send(request, DeleteGroupsResponse, to=coordinator.broker)
        _demand_success(group_id, answer.results[0].error_code)

    await client.retry(ask)


async def _list_on(client: Client, broker: int) -> list[ListedGroup]:
    answer = await client.send(ListGroupsRequest(), ListGroupsResponse, to=broker)
    if answer.error_code is not ErrorCode.none:
        raise RefusedError(f"broker {broker}", answer.error_code)
    return [
        ListedGroup(
            group_id=group.group_id,
            group_type=group.group_type,
            protocol_type=group.protocol_type,
            state=group.group_state,
            coordinator=broker,
        )
        for group in answer.groups
    ]


async def _describe_consumer(client: Client, coordinator: Coordinator, group_id: str) -> Group | None:
    """The group if it is one of the consumer protocol, else None."""
    request = ConsumerGroupDescribeRequest(group_ids=(GroupId(group_id),), include_authorized_operations=False)
    try:
        answer = await client.send(request, ConsumerGroupDescribeResponse, to=coordinator.broker)
    except UnsupportedError:
        return None
    found = answer.groups[0]
    if found.error_code in (ErrorCode.group_id_not_found, ErrorCode.unsupported_version):
        return None
    _demand_success(group_id, found.error_code, found.error_message)
    return _consumer_group(found, coordinator)


async def _describe_classic(client: Client, coordinator: Coordinator, group_id: str) -> Group:
    request = DescribeGroupsRequest(groups=(GroupId(group_id),), include_authorized_operations=False)
    found = (await client.send(request, DescribeGroupsResponse, to=coordinator.broker)).groups[0]
    _demand_success(group_id, found.error_code, found.error_message)
    if found.group_state == _GONE:  # how brokers before version 6 say that there is none
        raise RefusedError(_subject(group_id), ErrorCode.group_id_not_found)
    return _classic_group(found, coordinator)


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
    try:
        assignment, _ = entity_reader(ConsumerProtocolAssignment)(member.member_assignment, 2)
    except SerialError as error:
        raise ClientError(f"the assignment of member {member.member_id} cannot be read: {error}") from error
    return tuple(
        sorted(TopicPartition(topic.topic, n) for topic in assignment.assigned_partitions for n in topic.partitions)
    )


def _subject(group_id: str) -> str:
    return f"group {group_id}"


def _demand_success(group_id: str, code: ErrorCode, message: str | None = None) -> None:
    if code is not ErrorCode.none:
        raise RefusedError(_subject(group_id), code, message)
