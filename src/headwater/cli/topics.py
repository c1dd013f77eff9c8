"""`headwater topics`: create, list, describe, alter, delete."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli.apps import new_app
from headwater.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Json, Topic, complete_topic, pairs
from headwater.cli.output import (
    confirm,
    counted,
    exit_if_failed,
    print_json,
    print_table,
    say,
    topic_id_text,
    with_client,
)

if TYPE_CHECKING:
    from uuid import UUID

    from headwater.client import Client
    from headwater.client.admin.configs import Config
    from headwater.client.admin.results import Results
    from headwater.client.admin.topic_descriptions import TopicDescription
    from headwater.client.admin.topics import CreatedTopic

app = new_app("Create, list, describe, alter and delete topics.")

_TOPIC_COLUMNS = ("Topic", "TopicId", "PartitionCount", "ReplicationFactor", "Configs")
_PARTITION_COLUMNS = ("Topic", "Partition", "Leader", "Replicas", "Isr")
_TOPIC_SOURCE = "DYNAMIC_TOPIC_CONFIG"

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

    async def run(client: "Client") -> "Results[str, CreatedTopic]":
        from headwater.client.admin.topics import NewTopic, create_topics

        new = [
            NewTopic(name, partitions=partitions, replication_factor=replication_factor, configs=configs)
            for name in names
        ]
        return await create_topics(client, new)

    results = with_client(bootstrap, run)
    made = results.succeeded.values()
    failures = _failures(results, forgiven="topic_already_exists" if if_not_exists else None)
    if as_json:
        print_json(
            [
                {
                    "topic": topic.name,
                    "topic_id": topic_id_text(topic.topic_id),
                    "partitions": topic.partitions,
                    "replication_factor": topic.replication_factor,
                }
                for topic in made
            ]
        )
    else:
        for topic in made:
            say(f"Created topic {topic.name}{_shape(topic)}.")
    exit_if_failed(failures)


@app.command("list")
def list_names(
    internal: Annotated[bool, typer.Option("--internal", help="Also the broker's own topics.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """List topic names, one a line."""

    async def run(client: "Client") -> list[str]:
        from headwater.client.admin.topic_descriptions import list_topics

        return [topic.name for topic in await list_topics(client, internal=internal)]

    names = with_client(bootstrap, run)
    if as_json:
        print_json(names)
    else:
        say(*names)


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

    async def run(client: "Client") -> "tuple[list[dict[str, Any]], Sequence[Exception]]":
        from headwater.client.admin.configs import ConfigResource, describe_configs
        from headwater.client.admin.topic_descriptions import describe_topics, list_topics

        if names:
            results = await describe_topics(client, names)
            found, failures = list(results.succeeded.values()), list(results.failed.values())
        else:
            found, failures = await list_topics(client, internal=True), []
        configs = (await describe_configs(client, [ConfigResource.topic(topic.name) for topic in found])).or_raise()
        return [_described(topic, configs[ConfigResource.topic(topic.name)]) for topic in found], failures

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
        from headwater.client.admin.topics import create_partitions

        (await create_partitions(client, {name: partitions})).or_raise()

    with_client(bootstrap, run)
    if as_json:
        print_json({"topic": name, "partitions": partitions})
    else:
        say(f"Topic {name} has {counted(partitions, 'partition')} now.")


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

    async def run(client: "Client") -> "Results[str | UUID, None]":
        from headwater.client.admin.topics import delete_topics

        return await delete_topics(client, names)

    results = with_client(bootstrap, run)
    failures = _failures(results, forgiven="unknown_topic_or_partition" if if_exists else None)
    gone = list(results.succeeded)
    if as_json:
        print_json({"deleted": gone})
    else:
        for name in gone:
            say(f"Deleted topic {name}.")
    exit_if_failed(failures)


def _failures(results: "Results[Any, Any]", *, forgiven: str | None) -> list[Exception]:
    """What went wrong, without refusals for the one reason that the user forgives."""
    from headwater.client import RefusedError

    return [
        error
        for error in results.failed.values()
        if not (isinstance(error, RefusedError) and error.code.name == forgiven)
    ]


def _shape(topic: "CreatedTopic") -> str:
    """What an old broker does not tell is left out."""
    if topic.partitions is None:
        return ""
    return f" with {counted(topic.partitions, 'partition')}, replication factor {topic.replication_factor}"


def _described(topic: "TopicDescription", configs: "Mapping[str, Config]") -> dict[str, Any]:
    return {
        "topic": topic.name,
        "topic_id": topic_id_text(topic.topic_id),
        "internal": topic.internal,
        "partition_count": len(topic.partitions),
        "replication_factor": topic.replication_factor,
        "configs": {name: config.value for name, config in configs.items() if config.source.name == _TOPIC_SOURCE},
        "partitions": [
            {
                "partition": partition.partition,
                "leader": partition.leader,
                "leader_epoch": partition.leader_epoch,
                "replicas": list(partition.replicas),
                "isr": list(partition.isr),
                "offline": list(partition.offline),
            }
            for partition in topic.partitions
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
