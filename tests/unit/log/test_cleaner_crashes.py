"""A process that dies at any point of a cleaning leaves a log with the newest record of every key."""

import errno
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from headwater.log.filesystem import FileSystem
from headwater.log.log import Log
from headwater.testing.faulty_filesystem import FaultyFileSystem, MachineStoppedError

from .building import NOW_MS, append, marker, open_log
from .cleaning import DAY_MS, begin_cleaning, clean_once, compacted, file_names, keyed, stored_batches, survivors
from .test_crash_points import Died, DyingFileSystem

SMALL = compacted(segment_bytes=500, delete_retention_ms=0)
# What was written in small segments is joined when it is cleaned.
CONFIG = compacted(segment_bytes=1300, delete_retention_ms=0)
FOLDER = "events-0"


class WithoutSyncs(FileSystem):
    """A process that dies loses nothing that it has written, so nothing has to wait for the device."""

    def sync(self, descriptor: int) -> None:
        pass

    def sync_file(self, path: str) -> None:
        pass

    def sync_dir(self, path: str) -> None:
        pass


class Dying(WithoutSyncs, DyingFileSystem):
    """Dies after so many changes."""


def reopen(path: Path, *, clean: bool = False) -> Log:
    return Log.open(WithoutSyncs(), str(path / FOLDER), config=CONFIG, now_ms=NOW_MS, clean=clean)


def fill(path: Path) -> None:
    """A log with keys, tombstones and transactions, stopped in order."""
    log = open_log(path, SMALL)
    for index in range(7):
        append(log, keyed((b"k%d" % (index % 5), b"%d" % index + bytes(40)), (b"t%d" % (index % 3), None)))
        producer = {"producer_id": index % 2, "producer_epoch": 0, "base_sequence": index // 2}
        append(log, keyed((b"x%d" % (index % 4), b"%d" % index), transactional=True, **producer))
        append(log, marker(index % 2, 0, commit=index % 3 > 0))
    log.close()


def whole(path: Path, clean: Callable[[Log], object]) -> tuple[list[tuple[int, bytes | None, bytes | None]], int]:
    """What is left when nothing happens, and how many changes to the disk it took."""
    fill(path)
    fs = Dying(10**9)
    log = Log.open(fs, str(path / FOLDER), config=CONFIG, now_ms=NOW_MS)
    before = fs.changes_left
    clean(log)
    changes = before - fs.changes_left
    left = survivors(log)
    log.abandon()
    return left, changes


def clean_twice(log: Log) -> None:
    """The second cleaning also removes tombstones, and joins what the first left small."""
    clean_once(log)
    append(log, keyed((b"new", b"v")))
    log.roll(NOW_MS)
    clean_once(log, now_ms=NOW_MS + DAY_MS)


def live_values(log: Log) -> dict[bytes | None, bytes | None]:
    """What a reader of committed data knows in the end; deleted keys are not there."""
    aborted = log.aborted_transactions(0, log.log_end_offset)
    found: dict[bytes | None, bytes | None] = {}
    for header, records in stored_batches(log):
        is_aborted = header.is_transactional and any(
            txn.producer_id == header.producer_id and txn.first_offset <= header.base_offset <= txn.last_offset
            for txn in aborted
        )
        if not header.is_control and not is_aborted:
            found.update({record.key: record.value for record in records})
    return {key: value for key, value in found.items() if value is not None and key != b"new"}


def assert_in_order(log: Log) -> None:
    """Offsets rise from batch to batch over all segments, and no two segments overlap."""
    next_offset = 0
    for segment in log.segments:
        assert segment.base_offset >= next_offset
        next_offset = segment.base_offset
        for batch in segment.batches():
            assert batch.header.base_offset >= next_offset
            next_offset = batch.header.next_offset


def test_death_at_every_change(tmp_path: Path) -> None:
    expected, changes = whole(tmp_path / "whole", clean_twice)
    fill(tmp_path / "template")
    fill(tmp_path / "untouched")
    untouched = open_log(tmp_path / "untouched", CONFIG)
    written, values = set(survivors(untouched)), live_values(untouched)
    assert changes > 60
    for survived in range(changes):
        path = tmp_path / str(survived)
        shutil.copytree(tmp_path / "template", path)
        fs = Dying(10**9)
        log = Log.open(fs, str(path / FOLDER), config=CONFIG, now_ms=NOW_MS)
        fs.changes_left = survived
        with pytest.raises(Died):
            clean_twice(log)
        again = reopen(path, clean=survived % 2 == 0)
        assert_in_order(again)
        assert {record for record in survivors(again) if record[1] != b"new"} <= written
        assert live_values(again) == values
        assert not [name for name in file_names(again) if name.endswith((".cleaned", ".swap", ".deleted"))]
        append(again, keyed((b"new", b"v")))
        again.roll(NOW_MS)
        again.cleaned_until = 0
        clean_once(again, now_ms=NOW_MS + 2 * DAY_MS)
        assert live_values(again) == values
        assert_in_order(again)
        again.abandon()
        fs.changes_left = 10**9
        log.abandon()
    assert expected


class PowerLossFileSystem(WithoutSyncs):
    """Remembers the folder as it was before the first rename that no sync has followed, and those renames."""

    def __init__(self, spare: Path) -> None:
        self.before = spare
        self.renames: list[tuple[str, str]] = []

    def rename(self, source: str, target: str) -> None:  # type: ignore[override]
        folder = Path(source).parent
        if not self.renames:
            shutil.rmtree(self.before, ignore_errors=True)
            shutil.copytree(folder, self.before)
        if Path(source).exists():
            self.renames.append((Path(source).name, Path(target).name))
        FileSystem.rename(source, target)

    def sync_dir(self, path: str) -> None:
        self.renames.clear()

    def after_loss(self, folder: Path, kept: list[tuple[str, str]]) -> None:
        """Make the folder that the next start finds when only these renames reached the device."""
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.before, folder)
        for source, target in kept:
            if (folder / source).exists():
                (folder / source).rename(folder / target)


