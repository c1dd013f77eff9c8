"""Compaction: of each key the newest record stays, at its offset, and everything that reads or writes goes on."""

import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.log.cleaning.cleanable import find_cleanable
from headwater.log.log import Log
from headwater.log.segment import CorruptSegmentError
from headwater.log.segment_swap import CleaningAbortedError
from headwater.protocol.records import check_batches, scan_headers

from .building import NOW_MS, all_records, append, open_log
from .cleaning import (
    DAY_MS,
    begin_cleaning,
    clean_once,
    compacted,
    file_names,
    keyed,
    limits,
    newest_of_each_key,
    offsets,
    stored_batches,
    survivors,
    take_steps,
    to_clean,
)

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def put_at(log: Log, offset: int, key: bytes) -> None:
    """One record at an offset of its own, as a follower gets it."""
    batch = memoryview(keyed((key, b"value of %d" % offset), base_offset=offset, leader_epoch=0))
    log.append_as_follower(batch, 0, len(batch), check_batches(batch, 0, len(batch)), now_ms=NOW_MS)


def filled(path: Path, count: int = 40, keys: int = 7, **config: object) -> Log:
    """Batches of three records over few keys, in many small segments."""
    log = open_log(path, compacted(**config))  # type: ignore[arg-type]
    for index in range(count):
        append(log, keyed(*((b"k%d" % ((5 * index + step) % keys), b"%d" % index) for step in range(3))))
    return log


def test_the_example_of_the_documents(tmp_path: Path) -> None:
    log = open_log(tmp_path, compacted())
    log.truncate_fully_and_start_at(13, now_ms=NOW_MS)
    keys = [b"K1", b"K5", b"K2", b"K7", b"K8", b"K4", b"K1", b"K1", b"K1", b"K9", b"K8", b"K2"]
    for offset, key in zip([13, 17, *range(19, 29)], keys, strict=True):
        put_at(log, offset, key)
    log.roll(NOW_MS)
    clean_once(log)
    assert offsets(log) == [17, 20, 22, 25, 26, 27, 28]
    assert [key for _, key, _ in survivors(log)] == [b"K5", b"K7", b"K4", b"K1", b"K9", b"K8", b"K2"]


def test_the_newest_of_each_key_stays_and_the_active_segment_is_left_alone(tmp_path: Path) -> None:
    log = filled(tmp_path)
    before, active = survivors(log), log.segments[-1]
    clean_once(log)
    assert offsets(log) == newest_of_each_key(before, active.base_offset)
    assert set(survivors(log)) <= set(before)
    assert log.segments[-1] is active
    assert log.cleaned_until == active.base_offset
    assert log.log_end_offset == 120


def test_a_cleaned_log_is_the_same_after_a_restart(tmp_path: Path) -> None:
    log = filled(tmp_path)
    clean_once(log)
    expected = survivors(log)
    log.remove_deleted_files()
    assert not [name for name in file_names(log) if name.endswith((".deleted", ".cleaned", ".swap"))]
    log.close()
    assert survivors(open_log(tmp_path, compacted())) == expected
    again = open_log(tmp_path, compacted(), clean=False)
    assert survivors(again) == expected
    assert again.log_end_offset == 120


def test_small_segments_become_one_within_the_limits(tmp_path: Path) -> None:
    log = filled(tmp_path, count=60, segment_bytes=600)
    sealed = len(log.segments) - 1
    clean_once(log)
    assert len(log.segments) - 1 == sealed, "sizes before cleaning count"
    append(log, keyed((b"k1", b"x")))
    log.roll(NOW_MS)
    clean_once(log)
    assert len(log.segments) - 1 < sealed
    assert all(segment.size <= 600 for segment in log.segments)


