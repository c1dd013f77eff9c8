"""One segment of a log: a data file with its offset index, time index and index of aborted transactions.

Appends, finds positions by offset and by timestamp, is cut, sealed and flushed. It keeps no producer state,
decides nothing about rolling, and trusts that what it is given are whole batches.

Files open at first use; an idle, sealed segment keeps neither a descriptor nor its indexes in memory. While it is made
by the cleaner, and after it was dropped, its files have a `suffix` behind their names.
"""

import logging
import struct
import threading
from collections.abc import Iterator
from typing import NamedTuple

from headwater.log.filesystem import CREATE, TRUNCATE, FileSystem
from headwater.log.index import (
    NO_TIMESTAMP,
    OFFSET_ENTRY_BYTES,
    TIME_ENTRY_BYTES,
    CorruptIndexError,
    OffsetIndex,
    TimeIndex,
    read_last_time_entry,
)
from headwater.log.open_files import OpenFile, OpenFiles
from headwater.log.txn_index import TxnIndex
from headwater.protocol.records import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    BatchHeader,
    CorruptBatchError,
    scan_headers,
)

_log = logging.getLogger(__name__)

LARGEST_RELATIVE_OFFSET = 2**31 - 1
_SCAN_BYTES = 8192
_BULK_BYTES = 1 << 20
_KNOWN_POSITIONS = 32
_UNKNOWN = -2
# Base offset, length, and behind leader epoch, magic, CRC and attributes the last offset delta.
_PREFIX = struct.Struct(">qi11xi")
_MAX_TIMESTAMP = struct.Struct(">q")
_MAX_TIMESTAMP_POSITION = 35

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TXN_INDEX_SUFFIX = ".txnindex"
SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)


class CorruptSegmentError(Exception):
    """Data in the middle of a segment that is no record batch."""

    def __init__(self, path: str, position: int, reason: str) -> None:
        super().__init__(
            f"{path} is damaged at position {position}: {reason}; keep a copy and restore it from a replica"
        )
        self.path = path
        self.position = position
        self.reason = reason


