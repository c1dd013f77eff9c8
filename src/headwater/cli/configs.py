"""`headwater configs`: describe and alter the configs of topics and brokers."""

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli.apps import new_app
from headwater.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Json, complete_topic, pairs
from headwater.cli.output import counted, print_json, print_table, with_client

if TYPE_CHECKING:
    from headwater.client import Client
    from headwater.client.thin.admin import ConfigChange, ResourceType

app = new_app("Describe and alter configs of topics and brokers.")

_SOURCES = {
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
    6: "DYNAMIC_BROKER_LOGGER_CONFIG",
    7: "DYNAMIC_CLIENT_METRICS_CONFIG",
    8: "DYNAMIC_GROUP_CONFIG",
}
_TYPES = {
    1: "boolean",
    2: "string",
    3: "int",
    4: "short",
    5: "long",
    6: "double",
    7: "list",
    8: "class",
    9: "password",
}


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

    async def run(client: "Client") -> Sequence[Any]:
        from headwater.client.thin.admin import describe_configs

        resource, resource_name = _resource(entity, name)
        return (await describe_configs(client, resource, [resource_name]))[resource_name]

    entries = sorted(with_client(bootstrap, run), key=lambda entry: entry.name)
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
        from headwater.client.thin.admin import AlterOperation, ConfigChange, alter_configs

        changes = [ConfigChange(operation=AlterOperation[how], name=what, value=value) for how, what, value in wishes]
        await alter_configs(client, *_resource(entity, name), changes)
        return changes

    changes = with_client(bootstrap, run)
    if as_json:
        print_json(
            [{"operation": change.operation.name, "name": change.name, "value": change.value} for change in changes]
        )
    else:
        print(f"Changed {counted(len(changes), 'config')} of {entity.value[:-1]} {name}.")


def _resource(entity: Entity, name: str) -> "tuple[ResourceType, str]":
    from headwater.client.thin.admin import ResourceType

    if entity is Entity.TOPICS:
        return ResourceType.TOPIC, name
    if name != "default" and not name.isdigit():
        raise typer.BadParameter("a broker is named by its id, or 'default' for all of them", param_hint="NAME")
    return ResourceType.BROKER, "" if name == "default" else name


def _was_set(entity: Entity, entry: Any) -> bool:
    """For a topic what was set on it; for a broker all that is not a default."""
    source = _SOURCES.get(entry.config_source)
    return source == "DYNAMIC_TOPIC_CONFIG" if entity is Entity.TOPICS else source != "DEFAULT_CONFIG"


def _as_row(entry: Any) -> tuple[str, str, str, str]:
    synonyms = ", ".join(
        f"{_source(synonym.source)}:{synonym.name}={_shown(synonym.value, entry.is_sensitive)}"
        for synonym in entry.synonyms
    )
    return entry.name, _shown(entry.value, entry.is_sensitive), _source(entry.config_source), synonyms


def _shown(value: str | None, sensitive: bool) -> str:
    return "(hidden)" if sensitive else "null" if value is None else value


def _source(source: int) -> str:
    return _SOURCES.get(source, f"UNKNOWN_{source}")


def _as_json(entry: Any) -> dict[str, Any]:
    return {
        "name": entry.name,
        "value": entry.value,
        "source": _source(entry.config_source),
        "type": _TYPES.get(entry.config_type),
        "sensitive": entry.is_sensitive,
        "read_only": entry.read_only,
        "synonyms": [
            {"name": synonym.name, "value": synonym.value, "source": _source(synonym.source)}
            for synonym in entry.synonyms
        ],
        "documentation": entry.documentation,
    }
