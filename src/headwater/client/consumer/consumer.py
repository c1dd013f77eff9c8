"""The asyncio consumer, `headwater.aio.Consumer`: what its users call, thin over the parts that do the work.

Everything belongs to the event loop that it is used on. Fetches and look-ups of positions go on in the background;
`poll` only hands out what has arrived. Between taking records and returning them it never awaits: a poll that raises
or is cancelled has moved no position.
"""

import asyncio
import logging
import re
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final, Self, TypeVar

from headwater.client.client import Client
from headwater.client.configured import connection_settings
from headwater.client.consumer.corrupt_batches import CorruptBatch, ReadingRules
from headwater.client.consumer.errors import SubscriptionError
from headwater.client.consumer.fetcher import Fetcher
from headwater.client.consumer.group_topics import match_pattern
from headwater.client.consumer.interceptors import Interceptors
from headwater.client.consumer.listeners import RebalanceListener
from headwater.client.consumer.membership import CommitCallback, GroupMetadata, Membership, OffsetAndMetadata, Offsets
from headwater.client.consumer.offsets import OffsetAndTimestamp, find_offsets
from headwater.client.consumer.positions import Positions
from headwater.client.consumer.prefetch import Prefetched
from headwater.client.consumer.records import Record
from headwater.client.consumer.resets import EARLIEST, EARLIEST_MS, LATEST, LATEST_MS
from headwater.client.consumer.settings import ConsumerSettings, consumer_settings
from headwater.client.consumer.statistics import ConsumerStatistics
from headwater.client.consumer.subscription import Position, SubscriptionState
from headwater.client.consumer.without_group import WithoutGroup
from headwater.client.errors import ClientError, ClosedError, RefusedError, TimedOutError
from headwater.config.errors import ConfigError
from headwater.protocol.kafka_types import ErrorCode
from headwater.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow

    from headwater.protocol.record_columns import RecordColumns

logger = logging.getLogger(__name__)

_T = TypeVar("_T")

_NEVER_READ: Final = (ErrorCode.topic_authorization_failed, ErrorCode.invalid_topic_exception)
_FOR_EVER_S: Final = 1e9
_YIELDS_EVERY_S: Final = 0.002
"""A poll that finds records need not wait, but must let the loop read what arrives meanwhile."""


