"""Whatever is fetched, taken, sought and paused: each record is handed out once, in order, from the position on."""

import gc
import weakref
from collections.abc import Iterable

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from headwater.client.consumer.prefetch import Chunk, Prefetched, read_columns
from headwater.client.consumer.records import Record
from headwater.client.consumer.resets import EARLIEST
from headwater.client.consumer.subscription import Position, SubscriptionState
from headwater.client.errors import RecordError
from headwater.protocol.record_columns import BinaryColumn, RecordColumns
from headwater.protocol.records import encode_batch
from headwater.types import TopicPartition

PARTITIONS = [TopicPartition("orders", number) for number in range(3)]
POISON = 23
"""The deserializer does not take the record with this offset."""
partitions = st.sampled_from(PARTITIONS)
EPOCH_LENGTH = 10


def deserialize(value: bytes) -> bytes:
    if value == b"%d" % POISON:
        raise ValueError("poison")
    return value


def chunk(partition: TopicPartition, offset: int, batches: int) -> Chunk:
    """Some batches of three from the one that holds `offset` on; the fourth of every four is a marker."""
    first = offset - offset % 3
    parts = []
    for base in range(first, first + 3 * batches, 3):
        values = [(None, b"%d" % number, (), 0) for number in range(base, base + 3)]
        control = base // 3 % 4 == 3
        parts.append(bytes(encode_batch(values, base_offset=base, leader_epoch=base // EPOCH_LENGTH, control=control)))
    buffer = memoryview(b"".join(parts))
    made = Chunk.of(partition, offset, buffer)
    assert made is not None
    return made


class Answer(bytearray):
    """Memory that can be watched."""


def test_what_is_paused_does_not_keep_the_whole_answer_in_memory() -> None:
    subscription = SubscriptionState(EARLIEST)
    prefetched = Prefetched(subscription)
    subscription.assign(PARTITIONS[:1])
    subscription.seek(PARTITIONS[0], Position(0))
    answer = Answer(chunk(PARTITIONS[0], 0, 2).records)
    watched = weakref.ref(answer)
    made = Chunk.of(PARTITIONS[0], 0, memoryview(answer))
    assert made is not None
    prefetched.add(PARTITIONS[0], made)
    first = prefetched.take(2)
    del answer, made
    assert watched() is not None
    subscription.pause(PARTITIONS[:1])
    prefetched.keep_apart(PARTITIONS[:1])
    gc.collect()
    assert watched() is None
    subscription.resume(PARTITIONS[:1])
    assert [record.offset for record in first + prefetched.take(9)] == [0, 1, 2, 3, 4, 5]


def offsets_in(parts: list[tuple[str, int, RecordColumns]]) -> list[int]:
    return [offset for _, _, columns in parts for offset in columns.offsets]


def test_what_was_read_by_column_and_never_handed_out_waits_still() -> None:
    subscription = SubscriptionState(EARLIEST)
    prefetched = Prefetched(subscription)
    subscription.assign(PARTITIONS[:1])
    subscription.seek(PARTITIONS[0], Position(0))
    prefetched.add(PARTITIONS[0], chunk(PARTITIONS[0], 0, 2))
    assert [record.offset for record in prefetched.take(2)] == [0, 1]
    # Whoever reads may be interrupted there.
    read_columns(prefetched.claim_columns())
    claims = read_columns(prefetched.claim_columns())
    prefetched.add(PARTITIONS[0], chunk(PARTITIONS[0], 6, 1))
    assert offsets_in(prefetched.hand_out_columns(claims)) == [2, 3, 4, 5]
    assert offsets_in(prefetched.hand_out_columns(claims)) == []
    assert offsets_in(prefetched.take_columns()) == [6, 7, 8]


def test_what_was_read_by_column_is_not_handed_out_once_the_position_was_moved() -> None:
    subscription = SubscriptionState(EARLIEST)
    prefetched = Prefetched(subscription)
    subscription.assign(PARTITIONS[:1])
    for moves_to in (0, 4):
        subscription.seek(PARTITIONS[0], Position(0))
        prefetched.drop_stale()
        prefetched.add(PARTITIONS[0], chunk(PARTITIONS[0], 0, 2))
        claims = read_columns(prefetched.claim_columns())
        subscription.seek(PARTITIONS[0], Position(moves_to))
        assert offsets_in(prefetched.hand_out_columns(claims)) == ([] if moves_to else [0, 1, 2, 3, 4, 5])
    subscription.pause(PARTITIONS[:1])
    assert prefetched.claim_columns() == []


def test_memory_of_columns_is_used_again_and_never_before_they_are_gone() -> None:
    subscription = SubscriptionState(EARLIEST)
    prefetched = Prefetched(subscription)
    subscription.assign(PARTITIONS[:1])
    subscription.seek(PARTITIONS[0], Position(0))

    def polled(first: int, value: bytes) -> BinaryColumn:
        records = [(None, value * 100_000, (), 0) for _ in range(4)]
        made = Chunk.of(PARTITIONS[0], first, memoryview(encode_batch(records, base_offset=first)))
        assert made is not None
        prefetched.add(PARTITIONS[0], made)
        ((_, _, columns),) = prefetched.take_columns()
        return columns.values

    def memory_of(column: BinaryColumn) -> object:
        assert isinstance(column.data, memoryview)
        return column.data.obj

    first, second = polled(0, b"a"), polled(4, b"b")
    assert memory_of(first) is not memory_of(second)
    assert (first[0], first[3], second[0]) == (b"a" * 100_000, b"a" * 100_000, b"b" * 100_000)
    memory, part = memory_of(first), memoryview(first.data)[:10]
    del first
    assert memory_of(third := polled(8, b"c")) is not memory
    assert part == b"a" * 10
    part.release()
    assert memory_of(fourth := polled(12, b"d")) is memory
    assert (second[3], third[3], fourth[3]) == (b"b" * 100_000, b"c" * 100_000, b"d" * 100_000)


def next_visible(offset: int) -> int:
    while offset // 3 % 4 == 3:
        offset += 1
    return offset


class Prefetching(RuleBasedStateMachine):
    """`due` is the offset of the next record of each partition, as the user expects it."""

    def __init__(self) -> None:
        super().__init__()
        self.subscription = SubscriptionState(EARLIEST)
        self.prefetched = Prefetched(self.subscription, None, deserialize)
        self.due: dict[TopicPartition, int] = {}
        self.end: dict[TopicPartition, int] = {}
        self.subscription.assign(PARTITIONS)
        for partition in PARTITIONS:
            self.move(partition, 0)

    def move(self, partition: TopicPartition, offset: int) -> None:
        self.subscription.seek(partition, Position(offset))
        self.due[partition] = offset

    def handed_out(self, rows: Iterable[tuple[TopicPartition, int]]) -> None:
        for partition, offset in rows:
            assert not self.subscription.assigned[partition].paused
            assert offset == next_visible(self.due[partition])
            self.due[partition] = offset + 1

    @rule(partition=partitions, batches=st.integers(1, 4))
    def fetch(self, partition: TopicPartition, batches: int) -> None:
        position = self.subscription.assigned[partition].position
        assert position is not None
        self.prefetched.drop_stale()
        offset = self.prefetched.fetch_from(partition, position.offset)
        self.prefetched.add(partition, chunk(partition, offset, batches))

    @rule(max_records=st.integers(1, 12))
    def poll(self, max_records: int) -> None:
        try:
            records = self.prefetched.take(max_records)
        except RecordError as error:
            self.check_poison(error)
            return
        assert len(records) <= max_records
        self.handed_out(map(place, records))
        if not records:
            self.check_nothing_waits()

    @rule(count=st.integers(1, 5))
    def iterate(self, count: int) -> None:
        for _ in range(count):
            try:
                record = self.prefetched.take_decoded() or self.prefetched.take_one(4)
            except RecordError as error:
                self.check_poison(error)
                return
            if record is None:
                self.check_nothing_waits()
            else:
                self.handed_out([place(record)])

    def check_nothing_waits(self) -> None:
        """Who is given nothing is told the truth."""
        for partition, state in self.subscription.assigned.items():
            assert state.paused or self.prefetched.size_bytes(partition) == 0

    @rule()
    def poll_columns(self) -> None:
        # Columns know no deserializer, so that nothing is poison there.
        for topic, number, columns in self.prefetched.take_columns():
            self.handed_out((TopicPartition(topic, number), offset) for offset in columns.offsets)

    def check_poison(self, error: RecordError) -> None:
        assert error.offset == POISON == next_visible(self.due[error.partition])
        self.move(error.partition, POISON + 1)

    @rule(partition=partitions, offset=st.integers(0, 40))
    def seek(self, partition: TopicPartition, offset: int) -> None:
        self.move(partition, offset)

    @rule(partition=partitions)
    def seek_to_where_it_is(self, partition: TopicPartition) -> None:
        position = self.subscription.assigned[partition].position
        assert position is not None
        self.move(partition, position.offset)

    @rule(partition=partitions, pauses=st.booleans())
    def pause_or_resume(self, partition: TopicPartition, pauses: bool) -> None:
        if pauses:
            self.subscription.pause([partition])
            self.prefetched.keep_apart([partition])
        else:
            self.subscription.resume([partition])

    @invariant()
    def positions_follow_the_records(self) -> None:
        for partition, due in self.due.items():
            position = self.subscription.assigned[partition].position
            assert position is not None
            assert due <= position.offset <= next_visible(due)

    @invariant()
    def sizes_are_those_of_what_waits(self) -> None:
        assert all(self.prefetched.size_bytes(partition) >= 0 for partition in PARTITIONS)

    def teardown(self) -> None:
        """Nothing was dropped that was not left by a seek: all that was fetched can be had."""
        self.subscription.resume(PARTITIONS)
        for partition in PARTITIONS:
            self.fetch(partition, 1)
        ends = {p: self.prefetched.fetch_from(p, self.due[p]) for p in PARTITIONS}
        for _ in range(200):
            self.poll(5)
        for partition in PARTITIONS:
            assert next_visible(self.due[partition]) >= min(ends[partition], next_visible(ends[partition]))
            assert self.prefetched.size_bytes(partition) == 0


def place(record: Record) -> tuple[TopicPartition, int]:
    return TopicPartition(record.topic, record.partition), record.offset


TestPrefetching = Prefetching.TestCase
TestPrefetching.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
