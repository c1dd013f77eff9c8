"""The blocking consumer, `headwater.Consumer`: the asyncio one on a thread of its own.

Fetches and heartbeats go on in that thread while the caller works. One thread may use a consumer at a time; only
`close` may come from another one, and ends what the first one waits for. Listeners and call-backs run in the thread
that polls, and may use the consumer.
"""

import math
import re
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from headwater.client.blocking.client import BlockingClient
from headwater.client.blocking.relays import relayed_callback, relayed_listener
from headwater.client.consumer.consumer import Consumer as AsyncConsumer
from headwater.client.consumer.listeners import RebalanceListener
from headwater.client.consumer.membership import CommitCallback, GroupMetadata, OffsetAndMetadata
from headwater.client.consumer.offsets import OffsetAndTimestamp
from headwater.client.consumer.prefetch import ColumnsClaim, ColumnsPart, read_columns
from headwater.client.consumer.records import Record
from headwater.client.errors import ClientError, ClosedError, WrongThreadError
from headwater.protocol.record_columns import RecordColumns
from headwater.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow

    from headwater.client.consumer.statistics import ConsumerStatistics

T = TypeVar("T")

# How often a `for` that finds nothing asks again.
_FOR_A_WHILE_S: Final = 60.0
_WHOLE_POLL_EVERY_S: Final = 0.05


