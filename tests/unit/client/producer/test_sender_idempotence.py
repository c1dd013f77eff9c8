"""Sequence numbers: whatever is lost or refused, a broker that checks them writes each batch once and in order."""

import bisect
import itertools
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.client.producer.idempotence import SEQUENCES, Numbered, Sequences
from headwater.protocol.kafka_types import ErrorCode
from headwater.types import TopicPartition
from unit.client.producer.model_cluster import REMEMBERED, ModelLog, SentBatch

PARTITION = TopicPartition("orders", 0)
OUT_OF_ORDER = ErrorCode.out_of_order_sequence_number


@dataclass(eq=False)
class Flight:
    """A batch on the wire, or one that a broker may still get although nobody waits for it."""

    numbers: list[int]
    numbered: Numbered
    sent: SentBatch
    result: tuple[ErrorCode, int] | None = None
    """What the broker answers, once it took the batch."""


class Story:
    """A sender that would send anything at any time, if the numbers let it; and one partition of a broker."""

    def __init__(self) -> None:
        self.sequences = Sequences(transactional=False)
        self.sequences.identify(7, 0)
        self.log = ModelLog(largest_batch_bytes=1)
        self.waiting: list[tuple[list[int], Numbered | None]] = []
        self.wire: list[Flight] = []
        self.late: list[Flight] = []
        self.given_up: set[int] = set()
        self.refused: set[int] = set()
        self.acknowledged: dict[int, int] = {}
        self.sent = 0
        self.used: dict[tuple[int, int], int] = {}

    def send(self, count: int) -> None:
        self.waiting.append((list(range(self.sent, self.sent + count)), None))
        self.sent += count

    def drain(self, choice: int) -> bool:
        """Sends one of those that wait: any that has a number, or the first that has none."""
        self.sequences.settle()
        first_new = next((each for each in self.waiting if each[1] is None), None)
        candidates = [each for each in self.waiting if each[1] is not None or each is first_new]
        if not candidates:
            return False
        numbers, numbered = chosen = candidates[choice % len(candidates)]
        if not self.sequences.may_send(PARTITION, numbered):
            return False
        self.waiting.remove(chosen)
        overtaken = [each for each, _ in self.waiting if each[0] < numbers[0]]
        assert not overtaken, f"{numbers} overtakes {overtaken}"
        if numbered is None:
            numbered = self.sequences.number(PARTITION, len(numbers))
        else:
            self.sequences.sent_again(numbered)
        sent = SentBatch(0, numbered.producer_epoch, numbered.base_sequence, numbers, 1, is_bad=False)
        for place, number in enumerate(numbers):
            key = sent.epoch, sent.base_sequence + place
            assert self.used.setdefault(key, number) == number, "one number for two records"
        self.wire.append(Flight(numbers, numbered, sent))
        assert len(self.wire) <= REMEMBERED
        return True

    def take(self, flights: list[Flight]) -> Flight | None:
        """The broker takes the first batch that it has not yet."""
        for flight in flights:
            if flight.result is None:
                flight.result = self.log.append(flight.sent)
                return flight
        return None

    def answer(self) -> None:
        """The answer to the oldest batch arrives."""
        flight = self.wire[0]
        if flight.result is None:
            self.take(self.wire)
        assert flight.result is not None
        self.wire.pop(0)
        code, offset = flight.result
        if code is ErrorCode.none:
            self.sequences.acknowledged(flight.numbered, offset + len(flight.numbers) - 1)
            self.acknowledged.update(zip(flight.numbers, itertools.count(offset), strict=False))
        else:
            log_start_offset = len(self.log.numbers) if self.log.forgotten else 0
            assert self.sequences.may_retry(flight.numbered, code, log_start_offset) is True, code
            self.put_back(flight)

    def error(self, code: ErrorCode) -> None:
        """The oldest batch is answered with an error that passes."""
        flight = self.wire.pop(0)
        assert self.sequences.may_retry(flight.numbered, code, -1) is None
        self.put_back(flight)

    def break_connection(self, taken: int) -> None:
        """The broker takes a few batches more, and no answer arrives any more."""
        for _ in range(taken):
            self.take(self.wire)
        for _ in list(self.wire):
            self.error(ErrorCode.network_exception)

    def refuse(self) -> None:
        """The broker refuses the oldest batch for good, if it has not taken it before."""
        if not set(self.wire[0].numbers) & set(self.log.numbers):
            flight = self.wire.pop(0)
            self.sequences.may_retry(flight.numbered, ErrorCode.invalid_record, -1)
            self.sequences.failed(flight.numbered, was_written=False)
            self.refused.update(flight.numbers)

    def split(self) -> None:
        """The oldest batch is too large, if it is new to the broker and there is something to split."""
        numbers = self.wire[0].numbers
        if len(numbers) > 1 and not set(numbers) & set(self.log.numbers):
            flight = self.wire.pop(0)
            first, second = self.sequences.split(flight.numbered, [1, len(numbers) - 1])
            self.put_back(Flight(numbers[:1], first, flight.sent))
            self.put_back(Flight(numbers[1:], second, flight.sent))

    def expire(self) -> None:
        """The time of the oldest batch is over, wherever it is; the broker may get it all the same."""
        if self.waiting and (not self.wire or self.waiting[0][0] < self.wire[0].numbers):
            numbers, numbered = self.waiting.pop(0)
        elif self.wire:
            oldest = min(self.wire, key=lambda flight: flight.numbers)
            self.wire.remove(oldest)
            self.late.append(oldest)
            numbers, numbered = oldest.numbers, oldest.numbered
        else:
            return
        if numbered is not None:
            self.sequences.failed(numbered, was_written=None)
        self.given_up.update(numbers)

    def forget(self) -> None:
        """The broker forgets the producer, once nothing is on its way: after that it can tell no copy."""
        self.finish()
        self.log.forgotten = bool(self.log.numbers)

    def put_back(self, flight: Flight) -> None:
        bisect.insort(self.waiting, (flight.numbers, flight.numbered), key=lambda each: each[0])

    def finish(self) -> None:
        self._answer_all()
        while self.waiting:
            # Behind one that nobody knows the fate of, what may have got through keeps its number until its time ends.
            numbered = self.waiting[0][1]
            assert numbered is not None, "batches are left that nothing lets go"
            assert numbered.unheard, "batches are left that nothing lets go"
            self.expire()
            self._answer_all()
        while self.take(self.late):
            pass

    def _answer_all(self) -> None:
        """Until nothing is on the wire, or one batch is refused again and again."""
        for _ in range(200):
            while any(self.drain(choice) for choice in range(len(self.waiting))):
                pass
            if not self.wire:
                return
            self.answer()
        self.break_connection(0)

    def check(self) -> None:
        """What users were told is true."""
        written = self.log.numbers
        assert written == sorted(set(written)), "each once and in order"
        assert self.acknowledged == {number: written.index(number) for number in self.acknowledged}
        assert set(range(self.sent)) == set(self.acknowledged) | self.given_up | self.refused
        assert not self.refused & set(written)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(1, 3)),
        st.tuples(st.just("drain"), st.integers(0, 5)),
        st.tuples(st.just("drain"), st.integers(0, 5)),
        st.tuples(st.just("answer"), st.just(0)),
        st.tuples(st.sampled_from(["take", "take late", "error", "error after append"]), st.just(0)),
        st.tuples(st.sampled_from(["refuse", "split", "expire", "forget"]), st.just(0)),
        st.tuples(st.just("break"), st.integers(0, 5)),
    ),
    max_size=50,
)


