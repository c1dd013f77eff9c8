"""Idempotence: a batch is written once, in order, and by the newest instance of its producer."""

from pathlib import Path

import pytest

from headwater.log.filesystem import FileSystem
from headwater.log.producer_snapshots import CorruptSnapshotError, decode_snapshot, encode_snapshot
from headwater.log.producer_state import LARGEST_SEQUENCE, ProducerEntry, ProducerStateError, RememberedBatch
from headwater.protocol.errors import ErrorCode

from .building import NOW_MS, append, batch, marker, open_log

# Written by Apache Kafka 4.1: three producers with ended transactions, one with an open one.
APACHE_SNAPSHOT = bytes.fromhex(
    "0001b063bfa9000000040000000000000001000000000167000000000000016c00000003000001a1e24ea2b600000000ffffffffffffffff"
    "000000000000000200000000016700000000000002da00000003000001a1e24ea59600000000ffffffffffffffff"
    "0000000000000003000000000167000000000000044800000003000001a1e24ea85a00000000ffffffffffffffff"
    "0000000000000004000000000000000000000000044a00000000000001a1e24ea896ffffffff000000000000044a"
)


def test_a_repeat_of_any_of_the_last_five_batches_is_answered_with_its_offsets(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for index in range(6):
        append(log, batch([b"a", b"b"], producer=(1, 0, 2 * index)))
    for index in range(1, 6):
        info = append(log, batch([b"a", b"b"], producer=(1, 0, 2 * index)))
        assert (info.duplicate, info.first_offset, info.last_offset) == (True, 2 * index, 2 * index + 1)
    assert log.log_end_offset == 12
    refuse(log_append=lambda: append(log, batch([b"a", b"b"], producer=(1, 0, 0))))


def refuse(log_append: object, code: ErrorCode = ErrorCode.out_of_order_sequence_number) -> None:
    assert callable(log_append)
    with pytest.raises(ProducerStateError) as error:
        log_append()
    assert error.value.code is code


@pytest.mark.parametrize("sequence", [1, 3, 4, 100])
def test_a_gap_or_another_cut_of_old_records_is_refused(tmp_path: Path, sequence: int) -> None:
    log = open_log(tmp_path)
    append(log, batch([b"a", b"b"], producer=(1, 0, 0)))
    refuse(lambda: append(log, batch([b"x", b"y"], producer=(1, 0, sequence))))
    assert not append(log, batch([b"x", b"y"], producer=(1, 0, 2))).duplicate


def test_a_producer_without_history_may_start_anywhere(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch(producer=(1, 3, 77)))
    assert not append(log, batch(producer=(1, 3, 78))).duplicate


def test_a_new_epoch_starts_at_zero_and_shuts_out_the_old_one(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch(producer=(1, 0, 0)))
    refuse(lambda: append(log, batch(producer=(1, 1, 1))))
    append(log, batch(producer=(1, 1, 0)))
    refuse(lambda: append(log, batch(producer=(1, 0, 1))), ErrorCode.invalid_producer_epoch)
    assert log.log_end_offset == 2


def test_sequences_go_on_at_zero_after_the_largest(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch([b"a", b"b"], producer=(1, 0, LARGEST_SEQUENCE - 1)))
    append(log, batch([b"c"], producer=(1, 0, 0)))
    around = batch([b"d"] * 3, producer=(2, 0, LARGEST_SEQUENCE - 1))
    append(log, around)
    assert append(log, around).duplicate
    assert not append(log, batch(producer=(2, 0, 1))).duplicate


def test_batches_of_one_request_are_checked_in_the_light_of_each_other(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch(producer=(1, 0, 0)), batch(producer=(1, 0, 1)))
    refuse(lambda: append(log, batch(producer=(1, 0, 2)), batch(producer=(1, 0, 4))))
    assert log.log_end_offset == 2
    assert not append(log, batch(producer=(1, 0, 2))).duplicate


def test_a_coordinator_writes_without_sequences_but_not_with_an_old_epoch(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch(producer=(1, 5, -1)), verify_producer=False)
    append(log, batch(producer=(1, 5, -1)), verify_producer=False)
    assert log.log_end_offset == 2
    refuse(
        lambda: append(log, batch(producer=(1, 4, -1)), verify_producer=False),
        ErrorCode.invalid_producer_epoch,
    )


def test_idle_producers_are_forgotten_but_not_with_an_open_transaction(tmp_path: Path) -> None:
    log = open_log(tmp_path, producer_id_expiration_ms=1000)
    append(log, batch(producer=(1, 0, 0)))
    append(log, batch(producer=(2, 0, 0), transactional=True))
    log.remove_expired_producers(NOW_MS + 999)
    assert [producer.producer_id for producer in log.active_producers()] == [1, 2]
    log.remove_expired_producers(NOW_MS + 1000)
    assert [producer.producer_id for producer in log.active_producers()] == [2]


def test_producers_that_expired_during_a_stop_are_not_loaded(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch(producer=(1, 0, 0)))
    log.close()
    later_ms = NOW_MS + 86_400_000
    assert open_log(tmp_path, now_ms=later_ms).active_producers() == []
    assert len(open_log(tmp_path, now_ms=later_ms - 1).active_producers()) == 1


def test_describe_shows_epoch_sequence_time_and_transaction(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch())
    append(log, batch([b"a", b"b"], producer=(9, 2, 0), transactional=True))
    (producer,) = log.active_producers()
    assert producer == (9, 2, 1, NOW_MS + 1, -1, 1)
    assert log.has_open_transaction(9)
    append(log, marker(9, 2, commit=True, coordinator_epoch=4))
    (producer,) = log.active_producers()
    assert producer == (9, 2, 1, NOW_MS, 4, -1)
    assert not log.has_open_transaction(9)


def test_apaches_snapshot_is_read_and_written_back_to_the_same_bytes() -> None:
    entries = decode_snapshot(APACHE_SNAPSHOT)
    assert [entry.producer_id for entry in entries] == [1, 2, 3, 4]
    assert entries[3].txn_first_offset == 1098
    assert entries[0].batches == [RememberedBatch(359, 364, 3, 1794798166710)]
    assert encode_snapshot(entries) == APACHE_SNAPSHOT


@pytest.mark.parametrize("position", [0, 3, 9, 20, -1])
def test_a_damaged_snapshot_is_noticed(position: int) -> None:
    damaged = bytearray(APACHE_SNAPSHOT)
    damaged[position] ^= 0x10
    with pytest.raises(CorruptSnapshotError):
        decode_snapshot(bytes(damaged))
    with pytest.raises(CorruptSnapshotError):
        decode_snapshot(APACHE_SNAPSHOT[:position])


def test_a_producer_without_a_batch_survives_a_snapshot() -> None:
    entry = ProducerEntry(5)
    entry.epoch = 3
    (again,) = decode_snapshot(encode_snapshot([entry]))
    assert (again.epoch, again.last_sequence, again.batches, again.txn_first_offset) == (3, -1, [], -1)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("rolled_after", [None, 3, 6])
def test_the_last_five_batches_are_known_after_a_restart(tmp_path: Path, clean: bool, rolled_after: int | None) -> None:
    log = open_log(tmp_path)
    for index in range(7):
        append(log, batch([b"a", b"b"], producer=(1, 0, 2 * index)))
        append(log, batch([b"c"], producer=(2, 5, index)))
        if index + 1 == rolled_after:
            log.roll(NOW_MS)
    if clean:
        log.close()
    else:
        log.abandon()
    again = open_log(tmp_path, clean=clean)
    for index in range(2, 7):
        info = append(again, batch([b"a", b"b"], producer=(1, 0, 2 * index)))
        assert (info.duplicate, info.first_offset, info.last_offset) == (True, 3 * index, 3 * index + 1)
        info = append(again, batch([b"c"], producer=(2, 5, index)))
        assert (info.duplicate, info.first_offset) == (True, 3 * index + 2)
    assert again.log_end_offset == 21
    assert not append(again, batch([b"d"], producer=(2, 5, 7))).duplicate


def test_a_snapshot_with_five_rows_a_producer_keeps_an_open_transaction() -> None:
    entry = ProducerEntry(5)
    entry.epoch, entry.last_sequence, entry.last_timestamp_ms, entry.txn_first_offset = 3, 9, 77, 21
    entry.batches = [RememberedBatch(sequence, 20 + sequence, 0, sequence) for sequence in range(5, 10)]
    (again,) = decode_snapshot(encode_snapshot([entry]))
    assert again.batches == [*entry.batches[:-1], entry.batches[-1]._replace(timestamp_ms=77)]
    assert (again.last_sequence, again.last_timestamp_ms, again.txn_first_offset) == (9, 77, 21)


def test_a_roll_leaves_a_snapshot_for_the_new_segment(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch([b"a", b"b"], producer=(1, 0, 0)))
    log.roll(NOW_MS)
    (entry,) = decode_snapshot(FileSystem().read_file(f"{log.path}/{2:020d}.snapshot"))
    assert (entry.producer_id, entry.last_sequence) == (1, 1)