class Consumer(BlockingClient["ThreadedConsumer"]):
    """Reads records of any Kafka. One thread may use it at a time.

    >>> with Consumer("localhost:9092", group="billing", topics=["orders"]) as consumer:  # doctest: +SKIP
    ...     for record in consumer:
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
        self._start(lambda: ThreadedConsumer(bootstrap, group, topics, **settings))

    @classmethod
    def from_config(cls, config: Mapping[str, object]) -> Self:
        """A consumer from settings under Kafka's own names.

        >>> Consumer.from_config({"bootstrap.servers": "localhost:9092", "group.id": "billing"})  # doctest: +SKIP
        """
        made = cls.__new__(cls)
        made._start(lambda: ThreadedConsumer.from_config(config))
        return made

    def _start(self, make: Callable[[], "ThreadedConsumer"]) -> None:
        self._using = threading.RLock()
        # Records that `for` has been given and not handed on yet, the next one last.
        self._left: list[Record] = []
        # The one that the body of a `for` works on.
        self._current: Record | None = None
        self._closing = False
        self._begin("consumer", lambda _: make(), in_turns=True)
        self._run(self._client.start())

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        # After an error nobody knows how much of the last poll was worked on: it counts as not worked on.
        self._close(last_poll_is_done=kind is None)

    def close(self) -> None:
        """Leaves the group, after a last commit if it commits by itself, and ends the thread.

        May be called by another thread than the one that polls: what that one waits for ends with `ClosedError`, and a
        `for` over the consumer ends. In a child process this does nothing: the consumer is the parent's.
        """
        self._close(last_poll_is_done=True)

    def _close(self, *, last_poll_is_done: bool) -> None:
        if self._io.closed:
            return
        if not self._using.acquire(blocking=False):
            self._closing = True
            self._client.wake()
            self._io.interrupt()
            self._using.acquire()
        try:
            if not self._io.closed:
                if self._current is not None and not last_poll_is_done:
                    # Of a `for` it is known: the record that its body works on is the only one.
                    self._left.append(self._current)
                    last_poll_is_done = True
                if last_poll_is_done:
                    self._give_back()
                self._io.run(self._client.__aexit__(None if last_poll_is_done else BaseException, None, None))
        finally:
            self._io.abandon()
            self._using.release()

    # What to read.

    def subscribe(
        self, topics: Iterable[str] | str | re.Pattern[str], *, listener: RebalanceListener | None = None
    ) -> None:
        """Reads these topics from now on, or those whose whole name matches a pattern.

        The listener is called by `poll`, `close` and `unsubscribe`, in the thread that calls them.

        >>> consumer.subscribe(["orders", "refunds"])  # doctest: +SKIP
        >>> consumer.subscribe(re.compile("orders-.*"))  # doctest: +SKIP
        """
        relayed = None if listener is None else relayed_listener(self._io, listener)
        self._call_whole(lambda: self._client.subscribe(topics, listener=relayed))

    def unsubscribe(self) -> None:
        """Reads nothing any more, and leaves the group."""
        self._give_back()
        self._run(self._client.unsubscribe())

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Reads exactly these partitions from now on; the group has no say in it, but keeps what is committed."""
        self._call_whole(lambda: self._client.assign(partitions))

    def assignment(self) -> set[TopicPartition]:
        """The partitions that are being read."""
        return self._call(self._client.assignment)

    def subscription(self) -> frozenset[str]:
        """The topics that are subscribed to."""
        return self._call(self._client.subscription)

    # Reading.

    def poll(self, timeout: float = 0.0, *, max_records: int | None = None) -> list[Record]:
        """Records that have arrived, `max.poll.records` of them at most; waits for the first, up to `timeout` seconds.

        To poll again says that the records before are done with: from then on they may be committed.
        """
        if self._current is not None:
            self._give_back()
        return self._poll(timeout, max_records)

    def poll_arrow(self, timeout: float = 0.0) -> "pyarrow.Table":
        """Everything that has arrived, as a table; waits for the first record, up to `timeout` seconds.

        Its columns are topic, partition, offset, timestamp, key, value and headers. Deserializers and interceptors
        are for rows.
        """
        from headwater.client.consumer.arrow import to_table

        return to_table(self.poll_columns(timeout))

    def poll_columns(self, timeout: float = 0.0) -> list[tuple[str, int, RecordColumns]]:
        """What `poll_arrow` makes a table of, for those without pyarrow: topic, partition and columns, part by part."""
        if self._current is not None:
            self._give_back()
        return self._polled(timeout, self._columns_now, self._client.poll_columns)

    def __iter__(self) -> Iterator[Record]:
        """One record after the other, until the consumer is closed by another thread.

        A loop that is left can be taken up again: records that it had not handed out are neither lost nor committed.
        """
        left = self._left
        while left or self._refill():
            self._current = record = left.pop()
            yield record

    def __next__(self) -> Record:
        if not self._left and not self._refill():
            raise StopIteration
        self._current = record = self._left.pop()
        return record

    def _refill(self) -> bool:
        """Waits for records for a loop; False when there will be none any more."""
        while not self._left:
            try:
                self._left.extend(self._poll(_FOR_A_WHILE_S, None))
            except ClosedError:
                return False
        self._left.reverse()
        return True

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Hands out nothing of these until `resume`; what was fetched is kept for then."""
        self._call_whole(lambda: self._client.pause(partitions))

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Ends `pause`."""
        self._call(lambda: self._client.resume(partitions))

    def paused(self) -> set[TopicPartition]:
        """The partitions that are paused."""
        return self._call(self._client.paused)

    # Positions.

    def seek(self, partition: TopicPartition, offset: int, leader_epoch: int | None = None) -> None:
        """The next poll hands out from this offset. With the epoch it was found in, a log that was cut is noticed."""
        self._call_whole(lambda: self._client.seek(partition, offset, leader_epoch))

    def seek_to_beginning(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Goes to the start of the logs of these partitions, or of all; looked up before the next records come."""
        self._call_whole(lambda: self._client.seek_to_beginning(partitions))

    def seek_to_end(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Goes to the end of the logs of these partitions, or of all; looked up before the next records come."""
        self._call_whole(lambda: self._client.seek_to_end(partitions))

    def seek_to_time(self, timestamp_ms: int, partitions: Iterable[TopicPartition] = ()) -> None:
        """Goes to the first record at or after a time; to the end where there is none."""
        self._give_back()
        self._run(self._client.seek_to_time(timestamp_ms, partitions))

    def position(self, partition: TopicPartition) -> int:
        """The offset of the next record to be handed out; waits until it is known."""
        handed_out = self._behind().get(TopicPartition(*partition))
        return self._run(self._client.position(partition)) if handed_out is None else handed_out

    def lag(self, partition: TopicPartition) -> int | None:
        """How many offsets are still to be read, from what brokers told with the last fetch; None: not known yet."""
        return self._call(lambda: self._client.lag(partition))

    def waiting_bytes(self) -> int:
        """How much was fetched and waits to be handed out, but for paused partitions; see `prefetch.max.bytes`."""
        return self._call(self._client.waiting_bytes)

    # The group.

    def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None, timeout_s: float | None = None
    ) -> None:
        """Commits these offsets, or the positions of all that was handed out; returns when the group has them."""
        self._run(self._client.commit(self._handed_out() if offsets is None else offsets, timeout_s))

    def commit_async(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None,
        callback: CommitCallback | None = None,
    ) -> None:
        """Sends a commit and does not wait; `callback(offsets, error)` is told how it ended, by a later poll."""
        told = None if callback is None else relayed_callback(self._io, callback)
        committing = self._handed_out() if offsets is None else offsets
        self._call(lambda: self._client.commit_async(committing, told))

    def committed(
        self, partitions: Iterable[TopicPartition], timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed, for each partition; None where it has nothing."""
        return self._run(self._client.committed(partitions, timeout_s))

    @property
    def group_metadata(self) -> GroupMetadata:
        """Who this consumer is in its group, for a producer that commits its offsets in a transaction."""
        return self._call(lambda: self._client.group_metadata)

    # The cluster.

    def offsets_for_times(
        self, timestamps_ms: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record at or after a time, for each partition; None where there is none."""
        return self._run(self._client.offsets_for_times(timestamps_ms))

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset of the first record that is still in the log, for each partition."""
        return self._run(self._client.beginning_offsets(partitions))

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset behind the last record that may be read, for each partition."""
        return self._run(self._client.end_offsets(partitions))

    def partitions_for(self, topic: str) -> list[TopicPartition]:
        """The partitions of a topic."""
        return self._run(self._client.partitions_for(topic))

    def topics(self) -> list[str]:
        """The names of all topics that this client may see, but for the cluster's own."""
        return self._run(self._client.topics())

    @property
    def statistics(self) -> "ConsumerStatistics":
        """What the consumer has read so far."""
        return self._client.statistics

    # The machine room.

    def _poll(self, timeout_s: float, max_records: int | None) -> list[Record]:
        return self._polled(
            timeout_s,
            lambda: self._in_turn(lambda: self._client.poll_now(max_records)),
            lambda left_s: self._client.poll(left_s, max_records=max_records),
        )

    def _polled(
        self, timeout_s: float, now: Callable[[], list[T]], whole: Callable[[float], Coroutine[Any, Any, list[T]]]
    ) -> list[T]:
        """What has arrived is taken in this thread; the consumer's own is asked when there is more to do than that."""
        self._enter()
        try:
            taken = now()
            if not taken:
                ends_s = time.monotonic() + timeout_s
                if self._client.wait_for_news(timeout_s):
                    taken = now()
                timeout_s = max(ends_s - time.monotonic(), 0.0)
            if self._closing and not taken:
                raise ClosedError("the consumer was closed by another thread while this call waited")
            return taken or self._io.run(whole(timeout_s))
        finally:
            self._using.release()

    def _columns_now(self) -> list[ColumnsPart]:
        """What has arrived, read by this thread while the other one goes on receiving."""
        claims = read_columns(self._in_turn(self._client.claim_columns_now))
        return self._in_turn(lambda: self._client.hand_out_columns(claims)) if claims else []

    def _in_turn(self, function: Callable[[], T]) -> T:
        """Calls a function while the loop stands still."""
        self._io.turn.let_the_loop_go_first()
        with self._io.turn.lock:
            return function()

    def _enter(self) -> None:
        """Keeps other threads out until `_using` is released, or raises if one is in."""
        self._io.check_usable()
        if not self._using.acquire(blocking=False):
            raise WrongThreadError(
                "this consumer is being used by another thread: give each thread a consumer of its own"
            )

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine, if no other thread uses the consumer."""
        try:
            self._enter()
        except ClientError:
            coroutine.close()
            raise
        try:
            return self._io.run(coroutine)
        finally:
            self._using.release()

    def _call(self, function: Callable[[], T]) -> T:
        """Calls a plain function of the asyncio consumer, on its own loop."""

        async def called() -> T:
            return function()

        return self._run(called())

    def _call_whole(self, function: Callable[[], T]) -> T:
        """The same for what changes what is read: before that, nothing may be between the consumer and its user."""
        self._give_back()
        return self._call(function)

    def _behind(self) -> dict[TopicPartition, int]:
        """The next offset for the user, where that is behind the consumer's position: `for` has it, but no one else."""
        return {TopicPartition(record.topic, record.partition): record.offset for record in self._left}

    def _handed_out(self) -> Mapping[TopicPartition, OffsetAndMetadata | int] | None:
        """What may be committed; None: the positions as they are."""
        behind = self._behind()
        return self._call(lambda: self._client.positions_before(behind)) if behind else None

    def _give_back(self) -> None:
        """What `for` has and did not hand on is to be read again."""
        self._current = None
        if behind := self._behind():
            self._left.clear()
            self._call(lambda: self._client.go_back(behind))


class ThreadedConsumer(AsyncConsumer):
    """The asyncio consumer as it lives on its thread, with what a program in another thread needs of it."""

    def __init__(self, *given: Any, **settings: Any) -> None:
        super().__init__(*given, **settings)
        self._polled_s = -math.inf
        self._news_for_thread = threading.Event()

    async def _poll(self, timeout_s: float | None, take: Callable[[], list[T]]) -> list[T]:
        """A whole poll: takes part in the group, commits when it is time, raises what went wrong."""
        try:
            return await super()._poll(timeout_s, take)
        finally:
            self._polled_s = time.monotonic()

    def poll_now(self, max_records: int | None) -> list[Record]:
        """What a poll hands out at once, taken while the loop stands still; nothing when a whole poll is due."""
        return self._now(lambda: self._take(self.settings.max_poll_records if max_records is None else max_records))

    def claim_columns_now(self) -> list[ColumnsClaim]:
        """The same by column, to be read and then handed out by `hand_out_columns`."""
        return self._now(self._prefetched.claim_columns)

    def hand_out_columns(self, claims: list[ColumnsClaim]) -> list[ColumnsPart]:
        """What was read of the claims."""
        parts = self._prefetched.hand_out_columns(claims)
        self._fetch_if_room_was_made()
        return parts

    def wait_for_news(self, timeout_s: float) -> bool:
        """Waits until something has arrived or gone wrong, and not for long; False at once when a whole poll is due."""
        if self._whole_poll_due:
            return False
        return self._news_for_thread.wait(min(timeout_s, _WHOLE_POLL_EVERY_S))

    def wake(self) -> None:
        """Ends `wait_for_news`."""
        self._news_for_thread.set()

    @property
    def _whole_poll_due(self) -> bool:
        """Now and then, and when the group wants something."""
        late = time.monotonic() - self._polled_s > _WHOLE_POLL_EVERY_S
        return late or self._membership.poll_needed or self._polling or self._closed

    def _tell(self) -> None:
        super()._tell()
        self.wake()

    def _now(self, take: Callable[[], list[T]]) -> list[T]:
        self._news_for_thread.clear()
        if self._whole_poll_due:
            return []
        self._subscription.poll_begins()
        taken = take()
        self.statistics.polls += bool(taken)
        self._fetch_if_room_was_made()
        return taken

    def _fetch_if_room_was_made(self) -> None:
        if self._prefetched.room_made and self._fetcher.waits_for_room and self._loop is not None:
            self._prefetched.room_made = False
            self._loop.call_soon_threadsafe(self._attend)

    def positions_before(self, behind: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAndMetadata | int]:
        """The positions, but for those partitions where the user is still behind."""
        return {**self._to_commit(None), **behind}

    def go_back(self, behind: Mapping[TopicPartition, int]) -> None:
        """Reads on where the user is."""
        for partition, offset in behind.items():
            self.seek(partition, offset)
