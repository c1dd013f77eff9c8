"""The two indexes of a segment: offset -> position (`.index`) and timestamp -> offset (`.timeindex`).

Entries live in arrays and are written to their file in bulk: about once a second for readers of the file, and when the
segment rolls or closes. A crash in between costs nothing, as the newest segment's indexes are rebuilt from its data.
The formats are Kafka's, big-endian: 8 bytes an entry (relative offset, position) and 12 bytes (timestamp, relative
offset).

Only one thread adds or cuts entries. `write_pending` may run in another thread meanwhile; the caller sees to
it that two of them, or one and a cut, do not meet.
"""

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right

from headwater.log.filesystem import CREATE, READ_ONLY, FileSystem

OFFSET_ENTRY_BYTES = 8
TIME_ENTRY_BYTES = 12
NO_TIMESTAMP = -1
_OFFSET_ENTRY = struct.Struct(">II")
_TIME_ENTRY = struct.Struct(">qI")


class CorruptIndexError(ValueError):
    """An index file that cannot be trusted and has to be rebuilt from the segment's data."""


def _big_endian_words(content: bytes) -> "array[int]":
    words = array("I")
    words.frombytes(content)
    if sys.byteorder == "little":
        words.byteswap()
    return words


class _IndexFile:
    """What both indexes share: a file that lags behind the entries in memory."""

    entry_bytes = 0

    def __init__(self, fs: FileSystem, path: str) -> None:
        self.fs = fs
        self.path = path
        self.written = 0
        self._stale_tail = True

    def __len__(self) -> int:
        raise NotImplementedError

    def _encode(self, first: int, last: int) -> bytes:
        raise NotImplementedError

    def write_pending(self, *, sync: bool = False) -> None:
        """Bring the file up to date with the entries, and to the device with `sync`."""
        count = len(self)
        if count == self.written and not self._stale_tail and not sync:
            return
        descriptor = self.fs.open(self.path, CREATE)
        try:
            if count > self.written:
                self.fs.write_all(descriptor, self._encode(self.written, count), self.written * self.entry_bytes)
            if self._stale_tail:
                self.fs.truncate(descriptor, count * self.entry_bytes)
                self._stale_tail = False
            self.written = count
            if sync:
                self.fs.sync(descriptor)
        finally:
            self.fs.close(descriptor)

    def move_to(self, path: str) -> None:
        """The file lies elsewhere from now on, and what it holds is not relied on."""
        self.path = path
        self.written = 0
        self._stale_tail = True

    def _mark_cut(self) -> None:
        self.written = min(self.written, len(self))
        self._stale_tail = True

    def _load(self) -> "array[int]":
        content = self.fs.read_file(self.path)
        if len(content) % self.entry_bytes:
            raise CorruptIndexError(f"{self.path} has {len(content)} bytes, no multiple of {self.entry_bytes}")
        self.written = len(content) // self.entry_bytes
        self._stale_tail = False
        return _big_endian_words(content)


class OffsetIndex(_IndexFile):
    """Positions of some batches by the last offset in them, relative to the segment's base offset."""

    entry_bytes = OFFSET_ENTRY_BYTES

    def __init__(self, fs: FileSystem, path: str) -> None:
        super().__init__(fs, path)
        self.offsets: array[int] = array("I")
        self.positions: array[int] = array("I")

    @classmethod
    def load(cls, fs: FileSystem, path: str, segment_bytes: int, interval_bytes: int) -> "OffsetIndex":
        """Read an index from its file; CorruptIndexError when it does not fit a segment of this size."""
        index = cls(fs, path)
        words = index._load()
        index.offsets, index.positions = words[0::2], words[1::2]
        if not words and segment_bytes > interval_bytes:
            raise CorruptIndexError(f"{path} is empty")
        if len(index.offsets) > 1 and index.offsets[-1] <= index.offsets[0]:
            raise CorruptIndexError(f"{path} does not rise from its first to its last offset")
        if index.positions and index.positions[-1] >= segment_bytes:
            raise CorruptIndexError(f"{path} points to {index.positions[-1]}, behind the segment's end {segment_bytes}")
        return index

    def __len__(self) -> int:
        return len(self.positions)

    def append(self, relative_offset: int, position: int) -> None:
        """Note that the batch at `position` ends with this offset."""
        self.offsets.append(relative_offset)
        self.positions.append(position)

    def lookup(self, relative_offset: int) -> int:
        """A position from which a scan finds the offset: that of the last entry not beyond it, or 0."""
        slot = bisect_right(self.offsets, relative_offset)
        return self.positions[slot - 1] if slot else 0

    def position_at_most(self, position: int) -> int:
        """The largest position in the index that is not beyond `position`, where a batch begins; 0 when none is."""
        slot = bisect_right(self.positions, position)
        return self.positions[slot - 1] if slot else 0

    def first_offset_beyond(self, position: int) -> int | None:
        """The relative offset of the first entry at or after `position`, None when there is none."""
        slot = bisect_left(self.positions, position)
        return self.offsets[slot] if slot < len(self.offsets) else None

    def truncate_to(self, relative_offset: int) -> None:
        """Drop the entries at and beyond an offset."""
        count = bisect_left(self.offsets, relative_offset)
        del self.offsets[count:], self.positions[count:]
        self._mark_cut()

    def _encode(self, first: int, last: int) -> bytes:
        words = array("I", bytes(8 * (last - first)))
        words[0::2] = self.offsets[first:last]
        words[1::2] = self.positions[first:last]
        if sys.byteorder == "little":
            words.byteswap()
        return words.tobytes()