def test_a_reader_at_an_offset_that_is_gone_gets_the_next_record(tmp_path: Path) -> None:
    log = filled(tmp_path)
    clean_once(log)
    left = all_records(log)
    for offset in range(log.log_end_offset):
        content = log.read(offset, 1 << 20, up_to_offset=log.log_end_offset).read()
        first = scan_headers(content, 0, len(content))[0]
        assert first.last_offset >= offset
        assert not [other for other, _ in left if offset <= other < first.base_offset]


@pytest.mark.parametrize("codec", range(5), ids=CODECS)
def test_a_batch_that_loses_records_keeps_its_fields(tmp_path: Path, codec: int) -> None:
    log = open_log(tmp_path, compacted())
    producer = {"producer_id": 9, "producer_epoch": 2, "base_sequence": 30, "compression": codec}
    records = [(b"a", b"1"), (b"b", b"2"), (b"c", b"3"), (b"d", b"4")]
    append(log, keyed(*records, timestamp_ms=NOW_MS - 50, **producer))
    append(log, keyed((b"a", b"new"), (b"c", b"new")))
    log.roll(NOW_MS)
    before = stored_batches(log)
    clean_once(log)
    (header, left), (untouched, _), *_ = stored_batches(log)
    assert [(record.offset, record.key, record.value) for record in left] == [(1, b"b", b"2"), (3, b"d", b"4")]
    assert {record.timestamp_ms for record in left} == {NOW_MS - 50}
    assert (header.base_offset, header.last_offset, header.last_sequence) == (0, 3, 33)
    assert (header.producer_id, header.producer_epoch, header.compression) == (9, 2, codec)
    assert untouched.crc == before[1][0].crc


def test_a_batch_that_loses_nothing_is_copied_byte_for_byte(tmp_path: Path) -> None:
    log = open_log(tmp_path, compacted())
    for index in range(10):
        append(log, keyed((b"%d" % index, b"value"), (b"also %d" % index, b"value"), compression=index % 5))
    log.roll(NOW_MS)
    before = b"".join(Path(segment.path).read_bytes() for segment in log.segments)
    clean_once(log)
    assert b"".join(Path(segment.path).read_bytes() for segment in log.segments) == before


def test_a_record_without_a_key_goes(tmp_path: Path) -> None:
    log = open_log(tmp_path, compacted())
    append(log, keyed((None, b"from before the topic was compacted"), (b"k", b"v")))
    log.roll(NOW_MS)
    clean_once(log)
    assert offsets(log) == [1]


def test_a_tombstone_stays_readable_for_a_while_after_its_first_cleaning(tmp_path: Path) -> None:
    log = open_log(tmp_path, compacted(delete_retention_ms=DAY_MS))
    append(log, keyed((b"k", b"value"), (b"other", b"value"), timestamp_ms=NOW_MS - 10 * DAY_MS))
    append(log, keyed((b"k", None), (b"also", b"value"), timestamp_ms=NOW_MS - 10 * DAY_MS))
    log.roll(NOW_MS)
    clean_once(log)
    assert survivors(log) == [(1, b"other", b"value"), (2, b"k", None), (3, b"also", b"value")]
    (_, _), (header, records), *_ = stored_batches(log)
    assert header.delete_horizon_ms == NOW_MS + DAY_MS
    assert [record.timestamp_ms for record in records] == [NOW_MS - 10 * DAY_MS] * 2
    assert header.max_timestamp_ms == NOW_MS - 10 * DAY_MS

    append(log, keyed((b"x", b"1")))
    log.roll(NOW_MS)
    clean_once(log, now_ms=NOW_MS + DAY_MS - 1)
    assert offsets(log) == [1, 2, 3, 4]

    append(log, keyed((b"y", b"1")))
    log.roll(NOW_MS)
    clean_once(log, now_ms=NOW_MS + DAY_MS)
    assert offsets(log) == [1, 3, 4, 5]


