"""How a log loses its end, or everything: what happens to segments, producers and their snapshots, in which order.

What the log's offsets become, and who may do this when, is the log's own business: it holds the lock meanwhile.
"""

from bisect import bisect_right

from headwater.config import TopicConfig
from headwater.log.filesystem import FileSystem
from headwater.log.folder_changes import FolderChanges
from headwater.log.producer_snapshots import ProducerSnapshots
from headwater.log.producer_state import ProducerStates
from headwater.log.recovery import replay_producers
from headwater.log.rolling import Rolling
from headwater.log.segment_row import SegmentRow


class Cutting:
    """Cuts the segments of one log; `path` is where its folder lies by now."""

    __slots__ = ("_changes", "_fs", "_producers", "_rolling", "_row", "_snapshots")

    def __init__(
        self,
        fs: FileSystem,
        *,
        row: SegmentRow,
        rolling: Rolling,
        producers: ProducerStates,
        snapshots: ProducerSnapshots,
        changes: FolderChanges,
    ) -> None:
        self._fs = fs
        self._row = row
        self._rolling = rolling
        self._producers = producers
        self._snapshots = snapshots
        self._changes = changes

    def cut_end(self, path: str, offset: int, now_ms: int) -> None:
        """Drop the segments behind an offset, and what the one before has of them; it is on the device then."""
        beyond = len(self._row.bases) - bisect_right(self._row.bases, offset)
        self._changes.drop(self._row.drop_from_end(beyond))
        # New records may end just where an old one began: what is cut must not come back with the power, and the
        # dropped segments not behind a shorter one.
        self._fs.sync_dir(path)
        self._row.active.truncate_to(offset, now_ms)
        self._row.active.flush()

    def start_anew(self, path: str, offset: int, now_ms: int, config: TopicConfig) -> None:
        """Drop all segments, and begin one at an offset."""
        # The files of a segment with the same base offset have to go before those of the new one can be made.
        self._changes.drop(self._row.segments[::-1])
        new = self._rolling.new_segment(offset, now_ms, config)
        self._row.drop_from_end(len(self._row.segments), then=new)
        self._fs.sync_dir(path)

    def forget_producers(self) -> None:
        """None has written to what is left."""
        self._producers.clear()
        for snapshot in list(self._snapshots.offsets):
            self._snapshots.remove(snapshot)

    def reload_producers(self, start_offset: int, end_offset: int, *, now_ms: int, expiration_ms: int) -> None:
        """Remember of producers what the records between these offsets say."""
        self._snapshots.keep_within(start_offset, end_offset)
        replay_producers(
            self._producers,
            self._snapshots,
            self._row.segments,
            log_start_offset=start_offset,
            log_end_offset=end_offset,
            now_ms=now_ms,
            expiration_ms=expiration_ms,
        )
