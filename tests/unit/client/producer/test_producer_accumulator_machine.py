"""The accumulator against a simple model, through any order of events.

No record is lost, doubled or reordered in its partition; memory is accounted for to the byte; every handle is settled
once, with what became of its batch; and every batch decodes to what was appended.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from headwater.client.errors import ClosedError
from headwater.protocol.batches import crc_is_valid, parse_header
from headwater.protocol.record_decoding import decode_records
from unit.client.producer.forms import Core

PARTITIONS = 3
LINGER_MS = 10
DELIVERY_TIMEOUT_MS = 500
# Most records share a batch with others, some are larger than one.
SIZES = st.integers(5, 40) | st.integers(5, 40) | st.integers(5, 700)


@dataclass(eq=False)
class Sent:
    """A record that was appended, in the model."""

    partition: int
    value: bytes
    handle: Any
    outcome: Any = None
    called_back: list[Any] = field(default_factory=list)


class AccumulatorMachine(RuleBasedStateMachine):
    """One thread plays users, time and the sender."""

    core: ClassVar[Core]

    def __init__(self) -> None:
        super().__init__()
        # The model: records that are not settled, in order, by partition.
        self.waiting: dict[int, list[Sent]] = {number: [] for number in range(PARTITIONS)}
        self.all: list[Sent] = []
        self.batches: list[Any] = []
        self.tickets: list[Any] = []
        self.flushes: list[Any] = []
        self.next_offset = 0
        self.now_ms = 0
        self.closed = False

    @initialize(
        batch_size=st.integers(100, 600), buffer_memory=st.integers(1000, 6000), compression=st.sampled_from([0, 4])
    )
    def begin(self, batch_size: int, buffer_memory: int, compression: int) -> None:
        self.batch_size = batch_size
        self.buffer_memory = buffer_memory
        self.accumulator = self.core.accumulator_with(
            batch_size=batch_size,
            linger_ms=LINGER_MS,
            buffer_memory=buffer_memory,
            compression=compression,
            max_request_size=900,
            clock_ms=lambda: self.now_ms,
        )
        self.queue = self.accumulator.topic("t")

    def append(self, partition: int, size: int, headers: bool, ticket: Any = None) -> bool:
        value = b"%d " % len(self.all)
        value += b"x" * (size - len(value))
        sent = Sent(partition, value, None)
        sent.handle = self.accumulator.append(
            self.queue,
            partition,
            value[:3],
            value,
            [("header", value[:2])] if headers else None,
            len(self.all),
            lambda *got: sent.called_back.append(got),
            ticket,
        )
        if sent.handle is None:
            return False
        self.waiting[partition].append(sent)
        self.all.append(sent)
        return True

    @precondition(lambda self: not self.closed)
    @rule(partition=st.integers(0, PARTITIONS - 1), size=SIZES, headers=st.booleans())
    def a_record_is_appended(self, partition: int, size: int, headers: bool) -> None:
        used_bytes = self.accumulator.used_bytes
        if not self.append(partition, size, headers):
            assert self.accumulator.used_bytes == used_bytes
            assert self.tickets or used_bytes + max(size + 100, self.batch_size) > self.buffer_memory
            self.tickets.append(self.accumulator.line_up(max(self.batch_size, size + 100)))

    @precondition(lambda self: not self.closed and any(ticket.granted for ticket in self.tickets))
    @rule(partition=st.integers(0, PARTITIONS - 1), size=st.integers(5, 90))
    def who_stood_in_line_appends(self, partition: int, size: int) -> None:
        granted = [ticket for ticket in self.tickets if ticket.granted]
        assert granted == self.tickets[: len(granted)], "first come, first served"
        with self.tickets.pop(0) as ticket:
            # What a batch and a record need besides the value is less than 90 bytes.
            assert self.append(partition, min(size, ticket.size_bytes - 90), False, ticket)

    @precondition(lambda self: self.tickets)
    @rule(data=st.data())
    def somebody_leaves_the_line(self, data: st.DataObject) -> None:
        ticket = self.tickets.pop(data.draw(st.integers(0, len(self.tickets) - 1)))
        with ticket:
            pass

    @rule(pause_ms=st.integers(1, 120))
    def time_passes(self, pause_ms: int) -> None:
        self.now_ms += pause_ms

    @rule()
    def the_sender_drains_what_is_ready(self) -> None:
        for queue in self.accumulator.ready(self.now_ms):
            batch = self.accumulator.drain(queue, self.now_ms)
            assert batch is not None
            self.check(batch)
            self.batches.append(batch)

    @precondition(lambda self: self.batches)
    @rule(data=st.data(), event=st.sampled_from(["done", "failed", "put back", "split"]))
    def an_answer_comes(self, data: st.DataObject, event: str) -> None:
        batch = self.batches.pop(data.draw(st.integers(0, len(self.batches) - 1)))
        if event == "put back":
            self.accumulator.put_back(batch, self.now_ms)
        elif event == "split" and batch.record_count > 1:
            parts = self.accumulator.split(batch)
            assert sum(part.record_count for part in parts) == batch.record_count
        elif event == "done":
            self.settle(batch, self.next_offset)
            self.accumulator.done(batch, self.next_offset)
            self.next_offset += batch.record_count
        else:
            error = ValueError(f"failed at {self.now_ms}")
            self.settle(batch, error)
            self.accumulator.failed(batch, error)

    @rule()
    def the_oldest_batches_expire(self) -> None:
        for batch in self.accumulator.expired(self.now_ms, DELIVERY_TIMEOUT_MS):
            assert self.now_ms - batch.created_ms >= DELIVERY_TIMEOUT_MS
            error = TimeoutError(f"expired at {self.now_ms}")
            self.settle(batch, error)
            self.accumulator.failed(batch, error)

    @rule()
    def a_flush_begins(self) -> None:
        if not self.flushes:
            self.flushes = [(self.accumulator.flush_begin(), list(self.all))]
            # What is backing off is not hurried.
            ready = self.accumulator.ready(self.now_ms)
            next_ms = self.accumulator.next_ready_ms(self.now_ms)
            assert ready or next_ms is None or next_ms > self.now_ms

    @precondition(lambda self: self.flushes)
    @rule()
    def a_flush_ends(self) -> None:
        deliveries, records = self.flushes.pop()
        if all(delivery.wait(0) for delivery in deliveries):
            assert all(sent.outcome is not None for sent in records)
        self.accumulator.flush_end()

    @precondition(lambda self: len(self.all) > 20)
    @rule()
    def the_producer_is_closed(self) -> None:
        self.closed = True
        self.accumulator.close()
        try:
            self.append(0, 10, False)
        except ClosedError:
            pass
        else:
            raise AssertionError("a closed accumulator took a record")

    @invariant()
    def memory_is_accounted_for(self) -> None:
        queued = [batch for queue in self.queue.partitions for batch in queue.batches]
        kept = sum(ticket.size_bytes for ticket in self.tickets if ticket.granted)
        held = queued + self.batches
        assert self.accumulator.used_bytes == sum(batch.capacity_bytes for batch in held) + kept
        # A batch that is split is larger by the header of its second half.
        assert self.accumulator.used_bytes <= self.buffer_memory + 100 * len(held)
        assert self.accumulator.pending_batches == len(held)
        assert self.accumulator.pending_records == sum(map(len, self.waiting.values()))

    @invariant()
    def queues_are_in_order(self) -> None:
        for queue in self.queue.partitions:
            orders = [batch.order for batch in queue.batches]
            assert orders == sorted(orders)

    @invariant()
    def handles_tell_what_happened(self) -> None:
        for sent in self.all:
            assert sent.handle.done() == (sent.outcome is not None) == bool(sent.called_back)
            if sent.outcome is not None:
                assert len(sent.called_back) == 1

    def records_of(self, batch: Any) -> list[Sent]:
        """Those that the model has at the place of the batch: its handles say where."""
        return [sent for sent in self.waiting[batch.partition] if sent.handle.place()[1] is batch.delivery]

    def check(self, batch: Any) -> None:
        data = batch.seal(1, 0, 7)
        header = parse_header(data, 0, len(data))
        assert crc_is_valid(data, header)
        decoded = decode_records(data, header)
        records = self.records_of(batch)
        assert [record.value for record in decoded] == [sent.value for sent in records]
        assert [record.key for record in decoded] == [sent.value[:3] for sent in records]
        # Older records of the partition are with the sender already: none was passed over.
        waiting = self.waiting[batch.partition]
        older = waiting[: waiting.index(records[0])]
        with_the_sender = {id(sent) for each in self.batches for sent in self.records_of(each)}
        assert all(id(sent) in with_the_sender for sent in older)

    def settle(self, batch: Any, outcome: Any) -> None:
        records = self.records_of(batch)
        assert len(records) == batch.record_count
        for index, sent in enumerate(records):
            self.waiting[sent.partition].remove(sent)
            sent.outcome = outcome if isinstance(outcome, Exception) else outcome + index

    def teardown(self) -> None:
        self.batches += self.accumulator.abandon()
        while self.batches:
            batch = self.batches.pop()
            self.settle(batch, ValueError("the end"))
            self.accumulator.failed(batch, ValueError("the end"))
        for ticket in self.tickets:
            with ticket:
                pass
        assert self.accumulator.used_bytes == self.accumulator.pending_batches == 0
        for sent in self.all:
            ((error, metadata),) = sent.called_back
            if isinstance(sent.outcome, Exception):
                assert (str(error), metadata) == (str(sent.outcome), None)
                assert str(sent.handle.exception(0)) == str(sent.outcome)
            else:
                assert (error, metadata.offset) == (None, sent.outcome)
                assert sent.handle.result(0) == metadata


def test_the_accumulator_does_what_its_model_does(core: Core) -> None:
    class Machine(AccumulatorMachine):
        pass

    Machine.core = core
    run_state_machine_as_test(Machine, settings=settings(max_examples=100, stateful_step_count=60, deadline=None))
