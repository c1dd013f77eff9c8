"""Records wait here, in batches by partition, until the sender takes them: the heart of the producer, without I/O.

Any thread appends (`gathering.py`); one sender drains, puts back and settles, which is this half. There is no clock
here: `now_ms` is passed in, and `clock_ms` is asked only when a batch begins; both are of the same clock, which need
not be the records'.

The sender's turn: `ready(now_ms)` names the partitions, `drain` takes the oldest batch of one, `Batch.seal` makes it
bytes. In the end each batch meets `done`, `failed`, `put_back` or `split`; or `expired` or `abandon` before it was
drained, which take it out of its queue so that it can be failed.

Compiled by Cython (pure Python mode) and correct without it; `accumulator.pxd` is its C side.
"""
# mypy: disallow-untyped-decorators=False

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from headwater.client.producer.gathering import AppendedRows, monotonic_ms, wake_all
from headwater.client.producer.memory import RoomTicket

try:
    import cython
except ImportError:
    from headwater.protocol import without_cython as cython

if TYPE_CHECKING or not cython.compiled:
    from headwater.client.producer.batch_building import Batch
    from headwater.client.producer.gathering import Gathering
    from headwater.client.producer.handles import Delivery
    from headwater.client.producer.queues import PartitionQueue
else:
    from cython.cimports.headwater.client.producer.batch_building import Batch
    from cython.cimports.headwater.client.producer.gathering import Gathering
    from cython.cimports.headwater.client.producer.handles import Delivery
    from cython.cimports.headwater.client.producer.queues import PartitionQueue

__all__ = ["Accumulator", "AppendedRows", "monotonic_ms"]

_FOR_EVER_MS = cython.declare(cython.longlong, 1 << 62)
_JITTER = 0.2


