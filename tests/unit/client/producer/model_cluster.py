"""A cluster for the real sender, in virtual time: two brokers with Kafka's rules about sequence numbers, behind a
network that delays, loses and cuts as a script of fates tells. What a sender may never do is noted in `violations`.
"""

import asyncio
import selectors
from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from headwater.client.errors import ClientError, ConnectionLostError, TimedOutError
from headwater.client.metadata import Leader
from headwater.client.producer.transaction_requests import Identity
from headwater.protocol.kafka_types import ErrorCode
from headwater.protocol.produce_lane import PartitionResult, read_request, response_frame
from headwater.protocol.records import decode_records, parse_header

TOPIC: Final = "orders"
PRODUCER_ID: Final = 7
BAD: Final = b"bad"
"""How the values of records end that no broker takes."""
_VERSION: Final = 9
REMEMBERED: Final = 5
"""So many batches of a producer a broker knows again; more may not be unanswered."""
_NEWS_MS: Final = 5
_RECONNECT_MS: Final = 3


class Fate(NamedTuple):
    """What becomes of one request. All but `deed` is in milliseconds: until the broker has it, and its answer back."""

    deed: str
    there_ms: int = 1
    back_ms: int = 1


DEEDS: Final = ("serve", "refuse", "refuse_first", "refuse_after_append", "lose_request", "lose_answer", "move_leader")


class SentBatch(NamedTuple):
    """A partition's part of a request."""

    partition: int
    epoch: int
    base_sequence: int
    numbers: list[int]
    size_bytes: int
    is_bad: bool


@dataclass
class ModelLog:
    """One partition: a gap is refused, one of the last five batches is taken for a copy.

    Of a producer that it has never heard of it takes whatever comes first, as Apache does.
    """

    largest_batch_bytes: int
    numbers: list[int] = field(default_factory=list)
    epoch: int = -1
    next_sequence: int = 0
    forgotten: bool = False
    remembered: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=REMEMBERED))

    def append(self, batch: SentBatch) -> tuple[ErrorCode, int]:
        """What a leader answers: an error, or where the batch begins."""
        count = len(batch.numbers)
        if batch.size_bytes > self.largest_batch_bytes and count > 1:
            return ErrorCode.message_too_large, -1
        if batch.is_bad:
            return ErrorCode.invalid_record, -1
        if batch.epoch < self.epoch:
            return ErrorCode.invalid_producer_epoch, -1
        if self.forgotten and batch.base_sequence != 0:
            return ErrorCode.unknown_producer_id, -1
        if batch.epoch > self.epoch or self.forgotten:
            if batch.base_sequence != 0 and self.epoch >= 0:
                return ErrorCode.out_of_order_sequence_number, -1
            self.epoch, self.next_sequence, self.forgotten = batch.epoch, batch.base_sequence, False
            self.remembered.clear()
        for base_sequence, length, offset in self.remembered:
            if (base_sequence, length) == (batch.base_sequence, count):
                return ErrorCode.none, offset
        if batch.base_sequence != self.next_sequence:
            return ErrorCode.out_of_order_sequence_number, -1
        offset = len(self.numbers)
        self.numbers += batch.numbers
        self.next_sequence += count
        self.remembered.append((batch.base_sequence, count, offset))
        return ErrorCode.none, offset


class _Sent:
    """A request between client and broker."""

    def __init__(self, frame: bytes, fate: Fate, answer: "asyncio.Future[memoryview]") -> None:
        self.batches = batches_in(frame)
        self.fate = fate
        self.answer = answer


