"""The log can be cut at either end, and what is left is as if the rest had never been there."""

from pathlib import Path

import pytest

from headwater.log.log import Log
from headwater.protocol.errors import ApiError, ErrorCode

from .building import NOW_MS, all_records, append, batch, marker, open_log, topic_config

SMALL = topic_config(segment_bytes=1200, index_interval_bytes=150)


def filled(path: Path) -> Log:
    log = open_log(path, SMALL)
    for index in range(40):
        append(
            log,
            batch([b"%d" % index, bytes(60)], timestamp_ms=NOW_MS + 10 * index, producer=(1, 0, 2 * index)),
        )
    return log


@pytest.mark.parametrize("offset", [0, 1, 2, 9, 10, 37, 38, 78, 79])
def test_truncation_drops_whole_batches_from_the_offset_on(tmp_path: Path, offset: int) -> None:
    log = filled(tmp_path)
    expected = [record for record in all_records(log) if record[0] < offset - offset % 2]
    log.truncate_to(offset, now_ms=NOW_MS)
    assert log.log_end_offset == offset
    assert all_records(log) == expected
    log.close()
    again = open_log(tmp_path, SMALL)
    assert all_records(again) == expected
    assert append(again, batch([b"new"])).first_offset == again.log_end_offset - 1


def test_truncation_at_or_beyond_the_end_changes_nothing_but_a_dangling_epoch(tmp_path: Path) -> None:
    log = filled(tmp_path)
    log.leader_epochs.assign(9, 80)
    log.truncate_to(80, now_ms=NOW_MS)
    assert log.log_end_offset == 80
    assert log.leader_epochs.entries == [(0, 0)]


def test_truncation_takes_producers_epochs_timestamps_and_recovery_point_along(tmp_path: Path) -> None:
    log = filled(tmp_path)
    append(log, batch(producer=(2, 0, 0), transactional=True), leader_epoch=3)
    append(log, marker(2, 0, commit=False), leader_epoch=3)
    log.flush()
    log.truncate_to(30, now_ms=NOW_MS)
    assert [(p.producer_id, p.last_sequence) for p in log.active_producers()] == [(1, 29)]
    assert log.leader_epochs.entries == [(0, 0)]
    assert log.recovery_point == 30
    assert log.aborted_transactions(0, 100) == []
    largest = log.offset_of_max_timestamp()
    assert largest is not None
    assert (largest.offset, largest.timestamp_ms) == (29, NOW_MS + 141)
    assert append(log, batch([b"14", bytes(60)], producer=(1, 0, 28))).duplicate
    assert not append(log, batch(producer=(1, 0, 30))).duplicate


def test_the_whole_log_can_start_over_at_another_offset(tmp_path: Path) -> None:
    log = filled(tmp_path)
    log.truncate_fully_and_start_at(500, now_ms=NOW_MS)
    assert (log.log_start_offset, log.log_end_offset, log.recovery_point) == (500, 500, 500)
    assert (log.leader_epochs.entries, log.active_producers()) == ([], [])
    append(log, batch([b"x"]), leader_epoch=1)
    log.close()
    again = open_log(tmp_path, SMALL)
    assert all_records(again) == [(500, b"x")]
    assert again.log_start_offset == 500


def test_truncation_before_the_first_segment_starts_over_there(tmp_path: Path) -> None:
    log = filled(tmp_path)
    log.delete_records_before(60)
    log.truncate_to(10, now_ms=NOW_MS)
    assert (log.log_start_offset, log.log_end_offset) == (10, 10)


def test_deleting_records_moves_the_start_and_drops_whole_segments(tmp_path: Path) -> None:
    log = filled(tmp_path)
    segments = len(log.segments)
    assert log.delete_records_before(41) == 41
    assert log.segments[0].base_offset <= 41 < log.segments[1].base_offset
    assert log.remove_deleted_files() >= 3 * (segments - len(log.segments)) > 0
    assert not list((tmp_path / "events-0").glob("*.deleted"))
    assert [offset for offset, _ in all_records(log)] == list(range(41, 80))
    with pytest.raises(ApiError) as error:
        log.read(40, 100, up_to_offset=80)
    assert error.value.code is ErrorCode.offset_out_of_range


def test_deleting_up_to_the_end_and_never_back_or_beyond(tmp_path: Path) -> None:
    log = filled(tmp_path)
    assert log.delete_records_before(-1) == 80
    assert log.delete_records_before(10) == 80
    assert log.log_end_offset == 80
    with pytest.raises(ApiError) as error:
        log.delete_records_before(81)
    assert error.value.code is ErrorCode.offset_out_of_range


def test_a_retry_is_recognized_after_all_records_were_deleted_and_a_restart(tmp_path: Path) -> None:
    log = filled(tmp_path)
    start = log.delete_records_before(-1)
    log.close()
    again = open_log(tmp_path, SMALL, log_start_offset=start)
    assert append(again, batch([b"39", bytes(60)], producer=(1, 0, 78))).duplicate


def test_epochs_before_the_start_are_forgotten(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for epoch in range(5):
        append(log, batch(), batch(), leader_epoch=epoch)
    log.delete_records_before(5)
    assert log.leader_epochs.entries == [(2, 5), (3, 6), (4, 8)]


def test_an_empty_active_segment_does_not_roll(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.roll(NOW_MS)
    append(log, batch())
    log.roll(NOW_MS)
    log.roll(NOW_MS)
    assert [segment.base_offset for segment in log.segments] == [0, 1]


def test_a_deleted_partition_is_no_partition_any_more(tmp_path: Path) -> None:
    log = filled(tmp_path)
    piece = log.read(0, 1000, up_to_offset=80)
    doomed = log.delete()
    assert not (tmp_path / "events-0").exists()
    assert Path(doomed).name.startswith("events-0.")
    assert doomed.endswith("-delete")
    log.fs.remove_tree(doomed)
    assert len(piece.read()) == piece.size
    log.flush()
