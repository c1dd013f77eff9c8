"""Readers of committed records see no markers and nothing of aborted transactions."""

import struct
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import pytest

from fetched_logs import ABORT, COMMIT, T0, batch, marker
from headwater.protocol.records import CorruptBatchError, scan_headers

Form = Callable[[str], ModuleType]


def transactional(offset: int, producer_id: int, *values: bytes) -> bytes:
    return batch(offset, values, producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True)


def seen(form: Form, log: bytes, aborted: Sequence[tuple[int, int]]) -> list[int]:
    visibility = form("visibility").Visibility(aborted)
    headers = scan_headers(log, 0, len(log))
    return [header.base_offset for header in headers if not visibility.hides(memoryview(log), header)]


def test_an_aborted_transaction_is_hidden_up_to_its_marker_and_no_further(form: Form) -> None:
    log = transactional(0, 7, b"no") + transactional(1, 7, b"no") + marker(2, 7, ABORT)
    log += transactional(3, 7, b"yes") + marker(4, 7, COMMIT)
    assert seen(form, log, [(7, 0)]) == [3]


def test_what_others_write_in_between_is_seen(form: Form) -> None:
    log = transactional(0, 7, b"no") + transactional(1, 8, b"yes") + batch(2, [b"yes"]) + marker(3, 8, COMMIT)
    log += transactional(4, 7, b"no") + marker(5, 7, ABORT)
    assert seen(form, log, [(7, 0)]) == [1, 2]


def test_two_aborted_transactions_of_one_producer_with_a_good_one_between(form: Form) -> None:
    log = transactional(0, 7, b"no") + marker(1, 7, ABORT) + transactional(2, 7, b"yes") + marker(3, 7, COMMIT)
    log += transactional(4, 7, b"no") + marker(5, 7, ABORT)
    assert seen(form, log, [(7, 4), (7, 0)]) == [2]


def test_a_transaction_that_began_before_the_answer_is_hidden_too(form: Form) -> None:
    assert seen(form, transactional(10, 7, b"no") + marker(11, 7, ABORT), [(7, 3)]) == []


def test_the_producers_records_outside_of_transactions_are_seen(form: Form) -> None:
    log = batch(0, [b"yes"], producer_id=7, producer_epoch=0, base_sequence=0) + transactional(1, 7, b"no")
    assert seen(form, log, [(7, 0)]) == [0]


def test_a_commit_marker_does_not_end_what_is_still_being_aborted(form: Form) -> None:
    log = transactional(0, 7, b"no") + marker(1, 7, COMMIT) + transactional(2, 7, b"no") + marker(3, 7, ABORT)
    assert seen(form, log, [(7, 0)]) == []


@pytest.mark.parametrize("key", [None, b"", b"\0\0\0", struct.pack(">hh", 0, 5)])
def test_a_control_record_of_another_kind_is_hidden_and_ends_nothing(form: Form, key: bytes | None) -> None:
    options: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0, "transactional": True, "control": True}
    log = transactional(0, 7, b"no") + batch(1, [(key, b"", [], T0)], **options) + transactional(2, 7, b"no")
    assert seen(form, log, [(7, 0)]) == []


def test_a_marker_that_cannot_be_read_is_no_marker_to_go_by(form: Form) -> None:
    broken = bytearray(marker(1, 7, ABORT))
    broken[61] = 0xFF
    (header,) = scan_headers(broken, 0, len(broken))
    # Not the class of this module: in its plain form it has its own.
    with pytest.raises(ValueError, match="corrupt record batch") as caught:
        form("visibility").Visibility([(7, 0)]).hides(memoryview(broken), header)
    assert type(caught.value).__name__ == CorruptBatchError.__name__
