"""Letting a log go on in another folder that holds the same files, without closing it.

Changes only what is in memory, in one turn of the event loop: whoever has the log or one of its segments at hand keeps
it, reads what is open from the old files, and opens everything else in the new ones.
"""

import contextlib

from headwater.log.checkpoints import LEADER_EPOCHS
from headwater.log.folder_changes import FolderChanges
from headwater.log.leader_epochs import LeaderEpochs
from headwater.log.producer_snapshots import ProducerSnapshots
from headwater.log.rolling import Rolling
from headwater.log.segment_row import SegmentRow


class Relocation:
    """The parts of one log that know where it lies; `row`, `rolling` and `snapshots` tell what its folder holds."""

    def __init__(
        self,
        row: SegmentRow,
        rolling: Rolling,
        snapshots: ProducerSnapshots,
        leader_epochs: LeaderEpochs,
        changes: FolderChanges,
    ) -> None:
        self.row = row
        self.rolling = rolling
        self.snapshots = snapshots
        self.leader_epochs = leader_epochs
        self._changes = changes

    def take_place(self, folder: str) -> None:
        """The files are at `folder` from now on; sealed segments and snapshots are on the device there, names need not
        be. No flush may run meanwhile."""
        self.rolling.path = self.snapshots.folder = folder
        self.leader_epochs.path = f"{folder}/{LEADER_EPOCHS}"
        for segment in self.row.segments:
            segment.move_to(folder)
        with contextlib.suppress(OSError):
            # As at an append: the disk gets it later, and a crash has it rebuilt.
            self.row.active.txn_index.write_pending()
        self._changes.begin_anew()
