"""The files of a partition as text, line by line what Kafka's DumpLogSegments 4.1 prints for them.

Lines for standard output come as they are read; what is wrong is gathered and told at the end, on standard error, as
Kafka does. Left out on purpose: message formats before 2 and the records of KRaft, neither of which headwater has.
"""

import posixpath
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from headwater.log.filesystem import FileSystem
from headwater.log.inspection.dump_batches import batch_line, record_line
from headwater.log.inspection.dump_indexes import IndexDump, base_offset_of, snapshot_lines, txn_index_lines
from headwater.log.inspection.file_batches import read_batches
from headwater.log.producer_snapshots import SUFFIX as SNAPSHOT_SUFFIX
from headwater.log.segment import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX
from headwater.protocol.records import Record, decode_records

Decoder: TypeAlias = Callable[[Record], tuple[str | None, str | None]]
"""Key and value of a record as text; None for what is not shown."""

UNLIMITED: Final = 2**31 - 1


def as_text(record: Record) -> tuple[str | None, str | None]:
    """Key and value as UTF-8, which is what Kafka shows when no decoder is asked for."""
    key, value = record.key, record.value
    return (
        None if key is None else key.decode("utf-8", "replace"),
        None if value is None else value.decode("utf-8", "replace"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpOptions:
    """What is shown. `records` lists the records of each batch, `decoder` adds their keys and values."""

    records: bool = False
    decoder: Decoder | None = None
    record_metadata: bool = True
    max_bytes: int = UNLIMITED
    max_batch_bytes: int = 5 * 1024 * 1024
    index_sanity_only: bool = False
    verify_only: bool = False


class LogDump:
    """Dumps one file after the other and remembers what was wrong with them."""

    def __init__(self, fs: FileSystem, options: DumpOptions) -> None:
        self._fs = fs
        self._options = options
        self._indexes = IndexDump(
            fs,
            sanity_only=options.index_sanity_only,
            verify_only=options.verify_only,
            max_batch_bytes=options.max_batch_bytes,
        )
        self._gaps: dict[str, list[tuple[int, int]]] = {}
        self._unknown: list[str] = []

    def lines(self, path: str) -> Iterator[str]:
        """The lines of a file; its name tells what it is.

        OSError when it cannot be read, ValueError (CorruptBatchError, CorruptIndexError, CorruptSnapshotError …) where
        it is none of its kind.
        """
        yield f"Dumping {path}"
        if path.endswith(LOG_SUFFIX):
            yield from self._log_lines(path)
        elif path.endswith(INDEX_SUFFIX):
            yield from self._indexes.offset_index_lines(path)
        elif path.endswith(TIME_INDEX_SUFFIX):
            yield from self._indexes.time_index_lines(path)
        elif path.endswith(SNAPSHOT_SUFFIX):
            yield from snapshot_lines(self._fs, path)
        elif path.endswith(TXN_INDEX_SUFFIX):
            yield from txn_index_lines(self._fs, path)
        else:
            self._unknown.append(path)

    def problems(self) -> Iterator[str]:
        """What was wrong in the files so far."""
        for path in self._unknown:
            yield f"Ignoring unknown file {path}"
        yield from self._indexes.problems()
        for path, pairs in self._gaps.items():
            yield f"Non-consecutive offsets in {self._fs.absolute(path)}"
            # Kafka tells the last one first.
            for first, second in reversed(pairs):
                yield f"  {first} is followed by {second}"

    def _log_lines(self, path: str) -> Iterator[str]:
        name = posixpath.basename(path)
        yield f"Log starting offset: {base_offset_of(path)}"
        options = self._options
        last_offset: int | None = None
        end = 0
        for stored in read_batches(self._fs, path, end=options.max_bytes):
            yield batch_line(stored)
            end = stored.position + stored.header.size
            if not options.records:
                continue
            for record in decode_records(stored.buffer, stored.header):
                if last_offset is not None and record.offset != last_offset + 1:
                    self._gaps.setdefault(path, []).append((last_offset, record.offset))
                last_offset = record.offset
                yield record_line(record, stored.header, decoder=options.decoder, with_metadata=options.record_metadata)
        trailing = self._fs.size_of(path) - end
        if trailing > 0 and options.max_bytes == UNLIMITED:
            yield f"Found {trailing} invalid bytes at the end of {name}"
