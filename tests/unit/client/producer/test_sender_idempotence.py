"""Sequence numbers: whatever is lost or refused, a broker that checks them writes each batch once and in order."""

from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.client.producer.idempotence import MAX_UNANSWERED, SEQUENCES, Numbered, Sequences
from headwater.protocol.kafka_types import ErrorCode
from headwater.types import TopicPartition

PARTITION = TopicPartition("orders", 0)
NONE, OUT_OF_ORDER = ErrorCode.none, ErrorCode.out_of_order_sequence_number


class Log:
    """A partition with the rules of a broker: a gap is refused, one of the last five batches is taken for a copy."""

    def __init__(self) -> None:
        self.values: list[int] = []
        self.epoch = -1
        self.next_sequence = 0
        self.remembered: deque[int] = deque(maxlen=5)

    def append(self, epoch: int, base_sequence: int, values: list[int]) -> ErrorCode:
        if epoch < self.epoch:
            return ErrorCode.invalid_producer_epoch
        if epoch > self.epoch:
            if base_sequence != 0:
                return OUT_OF_ORDER
            self.epoch = epoch
            self.next_sequence = 0
            self.remembered.clear()
        if base_sequence in self.remembered:
            return NONE
        if base_sequence != self.next_sequence:
            return OUT_OF_ORDER
        self.values += values
        self.remembered.append(base_sequence)
        self.next_sequence = (base_sequence + len(values)) % SEQUENCES
        return NONE


class Story:
    """A sender as far as numbers go: batches wait, are on the wire in order, and are answered or not."""

    def __init__(self) -> None:
        self.sequences = Sequences(transactional=False)
        self.sequences.identify(7, 0)
        self.log = Log()
        self.waiting: deque[tuple[list[int], Numbered | None]] = deque()
        self.wire: deque[tuple[list[int], Numbered, tuple[int, int]]] = deque()
        self.given_up: list[int] = []
        self.sent = 0

    def send(self, count: int) -> None:
        self.waiting.append((list(range(self.sent, self.sent + count)), None))
        self.sent += count

    def drain(self) -> bool:
        self.sequences.settle()
        if not self.waiting:
            return False
        values, numbered = self.waiting[0]
        if not self.sequences.may_send(PARTITION, numbered):
            return False
        self.waiting.popleft()
        if numbered is None:
            numbered = self.sequences.number(PARTITION, len(values))
        else:
            self.sequences.sent_again(numbered)
        self.wire.append((values, numbered, (numbered.producer_epoch, numbered.base_sequence)))
        assert len(self.wire) <= MAX_UNANSWERED
        return True

    def answer(self) -> None:
        """The broker takes the oldest request, and its answer arrives."""
        values, numbered, (epoch, sequence) = self.wire.popleft()
        code = self.log.append(epoch, sequence, values)
        if code is NONE:
            self.sequences.acknowledged(numbered, len(self.log.values))
        else:
            assert self.sequences.may_retry(numbered, code, 0) is not False, code
            self.put_back(values, numbered)

    def break_connection(self, carried_out: int) -> None:
        """The broker takes the first few requests, and no answer arrives any more."""
        for number, (values, numbered, (epoch, sequence)) in enumerate(list(self.wire)):
            if number < carried_out:
                self.log.append(epoch, sequence, values)
            assert self.sequences.may_retry(numbered, ErrorCode.network_exception, -1) is None
        for values, numbered, _ in reversed(self.wire):
            self.put_back(values, numbered)
        self.wire.clear()

    def refuse(self) -> None:
        """The broker refuses the oldest request for good."""
        values, numbered, _ = self.wire.popleft()
        self.sequences.may_retry(numbered, ErrorCode.invalid_record, -1)
        self.sequences.failed(numbered, was_written=False)
        self.given_up += values

    def put_back(self, values: list[int], numbered: Numbered) -> None:
        place = sum(1 for other, _ in self.waiting if other[0] < values[0])
        self.waiting.insert(place, (values, numbered))

    def finish(self) -> None:
        for _ in range(1000):
            while self.drain():
                pass
            if not self.wire:
                break
            self.answer()
        assert not self.waiting, "batches are left that nothing lets go"


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(1, 3)),
        st.tuples(st.just("drain"), st.just(0)),
        st.tuples(st.just("answer"), st.just(0)),
        st.tuples(st.just("break"), st.integers(0, 5)),
        st.tuples(st.just("refuse"), st.just(0)),
    ),
    max_size=60,
)


@given(STEPS)
@settings(max_examples=300, deadline=None)
def test_each_record_is_written_once_and_in_order_whatever_is_lost_or_refused(steps: list[tuple[str, int]]) -> None:
    story = Story()
    for step, number in steps:
        if step == "send":
            story.send(number)
        elif step == "drain":
            story.drain()
        elif step == "answer" and story.wire:
            story.answer()
        elif step == "break":
            story.break_connection(number)
        # What a broker refuses for good it has not written before.
        elif step == "refuse" and story.wire and story.wire[0][0][0] not in story.log.values:
            story.refuse()
    story.finish()
    assert story.log.values == [n for n in range(story.sent) if n not in story.given_up]


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
