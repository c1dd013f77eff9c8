"""Keeps fetches going: one in flight for each broker that has something we read, as long as there is room for more.

Runs on the event loop; whoever changes what there is to fetch calls `send_fetches`, which never waits. What arrives is
put into `Prefetched`, from where the consumer hands it out: a fetch moves no position. What goes wrong is cured here
(`fetch_answers`), or kept for the next poll to raise.
"""

import asyncio
import contextlib
import logging
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from headwater.client.back_off import BackOff
from headwater.client.client import Client
from headwater.client.consumer.corrupt_batches import ReadingRules, skip
from headwater.client.consumer.fetch_answers import Cure, chunk_of, cure, leader_hints, note_offsets
from headwater.client.consumer.fetch_lane import FetchAnswer, PartitionAnswer
from headwater.client.consumer.fetch_requests import end_session, fetch
from headwater.client.consumer.fetch_sessions import FetchSession, Wanted
from headwater.client.consumer.prefetch import Prefetched
from headwater.client.consumer.settings import ConsumerSettings
from headwater.client.consumer.statistics import ConsumerStatistics
from headwater.client.consumer.subscription import PartitionState, Position, SubscriptionState
from headwater.client.errors import ClientError, CorruptRecordError, RefusedError, error_code
from headwater.protocol.kafka_types import ErrorCode
from headwater.types import TopicPartition

logger = logging.getLogger(__name__)

_PAUSE_MS: Final = 5
_GOODBYE_S: Final = 1.0
"""A broker that does not hear by then that a session has ended finds out when it needs the place."""
_FETCHES_AHEAD: Final = 4
"""So much may wait of a partition that decoding and receiving go on side by side, and is still in the cache."""


class _Question(NamedTuple):
    """A fetch to be sent to a broker."""

    node: int
    wanted: Mapping[TopicPartition, Wanted]
    max_bytes: int


