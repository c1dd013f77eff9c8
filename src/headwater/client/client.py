"""The cluster as a client sees it: bootstrap, who leads what, and requests sent to the right broker.

There are two kinds of callers. Those who ask once (the command line, admin calls) use `topic`, `partitions`, `leader`
and `retry`. Those who live long (producer, consumer) `watch` their topics, read `leader_of` from memory, call
`need_refresh` when a broker says that they are wrong, and are told by `on_metadata`. All of it runs on one event loop.
"""

import asyncio
import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from datetime import timedelta
from random import Random
from typing import Any, Final, Self, TypeVar

from headwater.client.addresses import DEFAULT_PORT as DEFAULT_PORT
from headwater.client.addresses import parse_bootstrap as parse_bootstrap
from headwater.client.back_off import BackOff
from headwater.client.connection import Connection
from headwater.client.connections import Connections
from headwater.client.coordinators import Coordinated, Coordinator, find_coordinator
from headwater.client.errors import (
    CannotConnectError,
    ClientError,
    ConnectionLostError,
    NotKafkaError,
    RefusedError,
    TimedOutError,
)
from headwater.client.leader_hints import LeaderHint, NodeEndpoint
from headwater.client.metadata import Broker, ClusterPicture, Leader, TopicPicture
from headwater.client.metadata_refresh import MetadataRefresh
from headwater.client.settings import ConnectionSettings
from headwater.client.statistics import ClientStatistics
from headwater.protocol.kafka_types import ErrorCode, TopicName, i32Timedelta

