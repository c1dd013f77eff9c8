"""`headwater offsets`: the first, last or time-given offsets of partitions."""

from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.apps import new_app
from headwater.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Json, complete_topic, timestamp_ms
from headwater.cli.output import print_json, print_table, with_client
from headwater.types import TopicPartition

if TYPE_CHECKING:
    from headwater.client import Client
    from headwater.client.admin.records import FoundOffset

app = new_app()

_SPOTS = {"latest": -1, "earliest": -2, "max-timestamp": -3, "-1": -1, "-2": -2, "-3": -3}


@app.command()
def show_offsets(
    places: Annotated[
        list[str],
        typer.Argument(metavar="TOPIC[:PARTITION]", autocompletion=complete_topic, show_default=False),
    ],
    time: Annotated[
        str,
        typer.Option(
            "--time",
            "-t",
            metavar="WHEN",
            help="earliest, latest, max-timestamp, or a time (ISO or epoch milliseconds): "
            "then the first record at or after it.",
        ),
    ] = "latest",
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Show offsets of partitions: at the end, at the start, or by time."""
    when = _SPOTS.get(time, timestamp_ms(time))
    if when is None:
        raise typer.BadParameter(
            f"{time!r} is neither earliest, latest, max-timestamp, an ISO time nor epoch milliseconds",
            param_hint="--time",
        )

    async def run(client: "Client") -> "dict[TopicPartition, FoundOffset]":
        from headwater.client.admin.records import list_offsets

        wanted: list[TopicPartition] = []
        for place in places:
            topic, partition = split_place(place)
            numbers = sorted(await client.partitions(topic)) if partition is None else [partition]
            wanted.extend(TopicPartition(topic, number) for number in numbers)
        return (await list_offsets(client, wanted, when)).or_raise()

    found = with_client(bootstrap, run)
    by_time = when not in (-1, -2)
    if as_json:
        print_json(
            [
                {
                    "topic": place.topic,
                    "partition": place.partition,
                    "offset": None if offset < 0 else offset,
                    "timestamp": None if timestamp < 0 else timestamp,
                }
                for place, (offset, timestamp, _) in found.items()
            ]
        )
        return
    rows = [
        (place.topic, place.partition, None if offset < 0 else offset, None if timestamp < 0 else timestamp)
        for place, (offset, timestamp, _) in found.items()
    ]
    columns = ("Topic", "Partition", "Offset", "Timestamp")
    shown = 4 if by_time else 3
    print_table(columns[:shown], [row[:shown] for row in rows], numeric=columns[1:])


def split_place(text: str) -> tuple[str, int | None]:
    """`topic` or `topic:partition`.

    >>> split_place("orders:3")
    ('orders', 3)
    """
    topic, separator, partition = text.partition(":")
    if not separator:
        return topic, None
    if not topic or not partition.isascii() or not partition.isdigit():
        raise typer.BadParameter(f"{text!r} is not TOPIC or TOPIC:PARTITION")
    return topic, int(partition)
