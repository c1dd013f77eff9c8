"""Asks each of several things at the broker that knows it, and asks again for those that may succeed later.

A thing's home is the broker to ask: the leader of a partition, the coordinator of a group. Homes are looked up anew in
every round, so a thing whose home moves is followed. What a broker says to one thing is that thing's result. What stops
the whole call (no broker can be reached, the API is not served) is raised.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias, TypeVar

from headwater.client.addresses import Address
from headwater.client.admin.results import Results, distinct, for_each
from headwater.client.client import Client
from headwater.client.coordinators import Coordinated, Coordinator, find_coordinator
from headwater.client.errors import CannotConnectError, ClientError, RefusedError, TimedOutError, UnsupportedError
from headwater.protocol.kafka_types import ErrorCode, i8
from headwater.types import TopicPartition

from kio.schema.find_coordinator.v6.request import FindCoordinatorRequest  # isort: skip
from kio.schema.find_coordinator.v6.response import Coordinator as FoundCoordinator  # isort: skip
from kio.schema.find_coordinator.v6.response import FindCoordinatorResponse  # isort: skip

K = TypeVar("K", bound=Hashable)
H = TypeVar("H", bound=Hashable)
T = TypeVar("T")

FindHomes: TypeAlias = Callable[[Sequence[K]], Awaitable[Mapping[K, H | ClientError]]]
Ask: TypeAlias = Callable[[H, Sequence[K]], Awaitable[Mapping[K, T | ClientError]]]

AT_THE_CONTROLLER: Final = frozenset({ErrorCode.not_controller, ErrorCode.throttling_quota_exceeded})
"""What passes by itself when a change of the cluster is asked for; all else its author should hear at once."""
NOTHING: Final[frozenset[ErrorCode]] = frozenset()
_FIRST_WITH_MANY_KEYS: Final = 4


async def ask_each(
    client: Client,
    things: Iterable[K],
    find_homes: FindHomes[K, H],
    ask: Ask[H, K, T],
    *,
    passing: Collection[ErrorCode] | None = None,
) -> Results[K, T]:
    """Asks every home for its things until each has a result, or the client's timeout is over.

    `passing` are the codes that are tried again, by default all that Kafka calls retriable. A connection that is lost
    is always tried again, so a change may be made twice: a topic whose creation was not confirmed may exist already.
    """
    wanted = distinct(things)
    settled: dict[K, T | ClientError] = {}
    waiting: dict[K, ClientError] = {}

    def note(thing: K, result: T | ClientError) -> None:
        if not isinstance(result, RefusedError):
            settled[thing] = result
        elif result.retriable if passing is None else result.code in passing:
            waiting[thing] = result
        else:
            settled[thing] = result

    async def ask_the_rest() -> None:
        waiting.clear()
        by_home: defaultdict[H, list[K]] = defaultdict(list)
        for thing, home in (await find_homes([thing for thing in wanted if thing not in settled])).items():
            if isinstance(home, ClientError):
                note(thing, home)
            else:
                by_home[home].append(thing)
        answers = await asyncio.gather(*(_ask_home(client, ask, *asked) for asked in by_home.items()))
        for asked, answer in zip(by_home.values(), answers, strict=True):
            for thing in asked:
                if isinstance(answer, ClientError):
                    waiting[thing] = answer
                else:
                    note(thing, answer.get(thing, left_out(thing)))
        for error in waiting.values():
            raise error

    try:
        if wanted:
            await client.retry(ask_the_rest)
    except TimedOutError as error:
        for thing in wanted:
            settled.setdefault(thing, _late(error, waiting.get(thing)))
    return Results((thing, settled[thing]) for thing in wanted)


async def _ask_home(
    client: Client, ask: Ask[H, K, T], home: H, things: Sequence[K]
) -> Mapping[K, T | ClientError] | ClientError:
    """The answers of one home, or why there is none for now; raises what will not pass."""
    try:
        return await ask(home, things)
    except ClientError as error:
        if not client.may_pass(error):
            raise
        return error


def _late(timeout: TimedOutError, reason: ClientError | None) -> TimedOutError:
    """The timeout in the words of one thing's own reason."""
    if reason is None or reason is timeout.__cause__:
        return timeout
    words, _, _ = str(timeout).partition(": ")
    own = TimedOutError(f"{words}: {reason}")
    own.__cause__ = reason
    return own


async def anywhere(things: Sequence[K]) -> Mapping[K, None]:
    """Homes of things that every broker knows, or hands on to the controller by itself."""
    return dict.fromkeys(things)