class Accumulator(Gathering):
    """Everything that was sent and is not settled. Its C attributes are declared in `accumulator.pxd`."""

    def __init__(
        self,
        *,
        batch_size: int,
        linger_ms: int,
        buffer_memory: int,
        compression: int,
        compression_level: int | None,
        wake: Callable[[], None],
        max_request_size: int = 1 << 20,
        retry_backoff_ms: int = 100,
        retry_backoff_max_ms: int = 1000,
        clock_ms: Callable[[], int] = monotonic_ms,
        chance: Callable[[], float] = random.random,
    ) -> None:
        super().__init__(
            batch_size=batch_size,
            buffer_memory=buffer_memory,
            compression=compression,
            compression_level=compression_level,
            max_request_size=max_request_size,
            wake=wake,
            clock_ms=clock_ms,
        )
        self.linger_ms = linger_ms
        self.flushes: int = 0
        self.chance = chance
        self._retry_backoff_ms = retry_backoff_ms
        self._retry_backoff_max_ms = retry_backoff_max_ms

    def ready(self, now_ms: int) -> list[PartitionQueue]:
        """The partitions with a batch to send, those first that were not drained for longest.

        A batch is ready when it is full, has lingered, or nothing may wait (flush, close, memory is short); its
        partition must not be muted, nor the batch be backing off.
        """
        found: list[PartitionQueue] = []
        with self.lock:
            self.woken = False
            hurry = self._hurry()
            for queue in self._waiting:
                if not queue.muted and self._ready_at_ms(queue, now_ms, hurry) <= now_ms:
                    found.append(queue)  # noqa: PERF401 - a list made under the lock might run a finalizer
        return found

    def next_ready_ms(self, now_ms: int) -> int | None:
        """When the next partition that is not muted will be ready, at the earliest now; None if there is none."""
        earliest_ms: int | None = None
        with self.lock:
            hurry = self._hurry()
            for queue in self._waiting:
                if not queue.muted:
                    ready_at_ms = self._ready_at_ms(queue, now_ms, hurry)
                    if earliest_ms is None or ready_at_ms < earliest_ms:
                        earliest_ms = ready_at_ms
        return earliest_ms

    def _hurry(self) -> bool:
        return self.closed or self.flushes > 0 or bool(self.memory.line)

    def _ready_at_ms(self, queue: PartitionQueue, now_ms: int, hurry: bool) -> int:
        oldest = queue.batches[0]
        if oldest.retry_at_ms >= 0:
            return max(oldest.retry_at_ms, now_ms)
        if hurry or queue.open is not oldest or oldest.writer.at >= self.batch_limit_bytes:
            return now_ms
        return max(oldest.created_ms + self.linger_ms, now_ms)

    def drain(self, queue: PartitionQueue, now_ms: int) -> Batch | None:
        """Takes the oldest batch of a partition, whether it is ready or not; None if it has none or is backing off."""
        with self.lock:
            if not queue.batches or queue.batches[0].retry_at_ms > now_ms:
                return None
            batch = queue.batches.popleft()
            if queue.open is batch:
                queue.open = None
            del self._waiting[queue]
            if queue.batches:
                self._waiting[queue] = None
            batch.drained_ms = now_ms
            return batch

    def put_back(self, batch: Batch, now_ms: int, backoff_ms: int | None = None) -> None:
        """Back to its place at the front of its queue, to be drained again after a pause that grows with each attempt.

        A `backoff_ms` of 0 is for a batch that has a new leader to go to.
        """
        batch.attempts += 1
        pause_ms = self._backoff_ms(batch.attempts) if backoff_ms is None else backoff_ms
        batch.retry_at_ms = now_ms + pause_ms
        with self.lock:
            self._insert(batch)

    def _backoff_ms(self, attempts: int) -> int:
        grown_ms = min(self._retry_backoff_ms * 2 ** min(attempts - 1, 30), self._retry_backoff_max_ms)
        return int(grown_ms * (1 + _JITTER * (2 * self.chance() - 1)))

    def _insert(self, batch: Batch) -> None:
        """Where the order of the records has it. The lock is held."""
        queue = batch.queue
        place = 0
        for queued in queue.batches:
            if queued.order > batch.order:
                break
            place += 1
        queue.batches.insert(place, batch)
        self._waiting[queue] = None

    def split(self, batch: Batch) -> list[Batch]:
        """Halves a drained batch that the broker finds too large and queues the halves in its place.

        They are ready at once and go on under the sequence numbers of the batch. Empty for a batch of one record, which
        is for the caller to fail.
        """
        parts = batch.halves()
        if not parts:
            return parts
        granted: list[RoomTicket] = []
        with self.lock:
            # Their headers may make the parts larger than the whole: by so little the bound is passed.
            self.memory.used_bytes += parts[0].capacity_bytes + parts[1].capacity_bytes - batch.capacity_bytes
            del self._incomplete[batch]
            for part in parts:
                self._incomplete[part] = None
                self._insert(part)
            self.memory.grant(granted)
        batch.release()
        wake_all(granted)
        return parts

    def expired(self, now_ms: int, delivery_timeout_ms: int) -> list[Batch]:
        """Takes out the queued batches that are older than that, for the caller to fail."""
        return self._take_out(now_ms - delivery_timeout_ms)

    def next_expiry_ms(self, delivery_timeout_ms: int) -> int:
        """When the next of the queued batches will be older than that; in a far future if there is none."""
        earliest_ms: int = _FOR_EVER_MS
        with self.lock:
            for queue in self._waiting:
                earliest_ms = min(earliest_ms, queue.batches[0].created_ms)
        return earliest_ms + delivery_timeout_ms

    def abandon(self) -> list[Batch]:
        """Takes out every queued batch, for the caller to fail."""
        return self._take_out(_FOR_EVER_MS)

    def _take_out(self, born_until_ms: cython.longlong) -> list[Batch]:
        """The oldest batches of each queue that were made until then."""
        taken: list[Batch] = []
        emptied: list[PartitionQueue] = []
        with self.lock:
            for queue in self._waiting:
                while queue.batches and queue.batches[0].created_ms <= born_until_ms:
                    taken.append(queue.batches.popleft())
                    if not queue.batches:
                        emptied.append(queue)
            for queue in emptied:
                del self._waiting[queue]
                queue.close()
        return taken

    def done(self, batch: Batch, base_offset: int, append_time_ms: int = -1) -> None:
        """The broker has the batch at this offset (-1: it was asked for no answer). `append_time_ms` is the broker's
        time where that is the topic's rule, else -1."""
        self._free(batch)
        batch.delivery.complete(base_offset, append_time_ms)

    def failed(self, batch: Batch, error: Exception, record_errors: Mapping[int, Exception] | None = None) -> None:
        """The batch will not be written. Records may have errors of their own, by their index in the batch."""
        self._free(batch)
        batch.delivery.fail(error, record_errors)

    def _free(self, batch: Batch) -> None:
        del self._incomplete[batch]
        self._give_back(batch.capacity_bytes)
        batch.release()

    def flush_begin(self) -> list[Delivery]:
        """From now on nothing lingers, until `flush_end`. What is to be waited for: all that is not settled yet."""
        with self.lock:
            self.flushes += 1
        self._awaken()
        return [batch.delivery for batch in list(self._incomplete)]

    def flush_end(self) -> None:
        """Ends what `flush_begin` began."""
        with self.lock:
            self.flushes -= 1

    def close(self) -> None:
        """Takes no more records; what is here is ready at once."""
        with self.lock:
            self.closed = True
        self._awaken()

    @property
    def pending_batches(self) -> int:
        """Batches that are not settled, queued or with the sender."""
        return len(self._incomplete)

    @property
    def pending_records(self) -> int:
        """Records that are not settled."""
        return sum(batch.writer.count for batch in list(self._incomplete))

    @property
    def used_bytes(self) -> int:
        """Memory that is taken by batches, or kept for those who stood in line for it."""
        return self.memory.used_bytes
