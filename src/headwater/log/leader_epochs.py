"""Which leader wrote which offsets: the start of every leader epoch (`leader-epoch-checkpoint`).

Written at every change without waiting for the device; `sync` does that and is called before a recovery point
is published, so an epoch can only be lost together with the batches that would bring it back in recovery.
"""

from bisect import bisect_right

from headwater.log.checkpoints import read_leader_epochs, write_leader_epochs
from headwater.log.disk_errors import NO_ROOM
from headwater.log.filesystem import FileSystem

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


class LeaderEpochs:
    """Epochs and their start offsets, both rising. `latest` is -1 when there is none."""

    __slots__ = ("_epochs", "_needs_sync", "_starts", "fs", "latest", "path")

    def __init__(self, fs: FileSystem, path: str) -> None:
        self.fs = fs
        self.path = path
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self.latest = UNDEFINED_EPOCH
        self._needs_sync = False

    def load(self) -> None:
        """Read the file; CheckpointError when it holds nonsense."""
        for epoch, start_offset in read_leader_epochs(self.fs, self.path):
            self._insert(epoch, start_offset)

    @property
    def entries(self) -> list[tuple[int, int]]:
        """Pairs of epoch and start offset."""
        return list(zip(self._epochs, self._starts, strict=True))

    def assign(self, epoch: int, start_offset: int) -> None:
        """An epoch starts at an offset; entries that contradict it (not smaller in both) give way."""
        if epoch == self.latest and start_offset >= self._starts[-1]:
            return
        if epoch < 0 or start_offset < 0:
            raise ValueError(f"leader epoch {epoch} at offset {start_offset} cannot be: neither may be negative")
        before = list(self._epochs), list(self._starts), self.latest
        self._insert(epoch, start_offset)
        try:
            self._write()
        except OSError:
            # Nobody would write it again: the next batch of this epoch finds it in memory.
            self._epochs, self._starts, self.latest = before
            raise

    def begin(self, epoch: int, end_offset: int) -> None:
        """A leader takes over a log that knows no epoch yet: Apache notes it before there is a record."""
        if self.latest == UNDEFINED_EPOCH:
            try:
                self.assign(epoch, end_offset)
            except OSError as error:
                # The first batch brings it to a disk that is full now.
                if error.errno not in NO_ROOM:
                    raise

    def _insert(self, epoch: int, start_offset: int) -> None:
        while self._epochs and (self._epochs[-1] >= epoch or self._starts[-1] >= start_offset):
            self._epochs.pop()
            self._starts.pop()
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        self.latest = epoch

    def truncate_from_end(self, end_offset: int) -> None:
        """Forget the epochs that start at or beyond the new end."""
        if not self._starts or self._starts[-1] < end_offset:
            return
        while self._starts and self._starts[-1] >= end_offset:
            self._epochs.pop()
            self._starts.pop()
        self.latest = self._epochs[-1] if self._epochs else UNDEFINED_EPOCH
        self._write()

    def truncate_from_start(self, start_offset: int) -> None:
        """Forget the epochs that ended before the new start; the one it falls into now starts there."""
        gone = bisect_right(self._starts, start_offset)
        if gone == 0 or (gone == 1 and self._starts[0] == start_offset):
            return
        del self._epochs[: gone - 1], self._starts[: gone - 1]
        self._starts[0] = start_offset
        try:
            self._write()
        except OSError as error:
            # What goes here makes room on a full disk. The file says more than it must, and a start cuts it again.
            if error.errno not in NO_ROOM:
                raise

    def clear(self) -> None:
        """Forget everything."""
        if self._epochs:
            self._epochs.clear()
            self._starts.clear()
            self.latest = UNDEFINED_EPOCH
            self._write()

    def end_offset(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The largest epoch not beyond `epoch`, and where it ended; (-1, -1) when that cannot be said.

        The newest epoch ends at the log's end. Before the first known epoch, the answer is that epoch's
        start.
        """
        if epoch == UNDEFINED_EPOCH:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if epoch == self.latest:
            return epoch, log_end_offset
        slot = bisect_right(self._epochs, epoch)
        if slot == len(self._epochs):
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        return (self._epochs[slot - 1] if slot else epoch), self._starts[slot]

    def epoch_of(self, offset: int) -> int:
        """The epoch that an offset belongs to, -1 when it is before the first."""
        slot = bisect_right(self._starts, offset)
        return self._epochs[slot - 1] if slot else UNDEFINED_EPOCH

    def sync(self) -> None:
        """Bring the file to the device if it changed; may run in a thread."""
        if self._needs_sync:
            # Cleared first: an epoch assigned meanwhile sets it again.
            self._needs_sync = False
            try:
                self.fs.sync_file(self.path)
            except OSError:
                self._needs_sync = True
                raise

    def _write(self) -> None:
        write_leader_epochs(self.fs, self.path, self.entries)
        self._needs_sync = True
