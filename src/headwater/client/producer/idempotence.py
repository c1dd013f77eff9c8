"""Sequence numbers: what makes a broker write each batch once and in order, however often it was sent.

No clock, no network: it is told what was sent and what was answered. The rules, as in Java's client (KIP-360):

- Batches of a partition are numbered in the order in which they are first sent, by their records. A batch keeps its
  number over every retry; at most five of a partition are unanswered, as a broker remembers no more.
- The first batch of a partition goes alone until it is answered: of a producer that it does not know, a broker takes
  any number for the first. Were the first batch refused, say by a leader that has not heard of the topic yet, the
  second would be taken, and the first never. Java's client tries it in vain until its time ends.
- A batch that is sent again goes alone: those behind it wait until it is answered, so that none overtakes it.
- Where the row of numbers broke (a batch failed for good, or the broker forgot the producer) the epoch is raised and
  the partition begins again at 0. That waits until none of its batches is on the wire: none may have two numbers.
  Batches before the gap are sent again under the numbers that they have, and answered first: an attempt may have been
  written, and under another number the broker would not know it again.
- Where a batch ran out of time after it was sent, nobody knows whether its number was used. No new batch is numbered
  until those behind it are answered: if one was taken, so was it; if none was, the epoch is raised. One of which an
  attempt was never answered keeps its number even so, and is tried until it is taken or its time ends too: what we gave
  up waiting for may still reach the broker, both batches of it. Java's client raises the epoch, and may write it twice.
- In a transaction the epoch is not raised here: its coordinator does that when the transaction is aborted.
"""

from dataclasses import dataclass, field
from typing import Final

from headwater.protocol.kafka_types import ErrorCode
from headwater.types import TopicPartition

SEQUENCES: Final = 1 << 31
"""Sequence numbers begin again at 0 after 2^31 - 1."""
MAX_UNANSWERED: Final = 5
NO_SEQUENCE: Final = -1
FATE_UNKNOWN: Final = frozenset({ErrorCode.network_exception, ErrorCode.request_timed_out})
"""What stands for an answer that never came."""
_LAST_EPOCH: Final = 2**15 - 1


@dataclass(slots=True, eq=False)
class Numbered:
    """One batch's place in its partition's row of numbers."""

    partition: TopicPartition
    record_count: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    on_the_wire: bool = True
    renumbered: bool = False
    unheard: bool = False
    """Whether an attempt under this number was never answered."""

    @property
    def next_sequence(self) -> int:
        """The number of the record behind its last one."""
        return (self.base_sequence + self.record_count) % SEQUENCES


@dataclass(slots=True, eq=False)
class _Row:
    """The numbers of one partition; `unanswered` is in the order of their numbers."""

    producer_id: int
    producer_epoch: int
    next_sequence: int = 0
    next_acknowledged: int = 0
    last_offset: int = -1
    unanswered: list[Numbered] = field(default_factory=list)

    def restart(self, producer_id: int, producer_epoch: int) -> None:
        """Numbers what is unanswered, and all that follows, from 0 under another identity."""
        self.producer_id, self.producer_epoch = producer_id, producer_epoch
        self.next_sequence = self.next_acknowledged = 0
        for batch in self.unanswered:
            batch.producer_id, batch.producer_epoch = producer_id, producer_epoch
            batch.base_sequence, batch.renumbered, batch.unheard = self.next_sequence, True, False
            self.next_sequence = batch.next_sequence

    @property
    def on_the_wire(self) -> bool:
        return any(batch.on_the_wire for batch in self.unanswered)


