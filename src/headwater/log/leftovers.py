"""Files that interrupted work left in a partition's folder: `.deleted`, `.cleaned`, `.swap` and `.tmp`.

Cleaning writes new segments as `.cleaned`, renames them to `.swap` when they are complete, removes the old
segments and drops the suffix. So a `.cleaned` file is worth nothing, and a `.swap` file replaces all segments
in its range.
"""

import logging

from headwater.log.filesystem import FileSystem
from headwater.log.open_files import OpenFiles
from headwater.log.segment import LOG_SUFFIX, CorruptSegmentError, Segment
from headwater.log.segment_swap import CLEANED_SUFFIX, SWAP_SUFFIX

_log = logging.getLogger(__name__)

_DELETED, _CLEANED, _SWAP, _TEMPORARY = ".deleted", CLEANED_SUFFIX, SWAP_SUFFIX, ".tmp"


def settle_leftovers(fs: FileSystem, folder: str, names: list[str]) -> list[str]:
    """Finish or undo interrupted work in a folder with these files; the names that are there afterwards."""
    if not any(name.endswith((_DELETED, _CLEANED, _SWAP, _TEMPORARY)) for name in names):
        return names
    cleaned = [name for name in names if name.endswith(_CLEANED)]
    swaps = [name for name in names if name.endswith(_SWAP)]
    # While a segment is split in several, `.swap` files beyond a `.cleaned` one are not complete as a set.
    first_cleaned = min((_offset(name) for name in cleaned), default=None)
    broken = [name for name in swaps if first_cleaned is not None and _offset(name) >= first_cleaned]
    for name in broken:
        fs.remove(f"{folder}/{name}")
    if swaps:
        # What died here need not have synced: a broken `.swap` must not come back with the power when no `.cleaned`
        # file tells about it any more, nor a good one be gone when the old segments are.
        fs.sync_dir(folder)
    for name in [*cleaned, *(n for n in names if n.endswith((_DELETED, _TEMPORARY)))]:
        fs.remove(f"{folder}/{name}")
    good = sorted(name for name in swaps if name not in broken)
    if good:
        _finish_swap(fs, folder, good)
    return fs.list_dir(folder)


def _finish_swap(fs: FileSystem, folder: str, swaps: list[str]) -> None:
    for data in swaps:
        if not data.endswith(LOG_SUFFIX + _SWAP):
            continue
        first, end = _offset(data), _end_offset(fs, folder, data)
        for name in fs.list_dir(folder):
            if not name.endswith(_SWAP) and name[:20].isdigit() and first <= _offset(name) < end:
                _log.info("removed %s/%s: cleaning had replaced it", folder, name)
                fs.remove(f"{folder}/{name}")
    # The old segments must not come back beside the new one.
    fs.sync_dir(folder)
    for name in swaps:
        fs.rename(f"{folder}/{name}", f"{folder}/{name.removesuffix(_SWAP)}")


def _end_offset(fs: FileSystem, folder: str, swap_name: str) -> int:
    """The offset after the last batch of a `.swap` file, read under a name of its own."""
    base_offset = _offset(swap_name)
    segment = Segment(
        OpenFiles(fs),
        folder,
        base_offset,
        size=fs.size_of(f"{folder}/{swap_name}"),
        created_ms=0,
        interval_bytes=0,
        suffix=_SWAP,
    )
    end_offset = base_offset
    try:
        for batch in segment.batches():
            end_offset = batch.header.next_offset
    except CorruptSegmentError as error:
        _log.warning("%s", error)
    finally:
        segment.abandon()
    return end_offset


def _offset(name: str) -> int:
    return int(name.partition(".")[0])
