"""Transactions as the log sees them: open ones hold back the last stable offset, aborted ones are indexed."""

from pathlib import Path

import pytest

from headwater.log.producer_state import ProducerStateError
from headwater.protocol.errors import ErrorCode

from .building import append, batch, marker, open_log, topic_config

# The first two entries of a .txnindex that Apache Kafka 4.1 wrote.
APACHE_TXN_INDEX = bytes.fromhex(
    "00000000000000000001000000000000003d0000000000000079000000000000007a"
    "0000000000000000000100000000000000b700000000000000f300000000000000f4"
)


def test_the_oldest_open_transaction_bounds_the_last_stable_offset(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch())
    append(log, batch(producer=(1, 0, 0), transactional=True))
    append(log, batch(producer=(2, 0, 0), transactional=True))
    assert log.last_stable_offset == 1
    append(log, marker(1, 0, commit=True))
    assert log.last_stable_offset == 2
    append(log, marker(2, 0, commit=False))
    assert log.last_stable_offset == log.log_end_offset == 5


def test_a_marker_counts_when_it_is_replicated(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch(producer=(1, 0, 0), transactional=True))
    append(log, batch())
    append(log, marker(1, 0, commit=True))
    assert log.last_stable_offset_below(2) == 0
    assert log.last_stable_offset_below(3) == 3


def test_the_last_stable_offset_never_passes_the_high_watermark(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for _ in range(3):
        append(log, batch())
    append(log, batch(producer=(1, 0, 0), transactional=True))
    assert log.last_stable_offset_below(2) == 2
    assert log.last_stable_offset_below(4) == 3


def test_only_aborted_transactions_that_overlap_are_listed(tmp_path: Path) -> None:
    log = open_log(tmp_path, topic_config(segment_bytes=600))
    sequences = dict.fromkeys((1, 2), 0)
    for index in range(12):
        producer_id = 1 + index % 2
        append(log, batch([bytes(100)], producer=(producer_id, 0, sequences[producer_id]), transactional=True))
        sequences[producer_id] += 1
        append(log, marker(producer_id, 0, commit=index % 3 == 0))
    aborted = [(1 + index % 2, 2 * index) for index in range(12) if index % 3]
    assert len(log.segments) > 2
    assert [(txn.producer_id, txn.first_offset) for txn in log.aborted_transactions(0, 24)] == aborted
    some = [(txn.producer_id, txn.first_offset) for txn in log.aborted_transactions(7, 13)]
    assert some == [(pid, first) for pid, first in aborted if first + 1 >= 7 and first < 13]


def test_the_upper_bound_of_a_slice_covers_it_and_not_the_whole_log(tmp_path: Path) -> None:
    log = open_log(tmp_path, topic_config(index_interval_bytes=100))
    for _ in range(50):
        append(log, batch([bytes(200)]))
    piece = log.read(10, 600, up_to_offset=50)
    assert 12 <= log.upper_bound_offset(piece) <= 15


def test_the_index_file_is_apaches(tmp_path: Path) -> None:
    (tmp_path / "events-0").mkdir()
    (tmp_path / "events-0" / f"{0:020d}.log").touch()
    (tmp_path / "events-0" / f"{0:020d}.txnindex").write_bytes(APACHE_TXN_INDEX)
    log = open_log(tmp_path)
    assert log.aborted_transactions(0, 1000) == [(1, 61, 121, 122), (1, 183, 243, 244)]


def test_what_is_written_reads_as_apaches(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for start in (0, 122):
        while log.log_end_offset < start + 61:
            append(log, batch([b"x"] * 61))
        for sequence in range(60):
            append(log, batch(producer=(1, 0, sequence + start // 122 * 60), transactional=True))
        append(log, marker(1, 0, commit=False))
    assert (tmp_path / "events-0" / f"{0:020d}.txnindex").read_bytes() == APACHE_TXN_INDEX


def test_an_older_coordinator_cannot_end_a_transaction(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, marker(1, 0, commit=True, coordinator_epoch=5))
    with pytest.raises(ProducerStateError) as error:
        append(log, marker(1, 0, commit=True, coordinator_epoch=4))
    assert error.value.code is ErrorCode.transaction_coordinator_fenced


def test_a_plain_batch_within_an_open_transaction_is_refused(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch(producer=(1, 0, 0), transactional=True))
    with pytest.raises(ProducerStateError) as error:
        append(log, batch(producer=(1, 0, 1)))
    assert error.value.code is ErrorCode.invalid_txn_state


def test_an_open_transaction_outlives_a_restart(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch())
    append(log, batch(producer=(1, 0, 0), transactional=True))
    log.close()
    again = open_log(tmp_path)
    assert again.last_stable_offset == 1
    append(again, marker(1, 0, commit=False))
    assert again.last_stable_offset == 3
    assert [(txn.producer_id, txn.first_offset) for txn in again.aborted_transactions(0, 3)] == [(1, 1)]
