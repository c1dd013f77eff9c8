"""A log moves to another dir while it is used: nothing is lost, nothing is there twice, whatever happens meanwhile."""

import errno
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from uuid import UUID

import pytest

from headwater.log.checkpoints import CLEANER_OFFSETS, LOG_START_OFFSETS, RECOVERY_POINTS, read_offsets
from headwater.log.filesystem import FileSystem
from headwater.log.folder_names import future_folder, is_doomed_folder, partition_of_folder, partition_of_future
from headwater.log.log import Log
from headwater.log.log_dir import LogDirError
from headwater.log.log_dirs import LogDirs
from headwater.log.moving.interrupted_moves import MOVED_HERE
from headwater.log.moving.replica_copy import CopyStoppedError
from headwater.log.moving.replica_move import ReplicaMove
from headwater.log.throttle import Throttle
from headwater.testing.faulty_filesystem import FaultyFileSystem, MachineStoppedError
from headwater.types import TopicPartition

from .building import NOW_MS, all_records, append, batch, marker, topic_config

EVENTS = TopicPartition("events", 0)
OTHER = TopicPartition("other", 0)
CONFIG = topic_config(segment_bytes=500, index_interval_bytes=100, file_delete_delay_ms=0)
TOPIC_ID = UUID("5d26eb71-0d47-4bd0-92f0-24d5e1103c1d")
Records = dict[int, bytes | None]


def open_dirs(fs: FileSystem, folder: str) -> LogDirs:
    dirs = LogDirs.open(fs, [f"{folder}/a", f"{folder}/b"], node_id=1)
    dirs.load(lambda topic: CONFIG, now_ms=NOW_MS)
    return dirs