def possible_losses(renames: list[tuple[str, str]]) -> list[list[tuple[str, str]]]:
    """Each rename alone reached the device, each alone did not, and the first or last ones did."""
    singles = [[one] for one in renames]
    others = [[*renames[:at], *renames[at + 1 :]] for at in range(len(renames))]
    return [*singles, *others, *(renames[:at] for at in range(len(renames))), *(renames[at:] for at in range(1, 4))]


def test_names_that_did_not_reach_the_device(tmp_path: Path) -> None:
    """Whenever the power fails, any of the renames since the last sync may be lost, in any order."""
    fill(tmp_path / "cleaned")
    fs = PowerLossFileSystem(tmp_path / "before")
    log = Log.open(fs, str(tmp_path / "cleaned" / FOLDER), config=CONFIG, now_ms=NOW_MS)
    values, tried = live_values(log), 0
    cleaning = begin_cleaning(log)
    for step in cleaning.steps():
        for kept in possible_losses(fs.renames) if fs.renames else []:
            fs.after_loss(tmp_path / "lost" / FOLDER, kept)
            again = reopen(tmp_path / "lost")
            assert live_values(again) == values, kept
            assert_in_order(again)
            again.abandon()
            tried += 1
        step()
    cleaning.abandon()
    assert tried > 60


def test_a_swap_whose_last_step_failed_is_completed_by_the_next_cleaning(tmp_path: Path) -> None:
    fill(tmp_path)
    log = reopen(tmp_path, clean=True)
    values = live_values(log)
    cleaning = begin_cleaning(log)
    for step in cleaning.steps():
        step()
        if any(segment.suffix for segment in log.segments):
            break
    cleaning.abandon()
    assert live_values(log) == values, "it is read under the name it has"
    clean_once(log)
    assert not any(segment.suffix for segment in log.segments)
    assert not [name for name in file_names(log) if name.endswith((".cleaned", ".swap"))]
    log.abandon()
    assert live_values(reopen(tmp_path)) == values


def test_power_lost_at_every_change_with_whatever_was_not_synced(tmp_path: Path) -> None:
    """Data, lengths and names that no sync has followed may be lost, in any order."""
    fill(tmp_path / "template")
    values = live_values(reopen(tmp_path / "template", clean=True))
    for stop in range(10_000):
        folder = tmp_path / str(stop)
        shutil.copytree(tmp_path / "template", folder)
        fs = FaultyFileSystem(str(folder), seed=stop, sector_bytes=64)
        log = Log.open(fs, f"{fs.folder}/{FOLDER}", config=CONFIG, now_ms=NOW_MS)
        flushed = log.recovery_point
        fs.stop_after(stop)
        try:
            clean_twice(log)
        except MachineStoppedError:
            fs = fs.lose_power()
        else:
            break
        again = Log.open(fs, f"{fs.folder}/{FOLDER}", config=CONFIG, now_ms=NOW_MS, clean=False, recovery_point=flushed)
        assert live_values(again) == values
        assert_in_order(again)
        again.abandon()
    assert stop > 60


def half_swapped(fs: FaultyFileSystem) -> Log:
    """Two segments were cleaned into one that readers have, and the files of one could not be renamed away."""
    log = Log.open(fs, f"{fs.folder}/{FOLDER}", config=CONFIG, now_ms=NOW_MS)
    for _ in range(2):
        append(log, keyed((b"k", b"v")))
        log.roll(NOW_MS)
    fs.fail("rename", errno.ENOSPC, path_part=f"{1:020}")
    with pytest.raises(OSError, match="No space"):
        clean_once(log)
    fs.settle()
    return log


def test_segments_that_could_not_be_renamed_away_do_not_come_back_after_the_next_cleaning() -> None:
    fs = FaultyFileSystem(seed=1)
    log = half_swapped(fs)
    append(log, keyed((b"k", b"w")))
    log.roll(NOW_MS)
    clean_once(log)
    assert survivors(log) == [(2, b"k", b"w")]
    following = fs.kill()
    again = Log.open(following, f"{following.folder}/{FOLDER}", config=CONFIG, now_ms=NOW_MS, clean=False)
    assert survivors(again) == [(2, b"k", b"w")]


def test_segments_that_could_not_be_renamed_away_do_not_come_back_after_a_truncation() -> None:
    fs = FaultyFileSystem(seed=1)
    log = half_swapped(fs)
    log.truncate_to(0, now_ms=NOW_MS)
    following = fs.kill()
    again = Log.open(following, f"{following.folder}/{FOLDER}", config=CONFIG, now_ms=NOW_MS, clean=False)
    assert (survivors(again), again.log_end_offset) == ([], 0)
