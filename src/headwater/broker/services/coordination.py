"""Runs the shards of a coordinator: decide, append, replay, answer.

A shard is the state of one partition of an internal topic. It is loaded by replaying that partition; from then on every
request is decided, written and replayed in one turn of the event loop, so nothing comes between. Answers leave when the
records are committed: at once, or after an fsync where `flush.messages` asks for it.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from headwater.broker.services.clock import now_ms
from headwater.broker.services.partition import Partition
from headwater.coordinator.outcome import Answer, CoordinatorRecord, Outcome, Waiter
from headwater.coordinator.placement import partition_for
from headwater.coordinator.schema import CorruptRecordError
from headwater.log.producer_state import read_marker
from headwater.log.segment import CorruptSegmentError
from headwater.protocol import records
from headwater.protocol.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from headwater.broker.broker import Broker

logger = logging.getLogger(__name__)

_READ_BYTES: Final = 1024 * 1024

_NEVER_TAKEN: Final = frozenset(
    (
        ErrorCode.inconsistent_group_protocol,
        ErrorCode.invalid_group_id,
        ErrorCode.invalid_request,
        ErrorCode.invalid_session_timeout,
        ErrorCode.invalid_transaction_timeout,
    )
)
"""Errors of requests that are wrong whoever coordinates."""

Refused = Callable[[ErrorCode], Any]
"""The response to a request that could not be served."""


class Shard(Protocol):
    """What every coordinator's shard can do besides its own requests."""

    def replay(self, record: CoordinatorRecord, *, producer_id: int = -1) -> None:
        """Takes in a record of the log."""

    def replay_end_marker(self, producer_id: int, committed: bool) -> None:
        """Takes in the end of a transaction that wrote to the log."""

    def loaded(self, now_ms: int) -> Iterable[Outcome]:
        """The whole log was replayed: what follows from it, decided one after another."""

    def next_deadline_ms(self) -> int | None:
        """When `on_time` has something to do, None while nothing is awaited."""

    def on_time(self, now_ms: int) -> Iterable[Outcome]:
        """What is due. Each outcome is carried out before the next is decided."""

    def unload(self) -> list[Answer]:
        """The answers to all that wait, when the shard moves elsewhere."""


S = TypeVar("S", bound=Shard)


class _Waiting:
    """A request that is answered later."""

    __slots__ = ("_future", "_response", "refused")

    def __init__(self, refused: Refused) -> None:
        self.refused = refused
        self._response: Any = None
        self._future: asyncio.Future[Any] | None = None

    def answer(self, response: Any) -> None:
        if self._future is None:
            self._response = response
        elif not self._future.done():
            self._future.set_result(response)

    def response_or_future(self, loop: asyncio.AbstractEventLoop) -> Any:
        """The response if it is there by now, else a future: most requests are answered at once and need none."""
        if self._response is None:
            self._future = loop.create_future()
            return self._future
        return self._response


