"""Groups as an operator sees them: which there are, who is in them; deleting them, and taking members out.

A group is asked about at its coordinator, and each broker lists those that it coordinates.
"""

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from headwater.client.admin.group_descriptions import describe_groups
from headwater.client.admin.results import Results
from headwater.client.admin.routing import ask_each, coordinators, demand_success, demand_version, left_out, refused_or
from headwater.client.client import Client
from headwater.client.coordinators import Coordinated, Coordinator, broker_ids, find_coordinator
from headwater.client.errors import RefusedError

from kio.schema.delete_groups.v2.request import DeleteGroupsRequest  # isort: skip
from kio.schema.delete_groups.v2.response import DeleteGroupsResponse  # isort: skip
from kio.schema.leave_group.v5.request import LeaveGroupRequest, MemberIdentity  # isort: skip
from kio.schema.leave_group.v5.response import LeaveGroupResponse  # isort: skip
from kio.schema.list_groups.v5.request import ListGroupsRequest  # isort: skip
from kio.schema.list_groups.v5.response import ListGroupsResponse  # isort: skip
from kio.schema.types import GroupId  # isort: skip

_FIRST_WITH_STATES = 4
_FIRST_WITH_TYPES = 5
_FIRST_WITH_SEVERAL_MEMBERS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedGroup:
    """A line in the list of groups; old brokers leave type and state empty."""

    group_id: str
    group_type: str
    protocol_type: str
    state: str
    coordinator: int


class MemberName(NamedTuple):
    """A member by its id, or a static one by its instance id alone."""

    member_id: str = ""
    instance_id: str | None = None

    def __str__(self) -> str:
        return f"member {self.member_id or self.instance_id}"


async def list_groups(
    client: Client, *, states: Collection[str] = (), types: Collection[str] = ()
) -> list[ListedGroup]:
    """The groups of all brokers by name: those in one of `states` and of one of `types`, where any are given.

    Both are Kafka's words: `Stable`, `Empty`, `PreparingRebalance`, …; `classic`, `consumer`, `share`, `streams`.
    """
    request = ListGroupsRequest(states_filter=tuple(states), types_filter=tuple(types))

    async def ask_all() -> list[ListedGroup]:
        answers = await asyncio.gather(*(_list_on(client, broker, request) for broker in await broker_ids(client)))
        return [group for answer in answers for group in answer]

    return sorted(await client.retry(ask_all), key=lambda group: group.group_id)


async def delete_groups(client: Client, group_ids: Collection[str]) -> Results[str, None]:
    """Deletes groups without members, with all that they have committed."""

    async def ask(coordinator: Coordinator, rest: Sequence[str]) -> dict[str, RefusedError | None]:
        request = DeleteGroupsRequest(groups_names=tuple(map(GroupId, rest)))
        answer = await client.send(request, DeleteGroupsResponse, to=coordinator.broker)
        return {item.group_id: refused_or(None, f"group {item.group_id}", item.error_code) for item in answer.results}

    return await ask_each(client, group_ids, coordinators(client, Coordinated.GROUP), ask)


async def remove_members(
    client: Client, group_id: str, members: Collection[MemberName] | None = None, *, reason: str | None = None
) -> Results[MemberName, None]:
    """Takes members out of a group, all that it has by default; their partitions go to the others at once."""
    if members is None:
        group = (await describe_groups(client, [group_id])).one(group_id)
        members = [MemberName(member.member_id, member.instance_id) for member in group.members]
    if not members:
        return Results()
    request = LeaveGroupRequest(
        group_id=GroupId(group_id),
        members=tuple(
            MemberIdentity(member_id=member_id, group_instance_id=instance_id, reason=reason)
            for member_id, instance_id in members
        ),
    )

    async def ask() -> Results[MemberName, None]:
        coordinator = await find_coordinator(client, Coordinated.GROUP, group_id)
        await demand_version(
            client, request, _FIRST_WITH_SEVERAL_MEMBERS, "take members out of a group", at=coordinator.broker
        )
        answer = await client.send(request, LeaveGroupResponse, to=coordinator.broker)
        demand_success(f"group {group_id}", answer.error_code)
        # A broker answers in the order of the request, and may have filled in ids that were not given.
        found = {
            member: refused_or(None, f"group {group_id}, {member}", item.error_code)
            for member, item in zip(members, answer.members, strict=False)
        }
        return Results((member, found.get(member, left_out(member))) for member in members)

    return await client.retry(ask)


async def _list_on(client: Client, broker: int, request: ListGroupsRequest) -> list[ListedGroup]:
    if request.types_filter:
        await demand_version(client, request, _FIRST_WITH_TYPES, "select groups by their type", at=broker)
    elif request.states_filter:
        await demand_version(client, request, _FIRST_WITH_STATES, "select groups by their state", at=broker)
    answer = await client.send(request, ListGroupsResponse, to=broker)
    demand_success(f"broker {broker}", answer.error_code)
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
