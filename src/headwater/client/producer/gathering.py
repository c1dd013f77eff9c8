"""The users' half of the accumulator: how a record, or many rows, come into their partition's batch.

Any thread appends. One lock guards all of it and is never held while anybody else's code runs. Memory is bounded: see
`memory.py`. The sender's half is `accumulator.py`.

Compiled by Cython (pure Python mode) and correct without it; `gathering.pxd` is its C side. Finalizers and signal
handlers may send: compiled, nothing is done under the lock in which one could run; uncompiled, one that comes at the
wrong moment gets an error.
"""
# mypy: disallow-untyped-decorators=False

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from threading import RLock
from typing import TYPE_CHECKING, NamedTuple

from headwater.client.errors import ClosedError, RecordTooLargeError
from headwater.client.producer.memory import RoomTicket
from headwater.protocol.record_writing import encoded_headers

try:
    import cython
except ImportError:
    from headwater.protocol import without_cython as cython

if TYPE_CHECKING or not cython.compiled:
    from headwater.client.producer.batch_building import Batch
    from headwater.client.producer.handles import Delivery, SendHandle
    from headwater.client.producer.memory import BufferMemory
    from headwater.client.producer.queues import PartitionQueue, TopicQueue
    from headwater.protocol.record_writing import RecordRows, RecordWriter
else:
    from cython.cimports.headwater.client.producer.batch_building import Batch
    from cython.cimports.headwater.client.producer.handles import Delivery, SendHandle
    from cython.cimports.headwater.client.producer.memory import BufferMemory
    from cython.cimports.headwater.client.producer.queues import PartitionQueue, TopicQueue
    from cython.cimports.headwater.protocol.record_writing import RecordRows, RecordWriter

if TYPE_CHECKING:
    from headwater.client.producer.handles import OnDelivery
    from headwater.protocol.record_writing import EncodedHeaders

_NO_LIMIT = cython.declare(cython.longlong, 1 << 62)
_FIRST_BUFFER_BYTES = cython.declare(cython.longlong, 16 << 10)
# Each batch has as many places in the order of its partition as it can have records, so that its parts find theirs.
_ORDERS_PER_BATCH = cython.declare(cython.longlong, 1 << 31)


# Tells the size of a first record.
_EMPTY: RecordWriter = RecordWriter(0)


def monotonic_ms() -> int:
    """The clock of batches: it goes on evenly, whatever is done to the time of day."""
    return time.monotonic_ns() // 1_000_000


class _PlainLock:
    """Of the uncompiled form: a lock that tells a thread when it is its own hindrance, instead of blocking it."""

    def __init__(self) -> None:
        self._lock = RLock()

    def __enter__(self) -> None:
        if self._lock._is_owned():  # type: ignore[attr-defined]
            raise RuntimeError("a finalizer or signal handler used the producer while its own thread was sending")
        self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()


class AppendedRows(NamedTuple):
    """Rows that went into one batch together: the handle of the first of them, and how many they are.

    `handle.delivery` is the whole batch's: wait for that one to know that all of them are settled.
    """

    handle: SendHandle
    row_count: int


