"""Appending gives offsets in order, and a read returns exactly the bytes that were written."""

import errno
import os
from pathlib import Path

import pytest
from typing_extensions import Buffer

from headwater.log.filesystem import FileSystem
from headwater.log.log import Log, UnexpectedOffsetError
from headwater.protocol.errors import ApiError, ErrorCode
from headwater.protocol.records import check_batches, crc_is_valid, scan_headers

from .building import NOW_MS, all_records, append, batch, open_log, records_from, topic_config


def test_offsets_go_on_where_the_last_append_ended(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    first = append(log, batch([b"a", b"b", b"c"]))
    second = append(log, batch([b"d"]), batch([b"e", b"f"]))
    assert (first.first_offset, first.last_offset) == (0, 2)
    assert (second.first_offset, second.last_offset) == (3, 5)
    assert log.log_end_offset == 6
    assert all_records(log) == [(i, value.encode()) for i, value in enumerate("abcdef")]


def test_the_leader_epoch_is_stamped_on_the_batch_and_remembered(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch(), leader_epoch=4)
    append(log, batch(), leader_epoch=6)
    content = log.read(0, 1000, up_to_offset=2).read()
    assert [header.leader_epoch for header in scan_headers(content, 0, len(content))] == [4, 6]
    assert log.leader_epochs.entries == [(4, 0), (6, 1)]
    assert log.latest_epoch == 6
    assert log.end_offset_for_epoch(4) == (4, 1)


def test_append_time_replaces_the_producers_time_and_the_checksum_still_holds(tmp_path: Path) -> None:
    log = open_log(tmp_path, topic_config(message_timestamp_type="LogAppendTime"))
    info = append(log, batch(timestamp_ms=5), now_ms=NOW_MS + 7)
    content = log.read(0, 1000, up_to_offset=1).read()
    (header,) = scan_headers(content, 0, len(content))
    assert info.append_time_ms == header.max_timestamp_ms == NOW_MS + 7
    assert header.is_log_append_time
    assert crc_is_valid(content, header)


def test_create_time_is_kept_and_not_reported(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    assert append(log, batch(timestamp_ms=5)).append_time_ms == -1
    assert records_from(log, 0)[0].timestamp_ms == 5


def test_a_read_from_the_middle_of_a_batch_returns_the_whole_batch(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch([b"a"]))
    append(log, batch([b"b", b"c", b"d"]))
    assert [record.value for record in records_from(log, 2)] == [b"b", b"c", b"d"]


def test_a_read_ends_at_max_bytes_even_within_a_batch(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    sizes = [len(batch([bytes(100)])) for _ in range(3) if append(log, batch([bytes(100)]))]
    piece = log.read(0, sizes[0] + 10, up_to_offset=3)
    assert piece.size == sizes[0] + 10
    assert len(scan_headers(piece.read(), 0, piece.size)) == 1


def test_a_first_batch_larger_than_max_bytes_comes_whole_and_alone(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch([bytes(5000)]))
    append(log, batch([b"small"]))
    assert [len(record.value or b"") for record in records_from(log, 0, max_bytes=10)] == [5000]
    assert log.read(0, 10, up_to_offset=2, min_one_batch=False).size == 0


def test_a_read_never_passes_the_offset_it_may_go_up_to(tmp_path: Path) -> None:
    log = open_log(tmp_path, topic_config(segment_bytes=2000))
    for index in range(100):
        append(log, batch([b"%d" % index, b"x"]))
    for up_to in range(0, 201, 2):
        for offset in range(0, up_to, 7):
            records = records_from(log, offset, up_to_offset=up_to)
            assert records
            assert records[0].offset <= offset
            assert records[-1].offset < up_to
        assert log.read(min(up_to, 200), 1000, up_to_offset=up_to).size == 0


def test_reads_outside_of_the_log_are_out_of_range(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch([b"a", b"b"]))
    assert log.read(2, 100, up_to_offset=2).size == 0
    for offset in (-1, 3):
        with pytest.raises(ApiError) as error:
            log.read(offset, 100, up_to_offset=2)
        assert error.value.code is ErrorCode.offset_out_of_range


def test_a_slice_stays_readable_after_its_segment_was_deleted(tmp_path: Path) -> None:
    log = open_log(tmp_path, topic_config(segment_bytes=500))
    for index in range(20):
        append(log, batch([b"%03d" % index * 30]))
    piece = log.read(0, 10_000, up_to_offset=20)
    before = piece.read()
    log.delete_records_before(20)
    log.remove_deleted_files()
    log.close()
    assert piece.read() == before
    assert len(before) == piece.size > 0


@pytest.mark.parametrize(
    ("settings", "batches", "segments"),
    [
        ({"segment_bytes": 300}, [batch([bytes(60)])] * 4, 2),
        ({"segment_ms": 1000}, [batch(timestamp_ms=t) for t in (0, 500, 1000, 1001, 1002)], 2),
        ({"segment_index_bytes": 1024, "index_interval_bytes": 0}, [batch()] * 200, 3),
    ],
    ids=["size", "time between first and new batch", "full index"],
)
def test_a_segment_rolls_by(tmp_path: Path, settings: dict[str, int], batches: list[bytearray], segments: int) -> None:
    log = open_log(tmp_path, topic_config(**settings))
    rolled = [append(log, each).rolled for each in batches]
    assert len(log.segments) == segments
    assert rolled.count(True) == segments - 1
    assert len(all_records(log)) == len(batches)


def test_a_batch_larger_than_a_segment_is_refused(tmp_path: Path) -> None:
    log = open_log(tmp_path, topic_config(segment_bytes=500))
    with pytest.raises(ApiError) as error:
        append(log, batch([bytes(1000)]))
    assert error.value.code is ErrorCode.record_list_too_large
    assert log.log_end_offset == 0


def test_config_changes_take_effect_while_running(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch([bytes(400)]))
    log.config = topic_config(segment_bytes=500, flush_messages=2)
    info = append(log, batch([bytes(400)]))
    assert info.rolled
    assert info.flush_needed


def test_flush_messages_asks_for_a_flush_until_one_was_done(tmp_path: Path) -> None:
    log = open_log(tmp_path, topic_config(flush_messages=3))
    assert [append(log, batch()).flush_needed for _ in range(3)] == [False, False, True]
    log.flush()
    assert log.recovery_point == 3
    assert not append(log, batch()).flush_needed


def test_flush_up_to_an_offset_moves_the_recovery_point_there_and_never_back(tmp_path: Path) -> None:
    log = open_log(tmp_path, topic_config(segment_bytes=500))
    for _ in range(20):
        append(log, batch([bytes(100)]))
    log.flush(10)
    assert log.recovery_point == 10
    log.flush(5)
    assert log.recovery_point == 10
    log.flush(1000)
    assert log.recovery_point == 20


def test_a_follower_keeps_offsets_epochs_and_gaps(tmp_path: Path) -> None:
    leader = open_log(tmp_path / "leader")
    append(leader, batch([b"a", b"b"]), leader_epoch=3)
    leader.truncate_fully_and_start_at(10, now_ms=NOW_MS)
    append(leader, batch([b"c"]), leader_epoch=5)
    follower = open_log(tmp_path / "follower")
    _copy(leader, follower, 10)
    assert all_records(follower) == [(10, b"c")]
    assert (follower.log_start_offset, follower.log_end_offset, follower.latest_epoch) == (0, 11, 5)
    with pytest.raises(UnexpectedOffsetError):
        _copy(leader, follower, 10)


def _copy(leader: Log, follower: Log, offset: int) -> None:
    buffer = memoryview(bytearray(leader.read(offset, 10_000, up_to_offset=leader.log_end_offset).read()))
    follower.append_as_follower(buffer, 0, len(buffer), check_batches(buffer, 0, len(buffer)), now_ms=NOW_MS)


class DiskThatFills(FileSystem):
    """Takes `room` more bytes, then none."""

    room = 1 << 30

    def pwrite(self, descriptor: int, content: Buffer, position: int) -> int:
        fitting = memoryview(content)[: self.room]
        if not fitting:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.room -= len(fitting)
        return os.pwrite(descriptor, fitting, position)


def test_an_append_that_fails_half_way_leaves_the_log_as_it_was(tmp_path: Path) -> None:
    disk = DiskThatFills()
    log = Log.open(disk, str(tmp_path / "events-0"), config=topic_config(), now_ms=NOW_MS)
    append(log, batch([b"good"]))
    disk.room = 30
    with pytest.raises(OSError, match="No space"):
        append(log, batch([b"lost" * 100]))
    disk.room = 1 << 30
    append(log, batch([b"next"]))
    assert all_records(log) == [(0, b"good"), (1, b"next")]
    log.close()
    assert all_records(open_log(tmp_path)) == [(0, b"good"), (1, b"next")]
