"""A file system that fails on purpose: the twin of `headwater.log.filesystem.FileSystem` for tests.

Its files are real ones in a folder, so descriptors, `sendfile` and other programs work with them; beside them it keeps
what of that would be on a device. It can be killed (the page cache stays), lose its power (what was not synced is there
or not, sector by sector and name by name), get full, answer any call with an error, and fail to sync: then it drops
what should have been synced and calls the next sync a success, as Linux does. Chance comes from a seed alone, so a run
can be repeated.

A log that is flushed, loses power and is opened again:

    >>> from headwater.config import BrokerConfig, TopicConfig
    >>> from headwater.log.log import Log
    >>> from headwater.protocol.records import check_batches, encode_batch
    >>> config = TopicConfig.from_values({}, BrokerConfig.from_values({}))
    >>> fs = FaultyFileSystem(seed=7)
    >>> log = Log.open(fs, f"{fs.folder}/orders-0", config=config, now_ms=0)
    >>> for value in (b"flushed", b"not flushed"):
    ...     batch = memoryview(encode_batch([(None, value, (), 0)]))
    ...     headers = check_batches(batch, 0, len(batch))
    ...     _ = log.append_as_leader(batch, 0, len(batch), headers, leader_epoch=0, now_ms=0)
    ...     if value == b"flushed":
    ...         log.flush()
    >>> fs = fs.lose_power()
    >>> log = Log.open(fs, f"{fs.folder}/orders-0", config=config, now_ms=0, clean=False)
    >>> log.log_end_offset in (1, 2)
    True

A disk that gets full, and then has room again:

    >>> fs.free_bytes = 0
    >>> fs.replace_file(f"{fs.folder}/note", b"too much")
    Traceback (most recent call last):
    OSError: [Errno 28] No space left on device
    >>> fs.free_bytes = None
    >>> fs.replace_file(f"{fs.folder}/note", b"too much")

An error of the third write from now on:

    >>> fs.fail("pwrite", errno.EIO, skip=2)
"""

import contextlib
import errno
import fcntl
import os
import shutil
import tempfile
import threading
import weakref
from dataclasses import dataclass
from random import Random
from typing import Final, Literal, NoReturn, TypeAlias

from headwater.log.filesystem import CREATE, READ_ONLY, FileSystem
from headwater.private_files import FOLDER_MODE
from headwater.testing.page_cache import CachedFile, CachedFolder, PageCache

Call: TypeAlias = Literal["open", "pread", "pwrite", "truncate", "rename", "remove", "make_dirs", "sync", "sync_dir"]
"""What can be made to fail; `sync` is also `sync_file`, `remove` also what `remove_tree` removes."""

_MEMORY_FOLDER: Final = "/dev/shm"  # noqa: S108
_READING: Final = ("pread",)


class MachineStoppedError(Exception):
    """Whoever still uses this file system is no more. No OSError, so that nobody handles it as one."""


@dataclass(slots=True)
class _Fault:
    call: Call | None
    error: int
    path_part: str
    skip: int
    times: int


