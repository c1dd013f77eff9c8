"""The batches of a data file, read for tools: nothing is opened for writing, repaired or trusted."""

import struct
from collections.abc import Iterator

from headwater.log.filesystem import READ_ONLY, FileSystem
from headwater.log.segment import StoredBatch
from headwater.protocol.records import LOG_OVERHEAD, CorruptBatchError, scan_headers

_BULK_BYTES = 1 << 20
_LENGTH = struct.Struct(">8xi")


class DamagedFileError(ValueError):
    """A place in a file where something else than a record batch stands."""

    def __init__(self, path: str, position: int, reason: str) -> None:
        super().__init__(f"{path} is damaged at position {position}: {reason}")
        self.position = position
        self.reason = reason


def read_batches(fs: FileSystem, path: str, start: int = 0, end: int | None = None) -> Iterator[StoredBatch]:
    """The whole batches between two positions, as they lie there: checksums are not looked at.

    Ends before a batch that is cut by the end; DamagedFileError where there is none.
    """
    descriptor = fs.open(path, READ_ONLY)
    try:
        size = fs.size(descriptor)
        end = size if end is None else min(end, size)
        position, wanted = start, _BULK_BYTES
        while position < end:
            chunk = fs.pread(descriptor, min(wanted, end - position), position)
            problem: CorruptBatchError | None = None
            try:
                headers = scan_headers(chunk, 0, len(chunk))
            except CorruptBatchError as error:
                problem = error
                headers = scan_headers(chunk, 0, error.position)
            for header in headers:
                yield StoredBatch(chunk, header, position + header.position)
            if problem is not None:
                raise DamagedFileError(path, position + problem.position, problem.reason)
            if headers:
                position += headers[-1].position + headers[-1].size
                wanted = _BULK_BYTES
                continue
            whole = _LENGTH.unpack_from(chunk)[0] + LOG_OVERHEAD if len(chunk) >= _LENGTH.size else 0
            if not len(chunk) < whole <= end - position:
                return
            wanted = whole
    finally:
        fs.close(descriptor)
