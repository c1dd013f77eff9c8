"""`headwater transactions describe-producers|find-hanging|abort`: what partitions know, and past the coordinator."""

import sys
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Json, complete_topic
from headwater.cli.output import complain, counted, print_json, print_table, say, with_client
from headwater.types import TopicPartition

if TYPE_CHECKING:
    from headwater.client import Client
    from headwater.client.admin.producers import ActiveProducer

_PRODUCER_COLUMNS = (
    "ProducerId",
    "ProducerEpoch",
    "LatestCoordinatorEpoch",
    "LastSequence",
    "LastTimestamp",
    "CurrentTransactionStartOffset",
)
_HANGING_COLUMNS = (
    "Topic",
    "Partition",
    "ProducerId",
    "ProducerEpoch",
    "CoordinatorEpoch",
    "StartOffset",
    "LastTimestamp",
    "Duration(min)",
)
_PARTITIONS_AT_ONCE = 500
_MINUTE_MS = 60_000

TopicOption = Annotated[
    str, typer.Option("--topic", metavar="TOPIC", autocompletion=complete_topic, show_default=False)
]
PartitionOption = Annotated[int, typer.Option("--partition", min=0, metavar="N", show_default=False)]


def describe_producers(
    topic: TopicOption, partition: PartitionOption, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: Json = False
) -> None:
    """Show the producers that a partition remembers, and where the open transaction of each starts."""

    place = TopicPartition(topic, partition)

    async def run(client: "Client") -> "tuple[ActiveProducer, ...]":
        from headwater.client.admin.producers import describe_producers

        return (await describe_producers(client, [place])).one(place)

    producers = with_client(bootstrap, run)
    if as_json:
        print_json([_as_json(producer) for producer in producers])
        return
    rows = [
        (
            producer.producer_id,
            producer.producer_epoch,
            producer.coordinator_epoch,
            producer.last_sequence,
            producer.last_timestamp_ms,
            producer.transaction_start_offset,
        )
        for producer in producers
    ]
    print_table(_PRODUCER_COLUMNS, rows, numeric=_PRODUCER_COLUMNS)