def test_times_are_found_in_a_cleaned_log(tmp_path: Path) -> None:
    log = open_log(tmp_path, compacted())
    for index in range(40):
        append(log, keyed((b"k%d" % (index % 11), b"v"), timestamp_ms=NOW_MS + 10 * index))
    clean_once(log)
    log.close()
    log = open_log(tmp_path, compacted())
    left = {record.timestamp_ms: record.offset for _, records in stored_batches(log) for record in records}
    for time_ms in range(NOW_MS - 5, max(left) + 1, 5):
        found = log.offset_for_timestamp(time_ms, log.log_end_offset)
        assert found is not None
        assert found.offset == min(offset for at_ms, offset in left.items() if at_ms >= time_ms)


def test_the_last_batch_of_a_producer_stays_as_an_empty_one(tmp_path: Path) -> None:
    log = open_log(tmp_path, compacted())
    append(log, keyed((b"k", b"1"), producer_id=5, producer_epoch=0, base_sequence=0))
    append(log, keyed((b"k", b"2"), (b"k", b"3"), producer_id=5, producer_epoch=0, base_sequence=1))
    append(log, keyed((b"k", b"4")))
    log.roll(NOW_MS)
    clean_once(log)
    assert [(header.base_offset, header.last_offset, len(records)) for header, records in stored_batches(log)] == [
        (1, 2, 0),
        (3, 3, 1),
    ]
    log.abandon()
    for snapshot in Path(log.path).glob("*.snapshot"):
        snapshot.unlink()
    again = open_log(tmp_path, compacted(), clean=False)
    repeated = keyed((b"k", b"2"), (b"k", b"3"), producer_id=5, producer_epoch=0, base_sequence=1)
    info = append(again, repeated)
    assert (info.duplicate, info.first_offset, info.last_offset) == (True, 1, 2)
    assert append(again, keyed((b"k", b"5"), producer_id=5, producer_epoch=0, base_sequence=3)).first_offset == 4


def test_a_forgotten_producers_batch_goes_altogether(tmp_path: Path) -> None:
    log = open_log(tmp_path, compacted())
    append(log, keyed((b"k", b"1"), producer_id=5, producer_epoch=0, base_sequence=0))
    append(log, keyed((b"k", b"2")))
    log.roll(NOW_MS)
    log.remove_expired_producers(NOW_MS + 2 * DAY_MS)
    clean_once(log)
    assert [header.base_offset for header, _ in stored_batches(log)] == [1]


def test_the_last_offset_cleaned_stays_known_by_an_empty_batch(tmp_path: Path) -> None:
    log = open_log(tmp_path, compacted())
    append(log, keyed((b"k", b"1")))
    append(log, keyed((None, b"no key")))
    log.roll(NOW_MS)
    clean_once(log)
    assert [(header.base_offset, len(records)) for header, records in stored_batches(log)] == [(0, 1), (1, 0)]


def test_a_small_map_takes_several_rounds_to_the_same_end(tmp_path: Path) -> None:
    small = limits(map_bytes=24 * 10, map_load=0.5)
    several, whole = filled(tmp_path / "several", keys=11), filled(tmp_path / "whole", keys=11)
    clean_once(whole)
    rounds = 0
    while find_cleanable(several, stable_offset=several.last_stable_offset, now_ms=NOW_MS):
        done = several.cleaned_until
        clean_once(several, within=small)
        assert several.cleaned_until > done
        rounds += 1
    assert rounds > 5
    assert survivors(several) == survivors(whole)


