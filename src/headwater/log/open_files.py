"""Open files of segments: few at a time, and never closed under someone who still reads from one.

A file is closed when nobody refers to it any more: neither its segment nor a `LogSlice` that is being sent.
The process-wide `OpenFiles` only decides which segments let go of theirs. It knows nothing of what is in the
files.
"""

import threading
from collections import OrderedDict
from typing import Protocol

from headwater.log.filesystem import READ_WRITE, FileSystem


class OpenFile:
    """A descriptor that closes itself with the last reference; `used` when it was wanted again.

    Other threads may let go of a segment's file at any time, and its number is another file's then. So files are worked
    on through these methods, which hold the object until they return.
    """

    __slots__ = ("_fs", "descriptor", "used")

    def __init__(self, fs: FileSystem, descriptor: int) -> None:
        self.descriptor = descriptor
        self.used = False
        self._fs = fs

    def fileno(self) -> int:
        """The descriptor, for `os.sendfile` and the like; valid as long as this object is held."""
        return self.descriptor

    def read_at(self, position: int, size: int) -> bytes:
        """Up to `size` bytes from `position`."""
        return self._fs.pread(self.descriptor, size, position)

    def cut_to(self, size: int) -> None:
        """Cut the file to this length, or lengthen it."""
        self._fs.truncate(self.descriptor, size)

    def sync(self) -> None:
        """Bring the data to the device."""
        self._fs.sync(self.descriptor)

    def __del__(self) -> None:
        self._fs.close(self.descriptor)


class FileHolder(Protocol):
    """Whoever keeps an open file for later use and can do without it."""

    file: OpenFile | None
    stem: str

    @property
    def path(self) -> str:
        """The file, which begins with `stem`."""

    def release_file(self) -> None:
        """Let go of the open file and of what was read along with it; both come back when needed."""


class Publishes(Protocol):
    """Whoever has index entries in memory that other programs should find in files soon."""

    stem: str

    def publish_indexes(self) -> None:
        """Writes them; may run in a thread."""


class OpenFiles:
    """Bounds the files kept open: those not used lately are let go first (a clock with one hand).

    Use costs one attribute store (`file.used = True`), so the hot path pays nothing for the bookkeeping. Safe
    to call from several threads.
    """

    def __init__(self, fs: FileSystem, limit: int = 4096) -> None:
        self.fs = fs
        self.limit = limit
        self.unpublished: set[Publishes] = set()
        """Segments with index entries that no reader of their files can see yet; filled while they are appended to."""
        self._holders: OrderedDict[FileHolder, None] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._holders)

    def open(self, holder: FileHolder) -> OpenFile:
        """Open the holder's file and let it be kept for now."""
        with self._lock:
            if holder.file is not None:
                return holder.file
            file = OpenFile(self.fs, self.fs.open(holder.path, READ_WRITE))
            holder.file = file
            self._holders[holder] = None
            if len(self._holders) > self.limit:
                self._release_one(holder)
            return file

    def forget(self, holder: FileHolder) -> None:
        """The holder goes for good (deleted or closed)."""
        with self._lock:
            holder.file = None
            self._holders.pop(holder, None)

    def relocate(self, holder: FileHolder, stem: str) -> None:
        """The holder's file lies elsewhere from now on: no thread gets at the old one through it any more."""
        with self._lock:
            holder.stem = stem
            holder.file = None
            self._holders.pop(holder, None)

    def _release_one(self, newest: FileHolder) -> None:
        for _ in range(2 * len(self._holders)):
            holder = next(iter(self._holders))
            if holder is newest or (holder.file is not None and holder.file.used):
                if holder.file is not None:
                    holder.file.used = False
                self._holders.move_to_end(holder)
            else:
                del self._holders[holder]
                holder.release_file()
                return