@given(STEPS)
@settings(max_examples=1000, deadline=None)
def test_each_record_is_written_once_and_in_order_whatever_is_lost_or_refused(steps: list[tuple[str, int]]) -> None:
    story = Story()
    for step, number in steps:
        match step:
            case "send":
                story.send(number)
            case "drain":
                story.drain(number)
            case "take":
                story.take(story.wire)
            case "take late":
                story.take(story.late)
            case "break":
                story.break_connection(number)
            case "expire":
                story.expire()
            case "forget":
                story.forget()
            case "answer" | "refuse" | "split" if story.wire:
                getattr(story, step)()
            case "error" if story.wire:
                story.error(ErrorCode.not_enough_replicas)
            case "error after append" if story.wire:
                story.take(story.wire)
                story.error(ErrorCode.not_enough_replicas_after_append)
    story.finish()
    story.check()


def test_numbers_begin_again_after_the_last_of_31_bits() -> None:
    sequences = Sequences(transactional=False)
    sequences.identify(7, 0)
    first = sequences.number(PARTITION, SEQUENCES - 2)
    over = sequences.number(PARTITION, 5)
    after = sequences.number(PARTITION, 1)
    assert (first.base_sequence, over.base_sequence, after.base_sequence) == (0, SEQUENCES - 2, 3)
    for batch in (first, over, after):
        sequences.acknowledged(batch, -1)
    # A batch that is the very next one and out of order all the same shows a gap: here it is known to be the next.
    following = sequences.number(PARTITION, 1)
    assert sequences.may_retry(following, OUT_OF_ORDER, 0) is True
    sequences.settle()
    assert (following.producer_epoch, following.base_sequence) == (1, 0)


def test_after_the_last_epoch_a_new_identity_is_asked_for() -> None:
    sequences = Sequences(transactional=False)
    sequences.identify(7, 2**15 - 1)
    batch = sequences.number(PARTITION, 1)
    sequences.may_retry(batch, ErrorCode.unknown_producer_id, 0)
    sequences.settle()
    assert not sequences.has_identity
    assert not sequences.may_send(PARTITION, batch)
    sequences.identify(8, 0)
    assert sequences.may_send(PARTITION, batch)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (8, 0, 0)