@settings(max_examples=60, deadline=None)
@given(
    history=st.lists(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=4), max_size=25),
    cleanings=st.sets(st.integers(0, 24), max_size=4),
    map_keys=st.integers(3, 30),
)
def test_whatever_is_written_and_whenever_it_is_cleaned_the_newest_records_are_there(
    tmp_path_factory: pytest.TempPathFactory,
    history: list[list[tuple[int, bool]]],
    cleanings: set[int],
    map_keys: int,
) -> None:
    log = open_log(tmp_path_factory.mktemp("log"), compacted(segment_bytes=250))
    written: dict[int, tuple[int, bytes | None, bytes | None]] = {}
    for index, batch in enumerate(history):
        records = [(b"%d" % key, None if is_tombstone else b"%d" % index) for key, is_tombstone in batch]
        first = append(log, keyed(*records, compression=index % 5)).first_offset
        written.update({first + at: (first + at, *record) for at, record in enumerate(records)})
        if index in cleanings:
            log.roll(NOW_MS)
            clean_once(log, within=limits(map_bytes=24 * map_keys))
    left = survivors(log)
    assert left == [written[offset] for offset, _, _ in left]
    newest = {key: offset for offset, key, _ in written.values()}
    assert set(newest.values()) <= {offset for offset, _, _ in left}
    log.abandon()
    assert survivors(open_log(Path(log.path).parent, compacted(segment_bytes=250), clean=False)) == left


def test_reads_and_appends_go_on_between_the_steps(tmp_path: Path) -> None:
    log = filled(tmp_path)
    before, until = survivors(log), to_clean(log).first_uncleanable_offset
    held = log.read(0, 10_000, up_to_offset=log.log_end_offset)
    held_bytes = held.read()
    cleaning = begin_cleaning(log)
    for number, step in enumerate(cleaning.steps()):
        thread = threading.Thread(target=step)
        thread.start()
        before.append((append(log, keyed((b"while", b"%d" % number))).first_offset, b"while", b"%d" % number))
        thread.join()
        readable = {offset for offset, _ in all_records(log)}
        assert readable >= set(newest_of_each_key(before, until))
        assert held.read() == held_bytes
    cleaning.abandon()
    log.remove_deleted_files()
    assert held.read() == held_bytes
    assert offsets(log) == newest_of_each_key(before, until)


@pytest.mark.parametrize("after_steps", range(8))
def test_records_deleted_meanwhile_end_the_cleaning(tmp_path: Path, after_steps: int) -> None:
    log = filled(tmp_path)
    cleaning = begin_cleaning(log)
    with pytest.raises(CleaningAbortedError):
        take_steps(cleaning, after_steps, lambda: log.delete_records_before(20))
    cleaning.abandon()
    before = survivors(log)
    assert log.cleaned_until == 0
    assert log.log_start_offset == 20
    assert {b"k%d" % number for number in range(7)} == {key for _, key, _ in before}
    assert not [name for name in file_names(log) if name.endswith((".cleaned", ".swap"))]
    clean_once(log)
    assert offsets(log) == newest_of_each_key(before, log.cleaned_until)


@pytest.mark.parametrize("after_steps", range(5))
def test_a_truncation_meanwhile_ends_the_cleaning_and_is_final(tmp_path: Path, after_steps: int) -> None:
    log = filled(tmp_path)
    cleaning = begin_cleaning(log)
    with pytest.raises(CleaningAbortedError):
        take_steps(cleaning, after_steps, lambda: log.truncate_to(30, now_ms=NOW_MS))
    before = survivors(log)
    # As a crash would leave it: nothing that was truncated comes back.
    log.abandon()
    again = open_log(tmp_path, compacted(), clean=False)
    assert survivors(again) == before
    assert again.log_end_offset == 30


def test_a_log_that_is_deleted_meanwhile_ends_the_cleaning(tmp_path: Path) -> None:
    log = filled(tmp_path)
    cleaning = begin_cleaning(log)
    with pytest.raises((CleaningAbortedError, FileNotFoundError)):
        take_steps(cleaning, 1, log.delete)
    cleaning.abandon()


def test_a_stop_ends_the_cleaning_at_the_next_chunk(tmp_path: Path) -> None:
    log = filled(tmp_path)
    before, stopped = survivors(log), threading.Event()
    stopped.set()
    with pytest.raises(CleaningAbortedError):
        clean_once(log, within=limits(stopped=stopped))
    assert survivors(log) == before