def filled(fs: FileSystem, folder: str) -> LogDirs:
    """`events-0` in the first dir: several segments, producers, transactions, two epochs; `other-0` in the second."""
    dirs = open_dirs(fs, folder)
    log = dirs.create(EVENTS, topic_id=TOPIC_ID, config=CONFIG, now_ms=NOW_MS)
    append(dirs.create(OTHER, topic_id=None, config=CONFIG, now_ms=NOW_MS), batch([b"other"]))
    for index in range(8):
        append(log, batch([b"%d" % index, bytes(60)], producer=(7, 0, 2 * index)), leader_epoch=index // 5)
    append(log, batch([b"undone"], producer=(8, 0, 0), transactional=True), leader_epoch=1)
    append(log, marker(8, 0, commit=False), leader_epoch=1)
    append(log, batch([b"open"], producer=(9, 0, 0), transactional=True), leader_epoch=1)
    dirs.checkpoint()
    return dirs


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """No other thread reads here, and hundreds of moves would wait for none."""
    monkeypatch.setattr("headwater.log.moving.replica_move._PAUSE_S", 0)


@pytest.fixture
def dirs(tmp_path: Path) -> LogDirs:
    return filled(FileSystem(), str(tmp_path))


def begin(dirs: LogDirs, *, to: int = 1) -> ReplicaMove:
    """A move to one of the dirs."""
    name = future_folder(EVENTS)
    assert name is not None
    throttle = Throttle(lambda: 1e15, threading.Event())
    move = ReplicaMove(dirs, dirs.logs[EVENTS], dirs.dirs[to], dirs.dirs[to].file(name), throttle=throttle)
    move.begin()
    return move


def take_steps(move: ReplicaMove, between: Callable[[], object] = lambda: None) -> None:
    try:
        for step in move.steps():
            between()
            step()
            between()
    finally:
        move.abandon()


def run_all(steps: Iterable[Callable[[], object]]) -> None:
    for step in steps:
        step()


def files(folder: str | Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def folders(log_dir: str | Path) -> list[str]:
    return sorted(path.name for path in Path(log_dir).iterdir() if path.is_dir())


def reopened(dirs: LogDirs, tmp_path: Path) -> Log:
    """The log after a clean stop and a start."""
    dirs.close()
    return open_dirs(FileSystem(), str(tmp_path)).logs[EVENTS]


def test_the_files_are_the_same_in_their_new_place(dirs: LogDirs, tmp_path: Path) -> None:
    log = dirs.logs[EVENTS]
    records, producers, epochs = all_records(log), log.active_producers(), log.leader_epochs.entries
    aborted, modified = log.aborted_transactions(0, 99), FileSystem().modified_ms(log.segments[0].path)
    take_steps(begin(dirs))
    assert log.path == str(tmp_path / "b" / "events-0")
    assert (all_records(log), log.active_producers(), log.aborted_transactions(0, 99)) == (records, producers, aborted)
    assert FileSystem().modified_ms(log.segments[0].path) == modified
    (old,) = folders(tmp_path / "a")
    assert is_doomed_folder(old)
    before = files(tmp_path / "a" / old)
    after = files(log.path)
    active = log.segments[-1].stem.rpartition("/")[2]
    assert {name: after.get(name) for name in before if not name.startswith(active) or name.endswith(".log")} == {
        name: content for name, content in before.items() if not name.startswith(active) or name.endswith(".log")
    }
    again = reopened(dirs, tmp_path)
    assert (all_records(again), again.active_producers(), again.leader_epochs.entries) == (records, producers, epochs)
    assert (again.topic_id, again.aborted_transactions(0, 99)) == (TOPIC_ID, aborted)


def test_the_old_folder_goes_and_the_checkpoints_move(dirs: LogDirs, tmp_path: Path) -> None:
    log, fs = dirs.logs[EVENTS], FileSystem()
    log.flush(12)
    log.delete_records_before(3)
    log.cleaned_until = 5
    take_steps(begin(dirs))
    told = [
        [read_offsets(fs, str(tmp_path / name / checkpoint)).get(EVENTS) for name in ("a", "b")]
        for checkpoint in (RECOVERY_POINTS, LOG_START_OFFSETS, CLEANER_OFFSETS)
    ]
    assert told == [[None, 12], [None, 3], [None, 5]]
    assert dirs.dir_of(EVENTS) is dirs.dirs[1]
    assert [log_dir.partitions for log_dir in dirs.dirs] == [0, 2]
    dirs.purge_deleted(NOW_MS * 2)
    assert folders(tmp_path / "a") == []
    assert MOVED_HERE not in files(log.path)


def test_there_and_back_again(dirs: LogDirs, tmp_path: Path) -> None:
    records = all_records(dirs.logs[EVENTS])
    for to in (1, 0, 1, 0):
        take_steps(begin(dirs, to=to))
        append(dirs.logs[EVENTS], batch([b"more"]), leader_epoch=1)
    again = reopened(dirs, tmp_path)
    assert all_records(again) == [*records, *((records[-1][0] + 1 + count, b"more") for count in range(4))]
    assert again.path == str(tmp_path / "a" / "events-0")


class Writer:
    """Appends a few times, whenever it is called."""

    def __init__(self, log: Log, times: int = 20, size: int = 70) -> None:
        self.log = log
        self.records: Records = dict(all_records(log))
        self._times = times
        self._size = size

    def __call__(self) -> None:
        if self._times:
            self._times -= 1
            value = b"%d" % self._times + bytes(self._size)
            offset = append(self.log, batch([value]), leader_epoch=1).first_offset
            self.records[offset] = value


def test_what_is_written_meanwhile_comes_along(dirs: LogDirs, tmp_path: Path) -> None:
    write = Writer(dirs.logs[EVENTS])
    take_steps(begin(dirs), write)
    assert len(write.records) > 30
    assert dict(all_records(dirs.logs[EVENTS])) == write.records
    assert dict(all_records(reopened(dirs, tmp_path))) == write.records


def test_an_abort_that_comes_meanwhile_is_known_in_the_new_place(dirs: LogDirs, tmp_path: Path) -> None:
    log = dirs.logs[EVENTS]
    move = begin(dirs)
    for count, step in enumerate(move.steps()):
        step()
        if count == 3:
            append(log, marker(9, 0, commit=False), leader_epoch=1)
    move.abandon()
    aborted = log.aborted_transactions(0, 99)
    assert [txn.producer_id for txn in aborted] == [8, 9]
    assert reopened(dirs, tmp_path).aborted_transactions(0, 99) == aborted


def test_old_segments_that_go_meanwhile_are_gone_in_the_new_place(dirs: LogDirs, tmp_path: Path) -> None:
    log, starts = dirs.logs[EVENTS], iter([3, 8, 8, 13])
    records = all_records(log)

    def delete() -> None:
        log.delete_records_before(next(starts, 13))
        log.remove_deleted_files()

    take_steps(begin(dirs), delete)
    kept = [record for record in records if record[0] >= 13]
    assert all_records(log) == kept
    assert sorted(name for name in files(log.path) if name.endswith(".log")) == [
        f"{segment.base_offset:020}.log" for segment in log.segments
    ]
    assert all_records(reopened(dirs, tmp_path)) == kept


@pytest.mark.parametrize("offset", [2, 9, 0])
def test_a_truncation_lets_the_copy_begin_anew(dirs: LogDirs, tmp_path: Path, offset: int) -> None:
    log = dirs.logs[EVENTS]
    write = Writer(log, times=6)
    move = begin(dirs)
    for count, step in enumerate(move.steps()):
        step()
        if count in (1, 5):
            log.truncate_to(offset, now_ms=NOW_MS)
            write.records = dict(all_records(log))
        write()
    move.abandon()
    assert dict(all_records(log)) == write.records
    assert dict(all_records(reopened(dirs, tmp_path))) == write.records


def test_a_roll_and_a_flush_after_the_move_are_in_the_new_place(dirs: LogDirs, tmp_path: Path) -> None:
    log = dirs.logs[EVENTS]
    take_steps(begin(dirs))
    write = Writer(log, times=12)
    for _ in range(12):
        write()
    log.flush()
    dirs.checkpoint()
    dirs.abandon()
    again = open_dirs(FileSystem(), str(tmp_path)).logs[EVENTS]
    assert again.path == str(tmp_path / "b" / "events-0")
    assert dict(all_records(again)) == write.records


def test_a_slice_that_is_being_sent_stays_readable(dirs: LogDirs, tmp_path: Path) -> None:
    log = dirs.logs[EVENTS]
    piece = log.read(0, 300, up_to_offset=99)
    content = piece.read()
    take_steps(begin(dirs))
    dirs.purge_deleted(NOW_MS * 2)
    assert piece.read() == content


def test_a_flush_waits_for_the_end_of_the_move_and_counts_in_the_new_place(dirs: LogDirs) -> None:
    log, flushed = dirs.logs[EVENTS], threading.Event()
    move = begin(dirs)

    def flush() -> None:
        log.flush()
        flushed.set()

    flusher = threading.Thread(target=flush)
    for step in move.steps():
        step()
        if log.flush_gate.locked() and not flusher.ident:
            flusher.start()
        if flusher.ident and not move.has_switched:
            assert not flushed.wait(0.05)
    move.abandon()
    flusher.join(10)
    assert flushed.is_set()
    assert log.recovery_point == log.log_end_offset
    assert not log.flush_gate.locked()


def test_a_stopped_move_leaves_the_log_where_it_is(dirs: LogDirs, tmp_path: Path) -> None:
    records = all_records(dirs.logs[EVENTS])
    for stop_after in range(20):
        move = begin(dirs)
        steps = move.steps()
        try:
            for _ in range(stop_after):
                next(steps)()
            move.stopped.set()
            run_all(steps)
        except CopyStoppedError:
            pass
        steps.close()
        move.abandon()
        if move.has_switched:
            break
        assert dirs.discard(move.folder, EVENTS)
        assert all_records(dirs.logs[EVENTS]) == records
        assert not dirs.logs[EVENTS].flush_gate.locked()
        assert not [name for name in folders(tmp_path / "b") if name.endswith("-future")]
    assert stop_after > 4


@pytest.mark.parametrize("closing", ["close", "delete"])
def test_a_log_that_is_closed_or_deleted_is_moved_no_further(dirs: LogDirs, closing: str) -> None:
    move = begin(dirs)
    steps = move.steps()
    next(steps)()
    dirs.logs[EVENTS].close() if closing == "close" else dirs.delete(EVENTS)
    with pytest.raises(CopyStoppedError):
        run_all(steps)
    move.abandon()


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO], ids=["full", "broken"])
def test_a_disk_that_cannot_take_the_copy_harms_nothing(error: int) -> None:
    """Whichever call fails: the log goes on in one of the two places, with all that was written."""
    failed = 0
    while True:
        fs = FaultyFileSystem(seed=failed)
        dirs = filled(fs, fs.folder)
        log = dirs.logs[EVENTS]
        write = Writer(log, times=8)
        fs.fail(None, error, path_part="/b/", skip=failed)
        move = None
        try:
            move = begin(dirs)
            take_steps(move, write)
        except OSError:
            assert move is None or move.has_switched == (log.path == f"{fs.folder}/b/events-0")
        if not fs.errors_given:
            break
        if not log.is_closed:
            write()
            assert dict(all_records(log)) == write.records
        fs.settle()
        dirs.abandon()
        assert dict(all_records(open_dirs(fs, fs.folder).logs[EVENTS])) == write.records
        failed += 1
    assert failed > 50


