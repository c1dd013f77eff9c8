"""`headwater topics`: create, list, describe, alter, delete."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli.apps import new_app
from headwater.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Json, Topic, complete_topic, pairs
from headwater.cli.output import confirm, counted, exit_if_failed, print_json, print_table, topic_id_text, with_client

if TYPE_CHECKING:
    from headwater.client import Client

app = new_app("Create, list, describe, alter and delete topics.")

_TOPIC_COLUMNS = ("Topic", "TopicId", "PartitionCount", "ReplicationFactor", "Configs")
_PARTITION_COLUMNS = ("Topic", "Partition", "Leader", "Replicas", "Isr")
_TOPIC_SOURCE = 1

Names = Annotated[list[str], typer.Argument(metavar="NAME", autocompletion=complete_topic, show_default=False)]


@app.command()
def create(
    names: Annotated[list[str], typer.Argument(metavar="NAME", show_default=False)],
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", min=1, show_default="the broker's num.partitions")
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option("--replication-factor", "-r", min=1, show_default="the broker's default.replication.factor"),
    ] = None,
    config: Annotated[
        list[str] | None,
        typer.Option("--config", "-c", metavar="name=value", help="A topic config.", show_default=False),
    ] = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="No error for a topic that is there already.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Create topics."""
    configs = pairs(config or (), "--config")

    async def run(client: "Client") -> list[Any]:
        from headwater.client.thin.admin import NewTopic, create_topics

        new = [
            NewTopic(
                name=name,
                partitions=partitions or -1,
                replication_factor=replication_factor or -1,
                configs=configs,
            )
            for name in names
        ]
        return list(await create_topics(client, new))

    outcomes = with_client(bootstrap, run)
    made = [outcome.value for outcome in outcomes if outcome.value is not None]
    failures = [outcome.error for outcome in outcomes if outcome.error is not None]
    if if_not_exists:
        failures = [failure for failure in failures if failure.code.name != "topic_already_exists"]
    if as_json:
        print_json(
            [
                {
                    "topic": topic.name,
                    "topic_id": topic_id_text(topic.topic_id),
                    "partitions": topic.num_partitions,
                    "replication_factor": topic.replication_factor,
                }
                for topic in made
            ]
        )
    else:
        for topic in made:
            print(f"Created topic {topic.name}{_shape(topic.num_partitions, topic.replication_factor)}.")
    exit_if_failed(failures)


@app.command("list")
def list_names(
    internal: Annotated[bool, typer.Option("--internal", help="Also the broker's own topics.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """List topic names, one a line."""

    async def run(client: "Client") -> list[str]:
        from headwater.client.thin.admin import list_topics

        return [topic.name for topic in await list_topics(client) if topic.name and (internal or not topic.is_internal)]

    names = with_client(bootstrap, run)
    if as_json:
        print_json(names)
    else:
        print("".join(f"{name}\n" for name in names), end="")


@app.command()
def describe(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME", autocompletion=complete_topic, show_default=False),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Describe topics: partitions, leaders, replicas, configs that were set. All topics if none is named."""

    async def run(client: "Client") -> tuple[list[dict[str, Any]], list[Exception]]:
        from headwater.client.thin.admin import ResourceType, describe_configs, describe_topics, list_topics

        if names:
            outcomes = await describe_topics(client, names)
            found = [outcome.value for outcome in outcomes if outcome.value is not None]
            failures: list[Exception] = [outcome.error for outcome in outcomes if outcome.error is not None]
        else:
            found, failures = await list_topics(client), []
        known = [topic.name for topic in found if topic.name]
        configs = await describe_configs(client, ResourceType.TOPIC, known) if known else {}
        return [_described(topic, configs.get(topic.name or "", ())) for topic in found], failures

    topics, failures = with_client(bootstrap, run)
    if as_json:
        print_json(topics)
    elif topics:
        _print_descriptions(topics)
    exit_if_failed(failures)


@app.command()
def alter(
    name: Topic,
    partitions: Annotated[int, typer.Option("--partitions", "-p", min=1, help="The new total.", show_default=False)],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Add partitions to a topic. Keys may go to other partitions from then on."""

    async def run(client: "Client") -> None:
        from headwater.client.thin.admin import add_partitions

        await add_partitions(client, name, partitions)

    with_client(bootstrap, run)
    if as_json:
        print_json({"topic": name, "partitions": partitions})
    else:
        print(f"Topic {name} has {counted(partitions, 'partition')} now.")


@app.command()
def delete(
    names: Names,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="No error for a topic that is not there.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Delete topics with all their records."""
    if not yes:
        what = f"topic {names[0]}" if len(names) == 1 else f"{len(names)} topics ({', '.join(names)})"
        confirm(f"Delete {what} with all records?", because="deleting records is for good")

    async def run(client: "Client") -> list[Any]:
        from headwater.client.thin.admin import delete_topics

        return list(await delete_topics(client, names))

    outcomes = with_client(bootstrap, run)
    failures = [outcome.error for outcome in outcomes if outcome.error is not None]
    if if_exists:
        failures = [failure for failure in failures if failure.code.name != "unknown_topic_or_partition"]
    gone = [outcome.name for outcome in outcomes if outcome.error is None]
    if as_json:
        print_json({"deleted": gone})
    else:
        for name in gone:
            print(f"Deleted topic {name}.")
    exit_if_failed(failures)


def _shape(partitions: int, replication_factor: int) -> str:
    """What an old broker does not tell is left out."""
    if partitions < 0:
        return ""
    return f" with {counted(partitions, 'partition')}, replication factor {replication_factor}"


def _described(topic: Any, configs: Sequence[Any]) -> dict[str, Any]:
    partitions = sorted(topic.partitions, key=lambda partition: partition.partition_index)
    return {
        "topic": topic.name,
        "topic_id": topic_id_text(topic.topic_id),
        "internal": topic.is_internal,
        "partition_count": len(partitions),
        "replication_factor": len(partitions[0].replica_nodes) if partitions else 0,
        "configs": {entry.name: entry.value for entry in configs if entry.config_source == _TOPIC_SOURCE},
        "partitions": [
            {
                "partition": partition.partition_index,
                "leader": None if partition.leader_id < 0 else partition.leader_id,
                "leader_epoch": partition.leader_epoch,
                "replicas": list(partition.replica_nodes),
                "isr": list(partition.isr_nodes),
                "offline": list(partition.offline_replicas),
            }
            for partition in partitions
        ],
    }


def _print_descriptions(topics: Sequence[dict[str, Any]]) -> None:
    print_table(
        _TOPIC_COLUMNS,
        [
            (
                topic["topic"],
                topic["topic_id"],
                topic["partition_count"],
                topic["replication_factor"],
                ",".join(f"{name}={value}" for name, value in topic["configs"].items()),
            )
            for topic in topics
        ],
        numeric=("PartitionCount", "ReplicationFactor"),
    )
    print()
    rows = [
        (
            topic["topic"],
            partition["partition"],
            "none" if partition["leader"] is None else partition["leader"],
            ",".join(map(str, partition["replicas"])),
            ",".join(map(str, partition["isr"])),
        )
        for topic in topics
        for partition in topic["partitions"]
    ]
    print_table(_PARTITION_COLUMNS, rows, numeric=("Partition", "Leader"))