@pytest.mark.parametrize("position", [0, 17, 70])
def test_damage_is_reported_with_its_place_and_nothing_is_changed(tmp_path: Path, position: int) -> None:
    log = filled(tmp_path)
    log.flush()
    victim = log.segments[2]
    content = bytearray(Path(victim.path).read_bytes())
    second = scan_headers(content, 0, len(content))[1].position
    content[second + position + 8] ^= 0xFF
    Path(victim.path).write_bytes(content)
    names = file_names(log)
    with pytest.raises(CorruptSegmentError) as error:
        clean_once(log)
    assert (error.value.path, error.value.position) == (victim.path, second)
    assert file_names(log) == names
    assert log.cleaned_until == 0


class TestWhatIsCleanable:
    """The dirty part of a log, and whether it is worth a cleaning."""

    def test_a_log_without_a_finished_segment_is_not(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, compacted())
        append(log, keyed((b"k", b"v")))
        assert find_cleanable(log, stable_offset=1, now_ms=NOW_MS) is None

    def test_the_dirty_ratio_decides(self, tmp_path: Path) -> None:
        log = filled(tmp_path, min_cleanable_dirty_ratio=0.5)
        assert to_clean(log).dirty_ratio == 1
        clean_once(log)
        clean_bytes = sum(segment.size for segment in log.segments[:-1])
        while not (cleanable := find_cleanable(log, stable_offset=log.log_end_offset, now_ms=NOW_MS)):
            assert log.size_bytes < 4 * clean_bytes
            append(log, keyed((b"k1", b"more")))
        assert cleanable.dirty_ratio > 0.5
        assert cleanable.dirty_bytes > clean_bytes == cleanable.clean_bytes

    def test_nothing_at_or_beyond_the_stable_offset(self, tmp_path: Path) -> None:
        log = filled(tmp_path)
        third = log.segments[2].base_offset
        cleanable = find_cleanable(log, stable_offset=third + 1, now_ms=NOW_MS)
        assert cleanable is not None
        assert cleanable.first_uncleanable_offset == third

    def test_nothing_younger_than_the_smallest_lag(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, compacted(min_compaction_lag_ms=1000))
        for index in range(40):
            append(log, keyed((b"k", b"v"), timestamp_ms=NOW_MS + 100 * index))
        cleanable = to_clean(log, now_ms=NOW_MS + 3000)
        first = next(s for s in log.segments if s.base_offset == cleanable.first_uncleanable_offset)
        assert 0 < first.base_offset < log.segments[-1].base_offset
        assert first.max_timestamp_ms > NOW_MS + 2000
        earlier = [s for s in log.segments if s.base_offset < first.base_offset]
        assert max(s.max_timestamp_ms for s in earlier) <= NOW_MS + 2000
        assert find_cleanable(log, stable_offset=40, now_ms=NOW_MS + 1000) is None

    def test_what_is_older_than_the_largest_lag_must_be(self, tmp_path: Path) -> None:
        log = filled(tmp_path, min_cleanable_dirty_ratio=1, max_compaction_lag_ms=1000)
        assert find_cleanable(log, stable_offset=log.log_end_offset, now_ms=NOW_MS + 1000) is None
        assert to_clean(log, now_ms=NOW_MS + 1001).is_overdue

    def test_the_largest_lag_finishes_segments_in_time(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, compacted(max_compaction_lag_ms=1000))
        append(log, keyed((b"k", b"v")))
        append(log, keyed((b"k", b"v"), timestamp_ms=NOW_MS + 1001))
        assert [segment.base_offset for segment in log.segments] == [0, 1]

    def test_a_truncated_log_is_dirty_from_there(self, tmp_path: Path) -> None:
        log = filled(tmp_path)
        clean_once(log)
        log.truncate_to(30, now_ms=NOW_MS)
        for _ in range(20):
            append(log, keyed((b"k1", b"v")))
        assert to_clean(log).first_dirty_offset == 30
