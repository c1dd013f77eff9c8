"""Names of groups on the command line, which the shell completes."""

from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from headwater.cli.options import complete_from

if TYPE_CHECKING:
    from headwater.client import Client


def complete_group(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of groups for the shell."""

    async def names(client: "Client") -> list[str]:
        from headwater.client.admin.groups import list_groups

        return [group.group_id for group in await list_groups(client)]

    return complete_from(ctx, incomplete, names)


_ARGUMENT = typer.Argument(metavar="GROUP", autocompletion=complete_group, show_default=False)
GroupName: TypeAlias = Annotated[str, _ARGUMENT]
GroupNames: TypeAlias = Annotated[list[str], _ARGUMENT]
GroupNamesIfAny: TypeAlias = Annotated[list[str] | None, _ARGUMENT]
