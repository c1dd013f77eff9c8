"""The single broker's metadata: a journal of changes, one JSON line each, in one of its log dirs.

A change is durable when `append` returns. The journal is read at the start and rewritten when it holds much more than
the image needs. A torn last line is what a crash leaves and is dropped; any other damage stops the start.
"""

import contextlib
import errno
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from headwater.cluster.changes import Change, from_line, to_line
from headwater.cluster.image import ClusterImage

FILE_NAME: Final = "headwater-metadata.jsonl"
_REWRITE_FROM_LINES: Final = 1000


class DamagedJournalError(Exception):
    """The journal cannot be read; the message says where and what to do."""


class EmbeddedStore:
    """The port to the embedded broker's metadata. `append` may be called from several threads."""

    def __init__(self, folders: Sequence[Path]) -> None:
        """The journal is in one of `folders`, or will be in the first: then it is `new`."""
        found = [folder / FILE_NAME for folder in folders if (folder / FILE_NAME).exists()]
        if len(found) > 1:
            raise DamagedJournalError(
                f"there are two metadata journals, {found[0]} and {found[1]}: move the wrong one away"
            )
        self.new = not found
        self.path = found[0] if found else folders[0] / FILE_NAME
        self._file: int | None = None
        self.image = ClusterImage()
        self._line_count = 0
        self._lock = threading.Lock()

    def open(self) -> ClusterImage:
        """Reads the journal and makes it ready for more."""
        lines, whole_bytes = self._read()
        for line in lines:
            self.image.apply(line)
        if whole_bytes is not None:
            os.truncate(self.path, whole_bytes)
        self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._line_count = len(lines)
        return self.image

    def append(self, *changes: Change) -> None:
        """Makes `changes` durable, all or (after a crash) a leading part of them, then applies them to the image.

        OSError when they cannot be written: nothing has changed then. After any but a full disk it is not to be used
        again: only a start finds out what the device has kept.
        """
        data = "".join(to_line(change) + "\n" for change in changes).encode()
        with self._lock:
            self._write(data)
            for change in changes:
                self.image.apply(change)
            self._line_count += len(changes)

    def _write(self, data: bytes) -> None:
        assert self._file is not None
        start = os.fstat(self._file).st_size
        try:
            written = os.write(self._file, data)
            if written < len(data):
                raise OSError(errno.ENOSPC, "the disk took only part of a metadata change")
        except OSError:
            os.ftruncate(self._file, start)
            raise
        try:
            os.fsync(self._file)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, start)
            raise OSError(errno.EIO, f"a metadata change could not be synced: {error.strerror}") from error

    def rewrite_if_long(self) -> None:
        """Replaces a long journal by the changes that lead to the same image. Call when deletions are complete."""
        changes = list(self.image.as_changes())
        if self._line_count < max(_REWRITE_FROM_LINES, 2 * len(changes)):
            return
        fresh = self.path.with_suffix(".tmp")
        with fresh.open("w", encoding="utf-8") as out:
            out.writelines(to_line(change) + "\n" for change in changes)
            out.flush()
            os.fsync(out.fileno())
        fresh.replace(self.path)
        _sync_folder(self.path.parent)
        self.close()
        self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        self._line_count = len(changes)

    def close(self) -> None:
        """Lets go of the file; the store is not used afterwards."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _read(self) -> tuple[list[Change], int | None]:
        """The changes in the journal, and its length without a torn last line when it has one."""
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return [], None
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
        return changes, whole if whole < len(data) else None


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
