"""The single broker's metadata: a journal of changes, one JSON line each, in one of its log dirs.

A change is durable when `append` returns. The journal is read at the start and rewritten when it holds much more than
the image needs, at the start or while changes come in. A torn last line is what a crash leaves and is dropped; any
other damage stops the start.
"""

import contextlib
import errno
import threading
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final, Protocol
from uuid import UUID

from headwater.cluster.changes import Change, from_line, to_line
from headwater.cluster.image import ClusterImage

FILE_NAME: Final = "headwater-metadata.jsonl"
_REWRITE_FROM_LINES: Final = 1000


class DamagedJournalError(Exception):
    """The journal cannot be read; the message says where and what to do."""


class JournalFiles(Protocol):
    """What the journal needs of a file system; `headwater.log.filesystem.FileSystem` has it."""

    def open(self, path: str) -> int:
        """A descriptor for reading and writing; the file is made when absent."""

    def close(self, descriptor: int, /) -> None:
        """Lets go of a descriptor."""

    def size(self, descriptor: int) -> int:
        """Bytes in an open file."""

    def write_all(self, descriptor: int, content: bytes, position: int) -> None:
        """Writes all of `content` there."""

    def truncate(self, descriptor: int, size: int, /) -> None:
        """Cuts a file."""

    def sync(self, descriptor: int) -> None:
        """Returns when the content is on the device."""

    def sync_dir(self, path: str) -> None:
        """Returns when the names in a folder are on the device."""

    def rename(self, source: str, target: str, /) -> None:
        """Puts a file in the place of another."""

    def remove(self, path: str) -> None:
        """Removes a file; one that is gone already is fine."""

    def read_file(self, path: str) -> bytes:
        """The whole content."""


