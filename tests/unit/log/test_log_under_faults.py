"""What a failing disk, a death or a loss of power may do to a log, and what not.

The machines try everything in any order; what they have found once stands below as a case of its own. `make soak` runs
them for longer.
"""

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from headwater.log.log import Log
from headwater.log.log_dirs import LogDirs
from headwater.testing.faulty_filesystem import FaultyFileSystem, MachineStoppedError

from .building import NOW_MS, all_records, append, batch, marker, open_log, topic_config
from .cleaning_faults_machine import CleaningUnderFaults
from .faults_machine import PARTITION, LogUnderFaults, check_offset_index, check_time_index

CONFIG = topic_config(segment_bytes=900, index_interval_bytes=150)

SETTINGS = settings(max_examples=150, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck))
TestLogUnderFaults = LogUnderFaults.TestCase
TestLogUnderFaults.settings = SETTINGS
TestCleaningUnderFaults = CleaningUnderFaults.TestCase
TestCleaningUnderFaults.settings = SETTINGS


def machines(count: int = 40) -> Iterator[FaultyFileSystem]:
    """Chance decides what a loss of power leaves: so many machines see most of it."""
    return (FaultyFileSystem(seed=seed, sector_bytes=64) for seed in range(count))


def log_on(fs: FaultyFileSystem, **options: Any) -> Log:
    return Log.open(fs, f"{fs.folder}/events-0", config=CONFIG, now_ms=NOW_MS, **options)


def dirs_on(fs: FaultyFileSystem, below: str = "") -> LogDirs:
    dirs = LogDirs.open(fs, [fs.folder + below], node_id=1)
    dirs.load(lambda topic: CONFIG, now_ms=NOW_MS)
    dirs.create(PARTITION, topic_id=None, config=CONFIG, now_ms=NOW_MS)
    return dirs


def test_the_log_ends_where_a_segment_lost_its_tail_although_later_ones_are_there(tmp_path: Path) -> None:
    log = open_log(tmp_path, topic_config(segment_bytes=200))
    for index in range(6):
        append(log, batch([b"%d" % index + bytes(50)]))
    log.abandon()
    cut = log.segments[1]
    with open(cut.path, "r+b") as file:
        file.truncate(0)
    again = open_log(tmp_path, topic_config(segment_bytes=200), clean=False)
    assert again.log_end_offset == cut.base_offset
    assert [offset for offset, _ in all_records(again)] == list(range(cut.base_offset))


def test_a_clean_stop_needs_no_recovery_even_when_the_power_goes_after_it() -> None:
    for fs in machines():
        log = log_on(fs)
        for index in range(12):
            append(log, batch([bytes(60)], timestamp_ms=NOW_MS + 10 * index, producer=(1, 0, index)))
        log.flush()
        log.truncate_to(9, now_ms=NOW_MS)
        before = all_records(log), log.active_producers(), log.leader_epochs.entries
        log.close()
        again = log_on(fs.lose_power(), clean=True)
        assert (all_records(again), again.active_producers(), again.leader_epochs.entries) == before
        for segment in again.segments:
            check_offset_index(segment)
            check_time_index(segment)


