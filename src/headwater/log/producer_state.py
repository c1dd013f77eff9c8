"""What a partition remembers of its producers: epochs, the last five batches of each, open transactions.

Decides whether a batch is new, a duplicate or out of order, by Kafka's rules, and is the same state after a
restart, as replay of the log feeds it with the same calls. No files here (`producer_snapshots`) and no clock.
"""

import struct
from typing import NamedTuple, TypeAlias

from headwater.log.log_types import ActiveProducer
from headwater.log.txn_index import AbortedTxn
from headwater.protocol.errors import ApiError, ErrorCode
from headwater.protocol.records import BatchHeader, CorruptBatchError, decode_records

REMEMBERED_BATCHES = 5
LARGEST_SEQUENCE = 2**31 - 1
NO_EPOCH = -1
NO_SEQUENCE = -1
NO_OFFSET = -1
NO_TIMESTAMP = -1
_UNREPLICATED_LIMIT = 1024

_CONTROL_KEY = struct.Struct(">hh")
_MARKER_VALUE = struct.Struct(">hi")
_ABORT, _COMMIT = 0, 1


class ProducerStateError(ApiError):
    """A batch that its producer's history does not allow; the code says which rule."""


class RememberedBatch(NamedTuple):
    """One of the last batches of a producer, enough to recognize it and to answer a retry."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int

    @property
    def first_offset(self) -> int:
        """Offset of the batch's first record."""
        return self.last_offset - self.offset_delta

    @property
    def first_sequence(self) -> int:
        """Sequence of the batch's first record; sequences go on at 0 after 2^31-1."""
        first = self.last_sequence - self.offset_delta
        return first if first >= 0 else first + LARGEST_SEQUENCE + 1


class ProducerEntry:
    """One producer's state on this partition."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "epoch",
        "last_sequence",
        "last_timestamp_ms",
        "producer_id",
        "txn_first_offset",
    )

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.epoch = NO_EPOCH
        self.coordinator_epoch = -1
        self.last_timestamp_ms = NO_TIMESTAMP
        self.txn_first_offset = NO_OFFSET
        self.last_sequence = NO_SEQUENCE
        self.batches: list[RememberedBatch] = []

    def copy(self) -> "ProducerEntry":
        """An independent twin, to try several batches of one request on."""
        twin = ProducerEntry(self.producer_id)
        twin.epoch = self.epoch
        twin.coordinator_epoch = self.coordinator_epoch
        twin.last_timestamp_ms = self.last_timestamp_ms
        twin.txn_first_offset = self.txn_first_offset
        twin.last_sequence = self.last_sequence
        twin.batches = self.batches.copy()
        return twin

    def start_epoch(self, epoch: int) -> None:
        """Sequences of another epoch mean nothing in this one."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches.clear()
            self.last_sequence = NO_SEQUENCE

    def find_duplicate(self, header: BatchHeader) -> RememberedBatch | None:
        """The remembered batch that this one repeats, if any."""
        if header.producer_epoch == self.epoch:
            first, last = header.base_sequence, header.last_sequence
            for batch in self.batches:
                if batch.last_sequence == last and batch.first_sequence == first:
                    return batch
        return None


class EndMarker(NamedTuple):
    """The control record that ends a transaction."""

    is_abort: bool
    coordinator_epoch: int
    timestamp_ms: int


def read_marker(buffer: bytes | bytearray | memoryview, header: BatchHeader) -> EndMarker | None:
    """The transaction marker in a control batch; None for other control records and for an emptied batch.

    CorruptBatchError if it cannot be read.
    """
    records = decode_records(buffer, header)
    if not records or records[0].key is None or records[0].value is None:
        return None
    try:
        _, kind = _CONTROL_KEY.unpack_from(records[0].key)
        if kind not in (_ABORT, _COMMIT):
            return None
        _, coordinator_epoch = _MARKER_VALUE.unpack_from(records[0].value)
    except struct.error as error:
        raise CorruptBatchError(header.position, f"a control record that is too short: {error}") from error
    return EndMarker(kind == _ABORT, coordinator_epoch, records[0].timestamp_ms)


Markers: TypeAlias = list[EndMarker | None]
"""For each batch of an append its transaction marker, None for a batch that is none."""


def read_markers(buffer: bytes | bytearray | memoryview, headers: list[BatchHeader]) -> Markers:
    """The transaction markers among some batches."""
    return [read_marker(buffer, header) if header.is_control else None for header in headers]