def leaders(client: Client) -> FindHomes[TopicPartition, int]:
    """Homes of partitions: the brokers that lead them."""

    async def find(partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int | ClientError]:
        answer = await client.metadata(sorted({partition.topic for partition in partitions}))
        topics = {topic.name or "": topic for topic in answer.topics}
        led = {(name, int(p.partition_index)): int(p.leader_id) for name in topics for p in topics[name].partitions}

        def home(partition: TopicPartition) -> int | ClientError:
            topic = topics.get(partition.topic)
            if topic is not None and topic.error_code is not ErrorCode.none:
                return RefusedError(f"topic {partition.topic}", topic.error_code)
            leader = led.get(partition)
            if leader is None:
                return RefusedError(place_of(partition), ErrorCode.unknown_topic_or_partition)
            return leader if leader >= 0 else RefusedError(place_of(partition), ErrorCode.leader_not_available)

        return {partition: home(partition) for partition in partitions}

    return find


def coordinators(client: Client, kind: Coordinated) -> FindHomes[str, Coordinator]:
    """Homes of groups or transactional ids: asked for all at once where the broker lets us (KIP-699)."""

    async def find(keys: Sequence[str]) -> Mapping[str, Coordinator | ClientError]:
        request = FindCoordinatorRequest(key_type=i8(kind), coordinator_keys=tuple(keys))
        connection = await client.connection()
        if connection.version_for(request) < _FIRST_WITH_MANY_KEYS:
            return await for_each(keys, lambda key: find_coordinator(client, kind, key))
        answer = await connection.send(request, FindCoordinatorResponse, timeout_s=client.timeout_s)
        found = {each.key: each for each in answer.coordinators}
        return {key: _coordinator(kind, found[key]) if key in found else left_out(key) for key in keys}

    return find


def _coordinator(kind: Coordinated, found: FoundCoordinator) -> Coordinator | RefusedError:
    subject = f"{'group' if kind is Coordinated.GROUP else 'transactional id'} {found.key}"
    coordinator = Coordinator(int(found.node_id), Address(found.host, int(found.port)))
    return refused_or(coordinator, subject, found.error_code, found.error_message)


def themselves(client: Client) -> FindHomes[int, int]:
    """Homes of what a broker alone knows about itself. One that is not there is not waited for."""

    async def find(brokers: Sequence[int]) -> dict[int, int | ClientError]:
        known = {int(broker.node_id) for broker in (await client.metadata(())).brokers}
        return {broker: broker if broker in known else not_there(broker) for broker in brokers}

    return find


def not_there(broker: int) -> CannotConnectError:
    """Why a broker cannot be asked."""
    return CannotConnectError(f"broker {broker} is not part of the cluster, or not running")


def left_out(thing: object) -> ClientError:
    """What is wrong with an answer that does not speak of something that was asked for."""
    return ClientError(f"the broker's answer leaves out {thing}")


def refused_or(result: T, subject: str, code: ErrorCode, message: str | None = None) -> T | RefusedError:
    """`result`, unless the broker's code says otherwise."""
    return result if code is ErrorCode.none else RefusedError(subject, code, message)


def demand_success(subject: str, code: ErrorCode, message: str | None = None) -> None:
    """Raises what the broker refused."""
    if code is not ErrorCode.none:
        raise RefusedError(subject, code, message)


def place_of(partition: TopicPartition) -> str:
    """A partition in a sentence.

    >>> place_of(TopicPartition("orders", 3))
    'partition 3 of topic orders'
    """
    return f"partition {partition.partition} of topic {partition.topic}"


def numbers_by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Partitions as most requests want them.

    >>> numbers_by_topic([TopicPartition("orders", 0), TopicPartition("orders", 2)])
    {'orders': [0, 2]}
    """
    by_topic: dict[str, list[int]] = {}
    for topic, number in partitions:
        by_topic.setdefault(topic, []).append(number)
    return by_topic


async def demand_version(client: Client, request: Any, oldest: int, purpose: str, *, at: int | None = None) -> None:
    """Raises `UnsupportedError` when broker `at` (any by default) is too old to be told what is meant."""
    connection = await client.connection(at)
    newest = connection.version_for(request)
    if newest < oldest:
        api = type(request).__name__.removesuffix("Request")
        raise UnsupportedError(
            f"the broker at {connection.address} is too old to {purpose}: it serves {api} up to version {newest}, "
            f"and that takes version {oldest}"
        )
