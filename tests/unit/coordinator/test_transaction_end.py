"""EndTxn: how transactions end, for clients before and after KIP-890, and what is told to whom asks twice."""

import pytest

from headwater.coordinator.outcome import ProducerIdentity
from headwater.coordinator.transaction.transaction import LAST_EPOCH
from headwater.protocol.kafka_types import ErrorCode
from headwater.types import TopicPartition

from .test_transaction_init import with_epoch
from .transaction_building import NOBODY, MarkersOnly, Runtime, told

ORDERS = TopicPartition("orders", 0)
PAYMENTS = TopicPartition("payments", 0)


def begun(runtime: Runtime, transactional_id: str = "a") -> ProducerIdentity:
    """A producer with an open transaction."""
    producer = runtime.identity(transactional_id)
    runtime.add_for(transactional_id, producer, ORDERS, PAYMENTS)
    return producer


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("version", [4, 5])
def test_every_partition_gets_a_marker_and_the_transaction_is_complete(version: int, commit: bool) -> None:
    orders, payments = MarkersOnly(), MarkersOnly()
    runtime = Runtime({ORDERS: orders, PAYMENTS: payments})
    producer = begun(runtime)
    assert runtime.end("a", producer, commit=commit, version=version).error_code is ErrorCode.none
    assert runtime.state("a") == ("CompleteCommit" if commit else "CompleteAbort")
    for partition in (orders, payments):
        (marker,) = partition.markers
        assert (marker.producer_id, marker.commit) == (producer.producer_id, commit)
        assert marker.producer_epoch == producer.producer_epoch + (version == 5)


def test_the_decision_is_written_before_a_marker_and_the_end_after_the_last() -> None:
    runtime = Runtime()
    producer = begun(runtime)
    runtime.writes_markers = False
    runtime.end("a", producer)
    assert runtime.state("a") == "PrepareCommit"
    assert [markers.partitions for markers in runtime.unwritten] == [{ORDERS, PAYMENTS}]
    runtime.write_markers()
    assert runtime.state("a") == "CompleteCommit"
    transaction = runtime.transaction("a")
    assert transaction is not None
    assert not transaction.partitions


def test_a_partition_that_is_gone_does_not_hold_the_end_up() -> None:
    orders = MarkersOnly()
    runtime = Runtime({ORDERS: orders})
    runtime.end("a", begun(runtime))
    assert runtime.state("a") == "CompleteCommit"
    assert len(orders.markers) == 1


def test_markers_of_an_earlier_transaction_complete_nothing() -> None:
    runtime = Runtime()
    producer = begun(runtime)
    runtime.writes_markers = False
    runtime.end("a", producer)
    (old,) = runtime.unwritten
    runtime.write_markers()
    after = ProducerIdentity(producer.producer_id, producer.producer_epoch + 1)
    runtime.add_for("a", after, ORDERS)
    runtime.end("a", after)
    assert not runtime.shard.markers_written(old, runtime.now_ms).records
    assert runtime.state("a") == "PrepareCommit"


def test_an_older_client_keeps_its_epoch_and_is_told_none() -> None:
    runtime = Runtime()
    producer = begun(runtime)
    assert told(runtime.end("a", producer, version=4)) == NOBODY
    transaction = runtime.transaction("a")
    assert transaction is not None
    assert (transaction.identity, transaction.version) == (producer, 0)


def test_a_newer_client_goes_on_with_the_next_epoch() -> None:
    runtime = Runtime()
    producer = begun(runtime)
    assert told(runtime.end("a", producer)) == (producer.producer_id, producer.producer_epoch + 1)