class ProducerStates:
    """All producers of one partition."""

    __slots__ = ("_name", "_unreplicated", "entries", "ongoing")

    def __init__(self, name: str) -> None:
        self._name = name
        self.entries: dict[int, ProducerEntry] = {}
        self.ongoing: dict[int, int] = {}
        """First offset of each open transaction -> producer id, in the order of the offsets."""
        self._unreplicated: list[tuple[int, int]] = []

    def clear(self) -> None:
        """Forget all producers and transactions."""
        self.entries.clear()
        self.ongoing.clear()
        self._unreplicated.clear()

    def load(self, entries: list[ProducerEntry]) -> None:
        """Take over the state of a snapshot."""
        self.clear()
        self.entries = {entry.producer_id: entry for entry in entries}
        begun = sorted((e.txn_first_offset, e.producer_id) for e in entries if e.txn_first_offset != NO_OFFSET)
        self.ongoing = dict(begun)

    def has_open_transaction(self, producer_id: int, producer_epoch: int | None = None) -> bool:
        """Whether a producer, in this epoch if one is given, has a transaction open."""
        entry = self.entries.get(producer_id)
        return (
            entry is not None
            and entry.txn_first_offset != NO_OFFSET
            and (producer_epoch is None or entry.epoch == producer_epoch)
        )

    def active(self) -> list[ActiveProducer]:
        """All producers, as DescribeProducers shows them."""
        return [
            ActiveProducer(
                entry.producer_id,
                entry.epoch,
                entry.last_sequence,
                entry.last_timestamp_ms,
                entry.coordinator_epoch,
                entry.txn_first_offset,
            )
            for entry in self.entries.values()
        ]

    def last_data_offsets(self) -> dict[int, tuple[int, int]]:
        """For each producer id the last offset that it wrote, -1 when only a marker is known, and its epoch."""
        return {
            entry.producer_id: (entry.batches[-1].last_offset if entry.batches else NO_OFFSET, entry.epoch)
            for entry in self.entries.values()
        }

    def remove_expired(self, now_ms: int, expiration_ms: int) -> None:
        """Forget the producers that wrote nothing for long and have no open transaction."""
        expired = [e.producer_id for e in self.entries.values() if is_expired(e, now_ms, expiration_ms)]
        for producer_id in expired:
            del self.entries[producer_id]

    def check(self, header: BatchHeader, offset: int, *, sequences: bool = True) -> RememberedBatch | None:
        """Check a data batch that is to get `offset`; the remembered batch when it is a duplicate, else None.

        Raises ProducerStateError when it may not be written. Without `sequences` (a coordinator's own writes)
        only the epoch and the transaction are looked at.
        """
        entry = self.entries.get(header.producer_id)
        if entry is None and header.producer_epoch < NO_EPOCH:
            self._check_epoch(ProducerEntry(header.producer_id), header.producer_epoch, offset)
        if entry is None or (
            # What nearly every batch is: the next one of a producer without a transaction.
            header.base_sequence == entry.last_sequence + 1
            and header.producer_epoch == entry.epoch
            and entry.txn_first_offset == NO_OFFSET
        ):
            return None
        return self._check_against(entry, header, offset, sequences)

    def check_all(
        self, headers: list[BatchHeader], markers: Markers, offset: int, *, sequences: bool = True
    ) -> RememberedBatch | None:
        """Check several batches of one request, each in the light of those before it."""
        tried: dict[int, ProducerEntry] = {}
        for header, marker in zip(headers, markers, strict=True):
            if marker is not None:
                self.check_marker(header, marker, offset)
            elif header.producer_id >= 0 and not header.is_control:
                producer_id = header.producer_id
                entry = tried.get(producer_id)
                if entry is None:
                    known = self.entries.get(producer_id)
                    entry = tried[producer_id] = known.copy() if known else ProducerEntry(producer_id)
                duplicate = self._check_against(entry, header, offset, sequences)
                if duplicate is not None:
                    return duplicate
                _remember(entry, header, offset + header.last_offset_delta, header.max_timestamp_ms)
            offset += header.last_offset_delta + 1
        return None

    def _check_against(
        self, entry: ProducerEntry, header: BatchHeader, offset: int, sequences: bool
    ) -> RememberedBatch | None:
        epoch, sequence, last = header.producer_epoch, header.base_sequence, entry.last_sequence
        in_order = epoch == entry.epoch and (sequence == last + 1 or (sequence == 0 and last == LARGEST_SEQUENCE))
        if not in_order:
            if sequences and (duplicate := entry.find_duplicate(header)):
                return duplicate
            self._check_epoch(entry, epoch, offset)
            if sequences:
                self._refuse_disorder(entry, epoch, sequence, offset)
        if entry.txn_first_offset != NO_OFFSET and not header.is_transactional:
            raise ProducerStateError(
                ErrorCode.invalid_txn_state,
                f"producer {entry.producer_id} wrote outside of its open transaction "
                f"at offset {offset} in {self._name}",
            )
        return None

    def _check_epoch(self, entry: ProducerEntry, epoch: int, offset: int) -> None:
        if epoch < entry.epoch:
            raise ProducerStateError(
                ErrorCode.invalid_producer_epoch,
                f"epoch of producer {entry.producer_id} at offset {offset} in {self._name} is {epoch}, "
                f"smaller than the last seen epoch {entry.epoch}",
            )

    def _refuse_disorder(self, entry: ProducerEntry, epoch: int, sequence: int, offset: int) -> None:
        if epoch != entry.epoch:
            if sequence == 0 or entry.epoch == NO_EPOCH:
                return
            expected = f"0 as the first sequence of epoch {epoch}"
        else:
            expected = f"a sequence after {entry.last_sequence}"
        raise ProducerStateError(
            ErrorCode.out_of_order_sequence_number,
            f"out of order sequence number for producer {entry.producer_id} at offset {offset} "
            f"in {self._name}: {sequence}, expected {expected}",
        )

    def check_marker(self, header: BatchHeader, marker: EndMarker, offset: int) -> None:
        """Check a marker that is to get `offset`; ProducerStateError when a newer one went before."""
        entry = self.entries.get(header.producer_id)
        if entry is None:
            return
        self._check_epoch(entry, header.producer_epoch, offset)
        if entry.coordinator_epoch > marker.coordinator_epoch:
            raise ProducerStateError(
                ErrorCode.transaction_coordinator_fenced,
                f"marker for producer {entry.producer_id} at offset {offset} in {self._name} is of "
                f"coordinator epoch {marker.coordinator_epoch}, but {entry.coordinator_epoch} was seen",
            )

    def record(self, header: BatchHeader, last_offset: int, timestamp_ms: int) -> None:
        """A data batch of a producer was written."""
        entry = self.entries.get(header.producer_id)
        if entry is None:
            entry = self.entries[header.producer_id] = ProducerEntry(header.producer_id)
        _remember(entry, header, last_offset, timestamp_ms)
        if header.is_transactional and entry.txn_first_offset == NO_OFFSET:
            entry.txn_first_offset = last_offset - header.last_offset_delta
            self.ongoing[entry.txn_first_offset] = header.producer_id

    def record_marker(self, header: BatchHeader, marker: EndMarker, offset: int) -> AbortedTxn | None:
        """A marker was written; for an abort that had data, what goes to the transaction index."""
        entry = self.entries.get(header.producer_id)
        if entry is None:
            entry = self.entries[header.producer_id] = ProducerEntry(header.producer_id)
        entry.start_epoch(header.producer_epoch)
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.last_timestamp_ms = marker.timestamp_ms
        first_offset = entry.txn_first_offset
        if first_offset == NO_OFFSET:
            return None
        entry.txn_first_offset = NO_OFFSET
        self.ongoing.pop(first_offset, None)
        stable = self.first_undecided_offset
        self._note_completed(first_offset, offset)
        if not marker.is_abort:
            return None
        return AbortedTxn(header.producer_id, first_offset, offset, offset + 1 if stable is None else stable)

    def _note_completed(self, first_offset: int, last_offset: int) -> None:
        self._unreplicated.append((first_offset, last_offset))
        if len(self._unreplicated) > _UNREPLICATED_LIMIT:
            # One entry in place of all is cautious: it holds the last stable offset back a little longer.
            folded = (min(first for first, _ in self._unreplicated), last_offset)
            self._unreplicated[:] = [folded]

    @property
    def first_undecided_offset(self) -> int | None:
        """Where the oldest open transaction begins, None when none is open."""
        return next(iter(self.ongoing), None)

    def last_stable_offset(self, high_watermark: int) -> int:
        """Below this every transaction is decided, by markers below the high watermark."""
        if self._unreplicated:
            self._unreplicated = [txn for txn in self._unreplicated if txn[1] >= high_watermark]
        unstable = [first for first, _ in self._unreplicated]
        undecided = self.first_undecided_offset
        if undecided is not None:
            unstable.append(undecided)
        return min([high_watermark, *unstable])


def _remember(entry: ProducerEntry, header: BatchHeader, last_offset: int, timestamp_ms: int) -> None:
    if header.producer_epoch != entry.epoch:
        entry.start_epoch(header.producer_epoch)
    entry.last_sequence = last_sequence = header.last_sequence
    entry.last_timestamp_ms = timestamp_ms
    batches = entry.batches
    if len(batches) >= REMEMBERED_BATCHES:
        del batches[0]
    batches.append(RememberedBatch(last_sequence, last_offset, header.last_offset_delta, timestamp_ms))


def is_expired(entry: ProducerEntry, now_ms: int, expiration_ms: int) -> bool:
    """Whether a producer was silent for `producer.id.expiration.ms` and has no open transaction."""
    return entry.txn_first_offset == NO_OFFSET and now_ms - entry.last_timestamp_ms >= expiration_ms