class ModelConnection:
    """Serves one request after the other. What a client gave up waiting for is served all the same."""

    address = "model"

    def __init__(self, cluster: "ModelCluster", broker: int) -> None:
        self.usable = True
        self._cluster = cluster
        self._broker = broker
        self._loop = asyncio.get_running_loop()
        self._to_serve: deque[_Sent] = deque()
        self._unanswered: list[_Sent] = []
        self._last_answer_s = 0.0
        self._is_cut = False

    def supported(self, _: int) -> tuple[int, int]:
        return 0, _VERSION

    def submit_raw(
        self, key: int, version: int, body: Iterable[bytes], *, flexible: bool, timeout_s: float, answered: bool
    ) -> "asyncio.Future[memoryview]":
        """Takes a request, as `Connection` does."""
        answer: asyncio.Future[memoryview] = self._loop.create_future()
        if not self.usable:
            answer.set_exception(ConnectionLostError("gone"))
            return answer
        sent = _Sent(b"".join(body), self._cluster.next_fate(), answer)
        self._cluster.note_sent(self._broker, sent.batches)
        # Comes before the sender's own callback, so that between the two nothing can be sent.
        answer.add_done_callback(lambda _: self._cluster.note_answered(self._broker, sent.batches))
        self._unanswered.append(sent)
        self._to_serve.append(sent)
        if len(self._to_serve) == 1:
            self._loop.call_later(sent.fate.there_ms / 1000, self._serve)
        self._loop.call_later(timeout_s, self._time_out, sent)
        return answer

    def _serve(self) -> None:
        if self._is_cut:
            return
        sent = self._to_serve[0]
        deed = sent.fate.deed
        if deed == "lose_request":
            self._cut()
            return
        results = self._cluster.serve(self._broker, deed, sent.batches)
        if deed == "lose_answer":
            self._cut()
            return
        frame = response_frame(_VERSION, 0, [(TOPIC, results)])
        self._last_answer_s = max(self._last_answer_s, self._loop.time() + sent.fate.back_ms / 1000)
        self._loop.call_at(self._last_answer_s, self._answer, sent, memoryview(frame[9:]))
        self._to_serve.popleft()
        if self._to_serve:
            self._loop.call_later(self._to_serve[0].fate.there_ms / 1000, self._serve)

    def _answer(self, sent: _Sent, frame: memoryview) -> None:
        if sent in self._unanswered:
            self._unanswered.remove(sent)
            sent.answer.set_result(frame)

    def _time_out(self, sent: _Sent) -> None:
        if sent in self._unanswered:
            self._fail(TimedOutError("late"))

    def _cut(self) -> None:
        self._is_cut = True
        self._fail(ConnectionLostError("cut"))

    def _fail(self, error: ClientError) -> None:
        self.usable = False
        lost, self._unanswered = self._unanswered, []
        for sent in lost:
            sent.answer.set_exception(error)


