"""The states of a transactional producer: what may follow what, and what nothing leads out of."""

from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.client.errors import ClientError
from headwater.client.producer.transactions import TRANSITIONS, Transactions, TransactionState, TransactionStateError
from headwater.types import TopicPartition

S = TransactionState
PARTITION = TopicPartition("orders", 0)
BROKEN = ClientError("something could not be sent")

CALLS: dict[str, Callable[[Transactions], object]] = {
    "initialize": lambda t: t.initialize(),
    "initialization_failed": lambda t: t.initialization_failed(),
    "initialized": lambda t: t.initialized(),
    "begin": lambda t: t.begin(adds_by_writing=True),
    "begin_v1": lambda t: t.begin(adds_by_writing=False),
    "write": lambda t: t.may_write(PARTITION) if t.refusal("send") is None else None,
    "commit": lambda t: t.commit(),
    "abort": lambda t: t.abort(),
    "ended": lambda t: t.ended(),
    "fail": lambda t: t.fail(BROKEN, fatal=False),
    "die": lambda t: t.fail(BROKEN, fatal=True),
}


@given(st.lists(st.sampled_from(sorted(CALLS)), max_size=40))
def test_every_change_is_one_of_the_table_and_a_refused_call_changes_nothing(calls: list[str]) -> None:
    told: list[TransactionState] = []
    transactions = Transactions(lambda: told.append(transactions.state))
    for call in calls:
        before, error_before, told_before = transactions.state, transactions.error, len(told)
        try:
            CALLS[call](transactions)
        except ClientError:
            assert (transactions.state, transactions.error) == (before, error_before)
        after = transactions.state
        assert after is before or after in TRANSITIONS[before]
        if after is not before:
            assert told[told_before:] == [after]
        assert (transactions.error is not None) == (after in (S.ABORTABLE_ERROR, S.FATAL_ERROR))
        assert (transactions.refusal("send") is None) == (after is S.IN_TRANSACTION)
        if after is S.READY:
            assert not transactions.started
            assert not transactions.to_add


@given(st.lists(st.sampled_from(sorted(CALLS)), max_size=40))
def test_from_anywhere_but_the_fatal_error_an_application_gets_back_to_ready(calls: list[str]) -> None:
    transactions = Transactions()
    for call in calls:
        with suppress(ClientError):
            CALLS[call](transactions)
    way_out = {
        S.UNINITIALIZED: ["initialize", "initialized"],
        S.INITIALIZING: ["initialized"],
        S.READY: [],
        S.IN_TRANSACTION: ["commit", "ended"],
        S.COMMITTING: ["commit", "ended"],
        S.ABORTING: ["abort", "ended"],
        S.ABORTABLE_ERROR: ["abort", "ended"],
    }
    if transactions.state is S.FATAL_ERROR:
        for call in ("initialize", "begin", "commit", "abort"):
            with pytest.raises(ClientError, match=str(BROKEN)):
                CALLS[call](transactions)
    else:
        for call in way_out[transactions.state]:
            CALLS[call](transactions)
        assert transactions.state is S.READY


def in_transaction(*, adds_by_writing: bool) -> Transactions:
    transactions = Transactions()
    transactions.initialize()
    transactions.initialized()
    transactions.begin(adds_by_writing=adds_by_writing)
    return transactions


def test_under_version_1_a_partition_is_added_before_it_is_written_to() -> None:
    transactions = in_transaction(adds_by_writing=False)
    assert not transactions.may_write(PARTITION)
    assert transactions.to_add == {PARTITION}
    assert not transactions.started
    transactions.added({PARTITION})
    assert transactions.may_write(PARTITION)
    assert transactions.started
    assert not transactions.to_add


def test_under_version_2_the_first_write_adds_the_partition() -> None:
    transactions = in_transaction(adds_by_writing=True)
    assert transactions.may_write(PARTITION)
    assert transactions.started


def test_the_next_transaction_knows_nothing_of_the_partitions_of_the_last() -> None:
    transactions = in_transaction(adds_by_writing=False)
    transactions.may_write(PARTITION)
    transactions.added({PARTITION})
    transactions.commit()
    transactions.ended()
    transactions.begin(adds_by_writing=False)
    assert not transactions.may_write(PARTITION)


def test_a_misplaced_call_says_what_to_do_first() -> None:
    transactions = Transactions()
    with pytest.raises(
        TransactionStateError, match=r"begin_transaction while .* not initialized: call init_transactions"
    ):
        transactions.begin(adds_by_writing=True)
    transactions.initialize()
    transactions.initialized()
    with pytest.raises(TransactionStateError, match=r"commit_transaction while .* ready: call begin_transaction first"):
        transactions.commit()
