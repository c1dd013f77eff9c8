"""Promises of docs/durability.md, and where they end, that no other test shows."""

import errno

import pytest

from headwater.log.checkpoints import CLEAN_SHUTDOWN
from headwater.log.log import Log
from headwater.log.log_dirs import LogDirs
from headwater.testing.faulty_filesystem import FaultyFileSystem

from .building import NOW_MS, all_records, append, batch, topic_config
from .faults_machine import PARTITION

EACH_RECORD = topic_config(flush_messages=1)


def dirs_on(fs: FaultyFileSystem) -> LogDirs:
    dirs = LogDirs.open(fs, [fs.folder], node_id=1)
    dirs.load(lambda topic: EACH_RECORD, now_ms=NOW_MS)
    dirs.create(PARTITION, topic_id=None, config=EACH_RECORD, now_ms=NOW_MS)
    return dirs


def log_on(fs: FaultyFileSystem) -> Log:
    return dirs_on(fs).logs[PARTITION]


def test_a_repeated_batch_is_acknowledged_after_a_flush_like_the_first() -> None:
    log = log_on(FaultyFileSystem())
    first = batch(producer=(1, 0, 0))
    assert append(log, first).flush_needed
    again = append(log, first)
    assert (again.duplicate, again.flush_needed) == (True, True)
    log.flush()
    again = append(log, first)
    assert (again.duplicate, again.flush_needed) == (True, False)


def test_a_batch_that_is_repeated_after_a_kill_is_flushed_before_its_answer() -> None:
    fs = FaultyFileSystem()
    append(log_on(fs), batch([b"once"], producer=(1, 0, 0)))
    killed = fs.kill()
    log = log_on(killed)
    assert append(log, batch([b"once"], producer=(1, 0, 0))).flush_needed
    log.flush()
    assert all_records(log_on(killed.lose_power())) == [(0, b"once")]


def test_after_a_kill_the_start_is_the_one_that_was_last_written_down() -> None:
    fs = FaultyFileSystem()
    dirs = dirs_on(fs)
    log = dirs.logs[PARTITION]
    append(log, batch([b"0", b"1", b"2"]))
    log.delete_records_before(1)
    dirs.checkpoint()
    log.delete_records_before(2)
    assert log_on(fs.kill()).log_start_offset == 1


def test_a_stop_that_could_not_flush_leaves_no_mark_and_the_next_start_checks_the_log() -> None:
    fs = FaultyFileSystem()
    dirs = dirs_on(fs)
    append(dirs.logs[PARTITION], batch())
    fs.fail("sync", errno.EIO, path_part=".log")
    dirs.close()
    assert not fs.exists(f"{fs.folder}/{CLEAN_SHUTDOWN}")
    assert not dirs_on(fs.kill()).dirs[0].was_clean


@pytest.mark.parametrize("flushed", [0, 5])
def test_without_a_flush_power_takes_a_tail_and_nothing_else(flushed: int) -> None:
    lost = 0
    for seed in range(30):
        fs = FaultyFileSystem(seed=seed, sector_bytes=64)
        log = log_on(fs)
        for number in range(10):
            append(log, batch([b"%d" % number]))
            if number + 1 == flushed:
                log.flush()
        found = all_records(log_on(fs.lose_power()))
        assert found == [(number, b"%d" % number) for number in range(len(found))]
        assert len(found) >= flushed
        lost += len(found) < 10
    assert lost, "no power was lost at a bad moment"