class RunningShard(Generic[S]):
    """One shard with its partition, its timer and whether it is loaded."""

    def __init__(self, broker: "Broker", partition: Partition, shard: S) -> None:
        self._broker = broker
        self._loop = asyncio.get_running_loop()
        self.partition = partition
        self.shard = shard
        self.is_loaded = False
        self._replayed_to = partition.log.log_start_offset
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0

    def replay_log(self) -> None:
        """Replays what the partition holds. Runs in a thread; nobody else touches the shard meanwhile."""
        log = self.partition.log
        while self._replayed_to < log.log_end_offset:
            try:
                content = log.read(self._replayed_to, _READ_BYTES, up_to_offset=log.log_end_offset).read()
            except OSError as error:
                raise self._broker.failures.storage_error(log, "read", error) from error
            for header in records.scan_headers(content, 0, len(content)):
                self._replay_batch(content, header)
                self._replayed_to = header.next_offset

    def _replay_batch(self, content: bytes, header: records.BatchHeader) -> None:
        if header.is_control:
            marker = read_marker(content, header)
            if marker is not None:
                self.shard.replay_end_marker(header.producer_id, not marker.is_abort)
            return
        producer_id = header.producer_id if header.is_transactional else -1
        for record in records.decode_records(content, header):
            try:
                self.shard.replay(CoordinatorRecord(record.key or b"", record.value), producer_id=producer_id)
            except CorruptRecordError as error:
                logger.error("passed over a record of %s at %d: %s", self.partition.log.path, record.offset, error)

    def begin(self) -> None:
        """The log was replayed: requests may come. A marker may have been written after the thread's last look."""
        self.replay_log()
        self.is_loaded = True
        self.carry_out_all(self.shard.loaded(now_ms()))

    def end(self) -> None:
        """No more requests: whoever waits is told to look for another coordinator."""
        self.is_loaded = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        _give_out(self.shard.unload())

    def carry_out_all(self, outcomes: Iterable[Outcome]) -> None:
        """Writes, replays and answers one outcome after another, as they are decided."""
        for outcome in outcomes:
            self.carry_out(outcome)
        self._set_timer()

    def carry_out(self, outcome: Outcome, waiting: _Waiting | None = None) -> None:
        """Writes and replays the records, then answers; `waiting` is the request whose response this outcome has."""
        answers = outcome.answers
        if waiting is not None and outcome.response is not None:
            answers = [Answer(Waiter(waiting), outcome.response), *answers]
        try:
            flush_needed = self.write(outcome)
        except (OSError, ApiError) as error:
            code = ErrorCode.coordinator_not_available
            if isinstance(error, OSError):
                self._broker.failures.storage_error(self.partition.log, "append to", error)
            else:
                logger.error("cannot write to %s-%d: %s", self.partition.topic.name, self.partition.index, error)
                if error.code is ErrorCode.message_too_large:
                    # As in Apache: to try again is no use.
                    code = ErrorCode.unknown_server_error
            _refuse(answers, code)
            if outcome.on_failure is not None:
                self.carry_out(outcome.on_failure())
            return
        if flush_needed:
            self._broker.in_background(self._answer_after_flush(answers))
        else:
            _give_out(answers)
        for markers in outcome.markers:
            self._broker.markers.write(markers)

    def write(self, outcome: Outcome) -> bool:
        """Writes the records as one batch and replays them; whether answers must wait for a flush."""
        written, producer = outcome.records, outcome.producer
        if not written:
            return False
        longest = self.partition.topic.config.max_message_bytes
        if max([len(record.key) + len(record.value or b"") for record in written]) > longest:
            raise ApiError(ErrorCode.message_too_large, f"a record would be longer than max.message.bytes={longest}")
        time_ms = now_ms()
        batch = records.encode_batch(
            [(record.key, record.value, (), time_ms) for record in written],
            producer_id=producer.producer_id if producer else -1,
            producer_epoch=producer.producer_epoch if producer else -1,
            transactional=producer is not None,
        )
        partition = self.partition
        info = partition.append(batch, now_ms=time_ms)
        if info.rolled:
            self._broker.jobs.flush_soon(partition.log)
        if partition.waiters:
            self._broker.purgatory.touched(partition)
        replay, producer_id = self.shard.replay, producer.producer_id if producer else -1
        for record in written:
            replay(record, producer_id=producer_id)
        return info.flush_needed

    async def _answer_after_flush(self, answers: list[Answer]) -> None:
        try:
            await self._broker.failures.flush(self.partition)
        except ApiError:
            # The state has gone on, as the log may have: the clients ask again and are told what holds then.
            _refuse(answers, ErrorCode.coordinator_not_available)
            return
        _give_out(answers)

    def _set_timer(self) -> None:
        deadline_ms = self.shard.next_deadline_ms()
        if self._timer is not None:
            if deadline_ms is not None and deadline_ms >= self._timer_ms:
                return  # it fires early, finds nothing due and is set again
            self._timer.cancel()
            self._timer = None
        if deadline_ms is not None and self.is_loaded:
            self._timer_ms = deadline_ms
            self._timer = self._loop.call_later(max(deadline_ms - now_ms(), 0) / 1000 + 0.0005, self._time_is_up)

    def _time_is_up(self) -> None:
        self._timer = None
        self.carry_out_all(self.shard.on_time(now_ms()))

    def call(self, decide: Callable[[S, Waiter, int], Outcome], refused: Refused) -> Any:
        """The response to a request, or a future of it."""
        waiting = _Waiting(refused)
        self.carry_out(decide(self.shard, Waiter(waiting), now_ms()), waiting)
        self._set_timer()
        return waiting.response_or_future(self._loop)


