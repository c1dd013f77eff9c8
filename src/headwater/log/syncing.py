"""Bringing a log's files to the device, in the order that lets the recovery point move.

A sync that failed is final: the system drops what it could not write and calls the next sync a success, so only a
restart, which reads what is there, can be trusted again. Runs in one thread at a time.
"""

from headwater.log.disk_errors import OUT_OF_FILES, sync_failure
from headwater.log.filesystem import FileSystem
from headwater.log.folder_changes import FolderChanges
from headwater.log.leader_epochs import LeaderEpochs
from headwater.log.segment import Segment
from headwater.log.segment_row import SegmentRow


class Syncing:
    """Syncs the data, indexes, snapshots, epochs and names of one log. After a `failure` it is the only answer."""

    __slots__ = ("_changes", "_fs", "_leader_epochs", "_row", "failure")

    def __init__(self, fs: FileSystem, row: SegmentRow, leader_epochs: LeaderEpochs, changes: FolderChanges) -> None:
        self._fs = fs
        self._row = row
        self._leader_epochs = leader_epochs
        self._changes = changes
        self.failure: OSError | None = None

    def sync(self, folder: str, start_offset: int, end_offset: int) -> None:
        """Return when the records of [start, end) and all that tells about them are on the device."""
        if self.failure is not None:
            raise self.failure
        try:
            for segment in self._row.between(start_offset, end_offset):
                self._sync_data(segment)
            self._leader_epochs.sync()
            self._changes.sync(folder)
        except OSError as error:
            if error.errno in OUT_OF_FILES:
                raise
            self.failure = sync_failure(error)
            raise self.failure from error

    def _sync_data(self, segment: Segment) -> None:
        try:
            segment.flush()
        except FileNotFoundError:
            if segment in self._row.segments:
                raise

    def sync_for_clean_stop(self, folder: str, snapshot_path: str) -> None:
        """Also what only a clean stop leaves: the next start trusts it, whatever happens to the machine until then."""
        active = self._row.active
        active.flush()
        active.sync_indexes()
        active.abandon()
        self._fs.sync_file(snapshot_path)
        self._leader_epochs.sync()
        self._changes.names_changed()
        self._changes.sync(folder)
