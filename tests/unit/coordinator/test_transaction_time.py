"""What time does: transactions that last too long are aborted, ids that nobody uses are forgotten."""

import pytest

from headwater.protocol.kafka_types import ErrorCode
from headwater.types import TopicPartition

from .transaction_building import EXPIRATION_MS, TIMEOUT_MS, MarkersOnly, Runtime, told

ORDERS = TopicPartition("orders", 0)


def test_a_transaction_that_lasts_too_long_is_aborted_with_the_next_epoch() -> None:
    orders = MarkersOnly()
    runtime = Runtime({ORDERS: orders})
    producer = runtime.identity("a")
    runtime.add("a", producer, ORDERS)
    runtime.pass_time(TIMEOUT_MS)
    assert runtime.state("a") == "Ongoing"
    runtime.pass_time(1)
    assert runtime.state("a") == "CompleteAbort"
    assert [(marker.producer_epoch, marker.commit) for marker in orders.markers] == [(1, False)]


def test_time_counts_from_the_first_partition() -> None:
    runtime = Runtime()
    producer = runtime.identity("a")
    runtime.pass_time(TIMEOUT_MS)
    runtime.add("a", producer, ORDERS)
    runtime.pass_time(TIMEOUT_MS)
    runtime.add("a", producer, TopicPartition("orders", 1))
    assert runtime.state("a") == "Ongoing"
    runtime.pass_time(1)
    assert runtime.state("a") == "CompleteAbort"


def test_a_transaction_that_ended_in_time_is_left_alone_and_so_is_the_next() -> None:
    runtime = Runtime()
    producer = runtime.identity("a")
    runtime.add_for("a", producer, ORDERS)
    runtime.pass_time(TIMEOUT_MS // 2)
    producer = told(runtime.end("a", producer))
    runtime.add_for("a", producer, ORDERS)
    runtime.pass_time(TIMEOUT_MS)
    assert runtime.state("a") == "Ongoing"
    assert runtime.end("a", producer).error_code is ErrorCode.none


def test_whose_transaction_timed_out_cannot_commit_it() -> None:
    runtime = Runtime()
    old, new = runtime.identity("a"), runtime.identity("b")
    runtime.add("a", old, ORDERS)
    runtime.add_for("b", new, ORDERS)
    runtime.pass_time(TIMEOUT_MS + 1)
    assert runtime.end("a", old, version=4).error_code is ErrorCode.producer_fenced
    assert runtime.end("b", new).error_code is ErrorCode.invalid_txn_state


def test_a_newer_client_whose_transaction_timed_out_aborts_it_and_goes_on() -> None:
    runtime = Runtime()
    producer = runtime.identity("a")
    runtime.add_for("a", producer, ORDERS)
    runtime.pass_time(TIMEOUT_MS + 1)
    assert runtime.add_for("a", producer, ORDERS) is ErrorCode.producer_fenced
    answer = runtime.end("a", producer, commit=False)
    assert (answer.error_code, told(answer)) == (ErrorCode.none, (producer.producer_id, 1))
    assert runtime.add_for("a", told(answer), ORDERS) is ErrorCode.none


@pytest.mark.parametrize("restarts", [False, True])
def test_an_abort_that_cannot_be_written_is_tried_again(restarts: bool) -> None:
    runtime = Runtime()
    producer = runtime.identity("a")
    runtime.add("a", producer, ORDERS)
    runtime.appends_before_disk_is_full = 0
    runtime.pass_time(TIMEOUT_MS + 1)
    assert runtime.state("a") == "Ongoing"
    if restarts:
        runtime.restart()
    runtime.pass_time(0)
    assert runtime.state("a") == "CompleteAbort"


def test_an_id_that_nobody_uses_is_forgotten() -> None:
    runtime = Runtime()
    idle, busy = runtime.identity("idle"), runtime.identity("busy")
    runtime.add_for("busy", busy, ORDERS)
    runtime.end("busy", busy)
    runtime.pass_time(EXPIRATION_MS - 1)
    runtime.identity("busy")
    runtime.expire()
    assert runtime.state("idle") == "Empty"
    runtime.pass_time(1)
    runtime.expire()
    assert runtime.shard.describe("idle").error_code is ErrorCode.transactional_id_not_found
    assert runtime.state("busy") == "Empty"
    assert runtime.add("idle", idle, ORDERS) is ErrorCode.invalid_producer_id_mapping
    assert runtime.identity("idle").producer_id != idle.producer_id


def test_an_id_with_a_transaction_is_never_forgotten() -> None:
    runtime = Runtime()
    open_one, decided = runtime.identity("open"), runtime.identity("decided")
    runtime.add_for("open", open_one, ORDERS)
    runtime.add_for("decided", decided, ORDERS)
    runtime.writes_markers = False
    runtime.end("decided", decided)
    runtime.now_ms += EXPIRATION_MS
    runtime.expire()
    assert (runtime.state("open"), runtime.state("decided")) == ("Ongoing", "PrepareCommit")
    runtime.write_markers()
    runtime.expire()
    assert runtime.state("decided") == "CompleteCommit"
    runtime.now_ms += EXPIRATION_MS
    runtime.expire()
    assert runtime.state("decided") == ""
    assert runtime.state("open") == "Ongoing"


def test_a_tombstone_that_cannot_be_written_is_tried_again() -> None:
    runtime = Runtime()
    runtime.identity("a")
    runtime.now_ms += EXPIRATION_MS
    runtime.appends_before_disk_is_full = 0
    runtime.expire()
    assert runtime.state("a") == "Empty"
    runtime.expire()
    assert runtime.state("a") == ""


def test_the_settings_in_force_decide() -> None:
    runtime = Runtime(transactional_id_expiration_ms=1000, transaction_max_timeout_ms=500)
    assert runtime.init("a").error_code is ErrorCode.invalid_transaction_timeout
    runtime.init("a", timeout_ms=500)
    runtime.now_ms += 1000
    runtime.expire()
    assert runtime.state("a") == ""
