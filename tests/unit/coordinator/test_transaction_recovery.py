"""What a restart finds: everything that was written, and what was decided is carried through."""

import struct

import pytest

from headwater.coordinator.outcome import CoordinatorRecord
from headwater.coordinator.schema import CorruptRecordError
from headwater.coordinator.transaction import records
from headwater.coordinator.transaction.transaction import Transaction
from headwater.protocol.kafka_types import ErrorCode
from headwater.types import TopicPartition

from .transaction_building import NOW_MS, TIMEOUT_MS, MarkersOnly, Runtime, told, transactions

ORDERS = TopicPartition("orders", 0)
PAYMENTS = TopicPartition("payments", 0)


@pytest.mark.parametrize("commit", [True, False])
def test_a_decided_transaction_gets_its_markers_after_a_restart(commit: bool) -> None:
    orders = MarkersOnly()
    runtime = Runtime({ORDERS: orders})
    producer = runtime.identity("a")
    runtime.add_for("a", producer, ORDERS)
    runtime.writes_markers = False
    runtime.end("a", producer, commit=commit)
    runtime.writes_markers = True
    runtime.restart()
    assert runtime.state("a") == ("CompleteCommit" if commit else "CompleteAbort")
    assert [(marker.commit, marker.coordinator_epoch) for marker in orders.markers] == [(commit, 1)]


@pytest.mark.parametrize("moments", range(7))
def test_wherever_it_crashes_a_commit_is_whole_or_has_not_happened(moments: int) -> None:
    orders, payments = MarkersOnly(), MarkersOnly()
    runtime = Runtime({ORDERS: orders, PAYMENTS: payments})
    producer = runtime.identity("a")
    runtime.add_for("a", producer, ORDERS, PAYMENTS)
    runtime.crash_in_moments = moments
    answer = runtime.end("a", producer)
    if moments == 0:
        assert (answer, runtime.state("a")) == (None, "Ongoing")
        assert not orders.markers
    else:
        assert runtime.state("a") == "CompleteCommit"
        assert orders.markers
        assert payments.markers
        assert all(marker.commit for marker in orders.markers + payments.markers)
        assert (answer is None) == (moments == 1)
    repeated = runtime.end("a", producer)
    assert (repeated.error_code, repeated.producer_epoch) == (ErrorCode.none, 1)


def test_an_open_transaction_stays_open_over_a_restart_and_can_time_out() -> None:
    runtime = Runtime()
    producer = runtime.identity("a")
    runtime.add("a", producer, ORDERS)
    runtime.restart()
    assert runtime.state("a") == "Ongoing"
    runtime.pass_time(TIMEOUT_MS + 1)
    assert runtime.state("a") == "CompleteAbort"


def test_a_forgotten_id_stays_forgotten() -> None:
    runtime = Runtime(transactional_id_expiration_ms=1)
    runtime.identity("a")
    runtime.now_ms += 1
    runtime.expire()
    runtime.restart()
    assert not transactions(runtime.shard)


def test_replay_comes_to_the_same_state() -> None:
    runtime = Runtime()
    for transactional_id in ("a", "b", "c"):
        producer = runtime.identity(transactional_id)
        runtime.add_for(transactional_id, producer, ORDERS, PAYMENTS)
        producer = told(runtime.end(transactional_id, producer, commit=transactional_id != "b"))
        runtime.now_ms += 1
    runtime.add_for("c", producer, PAYMENTS)
    assert transactions(runtime.replayed()) == transactions(runtime.shard)


def test_only_the_last_record_of_an_id_counts() -> None:
    """Compaction takes the others away."""
    runtime = Runtime()
    producer = runtime.identity("a")
    runtime.add_for("a", producer, ORDERS)
    runtime.end("a", producer)
    before = transactions(runtime.shard)
    del runtime.log[:-1]
    runtime.restart()
    assert transactions(runtime.shard) == before


def test_records_of_a_later_kind_are_passed_over() -> None:
    runtime = Runtime()
    runtime.shard.replay(CoordinatorRecord(struct.pack(">h", 1) + b"?", b"?"))
    assert not transactions(runtime.shard)


@pytest.mark.parametrize("status", [6, 7, 8, -1])
def test_a_state_that_nobody_writes_is_not_taken_in(status: int) -> None:
    runtime = Runtime()
    value = Transaction.new(1, TIMEOUT_MS, NOW_MS).to_value()
    damaged = records.TransactionValue(
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        timeout_ms=value.timeout_ms,
        status=status,
        partitions=None,
        last_update_ms=NOW_MS,
        start_ms=-1,
    )
    written = records.encode("a", damaged)
    with pytest.raises(CorruptRecordError, match=str(status)):
        runtime.shard.replay(CoordinatorRecord(written.key, written.value))
    assert not transactions(runtime.shard)