def test_a_newer_client_whose_epochs_are_used_up_goes_on_with_a_new_producer_id() -> None:
    orders = MarkersOnly()
    runtime = Runtime({ORDERS: orders})
    last = with_epoch(runtime, "a", LAST_EPOCH)
    runtime.add_for("a", last, ORDERS)
    after = told(runtime.end("a", last))
    assert after.producer_epoch == 0
    assert after.producer_id != last.producer_id
    (marker,) = orders.markers
    assert (marker.producer_id, marker.producer_epoch) == (last.producer_id, LAST_EPOCH + 1)
    assert told(runtime.end("a", last)) == after
    runtime.restart()
    assert told(runtime.end("a", last)) == after
    assert runtime.add_for("a", after, ORDERS) is ErrorCode.none


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("version", [4, 5])
def test_an_end_that_is_repeated_gets_the_same_answer(version: int, commit: bool, restarts: bool) -> None:
    runtime = Runtime()
    producer = begun(runtime)
    first = runtime.end("a", producer, commit=commit, version=version)
    if restarts:
        runtime.restart()
    written = len(runtime.log)
    assert runtime.end("a", producer, commit=commit, version=version) == first
    assert len(runtime.log) == written


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("version", [4, 5])
def test_an_end_that_contradicts_the_first_is_refused(version: int, commit: bool) -> None:
    runtime = Runtime()
    producer = begun(runtime)
    runtime.end("a", producer, commit=commit, version=version)
    contradiction = runtime.end("a", producer, commit=not commit, version=version)
    assert contradiction.error_code is ErrorCode.invalid_txn_state


@pytest.mark.parametrize("version", [4, 5])
def test_whoever_asks_while_markers_are_written_has_to_wait(version: int) -> None:
    runtime = Runtime()
    producer = begun(runtime)
    runtime.writes_markers = False
    runtime.end("a", producer, version=version)
    assert runtime.end("a", producer, version=version).error_code is ErrorCode.concurrent_transactions
    runtime.write_markers()
    assert runtime.end("a", producer, version=version).error_code is ErrorCode.none


def test_there_is_nothing_to_commit_before_anything_was_written() -> None:
    runtime = Runtime()
    producer = runtime.identity("a")
    for version in (4, 5):
        assert runtime.end("a", producer, version=version).error_code is ErrorCode.invalid_txn_state
    assert runtime.end("a", producer, commit=False, version=4).error_code is ErrorCode.invalid_txn_state


def test_a_newer_client_may_abort_what_it_did_not_begin_and_its_epoch_rises() -> None:
    runtime = Runtime()
    producer = runtime.identity("a")
    for epoch in (1, 2, 3):
        response = runtime.end("a", producer, commit=False)
        assert (response.error_code, response.producer_epoch) == (ErrorCode.none, epoch)
        producer = told(response)
    runtime.add_for("a", producer, ORDERS)
    committed = told(runtime.end("a", producer))
    assert told(runtime.end("a", committed, commit=False)).producer_epoch == 5
    assert runtime.state("a") == "CompleteAbort"


def test_after_an_end_the_next_commit_needs_a_transaction() -> None:
    runtime = Runtime()
    after = told(runtime.end("a", begun(runtime)))
    assert runtime.end("a", after).error_code is ErrorCode.invalid_txn_state


def test_strangers_are_refused() -> None:
    runtime = Runtime()
    producer = begun(runtime)
    other = runtime.identity("b")
    for version in (4, 5):
        for epoch in (producer.producer_epoch - 1, producer.producer_epoch + 1):
            stranger = ProducerIdentity(producer.producer_id, epoch)
            assert runtime.end("a", stranger, version=version).error_code is ErrorCode.producer_fenced
        assert runtime.end("a", other, version=version).error_code is ErrorCode.invalid_producer_id_mapping
        assert runtime.end("unknown", producer, version=version).error_code is ErrorCode.invalid_producer_id_mapping
        assert runtime.end("", producer, version=version).error_code is ErrorCode.invalid_request
    older = ProducerIdentity(producer.producer_id, producer.producer_epoch - 1)
    assert runtime.end("a", older, version=1).error_code is ErrorCode.invalid_producer_epoch
    assert runtime.state("a") == "Ongoing"


def test_the_end_of_an_older_instance_is_not_taken_for_a_repeated_one_of_its_successor() -> None:
    runtime = Runtime()
    old = runtime.identity("a")
    new = runtime.identity("a")
    runtime.add("a", new, ORDERS)
    runtime.end("a", new, version=4)
    answer = runtime.end("a", old)
    assert answer.error_code is ErrorCode.producer_fenced
    assert told(answer) == NOBODY