def test_a_clean_stop_also_brings_to_the_device_what_a_killed_process_wrote() -> None:
    for fs in machines():
        log = log_on(fs)
        for index in range(6):
            append(log, batch([bytes(60)], timestamp_ms=NOW_MS + 10 * index), leader_epoch=index // 3)
        following = fs.kill()
        log = log_on(following, clean=False)
        before = all_records(log), log.leader_epochs.entries
        log.close()
        again = log_on(following.lose_power(), clean=True)
        assert (all_records(again), again.leader_epochs.entries) == before
        check_offset_index(again.segments[0])
        check_time_index(again.segments[0])


def test_a_truncation_that_could_not_be_synced_is_synced_by_the_clean_stop_of_the_next_process() -> None:
    for fs in machines():
        log = log_on(fs)
        append(log, batch())
        log.flush()
        fs.fail("sync", errno.EIO, path_part=".log")
        with pytest.raises(OSError, match="Input/output"):
            log.truncate_to(0, now_ms=NOW_MS)
        following = fs.kill()
        log = log_on(following, clean=False)
        end_offset = log.log_end_offset
        log.close()
        assert log_on(following.lose_power(), clean=True).log_end_offset == end_offset


def test_the_mark_of_a_clean_stop_does_not_come_back() -> None:
    for fs in machines():
        dirs_on(fs).close()
        dirs = dirs_on(fs)
        append(dirs.logs[PARTITION], batch())
        dirs = dirs_on(fs.lose_power())
        assert not dirs.dirs[0].was_clean
        dirs.abandon()


def test_a_log_dir_that_was_just_made_is_there_after_a_loss_of_power() -> None:
    for fs in machines():
        dirs = dirs_on(fs, "/new/data")
        append(dirs.logs[PARTITION], batch([b"kept"]))
        dirs.logs[PARTITION].flush()
        dirs = dirs_on(fs.lose_power(), "/new/data")
        assert all_records(dirs.logs[PARTITION]) == [(0, b"kept")]
        dirs.abandon()


def test_names_that_a_killed_process_left_unsynced_are_synced_by_the_next() -> None:
    for fs in machines():
        append(log_on(fs), batch([b"first"]))
        following = fs.kill()
        log = log_on(following, clean=False)
        append(log, batch([b"second"]))
        log.flush()
        assert all_records(log_on(following.lose_power(), clean=False)) == [(0, b"first"), (1, b"second")]


def test_a_leader_epoch_that_could_not_be_written_is_written_with_the_next_batch() -> None:
    fs = FaultyFileSystem()
    log = log_on(fs)
    fs.fail("open", errno.ENOSPC, path_part="leader-epoch")
    with pytest.raises(OSError, match="space"):
        append(log, batch(), leader_epoch=4)
    append(log, batch(), leader_epoch=4)
    log.close()
    assert log_on(fs).leader_epochs.entries == [(4, 0)]


@pytest.mark.parametrize("file", [".log", ".index", ".timeindex", ".snapshot"])
def test_a_roll_that_failed_half_way_hides_nothing_that_is_appended_after_it(file: str) -> None:
    fs = FaultyFileSystem()
    log = log_on(fs)
    append(log, batch([b"first"], producer=(1, 0, 0)))
    log.flush()
    fs.fail("open", errno.ENOSPC, path_part=f"1{file}")
    with pytest.raises(OSError, match="space"):
        log.roll(NOW_MS)
    append(log, batch([b"second"], producer=(1, 0, 1)))
    again = log_on(fs.kill(), clean=False, recovery_point=1)
    assert all_records(again) == [(0, b"first"), (1, b"second")]
    assert append(again, batch([b"second"], producer=(1, 0, 1))).duplicate


def test_an_abort_is_known_although_its_index_could_not_be_written() -> None:
    fs = FaultyFileSystem()
    log = log_on(fs)
    append(log, batch([b"undone"], producer=(3, 0, 0), transactional=True))
    fs.fail("open", errno.ENOSPC, path_part=".txnindex")
    append(log, marker(3, 0, commit=False))
    expected = [(3, 0, 1)]
    assert [txn[:3] for txn in log.aborted_transactions(0, 2)] == expected
    log.roll(NOW_MS)
    log.close()
    assert [txn[:3] for txn in log_on(fs).aborted_transactions(0, 2)] == expected


def test_aborts_that_recovery_indexed_are_known_after_a_loss_of_power() -> None:
    for fs in machines():
        log = log_on(fs)
        append(log, batch([b"undone"], producer=(3, 0, 0), transactional=True))
        append(log, marker(3, 0, commit=False))
        log.roll(NOW_MS)
        recovered = fs.kill()
        log = log_on(recovered, clean=False)
        append(log, batch([b"more"]))
        log.flush()
        again = log_on(recovered.lose_power(), clean=False, recovery_point=log.recovery_point)
        assert [txn[:3] for txn in again.aborted_transactions(0, 2)] == [(3, 0, 1)]


def test_the_indexes_of_a_segment_sealed_after_the_last_flush_are_not_trusted(tmp_path: Path) -> None:
    log = open_log(tmp_path, CONFIG)
    for index in range(6):
        append(log, batch([bytes(60)], timestamp_ms=NOW_MS + 10 * index))
    log.flush()
    log.roll(NOW_MS)
    log.abandon()
    times = Path(log.segments[0].stem + ".timeindex")
    times.write_bytes(times.read_bytes()[:-12])
    again = open_log(tmp_path, CONFIG, clean=False, recovery_point=log.recovery_point)
    assert again.offset_for_timestamp(NOW_MS + 50, 6) == (NOW_MS + 50, 5, 0)


def test_what_a_full_disk_left_behind_a_segment_does_not_come_back_and_cut_the_log() -> None:
    for fs in machines():
        log = log_on(fs)
        fs.free_bytes = 200
        with pytest.raises(OSError, match="No space left"):
            append(log, batch([bytes(400)]))
        fs.free_bytes = None
        # Shorter than what the failed append wrote: some of that lies behind it, on the device too.
        append(log, batch([b"first"]))
        log.flush()
        log.roll(NOW_MS)
        append(log, batch([b"second"]))
        log.flush()
        again = log_on(fs.lose_power(), clean=False)
        assert [offset for offset, _ in all_records(again)] == [0, 1]


def test_a_deletion_that_the_power_cuts_short_takes_nothing_else_along() -> None:
    outcomes = set()
    for calls in range(1, 12):
        for fs in machines(10):
            dirs = dirs_on(fs)
            log = dirs.logs[PARTITION]
            append(log, batch([b"old"]))
            log.roll(NOW_MS)
            append(log, batch([b"new", b"newer"]))
            log.flush()
            fs.stop_after(calls)
            with contextlib.suppress(MachineStoppedError):
                log.delete_records_before(1)
            dirs.abandon()
            again = dirs_on(fs.lose_power())
            outcomes.add(tuple(offset for offset, _ in all_records(again.logs[PARTITION])))
            again.abandon()
    assert outcomes == {(0, 1, 2), (1, 2)}


def test_records_written_after_a_recovery_that_cut_are_not_taken_for_flushed() -> None:
    fs = FaultyFileSystem()
    dirs = dirs_on(fs)
    append(dirs.logs[PARTITION], batch())
    dirs.logs[PARTITION].flush()
    dirs.checkpoint()
    fs.truncate(dirs.logs[PARTITION].segments[0].open_file().descriptor, 10)
    fs = fs.kill()
    append(dirs_on(fs).logs[PARTITION], batch([b"not flushed"]))
    dirs = dirs_on(fs.kill())
    assert dirs.logs[PARTITION].recovery_point == 0
    dirs.abandon()


def test_a_checkpointed_start_does_not_move_back() -> None:
    for fs in machines():
        dirs = dirs_on(fs)
        log = dirs.logs[PARTITION]
        append(log, batch())
        log.roll(NOW_MS)
        append(log, batch())
        log.flush()
        log.delete_records_before(1)
        dirs.checkpoint()
        dirs = dirs_on(fs.lose_power())
        assert dirs.logs[PARTITION].log_start_offset == 1
        dirs.abandon()


def test_epochs_of_batches_that_came_back_are_those_of_the_batches() -> None:
    for fs in machines():
        log = log_on(fs)
        for epoch in (1, 2):
            append(log, batch(), leader_epoch=epoch)
        log.flush()
        log.truncate_to(1, now_ms=NOW_MS)
        append(log, batch([b"other"]), leader_epoch=3)
        again = log_on(fs.lose_power(), clean=False, recovery_point=1)
        for segment in again.segments:
            for stored in segment.batches():
                assert again.leader_epochs.epoch_of(stored.header.base_offset) == stored.header.leader_epoch


def test_what_was_cut_does_not_come_back_behind_newer_records() -> None:
    for fs in machines():
        log = log_on(fs)
        for name in (b"old0", b"old1", b"old2"):
            append(log, batch([name]))
            log.roll(NOW_MS)
        log.flush()
        log.truncate_to(0, now_ms=NOW_MS)
        append(log, batch([b"new0"]))
        again = log_on(fs.lose_power(), clean=False, recovery_point=0)
        assert [value for _, value in all_records(again)] in ([], [b"new0"])


def test_after_a_failed_sync_no_flush_calls_the_lost_records_safe() -> None:
    for fs in machines():
        log = log_on(fs)
        append(log, batch([b"safe"]))
        log.flush()
        append(log, batch([b"lost"]))
        fs.fail("sync", errno.EIO)
        with pytest.raises(OSError, match="Input/output"):
            log.flush()
        promised = 1
        try:
            log.flush()
        except OSError:
            pass
        else:
            promised = log.recovery_point
        again = log_on(fs.lose_power(), clean=False, recovery_point=log.recovery_point)
        assert len(all_records(again)) >= promised