def test_a_copy_that_was_not_completed_is_known_to_the_next_start(dirs: LogDirs, tmp_path: Path) -> None:
    records = all_records(dirs.logs[EVENTS])
    move = begin(dirs)
    steps = move.steps()
    for _ in range(2):
        next(steps)()
    move.abandon()
    dirs.close()
    again = open_dirs(FileSystem(), str(tmp_path))
    assert all_records(again.logs[EVENTS]) == records
    assert again.interrupted_moves == [(EVENTS, again.dirs[1], move.folder)]
    take_steps(begin(again))
    assert all_records(reopened(again, tmp_path)) == records


def test_the_copy_of_a_deleted_topic_goes_at_the_next_start(dirs: LogDirs, tmp_path: Path) -> None:
    begin(dirs)
    dirs.close()
    again = LogDirs.open(FileSystem(), [str(tmp_path / "a"), str(tmp_path / "b")], node_id=1)
    again.load(lambda topic: CONFIG, now_ms=NOW_MS, deleted_ids={TOPIC_ID})
    assert (again.interrupted_moves, list(again.logs)) == ([], [OTHER])
    assert again.purge_deleted(NOW_MS) == 2
    again.abandon()


def test_two_folders_of_which_none_or_both_are_marked_stop_the_start(dirs: LogDirs, tmp_path: Path) -> None:
    dirs.close()
    (tmp_path / "b" / "events-0").mkdir()
    for marked in ((), ("a", "b")):
        for name in marked:
            (tmp_path / name / "events-0" / MOVED_HERE).touch()
        unlocked = LogDirs.open(FileSystem(), [str(tmp_path / "a"), str(tmp_path / "b")], node_id=1)
        with pytest.raises(LogDirError, match="events-0"):
            unlocked.load(lambda topic: CONFIG, now_ms=NOW_MS)
        unlocked.abandon()