class Sequences:
    """The numbers of one producer. `producer_id` is -1 until one was given."""

    def __init__(self, *, transactional: bool) -> None:
        self.producer_id = -1
        self.producer_epoch = -1
        self._transactional = transactional
        self._rows: dict[TopicPartition, _Row] = {}
        self._gaps: dict[TopicPartition, int] = {}
        """Partitions that begin again, with the first number of each that nothing was written under."""
        self._unresolved: set[TopicPartition] = set()
        self._known: set[TopicPartition] = set()
        """Where a broker has taken something of this producer: another epoch begins at 0 there, or is refused."""

    @property
    def has_identity(self) -> bool:
        """Whether batches can be numbered."""
        return self.producer_id >= 0

    def identify(self, producer_id: int, producer_epoch: int) -> None:
        """Takes the identity that a broker gave out."""
        if producer_id != self.producer_id:
            self._known.clear()
        self.producer_id, self.producer_epoch = producer_id, producer_epoch
        for partition in [partition for partition in self._gaps if self._may_begin_again(partition)]:
            self._row(partition).restart(producer_id, producer_epoch)
            self._unresolved.discard(partition)
            del self._gaps[partition]

    def forget_all(self) -> None:
        """Begins every partition anew, after a transaction whose end brought a new epoch."""
        self._rows.clear()
        self._gaps.clear()
        self._unresolved.clear()

    def may_send(self, partition: TopicPartition, batch: Numbered | None) -> bool:
        """Whether a batch may go out now; None stands for one that has no number yet."""
        if not self.has_identity:
            return False
        row = self._rows.get(partition)
        if batch is not None:
            if partition in self._gaps and not self._is_before_gap(batch):
                return False
            return row is None or not row.unanswered or row.unanswered[0] is batch
        if row is None:
            return True
        if partition in self._gaps or partition in self._unresolved or len(row.unanswered) >= MAX_UNANSWERED:
            return False
        if not row.unanswered:
            return True
        # A batch that waits for its retry is before this one; and the old identity's batches are answered first.
        is_in_order = self._is_current(row) and all(sent.on_the_wire for sent in row.unanswered)
        return is_in_order and partition in self._known

    def number(self, partition: TopicPartition, record_count: int) -> Numbered:
        """The next number of a partition, for a batch that is on its way from now on."""
        row = self._row(partition)
        if not row.unanswered and not self._is_current(row):
            row.restart(self.producer_id, self.producer_epoch)
        batch = Numbered(partition, record_count, row.producer_id, row.producer_epoch, row.next_sequence)
        row.next_sequence = batch.next_sequence
        row.unanswered.append(batch)
        return batch

    def acknowledged(self, batch: Numbered, last_offset: int) -> None:
        """The broker has the batch; `last_offset` is -1 where it does not remember where."""
        row = self._row(batch.partition)
        self._remove(row, batch)
        # Answers may overtake each other when the leader changes; numbers are compared on a circle.
        if (batch.next_sequence - row.next_acknowledged) % SEQUENCES < SEQUENCES // 2:
            row.next_acknowledged = batch.next_sequence
        row.last_offset = max(row.last_offset, last_offset)
        self._known.add(batch.partition)

    def may_retry(self, batch: Numbered, code: ErrorCode, log_start_offset: int) -> bool | None:
        """Whether a batch that was refused is sent again; None where the code alone decides."""
        batch.on_the_wire = False
        batch.unheard = batch.unheard or code in FATE_UNKNOWN
        row = self._row(batch.partition)
        if code is ErrorCode.unknown_producer_id:
            self._known.discard(batch.partition)
            if log_start_offset == -1 or batch.renumbered:
                return True
            if self._transactional:
                if row.last_offset >= log_start_offset:
                    return False
                # Retention took all that the producer wrote: the broker's memory of it went with it.
                row.restart(row.producer_id, row.producer_epoch)
                return True
            self._note_gap(batch)
            return True
        if code is ErrorCode.out_of_order_sequence_number:
            is_resolved = batch.partition not in self._unresolved
            is_next = batch.base_sequence == row.next_acknowledged
            if is_resolved and (batch.renumbered or not is_next):
                return True
            if self._transactional:
                return False
            # With nothing before it that could still be written, what ran out of time was not.
            if is_resolved or (row.unanswered[:1] == [batch] and not batch.unheard):
                self._note_gap(batch)
            return True
        return None

    def sent_again(self, batch: Numbered) -> None:
        """A batch that waited for its retry is on its way."""
        batch.on_the_wire = True

    def failed(self, batch: Numbered, *, was_written: bool | None) -> None:
        """A batch was given up; `was_written` is None where nobody knows."""
        row = self._row(batch.partition)
        self._remove(row, batch)
        if was_written is None:
            self._unresolved.add(batch.partition)
        elif not self._transactional:
            self._note_gap(batch)

    def split(self, batch: Numbered, record_counts: list[int]) -> list[Numbered]:
        """The numbers of the parts of a batch that was too large, in its place."""
        row = self._row(batch.partition)
        parts: list[Numbered] = []
        sequence = batch.base_sequence
        for count in record_counts:
            part = Numbered(batch.partition, count, batch.producer_id, batch.producer_epoch, sequence)
            part.on_the_wire, part.renumbered = False, batch.renumbered
            sequence = part.next_sequence
            parts.append(part)
        at = row.unanswered.index(batch)
        row.unanswered[at : at + 1] = parts
        return parts

    def settle(self) -> list[TopicPartition]:
        """Does what waited for answers; the partitions of a transaction that can only be aborted now.

        Call it before batches are sent. Without an identity afterwards, one must be asked for.
        """
        broken: list[TopicPartition] = []
        for partition in list(self._unresolved):
            row = self._row(partition)
            if row.unanswered:
                continue
            self._unresolved.discard(partition)
            if row.next_acknowledged != row.next_sequence:
                if self._transactional:
                    broken.append(partition)
                else:
                    self._gaps[partition] = row.next_sequence
        if self._gaps and self.has_identity:
            self._raise_epoch()
        return broken

    def _note_gap(self, batch: Numbered) -> None:
        """The row broke at this batch, or before it already."""
        if batch.partition not in self._gaps or self._is_before_gap(batch):
            self._gaps[batch.partition] = batch.base_sequence

    def _is_before_gap(self, batch: Numbered) -> bool:
        return 0 < (self._gaps[batch.partition] - batch.base_sequence) % SEQUENCES < SEQUENCES // 2

    def _may_begin_again(self, partition: TopicPartition) -> bool:
        row = self._row(partition)
        return not row.on_the_wire and not (row.unanswered and self._is_before_gap(row.unanswered[0]))

    def _raise_epoch(self) -> None:
        if not all(self._may_begin_again(partition) for partition in self._gaps):
            return
        if self.producer_epoch == _LAST_EPOCH:
            self.producer_id = self.producer_epoch = -1
        else:
            self.identify(self.producer_id, self.producer_epoch + 1)

    def _is_current(self, row: _Row) -> bool:
        return (row.producer_id, row.producer_epoch) == (self.producer_id, self.producer_epoch)

    def _row(self, partition: TopicPartition) -> _Row:
        row = self._rows.get(partition)
        if row is None:
            row = self._rows[partition] = _Row(self.producer_id, self.producer_epoch)
        return row

    def _remove(self, row: _Row, batch: Numbered) -> None:
        batch.on_the_wire = False
        if batch in row.unanswered:
            row.unanswered.remove(batch)