class Segment:
    """A row of batches from `base_offset` on."""

    __slots__ = (
        "_files",
        "_index_lock",
        "_is_let_go",
        "_known_positions",
        "_max_timestamp_ms",
        "_max_timestamp_offset",
        "_needs_trim",
        "_offset_index",
        "_pwrite",
        "_roll_timestamp_ms",
        "_time_index",
        "base_offset",
        "bytes_since_entry",
        "created_ms",
        "file",
        "fs",
        "interval_bytes",
        "jitter_ms",
        "sealed",
        "size",
        "stem",
        "suffix",
        "txn_index",
    )

    def __init__(
        self,
        files: OpenFiles,
        folder: str,
        base_offset: int,
        *,
        size: int,
        created_ms: int,
        interval_bytes: int,
        jitter_ms: int = 0,
        has_txn_index: bool = False,
        suffix: str = "",
    ) -> None:
        self.fs: FileSystem = files.fs
        self._files = files
        self._pwrite = files.fs.pwrite
        self.stem = f"{folder}/{base_offset:020d}"
        self.suffix = suffix
        self.base_offset = base_offset
        self.size = size
        self.created_ms = created_ms
        self.interval_bytes = interval_bytes
        self.jitter_ms = jitter_ms
        self.sealed = False
        self.bytes_since_entry = 0
        self.file: OpenFile | None = None
        self._offset_index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self.txn_index = TxnIndex(self.fs, self._path(TXN_INDEX_SUFFIX), exists=has_txn_index)
        self._max_timestamp_ms = _UNKNOWN
        self._max_timestamp_offset = base_offset
        self._roll_timestamp_ms = _UNKNOWN
        self._needs_trim = False
        self._known_positions: dict[int, int] = {}
        self._index_lock = threading.Lock()
        self._is_let_go = False

    @classmethod
    def create(
        cls,
        files: OpenFiles,
        folder: str,
        base_offset: int,
        *,
        now_ms: int,
        interval_bytes: int,
        jitter_ms: int = 0,
        suffix: str = "",
    ) -> "Segment":
        """Make an empty segment with its files."""
        segment = cls(
            files,
            folder,
            base_offset,
            size=0,
            created_ms=now_ms,
            interval_bytes=interval_bytes,
            jitter_ms=jitter_ms,
            suffix=suffix,
        )
        descriptor = segment.fs.open(segment.path, CREATE | TRUNCATE)
        segment.fs.close(descriptor)
        segment.fs.remove(segment.txn_index.path)
        segment.reset_indexes()
        segment.write_indexes()
        return segment

    @property
    def path(self) -> str:
        """The data file."""
        return self._path(LOG_SUFFIX)

    def _path(self, kind: str) -> str:
        return self.stem + kind + self.suffix

    def open_file(self) -> OpenFile:
        """The data file, open; stays so while the result is held."""
        file = self.file
        if file is None:
            return self._files.open(self)
        file.used = True
        return file

    def release_file(self) -> None:
        """Let go of the descriptor, and of the indexes when they are complete on disk."""
        self.file = None
        if self.sealed:
            self._offset_index = None
            self._time_index = None
            self._known_positions = {}

    @property
    def offset_index(self) -> OffsetIndex:
        """The offset index, read or rebuilt when first needed."""
        index = self._offset_index
        if index is None:
            try:
                index = self._offset_index = OffsetIndex.load(
                    self.fs, self._path(INDEX_SUFFIX), self.size, self.interval_bytes
                )
            except (CorruptIndexError, FileNotFoundError) as error:
                index = self._rebuild_indexes(error)[0]
        return index

    @property
    def time_index(self) -> TimeIndex:
        """The time index, read or rebuilt when first needed."""
        index = self._time_index
        if index is None:
            try:
                index = self._time_index = TimeIndex.load(self.fs, self._path(TIME_INDEX_SUFFIX), self.size)
            except (CorruptIndexError, FileNotFoundError) as error:
                index = self._rebuild_indexes(error)[1]
        return index

    def _rebuild_indexes(self, reason: Exception) -> tuple[OffsetIndex, TimeIndex]:
        _log.warning("rebuilding the indexes of %s: %s", self.path, reason)
        offset_index, time_index = self.reset_indexes()
        try:
            for _, headers, position in self.chunks():
                self.index_batches(headers, position)
        except CorruptSegmentError as error:
            _log.error("%s", error)
        self.finish_time_index()
        if self.sealed:
            self.write_indexes(sync=True)
        return offset_index, time_index

    def reset_indexes(self) -> tuple[OffsetIndex, TimeIndex]:
        """Start with empty indexes, to be filled by `index_batches`."""
        self._offset_index = OffsetIndex(self.fs, self._path(INDEX_SUFFIX))
        self._time_index = TimeIndex(self.fs, self._path(TIME_INDEX_SUFFIX))
        self._max_timestamp_ms = NO_TIMESTAMP
        self._max_timestamp_offset = self.base_offset
        self.bytes_since_entry = 0
        self._known_positions = {}
        return self._offset_index, self._time_index

    def append(self, content: memoryview, headers: list[BatchHeader]) -> None:
        """Write batches, whose headers are final, at the end in one call to the system, and index them."""
        file = self.file
        if file is None:
            file = self.open_file()
        else:
            file.used = True
        position = self.size
        size = len(content)
        written = self._pwrite(file.descriptor, content, position)
        if written != size:
            self._write_rest(file, content, written)
        self.size = position + size
        if position == 0:
            self._roll_timestamp_ms = max(header.max_timestamp_ms for header in headers)
            if self._max_timestamp_ms == _UNKNOWN:
                self._max_timestamp_ms = NO_TIMESTAMP
        self.index_batches(headers, position)

    def index_batches(self, headers: list[BatchHeader], position: int) -> None:
        """Account in the indexes for batches that begin at `position` of the file."""
        for header in headers:
            timestamp_ms = header.max_timestamp_ms
            if timestamp_ms > self._max_timestamp_ms and timestamp_ms > self.max_timestamp_ms:
                self._max_timestamp_ms = timestamp_ms
                self._max_timestamp_offset = header.last_offset
            if self.bytes_since_entry > self.interval_bytes:
                self._add_entry(header.last_offset, position)
            size = header.size
            self.bytes_since_entry += size
            position += size

    def _add_entry(self, last_offset: int, position: int) -> None:
        index = self.offset_index
        if not index.offsets or index.offsets[-1] < last_offset - self.base_offset:
            index.append(last_offset - self.base_offset, position)
        self.time_index.append_if_later(self._max_timestamp_ms, self._max_timestamp_offset - self.base_offset)
        self.bytes_since_entry = 0
        self._files.unpublished.add(self)

    def _write_rest(self, file: OpenFile, content: memoryview, written: int) -> None:
        try:
            self.fs.write_all(file.descriptor, content[written:], self.size + written)
        except OSError:
            # The next append writes over the half batch; until then nobody reads it, as `size` has not moved.
            self._needs_trim = True
            raise

    @property
    def max_timestamp_ms(self) -> int:
        """The largest timestamp in the segment, -1 when there is none."""
        if self._max_timestamp_ms == _UNKNOWN:
            timestamp_ms, relative_offset = self._last_time_entry()
            self._max_timestamp_ms = timestamp_ms
            self._max_timestamp_offset = self.base_offset + relative_offset
        return self._max_timestamp_ms

    @property
    def last_change_ms(self) -> int:
        """The largest timestamp, or when the file was last written if its records have none."""
        timestamp_ms = self.max_timestamp_ms
        return timestamp_ms if timestamp_ms >= 0 else self.fs.modified_ms(self.path)

    def _last_time_entry(self) -> tuple[int, int]:
        if self._time_index is None and (last := read_last_time_entry(self.fs, self._path(TIME_INDEX_SUFFIX))):
            return last
        return self.time_index.last()

    def ms_since_first_batch(self, timestamp_ms: int, now_ms: int) -> int:
        """The segment's age: from its first batch's time to a new one's, or by the clock without times."""
        first_ms = self._roll_timestamp_ms
        if first_ms == _UNKNOWN:
            first_ms = self.first_timestamp_ms
        return timestamp_ms - first_ms if first_ms >= 0 else now_ms - self.created_ms

    @property
    def first_timestamp_ms(self) -> int:
        """The largest timestamp in the first batch, -1 when there is none."""
        if self._roll_timestamp_ms == _UNKNOWN:
            first_ms = NO_TIMESTAMP
            if self.size:
                head = self.open_file().read_at(0, HEADER_SIZE)
                first_ms = _MAX_TIMESTAMP.unpack_from(head, _MAX_TIMESTAMP_POSITION)[0]
            self._roll_timestamp_ms = first_ms
        return self._roll_timestamp_ms

    @property
    def index_sizes(self) -> tuple[int, int]:
        """Bytes of the offset index and of the time index."""
        return len(self.offset_index) * OFFSET_ENTRY_BYTES, len(self.time_index) * TIME_ENTRY_BYTES

    def position_of(self, offset: int) -> int:
        """Where the batch with `offset` begins, or the first one beyond it; the end when there is none."""
        position = self._known_positions.get(offset)
        if position is None:
            if offset <= self.base_offset:
                return 0
            position = self._scan_for(offset, self.offset_index.lookup(offset - self.base_offset))
            self.remember_position(offset, position)
        return position

    def remember_position(self, offset: int, position: int) -> None:
        """Keep the position of an offset that is likely asked for next: where a reader stopped."""
        known = self._known_positions
        if len(known) >= _KNOWN_POSITIONS:
            known.clear()
        known[offset] = position

    def _scan_for(self, offset: int, position: int) -> int:
        read, size = self.open_file().read_at, self.size
        chunk, chunk_start = b"", position
        while position < size:
            at = position - chunk_start
            if at + _PREFIX.size > len(chunk):
                chunk, chunk_start, at = read(position, min(_SCAN_BYTES, size - position)), position, 0
                if len(chunk) < _PREFIX.size:
                    raise CorruptSegmentError(self.path, position, f"{size - position} bytes are no whole batch")
            base_offset, length, last_delta = _PREFIX.unpack_from(chunk, at)
            if base_offset + last_delta >= offset:
                break
            if length <= 0:
                raise CorruptSegmentError(self.path, position, f"a batch of {length} bytes cannot be")
            position += length + LOG_OVERHEAD
        return min(position, size)

    def batch_size_at(self, position: int) -> int:
        """Size of the batch that begins at a position."""
        prefix = self.open_file().read_at(position, _PREFIX.size)
        if len(prefix) < _PREFIX.size:
            raise CorruptSegmentError(self.path, position, "no batch header")
        return int(_PREFIX.unpack(prefix)[1]) + LOG_OVERHEAD

    def chunks(
        self, position: int = 0, chunk_bytes: int = _BULK_BYTES
    ) -> Iterator[tuple[bytes, list[BatchHeader], int]]:
        """The batches from a position on, many at a time: bytes, headers, position of the bytes in the file.

        Checksums are not checked; CorruptSegmentError where there is no whole batch.
        """
        read, end = self.open_file().read_at, self.size
        while position < end:
            chunk = read(position, min(chunk_bytes, end - position))
            headers = _whole_batches(chunk)
            if not headers and len(chunk) >= _PREFIX.size:
                size = _PREFIX.unpack_from(chunk)[1] + LOG_OVERHEAD
                if len(chunk) < size <= end - position:
                    chunk = read(position, size)
                    headers = _whole_batches(chunk)
            if not headers:
                raise CorruptSegmentError(self.path, position, "no whole record batch")
            yield chunk, headers, position
            position += headers[-1].position + headers[-1].size

    def batches(self, position: int = 0, chunk_bytes: int = _BULK_BYTES) -> "Iterator[StoredBatch]":
        """The batches from a position on, one by one, as `chunks` reads them."""
        for chunk, headers, chunk_position in self.chunks(position, chunk_bytes):
            for header in headers:
                yield StoredBatch(chunk, header, chunk_position + header.position)

    def end_offset_from(self, position: int) -> int:
        """The offset after the last batch, found by walking from a batch's position to the end."""
        read, size = self.open_file().read_at, self.size
        end_offset = self.base_offset
        chunk, chunk_start = b"", position
        while position < size:
            at = position - chunk_start
            if at + _PREFIX.size > len(chunk):
                chunk, chunk_start, at = read(position, min(_SCAN_BYTES, size - position)), position, 0
            if len(chunk) < _PREFIX.size or chunk[at + 16] != 2:
                raise CorruptSegmentError(self.path, position, "no batch header")
            base_offset, length, last_delta = _PREFIX.unpack_from(chunk, at)
            if length < HEADER_SIZE - LOG_OVERHEAD or base_offset < end_offset or last_delta < 0:
                raise CorruptSegmentError(self.path, position, "no batch header")
            position += length + LOG_OVERHEAD
            end_offset = base_offset + last_delta + 1
        if position != size:
            raise CorruptSegmentError(self.path, position, f"the last batch is cut at {size}")
        return end_offset

    def cut_to(self, size: int) -> None:
        """Drop what is beyond the good bytes, which the indexes were just rebuilt from."""
        if size < self.size:
            self.size = size
            self.open_file().cut_to(size)
            self.open_file().sync()

    def offset_beyond(self, position: int) -> int | None:
        """An offset certainly not in the bytes before `position`; None when only the segment's end is."""
        relative_offset = self.offset_index.first_offset_beyond(position)
        return None if relative_offset is None else self.base_offset + relative_offset

    def truncate_to(self, offset: int, now_ms: int) -> None:
        """Drop the batches from `offset` on; a batch that holds it goes whole."""
        position = self.position_of(offset)
        offset_index, time_index = self.offset_index, self.time_index
        had_timestamps = self.max_timestamp_ms >= 0
        self.sealed = False
        self.size = position
        self._known_positions = {}
        with self._index_lock:
            offset_index.truncate_to(offset - self.base_offset)
            time_index.truncate_to(offset - self.base_offset)
        self._files.unpublished.add(self)
        self.txn_index.truncate_to(offset)
        self.open_file().cut_to(position)
        self.bytes_since_entry = 0
        if position == 0:
            self.created_ms = now_ms
            self._roll_timestamp_ms = _UNKNOWN
        if had_timestamps:
            self._find_largest_timestamp()

    def _find_largest_timestamp(self) -> None:
        timestamp_ms, relative_offset = self.time_index.last()
        largest_ms, offset = timestamp_ms, self.base_offset + relative_offset
        for batch in self.batches(self.offset_index.lookup(relative_offset)):
            if batch.header.max_timestamp_ms > largest_ms:
                largest_ms, offset = batch.header.max_timestamp_ms, batch.header.last_offset
        self._max_timestamp_ms, self._max_timestamp_offset = largest_ms, offset

    def finish_time_index(self) -> None:
        """Note the segment's largest timestamp in the time index, as is done when it rolls or closes."""
        if self.max_timestamp_ms >= 0:
            self.time_index.append_if_later(self._max_timestamp_ms, self._max_timestamp_offset - self.base_offset)

    def write_indexes(self, *, sync: bool = False) -> None:
        """Bring the index files up to date; may run in a thread."""
        with self._index_lock:
            self._write_entries(sync=sync)
        self.txn_index.write_pending(sync=sync)

    def _write_entries(self, *, sync: bool) -> None:
        if self._offset_index is not None:
            self._offset_index.write_pending(sync=sync)
        if self._time_index is not None:
            self._time_index.write_pending(sync=sync)

    def publish_indexes(self) -> None:
        """Let readers of the index files see what is known by now, while the segment still grows; runs in a thread.

        Nothing relies on it: a crash has the indexes of a live segment rebuilt, and a roll or a stop completes them.
        """
        with self._index_lock:
            # A sealed one has written all of it already.
            if not (self.sealed or self.suffix or self._is_let_go):
                self._write_entries(sync=False)

    def seal(self) -> None:
        """No more appends: complete the index files, which need no memory of this process from here on."""
        self.finish_time_index()
        self.trim()
        self.write_indexes()
        self.sealed = True

    def trim(self) -> None:
        """Cut what a failed append may have left behind the end."""
        if self._needs_trim:
            self.open_file().cut_to(self.size)
            self._needs_trim = False

    def flush(self) -> None:
        """Bring the data to the device; may run in a thread."""
        self.open_file().sync()

    def sync_indexes(self) -> None:
        """Bring the index files of a sealed segment to the device; may run in a thread."""
        for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX):
            self.fs.sync_file(self._path(suffix))

    def close(self) -> None:
        """Complete the files and let go of them."""
        if self._max_timestamp_ms != _UNKNOWN:
            self.finish_time_index()
        self.trim()
        self.write_indexes()
        self.let_go()

    def abandon(self) -> None:
        """Let go of the open file; it opens again at the next use."""
        self._files.forget(self)

    def let_go(self) -> None:
        """Leave the files as they are, for good: another log may have their names soon."""
        with self._index_lock:
            self._is_let_go = True
        self._files.forget(self)

    def remove_files(self) -> None:
        """Unlink the files; the data file goes last, so that no index is left without it."""
        self.let_go()
        for kind in reversed(SUFFIXES):
            self.fs.remove(self._path(kind))

    @property
    def index_paths(self) -> list[str]:
        """The files beside the data file, which need not be there, in the order of `SUFFIXES`."""
        return [self._path(kind) for kind in SUFFIXES[1:]]

    def move_to(self, folder: str) -> None:
        """Its files lie in another folder from now on, without a suffix; index entries in memory reach theirs later."""
        with self._index_lock:
            self.suffix = ""
            self._files.relocate(self, f"{folder}/{self.base_offset:020d}")
            offset_path, time_path, txn_path = self.index_paths
            self.txn_index.move_to(txn_path)
            if self.sealed:
                self._offset_index = self._time_index = None
            if self._offset_index is not None:
                self._offset_index.move_to(offset_path)
            if self._time_index is not None:
                self._time_index.move_to(time_path)

    def rename_files(self, suffix: str, renamed: list[str] | None = None) -> list[str]:
        """Give the files another suffix, or none; the paths they have then. Whoever has the data file open keeps it.

        In `renamed` they are also after an error that left others as they were.
        """
        renamed = [] if renamed is None else renamed
        with self._index_lock:
            for kind in SUFFIXES:
                try:
                    self.fs.rename(self._path(kind), self.stem + kind + suffix)
                except FileNotFoundError:
                    continue
                renamed.append(self.stem + kind + suffix)
            self.suffix = suffix
        self.txn_index.path = self._path(TXN_INDEX_SUFFIX)
        self._files.forget(self)
        self.release_file()
        return renamed


class StoredBatch(NamedTuple):
    """A batch as it lies in a file: `header.position` is in `buffer`, `position` in the file."""

    buffer: bytes
    header: BatchHeader
    position: int


def _whole_batches(chunk: bytes) -> list[BatchHeader]:
    try:
        return scan_headers(chunk, 0, len(chunk))
    except CorruptBatchError as error:
        return scan_headers(chunk, 0, error.position)
