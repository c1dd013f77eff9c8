"""Retention: whole segments go, the oldest first, by age and by size, and never what is not committed."""

from pathlib import Path

import pytest

from headwater.log.log import Log
from headwater.log.retention import delete_old_segments

from .building import NOW_MS, all_records, append, batch, open_log, topic_config

HOUR_MS = 3_600_000


def filled(path: Path, count: int = 20, **config: object) -> Log:
    """One record an hour, the last one now; four records a segment."""
    log = open_log(path, topic_config(segment_bytes=700, segment_ms=HOUR_MS * 10_000, **config))
    for index in range(count):
        append(log, batch([bytes(100)], timestamp_ms=NOW_MS - (count - 1 - index) * HOUR_MS))
    return log


def retain(log: Log, now_ms: int = NOW_MS, high_watermark: int | None = None) -> int:
    up_to = log.log_end_offset if high_watermark is None else high_watermark
    return delete_old_segments(log, high_watermark=up_to, now_ms=now_ms)


def test_segments_go_when_their_youngest_record_is_too_old(tmp_path: Path) -> None:
    log = filled(tmp_path, retention_ms=10 * HOUR_MS)
    first, second, third, *_ = log.segments
    assert retain(log) == 2
    assert [segment.base_offset for segment in log.segments][:1] == [third.base_offset]
    assert log.log_start_offset == third.base_offset == all_records(log)[0][0]
    assert max(first.max_timestamp_ms, second.max_timestamp_ms) < NOW_MS - 10 * HOUR_MS <= third.max_timestamp_ms
    assert retain(log) == 0


def test_the_age_is_that_of_the_youngest_record_wherever_it_is(tmp_path: Path) -> None:
    log = open_log(tmp_path, topic_config(segment_bytes=700, retention_ms=HOUR_MS))
    append(log, batch([bytes(100)], timestamp_ms=NOW_MS))
    for _ in range(10):
        append(log, batch([bytes(100)], timestamp_ms=NOW_MS - 5 * HOUR_MS))
    assert retain(log) == 0, "a young segment keeps the older ones behind it"
    assert retain(log, now_ms=NOW_MS + HOUR_MS + 1) == 3


def test_when_everything_is_too_old_the_active_segment_goes_too(tmp_path: Path) -> None:
    log = filled(tmp_path, retention_ms=HOUR_MS)
    count = len(log.segments)
    assert retain(log, now_ms=NOW_MS + HOUR_MS) < count
    assert retain(log, now_ms=NOW_MS + HOUR_MS + 1) == 1
    assert (log.log_start_offset, log.log_end_offset) == (20, 20)
    assert [(segment.base_offset, segment.size) for segment in log.segments] == [(20, 0)]
    assert retain(log, now_ms=NOW_MS + 1000 * HOUR_MS) == 0, "an empty segment has no age"
    assert append(log, batch([b"next"])).first_offset == 20


def test_the_oldest_go_until_the_log_would_be_too_small(tmp_path: Path) -> None:
    log = filled(tmp_path, retention_ms=-1)
    sizes = [segment.size for segment in log.segments]
    log.config = topic_config(retention_ms=-1, retention_bytes=sum(sizes[2:]))
    assert retain(log) == 2
    assert log.size_bytes == sum(sizes[2:])
    log.config = topic_config(retention_ms=-1, retention_bytes=sum(sizes[2:]) - 1)
    assert retain(log) == 0, "a segment goes only when enough is left without it"


def test_minus_1_keeps_for_ever(tmp_path: Path) -> None:
    log = filled(tmp_path, retention_ms=-1, retention_bytes=-1)
    assert retain(log, now_ms=NOW_MS * 2) == 0


def test_a_topic_that_only_compacts_keeps_its_records(tmp_path: Path) -> None:
    log = filled(tmp_path, retention_ms=1, retention_bytes=1, cleanup_policy="compact")
    assert retain(log) == 0
    log.config = topic_config(retention_ms=1, cleanup_policy="compact,delete")
    assert retain(log) > 0