class ModelCluster:
    """What a sender wants of a `Client` and of `TransactionRequests`, and the brokers behind them."""

    def __init__(
        self, partitions: int, fates: Iterable[Fate], *, largest_batch_bytes: int, most_in_flight: int
    ) -> None:
        self.logs = [ModelLog(largest_batch_bytes) for _ in range(partitions)]
        self.unsettled: list[set[int]] = [set() for _ in range(partitions)]
        """The numbers of records that were sent and whose user has heard nothing yet."""
        self.violations: list[str] = []
        self._most_in_flight = most_in_flight
        self._fates = deque(fates)
        self._leaders = [number % 2 for number in range(partitions)]
        self._known_leaders = list(self._leaders)
        self._in_flight: defaultdict[int, int] = defaultdict(int)
        self._on_the_wire: list[list[list[int]]] = [[] for _ in range(partitions)]
        self._numbered: list[dict[tuple[int, int], int]] = [{} for _ in range(partitions)]

    # For the sender.

    def leader_of(self, _: str, number: int) -> Leader:
        return Leader(self._known_leaders[number], 0)

    def need_refresh(self, _: object = ()) -> None:
        asyncio.get_running_loop().call_later(_NEWS_MS / 1000, self._tell_leaders)

    def topic_error(self, _: str) -> None:
        return None

    def may_pass(self, _: ClientError) -> bool:
        return True

    async def connection(self, broker: int) -> ModelConnection:
        await asyncio.sleep(_RECONNECT_MS / 1000)
        return ModelConnection(self, broker)

    async def identity(self, _: Identity, *, deadline_s: float) -> Identity:
        await asyncio.sleep(_RECONNECT_MS / 1000)
        return Identity(PRODUCER_ID, 0)

    def _tell_leaders(self) -> None:
        self._known_leaders = list(self._leaders)

    # For the brokers.

    def next_fate(self) -> Fate:
        """Once the script is over, everything goes well."""
        return self._fates.popleft() if self._fates else Fate("serve")

    def serve(self, broker: int, deed: str, batches: list[SentBatch]) -> list[PartitionResult]:
        """What a broker does with a request and answers to it."""
        if deed == "move_leader":
            self._leaders[batches[0].partition] = 1 - broker
        results = []
        for place, batch in enumerate(batches):
            log = self.logs[batch.partition]
            offset = -1
            if self._leaders[batch.partition] != broker:
                code = ErrorCode.not_leader_or_follower
            elif deed == "refuse" or (deed == "refuse_first" and place == 0):
                code = ErrorCode.not_enough_replicas
            else:
                code, offset = log.append(batch)
                if code is ErrorCode.none and deed == "refuse_after_append":
                    code, offset = ErrorCode.not_enough_replicas_after_append, -1
            # All that is older was deleted: that is how a broker comes to forget a producer.
            results.append(PartitionResult(batch.partition, code, offset, -1, len(log.numbers) if log.forgotten else 0))
        return results

    def forget_producer(self, partition: int) -> None:
        """Retention took all of a partition."""
        self.logs[partition].forgotten = bool(self.logs[partition].numbers)

    # What may never happen.

    def note_sent(self, broker: int, batches: list[SentBatch]) -> None:
        """A request leaves the client."""
        self._in_flight[broker] += 1
        if self._in_flight[broker] > self._most_in_flight:
            self.violations.append(f"broker {broker} has {self._in_flight[broker]} requests to answer")
        for batch in batches:
            on_the_wire = self._on_the_wire[batch.partition]
            flying = {number for numbers in on_the_wire for number in numbers}
            waiting = {each for each in self.unsettled[batch.partition] - flying if each < batch.numbers[0]}
            if waiting:
                self.violations.append(f"{batch} overtakes {waiting}")
            if flying & set(batch.numbers):
                self.violations.append(f"{batch} is on the wire already")
            if not set(batch.numbers) <= self.unsettled[batch.partition]:
                self.violations.append(f"{batch} is sent although its user was told what became of it")
            on_the_wire.append(batch.numbers)
            if len(on_the_wire) > REMEMBERED:
                self.violations.append(f"{len(on_the_wire)} batches of partition {batch.partition} are on the wire")
            for place, number in enumerate(batch.numbers):
                key = batch.epoch, batch.base_sequence + place
                if self._numbered[batch.partition].setdefault(key, number) != number:
                    self.violations.append(f"{batch} uses a number that another record had")

    def note_answered(self, broker: int, batches: list[SentBatch]) -> None:
        """The client hears an answer, or that there will be none."""
        self._in_flight[broker] -= 1
        for batch in batches:
            self._on_the_wire[batch.partition].remove(batch.numbers)


def batches_in(frame: bytes) -> list[SentBatch]:
    """The batches of a request."""
    found = []
    for _, partitions in read_request(memoryview(frame), 0, _VERSION).topics:
        for number, start, end in partitions:
            header = parse_header(frame[start:end], 0, end - start)
            values = [record.value or b"" for record in decode_records(frame[start:end], header)]
            numbers = [int(value[:_DIGITS]) for value in values]
            is_bad = any(value.endswith(BAD) for value in values)
            found.append(SentBatch(number, header.producer_epoch, header.base_sequence, numbers, end - start, is_bad))
    return found


_DIGITS: Final = 4


def value_of(number: int, *, is_bad: bool = False) -> bytes:
    """The value of a record: all are of one size."""
    return b"%0*d" % (_DIGITS, number) + (BAD if is_bad else b" ok")


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time goes on only when everybody waits, and then at once."""

    def __init__(self) -> None:
        self.now_s = 0.0
        super().__init__(_VirtualSelector(self))

    def time(self) -> float:
        return self.now_s

    def now_ms(self) -> int:
        """In whole milliseconds."""
        return int(self.now_s * 1000 + 1e-6)


class _VirtualSelector(selectors.EpollSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop_of = loop

    def select(self, timeout: float | None = None) -> Any:
        found = super().select(0)
        if not found:
            assert timeout is not None, "everybody waits, and nothing will ever happen"
            self._loop_of.now_s += max(timeout, 0)
        return found