class FaultyFileSystem(FileSystem):
    """The files in a folder, on a machine that has bad days.

    Without `folder` they are kept in memory and go with the last life of this file system. A file that exists in a
    given folder counts as synced. `sector_bytes` is what the device writes at once: smaller tears more.
    `names_in_order` lets names survive in the order in which they were changed, as journaling file systems do;
    otherwise any of them may.
    """

    def __init__(
        self,
        folder: str | None = None,
        *,
        seed: int = 0,
        sector_bytes: int = 512,
        names_in_order: bool = False,
    ) -> None:
        self.folder = os.path.abspath(folder) if folder else _temporary_folder(self)
        self.names_in_order = names_in_order
        self._sector_bytes = sector_bytes
        self._chance = Random(seed)  # noqa: S311
        self._cache = PageCache()
        self._earlier: FaultyFileSystem | None = None
        self._begin_life()
        self._read_folder()

    def _begin_life(self) -> None:
        self.free_bytes: int | None = None
        """Room on the device: files that grow take of it, files cut or removed give back. None: it is never full."""
        self.errors_given = 0
        """How many calls were answered with an error in this life."""
        self.last_refused = ""
        """The path that the last of them was about."""
        self._lock = threading.RLock()
        self._files: dict[int, tuple[CachedFile, str]] = {}
        self._locks: list[int] = []
        self._faults: list[_Fault] = []
        self._changes_left: int | None = None
        self._is_on = True

    def _read_folder(self) -> None:
        for path, folders, files in os.walk(self.folder):
            below = os.path.relpath(path, self.folder)
            at = "" if below == "." else f"{below}/"
            for name in folders:
                self._cache.put(at + name, CachedFolder())
            for name in files:
                with open(f"{path}/{name}", "rb") as file:
                    self._cache.put(at + name, CachedFile(file.read(), self._sector_bytes))
        for _, found in self._cache.walk():
            if isinstance(found, CachedFolder):
                self._cache.sync_folder(found)

    def fail(self, call: Call | None, error: int, *, path_part: str = "", skip: int = 0, times: int = 1) -> None:
        """Let a call fail with an error of `errno`: the next one, or the one after `skip`, and so many in a row.

        None stands for any call that changes or syncs something; `path_part` is what the path has to contain. A write
        that fails may have been cut short before, as the system does it: the call for the rest fails then.
        """
        self._faults.append(_Fault(call, error, path_part, skip, times))

    def settle(self) -> None:
        """Take back every fault and stop that did not happen yet; a full device stays full."""
        self._faults.clear()
        self._changes_left = None

    def stop_after(self, changes: int) -> None:
        """Let so many calls change or sync something; the next one, and all after it, raise MachineStoppedError.

        Then `kill` or `lose_power` says what is left.
        """
        self._changes_left = changes

    def kill(self) -> "FaultyFileSystem":
        """The process dies and this object with it; the next life sees all that was written.

        Only what a failed sync gave up is gone: the system has forgotten it by then.
        """
        with self._lock:
            self._end()
            for path, found in self._cache.walk():
                if isinstance(found, CachedFile) and found.forget_given_up():
                    self._write_back(path, found)
            return self._next_life()

    def lose_power(self) -> "FaultyFileSystem":
        """The machine goes off and on again; the next life sees what was synced, and by chance some of the rest."""
        with self._lock:
            self._end()
            self._cache.lose_power(self._chance, names_in_order=self.names_in_order)
            for name in os.listdir(self.folder):
                path = f"{self.folder}/{name}"
                shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)
            for path, found in self._cache.walk():
                if isinstance(found, CachedFile):
                    self._write_back(path, found)
                else:
                    os.makedirs(f"{self.folder}/{path}", exist_ok=True)
            return self._next_life()

    def _end(self) -> None:
        self._is_on = False
        for descriptor in self._locks:
            with contextlib.suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_UN)

    def _write_back(self, path: str, file: CachedFile) -> None:
        # A new file, as descriptors of the earlier life may be open on the old one.
        whole = f"{self.folder}/{path}"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(whole)
        with open(whole, "wb") as written:
            written.write(file.visible)

    def _next_life(self) -> "FaultyFileSystem":
        following = object.__new__(FaultyFileSystem)
        following.__dict__.update(self.__dict__)
        # The folder of files in memory goes with the first life, so the first must last as long as any.
        following._earlier = self
        following._begin_life()
        return following

    def _before(self, call: Call, path: str) -> None:
        """Everything that a call may run into before it does something."""
        self._check_power(call, path)
        error = self._fault(call, path)
        if error:
            self._refuse(error, path)

    def _check_power(self, call: Call, path: str) -> None:
        if not self._is_on:
            raise MachineStoppedError(f"{call} of {path} after the end")
        if call not in _READING and self._changes_left is not None:
            if self._changes_left == 0:
                self._is_on = False
                raise MachineStoppedError(f"stopped before {call} of {path}")
            self._changes_left -= 1

    def _refuse(self, error: int, path: str) -> NoReturn:
        self.errors_given += 1
        self.last_refused = path
        raise OSError(error, os.strerror(error))

    def _fault(self, call: Call, path: str) -> int:
        for fault in self._faults:
            fits = fault.call == call or (fault.call is None and call not in _READING)
            if fits and fault.path_part in path:
                if fault.skip:
                    fault.skip -= 1
                    continue
                fault.times -= 1
                if not fault.times:
                    self._faults.remove(fault)
                return fault.error
        return 0

    def _below(self, path: str) -> str:
        below = os.path.relpath(os.path.abspath(path), self.folder)
        if below.startswith(".."):
            raise ValueError(f"{path} is not in {self.folder}, which is all that this file system has")
        return "" if below == "." else below

    def open(self, path: str, flags: int = CREATE) -> int:
        """Open a file; making or emptying it is a change."""
        with self._lock:
            below = self._below(path)
            is_new = bool(flags & os.O_CREAT) and not os.path.exists(path)
            if is_new or flags & os.O_TRUNC:
                self._before("open", path)
            elif not self._is_on:
                raise MachineStoppedError(f"open of {path} after the end")
            descriptor = super().open(path, flags)
            if is_new:
                self._cache.put(below, CachedFile(b"", self._sector_bytes))
            file = self._cache.find(below)
            if isinstance(file, CachedFile):
                self._files[descriptor] = (file, path)
                if flags & os.O_TRUNC:
                    self._resize(file, 0)
            return descriptor

    def close(self, descriptor: int) -> None:
        """Let go of a descriptor, in this life or after it."""
        self._files.pop(descriptor, None)
        os.close(descriptor)

    def pread(self, descriptor: int, size: int, position: int) -> bytes:
        """Read; EIO when that was asked for."""
        with self._lock:
            self._before("pread", self._files[descriptor][1])
            return os.pread(descriptor, size, position)

    def pwrite(self, descriptor: int, content: bytes | memoryview, position: int) -> int:  # type: ignore[override]
        """Write to the page cache; less than asked for when the device is nearly full."""
        with self._lock:
            file, path = self._files[descriptor]
            self._check_power("pwrite", path)
            error = self._fault("pwrite", path)
            if error:
                part = content[: self._chance.randrange(len(content) or 1)]
                if not part:
                    self._refuse(error, path)
                # What could be written is told by its size, and the error by the call for the rest.
                self._faults.insert(0, _Fault("pwrite", error, path, 0, 1))
                return self._write(file, descriptor, part, position)
            room = self._room_for(file, position, len(content))
            if content and not room:
                self._refuse(errno.ENOSPC, path)
            return self._write(file, descriptor, content[:room], position)

    def _room_for(self, file: CachedFile, position: int, size: int) -> int:
        growth = max(position + size - len(file.visible), 0)
        return size if self.free_bytes is None else max(size - max(growth - self.free_bytes, 0), 0)

    def _write(self, file: CachedFile, descriptor: int, content: bytes | memoryview, position: int) -> int:
        self._take(position + len(content) - len(file.visible) if content else 0)
        file.write(position, bytes(content))
        return os.pwrite(descriptor, content, position)

    def _take(self, growth: int) -> None:
        if self.free_bytes is not None and growth > 0:
            self.free_bytes = max(self.free_bytes - growth, 0)

    def _give_back(self, size: int) -> None:
        if self.free_bytes is not None and size > 0:
            self.free_bytes += size

    def _resize(self, file: CachedFile, size: int) -> None:
        self._give_back(len(file.visible) - size)
        self._take(size - len(file.visible))
        file.resize(size)

    def truncate(self, descriptor: int, size: int) -> None:
        """Cut or extend a file."""
        with self._lock:
            file, path = self._files[descriptor]
            self._before("truncate", path)
            self._resize(file, size)
            os.ftruncate(descriptor, size)

    def rename(self, source: str, target: str) -> None:  # type: ignore[override]
        """Give a file or folder another name, in the place of what has it."""
        with self._lock:
            self._before("rename", source)
            replaced = self._cache.find(self._below(target))
            os.replace(source, target)
            self._cache.rename(self._below(source), self._below(target))
            if isinstance(replaced, CachedFile):
                self._give_back(len(replaced.visible))

    def remove(self, path: str) -> None:
        """Remove a file; one that is gone already is fine."""
        with self._lock:
            self._before("remove", path)
            file = self._cache.find(self._below(path))
            super().remove(path)
            if isinstance(file, CachedFile):
                self._cache.put(self._below(path), None)
                self._give_back(len(file.visible))

    def remove_tree(self, path: str) -> None:
        """Remove a folder with everything in it, name by name."""
        with self._lock:
            for parent, folders, files in os.walk(path, topdown=False):
                for name in files:
                    self.remove(f"{parent}/{name}")
                for name in folders:
                    self._remove_folder(f"{parent}/{name}")
            if os.path.isdir(path):
                self._remove_folder(path)

    def _remove_folder(self, path: str) -> None:
        self._before("remove", path)
        os.rmdir(path)
        self._cache.put(self._below(path), None)

    def make_dirs(self, path: str) -> None:
        """Make a folder and those above it."""
        with self._lock:
            below = ""
            for name in self._below(path).split("/"):
                below = f"{below}/{name}" if below else name
                if below and self._cache.find(below) is None:
                    self._before("make_dirs", path)
                    os.mkdir(f"{self.folder}/{below}", FOLDER_MODE)
                    self._cache.put(below, CachedFolder())

    def sync(self, descriptor: int) -> None:
        """Bring a file to the device; when that fails, it will never get there."""
        with self._lock:
            self._sync(*self._files[descriptor])

    def _sync(self, file: CachedFile, path: str) -> None:
        try:
            self._before("sync", path)
        except OSError:
            file.fail_sync()
            raise
        file.sync()

    def sync_file(self, path: str) -> None:
        """Bring a file to the device; one that is gone needs none."""
        try:
            descriptor = self.open(path, READ_ONLY)
        except FileNotFoundError:
            return
        try:
            self.sync(descriptor)
        finally:
            self.close(descriptor)

    def sync_dir(self, path: str) -> None:
        """Bring the names in a folder to the device; what is above this file system's own folder is there already."""
        with self._lock:
            self._before("sync_dir", path)
            if not self.folder.startswith(os.path.abspath(path) + "/"):
                self._cache.sync_folder(self._cache.folder(self._below(path)))

    def lock(self, path: str) -> int | None:
        """Hold a lock until it is closed or the process dies."""
        descriptor = super().lock(path)
        if descriptor is not None:
            self._locks.append(descriptor)
        return descriptor


def _temporary_folder(owner: FaultyFileSystem) -> str:
    folder = tempfile.mkdtemp(prefix="headwater-faulty-", dir=_MEMORY_FOLDER if os.path.isdir(_MEMORY_FOLDER) else None)
    weakref.finalize(owner, shutil.rmtree, folder, ignore_errors=True)
    return folder