def test_names_of_copies() -> None:
    name = future_folder(TopicPartition("with-dashes.and_more", 12))
    assert name is not None
    assert partition_of_future(name) == TopicPartition("with-dashes.and_more", 12)
    assert partition_of_folder(name) is None
    assert not is_doomed_folder(name)
    assert [partition_of_future(other) for other in ("events-0", "events-0.x-delete", "x-future", "a.b-future")] == (
        [None] * 4
    )
    assert future_folder(TopicPartition("t" * 249, 0)) is None


def life(dirs: LogDirs, write: Writer, flushed: list[int]) -> None:
    """A move of a log that is written to, flushed and rolled before, meanwhile and after."""

    def use() -> None:
        write()
        if len(write.records) % 3 == 0 and not dirs.logs[EVENTS].flush_gate.locked():
            dirs.logs[EVENTS].flush()
            flushed[:] = [dirs.logs[EVENTS].recovery_point]

    use()
    take_steps(begin(dirs), use)
    for _ in range(3):
        use()
    dirs.checkpoint()
    dirs.purge_deleted(NOW_MS * 2)


@pytest.mark.parametrize("power_is_lost", [False, True], ids=["killed", "power lost"])
def test_an_end_at_any_change_leaves_one_complete_log(power_is_lost: bool) -> None:
    stop, moved = 0, 0
    while True:
        fs = FaultyFileSystem(seed=stop, sector_bytes=64)
        dirs = filled(fs, fs.folder)
        log = dirs.logs[EVENTS]
        for each in dirs.logs.values():
            each.flush()
        flushed, write = [log.recovery_point], Writer(log, times=12)
        fs.stop_after(stop)
        try:
            life(dirs, write, flushed)
        except MachineStoppedError:
            pass
        else:
            break
        fs = fs.lose_power() if power_is_lost else fs.kill()
        again = open_dirs(fs, fs.folder)
        found, must = dict(all_records(again.logs[EVENTS])), write.records
        if power_is_lost:
            must = {offset: value for offset, value in must.items() if offset < flushed[0]}
        assert {offset: found.get(offset) for offset in must} == must, stop
        assert sorted(found) == list(range(len(found))), stop
        named = [name for each in "ab" for name in folders(f"{fs.folder}/{each}") if name == "events-0"]
        assert len(named) == 1, stop
        moved += again.logs[EVENTS].path == f"{fs.folder}/b/events-0"
        assert all_records(again.logs[OTHER]) == [(0, b"other")]
        if again.logs[EVENTS].path != f"{fs.folder}/b/events-0":
            take_steps(begin(again))
            assert dict(all_records(again.logs[EVENTS])) == found, stop
        again.abandon()
        stop += 1
    assert stop > 100
    assert moved > 10
