"""AddPartitionsToTxn and the check whether a partition is part of a transaction."""

import pytest

from headwater.coordinator.outcome import ProducerIdentity
from headwater.protocol.kafka_types import ErrorCode
from headwater.types import TopicPartition

from .transaction_building import Runtime, told

ORDERS = TopicPartition("orders", 0)
MORE_ORDERS = TopicPartition("orders", 1)
PAYMENTS = TopicPartition("payments", 0)


def test_the_first_partition_begins_the_transaction() -> None:
    runtime = Runtime()
    producer = runtime.identity("a")
    began_ms = runtime.now_ms = runtime.now_ms + 5
    runtime.add("a", producer, ORDERS)
    runtime.now_ms += 5
    runtime.add("a", producer, MORE_ORDERS, PAYMENTS)
    transaction = runtime.transaction("a")
    assert transaction is not None
    assert (transaction.state.label, transaction.start_ms) == ("Ongoing", began_ms)
    assert transaction.partitions == {ORDERS, MORE_ORDERS, PAYMENTS}


def test_what_is_there_already_is_not_written_again() -> None:
    runtime = Runtime()
    producer = runtime.identity("a")
    runtime.add("a", producer, ORDERS, PAYMENTS)
    written = len(runtime.log)
    assert runtime.add("a", producer, PAYMENTS) is ErrorCode.none
    assert len(runtime.log) == written


def test_the_clients_transaction_version_is_recorded() -> None:
    runtime = Runtime()
    producer = runtime.identity("a")
    runtime.add_for("a", producer, ORDERS)
    transaction = runtime.transaction("a")
    assert transaction is not None
    assert transaction.version == 2


def test_strangers_are_refused() -> None:
    runtime = Runtime()
    producer = runtime.identity("a")
    other = runtime.identity("b")
    newer = ProducerIdentity(producer.producer_id, producer.producer_epoch + 1)
    assert runtime.add("", producer, ORDERS) is ErrorCode.invalid_request
    assert runtime.add("unknown", producer, ORDERS) is ErrorCode.invalid_producer_id_mapping
    assert runtime.add("a", other, ORDERS) is ErrorCode.invalid_producer_id_mapping
    assert runtime.add("a", newer, ORDERS) is ErrorCode.producer_fenced
    assert runtime.state("a") == "Empty"


@pytest.mark.parametrize(
    ("version", "error_code"), [(1, ErrorCode.invalid_producer_epoch), (2, ErrorCode.producer_fenced)]
)
def test_a_fenced_producer_is_told_in_words_that_it_knows(version: int, error_code: ErrorCode) -> None:
    runtime = Runtime()
    producer = runtime.identity("a")
    runtime.identity("a")
    assert runtime.add("a", producer, ORDERS, version=version) is error_code


def test_nothing_is_added_while_the_markers_of_the_last_transaction_are_written() -> None:
    runtime = Runtime()
    producer = runtime.identity("a")
    runtime.add_for("a", producer, ORDERS)
    runtime.writes_markers = False
    after = told(runtime.end("a", producer))
    assert runtime.add_for("a", after, ORDERS) is ErrorCode.concurrent_transactions
    assert runtime.verify("a", after, ORDERS) == {ORDERS: ErrorCode.concurrent_transactions}
    runtime.write_markers()
    assert runtime.add_for("a", after, ORDERS) is ErrorCode.none


def test_after_an_end_of_version_2_only_the_next_epoch_begins_a_transaction() -> None:
    runtime = Runtime()
    producer = runtime.identity("a")
    runtime.add_for("a", producer, ORDERS)
    after = told(runtime.end("a", producer))
    assert runtime.add_for("a", producer, ORDERS) is ErrorCode.producer_fenced
    assert runtime.add_for("a", after, PAYMENTS) is ErrorCode.none
    transaction = runtime.transaction("a")
    assert transaction is not None
    assert transaction.partitions == {PAYMENTS}


def test_verification_tells_which_partitions_are_part_of_it() -> None:
    runtime = Runtime()
    producer = runtime.identity("a")
    runtime.add("a", producer, ORDERS)
    assert runtime.verify("a", producer, ORDERS, PAYMENTS) == {
        ORDERS: ErrorCode.none,
        PAYMENTS: ErrorCode.transaction_abortable,
    }
    runtime.end("a", producer, version=4)
    assert runtime.verify("a", producer, ORDERS) == {ORDERS: ErrorCode.transaction_abortable}


def test_verification_refuses_strangers() -> None:
    runtime = Runtime()
    producer = runtime.identity("a")
    other = runtime.identity("b")
    runtime.add("a", producer, ORDERS)
    older = ProducerIdentity(producer.producer_id, producer.producer_epoch - 1)
    assert runtime.verify("unknown", producer, ORDERS) == {ORDERS: ErrorCode.invalid_producer_id_mapping}
    assert runtime.verify("a", other, ORDERS) == {ORDERS: ErrorCode.invalid_producer_id_mapping}
    assert runtime.verify("a", older, ORDERS) == {ORDERS: ErrorCode.producer_fenced}