def test_a_forgotten_producer_raises_its_epoch_once_nothing_is_on_the_wire() -> None:
    sequences = Sequences(transactional=False)
    sequences.identify(7, 0)
    first, second = sequences.number(PARTITION, 2), sequences.number(PARTITION, 3)
    assert sequences.may_retry(first, ErrorCode.unknown_producer_id, 0) is True
    sequences.settle()
    assert sequences.producer_epoch == 0, "the second batch may still be taken under its old number"
    assert sequences.may_retry(second, ErrorCode.unknown_producer_id, 0) is True
    sequences.settle()
    assert [(b.producer_epoch, b.base_sequence) for b in (first, second)] == [(1, 0), (1, 2)]


def test_what_is_before_a_gap_is_answered_under_its_old_number_first() -> None:
    sequences = Sequences(transactional=False)
    sequences.identify(7, 0)
    before, refused, behind = (sequences.number(PARTITION, 2) for _ in range(3))
    assert sequences.may_retry(before, ErrorCode.not_enough_replicas_after_append, 0) is None
    sequences.may_retry(refused, ErrorCode.invalid_record, 0)
    sequences.failed(refused, was_written=False)
    assert sequences.may_retry(behind, OUT_OF_ORDER, 0) is True
    sequences.settle()
    assert (before.producer_epoch, before.base_sequence) == (0, 0), "the broker may have it, and knows it by that"
    assert [sequences.may_send(PARTITION, batch) for batch in (before, behind, None)] == [True, False, False]
    sequences.sent_again(before)
    sequences.acknowledged(before, 1)
    sequences.settle()
    assert (behind.producer_epoch, behind.base_sequence) == (1, 0)
    assert sequences.may_send(PARTITION, behind)


@pytest.mark.parametrize("later_one_is_taken", [True, False])
def test_a_batch_that_ran_out_of_time_is_resolved_by_those_behind_it(later_one_is_taken: bool) -> None:
    sequences = Sequences(transactional=False)
    sequences.identify(7, 0)
    lost, behind = sequences.number(PARTITION, 1), sequences.number(PARTITION, 1)
    sequences.failed(lost, was_written=None)
    assert not sequences.may_send(PARTITION, None), "its number may or may not be used"
    if later_one_is_taken:
        sequences.acknowledged(behind, 1)
        sequences.settle()
        assert (sequences.producer_epoch, sequences.number(PARTITION, 1).base_sequence) == (0, 2)
    else:
        assert sequences.may_retry(behind, OUT_OF_ORDER, 0) is True
        sequences.settle()
        assert (behind.producer_epoch, behind.base_sequence) == (1, 0)


def test_several_that_ran_out_of_time_are_resolved_in_whichever_order_they_did() -> None:
    sequences = Sequences(transactional=False)
    sequences.identify(7, 0)
    first, second, behind = (sequences.number(PARTITION, 1) for _ in range(3))
    # One that waits to be sent again is looked at before those on the wire.
    sequences.may_retry(second, ErrorCode.not_enough_replicas, 0)
    sequences.failed(second, was_written=None)
    sequences.failed(first, was_written=None)
    assert sequences.may_retry(behind, OUT_OF_ORDER, 0) is True
    sequences.settle()
    assert (behind.producer_epoch, behind.base_sequence) == (1, 0)


def test_the_parts_of_a_split_batch_share_its_numbers() -> None:
    sequences = Sequences(transactional=False)
    sequences.identify(7, 0)
    whole, behind = sequences.number(PARTITION, 5), sequences.number(PARTITION, 1)
    parts = sequences.split(whole, [2, 3])
    assert [part.base_sequence for part in parts] == [0, 2]
    assert [sequences.may_send(PARTITION, batch) for batch in (*parts, behind)] == [True, False, False]
    sequences.sent_again(parts[0])
    sequences.acknowledged(parts[0], 1)
    assert sequences.may_send(PARTITION, parts[1])


def test_a_transaction_leaves_the_epoch_to_its_coordinator() -> None:
    sequences = Sequences(transactional=True)
    sequences.identify(7, 3)
    batch = sequences.number(PARTITION, 1)
    assert sequences.may_retry(batch, OUT_OF_ORDER, 0) is False
    sequences.failed(batch, was_written=None)
    assert sequences.settle() == [PARTITION]
    assert sequences.producer_epoch == 3


def test_what_may_have_got_through_behind_a_lost_batch_is_tried_until_its_time_ends() -> None:
    story = Story()
    story.send(1)
    assert story.drain(0)
    story.answer()
    story.send(1)
    story.send(1)
    assert story.drain(0)
    assert story.drain(0)
    story.expire()
    story.break_connection(0)
    for _ in range(3):
        assert story.drain(0)
        story.answer()
    assert story.waiting
    story.finish()
    story.check()
    assert story.given_up == {1, 2}


def test_nothing_follows_the_first_batch_of_a_partition_until_the_broker_has_it() -> None:
    story = Story()
    for _ in range(3):
        story.send(1)
    assert story.drain(0)
    assert not story.drain(0)
    story.error(ErrorCode.unknown_topic_id)
    assert story.drain(0)
    assert not story.drain(0)
    story.answer()
    assert story.drain(0)
    assert story.drain(0)
    story.finish()
    story.check()
    assert story.log.numbers == [0, 1, 2]
