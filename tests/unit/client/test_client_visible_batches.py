"""Readers of committed records see no markers and nothing of aborted transactions."""

import struct

from headwater.client.thin.fetcher import visible_batches
from headwater.protocol.kafka_types import ProducerId, i64
from headwater.protocol.records import encode_batch, scan_headers

from kio.schema.fetch.v12.response import AbortedTransaction  # isort: skip

ABORT, COMMIT = 0, 1


def batch(offset: int, producer: int, *values: bytes, transactional: bool = True) -> bytes:
    records = [(None, value, (), 0) for value in values]
    return bytes(
        encode_batch(
            records,
            base_offset=offset,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=0,
            transactional=transactional,
        )
    )


def marker(offset: int, producer: int, kind: int) -> bytes:
    records = [(struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 0), (), 0)]
    return bytes(
        encode_batch(
            records,
            base_offset=offset,
            producer_id=producer,
            producer_epoch=0,
            transactional=True,
            control=True,
        )
    )


def aborted(producer: int, first_offset: int) -> AbortedTransaction:
    return AbortedTransaction(producer_id=ProducerId(producer), first_offset=i64(first_offset))


def seen(log: bytes, *aborted_transactions: AbortedTransaction) -> list[int]:
    found = visible_batches(log, scan_headers(log, 0, len(log)), aborted_transactions)
    return [header.base_offset for header in found]


def test_without_a_list_of_aborted_ones_only_markers_are_hidden() -> None:
    log = batch(0, 7, b"a") + marker(1, 7, ABORT) + batch(2, -1, b"b", transactional=False)
    assert seen(log) == [0, 2]


def test_an_aborted_transaction_is_hidden_up_to_its_marker_and_no_further() -> None:
    log = batch(0, 7, b"no") + batch(1, 7, b"no") + marker(2, 7, ABORT) + batch(3, 7, b"yes") + marker(4, 7, COMMIT)
    assert seen(log, aborted(7, 0)) == [3]


def test_other_producers_between_are_seen() -> None:
    log = (
        batch(0, 7, b"no")
        + batch(1, 8, b"yes")
        + batch(2, -1, b"yes", transactional=False)
        + marker(3, 8, COMMIT)
        + batch(4, 7, b"no")
        + marker(5, 7, ABORT)
    )
    assert seen(log, aborted(7, 0)) == [1, 2]


def test_two_aborted_transactions_of_one_producer_with_a_good_one_between() -> None:
    log = (
        batch(0, 7, b"no")
        + marker(1, 7, ABORT)
        + batch(2, 7, b"yes")
        + marker(3, 7, COMMIT)
        + batch(4, 7, b"no")
        + marker(5, 7, ABORT)
    )
    assert seen(log, aborted(7, 4), aborted(7, 0)) == [2]
