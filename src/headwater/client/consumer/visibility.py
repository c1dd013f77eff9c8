"""Which batches a reader of committed records may see: the rules of the Java client, without I/O.

A broker that is asked for committed records tells which transactions in its answer were aborted: by which producer, and
from which offset on. A producer has one transaction at a time, so all of its transactional batches are hidden from
there to its abort marker.
"""

from collections.abc import Sequence
from typing import Final

from headwater.protocol.records import BatchHeader, CorruptBatchError, decode_records

_ABORT_MARKER: Final = 0
_LARGEST_MARKER_BYTES: Final = 1 << 16


class Visibility:
    """Goes with the reader from batch to batch of one answer, in the order of the log."""

    def __init__(self, aborted: Sequence[tuple[int, int]]) -> None:
        """`aborted` are pairs of producer id and first offset."""
        self._upcoming = sorted(aborted, key=lambda transaction: transaction[1], reverse=True)
        self._aborting: set[int] = set()

    def hides(self, buffer: memoryview, header: BatchHeader) -> bool:
        """Whether the next batch is a marker or part of an aborted transaction.

        CorruptBatchError if a marker cannot be read; then the batch may be asked about again.
        """
        while self._upcoming and self._upcoming[-1][1] <= header.last_offset:
            self._aborting.add(self._upcoming.pop()[0])
        if header.is_control:
            if header.producer_id in self._aborting and is_abort_marker(buffer, header):
                self._aborting.discard(header.producer_id)
            return True
        return header.is_transactional and header.producer_id in self._aborting


def is_abort_marker(buffer: memoryview, header: BatchHeader) -> bool:
    """Whether a control batch ends an aborted transaction; its key is a version and a type, two bytes each."""
    if header.records_count > 1:
        # As many as a stranger may claim would all be decoded, for the sake of one.
        raise CorruptBatchError(header.position, f"{header.records_count} records where a marker has one")
    key = next((record.key for record in decode_records(buffer, header, limit_bytes=_LARGEST_MARKER_BYTES)), None)
    return key is not None and len(key) >= 4 and int.from_bytes(key[2:4], "big") == _ABORT_MARKER