class Fetcher:
    """Fetches what `subscription` may read. `on_news` is called when something arrived or went wrong."""

    def __init__(
        self,
        client: Client,
        subscription: SubscriptionState,
        prefetched: Prefetched,
        settings: ConsumerSettings,
        statistics: ConsumerStatistics,
        on_news: Callable[[], None],
        rules: ReadingRules,
    ) -> None:
        self._client = client
        self._rules = rules
        self._subscription = subscription
        self._prefetched = prefetched
        self._settings = settings
        self._statistics = statistics
        self._on_news = on_news
        self._back_off = BackOff(settings.retry_backoff_ms, settings.retry_backoff_max_ms)
        self._sessions: defaultdict[int, FetchSession] = defaultdict(FetchSession)
        self._in_flight: dict[int, asyncio.Task[None]] = {}
        self._reserved_bytes: dict[int, int] = {}
        """By broker, how much may come: those that were asked and have not answered yet."""
        self._asked_last: dict[int, int] = {}
        """The number of the last fetch to each broker."""
        self._failures_in_a_row: defaultdict[int, int] = defaultdict(int)
        self._held: set[int | TopicPartition] = set()
        """Brokers and partitions that are left alone for a moment, since something went wrong there."""
        self._errors: dict[TopicPartition, tuple[int, ClientError]] = {}
        """What went wrong with a fetch from an offset, and only the user can cure."""
        self._error: Exception | None = None
        self._closed = False
        self.waits_for_room = False
        """Whether something would be fetched if less of it waited."""

    def send_fetches(self) -> None:
        """Starts a fetch to every broker that has none in flight and something to ask for, within the memory bound."""
        for question in self._due():
            self._in_flight[question.node] = asyncio.create_task(self._fetch(question))

    def _due(self) -> list[_Question]:
        """What to ask now; room for the answers is reserved."""
        due: list[_Question] = []
        if self._closed:
            return due
        self._prefetched.drop_stale()
        by_node, full = self._wanted_by_node()
        self.waits_for_room = bool(full)
        # Who was asked longest ago is first: where room is short, brokers take turns.
        for node, wanted in sorted(by_node.items(), key=lambda each: self._asked_last.get(each[0], 0)):
            if node in self._reserved_bytes or node in full or node in self._held:
                continue
            max_bytes = self._room(len(by_node), len(wanted))
            if not max_bytes:
                self.waits_for_room = True
                break
            self._asked_last[node] = self._statistics.fetches = self._statistics.fetches + 1
            self._reserved_bytes[node] = max_bytes
            due.append(_Question(node, wanted, max_bytes))
        return due

    def raise_error(self) -> None:
        """Raises something that only the user can cure, once; it is asked for again after that.

        What arrived before the error is handed out first: the user may take it for the word to seek past it.
        """
        error, self._error = self._error, None
        if error is not None:
            raise error
        for partition, (offset, failure) in [*self._errors.items()]:
            state = self._subscription.assigned.get(partition)
            position = None if state is None else state.position
            if position is None or self._prefetched.fetch_from(partition, position.offset) != offset:
                del self._errors[partition]
            elif position.offset == offset:
                del self._errors[partition]
                self._skip(failure, position)

    def _skip(self, failure: ClientError, position: Position) -> None:
        """Goes on behind what a broker keeps back as damaged, if that may be skipped; else raises it."""
        if self._rules.skip is None or not isinstance(failure, CorruptRecordError):
            raise failure
        skip(self._rules.skip, failure.batch)
        self._subscription.handed_out(failure.partition, Position(failure.batch.next_offset, position.leader_epoch))
        self.send_fetches()

    async def close(self) -> None:
        """Ends every fetch, and the sessions at brokers that hear of it soon; nothing more arrives."""
        self._closed = True
        tasks = [*self._in_flight.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        ending = [end_session(self._client, node, each) for node, each in self._sessions.items() if each.id]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GOODBYE_S):
                await asyncio.gather(*ending, return_exceptions=True)

    def _wanted_by_node(self) -> tuple[dict[int, dict[TopicPartition, Wanted]], set[int]]:
        """What to ask of which broker; and the brokers to leave alone, as of one of their partitions enough waits.

        Such a broker is asked for all its partitions once there is room in each: asked for the others alone, which may
        have nothing new, it would make us wait while the one that was left out runs dry.
        """
        by_node: dict[int, dict[TopicPartition, Wanted]] = {}
        full: set[int] = set()
        enough_bytes = self._enough_bytes()
        for partition, state in self._subscription.assigned.items():
            leader = self._client.leader_of(partition.topic, partition.partition)
            if leader is None:
                self._client.need_refresh((partition.topic,))
                continue
            self._subscription.leader_seen(partition, leader.epoch)
            if not state.fetchable or partition in self._held or partition in self._errors:
                continue
            if not self._prefetched.ends_surely(partition):
                # Something in what waits makes no sense: where to go on is seen when it is handed out.
                continue
            assert state.position is not None
            node = _replica(state, leader.node_id)
            if self._prefetched.size_bytes(partition) >= enough_bytes:
                full.add(node)
            else:
                topic_id = self._client.topic_id(partition.topic)
                by_node.setdefault(node, {})[partition] = Wanted(
                    self._prefetched.fetch_from(partition, state.position.offset),
                    leader.epoch,
                    self._settings.max_partition_fetch_bytes,
                    None if topic_id is None else topic_id.bytes,
                )
        return by_node, full

    def _enough_bytes(self) -> int:
        """How much of one partition may wait before no more is fetched: some fetches, or its share of the bound."""
        share = self._settings.prefetch_max_bytes // max(len(self._subscription.assigned), 1)
        one_fetch = max(self._settings.max_partition_fetch_bytes, 1)
        return max(one_fetch, min(_FETCHES_AHEAD * one_fetch, share))

    def _room(self, nodes: int, partitions: int) -> int:
        """How much to ask for at most: each broker has its share of the bound, and all that waits counts against it."""
        bound = self._settings.prefetch_max_bytes
        taken = self._prefetched.unpaused_bytes() + sum(self._reserved_bytes.values())
        if taken and taken >= bound:
            return 0
        expected = partitions * self._settings.max_partition_fetch_bytes
        return max(1, min(self._settings.fetch_max_bytes, expected, bound // nodes, bound - taken))

    async def _fetch(self, first: _Question) -> None:
        """Fetches from a broker again and again, as long as there is something to ask for and room for it."""
        question: _Question | None = first
        try:
            while question is not None:
                await self._fetch_once(question)
                # By the time that anybody hears of what came, the next question is on its way.
                asyncio.get_running_loop().call_soon(self._on_news)
                question = self._next(first.node)
        finally:
            del self._in_flight[first.node]

    def _next(self, node: int) -> _Question | None:
        """What to ask this broker next, if anything; fetches from others begin."""
        found = None
        for question in self._due():
            if question.node == node:
                found = question
            else:
                self._in_flight[question.node] = asyncio.create_task(self._fetch(question))
        return found

    async def _fetch_once(self, question: _Question) -> None:
        node, wanted, max_bytes = question
        session = self._sessions[node]
        try:
            answer = await fetch(self._client, node, session, wanted, self._settings, max_bytes)
            self._accept(node, session, answer, wanted)
        except ClientError as error:
            session.failed()
            self._node_failed(node, wanted, error)
        except asyncio.CancelledError:
            session.failed()
            raise
        except Exception as error:
            # A mistake of ours must not end as a consumer that reads nothing and says nothing.
            session.failed()
            self._error = error
            self._hold((node,), self._settings.retry_backoff_max_ms)
        finally:
            del self._reserved_bytes[node]

    def _accept(
        self, node: int, session: FetchSession, answer: FetchAnswer, wanted: Mapping[TopicPartition, Wanted]
    ) -> None:
        code = error_code(answer.error_code)
        if not session.answered(code, answer.session_id):
            # A broker may forget a session; only one that does so again and again has to wait.
            self._statistics.sessions_lost += 1
            self._node_failed(node, wanted, RefusedError(f"the fetch session with broker {node}", code))
            return
        if code is not ErrorCode.none:
            raise RefusedError(f"fetch from broker {node}", code)
        self._failures_in_a_row.pop(node, None)
        if answer.throttle_ms > 0:
            # The broker has answered at once and leaves it to us to keep to our quota.
            self._hold((node,), answer.throttle_ms)
        elif not any(len(each.records) for each in answer.partitions) and not (
            self._settings.fetch_max_wait_ms and self._settings.fetch_min_bytes
        ):
            # The broker does not wait until it has something, so that we have to.
            self._hold((node,), _PAUSE_MS)
        self._client.take_hints(leader_hints(session, answer.partitions), answer.endpoints)
        for each in answer.partitions:
            asked = session.asked(each.topic, each.partition)
            if asked is not None:
                self._accept_partition(node, *asked, each)

    def _accept_partition(self, node: int, partition: TopicPartition, offset: int, answer: PartitionAnswer) -> None:
        state = self._subscription.assigned.get(partition)
        if state is None or state.position is None:
            return
        if offset != self._prefetched.fetch_from(partition, state.position.offset):
            # Somebody has moved the position since: this answers a question that nobody asks any more.
            return
        try:
            if answer.error_code:
                self._hold_for(node, partition, cure(self._subscription, partition, offset, answer))
                return
            note_offsets(state, answer)
            if answer.preferred_read_replica >= 0:
                state.preferred_replica = answer.preferred_read_replica
                state.preferred_until_s = time.monotonic() + self._settings.metadata_max_age_ms / 1000
            if len(answer.records):
                chunk = chunk_of(partition, offset, answer, self._rules)
                if chunk is None:
                    self._hold((partition,), self._settings.retry_backoff_ms)
                    return
                self._prefetched.add(partition, chunk)
                self._statistics.bytes_fetched += chunk.size_bytes
        except ClientError as error:
            self._errors[partition] = (offset, error)

    def _hold_for(self, node: int, partition: TopicPartition, needed: Cure) -> None:
        if needed is Cure.METADATA:
            leader = self._client.leader_of(*partition)
            if leader is not None and leader.node_id != node:
                return  # we know already who leads now
            self._client.need_refresh((partition.topic,))
        if needed is not Cure.NOTHING:
            self._hold((partition,), self._settings.retry_backoff_ms)

    def _node_failed(self, node: int, wanted: Mapping[TopicPartition, Wanted], error: ClientError) -> None:
        """A broker that does not answer is tried again later; meanwhile others may have come to lead its partitions."""
        logger.info("a fetch from broker %d failed: %s", node, error)
        self._statistics.fetch_failures += 1
        self._failures_in_a_row[node] += 1
        for partition in wanted:
            state = self._subscription.assigned.get(partition)
            if state is not None and state.preferred_replica == node:
                state.preferred_replica = None
        if self._client.may_pass(error):
            self._client.need_refresh({partition.topic for partition in wanted})
        else:
            self._error = error
        self._hold((node,), self._back_off.delay_ms(self._failures_in_a_row[node], random.random()))  # noqa: S311

    def _hold(self, what: Iterable[int | TopicPartition], delay_ms: float) -> None:
        held = tuple(what)
        self._held.update(held)

        def release() -> None:
            self._held.difference_update(held)
            self.send_fetches()

        asyncio.get_running_loop().call_later(delay_ms / 1000, release)


def _replica(state: PartitionState, leader: int) -> int:
    """The broker to read from: the leader, unless it has named a closer replica a while ago."""
    if state.preferred_replica is None:
        return leader
    if time.monotonic() < state.preferred_until_s:
        return state.preferred_replica
    state.preferred_replica = None
    return leader