class Gathering:
    """Batches that take records, and the memory for them. Its C attributes are declared in `gathering.pxd`.

    `wake()` is called, from any thread, when the sender should look; between two looks at most once.
    """

    def __init__(
        self,
        *,
        batch_size: int,
        buffer_memory: int,
        compression: int,
        compression_level: int | None,
        max_request_size: int,
        wake: Callable[[], None],
        clock_ms: Callable[[], int],
    ) -> None:
        self.compression = compression
        self.compression_level = compression_level
        self.memory = BufferMemory(buffer_memory)
        self.max_request_size: int = max_request_size
        # A record that is larger has a batch of its own.
        self.batch_limit_bytes: int = min(max(batch_size, 1), max_request_size)
        self.closed: bool = False
        self.woken: bool = False
        if not cython.compiled:
            self.lock = _PlainLock()
        self._wake = wake
        self._clock_ms = clock_ms
        self._topics: dict[str, TopicQueue] = {}
        # Queues that have batches; the one that was drained last comes last.
        self._waiting: dict[PartitionQueue, None] = {}
        # Batches that are not settled, wherever they are.
        self._incomplete: dict[Batch, None] = {}

    def topic(self, name: str) -> TopicQueue:
        """The queues of a topic: whoever appends keeps it."""
        found: TopicQueue | None = self._topics.get(name)
        if found is None:
            found = self._topics.setdefault(name, TopicQueue(name, self.compression, self.compression_level))
        return found

    def append(
        self,
        queue: TopicQueue,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]] | None,
        timestamp_ms: int,
        on_delivery: OnDelivery | None = None,
        ticket: RoomTicket | None = None,
    ) -> SendHandle | None:
        """Puts a record into its partition's batch. None: no memory is free; `line_up`, wait, and come again."""
        names = encoded_headers(headers) if headers else None
        target = queue.partition_queue(partition)
        return self.append_to(target, key, value, names, timestamp_ms, on_delivery, ticket)

    def append_to(
        self,
        queue: PartitionQueue,
        key: bytes | None,
        value: bytes | None,
        headers: EncodedHeaders | None,
        timestamp_ms: cython.longlong,
        on_delivery: OnDelivery | None,
        ticket: RoomTicket | None,
    ) -> SendHandle | None:
        """The same for a partition's own queue and encoded headers: the fast way in."""
        spare: Batch | None
        handle: SendHandle | None = self._add(queue, key, value, headers, timestamp_ms, on_delivery, None)
        if handle is None:
            spare = self._spare(queue, self.room_needed(queue.topic, key, value, headers), ticket)
            if spare is not None:
                handle = self._add(queue, key, value, headers, timestamp_ms, on_delivery, spare)
                self._give_up_unused(spare, None if handle is None else handle.delivery)
            if self.closed and handle is None:
                raise _closed(queue)
            self._awaken()
        return handle

    def _add(
        self,
        queue: PartitionQueue,
        key: bytes | None,
        value: bytes | None,
        headers: EncodedHeaders | None,
        timestamp_ms: cython.longlong,
        on_delivery: OnDelivery | None,
        spare: Batch | None,
    ) -> SendHandle | None:
        """Adds a record to the open batch, or to the spare one where that has no room; None if there is no spare one.

        Nothing that the garbage collector looks after is made under the lock: it might run somebody's finalizer, and
        that might send.
        """
        batch: Batch | None
        handle: SendHandle
        body_bytes: cython.longlong = 0
        with self.lock:
            if self.closed:
                return None
            batch = queue.open
            if batch is not None:
                body_bytes = batch.writer.measure(key, value, headers, timestamp_ms)
                if not self._has_room(batch, batch.writer.end_after(body_bytes)):
                    batch = None
            if batch is None:
                if spare is None:
                    return None
                self._install(queue, spare)
                batch = spare
                body_bytes = batch.writer.measure(key, value, headers, timestamp_ms)
            handle = SendHandle.__new__(SendHandle)
            handle.delivery = batch.delivery
            handle.index = batch.writer.count
            handle.timestamp_ms = timestamp_ms
            batch.writer.write(body_bytes, key, value, headers, timestamp_ms)
            if on_delivery is not None:
                batch.delivery.on_delivery.append(handle)
                batch.delivery.on_delivery.append(on_delivery)
            return handle

    def append_rows(
        self,
        queue: TopicQueue,
        partition: int,
        rows: RecordRows,
        picks: memoryview | None,
        start: int,
        stop: int,
        ticket: RoomTicket | None = None,
    ) -> tuple[list[AppendedRows], int]:
        """Puts rows of columns into batches: those from `start` to `stop`, or the rows `picks[start:stop]`.

        What was put into which batch, and where it stopped: before `stop` when no memory is free (`line_up` with
        `room_needed_for`, wait, and go on from there) or when the next row is too large, which is an error if it comes
        first.
        """
        if picks is not None and (picks.itemsize != 8 or not picks.c_contiguous):
            raise ValueError("rows are picked by 64-bit numbers")
        if not 0 <= start <= stop <= (rows.count if picks is None else len(picks)):
            raise IndexError(f"there are no rows {start} to {stop}")
        target = queue.partition_queue(partition)
        appended: list[AppendedRows] = []
        while start < stop:
            try:
                part = self._append_some(target, rows, picks, start, stop, ticket)
            except RecordTooLargeError:
                if not appended:
                    raise
                break
            if part is None:
                break
            appended.append(part)
            start += part.row_count
            # What it was good for is used.
            ticket = None
        if appended:
            self._awaken()
        return appended, start

    def room_needed_for(self, rows: RecordRows, picks: memoryview | None, at: int) -> int:
        """The bytes of a batch that begins with this row."""
        end: int = rows.measure(_EMPTY, picks, at, at + 1, _NO_LIMIT)
        return self._first_capacity(end)

    def _append_some(
        self,
        queue: PartitionQueue,
        rows: RecordRows,
        picks: memoryview | None,
        start: int,
        stop: int,
        ticket: RoomTicket | None,
    ) -> AppendedRows | None:
        """As many rows as go into one batch; None if there is no memory for any."""
        part = self._add_rows(queue, rows, picks, start, stop, None)
        if part is None:
            spare = self._spare(queue, self._capacity_for(queue, rows, picks, start, stop, ticket), ticket)
            if spare is not None:
                part = self._add_rows(queue, rows, picks, start, stop, spare)
                self._give_up_unused(spare, None if part is None else part.handle.delivery)
            if self.closed and part is None:
                raise _closed(queue)
        return part

    def _add_rows(
        self,
        queue: PartitionQueue,
        rows: RecordRows,
        picks: memoryview | None,
        start: int,
        stop: int,
        spare: Batch | None,
    ) -> AppendedRows | None:
        """What `_add` does for one record."""
        batch: Batch | None
        with self.lock:
            if self.closed:
                return None
            batch = queue.open
            if batch is not None and not self._makes_room(batch, rows, picks, start, stop):
                batch = None
            if batch is None:
                if spare is None:
                    return None
                self._install(queue, spare)
                batch = spare
                rows.measure(batch.writer, picks, start, stop, batch.capacity_bytes)
            index = batch.writer.count
            row_count = rows.fitting
            rows.write(batch.writer, picks, start, start + row_count)
        return AppendedRows(SendHandle(batch.delivery, index, rows.time_ms(picks, start)), row_count)

    def _makes_room(self, batch: Batch, rows: RecordRows, picks: memoryview | None, start: int, stop: int) -> bool:
        """Whether some rows go into the batch, `rows.fitting` of them. The lock is held."""
        end = rows.measure(batch.writer, picks, start, stop, self.batch_limit_bytes)
        if end > batch.capacity_bytes and not self._has_room(batch, end):
            rows.measure(batch.writer, picks, start, stop, batch.capacity_bytes)
        return rows.fitting > 0

    def _capacity_for(
        self,
        queue: PartitionQueue,
        rows: RecordRows,
        picks: memoryview | None,
        start: int,
        stop: int,
        ticket: RoomTicket | None,
    ) -> int:
        """The bytes of a batch that begins with these rows and has as many of them as may be."""
        limit: int = self.batch_limit_bytes
        if ticket is not None and ticket.granted:
            limit = min(limit, ticket.size_bytes)
        end: int = rows.measure(_EMPTY, picks, start, stop, limit)
        if rows.fitting == 0:
            end = rows.measure(_EMPTY, picks, start, start + 1, _NO_LIMIT)
            self._check_size(queue.topic, end)
        return end

    def fits(
        self,
        queue: PartitionQueue,
        key: bytes | None,
        value: bytes | None,
        headers: EncodedHeaders | None,
        timestamp_ms: cython.longlong,
    ) -> cython.bint:
        """Whether a record goes into the open batch of a partition; if not, that batch is closed, and ready."""
        batch: Batch | None
        with self.lock:
            batch = queue.open
            if batch is None:
                return False
            if (
                batch.writer.end_after(batch.writer.measure(key, value, headers, timestamp_ms))
                <= self.batch_limit_bytes
            ):
                return True
            queue.open = None
        self._awaken()
        return False

    def _has_room(self, batch: Batch, end: cython.longlong) -> cython.bint:
        """Whether the batch may reach so far, its buffer made larger if that is needed. The lock is held."""
        capacity: cython.longlong
        if end <= batch.capacity_bytes:
            return True
        if end > self.batch_limit_bytes:
            return False
        capacity = min(self.batch_limit_bytes, max(end, 2 * batch.capacity_bytes))
        if not self.memory.take(capacity - batch.capacity_bytes):
            return False
        batch.writer.resize(capacity)
        batch.capacity_bytes = capacity
        return True

    def _spare(self, queue: PartitionQueue, capacity: cython.longlong, ticket: RoomTicket | None) -> Batch | None:
        """A batch of this capacity that is in no queue yet, or None if there is no memory for it."""
        with self.lock:
            if ticket is not None and ticket.granted and ticket.size_bytes >= capacity:
                ticket.size_bytes -= capacity
            elif not self.memory.take(capacity):
                return None
        return Batch(queue, capacity, self._clock_ms())

    def _install(self, queue: PartitionQueue, batch: Batch) -> None:
        """Makes a spare batch the open one of its queue. The lock is held."""
        batch.order = queue.next_order
        queue.next_order += _ORDERS_PER_BATCH
        queue.batches.append(batch)
        queue.open = batch
        self._waiting[queue] = None
        self._incomplete[batch] = None

    def _give_up_unused(self, spare: Batch, used: Delivery | None) -> None:
        """Somebody else may have opened a batch meanwhile."""
        if used is not spare.delivery:
            self._give_back(spare.capacity_bytes)

    def room_needed(self, topic: str, key: bytes | None, value: bytes | None, headers: EncodedHeaders | None) -> int:
        """The bytes of a batch that begins with this record; RecordTooLargeError if there can be none."""
        end: int = _EMPTY.end_after(_EMPTY.measure(key, value, headers, 0))
        self._check_size(topic, end)
        return self._first_capacity(end)

    def _first_capacity(self, end: int) -> int:
        """What a batch begins with: room for its first record, and for more of them."""
        least: int = min(self.batch_limit_bytes, _FIRST_BUFFER_BYTES)
        return max(end, least)

    def _check_size(self, topic: str, end: int) -> None:
        if end > self.max_request_size:
            raise RecordTooLargeError(
                f"a record for topic {topic} needs {end} bytes; max.request.size is {self.max_request_size}"
            )
        if end > self.memory.total_bytes:
            raise RecordTooLargeError(
                f"a record for topic {topic} needs a buffer of {end} bytes; buffer.memory is {self.memory.total_bytes}"
            )

    def line_up(self, size_bytes: int) -> RoomTicket:
        """A place in the line for so much memory (`room_needed` tells). While somebody waits, everything is ready."""
        ticket = RoomTicket(size_bytes, self._leave_line)
        granted: list[RoomTicket] = []
        with self.lock:
            self.memory.line.append(ticket)
            self.memory.grant(granted)
        wake_all(granted)
        if not ticket.granted:
            self._awaken()
        return ticket

    def _leave_line(self, ticket: RoomTicket) -> None:
        granted: list[RoomTicket] = []
        with self.lock:
            self.memory.leave_line(ticket)
            self.memory.grant(granted)
        wake_all(granted)

    def _give_back(self, size_bytes: int) -> None:
        granted: list[RoomTicket] = []
        with self.lock:
            self.memory.used_bytes -= size_bytes
            self.memory.grant(granted)
        wake_all(granted)

    def _awaken(self) -> None:
        if not self.woken:
            self.woken = True
            self._wake()


def wake_all(granted: list[RoomTicket]) -> None:
    """Tells those who were given memory."""
    for ticket in granted:
        ticket.wake()


def _closed(queue: PartitionQueue) -> ClosedError:
    return ClosedError(f"the producer is closed: nothing more can be sent to topic {queue.topic}")
