"""Putting a cleaned segment in the place of those it was made from, so that a crash at any point loses nothing.

The steps, each durable before the next: the new files get the suffix `.swap` (`begin`; from here on an opening of the
folder completes the swap), the old ones are renamed away and the row has the new segment (`replace`), the suffix goes
(`finish`). The steps run on the event loop and are short; whoever takes them syncs the folder in between.
"""

from headwater.log.folder_changes import FolderChanges
from headwater.log.segment import Segment
from headwater.log.segment_row import SegmentRow

CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"


class CleaningAbortedError(Exception):
    """The log changed under the cleaner: records were deleted, it was truncated or closed. Cleaning can begin anew."""


class SegmentSwap:
    """One replacement, from `begin` to `finish` or to `cancel`."""

    def __init__(self, row: SegmentRow, changes: FolderChanges, old: list[Segment], new: Segment) -> None:
        self.old = old
        self.new = new
        self._row = row
        self._changes = changes
        self._undropped = [*old]
        self._begun = self._cancelled = self._replaced = False

    def begin(self) -> None:
        """Offer the complete `.cleaned` files; CleaningAbortedError when the old segments are gone."""
        if not self._row.holds(self.old):
            raise CleaningAbortedError(f"the segments that {self.new.path} was made from are gone")
        self._begun = True
        self.new.rename_files(SWAP_SUFFIX)

    def cancel(self) -> None:
        """The old segments change: what was offered is worth nothing, not even to a start after a crash now."""
        self._cancelled = True
        if self._replaced:
            self.drop_old()
        elif self._begun:
            # One `.cleaned` file is enough to make all of them leftovers. `begin` may have failed half way.
            self.new.suffix = SWAP_SUFFIX
            self.new.rename_files(CLEANED_SUFFIX)

    def replace(self) -> None:
        """Let readers have the new segment; the old files keep serving whoever reads from them."""
        if self._cancelled or not self._row.holds(self.old):
            raise CleaningAbortedError(f"the segments that {self.new.path} was made from have changed")
        self._row.replace(self.old, self.new)
        self._replaced = True
        self.drop_old()

    def drop_old(self) -> None:
        """Rename the old files away. After an error there are some left: the new segment has no name before they go."""
        while self._undropped:
            self._changes.drop(self._undropped[:1], keep_snapshot=self.new.base_offset)
            del self._undropped[0]

    @property
    def is_half_done(self) -> bool:
        """Whether readers have the new segment, and it has not got its name yet."""
        return self._replaced and self.new.suffix == SWAP_SUFFIX

    def finish(self) -> None:
        """Give the new segment its name, unless it was dropped meanwhile."""
        if self.new.suffix == SWAP_SUFFIX:
            self.new.rename_files("")
            self._changes.names_changed()