class TimeIndex(_IndexFile):
    """The largest timestamps seen so far, rising, each with the last offset of the batch that brought it."""

    entry_bytes = TIME_ENTRY_BYTES

    def __init__(self, fs: FileSystem, path: str) -> None:
        super().__init__(fs, path)
        self.timestamps: array[int] = array("q")
        self.offsets: array[int] = array("I")

    @classmethod
    def load(cls, fs: FileSystem, path: str, segment_bytes: int) -> "TimeIndex":
        """Read a time index from its file."""
        index = cls(fs, path)
        words = index._load()
        if not words and segment_bytes:
            raise CorruptIndexError(f"{path} is empty")
        index.offsets = words[2::3]
        index.timestamps = _join_longs(words[0::3], words[1::3])
        if len(index.timestamps) > 1 and index.timestamps[-1] <= index.timestamps[0]:
            raise CorruptIndexError(f"{path} does not rise from its first to its last timestamp")
        return index

    def __len__(self) -> int:
        return len(self.offsets)

    def append_if_later(self, timestamp_ms: int, relative_offset: int) -> None:
        """Add an entry when the timestamp is larger than the last one; else there is nothing to say."""
        if timestamp_ms > (self.timestamps[-1] if self.timestamps else NO_TIMESTAMP):
            self.timestamps.append(timestamp_ms)
            self.offsets.append(relative_offset)

    def last(self) -> tuple[int, int]:
        """The largest timestamp and its relative offset; (-1, 0) when empty."""
        return (self.timestamps[-1], self.offsets[-1]) if self.timestamps else (NO_TIMESTAMP, 0)

    def lookup(self, timestamp_ms: int) -> int:
        """Relative offset before which no record has a timestamp as large as this."""
        slot = bisect_right(self.timestamps, timestamp_ms)
        return self.offsets[slot - 1] if slot else 0

    def truncate_to(self, relative_offset: int) -> None:
        """Drop the entries at and beyond an offset."""
        count = bisect_left(self.offsets, relative_offset)
        del self.timestamps[count:], self.offsets[count:]
        self._mark_cut()

    def _encode(self, first: int, last: int) -> bytes:
        highs, lows = _split_longs(self.timestamps[first:last])
        words = array("I", bytes(12 * (last - first)))
        words[0::3] = highs
        words[1::3] = lows
        words[2::3] = self.offsets[first:last]
        if sys.byteorder == "little":
            words.byteswap()
        return words.tobytes()


def read_last_time_entry(fs: FileSystem, path: str) -> tuple[int, int] | None:
    """The last timestamp and relative offset in a time index file, without reading the rest.

    None for a file that is absent, empty or has to be rebuilt.
    """
    entry = _read_last_entry(fs, path, TIME_ENTRY_BYTES)
    return _TIME_ENTRY.unpack(entry) if entry else None


def read_last_offset_entry(fs: FileSystem, path: str) -> tuple[int, int] | None:
    """The last relative offset and position in an offset index file, without reading the rest.

    (0, 0) for an empty file, None for one that is absent or has to be rebuilt.
    """
    entry = _read_last_entry(fs, path, OFFSET_ENTRY_BYTES)
    if entry is None:
        return None
    return _OFFSET_ENTRY.unpack(entry) if entry else (0, 0)


def _read_last_entry(fs: FileSystem, path: str, entry_bytes: int) -> bytes | None:
    try:
        descriptor = fs.open(path, READ_ONLY)
    except FileNotFoundError:
        return None
    try:
        size = fs.size(descriptor)
        if size == 0 or size % entry_bytes:
            return None if size else b""
        entry = fs.pread(descriptor, entry_bytes, size - entry_bytes)
    finally:
        fs.close(descriptor)
    # Apache Kafka makes index files large and fills them; zeros at the end mean that it did not get to trim
    # this one.
    return None if entry == bytes(entry_bytes) else entry


_HIGH, _LOW = (1, 0) if sys.byteorder == "little" else (0, 1)


def _join_longs(highs: "array[int]", lows: "array[int]") -> "array[int]":
    words = array("I", bytes(8 * len(highs)))
    words[_HIGH::2] = highs
    words[_LOW::2] = lows
    longs = array("q")
    longs.frombytes(words.tobytes())
    return longs


def _split_longs(longs: "array[int]") -> "tuple[array[int], array[int]]":
    words = array("I")
    words.frombytes(longs.tobytes())
    return words[_HIGH::2], words[_LOW::2]
