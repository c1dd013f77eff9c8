"""`headwater transactions`: list and describe, which ask coordinators; what asks partitions has a module of its own."""

import time
from dataclasses import asdict
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli.apps import new_app
from headwater.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Json, complete_from
from headwater.cli.output import exit_if_failed, print_fields, print_json, print_table, with_client
from headwater.cli.transactions_hanging import abort, describe_producers, find_hanging

if TYPE_CHECKING:
    from headwater.client import Client
    from headwater.client.admin.results import Results
    from headwater.client.admin.transactions import ListedTransaction, Transaction

app = new_app("List and describe transactions, find those that hang, and abort them.")

_LIST_COLUMNS = ("TransactionalId", "Coordinator", "ProducerId", "TransactionState")


class TransactionState(StrEnum):
    """The states of a transactional id, in Kafka's words."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"
    DEAD = "Dead"


def _complete_id(ctx: typer.Context, incomplete: str) -> list[str]:
    async def names(client: "Client") -> list[str]:
        from headwater.client.admin.transactions import list_transactions

        return [listed.transactional_id for listed in await list_transactions(client)]

    return complete_from(ctx, incomplete, names)


@app.command("list")
def list_all(
    state: Annotated[
        list[TransactionState] | None,
        typer.Option("--state", case_sensitive=False, help="Only those in this state; may be repeated."),
    ] = None,
    producer_id: Annotated[
        list[int] | None,
        typer.Option("--producer-id", min=0, metavar="ID", help="Only that of this producer; may be repeated."),
    ] = None,
    duration_ms: Annotated[
        int | None, typer.Option("--duration-ms", min=0, metavar="MS", help="Only those that began longer ago.")
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """List transactional ids with their state."""

    async def run(client: "Client") -> "list[ListedTransaction]":
        from headwater.client.admin.transactions import list_transactions

        return await list_transactions(
            client,
            states=[str(wanted) for wanted in state or ()],
            producer_ids=producer_id or (),
            longer_than_ms=duration_ms,
        )

    found = with_client(bootstrap, run)
    if as_json:
        print_json([asdict(listed) for listed in found])
    else:
        print_table(_LIST_COLUMNS, [tuple(asdict(listed).values()) for listed in found], numeric=_LIST_COLUMNS[1:3])


@app.command()
def describe(
    ids: Annotated[
        list[str], typer.Argument(metavar="TRANSACTIONAL-ID", autocompletion=_complete_id, show_default=False)
    ],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Describe transactional ids: the producer, the state, and the partitions of an open transaction."""

    async def run(client: "Client") -> "Results[str, Transaction]":
        from headwater.client.admin.transactions import describe_transactions

        return await describe_transactions(client, ids)

    results = with_client(bootstrap, run)
    found = results.succeeded.values()
    if as_json:
        print_json([_as_json(transaction) for transaction in found])
    else:
        for number, transaction in enumerate(found):
            print(end="\n" if number else "")
            print_fields(_fields(transaction))
    exit_if_failed(list(results.failed.values()))


app.command("describe-producers")(describe_producers)
app.command("find-hanging")(find_hanging)
app.command("abort")(abort)


def _fields(transaction: "Transaction") -> dict[str, object]:
    """The columns of Kafka's tool, as lines: together they are wider than most screens."""
    return {
        "CoordinatorId": transaction.coordinator,
        "TransactionalId": transaction.transactional_id,
        "ProducerId": transaction.producer_id,
        "ProducerEpoch": transaction.producer_epoch,
        "TransactionState": transaction.state,
        "TransactionTimeoutMs": transaction.timeout_ms,
        "CurrentTransactionStartTimeMs": transaction.started_at_ms,
        "TransactionDurationMs": _duration_ms(transaction),
        "TopicPartitions": ",".join(map(str, transaction.partitions)) or None,
    }


def _as_json(transaction: "Transaction") -> dict[str, Any]:
    partitions = [{"topic": topic, "partition": number} for topic, number in transaction.partitions]
    return {**asdict(transaction), "duration_ms": _duration_ms(transaction), "partitions": partitions}


def _duration_ms(transaction: "Transaction") -> int | None:
    started_at_ms = transaction.started_at_ms
    return None if started_at_ms is None else time.time_ns() // 1_000_000 - started_at_ms
