"""`headwater configs`: describe and alter the configs of topics and brokers."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli.apps import new_app
from headwater.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Json, complete_topic, pairs
from headwater.cli.output import counted, print_json, print_table, say, with_client

if TYPE_CHECKING:
    from headwater.client import Client
    from headwater.client.admin.configs import Config, ConfigChange, ConfigResource

app = new_app("Describe and alter configs of topics and brokers.")


class Entity(StrEnum):
    """What has configs."""

    TOPICS = "topics"
    BROKERS = "brokers"


def _complete_name(ctx: typer.Context, incomplete: str) -> list[str]:
    return complete_topic(ctx, incomplete) if ctx.params.get("entity") == Entity.TOPICS else []


EntityArgument = Annotated[Entity, typer.Argument(metavar="topics|brokers", show_default=False)]
NameArgument = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="A topic, a broker's id, or 'default' for all brokers.",
        autocompletion=_complete_name,
        show_default=False,
    ),
]


@app.command()
def describe(
    entity: EntityArgument,
    name: NameArgument,
    all_configs: Annotated[bool, typer.Option("--all", help="Also what nobody has set.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Show configs with their values and where those come from."""

    async def run(client: "Client") -> "dict[str, Config]":
        from headwater.client.admin.configs import describe_configs

        resource = _resource(entity, name)
        return (await describe_configs(client, [resource])).one(resource)

    entries = sorted(with_client(bootstrap, run).values(), key=lambda entry: entry.name)
    if not all_configs:
        entries = [entry for entry in entries if _was_set(entity, entry)]
    if as_json:
        print_json([_as_json(entry) for entry in entries])
    else:
        print_table(("Config", "Value", "Source", "Synonyms"), [_as_row(entry) for entry in entries])


@app.command()
def alter(
    entity: EntityArgument,
    name: NameArgument,
    set_: Annotated[
        list[str] | None, typer.Option("--set", "-s", metavar="name=value", help="Give a config a value.")
    ] = None,
    delete: Annotated[
        list[str] | None,
        typer.Option("--delete", "-d", metavar="name", help="Go back to the inherited value."),
    ] = None,
    append: Annotated[list[str] | None, typer.Option("--append", metavar="name=value", help="Add to a list.")] = None,
    subtract: Annotated[
        list[str] | None, typer.Option("--subtract", metavar="name=value", help="Take from a list.")
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Change some configs and leave the others: all the changes are made, or none."""
    wishes = [
        *(("SET", *pair) for pair in pairs(set_ or (), "--set").items()),
        *(("DELETE", config, None) for config in delete or ()),
        *(("APPEND", *pair) for pair in pairs(append or (), "--append").items()),
        *(("SUBTRACT", *pair) for pair in pairs(subtract or (), "--subtract").items()),
    ]
    if not wishes:
        raise typer.BadParameter("nothing to change: use --set, --delete, --append or --subtract")

    async def run(client: "Client") -> "list[ConfigChange]":
        from headwater.client.admin.configs import AlterOperation, ConfigChange, alter_configs

        changes = [ConfigChange(operation=AlterOperation[how], name=what, value=value) for how, what, value in wishes]
        (await alter_configs(client, {_resource(entity, name): changes})).or_raise()
        return changes

    changes = with_client(bootstrap, run)
    if as_json:
        print_json(
            [{"operation": change.operation.name, "name": change.name, "value": change.value} for change in changes]
        )
    else:
        say(f"Changed {counted(len(changes), 'config')} of {entity.value[:-1]} {name}.")


def _resource(entity: Entity, name: str) -> "ConfigResource":
    from headwater.client.admin.configs import ConfigResource

    if entity is Entity.TOPICS:
        return ConfigResource.topic(name)
    if name == "default":
        return ConfigResource.all_brokers()
    if not name.isdigit():
        raise typer.BadParameter("a broker is named by its id, or 'default' for all of them", param_hint="NAME")
    return ConfigResource.broker(int(name))


def _was_set(entity: Entity, entry: "Config") -> bool:
    """For a topic what was set on it; for a broker all that is not a default."""
    source = entry.source.name
    return source == "DYNAMIC_TOPIC_CONFIG" if entity is Entity.TOPICS else source != "DEFAULT_CONFIG"


def _as_row(entry: "Config") -> tuple[str, str, str, str]:
    synonyms = ", ".join(
        f"{synonym.source.name}:{synonym.name}={_shown(synonym.value, entry.sensitive)}" for synonym in entry.synonyms
    )
    return entry.name, _shown(entry.value, entry.sensitive), entry.source.name, synonyms


def _shown(value: str | None, sensitive: bool) -> str:
    return "(hidden)" if sensitive else "null" if value is None else value


def _as_json(entry: "Config") -> dict[str, Any]:
    return {
        "name": entry.name,
        "value": entry.value,
        "source": entry.source.name,
        "type": entry.type.name.lower() if entry.type else None,
        "sensitive": entry.sensitive,
        "read_only": entry.read_only,
        "synonyms": [
            {"name": synonym.name, "value": synonym.value, "source": synonym.source.name} for synonym in entry.synonyms
        ],
        "documentation": entry.documentation,
    }
