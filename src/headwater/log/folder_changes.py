"""What changes in a partition's folder beside the data: files that are dropped, and what has to reach the device.

Noted by the thread that changes the folder; `sync` brings it to the device in one other thread at a time.
"""

import posixpath
from collections.abc import Sequence

from headwater.log.filesystem import FileSystem
from headwater.log.producer_snapshots import ProducerSnapshots
from headwater.log.segment import Segment

DELETED_SUFFIX = ".deleted"


class FolderChanges:
    """The changes of one folder since the last `sync`; what is noted during a sync is left for the next."""

    __slots__ = ("_deleted_files", "_finished", "_fs", "_is_new", "_names_changed", "_snapshot_files", "_snapshots")

    def __init__(self, fs: FileSystem, snapshots: ProducerSnapshots, *, is_new: bool) -> None:
        self._fs = fs
        self._snapshots = snapshots
        self._is_new = self._names_changed = is_new
        self._finished: list[Segment] = []
        self._snapshot_files: list[str] = []
        self._deleted_files: list[str] = []

    def segment_finished(self, segment: Segment, next_offset: int) -> None:
        """A segment rolled: below the recovery point it is trusted, its indexes and the snapshot after it included."""
        self._finished.append(segment)
        self._snapshot_files.append(self._snapshots.path(next_offset))

    def names_changed(self) -> None:
        """Files were made, renamed or removed."""
        self._names_changed = True

    def begin_anew(self) -> None:
        """The files are in another folder, with all that was noted on the device, but for names."""
        self._finished.clear()
        self._snapshot_files.clear()
        self._is_new = self._names_changed = True

    @property
    def has_unsynced_names(self) -> bool:
        """Whether names in the folder, or its own, may be lost with the power."""
        return self._names_changed or self._is_new

    def drop(self, segments: Sequence[Segment], *, keep_snapshot: int = -1) -> None:
        """Take the files of segments out of sight, in this order, and their snapshots but the one at an offset."""
        for segment in segments:
            segment.rename_files(DELETED_SUFFIX, self._deleted_files)
            if segment.base_offset != keep_snapshot:
                self._snapshots.remove(segment.base_offset)
        self._names_changed = True

    def take_deleted_files(self) -> list[str]:
        """The files of segments dropped since the last call, for whoever unlinks them when their time has come."""
        files, self._deleted_files = self._deleted_files, []
        return files

    def sync(self, folder: str) -> None:
        """Bring everything that was noted to the device, and the folder's own name when it is new."""
        while self._finished:
            # Its records may be on the device, and what was cut behind them by the roll not yet.
            self._fs.sync_file(self._finished[0].path)
            self._finished[0].sync_indexes()
            del self._finished[0]
        while self._snapshot_files:
            self._fs.sync_file(self._snapshot_files[0])
            del self._snapshot_files[0]
        if self._names_changed:
            # Cleared first: a segment made meanwhile sets it again.
            self._names_changed = False
            try:
                self._fs.sync_dir(folder)
            except OSError:
                self._names_changed = True
                raise
        if self._is_new:
            self._fs.sync_dir(posixpath.dirname(folder))
            self._is_new = False