@pytest.mark.parametrize(("retention_ms", "retention_bytes"), [(1, -1), (-1, 0)])
def test_the_high_watermark_is_never_passed(tmp_path: Path, retention_ms: int, retention_bytes: int) -> None:
    log = filled(tmp_path, retention_ms=retention_ms, retention_bytes=retention_bytes)
    third = log.segments[2].base_offset
    assert retain(log, now_ms=NOW_MS + HOUR_MS, high_watermark=third + 1) == 2
    assert log.log_start_offset == third
    retain(log, now_ms=NOW_MS + HOUR_MS)
    assert log.log_start_offset == log.log_end_offset


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_what_is_before_the_logs_start_goes_whatever_the_policy(tmp_path: Path, policy: str) -> None:
    log = filled(tmp_path, retention_ms=-1)
    third = log.segments[2].base_offset
    log.close()
    again = open_log(tmp_path, topic_config(retention_ms=-1, cleanup_policy=policy), log_start_offset=third + 1)
    assert again.segments[0].base_offset == 0
    assert retain(again) == 2
    assert (again.segments[0].base_offset, again.log_start_offset) == (third, third + 1)


def test_records_without_a_time_are_as_old_as_their_file(tmp_path: Path) -> None:
    log = open_log(tmp_path, topic_config(segment_bytes=700, retention_ms=HOUR_MS))
    for _ in range(10):
        append(log, batch([bytes(100)], timestamp_ms=-1))
    log.fs.set_modified_ms(log.segments[0].path, NOW_MS - HOUR_MS - 1)
    log.fs.set_modified_ms(log.segments[1].path, NOW_MS)
    assert retain(log) == 1


def test_the_files_wait_under_another_name(tmp_path: Path) -> None:
    log = filled(tmp_path, retention_ms=10 * HOUR_MS)
    names = {Path(path).name for path in (log.segments[0].path, log.segments[1].path)}
    retain(log)
    present = {file.name for file in Path(log.path).iterdir()}
    assert {f"{name}.deleted" for name in names} <= present
    assert not names & present
    files = log.take_deleted_files()
    assert log.remove_deleted_files() == 0, "whoever took them unlinks them"
    assert log.remove_files(files) == 6
    assert not [file for file in Path(log.path).iterdir() if file.suffix == ".deleted"]


def test_the_new_start_outlives_a_restart(tmp_path: Path) -> None:
    log = filled(tmp_path, retention_ms=10 * HOUR_MS)
    retain(log)
    start, left = log.log_start_offset, all_records(log)
    log.abandon()
    again = open_log(tmp_path, clean=False)
    assert (again.log_start_offset, all_records(again)) == (start, left)


def test_a_shorter_age_set_while_running_takes_effect(tmp_path: Path) -> None:
    log = filled(tmp_path, retention_ms=-1)
    assert retain(log) == 0
    log.config = topic_config(retention_ms=0)
    assert retain(log, now_ms=NOW_MS + 1) == 5


class TestRolling:
    """When a segment is finished before it is full."""

    def test_by_age(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, topic_config(segment_ms=1000))
        for passed_ms in (0, 1000, 1001, 2001, 2002):
            append(log, batch(timestamp_ms=NOW_MS + passed_ms))
        assert [segment.base_offset for segment in log.segments] == [0, 2, 4]

    def test_by_an_age_set_while_running(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, topic_config(segment_ms=HOUR_MS))
        append(log, batch())
        append(log, batch(timestamp_ms=NOW_MS + 100))
        log.config = topic_config(segment_ms=100)
        append(log, batch(timestamp_ms=NOW_MS + 101))
        assert [segment.base_offset for segment in log.segments] == [0, 2]

    def test_jitter_takes_some_of_the_age_off(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, topic_config(segment_ms=1000, segment_jitter_ms=500))
        jitters = set()
        for index in range(60):
            log.roll(NOW_MS)
            jitter_ms = log.segments[-1].jitter_ms
            jitters.add(jitter_ms)
            began_ms = NOW_MS + index * 10_000
            append(log, batch(timestamp_ms=began_ms))
            append(log, batch(timestamp_ms=began_ms + 1000 - jitter_ms))
            assert log.segments[-1].base_offset == log.log_end_offset - 2
            append(log, batch(timestamp_ms=began_ms + 1001 - jitter_ms))
            assert log.segments[-1].base_offset == log.log_end_offset - 1
        assert len(jitters) > 10
        assert all(0 <= jitter_ms < 500 for jitter_ms in jitters)

    def test_by_a_full_index(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, topic_config(index_interval_bytes=100, segment_index_bytes=120))
        for _ in range(60):
            append(log, batch([bytes(100)]))
        assert len(log.segments) > 3
        for segment in log.segments[:-1]:
            offset_bytes, time_bytes = segment.index_sizes
            assert offset_bytes <= 120
            assert time_bytes <= 120