def find_hanging(
    topic: Annotated[
        str | None,
        typer.Option("--topic", metavar="TOPIC", help="Only there.", autocompletion=complete_topic, show_default="all"),
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", min=0, metavar="N", help="Only in this one.", show_default="all")
    ] = None,
    max_transaction_timeout: Annotated[
        int,
        typer.Option(
            "--max-transaction-timeout",
            min=0,
            metavar="MINUTES",
            help="The longest that a transaction may last here: only older ones are looked at.",
        ),
    ] = 15,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Find transactions that are open in a partition although no coordinator is going to end them."""
    if partition is not None and topic is None:
        raise typer.BadParameter("--partition needs a --topic")

    async def run(client: "Client") -> "tuple[int, list[ActiveProducer]]":
        from headwater.client.admin.producers import find_hanging_transactions

        partitions = await _partitions_to_search(client, topic, partition)
        found = []
        for batch in _batches(partitions):
            found += await find_hanging_transactions(client, batch, longer_than_ms=max_transaction_timeout * _MINUTE_MS)
        return len(partitions), found

    searched, hanging = with_client(bootstrap, run)
    if as_json:
        print_json([_as_json(producer) for producer in hanging])
        return
    now_ms = time.time_ns() // 1_000_000
    rows = [
        (
            *producer.partition,
            producer.producer_id,
            producer.producer_epoch,
            producer.coordinator_epoch,
            producer.transaction_start_offset,
            producer.last_timestamp_ms,
            (now_ms - producer.last_timestamp_ms) // _MINUTE_MS,
        )
        for producer in hanging
    ]
    print_table(_HANGING_COLUMNS, rows, numeric=_HANGING_COLUMNS[1:])
    if hanging:
        complain("`headwater transactions abort --topic … --partition … --start-offset …` ends such a transaction")
    else:
        complain(f"no transaction hangs in {counted(searched, 'partition')}")


def abort(
    topic: TopicOption,
    partition: PartitionOption,
    start_offset: Annotated[
        int | None, typer.Option("--start-offset", min=0, metavar="OFFSET", help="Where the transaction starts.")
    ] = None,
    producer_id: Annotated[int | None, typer.Option("--producer-id", min=0, metavar="ID")] = None,
    producer_epoch: Annotated[int | None, typer.Option("--producer-epoch", min=0, metavar="N")] = None,
    coordinator_epoch: Annotated[int | None, typer.Option("--coordinator-epoch", metavar="N")] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Abort a hanging transaction in one partition: that at --start-offset, or that of a producer by id and epochs.

    Abort only what `find-hanging` shows: the coordinator of a transaction is not asked, nor any other partition.
    """
    by_producer = [number for number in (producer_id, producer_epoch, coordinator_epoch) if number is not None]
    if len(by_producer) != (3 if start_offset is None else 0):
        raise typer.BadParameter(
            "name the transaction by --start-offset, or by --producer-id, --producer-epoch and --coordinator-epoch"
        )
    place = TopicPartition(topic, partition)

    async def run(client: "Client") -> list[int]:
        from headwater.client.admin.producers import abort_transaction

        numbers = by_producer or await _open_at(client, place, start_offset)
        await abort_transaction(
            client, place, producer_id=numbers[0], producer_epoch=numbers[1], coordinator_epoch=numbers[2]
        )
        return numbers

    producer, epoch, _ = with_client(bootstrap, run)
    if as_json:
        print_json({"topic": topic, "partition": partition, "producer_id": producer, "producer_epoch": epoch})
    else:
        say(f"Wrote an abort marker for producer {producer}, epoch {epoch}, to partition {partition} of topic {topic}.")


async def _open_at(client: "Client", place: TopicPartition, start_offset: int | None) -> list[int]:
    """Producer id, producer epoch and coordinator epoch of the transaction that starts at an offset."""
    from headwater.client import ClientError
    from headwater.client.admin.producers import describe_producers

    for producer in (await describe_producers(client, [place])).one(place):
        if producer.transaction_start_offset == start_offset:
            return [producer.producer_id, producer.producer_epoch, producer.coordinator_epoch]
    raise ClientError(
        f"no transaction that starts at offset {start_offset} is open in partition {place.partition} of topic "
        f"{place.topic}; `headwater transactions describe-producers` shows those that are"
    )


async def _partitions_to_search(client: "Client", topic: str | None, partition: int | None) -> list[TopicPartition]:
    """The partitions to search: those with a leader, unless one is named."""
    if topic is not None and partition is not None:
        return [TopicPartition(topic, partition)]
    topics = [await client.topic(topic)] if topic is not None else (await client.metadata()).topics
    return [
        TopicPartition(found.name, number.partition_index)
        for found in topics
        for number in found.partitions
        if found.name is not None and number.leader_id >= 0
    ]


def _batches(partitions: Sequence[TopicPartition]) -> Iterator[Sequence[TopicPartition]]:
    """So many at a time as a broker likes to be asked for; whoever waits on a terminal sees how far it has come."""
    starts = range(0, len(partitions), _PARTITIONS_AT_ONCE)
    if len(starts) > 1 and sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import track

        shown = track(starts, description="Searching", console=Console(stderr=True), transient=True)
    else:
        shown = starts
    for start in shown:
        yield partitions[start : start + _PARTITIONS_AT_ONCE]


def _as_json(producer: "ActiveProducer") -> dict[str, Any]:
    return {
        "topic": producer.partition.topic,
        "partition": producer.partition.partition,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
        "coordinator_epoch": producer.coordinator_epoch,
        "last_sequence": producer.last_sequence,
        "last_timestamp": producer.last_timestamp_ms,
        "transaction_start_offset": producer.transaction_start_offset,
    }