class Coordinator(Generic[S]):
    """All shards of one internal topic on this broker."""

    def __init__(
        self,
        broker: "Broker",
        topic: str,
        *,
        partitions: int,
        overrides: dict[str, str],
        make_shard: Callable[[Partition | None], S],
    ) -> None:
        self._broker = broker
        self.topic = topic
        self._partitions = partitions
        self._overrides = overrides
        self._make_shard = make_shard
        self._running: dict[int, RunningShard[S]] = {}

    def start(self) -> None:
        """Takes up the partitions that are there; long ones are replayed in a thread, one after another."""
        topic = self._broker.topics.by_name.get(self.topic)
        if topic is None:
            return
        to_replay = []
        for partition in topic.partitions:
            if partition.index in self._running or partition.is_offline:
                continue
            running = RunningShard(self._broker, partition, self._make_shard(partition))
            self._running[partition.index] = running
            if partition.log.log_start_offset < partition.log.log_end_offset:
                to_replay.append(running)
            else:
                running.begin()
        if to_replay:
            self._broker.in_background(self._load(to_replay))

    def stop(self) -> None:
        """Lets go of all shards."""
        for running in self._running.values():
            running.end()
        self._running.clear()

    def unload(self, index: int) -> None:
        """Lets go of one shard: its partition is offline."""
        running = self._running.pop(index, None)
        if running is not None:
            running.end()

    async def _load(self, to_replay: list[RunningShard[S]]) -> None:
        for running in to_replay:
            try:
                await asyncio.to_thread(running.replay_log)
                if self._running.get(running.partition.index) is running:
                    running.begin()
            except (ApiError, CorruptSegmentError, ValueError) as error:
                name = f"{self.topic}-{running.partition.index}"
                logger.error("cannot load %s: %s; what it coordinates stays away", name, error)

    async def make_topic(self) -> None:
        """Creates the internal topic, if it is not there yet."""
        topics = self._broker.topics
        async with topics.changing:
            if self.topic not in topics.by_name:
                await topics.create(self.topic, self._partitions, self._overrides)
        self.start()

    @property
    def has_topic(self) -> bool:
        """Whether the internal topic exists."""
        return self.topic in self._broker.topics.by_name

    def partition_of(self, key: str) -> int:
        """The partition that `key` belongs to."""
        topic = self._broker.topics.by_name.get(self.topic)
        return partition_for(key, self._partitions if topic is None else len(topic.partitions))

    def is_offline(self, key: str) -> bool:
        """Whether nobody coordinates `key`, as the partition that it belongs to is offline."""
        topic = self._broker.topics.by_name.get(self.topic)
        return topic is not None and topic.partitions[self.partition_of(key)].is_offline

    def running(self, key: str) -> RunningShard[S]:
        """The shard that `key` belongs to; ApiError when it is not here, or not yet."""
        found = self._running.get(self.partition_of(key))
        if found is None:
            raise ApiError(ErrorCode.not_coordinator, f"this broker is not the coordinator of {key!r}")
        if not found.is_loaded:
            raise ApiError(ErrorCode.coordinator_load_in_progress, f"the coordinator of {key!r} is being loaded")
        return found

    def running_partition(self, index: int) -> RunningShard[S] | None:
        """The shard of a partition, if it is loaded."""
        found = self._running.get(index)
        return found if found is not None and found.is_loaded else None

    def all_running(self) -> list[RunningShard[S]]:
        """Every loaded shard; ApiError while one is still being loaded."""
        if not all(running.is_loaded for running in self._running.values()):
            raise ApiError(ErrorCode.coordinator_load_in_progress, f"{self.topic} is being loaded")
        return list(self._running.values())

    def loaded(self) -> list[RunningShard[S]]:
        """The shards that are loaded by now."""
        return [running for running in self._running.values() if running.is_loaded]

    def call(self, key: str, decide: Callable[[S, Waiter, int], Outcome], refused: Refused) -> Any:
        """The response to a request about `key`, or a future of it."""
        try:
            return self.running(key).call(decide, refused)
        except ApiError as error:
            return self._refused_by_any(decide) or refused(error.code)

    def _refused_by_any(self, decide: Callable[[S, Waiter, int], Outcome]) -> Any:
        """The answer to a request that no coordinator would take, which any broker gives: an empty shard tells."""
        try:
            response = decide(self._make_shard(None), Waiter(object()), now_ms()).response
        except ApiError:
            return None
        return response if getattr(response, "error_code", None) in _NEVER_TAKEN else None

    def each(self, decide: Callable[[S, int], Outcome | Iterable[Outcome]]) -> None:
        """Lets every loaded shard decide something on its own account."""
        for running in list(self._running.values()):
            if running.is_loaded:
                decided = decide(running.shard, now_ms())
                running.carry_out_all([decided] if isinstance(decided, Outcome) else decided)

    async def each_in_turns(self, decide: Callable[[S, int], Iterable[Outcome]]) -> None:
        """As `each`, for what may be long: other requests are served between two outcomes."""
        for running in list(self._running.values()):
            if running.is_loaded:
                for outcome in decide(running.shard, now_ms()):
                    running.carry_out(outcome)
                    await asyncio.sleep(0)
                    if not running.is_loaded:
                        break


AnyCoordinator = Coordinator[Any]
"""A coordinator of whatever."""


def _give_out(answers: Iterable[Answer]) -> None:
    for waiter, response in answers:
        _waiting(waiter).answer(response)


def _refuse(answers: Iterable[Answer], code: ErrorCode) -> None:
    for waiter, _ in answers:
        waiting = _waiting(waiter)
        waiting.answer(waiting.refused(code))


def _waiting(waiter: Waiter) -> _Waiting:
    assert isinstance(waiter, _Waiting)
    return waiter
