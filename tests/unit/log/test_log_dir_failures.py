"""A log dir that fails is let go of with its logs; the others are as they were."""

import errno
import os
from pathlib import Path
from uuid import UUID

import pytest

from headwater.log.disk_errors import is_passing
from headwater.log.log_dirs import LogDir, LogDirError, LogDirs
from headwater.testing.faulty_filesystem import FaultyFileSystem
from headwater.types import TopicPartition

from .building import NOW_MS, all_records, append, batch, topic_config

CONFIG = topic_config(segment_bytes=2000)
TOPIC_ID = UUID("5d26eb71-0d47-4bd0-92f0-24d5e1103c1d")
BROKEN = OSError(errno.EIO, os.strerror(errno.EIO))
IN_A, IN_B = TopicPartition("orders", 0), TopicPartition("orders", 1)


def open_dirs(fs: FaultyFileSystem, **options: object) -> LogDirs:
    dirs = LogDirs.open(fs, [f"{fs.folder}/a", f"{fs.folder}/b"], node_id=1)
    dirs.load(lambda topic: CONFIG, now_ms=NOW_MS, **options)  # type: ignore[arg-type]
    return dirs


def make(dirs: LogDirs, partition: TopicPartition, topic_id: UUID = TOPIC_ID) -> None:
    dirs.create(partition, topic_id=topic_id, config=CONFIG, now_ms=NOW_MS)


@pytest.fixture
def fs() -> FaultyFileSystem:
    return FaultyFileSystem()


@pytest.fixture
def dirs(fs: FaultyFileSystem) -> LogDirs:
    """Two dirs with a partition of one record in each."""
    dirs = open_dirs(fs)
    for partition in (IN_A, IN_B):
        make(dirs, partition)
        append(dirs.logs[partition], batch([b"kept"]))
    return dirs


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EMFILE, errno.ENFILE])
def test_what_passes_by_itself_is_no_failure(dirs: LogDirs, number: int) -> None:
    error = OSError(number, os.strerror(number))
    assert is_passing(error)
    dirs.notice(dirs.logs[IN_B], error)
    assert dirs.working == dirs.dirs
    dirs.abandon()


def test_a_failed_dir_is_let_go_of_and_told_of_once(dirs: LogDirs) -> None:
    told: list[LogDir] = []
    dirs.on_failure = told.append
    log, (good, bad) = dirs.logs[IN_B], dirs.dirs
    dirs.notice(log, BROKEN)
    dirs.notice(log, BROKEN)
    dirs.notice_in(bad, BROKEN)
    assert told == [bad]
    assert bad.failed == f"Input/output error ({bad.path}/orders-1)"
    assert dirs.working == [good]
    assert set(dirs.logs) == {IN_A}
    assert log.is_closed
    dirs.abandon()


def test_nobody_hears_of_a_flush_that_came_too_late(dirs: LogDirs) -> None:
    """A producer may be waiting for it: what is not on the device must not be acknowledged."""
    log = dirs.logs[IN_B]
    dirs.notice(log, BROKEN)
    with pytest.raises(OSError, match="offline"):
        log.flush()
    dirs.abandon()


def test_a_sync_that_failed_for_want_of_room_is_as_final_as_any(dirs: LogDirs, fs: FaultyFileSystem) -> None:
    log = dirs.logs[IN_B]
    fs.fail("sync", errno.ENOSPC, path_part="/b/")
    with pytest.raises(OSError, match="a sync failed: No space left") as caught:
        log.flush()
    assert not is_passing(caught.value)
    with pytest.raises(OSError, match="a sync failed"):
        log.flush()
    dirs.abandon()


