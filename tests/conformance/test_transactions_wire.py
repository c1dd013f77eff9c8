"""Transactions over the wire: what stands in the log, what Fetch says of it, and which late writes are stopped."""

import struct
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from .actions import LATEST, Topic, create_topic, eventually, fetch, fetch_all, list_offset, produce_ok, unique_name
from .batches import Batch, batch, read_batches
from .conftest import Broker
from .raw_groups import committed, new_group, offsets_to_commit
from .raw_transactions import (
    CONTROL,
    IMPLICIT_OFFSETS,
    IMPLICIT_PRODUCE,
    RAISING_END,
    TRANSACTIONAL,
    TransactionalProducer,
)
from .wire import Wire

READ_COMMITTED = 1
ABORT, COMMIT = 0, 1


@pytest.fixture
def topic(wire: Wire) -> Topic:
    return create_topic(wire)


def write(producer: TransactionalProducer, topic: Topic, *values: bytes) -> None:
    """Sends in a transaction, in the old way."""
    assert producer.add(topic) is ErrorCode.none
    assert producer.send(topic, *values) is ErrorCode.none


def finish(producer: TransactionalProducer, *, committed: bool) -> None:
    """Ends the transaction and waits for its markers."""
    assert producer.end(committed=committed) is ErrorCode.none
    producer.wait_until_complete()


def marker(one: Batch) -> tuple[int, int]:
    """The kind of an end marker and its coordinator's epoch: version, type; version, epoch."""
    assert one.attributes == TRANSACTIONAL | CONTROL
    assert one.count == 1
    # Length, attributes, timestamp and offset deltas and the key's length are one byte each, as the value's is.
    version, kind = struct.unpack_from(">hh", one.body, 5)
    value_version, coordinator_epoch = struct.unpack_from(">hi", one.body, 10)
    assert (version, value_version, len(one.body)) == (0, 0, 17)
    return kind, coordinator_epoch


def test_the_end_of_a_transaction_is_a_control_batch(wire: Wire, topic: Topic) -> None:
    producer = TransactionalProducer(wire)
    for commits in (True, False):
        write(producer, topic, b"a", b"b")
        finish(producer, committed=commits)
    found = read_batches(fetch_all(wire, topic))
    assert [(one.base_offset, one.attributes, one.base_sequence) for one in found] == [
        (0, TRANSACTIONAL, 0),
        (2, TRANSACTIONAL | CONTROL, -1),
        (3, TRANSACTIONAL, 2),
        (5, TRANSACTIONAL | CONTROL, -1),
    ]
    assert all(one.crc_is_right and one.producer_id == producer.id for one in found)
    assert [marker(one) for one in (found[1], found[3])] == [(COMMIT, 0), (ABORT, 0)]


def test_fetch_names_the_aborted_transactions_in_its_range(wire: Wire, topic: Topic) -> None:
    first, second = TransactionalProducer(wire), TransactionalProducer(wire)
    write(first, topic, b"0")
    write(second, topic, b"1")
    produce_ok(wire, topic, batch(b"2"))
    finish(first, committed=False)
    finish(second, committed=True)
    write(first, topic, b"5")
    finish(first, committed=False)
    assert list_offset(wire, topic, LATEST).offset == 7

    def aborted(offset: int) -> list[tuple[int, int]]:
        answer = fetch(wire, topic, offset, isolation_level=READ_COMMITTED)
        assert (answer.error_code, answer.last_stable_offset, answer.high_watermark) == (ErrorCode.none, 7, 7)
        return sorted((found.producer_id, found.first_offset) for found in answer.aborted_transactions)

    assert aborted(0) == sorted([(first.id, 0), (first.id, 5)])
    assert aborted(4) == [(first.id, 5)]
    assert aborted(6) == [(first.id, 5)], "the marker at 6 ends it"
    uncommitted = fetch(wire, topic, 0)
    assert not uncommitted.aborted_transactions
    assert len(read_batches(uncommitted.records)) == 7


def test_read_committed_stops_at_the_first_open_transaction(wire: Wire, topic: Topic) -> None:
    produce_ok(wire, topic, batch(b"0"))
    first, second = TransactionalProducer(wire), TransactionalProducer(wire)
    write(first, topic, b"1")
    write(second, topic, b"2")

    def stable() -> tuple[int, int]:
        answer = fetch(wire, topic, 0, isolation_level=READ_COMMITTED)
        offset = list_offset(wire, topic, LATEST, isolation_level=READ_COMMITTED).offset
        assert answer.last_stable_offset == offset
        return offset, sum(one.count for one in read_batches(answer.records))

    assert stable() == (1, 1)
    finish(second, committed=True)
    assert stable() == (1, 1), "the first is still open"
    finish(first, committed=True)
    assert stable() == (5, 5)


