"""Idempotent produce: a retry is acknowledged and not written, a gap is refused, an old epoch is fenced."""

import pytest
from kio.schema.errors import ErrorCode

from .actions import LATEST, Topic, create_topic, fetch_all, list_offset, new_producer, produce
from .batches import batch, read_batches, values
from .wire import Wire

LAST_SEQUENCE = 2**31 - 1


@pytest.fixture
def topic(wire: Wire) -> Topic:
    return create_topic(wire)


class Producer:
    """Sends batches with the sequence numbers it is told."""

    def __init__(self, wire: Wire, topic: Topic, epoch: int = 0) -> None:
        self.wire, self.topic, self.epoch = wire, topic, epoch
        self.id, _ = new_producer(wire)

    def send(self, sequence: int, *records: bytes, epoch: int | None = None) -> tuple[ErrorCode, int]:
        made = batch(
            *(records or (b"%d" % sequence,)),
            producer_id=self.id,
            producer_epoch=self.epoch if epoch is None else epoch,
            base_sequence=sequence,
        )
        answer = produce(self.wire, self.topic, made)
        return answer.error_code, answer.base_offset


@pytest.fixture
def producer(wire: Wire, topic: Topic) -> Producer:
    return Producer(wire, topic)


def test_each_producer_gets_an_id_of_its_own_with_epoch_0(wire: Wire) -> None:
    (first, epoch), (second, _) = new_producer(wire), new_producer(wire)
    assert first != second
    assert epoch == 0


def test_an_id_that_the_client_brings_is_not_taken_without_a_transaction(wire: Wire) -> None:
    known, _ = new_producer(wire)
    request = {"transactional_id": None, "transaction_timeout": 1000}
    answer = wire.send("init_producer_id", **request, producer_id=known, producer_epoch=3)
    assert (answer.error_code, answer.producer_epoch) == (ErrorCode.none, 0)
    assert answer.producer_id != known


def test_an_empty_transactional_id_is_an_invalid_request(wire: Wire) -> None:
    answer = wire.send("init_producer_id", transactional_id="", transaction_timeout=1000)
    assert answer.error_code is ErrorCode.invalid_request


def test_the_sequence_is_kept_in_the_batch(producer: Producer, wire: Wire, topic: Topic) -> None:
    producer.send(0, b"a", b"b")
    producer.send(2, b"c")
    written = read_batches(fetch_all(wire, topic))
    assert [(one.producer_id, one.producer_epoch, one.base_sequence) for one in written] == [
        (producer.id, 0, 0),
        (producer.id, 0, 2),
    ]


def test_a_duplicate_of_any_of_the_last_five_batches_gets_its_first_offset(
    producer: Producer, wire: Wire, topic: Topic
) -> None:
    for sequence in range(6):
        assert producer.send(sequence) == (ErrorCode.none, sequence)
    for sequence in (5, 1, 3, 2, 4):
        assert producer.send(sequence) == (ErrorCode.none, sequence)
    assert list_offset(wire, topic, LATEST).offset == 6
    assert values(fetch_all(wire, topic)) == [b"%d" % sequence for sequence in range(6)]


def test_an_older_duplicate_is_out_of_order(producer: Producer, wire: Wire, topic: Topic) -> None:
    for sequence in range(6):
        producer.send(sequence)
    error, _ = producer.send(0)
    assert error is ErrorCode.out_of_order_sequence_number
    assert list_offset(wire, topic, LATEST).offset == 6


def test_a_gap_is_refused(producer: Producer, wire: Wire, topic: Topic) -> None:
    producer.send(0)
    assert producer.send(2) == (ErrorCode.out_of_order_sequence_number, -1)
    assert producer.send(1) == (ErrorCode.none, 1), "and nothing of it was written"


def test_the_first_batch_of_an_unknown_producer_may_have_any_sequence(producer: Producer) -> None:
    """Its state may have been lost with deleted records, so that the broker cannot tell a gap."""
    assert producer.send(7) == (ErrorCode.none, 0)


