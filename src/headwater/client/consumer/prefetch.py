"""What was fetched and not handed out yet, partition by partition. Sans-IO.

Records leave here in one step with the position that they move: whatever raises or is cancelled before or after, no
record is lost and none is handed out twice. What waits for a partition belongs to one position; when that was moved
otherwise (a seek, a reset, a rebalance) it is dropped. What waits for a paused partition is kept.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

from headwater.client.answer_memory import AnswerMemory
from headwater.client.consumer.corrupt_batches import ReadingRules
from headwater.client.consumer.records import COLUMNS_BYTES, Deserializer, FetchedBatches, Record
from headwater.client.consumer.subscription import NO_EPOCH, PartitionState, Position, SubscriptionState
from headwater.client.errors import RecordError
from headwater.protocol.record_columns import RecordColumns
from headwater.types import TopicPartition

ColumnsPart: TypeAlias = tuple[str, int, RecordColumns]
"""Topic, partition and their records."""


class Chunk(NamedTuple):
    """What one fetch brought of one partition; `end` is the position behind its last batch, if all can be read.

    `records` is a part of the answer's memory, all of which stays while any part of it does.
    """

    batches: FetchedBatches
    end: Position
    records: memoryview
    aborted: Sequence[tuple[int, int]] | None

    @classmethod
    def of(
        cls,
        partition: TopicPartition,
        offset: int,
        records: memoryview,
        aborted: Sequence[tuple[int, int]] | None = None,
        *,
        rules: ReadingRules = ReadingRules(),  # noqa: B008
        log_end: int = -1,
    ) -> "Chunk | None":
        """A chunk that was fetched from `offset`; None when nothing in it is of that offset or later.

        `log_end` is the end of the log by the broker's word, -1 if it gave none.
        """
        topic, number = partition
        check_crcs, limit_bytes, skip = rules
        batches = FetchedBatches(
            topic, number, records, 0, len(records), offset, aborted, check_crcs, limit_bytes, skip, log_end
        )
        if batches.ends_too_early:
            return None
        epoch = batches.end_epoch
        return cls(batches, Position(batches.end_offset, NO_EPOCH if epoch is None else epoch), records, aborted)

    @property
    def size_bytes(self) -> int:
        """How much of the answer it is."""
        return len(self.records)

    def copied(self) -> "Chunk":
        """The same in memory of its own, from where reading stopped on."""
        return self._replace(records=memoryview(bytes(self.records))).once_more()

    def once_more(self) -> "Chunk":
        """The same, from where reading stopped on; to read the one does not change the other."""
        batches = self.batches
        partition = TopicPartition(batches.topic, batches.partition)
        other = Chunk.of(
            partition, batches.next_offset, self.records, self.aborted, rules=batches.rules, log_end=batches.log_end
        )
        if other is None:
            return self
        other.batches.fetch_offset = batches.fetch_offset
        return other


class _Queue:
    """What waits for one partition: decoded records, then chunks. `position` is where the first of it belongs."""

    __slots__ = (
        "chunks",
        "decoded",
        "decoded_end",
        "end_offset",
        "ends_surely",
        "failed",
        "failed_at",
        "next_decoded",
        "position",
        "room_made",
        "size_bytes",
    )

    def __init__(self, position: Position) -> None:
        self.position = position
        self.end_offset = position.offset
        self.ends_surely = True
        """Whether `end_offset` is where the next fetch begins; if not, what waits must be read to find out."""
        self.failed = False
        """Whether the last look at it ended in an error."""
        self.failed_at: Position | None = None
        """The position that the error left: one that was set since, even to the same offset, wants a new fetch."""
        self.decoded: list[Record] = []
        self.next_decoded = 0
        self.decoded_end = position
        """The position behind the last decoded record."""
        self.chunks: deque[Chunk] = deque()
        self.size_bytes = 0
        self.room_made = False

    def chunk_was_read(self, chunk: Chunk) -> None:
        """The first chunk was read, up to where it stopped."""
        batches = chunk.batches
        if batches.exhausted:
            self.chunks.popleft()
            self.size_bytes -= chunk.size_bytes
            self.room_made = True
            if batches.next_offset == chunk.end.offset and chunk.batches.ends_surely:
                self.position = chunk.end
                return
            # Something in it could not be read, and what was fetched behind it may not be what follows.
            self._forget_the_rest(batches.next_offset)
        epoch = batches.leader_epoch
        self.position = Position(batches.next_offset, NO_EPOCH if epoch is None else epoch)

    def _forget_the_rest(self, end_offset: int) -> None:
        if not self.chunks or self.chunks[0].batches.fetch_offset != end_offset:
            self.chunks.clear()
            self.size_bytes = 0
            self.end_offset = end_offset
            self.ends_surely = True

    def take_decoded(self, max_records: int) -> list[Record]:
        """Takes from the records that are decoded already."""
        first = self.next_decoded
        self.next_decoded = min(first + max_records, len(self.decoded))
        taken = self.decoded[first : self.next_decoded]
        if self.next_decoded == len(self.decoded):
            self.decoded, self.next_decoded, self.position = [], 0, self.decoded_end
        elif taken:
            epoch = taken[-1].leader_epoch
            self.position = Position(taken[-1].offset + 1, NO_EPOCH if epoch is None else epoch)
        return taken


class ColumnsClaim:
    """What waits for one partition, to be read by column without a change to anything that others see."""

    def __init__(self, partition: TopicPartition, queue: _Queue, memory: AnswerMemory) -> None:
        self._chunks = [*queue.chunks]
        self._memory = memory
        self.partition = partition
        self.queue = queue
        self.offset = queue.position.offset
        self.read: list[Chunk] = []
        """As many of the chunks as were read; the last one may not be read to its end."""
        self.columns: list[RecordColumns] = []
        self.opened_bytes = 0
        self.error: RecordError | None = None

    def read_all(self, most_bytes: int = COLUMNS_BYTES) -> None:
        """Reads up to the first error, or until the batches that were opened have so many bytes, decompressed.

        Takes long, for all that waits may be much.
        """
        for chunk in self._chunks:
            reading = chunk.once_more()
            self.read.append(reading)
            before_bytes = reading.batches.opened_bytes
            while not reading.batches.exhausted:
                if self.opened_bytes + reading.batches.opened_bytes - before_bytes >= most_bytes and self.columns:
                    break
                try:
                    found = reading.batches.take_columns(memory=self._memory)
                except RecordError as error:
                    self.error = error
                    return
                if len(found):
                    self.columns.append(found)
            self.opened_bytes += reading.batches.opened_bytes - before_bytes
            if not reading.batches.exhausted or reading.batches.next_offset != chunk.end.offset:
                # Enough for one table, or something that could not be read: what is behind it is not what follows.
                return


def read_columns(claims: Sequence[ColumnsClaim]) -> list[ColumnsClaim]:
    """Reads the claims up to the first error, and gives those that were read.

    A few bytes may stand for very many: together they become COLUMNS_BYTES and a batch, and the rest waits.
    """
    read: list[ColumnsClaim] = []
    room = COLUMNS_BYTES
    for claim in claims:
        claim.read_all(room)
        read.append(claim)
        room -= claim.opened_bytes
        if claim.error is not None or room <= 0:
            break
    return read


class Prefetched:
    """Everything that waits. Rows go through the deserializers; columns do not."""

    def __init__(
        self,
        subscription: SubscriptionState,
        key_deserializer: Deserializer | None = None,
        value_deserializer: Deserializer | None = None,
    ) -> None:
        self._subscription = subscription
        self._deserializers = (key_deserializer, value_deserializer)
        self._queues: dict[TopicPartition, _Queue] = {}
        self._one_by_one: tuple[TopicPartition, _Queue] | None = None
        self._room_bytes = COLUMNS_BYTES
        """So much may still be decompressed in this call: a few hostile bytes may stand for very many."""
        self._memory = AnswerMemory()
        """For columns: to take new memory for each table costs more than to fill it."""
        self.room_made = False
        """Whether less waits than when somebody last set this to False."""

    def add(self, partition: TopicPartition, chunk: Chunk) -> None:
        """Puts a chunk behind what waits already; it was fetched from the offset that `fetch_from` gave."""
        queue = self._queues.get(partition)
        if queue is None:
            position = self._subscription.assigned[partition].position
            assert position is not None
            queue = self._queues[partition] = _Queue(position)
        queue.chunks.append(chunk.copied() if self._subscription.assigned[partition].paused else chunk)
        queue.end_offset = chunk.end.offset
        queue.ends_surely = chunk.batches.ends_surely
        queue.size_bytes += chunk.size_bytes

    def fetch_from(self, partition: TopicPartition, position_offset: int) -> int:
        """The offset to fetch next: behind all that waits."""
        queue = self._queues.get(partition)
        return position_offset if queue is None else queue.end_offset

    def ends_surely(self, partition: TopicPartition) -> bool:
        """Whether it is known where the next fetch begins; if not, what waits is to be handed out first."""
        queue = self._queues.get(partition)
        return queue is None or queue.ends_surely

    def size_bytes(self, partition: TopicPartition) -> int:
        """How many bytes wait for this partition."""
        queue = self._queues.get(partition)
        return 0 if queue is None else queue.size_bytes

    def unpaused_bytes(self) -> int:
        """How many bytes wait that may be handed out as soon as somebody polls."""
        states = ((self._subscription.assigned.get(partition), queue) for partition, queue in self._queues.items())
        return sum(queue.size_bytes for state, queue in states if state is not None and not state.paused)

    def keep_apart(self, partitions: Iterable[TopicPartition]) -> None:
        """Copies what waits for these out of the answers that they came in.

        What is paused may wait for long, and an answer is as large as all partitions in it: it should not wait too.
        """
        for partition in partitions:
            queue = self._queues.get(partition)
            if queue is not None:
                queue.chunks = deque(chunk.copied() for chunk in queue.chunks)

    def drop_stale(self) -> None:
        """Forgets what belongs to positions of the past."""
        for partition in [*self._queues]:
            self._current(partition)

    def take(self, max_records: int) -> list[Record]:
        """Up to so many records, and their positions moved; partitions take turns at being first.

        `RecordError` when the first in line cannot be read; its position stays.
        """
        taken: list[Record] = []
        self._room_bytes = COLUMNS_BYTES
        for partition in [*self._queues]:
            queue = self._readable(partition)
            if queue is None:
                continue
            records: list[Record] = []
            error = self._take_from(queue, records, max_records - len(taken))
            self._hand_out(partition, queue)
            taken = taken + records if taken else records
            if len(taken) >= max_records or (taken and self._room_bytes <= 0):
                break
            if error is not None:
                if not taken:
                    raise error
                self._put_first(partition)
                break
        return taken

    def take_one(self, decoded_ahead: int) -> Record | None:
        """The next record, and its position moved; None when nothing waits that may be handed out.

        So many are decoded at once, all of one partition, and `take_decoded` has the rest. `RecordError` as for `take`.
        """
        for partition in [*self._queues]:
            queue = self._readable(partition)
            if queue is None:
                continue
            if not queue.decoded:
                before, records = queue.position, list[Record]()
                self._room_bytes = COLUMNS_BYTES
                error = self._take_from(queue, records, decoded_ahead)
                if records:
                    queue.decoded, queue.decoded_end, queue.position = records, queue.position, before
                else:
                    self._hand_out(partition, queue)
                    if error is not None:
                        raise error
                    continue
            self._one_by_one = (partition, queue)
            return self.take_decoded()
        return None

    def take_decoded(self) -> Record | None:
        """The next of the records that `take_one` has decoded; None when it must be asked."""
        if self._one_by_one is None:
            return None
        partition, queue = self._one_by_one
        state = self._subscription.assigned.get(partition)
        is_current = state is not None and state.fetchable and state.position is queue.position
        if not is_current or not queue.decoded or self._queues.get(partition) is not queue:
            self._one_by_one = None
            return None
        (record,) = queue.take_decoded(1)
        if queue.decoded:
            self._subscription.handed_out(partition, queue.position)
        else:
            self._hand_out(partition, queue)
        return record

    def take_columns(self) -> list[ColumnsPart]:
        """All that waits, by column, and the positions moved. `RecordError` as for `take`."""
        return self.hand_out_columns(read_columns(self.claim_columns()))

    def claim_columns(self) -> list[ColumnsClaim]:
        """All that waits, for `read_columns`. Nothing is changed by that: it is handed out by `hand_out_columns`."""
        claims: list[ColumnsClaim] = []
        for partition in [*self._queues]:
            queue = self._readable(partition)
            if queue is None:
                continue
            if queue.decoded:
                # Decoded records do not become columns; they are fetched again.
                del self._queues[partition]
                self.room_made = True
                continue
            claims.append(ColumnsClaim(partition, queue, self._memory))
        return claims

    def hand_out_columns(self, claims: Sequence[ColumnsClaim]) -> list[ColumnsPart]:
        """What was read of the claims, and the positions moved, but for what is not wanted any more."""
        parts: list[ColumnsPart] = []
        for claim in claims:
            partition, queue = claim.partition, claim.queue
            if self._queues.get(partition) is not queue or self._readable(partition) is None:
                continue
            if queue.position.offset != claim.offset:
                continue
            queue.failed = claim.error is not None
            for read in claim.read:
                queue.chunks[0] = read
                queue.chunk_was_read(read)
            self._hand_out(partition, queue)
            parts += [(*partition, columns) for columns in claim.columns]
            if claim.error is not None:
                if not parts:
                    raise claim.error
                self._put_first(partition)
                break
        return parts

    def _take_from(self, queue: _Queue, records: list[Record], max_records: int) -> RecordError | None:
        """Adds records to `records`, and gives the error that ended it. An error comes again until somebody seeks."""
        if queue.decoded:
            records += queue.take_decoded(max_records)
        while queue.chunks and len(records) < max_records and (self._room_bytes > 0 or not records):
            chunk = queue.chunks[0]
            before_bytes = chunk.batches.opened_bytes
            try:
                records += chunk.batches.take(max_records - len(records), *self._deserializers)
            except RecordError as error:
                queue.failed = True
                return error
            finally:
                self._room_bytes -= chunk.batches.opened_bytes - before_bytes
            queue.chunk_was_read(chunk)
        return None

    def _hand_out(self, partition: TopicPartition, queue: _Queue) -> None:
        """Moves the position to where the queue is, and the partition to the end of the line."""
        del self._queues[partition]
        if queue.chunks or queue.decoded:
            self._queues[partition] = queue
        if queue.room_made:
            queue.room_made = False
            self.room_made = True
        queue.failed_at = queue.position if queue.failed else None
        queue.failed = False
        self._subscription.handed_out(partition, queue.position)

    def _put_first(self, partition: TopicPartition) -> None:
        """So that the next call tells of its error."""
        self._queues = {partition: self._queues.pop(partition), **self._queues}

    def _readable(self, partition: TopicPartition) -> _Queue | None:
        state = self._current(partition)
        return self._queues[partition] if state is not None and state.fetchable else None

    def _current(self, partition: TopicPartition) -> PartitionState | None:
        """The state of a partition whose queue belongs to its position; any other queue is dropped."""
        queue, state = self._queues[partition], self._subscription.assigned.get(partition)
        if state is None or state.position is None or state.position.offset != queue.position.offset:
            del self._queues[partition]
            return None
        if queue.failed_at is not None and state.position is not queue.failed_at:
            del self._queues[partition]
            return None
        queue.position = state.position
        return state
