"""Resetting the offsets of groups: looks up what is needed, works out a plan, and commits it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from headwater.cli.output import complain, counted
from headwater.cli.reset_plan import CannotResetError, FilePlan, NewOffset, Position, Reset, ResetTo, new_offset
from headwater.types import TopicPartition

if TYPE_CHECKING:
    from headwater.client import Client

_INACTIVE = ("Empty", "Dead")

Plan: TypeAlias = list[tuple[str, list[NewOffset]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetJob:
    """What was asked for: one wish for the named topics (none: for all of a group), or the offsets of a file."""

    groups: Sequence[str]
    reset: Reset | FilePlan
    topics: Sequence[tuple[str, tuple[int, ...]]] = ()


async def make_plan(client: "Client", job: ResetJob) -> Plan:
    """The new offsets of every group; raises when one of them cannot be reset, so that none is."""
    return [(group, await _plan_for(client, job, group)) for group in dict.fromkeys(job.groups)]


async def commit_plan(client: "Client", plan: Plan) -> None:
    """Commits the new offsets, one group after the other: when one fails, those before it have theirs."""
    from headwater.client.admin.group_offsets import alter_group_offsets

    for group, offsets in plan:
        (await alter_group_offsets(client, group, {offset.partition: offset.new for offset in offsets})).or_raise()


async def _plan_for(client: "Client", job: ResetJob, group: str) -> list[NewOffset]:
    from headwater.client.admin.group_offsets import list_groups_offsets

    await _demand_inactive(client, group)
    found = (await list_groups_offsets(client, [group])).one(group)
    committed = {place: committed.offset for place, committed in found.items()}
    if isinstance(job.reset, Reset):
        wishes = dict.fromkeys(await _scope(client, job, group, committed), job.reset)
    else:
        wishes = {place: Reset(ResetTo.OFFSET, offset) for place, offset in job.reset[group].items()}
    positions = await _positions(client, sorted(wishes), committed, job.reset)
    try:
        return [new_offset(wishes[position.partition], position) for position in positions]
    except CannotResetError as error:
        raise CannotResetError(f"group {group}, {error}") from None


async def _demand_inactive(client: "Client", group: str) -> None:
    """A group that is not there is as good as one without members: its first offsets make it."""
    from headwater.client import RefusedError
    from headwater.client.admin.group_descriptions import describe_groups
    from headwater.protocol.errors import ErrorCode

    try:
        found = (await describe_groups(client, [group])).one(group)
    except RefusedError as error:
        if error.code is ErrorCode.group_id_not_found:
            return
        raise
    if found.state not in _INACTIVE:
        raise CannotResetError(
            f"group {group} is {found.state} with {counted(len(found.members), 'member')}; offsets can be reset "
            "only while a group is Empty or Dead: stop its consumers, then run this again"
        )


async def _scope(
    client: "Client", job: ResetJob, group: str, committed: Mapping[TopicPartition, int]
) -> list[TopicPartition]:
    if not job.topics:
        return await _still_there(client, group, committed)
    return [
        TopicPartition(topic, number)
        for topic, numbers in job.topics
        for number in numbers or await client.partitions(topic)
    ]


async def _still_there(client: "Client", group: str, committed: Mapping[TopicPartition, int]) -> list[TopicPartition]:
    from headwater.cli.group_lag import known_partitions

    if not committed:
        raise CannotResetError(f"group {group} has committed nothing: say with --topic where it is to start")
    known = await known_partitions(client, committed)
    for topic, number in sorted(committed.keys() - set(known)):
        complain(f"partition {number} of topic {topic} is gone or without a leader, so its offset stays as it is")
    return known


async def _positions(
    client: "Client", places: Sequence[TopicPartition], committed: Mapping[TopicPartition, int], reset: Reset | FilePlan
) -> list[Position]:
    from headwater.client.admin.records import Spot, list_offsets

    earliest = (await list_offsets(client, places, Spot.EARLIEST)).or_raise()
    latest = (await list_offsets(client, places, Spot.LATEST)).or_raise()
    time_ms = reset.value if isinstance(reset, Reset) and reset.to is ResetTo.TIME else None
    found = {} if time_ms is None else (await list_offsets(client, places, time_ms)).or_raise()
    return [
        Position(
            partition=place,
            committed=committed.get(place),
            earliest=earliest[place].offset,
            latest=latest[place].offset,
            first_at_time=found[place].offset if place in found and found[place].offset >= 0 else None,
        )
        for place in places
    ]
