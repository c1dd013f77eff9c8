"""`headwater delete-records`: moves the start of partitions forward."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli.apps import new_app
from headwater.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Json
from headwater.cli.output import print_json, print_table, with_client
from headwater.types import TopicPartition

if TYPE_CHECKING:
    from headwater.client import Client

app = new_app()


@app.command()
def delete(
    places: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TOPIC:PARTITION:OFFSET",
            help="Delete all records before OFFSET; -1 deletes all that there are.",
            show_default=False,
        ),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", metavar="JSON", help="The same as a file in Kafka's format.", show_default=False),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Delete the records of partitions up to an offset."""
    before = dict(map(parse_place, places or ()))
    if file is not None:
        before |= read_places(file)
    if not before:
        raise typer.BadParameter("nothing to delete: name TOPIC:PARTITION:OFFSET or a --file")

    async def run(client: "Client") -> dict[TopicPartition, int]:
        from headwater.client.admin.records import delete_records

        return (await delete_records(client, before)).or_raise()

    moved = with_client(bootstrap, run)
    if as_json:
        print_json(
            [{"topic": topic, "partition": number, "low_watermark": low} for (topic, number), low in moved.items()]
        )
    else:
        columns = ("Topic", "Partition", "LowWatermark")
        print_table(columns, [(*place, low) for place, low in moved.items()], numeric=columns[1:])


def parse_place(text: str) -> tuple[TopicPartition, int]:
    """`topic:partition:offset`.

    >>> parse_place("orders:0:-1")
    (TopicPartition(topic='orders', partition=0), -1)
    """
    try:
        topic, partition, offset = text.split(":")
        return _checked(topic, int(partition), int(offset))
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not TOPIC:PARTITION:OFFSET (offset 0 or more, or -1)") from None


def read_places(path: Path) -> dict[TopicPartition, int]:
    """The file of kafka-delete-records: {"partitions": [{"topic": …, "partition": …, "offset": …}]}."""
    try:
        document: Any = json.loads(path.read_text("utf-8"))
        return dict(_checked(item["topic"], item["partition"], item["offset"]) for item in document["partitions"])
    except OSError as error:
        raise typer.BadParameter(f"cannot read {path}: {error.strerror}", param_hint="--file") from None
    except (ValueError, KeyError, TypeError):
        example = '{"partitions": [{"topic": "orders", "partition": 0, "offset": 10}], "version": 1}'
        raise typer.BadParameter(f"{path} is not of the form {example}", param_hint="--file") from None


def _checked(topic: object, partition: object, offset: object) -> tuple[TopicPartition, int]:
    if not (isinstance(topic, str) and isinstance(partition, int) and isinstance(offset, int)):
        raise ValueError(topic)
    if not topic or partition < 0 or offset < -1:
        raise ValueError(topic)
    return TopicPartition(topic, partition), offset
