"""The failing file system fails as it says: what was synced stays, and chance decides about the rest."""

import doctest
import errno
import os
from pathlib import Path

import pytest

from headwater.testing import faulty_filesystem
from headwater.testing.faulty_filesystem import FaultyFileSystem, MachineStoppedError

SEEDS = range(60)


def write(fs: FaultyFileSystem, name: str, content: bytes, *, position: int = 0, synced: bool = False) -> None:
    descriptor = fs.open(f"{fs.folder}/{name}")
    try:
        fs.write_all(descriptor, content, position)
        if synced:
            fs.sync(descriptor)
    finally:
        fs.close(descriptor)


def read(fs: FaultyFileSystem, name: str) -> bytes | None:
    try:
        return fs.read_file(f"{fs.folder}/{name}")
    except FileNotFoundError:
        return None


def outcomes(names_in_order: bool = False) -> "list[FaultyFileSystem]":
    return [FaultyFileSystem(seed=seed, sector_bytes=4, names_in_order=names_in_order) for seed in SEEDS]


def test_the_examples_in_the_docstring_are_true() -> None:
    assert doctest.testmod(faulty_filesystem).failed == 0


def test_synced_bytes_stay_and_the_others_are_there_torn_or_gone() -> None:
    seen = set()
    for fs in outcomes():
        write(fs, "file", b"synced--", synced=True)
        fs.sync_dir(fs.folder)
        write(fs, "file", b"lateragain", position=8)
        found = read(fs.lose_power(), "file")
        assert found is not None
        assert found.startswith(b"synced--")
        assert len(found) <= 18
        seen.add(found[8:])
    assert {b"", b"lateragain"} < seen
    assert any(b"\0" in tail for tail in seen), "a sector is lost while the length is not"
    assert any(b"lateragain".startswith(tail) and 0 < len(tail) < 10 for tail in seen), "the end is cut"


def test_a_name_needs_a_sync_of_its_folder() -> None:
    found = set()
    for fs in outcomes():
        write(fs, "file", b"synced", synced=True)
        found.add(read(fs.lose_power(), "file"))
    assert found == {None, b"synced"}
    for fs in outcomes():
        write(fs, "file", b"synced", synced=True)
        fs.sync_dir(fs.folder)
        assert read(fs.lose_power(), "file") == b"synced"


def test_a_durably_replaced_file_is_the_old_or_the_new_at_every_moment() -> None:
    for changes in range(9):
        for fs in outcomes()[:20]:
            fs.replace_file(f"{fs.folder}/file", b"the old content")
            fs.stop_after(changes)
            try:
                fs.replace_file(f"{fs.folder}/file", b"the new one")
                allowed = [b"the new one"]
            except MachineStoppedError:
                allowed = [b"the old content", b"the new one"]
            assert read(fs.lose_power(), "file") in allowed


def test_names_survive_in_any_set_or_in_order() -> None:
    def survivors(fs: FaultyFileSystem) -> str:
        for name in "abc":
            write(fs, name, b"")
        return "".join(sorted(name for name in os.listdir(fs.lose_power().folder)))

    assert {survivors(fs) for fs in outcomes()} > {"", "abc", "b", "ac"}
    assert {survivors(fs) for fs in outcomes(names_in_order=True)} == {"", "a", "ab", "abc"}


def test_what_a_failed_sync_gave_up_never_reaches_the_device() -> None:
    for fs in outcomes():
        write(fs, "file", b"safe", synced=True)
        fs.sync_dir(fs.folder)
        write(fs, "file", b"lost", position=4)
        fs.fail("sync", errno.EIO)
        with pytest.raises(OSError, match="Input/output"):
            fs.sync_file(f"{fs.folder}/file")
        assert read(fs, "file") == b"safelost", "the page cache has it still"
        fs.sync_file(f"{fs.folder}/file")
        assert read(fs.lose_power(), "file") == b"safe\0\0\0\0"


def test_a_killed_process_leaves_the_page_cache_which_power_can_still_take() -> None:
    left = set()
    for fs in outcomes():
        write(fs, "file", b"unsynced")
        following = fs.kill()
        assert read(following, "file") == b"unsynced"
        left.add(read(following.lose_power(), "file"))
    assert {None, b"unsynced"} < left


def test_a_dead_process_can_do_nothing_but_close() -> None:
    fs = FaultyFileSystem()
    lock = fs.lock(f"{fs.folder}/.lock")
    assert lock is not None
    assert fs.lock(f"{fs.folder}/.lock") is None
    descriptor = fs.open(f"{fs.folder}/file")
    following = fs.kill()
    with pytest.raises(MachineStoppedError):
        fs.pwrite(descriptor, b"ghost", 0)
    with pytest.raises(MachineStoppedError):
        fs.open(f"{fs.folder}/file")
    fs.close(descriptor)
    assert read(following, "file") == b""
    assert following.lock(f"{fs.folder}/.lock") is not None
    fs.close(lock)


def test_a_full_disk_takes_what_fits_and_heals() -> None:
    fs = FaultyFileSystem()
    fs.free_bytes = 5
    descriptor = fs.open(f"{fs.folder}/file")
    assert fs.pwrite(descriptor, b"12345678", 0) == 5
    with pytest.raises(OSError, match="No space"):
        fs.pwrite(descriptor, b"678", 5)
    assert fs.pwrite(descriptor, b"54321", 0) == 5, "what is there can be written over"
    fs.remove(f"{fs.folder}/file")
    assert fs.free_bytes == 5
    fs.free_bytes = None
    assert fs.pwrite(descriptor, b"678", 5) == 3
    fs.close(descriptor)


def test_a_call_fails_when_and_where_it_was_asked_to() -> None:
    fs = FaultyFileSystem()
    fs.fail("open", errno.EIO, path_part="bad", skip=1, times=2)
    write(fs, "good", b"")
    write(fs, "bad0", b"")
    for name in ("bad1", "bad2"):
        with pytest.raises(OSError, match="Input/output"):
            write(fs, name, b"")
    write(fs, "bad3", b"")
    assert fs.errors_given == 2
    fs.fail(None, errno.EIO)
    fs.settle()
    fs.remove(f"{fs.folder}/good")


def test_it_can_stand_on_files_that_are_there(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "file").write_bytes(b"there before")
    for seed in SEEDS:
        fs = FaultyFileSystem(str(tmp_path), seed=seed)
        assert read(fs, "below/file") == b"there before"
        write(fs, "below/other", b"new")
        following = fs.lose_power()
        assert read(following, "below/file") == b"there before"
        following.remove(f"{fs.folder}/below/other")
        following.sync_dir(f"{fs.folder}/below")
    with pytest.raises(ValueError, match="is not in"):
        fs.kill().open("/elsewhere/file")
