"""Between the accumulator and the wire: one task that sends what is ready, and settles every batch in the end.

Each leader gets one request with a batch of each of its partitions, and the next one before the last is answered, up to
`max.in.flight.requests.per.connection`. A batch ends as done or failed, or goes back to its queue to be sent again:
after an error that may pass, for as long as `delivery.timeout.ms` allows. How they are numbered is `idempotence.py`'s
business, what a transaction allows is `transactions.py`'s. Nothing here serializes, partitions or compresses.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from headwater.client.client import Client
from headwater.client.connection import Connection
from headwater.client.errors import ClientError, ClosedError, NotKafkaError, TimedOutError
from headwater.client.leader_hints import SAY_WHO_LEADS, LeaderHint
from headwater.client.producer.accumulator import Accumulator, monotonic_ms
from headwater.client.producer.batch_building import Batch
from headwater.client.producer.idempotence import Sequences
from headwater.client.producer.outcomes import BatchOutcomes
from headwater.client.producer.produce_lane import (
    FIRST_FLEXIBLE_VERSION,
    FIRST_VERSION_THAT_ADDS_TO_TRANSACTIONS,
    FIRST_VERSION_WITH_TOPIC_ID,
    NEWEST_VERSION,
    OLDEST_VERSION,
    PRODUCE_KEY,
    Part,
    PartitionAnswer,
    TopicKey,
    decode_produce,
    encode_produce,
)
from headwater.client.producer.queues import PartitionQueue
from headwater.client.producer.settings import ProducerSettings
from headwater.client.producer.statistics import ProducerStatistics
from headwater.client.producer.transaction_requests import NO_IDENTITY, Identity, TransactionRequests, is_fatal
from headwater.client.producer.transactions import Transactions
from headwater.protocol.errors import MalformedRequestError
from headwater.protocol.kafka_types import ErrorCode
from headwater.types import TopicPartition

_log = logging.getLogger(__name__)

_NO_ANSWER: Final = 0
"""acks=0."""
_LONGEST_PATIENCE_MS: Final = 500
"""By so much, at most, a batch is failed later than `delivery.timeout.ms` has it."""


class _Link:
    """What is under way to one broker."""

    __slots__ = ("broker", "connecting", "connection", "in_flight")

    def __init__(self, broker: int) -> None:
        self.broker = broker
        self.connection: Connection | None = None
        self.connecting: asyncio.Task[None] | None = None
        self.in_flight = 0


@dataclass(slots=True, eq=False)
class _Request:
    """A request under way: its batches by topic and partition, less those that ran out of time meanwhile."""

    link: _Link
    version: int
    batches: dict[tuple[TopicKey, int], Batch]
    expires_ms: int


class Sender:
    """Sends batches until it is stopped. All but `wake` is for the event loop's own thread."""

    def __init__(
        self,
        client: Client,
        accumulator: Accumulator,
        settings: ProducerSettings,
        requests: TransactionRequests,
        statistics: ProducerStatistics,
        *,
        sequences: Sequences | None,
        transactions: Transactions | None,
        on_availability: Callable[[], None] = lambda: None,
    ) -> None:
        self.failure: ClientError | None = None
        """Why nothing can be sent any more."""
        self.unavailable: frozenset[int] = frozenset()
        """Brokers that have taken nothing for `partitioner.availability.timeout.ms`; changes call `on_availability`."""
        self._on_availability = on_availability
        self._blocked_since_ms: dict[int, int] = {}
        adaptive = settings.partitioner_adaptive_partitioning_enable
        self._availability_timeout_ms = settings.partitioner_availability_timeout_ms if adaptive else 0
        self._client = client
        self._accumulator = accumulator
        self._settings = settings
        self._requests = requests
        self._sequences = sequences
        self._transactions = transactions
        self._loop = asyncio.get_running_loop()
        self._awake = asyncio.Event()
        self._links: dict[int, _Link] = {}
        self._under_way: set[_Request] = set()
        self._outcomes = BatchOutcomes(
            client, accumulator, settings, statistics, sequences=sequences, transactions=transactions
        )
        self._asking: asyncio.Task[None] | None = None
        self._patience_ms = min(max(settings.delivery_timeout_ms // 10, 1), _LONGEST_PATIENCE_MS)
        self._look_for_late_at_ms = 0
        self._keeps_order_by_muting = settings.max_in_flight_requests_per_connection == 1
        self._task = asyncio.create_task(self._run(), name="headwater-producer-sender")

    @property
    def identity(self) -> Identity:
        """What batches are written under."""
        found = self._sequences
        return NO_IDENTITY if found is None else Identity(found.producer_id, found.producer_epoch)

    def wake(self) -> None:
        """Has it look at the accumulator; from any thread."""
        # A loop that was closed has no sender that could be woken.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._awake.set)

    def nudge(self) -> None:
        """The same, on the event loop's own thread."""
        self._awake.set()

    async def quiet(self) -> None:
        """Waits until no coordinator is being asked for anything."""
        while self._asking is not None:
            await asyncio.wait([self._asking])

    async def stop(self) -> None:
        """Ends it; what is still unsettled fails with `ClosedError`."""
        self._task.cancel()
        tasks = [link.connecting for link in self._links.values()]
        for task in (self._asking, *tasks):
            if task is not None:
                task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        self._fail_all(ClosedError("the producer was closed before the record was acknowledged"))

    async def _run(self) -> None:
        try:
            while True:
                self._awake.clear()
                now_ms = monotonic_ms()
                self._turn(now_ms)
                await self._sleep(now_ms)
        except Exception as error:
            self._crashed(error)

    def _crashed(self, error: Exception) -> None:
        """A bug of ours: nobody shall wait for ever because of it."""
        _log.error("the producer's sender failed: this is a bug, please report it", exc_info=error)
        self._fail_all(ClientError(f"the producer's sender failed ({error!r}): make another producer"))

    def _turn(self, now_ms: int) -> None:
        if now_ms >= self._look_for_late_at_ms:
            self._look_for_late_at_ms = now_ms + self._patience_ms
            self._expire(now_ms)
        if self._sequences is not None:
            self._look_after_numbers(self._sequences)
        while self._send_once(now_ms):
            pass

    async def _sleep(self, now_ms: int) -> None:
        """Until something happens: a batch, an answer, a connection, or the time comes for the next of them."""
        if self._awake.is_set():
            return
        look_ms = self._look_for_late_at_ms
        # Nothing is found late before the next look: to wake for it earlier would be in vain.
        times = [max(request.expires_ms, look_ms) for request in self._under_way]
        next_ready_ms = self._accumulator.next_ready_ms(now_ms)
        if next_ready_ms is not None:
            # What is ready and was not sent waits for an answer or a connection, and at last for its own end.
            times.append(next_ready_ms if next_ready_ms > now_ms else look_ms)
            if next_ready_ms > look_ms:
                # The pause before a retry may be longer than what is left of a batch's time.
                times.append(max(self._accumulator.next_expiry_ms(self._settings.delivery_timeout_ms), look_ms))
        if not times:
            await self._awake.wait()
            return
        timer = self._loop.call_later(max(min(times) - now_ms, 1) / 1000, self._awake.set)
        try:
            await self._awake.wait()
        finally:
            timer.cancel()

    def _send_once(self, now_ms: int) -> bool:
        """One request to each leader that has room and something to send; whether there was any."""
        by_link: dict[_Link, list[PartitionQueue]] = {}
        leaderless: set[str] = set()
        blocked: set[int] = set()
        for queue in self._accumulator.ready(now_ms):
            if self._transactions is not None and self._transactions.only_aborts:
                self._outcomes.drop_unsent(queue, self._transactions, now_ms)
                if not queue.batches:
                    continue
            leader = self._client.leader_of(queue.topic, queue.partition)
            if leader is None:
                leaderless.add(queue.topic)
            elif (link := self._open_link(leader.node_id)) is not None:
                by_link.setdefault(link, []).append(queue)
            else:
                blocked.add(leader.node_id)
        if self._availability_timeout_ms:
            self._note_blocked(blocked, now_ms)
        if leaderless:
            self._client.need_refresh(leaderless)
        sent = False
        for link, queues in by_link.items():
            batches = self._drain(queues, now_ms)
            if batches:
                self._submit(link, batches)
                sent = True
        return sent

    def _note_blocked(self, blocked: Iterable[int], now_ms: int) -> None:
        """Of brokers that something waits for: when each began to take nothing. One that nothing waits for may be
        well again, and has to be given something to find out."""
        self._blocked_since_ms = {broker: self._blocked_since_ms.get(broker, now_ms) for broker in blocked}
        unavailable = frozenset(
            broker
            for broker, since_ms in self._blocked_since_ms.items()
            if now_ms - since_ms >= self._availability_timeout_ms
        )
        if unavailable != self.unavailable:
            self.unavailable = unavailable
            self._on_availability()

    def _open_link(self, broker: int) -> _Link | None:
        """The link to a broker, if a request may be sent over it now."""
        link = self._links.get(broker)
        if link is None:
            link = self._links[broker] = _Link(broker)
        if link.connection is None or not link.connection.usable:
            if link.connecting is None:
                link.connecting = asyncio.create_task(self._connect(link))
            return None
        return link if link.in_flight < self._settings.max_in_flight_requests_per_connection else None

    async def _connect(self, link: _Link) -> None:
        try:
            link.connection = await self._client.connection(link.broker)
        except ClientError as error:
            _log.debug("no connection to broker %d: %s", link.broker, error)
            self._client.need_refresh()
            await asyncio.sleep(self._settings.retry_backoff_ms / 1000)
        finally:
            link.connecting = None
            self._awake.set()

    def _drain(self, queues: Iterable[PartitionQueue], now_ms: int) -> list[Batch]:
        """A batch of each partition, as far as they fit into one request."""
        taken: list[Batch] = []
        size_bytes = 0
        for queue in queues:
            head = queue.batches[0]
            if taken and size_bytes + head.size_bytes > self._settings.max_request_size:
                break
            if not self._may_send(TopicPartition(queue.topic, queue.partition), head):
                continue
            batch = self._accumulator.drain(queue, now_ms)
            if batch is None:
                continue
            queue.muted = self._keeps_order_by_muting
            self._outcomes.seal(batch)
            size_bytes += batch.size_bytes
            taken.append(batch)
        return taken

    def _may_send(self, partition: TopicPartition, batch: Batch) -> bool:
        numbered = self._outcomes.number_of(batch)
        transactions = self._transactions
        if transactions is not None and numbered is None and not transactions.may_write(partition):
            self._ask(self._add_partitions(transactions))
            return False
        return self._sequences is None or self._sequences.may_send(partition, numbered)

    def _submit(self, link: _Link, batches: list[Batch]) -> None:
        connection = link.connection
        assert connection is not None
        version = self._version(connection, batches)
        if version < OLDEST_VERSION:
            error = NotKafkaError(
                f"the broker at {connection.address} is older than Kafka 0.11, which this client needs"
            )
            for batch in batches:
                self._outcomes.fail(batch, error, was_written=False)
            return
        by_topic: dict[TopicKey, list[tuple[int, Part]]] = {}
        by_key: dict[tuple[TopicKey, int], Batch] = {}
        for batch in batches:
            topic = self._topic_key(batch.topic, version)
            assert batch.sealed is not None
            by_topic.setdefault(topic, []).append((batch.partition, batch.sealed))
            by_key[topic, batch.partition] = batch
        settings = self._settings
        body = encode_produce(
            version, settings.transactional_id, settings.acks, settings.request_timeout_ms, by_topic.items()
        )
        expires_ms = min(batch.created_ms for batch in batches) + settings.delivery_timeout_ms
        request = _Request(link, version, by_key, expires_ms)
        answer = connection.submit_raw(
            PRODUCE_KEY,
            version,
            body,
            flexible=version >= FIRST_FLEXIBLE_VERSION,
            timeout_s=settings.request_timeout_ms / 1000,
            answered=settings.acks != _NO_ANSWER,
        )
        link.in_flight += 1
        self._under_way.add(request)
        answer.add_done_callback(partial(self._answered, request))

    def _version(self, connection: Connection, batches: list[Batch]) -> int:
        newest = min(NEWEST_VERSION, connection.supported(PRODUCE_KEY)[1])
        if self._transactions is not None and not self._transactions.adds_by_writing:
            newest = min(newest, FIRST_VERSION_THAT_ADDS_TO_TRANSACTIONS - 1)
        if newest >= FIRST_VERSION_WITH_TOPIC_ID and any(
            self._client.topic_id(batch.topic) is None for batch in batches
        ):
            newest = FIRST_VERSION_WITH_TOPIC_ID - 1
        return newest

    def _topic_key(self, topic: str, version: int) -> TopicKey:
        if version < FIRST_VERSION_WITH_TOPIC_ID:
            return topic
        found = self._client.topic_id(topic)
        assert found is not None
        return found.bytes

    def _answered(self, request: _Request, answer: "asyncio.Future[memoryview]") -> None:
        """Settles the batches of a request, or has them sent again."""
        request.link.in_flight -= 1
        self._under_way.discard(request)
        self._awake.set()
        for batch in request.batches.values():
            batch.queue.muted = False
        try:
            self._take_answer(request, answer.result())
        except (ClientError, MalformedRequestError) as error:
            code = ErrorCode.request_timed_out if isinstance(error, TimedOutError) else ErrorCode.network_exception
            for batch in request.batches.values():
                self._outcomes.refused(batch, code, PartitionAnswer(batch.partition, code, -1, -1, -1, (), str(error)))
        except Exception as error:
            self._crashed(error)

    def _take_answer(self, request: _Request, body: memoryview) -> None:
        if self._settings.acks == _NO_ANSWER:
            for batch in request.batches.values():
                self._outcomes.done(batch, -1, -1)
            return
        answer = decode_produce(request.version, body)
        answers = {(topic, found.partition): found for topic, partitions in answer.topics for found in partitions}
        if hints := _leader_hints(request.batches, answers):
            self._client.take_hints(hints, answer.endpoints)
        for key, batch in request.batches.items():
            found = answers.get(key)
            if found is None:
                missing = ErrorCode.unknown_server_error
                found = PartitionAnswer(batch.partition, missing, -1, -1, -1, (), "the broker's answer leaves it out")
            self._outcomes.settle(batch, found, request.link.broker)

    def _expire(self, now_ms: int) -> None:
        """Fails what took longer than `delivery.timeout.ms`, in its queue or under way."""
        for batch in self._accumulator.expired(now_ms, self._settings.delivery_timeout_ms):
            self._outcomes.expire(batch)
        for request in [request for request in self._under_way if request.expires_ms <= now_ms]:
            for key, batch in list(request.batches.items()):
                if now_ms - batch.created_ms >= self._settings.delivery_timeout_ms:
                    del request.batches[key]
                    self._outcomes.expire(batch)
            created = [batch.created_ms for batch in request.batches.values()]
            request.expires_ms = min(created, default=now_ms) + self._settings.delivery_timeout_ms

    def _look_after_numbers(self, sequences: Sequences) -> None:
        broken = sequences.settle()
        transactions = self._transactions
        if transactions is not None:
            if broken:
                transactions.needs_new_epoch = True
                text = f"{broken[0]}: records were sent and never acknowledged; abort the transaction to go on"
                transactions.fail(ClientError(text), fatal=False)
        elif not sequences.has_identity and self._accumulator.pending_batches:
            self._ask(self._identify(sequences))

    def _ask(self, question: Coroutine[Any, Any, None]) -> None:
        """Asks a coordinator for something; one question at a time."""
        if self._asking is not None:
            question.close()
            return
        self._asking = asyncio.create_task(question)
        self._asking.add_done_callback(self._asked)

    def _asked(self, task: "asyncio.Task[None]") -> None:
        self._asking = None
        self._awake.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("the producer could not ask its coordinator", exc_info=error)

    async def _identify(self, sequences: Sequences) -> None:
        try:
            identity = await self._requests.identity(NO_IDENTITY, deadline_s=self._settings.request_timeout_ms / 1000)
        except ClientError as error:
            self._outcomes.hindrance = error
            if not isinstance(error, TimedOutError) and not self._client.may_pass(error):
                for batch in self._accumulator.abandon():
                    self._outcomes.fail(batch, error, was_written=False)
            await asyncio.sleep(self._settings.retry_backoff_ms / 1000)
        else:
            self._outcomes.hindrance = None
            sequences.identify(*identity)

    async def _add_partitions(self, transactions: Transactions) -> None:
        # The rest of this turn may find more partitions: they go with the same request.
        await asyncio.sleep(0)
        partitions = transactions.to_add
        try:
            await self._requests.add_partitions(
                self.identity, partitions, deadline_s=self._settings.delivery_timeout_ms / 1000
            )
        except ClientError as error:
            transactions.needs_new_epoch = True
            transactions.fail(error, fatal=is_fatal(error))
        else:
            transactions.added(partitions)

    def _fail_all(self, error: ClientError) -> None:
        self.failure = error
        self._accumulator.close()
        for batch in self._accumulator.abandon():
            self._accumulator.failed(batch, error)
        for request in self._under_way:
            for batch in request.batches.values():
                self._accumulator.failed(batch, error)
            request.batches.clear()


def _leader_hints(
    batches: Mapping[tuple[TopicKey, int], Batch], answers: Mapping[tuple[TopicKey, int], PartitionAnswer]
) -> list[LeaderHint]:
    """What an answer tells of partitions that somebody else leads now."""
    return [
        LeaderHint(TopicPartition(batches[key].topic, found.partition), *found.current_leader)
        for key, found in answers.items()
        if found.current_leader is not None and found.error_code in SAY_WHO_LEADS and key in batches
    ]
