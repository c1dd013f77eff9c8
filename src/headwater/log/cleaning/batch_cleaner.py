"""What is left of batches in a cleaning: all of a batch, some records, its empty header, or nothing. Kafka's rules.

Decides batch by batch with what it is told of transactions and producers; the records themselves are looked up in the
`OffsetMap`, many batches at once. No files here.
"""

from array import array

from headwater.log.cleaning.cleaner_transactions import PART_OF_TRANSACTION, CleanerTransactions
from headwater.log.cleaning.offset_map import OffsetMap
from headwater.log.cleaning.rewritten_batches import with_records, without_records
from headwater.log.cleaning.survivors import COPY, DROP, OUTCOME_FIELDS, REWRITE, Survivors
from headwater.protocol.records import BatchHeader, parse_header, records_section

_LOOK_INSIDE = 0


class BatchCleaner:
    """Cleans the batches of a log, given in their order.

    `last_offsets` has for each producer that is not forgotten its last offset, -1 when only a marker is known, and its
    epoch. `end_offset` is where the cleaning ends.
    """

    def __init__(
        self,
        offset_map: OffsetMap,
        transactions: CleanerTransactions,
        last_offsets: dict[int, tuple[int, int]],
        *,
        end_offset: int,
        delete_retention_ms: int,
        now_ms: int,
    ) -> None:
        self._map = offset_map
        self._transactions = transactions
        self._last_offsets = last_offsets
        self._end_offset = end_offset
        self._delete_retention_ms = delete_retention_ms
        self._now_ms = now_ms

    def clean(self, chunk: bytes, headers: list[BatchHeader]) -> tuple[bytes | memoryview, list[BatchHeader]]:
        """The bytes and the headers of some batches as they are afterwards."""
        stay_empty: set[int] = set()
        verdicts = bytearray(len(headers))
        for slot, header in enumerate(headers):
            if header.attributes & PART_OF_TRANSACTION:
                verdicts[slot] = self._judge(chunk, header)
            if header.producer_id >= 0 and self._is_last_of_producer(header):
                stay_empty.add(slot)
        # How far the log was cleaned stays known by its last batch, even if that is empty.
        if headers[-1].next_offset == self._end_offset:
            stay_empty.add(len(headers) - 1)
        return self._surviving_batches(memoryview(chunk), headers, verdicts, stay_empty)

    def _judge(self, chunk: bytes, header: BatchHeader) -> int:
        if not header.is_control:
            return DROP if self._transactions.is_aborted(header) else _LOOK_INSIDE
        if not self._transactions.marker_is_done(chunk, header):
            return COPY
        horizon_ms = header.delete_horizon_ms
        if header.records_count == 0 or (horizon_ms is not None and horizon_ms <= self._now_ms):
            return DROP
        return REWRITE if horizon_ms is None else COPY

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        """Whether the batch tells the last sequence of a producer, or with its marker the epoch that fences it."""
        last_offset, epoch = self._last_offsets.get(header.producer_id, (None, 0))
        if last_offset is None:
            return False
        if last_offset >= 0:
            return header.last_offset == last_offset
        return header.is_control and header.producer_epoch == epoch

    def _surviving_batches(
        self, view: memoryview, headers: list[BatchHeader], verdicts: bytearray, stay_empty: set[int]
    ) -> tuple[bytes | memoryview, list[BatchHeader]]:
        survivors = self._map.filter(view, headers, verdicts, self._now_ms)
        pieces = _Pieces(view)
        written: list[BatchHeader] = []
        for slot, header in enumerate(headers):
            verdict = verdicts[slot]
            if verdict == COPY:
                pieces.copy(header.position, header.position + header.size)
                written.append(header)
                continue
            if verdict == REWRITE:
                outcome = survivors.outcomes[slot * OUTCOME_FIELDS : (slot + 1) * OUTCOME_FIELDS]
                batch = self._rewritten(view, header, outcome, survivors)
            elif slot in stay_empty:
                batch = without_records(header)
            else:
                continue
            pieces.add(batch)
            written.append(parse_header(batch, 0, len(batch)))
        return pieces.joined(), written

    def _rewritten(self, view: memoryview, header: BatchHeader, outcome: "array[int]", survivors: Survivors) -> bytes:
        """A batch with the records that stay. Tombstones, or a marker that is done, get their delete horizon."""
        count, has_tombstones, max_timestamp_ms, start, end = outcome
        records = memoryview(survivors.kept)[start:end]
        if header.is_control or count == header.records_count:
            count, max_timestamp_ms = header.records_count, header.max_timestamp_ms
            records = records_section(view, header)
        horizon_ms = None
        if (header.is_control or has_tombstones) and header.delete_horizon_ms is None:
            horizon_ms = self._now_ms + self._delete_retention_ms
        return with_records(header, records, count, max_timestamp_ms=max_timestamp_ms, delete_horizon_ms=horizon_ms)


class _Pieces:
    """Parts of a chunk and new bytes, in a row; parts that adjoin are one."""

    def __init__(self, view: memoryview) -> None:
        self._view = view
        self._parts: list[bytes | memoryview] = []
        self._start = self._end = 0

    def copy(self, start: int, end: int) -> None:
        if start != self._end:
            self._flush()
            self._start = start
        self._end = end

    def add(self, content: bytes) -> None:
        self._flush()
        self._parts.append(content)

    def joined(self) -> bytes | memoryview:
        self._flush()
        return self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)

    def _flush(self) -> None:
        if self._end > self._start:
            self._parts.append(self._view[self._start : self._end])
        self._start = self._end
