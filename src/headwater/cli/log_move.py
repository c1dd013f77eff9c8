"""`headwater log move`: has partitions moved to another log dir of their broker, and shows how far that is."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import typer

from headwater.cli.output import bytes_for_people, complain, fail, print_json, print_table, with_client
from headwater.cli.progress import byte_progress
from headwater.types import TopicPartition

if TYPE_CHECKING:
    from headwater.client import Client, ClientError
    from headwater.client.admin.log_dirs import LogDir

_LOOK_EVERY_S: Final = 0.2
_GONE_AFTER: Final = 5


@dataclass(slots=True)
class _Move:
    """What is known of one partition's move; `error` says why it is not moved, `missed` how often it was not seen."""

    partition: TopicPartition
    size_bytes: int = 0
    copied_bytes: int = 0
    is_there: bool = False
    missed: int = 0
    error: str | None = None

    @property
    def is_settled(self) -> bool:
        """Whether there is nothing to wait for any more."""
        return self.is_there or self.error is not None


@dataclass(slots=True)
class _Moves:
    """The moves to one dir of one broker."""

    broker: int
    log_dir: str
    moves: dict[TopicPartition, _Move] = field(default_factory=dict)


def parse_partition(text: str) -> TopicPartition:
    """`topic-partition`, as its folder is called.

    >>> parse_partition("new-orders-3")
    TopicPartition(topic='new-orders', partition=3)
    """
    topic, _, number = text.rpartition("-")
    if not topic or not number.isascii() or not number.isdigit():
        raise typer.BadParameter(f"{text!r} is not TOPIC-PARTITION, as in orders-3", param_hint="TOPIC-PARTITION")
    return TopicPartition(topic, int(number))


def move_partitions(
    bootstrap: str,
    partitions: Sequence[TopicPartition],
    log_dir: str,
    *,
    broker: int | None,
    wait: bool,
    as_json: bool,
) -> None:
    """Begins the moves, waits for their end unless told not to, and says how each went; exit code 1 if one failed."""

    async def run(client: "Client") -> _Moves:
        moves = _Moves(await _the_broker(client, broker), log_dir)
        await _begin(client, moves, partitions)
        if wait:
            await _follow(client, moves)
        return moves

    moves = with_client(bootstrap, run)
    _report(moves, as_json=as_json)
    failures = [move for move in moves.moves.values() if move.error]
    for move in failures:
        complain(f"{move.partition}: {move.error}")
    if failures:
        raise typer.Exit(1)


async def _the_broker(client: "Client", broker: int | None) -> int:
    from headwater.client.admin.cluster import describe_cluster

    known = [each.broker_id for each in (await describe_cluster(client)).brokers]
    if broker is None and len(known) == 1:
        return known[0]
    if broker not in known:
        fail(f"name one of the brokers {', '.join(map(str, known))} with --broker")
    return broker


async def _begin(client: "Client", moves: _Moves, partitions: Sequence[TopicPartition]) -> None:
    from headwater.client.admin.log_dirs import alter_replica_log_dirs

    dirs = [log_dir.path for log_dir in await _log_dirs(client, moves, [])]
    if moves.log_dir not in dirs:
        fail(f"{moves.log_dir} is no log dir of broker {moves.broker}; it has {', '.join(dirs)}")
    results = await alter_replica_log_dirs(client, moves.broker, moves.log_dir, partitions)
    for partition, error in results.items():
        moves.moves[partition] = _Move(partition, error=None if error is None else _why(error))
    _take_in(moves, await _log_dirs(client, moves, partitions))


async def _log_dirs(client: "Client", moves: _Moves, partitions: Sequence[TopicPartition]) -> "tuple[LogDir, ...]":
    from headwater.client.admin.log_dirs import describe_log_dirs

    return (await describe_log_dirs(client, [moves.broker], partitions=partitions)).one(moves.broker)


def _why(error: "ClientError") -> str:
    """Why a move does not begin; which partition it is about is told elsewhere."""
    from headwater.client import RefusedError
    from headwater.protocol.errors import ErrorCode

    if not isinstance(error, RefusedError):
        return str(error)
    if error.code is ErrorCode.kafka_storage_error:
        return "a log dir of the broker is offline; `headwater log dirs` shows which"
    if error.code is ErrorCode.invalid_topic_exception:
        return "the name of the topic is too long for the folder of a copy"
    return str(error).removeprefix(f"{error.subject}: ")


async def _follow(client: "Client", moves: _Moves) -> None:
    with byte_progress(sum(move.size_bytes for move in moves.moves.values())) as show:
        while open_moves := [move.partition for move in moves.moves.values() if not move.is_settled]:
            await asyncio.sleep(_LOOK_EVERY_S)
            _take_in(moves, await _log_dirs(client, moves, open_moves))
            show(sum(move.copied_bytes for move in moves.moves.values()))


def _take_in(moves: _Moves, log_dirs: "Sequence[LogDir]") -> None:
    """What a look at the log dirs tells about moves that are not settled yet."""
    open_moves = {partition: move for partition, move in moves.moves.items() if not move.is_settled}
    on_their_way = set()
    for log_dir in log_dirs:
        for replica in log_dir.replicas:
            move = open_moves.get(replica.partition)
            if move is None:
                continue
            if replica.is_future:
                on_their_way.add(move.partition)
                move.copied_bytes = replica.size_bytes
            else:
                move.size_bytes = replica.size_bytes
                move.is_there = log_dir.path == moves.log_dir
                move.copied_bytes = move.size_bytes if move.is_there else move.copied_bytes
    for partition, move in open_moves.items():
        move.missed = 0 if partition in on_their_way else move.missed + 1
        if move.missed >= _GONE_AFTER and not move.is_there:
            move.error = f"broker {moves.broker} has given up the move; its log says why"


def _report(moves: _Moves, *, as_json: bool) -> None:
    if as_json:
        print_json(
            [
                {
                    "topic": move.partition.topic,
                    "partition": move.partition.partition,
                    "broker": moves.broker,
                    "log_dir": moves.log_dir,
                    "size_bytes": move.size_bytes,
                    "moved": move.is_there,
                    "error": move.error,
                }
                for move in moves.moves.values()
            ]
        )
        return
    print_table(
        ("Topic", "Partition", "Broker", "LogDir", "Size", "State"),
        [
            (*move.partition, moves.broker, moves.log_dir, bytes_for_people(move.size_bytes), _state(move))
            for move in moves.moves.values()
        ],
        numeric=("Partition", "Broker", "Size"),
    )


def _state(move: _Move) -> str:
    if move.error:
        return "not moved"
    return "there" if move.is_there else "on its way"