from kio.schema.metadata.v12.request import MetadataRequest, MetadataRequestTopic  # isort: skip
from kio.schema.metadata.v12.response import (  # isort: skip
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

R = TypeVar("R")
T = TypeVar("T")

logger = logging.getLogger(__name__)

FIRST_BACK_OFF_S: Final = 0.05
LONGEST_BACK_OFF_S: Final = 1.0
_AUTO_CREATE_PATIENCE_S: Final = 2.0


def duration(seconds: float) -> i32Timedelta:
    """Seconds as the protocol's messages carry them."""
    return i32Timedelta.parse(timedelta(milliseconds=round(seconds * 1000)))


class Client:
    """Connections to a cluster, opened as they are needed; a context manager that closes them.

    >>> async with Client("localhost:9092", ConnectionSettings(client_id="billing")) as client:
    ...     client.watch(["orders"])
    ...     await client.fresh_metadata()
    ...     client.leader_of("orders", 0)
    Leader(node_id=1, epoch=0)

    `client_id` and `timeout_s` are short for settings of these names. `chance` decides the order in which bootstrap
    addresses are tried, and the jitter of waits.
    """

    def __init__(
        self,
        bootstrap: str,
        settings: ConnectionSettings | None = None,
        *,
        client_id: str = "headwater",
        timeout_s: float = 30.0,
        chance: Random | None = None,
    ) -> None:
        if settings is None:
            settings = ConnectionSettings(client_id=client_id, request_timeout_ms=round(timeout_s * 1000))
        self.settings = settings
        self.timeout_s = settings.request_timeout_ms / 1000
        self.patience_s = self.timeout_s
        """How long `retry` goes on where it is not told otherwise."""
        self.statistics = ClientStatistics(settings.client_id)
        self.on_metadata: list[Callable[[], None]] = []
        """Called after each new picture of the cluster, in this order; they may not wait."""
        self._chance = chance or Random()  # noqa: S311
        self._bootstrap = parse_bootstrap(bootstrap)
        self._bootstrap_order = self._chance.sample(self._bootstrap, len(self._bootstrap))
        self._picture = ClusterPicture()
        self._trusted_topics: set[str] = set()
        self._coordinators: dict[tuple[Coordinated, str], Coordinator] = {}
        self._connections = Connections(settings, self.statistics, self._chance, self._connection_lost)
        self._refresh = MetadataRefresh(self._ask_for_picture, settings, self._chance)
        self._retry_back_off = BackOff(FIRST_BACK_OFF_S * 1000, LONGEST_BACK_OFF_S * 1000)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes every connection; whoever waits for an answer hears `ConnectionLostError`."""
        await self._refresh.close()
        await self._connections.close()

    async def connection(self, broker: int | None = None, *, lane: str = "") -> Connection:
        """An open connection to `broker`, or to any broker.

        A broker answers a connection's requests one after the other. What it may hold for long (joining a group) goes
        by a lane of its own, which is another connection to the same broker, so that nothing waits behind it.
        """
        if broker is None:
            return await self._any_connection()
        if broker not in self._picture.brokers:
            await self.metadata(())
        found = self._picture.brokers.get(broker)
        if found is None:
            raise CannotConnectError(f"broker {broker} is not part of the cluster, or not running")
        return await self._connections.get(found.address, lane)

    async def send(
        self,
        request: Any,
        answer_type: type[R],
        *,
        to: int | None = None,
        timeout_s: float | None = None,
        lane: str = "",
    ) -> R:
        """Sends a request to broker `to` (any by default) in the highest version both sides speak."""
        connection = await self.connection(to, lane=lane)
        return await connection.send(request, answer_type, timeout_s=timeout_s or self.timeout_s)

    async def send_to_controller(self, request: Any, answer_type: type[R]) -> R:
        """Sends a request to the broker that the metadata names as the controller."""
        controller = int((await self.metadata(())).controller_id)
        return await self.send(request, answer_type, to=controller if controller in self._picture.brokers else None)

    # The picture of the cluster, for those who live long.

    @property
    def brokers(self) -> Mapping[int, Broker]:
        """The brokers by id, from memory."""
        return self._picture.brokers

    @property
    def cluster_id(self) -> str | None:
        """The cluster's id, from memory."""
        return self._picture.cluster_id

    @property
    def known_topics(self) -> Mapping[str, TopicPicture]:
        """What is known of topics, by name, from memory."""
        return self._picture.topics

    def leader_of(self, topic: str, partition: int) -> Leader | None:
        """Who leads a partition, from memory; None when that is not known, or when nobody does."""
        return self._picture.leader_of(topic, partition)

    def topic_id(self, topic: str) -> uuid.UUID | None:
        """The topic's id, from memory; None when the topic is not known or the brokers have no ids."""
        found = self._picture.topics.get(topic)
        return None if found is None else found.topic_id

    def partition_count(self, topic: str) -> int | None:
        """How many partitions a topic has, from memory; None when it is not known."""
        found = self._picture.topics.get(topic)
        return None if found is None else len(found.partitions)

    def topic_error(self, topic: str) -> ErrorCode | None:
        """What the cluster last answered about a topic instead of its partitions; None when there was no error."""
        return self._picture.errors.get(topic)

    def watch(self, topics: Iterable[str] | None) -> None:
        """Keeps topics (None: all there are) in the regular refresh; new ones are asked about at once."""
        self._refresh.watch(topics)

    def unwatch(self, topics: Iterable[str] | None) -> None:
        """Leaves topics (None: the watch over all) out of the refreshes to come."""
        self._refresh.unwatch(topics)

    def forget_topics(self, topics: Collection[str]) -> None:
        """Leaves topics out of the refreshes to come, and knows nothing of them any more."""
        self.unwatch(topics)
        for topic in topics:
            self._picture.topics.pop(topic, None)
            self._picture.errors.pop(topic, None)

    def take_hints(self, hints: Iterable[LeaderHint], endpoints: Iterable[NodeEndpoint]) -> None:
        """Takes in what a broker has told of who leads instead of it: it counts at once, and is followed at once."""
        if self._picture.take_hints(hints, endpoints):
            self._tell_of_picture()

    def need_refresh(self, topics: Collection[str] = ()) -> None:
        """Says that the picture is wrong: a new one is asked for in the background, until it is there.

        `topics` are asked about beside the watched ones. Asked again and again, it keeps `retry_backoff_ms` between.
        """
        self._refresh.need(topics)

    async def fresh_metadata(self) -> None:
        """Waits for the picture that was last needed; raises what the attempt failed with.

        After a failure the need stays: the next call waits for the next attempt, which keeps its back-off.
        """
        await self._refresh.fresh()

    async def coordinator(self, kind: Coordinated, key: str) -> Coordinator:
        """The coordinator of a group or transactional id, from memory where it was asked for before."""
        found = self._coordinators.get((kind, key))
        if found is None:
            found = self._coordinators[kind, key] = await find_coordinator(self, kind, key)
        return found

    def forget_coordinator(self, kind: Coordinated, key: str) -> None:
        """Makes the next look-up ask the cluster: the broker said that it is not the coordinator, or is gone."""
        self._coordinators.pop((kind, key), None)

    # Questions, for those who ask once.

    async def metadata(self, topics: Sequence[str] | None = None, *, create_missing: bool = False) -> MetadataResponse:
        """The brokers and `topics` (None: all topics, empty: none)."""
        names = None if topics is None else tuple(_named(topic) for topic in topics)
        request = MetadataRequest(
            topics=names, allow_auto_topic_creation=create_missing, include_topic_authorized_operations=False
        )
        try:
            answer = await self.send(request, MetadataResponse)
        except ClientError:
            self.statistics.metadata_failures += 1
            raise
        self.statistics.metadata_refreshes += 1
        self._picture.apply(answer, all_topics=topics is None)
        self._trusted_topics.update(str(topic.name) for topic in answer.topics)
        self._tell_of_picture()
        return answer

    async def topic(self, name: str, *, create_missing: bool = False) -> MetadataResponseTopic:
        """What the cluster says about one topic; `RefusedError` when it is not there.

        With `create_missing` a broker that creates topics by itself is given the time to do so.
        """
        patience_ends = time.monotonic() + (_AUTO_CREATE_PATIENCE_S if create_missing else 0)

        async def look_up() -> MetadataResponseTopic:
            while True:
                answer = await self.metadata([name], create_missing=create_missing)
                found = next(topic for topic in answer.topics if topic.name == name)
                missing = found.error_code is ErrorCode.unknown_topic_or_partition
                if not missing or time.monotonic() > patience_ends:
                    break
                await asyncio.sleep(FIRST_BACK_OFF_S)
            if found.error_code is not ErrorCode.none:
                raise RefusedError(f"topic {name}", found.error_code)
            return found

        return await self.retry(look_up)

    async def partitions(self, topic: str) -> Mapping[int, MetadataResponsePartition]:
        """The partitions of a topic by number, from memory where it was asked for before."""
        if topic not in self._trusted_topics or topic not in self._picture.topics:
            await self.topic(topic)
        return self._picture.topics[topic].partitions

    async def leader(self, topic: str, partition: int) -> int:
        """The broker that leads a partition; `RefusedError` when there is no such partition or no leader."""
        subject = f"partition {partition} of topic {topic}"
        found = (await self.partitions(topic)).get(partition)
        if found is None:
            raise RefusedError(subject, ErrorCode.unknown_topic_or_partition)
        if found.leader_id < 0:
            raise RefusedError(subject, ErrorCode.leader_not_available)
        return int(found.leader_id)

    def forget_leaders(self) -> None:
        """Makes the next `partitions` or `leader` ask the cluster."""
        self._trusted_topics.clear()

    def may_pass(self, error: ClientError) -> bool:
        """Whether waiting may cure it: a broker that was there may be restarting."""
        if isinstance(error, RefusedError):
            return error.retriable
        if isinstance(error, CannotConnectError | NotKafkaError):
            # What closed a connection before it said a word of Kafka was a Kafka when it was named to us.
            return bool(self._picture.brokers)
        return isinstance(error, ConnectionLostError | TimedOutError)

    async def retry(self, operation: Callable[[], Awaitable[T]], *, deadline_s: float | None = None) -> T:
        """Runs `operation` until it succeeds, fails for good, or the deadline passes."""
        limit_s = deadline_s or self.patience_s
        gives_up_at = time.monotonic() + limit_s
        failures = 0
        while True:
            try:
                return await operation()
            except ClientError as error:
                failures += 1
                back_off_s = self._retry_back_off.delay_ms(failures, self._chance.random()) / 1000
                if not self.may_pass(error):
                    raise
                if time.monotonic() + back_off_s > gives_up_at:
                    raise TimedOutError(f"gave up after {limit_s:g} s: {error}") from error
            self.forget_leaders()
            await asyncio.sleep(back_off_s)

    async def _ask_for_picture(self, topics: Collection[str] | None) -> None:
        names = None if topics is None else list(topics)
        await self.metadata(names, create_missing=self.settings.allow_auto_create_topics)

    def _tell_of_picture(self) -> None:
        for hook in list(self.on_metadata):
            try:
                hook()
            except Exception:
                logger.exception("%r failed on a new picture of the cluster", hook)

    def _connection_lost(self) -> None:
        # The broker may be gone and its partitions led by others, which those who live long want to know soon.
        if self._refresh.active:
            self.need_refresh()

    async def _any_connection(self) -> Connection:
        """The least busy connection; if there is none, one to a known broker, or to the bootstrap addresses."""
        connection = self._connections.least_busy()
        if connection is not None:
            return connection
        known = [broker.address for broker in self._picture.brokers.values()]
        candidates = list(dict.fromkeys([*self._chance.sample(known, len(known)), *self._bootstrap_order]))
        failures: dict[object, ClientError] = {}
        for address in sorted(candidates, key=self._connections.wait_ms):
            try:
                return await self._connections.get(address)
            except ClientError as error:
                failures[address] = error
        # The first address that the user wrote is the one that the user thinks of.
        raise failures[self._bootstrap[0]]


def _named(topic: str) -> MetadataRequestTopic:
    return MetadataRequestTopic(topic_id=None, name=TopicName(topic))
