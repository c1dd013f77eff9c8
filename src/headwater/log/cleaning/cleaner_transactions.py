"""Transactions as the cleaner meets them, batch by batch: what was aborted, and which markers are still needed.

What an aborted transaction wrote can go at once. A marker can go when nothing of its transaction is left before it, and
then only after the delete horizon, which its keeper decides.
"""

from collections.abc import Iterable

from headwater.log.producer_state import read_marker
from headwater.log.txn_index import AbortedTxn
from headwater.protocol.records import BatchHeader

PART_OF_TRANSACTION = 0x30
"""In the attributes of a batch: it is transactional, or a marker. One look tells that most are neither."""


class CleanerTransactions:
    """The transactions under way at one point of the log; it is told of every batch that is part of one, in order."""

    def __init__(self, aborted: Iterable[AbortedTxn]) -> None:
        # A transaction may be in the index of two segments, when a crash came between.
        self._to_come = sorted(set(aborted), key=lambda txn: txn.first_offset, reverse=True)
        self._aborted: dict[int, AbortedTxn] = {}
        self._aborted_with_data: set[int] = set()
        self._committed_with_data: set[int] = set()
        self._still_aborted: list[AbortedTxn] = []

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether a transactional batch of data was rolled back."""
        self._advance(header.last_offset)
        producer_id = header.producer_id
        if producer_id in self._aborted:
            self._aborted_with_data.add(producer_id)
            return True
        self._committed_with_data.add(producer_id)
        return False

    def marker_is_done(self, buffer: bytes, header: BatchHeader) -> bool:
        """Whether nothing before a control batch needs it any more."""
        self._advance(header.last_offset)
        if header.records_count == 0:
            return True
        marker = read_marker(buffer, header)
        if marker is None:
            return False
        producer_id = header.producer_id
        if not marker.is_abort:
            had_data = producer_id in self._committed_with_data
            self._committed_with_data.discard(producer_id)
            return not had_data
        txn = self._aborted.pop(producer_id, None)
        if txn is None or producer_id not in self._aborted_with_data:
            return True
        self._aborted_with_data.discard(producer_id)
        self._still_aborted.append(txn)
        return False

    def take_still_aborted(self) -> list[AbortedTxn]:
        """The aborted transactions whose data and marker were met since the last call: the index is to keep them."""
        taken, self._still_aborted = self._still_aborted, []
        return taken

    def _advance(self, offset: int) -> None:
        while self._to_come and self._to_come[-1].first_offset <= offset:
            txn = self._to_come.pop()
            self._aborted.setdefault(txn.producer_id, txn)
