"""`headwater groups`: list, describe, members, delete; reset-offsets has a module of its own."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.apps import new_app
from headwater.cli.group_names import GroupName, GroupNames, GroupNamesIfAny
from headwater.cli.group_tables import (
    group_as_json,
    member_as_json,
    print_lags,
    print_members,
    print_states,
    remark_on_state,
)
from headwater.cli.groups_reset import reset_offsets
from headwater.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Json
from headwater.cli.output import confirm, exit_if_failed, print_json, print_table, say, with_client

if TYPE_CHECKING:
    from headwater.cli.group_lag import PartitionLag
    from headwater.client import Client
    from headwater.client.admin.group_descriptions import Group
    from headwater.client.admin.groups import ListedGroup
    from headwater.client.admin.results import Results

app = new_app("List, describe and delete groups of consumers, and reset their offsets.")


class GroupState(StrEnum):
    """The states of groups of both types, in Kafka's words."""

    EMPTY = "Empty"
    STABLE = "Stable"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    DEAD = "Dead"


class GroupType(StrEnum):
    """The protocols by which groups share out their work."""

    CLASSIC = "Classic"
    CONSUMER = "Consumer"
    SHARE = "Share"
    STREAMS = "Streams"


@app.command("list")
def list_all(
    state: Annotated[
        list[GroupState] | None,
        typer.Option("--state", case_sensitive=False, help="Only groups in this state; may be repeated."),
    ] = None,
    type_: Annotated[
        list[GroupType] | None,
        typer.Option("--type", case_sensitive=False, help="Only groups of this type; may be repeated."),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """List groups with their type and state."""

    async def run(client: "Client") -> "list[ListedGroup]":
        from headwater.client.admin.groups import list_groups

        return await list_groups(client)

    groups = [
        {
            "group": group.group_id,
            "type": group.group_type.capitalize() or None,
            "protocol": group.protocol_type or None,
            "state": group.state or None,
            "coordinator": group.coordinator,
        }
        for group in with_client(bootstrap, run)
        if (not state or group.state in state) and (not type_ or group.group_type.capitalize() in type_)
    ]
    if as_json:
        print_json(groups)
    else:
        print_table(
            ("GROUP", "TYPE", "PROTOCOL", "STATE"),
            [(group["group"], group["type"], group["protocol"], group["state"]) for group in groups],
        )


@app.command()
def describe(
    groups: GroupNamesIfAny = None,
    all_groups: Annotated[bool, typer.Option("--all", help="Every group that there is.")] = False,
    state: Annotated[bool, typer.Option("--state", help="Coordinator and state instead of offsets.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Describe groups: how far each has come in every partition, and who reads it."""
    if all_groups == bool(groups):
        raise typer.BadParameter("name groups, or describe them all with --all")

    async def run(client: "Client") -> "Results[str, tuple[Group, list[PartitionLag]]]":
        from headwater.cli.group_lag import partition_lags
        from headwater.client.admin.group_descriptions import describe_groups
        from headwater.client.admin.groups import list_groups
        from headwater.client.admin.results import for_each

        names = groups or [group.group_id for group in await list_groups(client)]
        described = await describe_groups(client, names)

        async def look(name: str) -> "tuple[Group, list[PartitionLag]]":
            group = described.one(name)
            return group, [] if state else await partition_lags(client, group)

        return await for_each(names, look)

    results = with_client(bootstrap, run)
    found = list(results.succeeded.values())
    if as_json:
        print_json([group_as_json(group, None if state else lags) for group, lags in found])
    elif state:
        print_states([group for group, _ in found])
    else:
        print_lags(found, with_group=len(results) > 1 or all_groups)
    exit_if_failed(list(results.failed.values()))


@app.command()
def members(
    group: GroupName,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Also the partitions that each has.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Show who is in a group, and how many partitions each member has."""

    async def run(client: "Client") -> "Group":
        from headwater.client.admin.group_descriptions import describe_groups

        return (await describe_groups(client, [group])).one(group)

    found = with_client(bootstrap, run)
    if as_json:
        print_json([member_as_json(member) for member in found.members])
        return
    if found.members:
        print_members(found.members, verbose=verbose)
    remark_on_state(found)


@app.command()
def delete(
    groups: GroupNames,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Delete groups without members, with all that they have committed."""
    if not yes:
        what = f"group {groups[0]}" if len(groups) == 1 else f"{len(groups)} groups ({', '.join(groups)})"
        confirm(f"Delete {what} with all committed offsets?", because="deleting offsets is for good")

    async def run(client: "Client") -> "Results[str, None]":
        from headwater.client.admin.groups import delete_groups

        return await delete_groups(client, groups)

    results = with_client(bootstrap, run)
    gone = list(results.succeeded)
    if as_json:
        print_json({"deleted": gone})
    else:
        for name in gone:
            say(f"Deleted group {name}.")
    exit_if_failed(list(results.failed.values()))


app.command("reset-offsets")(reset_offsets)