def test_a_sync_that_could_not_be_tried_for_want_of_files_can_be_tried_again(
    dirs: LogDirs, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = dirs.logs[IN_B]
    with monkeypatch.context() as patch:

        def refuse(path: str) -> None:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

        patch.setattr(log.fs, "sync_dir", refuse)
        with pytest.raises(OSError, match="Too many open files"):
            log.flush()
    log.flush()
    assert log.recovery_point == 1
    dirs.abandon()


def test_new_partitions_go_to_the_dirs_that_work(dirs: LogDirs) -> None:
    dirs.notice(dirs.logs[IN_A], BROKEN)
    for index in range(2, 5):
        make(dirs, TopicPartition("orders", index))
        assert dirs.dir_of(TopicPartition("orders", index)) is dirs.dirs[1]
    dirs.notice_in(dirs.dirs[1], BROKEN)
    with pytest.raises(OSError, match="all log dirs are offline"):
        make(dirs, TopicPartition("orders", 5))
    dirs.abandon()


def test_a_partition_that_cannot_be_made_takes_its_dir_offline(dirs: LogDirs, fs: FaultyFileSystem) -> None:
    fs.fail("make_dirs", errno.EROFS, path_part="/a/")
    with pytest.raises(OSError, match="Read-only"):
        make(dirs, TopicPartition("orders", 2))
    assert [log_dir.failed for log_dir in dirs.dirs] == ["Read-only file system", None]
    dirs.abandon()


def test_a_partition_without_room_leaves_nothing_behind(dirs: LogDirs, fs: FaultyFileSystem) -> None:
    fs.fail("open", errno.ENOSPC, path_part="/a/orders-2/")
    with pytest.raises(OSError, match="No space"):
        make(dirs, TopicPartition("orders", 2))
    assert dirs.working == dirs.dirs
    assert sorted(os.listdir(f"{fs.folder}/a"))[-1] != "orders-2"
    make(dirs, TopicPartition("orders", 2), UUID(int=9))
    dirs.abandon()


def test_checkpoints_and_removals_pass_a_failed_dir_by(dirs: LogDirs, fs: FaultyFileSystem) -> None:
    dirs.delete(IN_B)
    dirs.notice_in(dirs.dirs[1], BROKEN)
    fs.fail(None, errno.EIO, path_part="/b/", times=1000)
    dirs.checkpoint({})
    dirs.purge_deleted(now_ms=NOW_MS)
    dirs.close({})
    assert fs.errors_given == 0
    assert (Path(fs.folder) / "a/.kafka_cleanshutdown").exists()
    assert not (Path(fs.folder) / "b/.kafka_cleanshutdown").exists()


@pytest.mark.parametrize("call", ["open", "sync", "rename"])
def test_a_checkpoint_that_fails_takes_its_dir_alone(dirs: LogDirs, fs: FaultyFileSystem, call: str) -> None:
    fs.fail(call, errno.EIO, path_part="/a/recovery-point")  # type: ignore[arg-type]
    with pytest.raises(OSError, match="Input/output"):
        dirs.checkpoint({IN_A: 1, IN_B: 1})
    assert [log_dir.failed for log_dir in dirs.dirs] == ["Input/output error", None]
    assert (Path(fs.folder) / "b/replication-offset-checkpoint").read_text() == "0\n1\norders 1 1\n"
    dirs.abandon()


def test_a_checkpoint_without_room_is_tried_again(dirs: LogDirs, fs: FaultyFileSystem) -> None:
    fs.fail("open", errno.ENOSPC, path_part="/a/recovery-point")
    with pytest.raises(OSError, match="No space"):
        dirs.checkpoint()
    assert dirs.working == dirs.dirs
    dirs.checkpoint()
    assert (Path(fs.folder) / "a/recovery-point-offset-checkpoint").read_text() == "0\n1\norders 0 0\n"
    dirs.abandon()


def test_a_dir_that_cannot_be_marked_as_clean_does_not_keep_the_mark_from_the_others(
    dirs: LogDirs, fs: FaultyFileSystem
) -> None:
    fs.fail("open", errno.ENOSPC, path_part="/a/.kafka_cleanshutdown")
    dirs.close()
    again = open_dirs(fs)
    assert [log_dir.was_clean for log_dir in again.dirs] == [False, True]
    assert [all_records(again.logs[partition]) for partition in (IN_A, IN_B)] == [[(0, b"kept")]] * 2
    again.abandon()


def test_a_deletion_that_fails_leaves_the_rest_to_the_next_start(dirs: LogDirs, fs: FaultyFileSystem) -> None:
    fs.fail("rename", errno.EIO, path_part="/b/orders-1")
    dirs.delete(IN_A)
    dirs.delete(IN_B)
    dirs.delete(IN_B)
    assert [log_dir.failed for log_dir in dirs.dirs] == [None, "Input/output error"]
    dirs.close()
    again = open_dirs(fs, deleted_ids={TOPIC_ID})
    assert not again.logs
    assert again.purge_deleted(now_ms=NOW_MS) == 2
    assert not [name for name in os.listdir(f"{fs.folder}/b") if name.startswith("orders")]
    again.close()


def test_what_is_left_of_a_deleted_topic_is_not_in_the_way_of_a_new_one_of_that_name(
    dirs: LogDirs, fs: FaultyFileSystem
) -> None:
    dirs.notice(dirs.logs[IN_B], BROKEN)
    dirs.delete(IN_A)
    make(dirs, IN_B, UUID(int=9))
    append(dirs.logs[IN_B], batch([b"new"]))
    dirs.close()
    again = open_dirs(fs, deleted_ids={TOPIC_ID})
    assert {partition: all_records(log) for partition, log in again.logs.items()} == {IN_B: [(0, b"new")]}
    again.abandon()


@pytest.mark.parametrize(
    ("call", "part"),
    [("sync_dir", "/b"), ("pread", "/b/orders-1/"), ("pread", "/b/recovery-point"), ("rename", "/b/log-start")],
)
def test_a_dir_that_fails_at_the_start_is_offline_from_the_start(
    dirs: LogDirs, fs: FaultyFileSystem, call: str, part: str
) -> None:
    dirs.checkpoint()
    following = fs.kill()
    following.fail(call, errno.EIO, path_part=part)  # type: ignore[arg-type]
    again = open_dirs(following)
    assert [log_dir.failed for log_dir in again.dirs] == [None, "Input/output error"]
    assert set(again.logs) == {IN_A}
    again.close()
    healed = open_dirs(following)
    assert [log_dir.was_clean for log_dir in healed.dirs] == [True, False]
    assert all_records(healed.logs[IN_B]) == [(0, b"kept")]
    healed.abandon()


def test_a_dir_that_cannot_be_locked_is_offline_and_stays_as_it_is(dirs: LogDirs, fs: FaultyFileSystem) -> None:
    dirs.close()
    lock = Path(fs.folder) / "b/.lock"
    lock.unlink()
    lock.mkdir()
    again = open_dirs(FaultyFileSystem(fs.folder))
    assert again.dirs[1].failed == f"Is a directory ({lock})"
    again.close()
    lock.rmdir()
    healed = open_dirs(FaultyFileSystem(fs.folder))
    assert [log_dir.was_clean for log_dir in healed.dirs] == [True, True]
    healed.abandon()


def test_without_any_dir_there_is_no_start(fs: FaultyFileSystem) -> None:
    fs.fail("sync_dir", errno.EROFS, times=1000)
    with pytest.raises(LogDirError, match=r"/a cannot be used: Read-only file system; .*/b cannot be used: Read-only"):
        open_dirs(fs)


def test_new_dirs_are_not_made_another_clusters_while_one_cannot_say_whose_it_is(fs: FaultyFileSystem) -> None:
    fs.make_dirs(f"{fs.folder}/b/.lock")
    with pytest.raises(LogDirError, match=r"/b cannot be used: Is a directory"):
        open_dirs(fs)
    assert not (Path(fs.folder) / "a/meta.properties").exists()


def test_too_many_open_files_are_not_the_dirs_fault(dirs: LogDirs, fs: FaultyFileSystem) -> None:
    dirs.close()
    fs.fail("pread", errno.EMFILE, path_part="/b/meta.properties")
    with pytest.raises(OSError, match="Too many open files"):
        open_dirs(fs)
    assert open_dirs(fs).working


def test_old_records_can_be_deleted_from_a_full_disk(dirs: LogDirs, fs: FaultyFileSystem) -> None:
    """Retention is what makes room there."""
    log = dirs.logs[IN_B]
    for _ in range(60):
        append(log, batch([bytes(100)]))
    assert len(log.segments) > 3
    fs.free_bytes = 0
    with pytest.raises(OSError, match="No space"):
        append(log, batch([bytes(100)]))
    start_offset = log.segments[2].base_offset
    assert log.delete_records_before(start_offset) == start_offset
    assert log.remove_deleted_files() > 0
    append(log, batch([b"fits again"]))
    following = fs.kill()
    again = open_dirs(following).logs[IN_B]
    assert (again.log_start_offset, again.leader_epochs.entries) == (start_offset, [(0, start_offset)])
    assert all_records(again)[-1][1] == b"fits again"