def test_part_of_a_batch_that_was_written_is_out_of_order(producer: Producer) -> None:
    producer.send(0, b"a", b"b", b"c")
    assert producer.send(0, b"a", b"b")[0] is ErrorCode.out_of_order_sequence_number
    assert producer.send(1, b"b", b"c")[0] is ErrorCode.out_of_order_sequence_number


def test_an_old_epoch_is_refused(producer: Producer) -> None:
    producer.send(0, epoch=3)
    assert producer.send(1, epoch=2) == (ErrorCode.invalid_producer_epoch, -1)


def test_a_new_epoch_starts_at_sequence_0(producer: Producer) -> None:
    producer.send(0, epoch=0)
    assert producer.send(5, epoch=1)[0] is ErrorCode.out_of_order_sequence_number
    assert producer.send(0, epoch=1) == (ErrorCode.none, 1)


def test_sequences_wrap_after_the_largest_number(producer: Producer) -> None:
    assert producer.send(LAST_SEQUENCE, b"last") == (ErrorCode.none, 0)
    assert producer.send(0, b"first again") == (ErrorCode.none, 1)


def test_a_batch_may_wrap_inside(producer: Producer) -> None:
    assert producer.send(LAST_SEQUENCE - 1, b"a", b"b", b"c") == (ErrorCode.none, 0)
    assert producer.send(1, b"d") == (ErrorCode.none, 3)


def test_producers_do_not_mix(wire: Wire, topic: Topic) -> None:
    one, other = Producer(wire, topic), Producer(wire, topic)
    assert one.send(0) == (ErrorCode.none, 0)
    assert other.send(0) == (ErrorCode.none, 1)
    assert one.send(0) == (ErrorCode.none, 0)
    assert other.send(1) == (ErrorCode.none, 2)


def test_sequences_are_per_partition(wire: Wire) -> None:
    topic = create_topic(wire, partitions=2)
    producer_id, epoch = new_producer(wire)
    for partition in (0, 1):
        made = batch(b"v", producer_id=producer_id, producer_epoch=epoch, base_sequence=0)
        answer = produce(wire, topic, made, partition=partition)
        assert (answer.error_code, answer.base_offset) == (ErrorCode.none, 0)


def test_a_producer_id_without_a_sequence_is_refused(producer: Producer, wire: Wire, topic: Topic) -> None:
    answer = produce(wire, topic, batch(b"v", producer_id=producer.id, producer_epoch=0, base_sequence=-1))
    assert answer.error_code is ErrorCode.invalid_record


def test_a_duplicate_with_log_append_time_gets_the_first_time(wire: Wire) -> None:
    topic = create_topic(wire, configs={"message.timestamp.type": "LogAppendTime"})
    producer_id, epoch = new_producer(wire)
    made = batch(b"v", producer_id=producer_id, producer_epoch=epoch, base_sequence=0)
    first, again = produce(wire, topic, made), produce(wire, topic, made)
    assert (again.error_code, again.base_offset) == (ErrorCode.none, 0)
    assert again.log_append_time == first.log_append_time


def describe_producers(wire: Wire, topic: Topic, partition: int = 0) -> object:
    answer = wire.send("describe_producers", topics=[{"name": topic.name, "partition_indexes": [partition]}])
    return answer.topics[0].partitions[0]


def test_describe_producers_tells_their_state(producer: Producer, wire: Wire, topic: Topic) -> None:
    producer.send(0, b"a", b"b", epoch=2)
    producer.send(2, b"c", epoch=2)
    found: object = describe_producers(wire, topic)
    (state,) = found.active_producers  # type: ignore[attr-defined]
    (_, last) = read_batches(fetch_all(wire, topic))
    assert (state.producer_id, state.producer_epoch, state.last_sequence) == (producer.id, 2, 2)
    assert state.last_timestamp == last.max_timestamp_ms
    assert (state.coordinator_epoch, state.current_txn_start_offset) == (-1, -1)


def test_describe_producers_without_any_and_of_an_unknown_partition(wire: Wire, topic: Topic) -> None:
    assert describe_producers(wire, topic).active_producers == ()  # type: ignore[attr-defined]
    unknown = describe_producers(wire, topic, partition=4)
    assert unknown.error_code is ErrorCode.unknown_topic_or_partition  # type: ignore[attr-defined]