@pytest.mark.parametrize("version", [3, 10, 11])
def test_a_write_without_adding_the_partition_is_refused(wire: Wire, topic: Topic, version: int) -> None:
    """From 11 on a client can be told to abort and go on; before, the error is one to stop at."""
    producer = TransactionalProducer(wire)
    refused = ErrorCode.transaction_abortable if version >= 11 else ErrorCode.invalid_txn_state
    assert producer.send(topic, b"v", version=version) is refused
    assert list_offset(wire, topic, LATEST).offset == 0


def test_newer_clients_add_partitions_by_writing(wire: Wire, topic: Topic) -> None:
    producer = TransactionalProducer(wire)
    assert producer.send(topic, b"v", version=IMPLICIT_PRODUCE) is ErrorCode.none
    assert producer.state() == "Ongoing"
    assert producer.end(committed=True, version=RAISING_END) is ErrorCode.none
    assert producer.wait_until_complete() == "CompleteCommit"
    assert list_offset(wire, topic, LATEST, isolation_level=READ_COMMITTED).offset == 2


def test_a_late_write_of_a_finished_transaction_is_stopped(wire: Wire, topic: Topic) -> None:
    """The end raises the epoch, so what was on its way before it can no longer open a transaction (KIP-890)."""
    producer = TransactionalProducer(wire)
    assert producer.send(topic, b"in time", version=IMPLICIT_PRODUCE) is ErrorCode.none
    before = producer.epoch
    late = producer.batch(b"late", sequence=1)
    assert producer.end(committed=True, version=RAISING_END) is ErrorCode.none
    producer.wait_until_complete()
    assert producer.epoch == before + 1
    answer = producer.send_batch(topic, late, version=IMPLICIT_PRODUCE)
    assert answer.error_code is ErrorCode.invalid_producer_epoch
    assert list_offset(wire, topic, LATEST).offset == 2
    assert producer.send(topic, b"next", version=IMPLICIT_PRODUCE) is ErrorCode.none
    assert producer.end(committed=False, version=RAISING_END) is ErrorCode.none


def test_a_late_write_of_an_older_client_is_stopped(wire: Wire, topic: Topic) -> None:
    """Its epoch stays, but its partition is no longer part of a transaction."""
    producer = TransactionalProducer(wire)
    write(producer, topic, b"in time")
    finish(producer, committed=True)
    assert producer.send(topic, b"late") is ErrorCode.transaction_abortable
    assert list_offset(wire, topic, LATEST, isolation_level=READ_COMMITTED).offset == 2


def test_a_new_instance_raises_the_epoch_and_aborts(wire: Wire, topic: Topic) -> None:
    older = TransactionalProducer(wire)
    write(older, topic, b"unfinished")
    newer = TransactionalProducer(wire, older.transactional_id)
    assert (newer.id, newer.epoch > older.epoch) == (older.id, True)
    assert list_offset(wire, topic, LATEST, isolation_level=READ_COMMITTED).offset == 2
    assert older.send(topic, b"late") is ErrorCode.invalid_producer_epoch
    assert older.add(topic) is ErrorCode.producer_fenced
    assert older.end(committed=True) is ErrorCode.producer_fenced
    assert marker(read_batches(fetch_all(wire, topic))[1])[0] == ABORT


def test_a_transaction_that_takes_too_long_is_aborted(wire: Wire, topic: Topic) -> None:
    producer = TransactionalProducer(wire, timeout_ms=300)
    write(producer, topic, b"slow")
    assert producer.wait_until_complete() == "CompleteAbort"
    assert list_offset(wire, topic, LATEST, isolation_level=READ_COMMITTED).offset == 2
    assert producer.end(committed=True) is ErrorCode.producer_fenced
    again = TransactionalProducer(wire, producer.transactional_id)
    assert again.epoch > producer.epoch
    write(again, topic, b"once more")
    finish(again, committed=True)


def test_trap_the_timeout_is_checked_against_the_brokers_maximum(wire: Wire) -> None:
    def error(timeout_ms: int) -> ErrorCode:
        asked = {"transactional_id": unique_name("transactional-id"), "transaction_timeout": timeout_ms}

        def answer() -> Any:
            given = wire.send("init_producer_id", **asked)
            return None if given.error_code is ErrorCode.coordinator_load_in_progress else given

        found: ErrorCode = eventually(answer).error_code
        return found

    TransactionalProducer(wire)
    maximum_ms = 900_000
    assert error(maximum_ms) is ErrorCode.none
    assert error(maximum_ms + 1) is ErrorCode.invalid_transaction_timeout