class EmbeddedStore:
    """The port to the embedded broker's metadata. All methods may be called from several threads."""

    def __init__(self, folders: Sequence[Path], fs: JournalFiles) -> None:
        """The journal is in one of `folders`, or will be in the first: then it is `new`."""
        found = [folder / FILE_NAME for folder in folders if (folder / FILE_NAME).exists()]
        if len(found) > 1:
            raise DamagedJournalError(
                f"there are two metadata journals, {found[0]} and {found[1]}: move the wrong one away"
            )
        self.new = not found
        self.path = found[0] if found else folders[0] / FILE_NAME
        self.image = ClusterImage()
        self.out_of_sight: set[UUID] = set()
        """Deleted topics whose folders have other names by now, as long as no loss of power takes that back."""
        self._fs = fs
        self._file: int | None = None
        self._size = 0
        self._line_count = 0
        self._rewrite_from = _REWRITE_FROM_LINES
        self._since: list[bytes] | None = None
        """What was appended while the journal is being rewritten."""
        self._lock = threading.Lock()
        self._rewriting = threading.Lock()

    def open(self) -> ClusterImage:
        """Reads the journal and makes it ready for more."""
        lines, self._size = self._read()
        for line in lines:
            self.image.apply(line)
        # Half of one that a crash has left means nothing.
        self._fs.remove(str(self._fresh_path))
        self._file = self._fs.open(str(self.path))
        if self._fs.size(self._file) > self._size:
            self._fs.truncate(self._file, self._size)
        # What is read may have its name only in memory: a rewrite that was killed had just given it.
        self._fs.sync_dir(str(self.path.parent))
        self._line_count = len(lines)
        return self.image

    def append(self, *changes: Change) -> None:
        """Makes `changes` durable, all or (after a crash) a leading part of them, then applies them to the image.

        OSError when they cannot be written: nothing has changed then. After any but a full disk it is not to be used
        again: only a start finds out what the device has kept.
        """
        data = _lines_of(changes)
        with self._lock:
            self._write(data)
            for change in changes:
                self.image.apply(change)
            self._line_count += len(changes)
            if self._since is not None:
                self._since.append(data)

    def _write(self, data: bytes) -> None:
        if self._file is None:
            raise OSError(errno.EIO, "the metadata journal is closed")
        try:
            self._fs.write_all(self._file, data, self._size)
        except OSError:
            self._fs.truncate(self._file, self._size)
            raise
        try:
            self._fs.sync(self._file)
        except OSError as error:
            with contextlib.suppress(OSError):
                self._fs.truncate(self._file, self._size)
            raise OSError(errno.EIO, f"a metadata change could not be synced: {error.strerror}") from error
        self._size += len(data)

    @property
    def is_long(self) -> bool:
        """Whether there are so many lines that it is worth looking how many are needed."""
        return self._line_count >= self._rewrite_from

    @property
    def is_closed(self) -> bool:
        """Whether nothing can be appended, after `close` or after a rewrite of which nobody knows what was kept."""
        return self._file is None

    def forget_deleted(self, topic_ids: Collection[UUID]) -> None:
        """Nothing is left of these topics on any disk that a later start could take for theirs."""
        with self._lock:
            for topic_id in topic_ids:
                self.image.deleted_ids.pop(topic_id, None)

    def rewrite_if_long(self) -> None:
        """Replaces a long journal by the changes that lead to the same image; changes may come in meanwhile.

        They wait only while the few that came meanwhile are written once more and the names are exchanged. OSError when
        it cannot be done: the journal is as before then, unless `is_closed` says that it is lost.
        """
        if not self.is_long:
            return
        with self._rewriting:
            with self._lock:
                changes = list(self.image.as_changes())
                self._rewrite_from = max(_REWRITE_FROM_LINES, 2 * len(changes))
                if not self.is_long or self._file is None:
                    return
                # One that fails is not tried again at once.
                self._rewrite_from = 2 * self._line_count
                self._since = []
            try:
                self._rewrite(changes)
            finally:
                self._since = None

    def _rewrite(self, changes: list[Change]) -> None:
        data = _lines_of(changes)
        fresh = str(self._fresh_path)
        self._fs.remove(fresh)
        descriptor = self._fs.open(fresh)
        try:
            self._fs.write_all(descriptor, data, 0)
            self._fs.sync(descriptor)
            with self._lock:
                self._take_over(descriptor, len(data), len(changes))
        except BaseException:
            if self._file != descriptor:
                self._fs.close(descriptor)
            raise

    def _take_over(self, descriptor: int, size: int, line_count: int) -> None:
        """The new file takes the old one's place. In every step the name leads to a file with all that was appended."""
        assert self._since is not None
        meanwhile = b"".join(self._since)
        if meanwhile:
            self._fs.write_all(descriptor, meanwhile, size)
            self._fs.sync(descriptor)
        self._fs.rename(str(self._fresh_path), str(self.path))
        old, self._file = self._file, None
        if old is not None:
            self._fs.close(old)
        # Until this is done a loss of power may bring the old file back: nothing may be appended to the new one.
        self._fs.sync_dir(str(self.path.parent))
        self._file = descriptor
        self._size = size + len(meanwhile)
        self._line_count = line_count + meanwhile.count(b"\n")
        self._rewrite_from = max(_REWRITE_FROM_LINES, 2 * line_count)

    def close(self) -> None:
        """Lets go of the file; the store is not used afterwards."""
        with self._rewriting, self._lock:
            if self._file is not None:
                self._fs.close(self._file)
                self._file = None

    @property
    def _fresh_path(self) -> Path:
        return self.path.with_suffix(".tmp")

    def _read(self) -> tuple[list[Change], int]:
        """The changes in the journal, and its length without a torn last line."""
        try:
            data = self._fs.read_file(str(self.path))
        except FileNotFoundError:
            return [], 0
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self.path)) from error
        whole = data.rfind(b"\n") + 1
        changes = []
        for number, line in enumerate(data[:whole].splitlines(), 1):
            try:
                changes.append(from_line(line.decode()))
            except ValueError as error:
                raise DamagedJournalError(
                    f"{self.path}, line {number}: {error}. Restore the file, or move it away: then the topics are"
                    " taken from the partition folders, without their settings."
                ) from error
        return changes, whole


def _lines_of(changes: Sequence[Change]) -> bytes:
    return "".join(to_line(change) + "\n" for change in changes).encode()
