"""ListTransactions and DescribeTransactions."""

from datetime import timedelta
from typing import Any

import pytest

from headwater.coordinator.transaction.listing import TransactionFilter
from headwater.protocol.errors import ApiError
from headwater.protocol.kafka_types import ErrorCode, ProducerId, i64
from headwater.types import TopicPartition

from .transaction_building import Runtime

from kio.schema.list_transactions.v2.request import ListTransactionsRequest  # isort: skip

ORDERS = TopicPartition("orders", 0)
MORE_ORDERS = TopicPartition("orders", 7)
PAYMENTS = TopicPartition("payments", 3)


@pytest.fixture
def runtime() -> Runtime:
    """Three ids: one that never began, one that is at it for a minute, one that is done."""
    runtime = Runtime()
    runtime.identity("idle")
    done = runtime.identity("orders-done")
    runtime.add_for("orders-done", done, ORDERS)
    runtime.end("orders-done", done)
    busy = runtime.identity("orders-busy")
    runtime.add_for("orders-busy", busy, PAYMENTS, MORE_ORDERS, ORDERS)
    runtime.now_ms += 60_000
    return runtime


def wanted(**filters: Any) -> TransactionFilter:
    return TransactionFilter.from_request(ListTransactionsRequest(**filters))


def ids(runtime: Runtime, **filters: Any) -> list[str]:
    listed = runtime.shard.list_transactions(wanted(**filters), runtime.now_ms)
    return sorted(found.transactional_id for found in listed if found is not None)


def test_all_are_listed_with_their_states(runtime: Runtime) -> None:
    found = runtime.shard.list_transactions(wanted(), runtime.now_ms)
    assert {each.transactional_id: each.transaction_state for each in found if each is not None} == {
        "idle": "Empty",
        "orders-done": "CompleteCommit",
        "orders-busy": "Ongoing",
    }


def test_filters(runtime: Runtime) -> None:
    assert ids(runtime, state_filters=("Ongoing", "Empty")) == ["idle", "orders-busy"]
    producer_id = ProducerId(runtime.shard.describe("idle").producer_id)
    assert ids(runtime, producer_id_filters=(producer_id,)) == ["idle"]
    assert ids(runtime, duration_filter=i64(60_000), state_filters=("Ongoing",)) == []
    assert ids(runtime, duration_filter=i64(59_999), state_filters=("Ongoing",)) == ["orders-busy"]
    assert ids(runtime, transactional_id_pattern="orders-.*") == ["orders-busy", "orders-done"]
    assert ids(runtime, transactional_id_pattern="orders") == []
    assert ids(runtime, transactional_id_pattern="") == ["idle", "orders-busy", "orders-done"]


def test_unknown_states_are_named_and_match_nothing(runtime: Runtime) -> None:
    assert wanted(state_filters=("Asleep", "Ongoing", "Asleep")).unknown_states == ("Asleep",)
    assert ids(runtime, state_filters=("Asleep",)) == []
    assert wanted(state_filters=("Dead", "PrepareEpochFence")).unknown_states == ()


def test_a_pattern_that_is_none_is_refused() -> None:
    with pytest.raises(ApiError) as refused:
        wanted(transactional_id_pattern="(")
    assert refused.value.code is ErrorCode.invalid_regular_expression


def test_a_transaction_is_described_in_full(runtime: Runtime) -> None:
    found = runtime.shard.describe("orders-busy")
    assert (found.error_code, found.transaction_state) == (ErrorCode.none, "Ongoing")
    assert found.transaction_timeout == timedelta(seconds=60)
    assert found.transaction_start_time_ms == runtime.now_ms - 60_000
    assert found.producer_epoch == 0
    assert [(topic.topic, topic.partitions) for topic in found.topics] == [("orders", (0, 7)), ("payments", (3,))]


def test_what_never_began_has_no_start(runtime: Runtime) -> None:
    found = runtime.shard.describe("idle")
    assert (found.transaction_start_time_ms, found.topics) == (-1, ())


def test_an_id_that_is_not_known_is_not_found(runtime: Runtime) -> None:
    assert runtime.shard.describe("unknown").error_code is ErrorCode.transactional_id_not_found
    assert runtime.shard.describe("").error_code is ErrorCode.invalid_request