def test_offsets_in_a_transaction_count_once_it_is_committed(wire: Wire, topic: Topic) -> None:
    group, producer = new_group(wire), TransactionalProducer(wire)
    assert producer.send_offsets(group, topic, {0: 7}, metadata="kept") is ErrorCode.none
    assert committed(wire, group, topic)[0].committed_offset == -1
    assert committed(wire, group, topic, require_stable=True)[0].error_code is ErrorCode.unstable_offset_commit
    finish(producer, committed=True)
    eventually(lambda: committed(wire, group, topic)[0].committed_offset == 7, "the offset")
    assert committed(wire, group, topic, require_stable=True)[0].metadata == "kept"


def test_offsets_of_an_aborted_transaction_never_were(wire: Wire, topic: Topic) -> None:
    group, producer = new_group(wire), TransactionalProducer(wire)
    wire.send("offset_commit", group_id=group, topics=offsets_to_commit(topic, {0: 3}))
    assert producer.send_offsets(group, topic, {0: 7}) is ErrorCode.none
    finish(producer, committed=False)

    def is_stable() -> bool:
        found = committed(wire, group, topic, require_stable=True)[0]
        return found.error_code is ErrorCode.none

    eventually(is_stable, "the abort")
    assert committed(wire, group, topic)[0].committed_offset == 3


def test_newer_clients_add_their_group_by_committing(wire: Wire, topic: Topic) -> None:
    group, producer = new_group(wire), TransactionalProducer(wire)
    topics = offsets_to_commit(topic, {0: 4})
    answer = wire.send("txn_offset_commit", IMPLICIT_OFFSETS, **producer.identity(), group_id=group, topics=topics)
    assert answer.topics[0].partitions[0].error_code is ErrorCode.none
    assert producer.state() == "Ongoing"
    assert producer.end(committed=True, version=RAISING_END) is ErrorCode.none
    producer.wait_until_complete()
    eventually(lambda: committed(wire, group, topic)[0].committed_offset == 4, "the offset")


def test_producers_are_described_with_their_open_transaction(wire: Wire, topic: Topic) -> None:
    produce_ok(wire, topic, batch(b"0"))
    producer = TransactionalProducer(wire)
    write(producer, topic, b"1")
    write(producer, topic, b"2")

    def described() -> Any:
        asked = [{"name": topic.name, "partition_indexes": [0]}]
        (found,) = wire.send("describe_producers", topics=asked).topics[0].partitions
        (one,) = found.active_producers
        return one

    found = described()
    assert (found.producer_id, found.producer_epoch, found.last_sequence) == (producer.id, producer.epoch, 1)
    assert (found.current_txn_start_offset, found.coordinator_epoch) == (1, -1)
    finish(producer, committed=True)
    found = described()
    assert (found.current_txn_start_offset, found.coordinator_epoch) == (-1, 0)


def test_a_marker_written_by_hand_aborts_a_transaction(broker: Broker, wire: Wire, topic: Topic) -> None:
    """As an operator's tool does with a transaction that hangs."""
    producer = TransactionalProducer(wire)
    write(producer, topic, b"hanging")
    by_hand = {
        "producer_id": producer.id,
        "producer_epoch": producer.epoch,
        "transaction_result": False,
        "coordinator_epoch": -1,
        "topics": [{"name": topic.name, "partition_indexes": [0]}],
    }
    (answer,) = wire.send("write_txn_markers", markers=[by_hand]).markers
    assert answer.topics[0].partitions[0].error_code is ErrorCode.none
    assert list_offset(wire, topic, LATEST, isolation_level=READ_COMMITTED).offset == 2
    assert marker(read_batches(fetch_all(wire, topic))[1]) == (ABORT, -1)
    finish(producer, committed=False)


def test_a_record_outside_a_transaction_is_refused_while_one_is_open(wire: Wire, topic: Topic) -> None:
    producer = TransactionalProducer(wire)
    write(producer, topic, b"within")
    given = {"producer_id": producer.id, "producer_epoch": producer.epoch, "base_sequence": 1}
    answer = producer.send_batch(topic, batch(b"without", **given))
    assert answer.error_code is ErrorCode.invalid_txn_state
    finish(producer, committed=False)
