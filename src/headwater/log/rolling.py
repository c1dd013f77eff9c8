"""How a segment is finished and the next one begun: wholly, or as if it had not been tried.

Half a roll would be worse than none: the files of a new segment hide, after a crash, what the old one got since. So
they are removed when something fails, and while that fails too nothing may be appended.
"""

import contextlib
import secrets

from headwater.config import TopicConfig
from headwater.log.folder_changes import FolderChanges
from headwater.log.open_files import OpenFiles
from headwater.log.producer_snapshots import ProducerSnapshots
from headwater.log.producer_state import ProducerStates
from headwater.log.segment import SUFFIXES, Segment
from headwater.log.segment_row import SegmentRow


class Rolling:
    """Begins the segments of one log. `half_done` is the base offset of one that could be neither made nor undone."""

    __slots__ = ("_changes", "_files", "_producers", "_row", "_snapshots", "half_done", "path")

    def __init__(
        self,
        files: OpenFiles,
        path: str,
        *,
        row: SegmentRow,
        producers: ProducerStates,
        snapshots: ProducerSnapshots,
        changes: FolderChanges,
    ) -> None:
        self._files = files
        self.path = path
        self._row = row
        self._producers = producers
        self._snapshots = snapshots
        self._changes = changes
        self.half_done: int | None = None

    def roll(self, base_offset: int, now_ms: int, config: TopicConfig) -> None:
        """Finish the active segment and begin one at `base_offset`."""
        self.undo()
        old = self._row.active
        self.half_done = base_offset
        try:
            old.seal()
            self._snapshots.take(list(self._producers.entries.values()), base_offset)
            new = self.new_segment(base_offset, now_ms, config)
        except OSError:
            with contextlib.suppress(OSError):
                self.undo()
            raise
        self._changes.segment_finished(old, base_offset)
        self._row.add(new)
        self.half_done = None

    def undo(self) -> None:
        """Remove what a roll that failed has left, if one did."""
        if self.half_done is not None:
            for kind in reversed(SUFFIXES):
                self._files.fs.remove(f"{self.path}/{self.half_done:020d}{kind}")
            self._snapshots.remove(self.half_done)
            self._row.active.sealed = False
            self.half_done = None

    def new_segment(self, base_offset: int, now_ms: int, config: TopicConfig) -> Segment:
        """An empty segment with its files, not in the row yet."""
        self._changes.names_changed()
        return Segment.create(
            self._files,
            self.path,
            base_offset,
            now_ms=now_ms,
            interval_bytes=config.index_interval_bytes,
            jitter_ms=new_jitter_ms(config),
        )


def new_jitter_ms(config: TopicConfig) -> int:
    """By how much earlier than `segment.ms` a segment is finished, so that not all are at once."""
    bound_ms = min(config.segment_jitter_ms, config.segment_ms)
    return secrets.randbelow(bound_ms) if bound_ms > 0 else 0