class Consumer:
    """Reads records of any Kafka.

    >>> async with Consumer("localhost:9092", group="billing", topics=["orders"]) as consumer:
    ...     async for record in consumer:
    ...         print(record.offset, record.value)

    Settings have Kafka's names with `_` for `.`, and Kafka's defaults. Without a group it reads all partitions of its
    topics, or those that it is assigned by `assign`.
    """

    def __init__(
        self,
        bootstrap: str | None = None,
        group: str | None = None,
        topics: Iterable[str] | None = None,
        **settings: object,
    ) -> None:
        if bootstrap is not None:
            settings["bootstrap_servers"] = bootstrap
        if group is not None:
            settings["group_id"] = group
        self.settings: ConsumerSettings = consumer_settings(settings)
        addresses = ",".join(self.settings.connection["bootstrap_servers"])
        if not addresses:
            raise ConfigError('bootstrap.servers is not set: name a broker, as in Consumer("localhost:9092").')
        self.client = Client(addresses, connection_settings(self.settings.connection, client_id="headwater-consumer"))
        self.statistics = ConsumerStatistics(
            self.client.statistics, self._lags, lambda: len(self._subscription.assigned)
        )
        self._subscription = SubscriptionState(self.settings.auto_offset_reset, self._attend_soon)
        self._prefetched = Prefetched(
            self._subscription, self.settings.key_deserializer, self.settings.value_deserializer
        )
        rules = ReadingRules(
            check_crcs=self.settings.check_crcs,
            limit_bytes=self.settings.decompressed_batch_max_bytes,
            skip=self._skip_corrupt if self.settings.corrupt_records == "skip" else None,
        )
        self._fetcher = Fetcher(
            self.client, self._subscription, self._prefetched, self.settings, self.statistics, self._tell, rules
        )
        self._interceptors = Interceptors(self.settings.interceptor_classes)
        in_group = self.settings.group_id is not None
        self._membership: Membership
        if in_group:
            # What only groups need takes as long to load as all the rest.
            from headwater.client.consumer.group import membership_for

            self._membership = membership_for(
                self.client,
                self._subscription,
                self.settings,
                self._tell,
                statistics=self.statistics.group,
                on_committed=self._interceptors.committed,
            )
        else:
            self._membership = WithoutGroup(self.client, self._subscription)
        self._positions = Positions(
            self.client, self._subscription, self.settings, self._fetch_committed if in_group else None, self._tell
        )
        self._given: deque[Record] = deque()
        """What interceptors made of one record, for an iteration that takes one at a time."""
        self._news = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._attends_soon = False
        self._topic_error: RefusedError | None = None
        self._polling = False
        self._closed = False
        self._leaving = False
        self._yielded_s = 0.0
        if topics is not None:
            self.subscribe(topics)

    @classmethod
    def from_config(cls, config: Mapping[str, object]) -> Self:
        """A consumer from settings under Kafka's own names.

        >>> Consumer.from_config({"bootstrap.servers": "localhost:9092", "group.id": "billing"})  # doctest: +SKIP
        """
        return cls(**{name.replace(".", "_"): value for name, value in config.items()})  # type: ignore[arg-type]

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        # After an error nobody knows how much of the last poll was worked on: it counts as not worked on.
        await self._close(last_poll_is_done=kind is None)

    async def start(self) -> None:
        """Begins to read; the first `poll` does so too, if it was not done before."""
        self._running()

    async def close(self) -> None:
        """Leaves the group, after a last commit if it commits by itself, and closes every connection."""
        await self._close(last_poll_is_done=True)

    # What to read.

    def subscribe(
        self, topics: Iterable[str] | str | re.Pattern[str], *, listener: RebalanceListener | None = None
    ) -> None:
        """Reads these topics from now on, or those whose whole name matches a pattern.

        >>> consumer.subscribe(["orders", "refunds"])
        >>> consumer.subscribe(re.compile("orders-.*"))
        """
        if isinstance(topics, re.Pattern):
            self._subscription.subscribe_pattern(topics)
        else:
            self._subscription.subscribe([topics] if isinstance(topics, str) else topics)
        self._membership.listener = listener
        self._watch()

    async def unsubscribe(self) -> None:
        """Reads nothing any more, and leaves the group."""
        await self._membership.leave()
        self.client.unwatch(None)
        self.client.unwatch(self._topics())
        self._subscription.unsubscribe()

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Reads exactly these partitions from now on; the group has no say in it, but keeps what is committed."""
        before = self._topics()
        self._subscription.assign([TopicPartition(*partition) for partition in partitions])
        self.client.unwatch(before - self._topics())
        self._watch()

    def assignment(self) -> set[TopicPartition]:
        """The partitions that are being read."""
        return set(self._subscription.assigned)

    def subscription(self) -> frozenset[str]:
        """The topics that are subscribed to."""
        return self._subscription.subscribed_topics

    # Reading.

    async def poll(self, timeout: float = 0.0, *, max_records: int | None = None) -> list[Record]:  # noqa: ASYNC109
        """Records that have arrived, `max.poll.records` of them at most; waits for the first, up to `timeout` seconds.

        To poll again says that the records before are done with: from then on they may be committed.
        """
        limit = self.settings.max_poll_records if max_records is None else max_records
        return await self._poll(timeout, lambda: self._take(limit))

    async def poll_arrow(self, timeout: float = 0.0) -> "pyarrow.Table":  # noqa: ASYNC109
        """Everything that has arrived, as a table; waits for the first record, up to `timeout` seconds.

        Its columns are topic, partition, offset, timestamp, key, value and headers. Deserializers and interceptors
        are for rows.
        """
        from headwater.client.consumer.arrow import to_table

        return to_table(await self.poll_columns(timeout))

    async def poll_columns(self, timeout: float = 0.0) -> "list[tuple[str, int, RecordColumns]]":  # noqa: ASYNC109
        """What `poll_arrow` makes a table of, for those without pyarrow: topic, partition and columns, part by part."""
        return await self._poll(timeout, self._prefetched.take_columns)

    def __aiter__(self) -> AsyncIterator[Record]:
        return self

    async def __anext__(self) -> Record:
        if not self._interceptors and not self._closed:
            # To come back for the next record says that the one before is done with.
            self._subscription.poll_begins()
            record = self._prefetched.take_decoded()
            if record is not None:
                self.statistics.records += 1
                return record
        while not self._given:
            self._given.extend(await self._poll(None, self._take_one))
        return self._given.popleft()

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Hands out nothing of these until `resume`; what was fetched is kept for then."""
        paused = [TopicPartition(*partition) for partition in partitions]
        self._subscription.pause(paused)
        self._prefetched.keep_apart(paused)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Ends `pause`."""
        self._subscription.resume(TopicPartition(*partition) for partition in partitions)

    def paused(self) -> set[TopicPartition]:
        """The partitions that are paused."""
        return self._subscription.paused()

    # Positions.

    def seek(self, partition: TopicPartition, offset: int, leader_epoch: int | None = None) -> None:
        """The next poll hands out from this offset. With the epoch it was found in, a log that was cut is noticed."""
        if offset < 0:
            raise SubscriptionError(f"cannot seek to offset {offset}: offsets begin at 0")
        position = Position(offset) if leader_epoch is None else Position(offset, leader_epoch)
        self._subscription.seek(TopicPartition(*partition), position)

    def seek_to_beginning(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Goes to the start of the logs of these partitions, or of all; looked up before the next records come."""
        for partition in self._those(partitions):
            self._subscription.request_reset(partition, EARLIEST)

    def seek_to_end(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Goes to the end of the logs of these partitions, or of all; looked up before the next records come."""
        for partition in self._those(partitions):
            self._subscription.request_reset(partition, LATEST)

    async def seek_to_time(self, timestamp_ms: int, partitions: Iterable[TopicPartition] = ()) -> None:
        """Goes to the first record at or after a time; to the end where there is none."""
        wanted = self._those(partitions)
        found = await self.offsets_for_times(dict.fromkeys(wanted, timestamp_ms))
        for partition in wanted:
            there = found[partition]
            if there is None:
                self._subscription.request_reset(partition, LATEST)
            else:
                self._subscription.seek(partition, Position(there.offset))

    async def position(self, partition: TopicPartition) -> int:
        """The offset of the next record to be handed out; waits until it is known."""
        partition = TopicPartition(*partition)

        def known() -> Position | None:
            return self._subscription.state_of(partition).position

        self._running()
        found = await self._wait_for(known, self._deadline_s(self.settings.default_api_timeout_ms / 1000), polls=False)
        if found is None:
            raise TimedOutError(f"the position of partition {partition} was not found out in time; try again")
        return found.offset

    def lag(self, partition: TopicPartition) -> int | None:
        """How many offsets are still to be read, from what brokers told with the last fetch; None: not known yet."""
        state = self._subscription.state_of(TopicPartition(*partition))
        return state.lag(read_committed=self.settings.read_committed)

    def waiting_bytes(self) -> int:
        """How much was fetched and waits to be handed out, but for paused partitions; see `prefetch.max.bytes`."""
        return self._prefetched.unpaused_bytes()

    # The group.

    async def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None, timeout_s: float | None = None
    ) -> None:
        """Commits these offsets, or the positions of all that was handed out; returns when the group has them."""
        self._running()
        await self._membership.commit(self._to_commit(offsets), timeout_s)

    def commit_async(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None,
        callback: CommitCallback | None = None,
    ) -> None:
        """Sends a commit and does not wait; `callback(offsets, error)` is told how it ended, by a later poll."""
        self._running()
        self._membership.commit_async(self._to_commit(offsets), callback)

    async def committed(
        self, partitions: Iterable[TopicPartition], timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed, for each partition; None where it has nothing."""
        self._running()
        return await self._membership.committed([TopicPartition(*each) for each in partitions], timeout_s)

    @property
    def group_metadata(self) -> GroupMetadata:
        """Who this consumer is in its group, for a producer that commits its offsets in a transaction."""
        return self._membership.metadata

    # The cluster.

    async def offsets_for_times(
        self, timestamps_ms: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record at or after a time, for each partition; None where there is none."""
        if wrong := {partition: when for partition, when in timestamps_ms.items() if when < 0}:
            raise SubscriptionError(f"times are milliseconds since 1970, not {wrong}")
        return await self._find_offsets(timestamps_ms)

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset of the first record that is still in the log, for each partition."""
        return await self._ends(partitions, EARLIEST_MS)

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset behind the last record that may be read, for each partition."""
        return await self._ends(partitions, LATEST_MS)

    async def partitions_for(self, topic: str) -> list[TopicPartition]:
        """The partitions of a topic."""
        return [TopicPartition(topic, number) for number in sorted(await self.client.partitions(topic))]

    async def topics(self) -> list[str]:
        """The names of all topics that this client may see, but for the cluster's own."""
        answer = await self.client.metadata(None)
        return sorted(str(topic.name) for topic in answer.topics if not topic.is_internal and topic.name is not None)

    # The machine room.

    def _running(self) -> None:
        # A listener that hears of the end may still commit.
        if self._closed and not self._leaving:
            raise ClosedError("the consumer is closed")
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self.client.on_metadata.append(self._on_metadata)
            self._watch()

    def _watch(self) -> None:
        """Lets the client keep an eye on what is to be read, once it runs."""
        if self._loop is not None:
            self.client.watch(None if self._subscription.pattern is not None else self._topics())
            self._attend_soon()
            self._tell()

    async def _poll(self, timeout_s: float | None, take: Callable[[], list[_T]]) -> list[_T]:
        self._running()
        if not self._subscription.subscribed and not self._subscription.assigned:
            raise SubscriptionError("nothing to read: subscribe to topics or assign partitions before polling")
        if self._polling:
            raise ClientError("this consumer is being polled by another task: give each task a consumer of its own")
        self._polling = True
        try:
            self._subscription.poll_begins()
            self.statistics.polls += 1
            ends_s = self._deadline_s(timeout_s)
            if not self.client.brokers:
                await self._first_contact(ends_s)
            await self._let_the_loop_run()
            return await self._wait_for(take, ends_s, polls=True)
        finally:
            self._polling = False

    async def _first_contact(self, ends_s: float) -> None:
        """Who names a broker that is not there hears of it; later on a broker that is away is waited for."""
        try:
            async with asyncio.timeout_at(ends_s):
                await self.client.fresh_metadata()
        except TimeoutError:
            pass
        except ClientError as error:
            if not self.client.may_pass(error):
                raise

    async def _wait_for(self, take: Callable[[], _T], ends_s: float, *, polls: bool) -> _T:
        """Waits until `take` gives something, or the time is over; raises what only the user can cure.

        The group is taken part in only by those who poll: listeners run there and nowhere else.
        """
        loop = asyncio.get_running_loop()
        while True:
            if self._closed:
                raise ClosedError("the consumer was closed")
            self._news.clear()
            if polls:
                await self._membership.poll(0.0)
            self._raise_error()
            # From here to the return nothing may await: what was taken is handed out.
            taken = take()
            if not taken or self._prefetched.room_made:
                self._attend()
            if taken or loop.time() >= ends_s:
                return taken
            # A group that needs more polls to get on, say since joining failed, does not have to tell.
            wakes_s = loop.time() + self.settings.retry_backoff_ms / 1000 if self._membership.poll_needed else ends_s
            try:
                async with asyncio.timeout_at(min(wakes_s, ends_s)):
                    await self._news.wait()
            except TimeoutError:
                pass

    def _deadline_s(self, timeout_s: float | None) -> float:
        return asyncio.get_running_loop().time() + (_FOR_EVER_S if timeout_s is None else timeout_s)

    async def _fetch_committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Position | None]:
        committed = await self._membership.committed(partitions)
        return {
            partition: None if found is None else Position(found.offset, found.leader_epoch)
            for partition, found in committed.items()
        }

    async def _let_the_loop_run(self) -> None:
        now_s = asyncio.get_running_loop().time()
        if now_s - self._yielded_s > _YIELDS_EVERY_S:
            await asyncio.sleep(0)
            self._yielded_s = now_s

    def _lags(self) -> dict[TopicPartition, int]:
        lags = {partition: self.lag(partition) for partition in self._subscription.assigned}
        return {partition: lag for partition, lag in lags.items() if lag is not None}

    def _to_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None) -> Offsets:
        if offsets is None:
            return {p: OffsetAndMetadata(*position) for p, position in self._subscription.positions().items()}
        return {
            TopicPartition(*partition): OffsetAndMetadata(wanted) if isinstance(wanted, int) else wanted
            for partition, wanted in offsets.items()
        }

    def _take(self, max_records: int) -> list[Record]:
        return self._handed_out(self._prefetched.take(max_records))

    def _take_one(self) -> list[Record]:
        record = self._prefetched.take_one(self.settings.max_poll_records)
        return [] if record is None else self._handed_out([record])

    def _handed_out(self, records: list[Record]) -> list[Record]:
        self.statistics.records += len(records)
        return self._interceptors.consume(records) if records and self._interceptors else records

    def _skip_corrupt(self, batch: CorruptBatch) -> None:
        listener = self.settings.corrupt_records_listener
        if listener is not None:
            listener(batch)
        self.statistics.corrupt_batches += 1
        self.statistics.corrupt_bytes += batch.size_bytes
        # Where somebody listens, it is told already.
        logger.log(logging.WARNING if listener is None else logging.INFO, "skipped %s", batch)

    def _tell(self) -> None:
        self._news.set()

    def _attend(self) -> None:
        """Starts whatever the present state calls for; never waits."""
        self._attends_soon = False
        self._prefetched.room_made = False
        if not self._closed:
            self._fetcher.send_fetches()
            self._positions.look_up()

    def _attend_soon(self) -> None:
        if self._loop is not None and not self._attends_soon:
            self._attends_soon = True
            self._loop.call_soon(self._attend)

    def _raise_error(self) -> None:
        """Raises what only the user can cure, each time that it is found out."""
        error, self._topic_error = self._topic_error, None
        if error is not None:
            raise error
        self._fetcher.raise_error()
        self._positions.raise_error()

    def _on_metadata(self) -> None:
        for topic in self._topics():
            code = self.client.topic_error(topic)
            if code in _NEVER_READ:
                self._topic_error = RefusedError(f"topic {topic}", code)
        match_pattern(self.client, self._subscription, exclude_internal=self.settings.exclude_internal_topics)
        self._attend_soon()
        self._tell()

    def _topics(self) -> set[str]:
        assigned = {partition.topic for partition in self._subscription.assigned}
        return assigned | self._subscription.subscribed_topics

    def _those(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        return [TopicPartition(*partition) for partition in partitions] or [*self._subscription.assigned]

    async def _ends(self, partitions: Iterable[TopicPartition], spot: int) -> dict[TopicPartition, int]:
        wanted = {TopicPartition(*partition): spot for partition in partitions}
        found = await self._find_offsets(wanted)
        return {partition: there.offset for partition, there in found.items() if there is not None}

    async def _find_offsets(
        self, wanted: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        self._running()
        timeout_s = self.settings.default_api_timeout_ms / 1000
        return await find_offsets(self.client, wanted, read_committed=self.settings.read_committed, timeout_s=timeout_s)

    async def _close(self, *, last_poll_is_done: bool) -> None:
        if self._closed:
            return
        self._closed = True
        if last_poll_is_done:
            self._subscription.poll_begins()
        self._tell()
        self._leaving = True
        try:
            await self._membership.close()
        finally:
            self._leaving = False
            await self._fetcher.close()
            await self._positions.close()
            await self.client.close()
