"""Many records at once into a producer, and an account of what became of them.

What is on its way is bounded here, by bytes: the producer's own memory has to be large enough for the largest record.
"""

import time
from array import array
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import attrgetter
from typing import Final

from headwater.cli.line_records import LineRecord
from headwater.client.producer.accumulator import AppendedRows
from headwater.client.producer.handles import DONE, PENDING, SendHandle
from headwater.client.producer.producer import Producer
from headwater.protocol.record_writing import BinaryRows, RecordRows

MOST_BYTES_ON_THEIR_WAY: Final = 16 * 1024 * 1024
LARGEST_BYTES: Final = 2**31 - 1
"""What `max.request.size` and `buffer.memory` are set to: how large a record may be is for the broker to say."""

_delivery_of: Final = attrgetter("delivery")


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledged:
    """What a partition has taken so far."""

    records: int
    first_offset: int
    last_offset: int


class BulkSender:
    """Sends to one topic, which the producer must know. Errors of records are raised by a later call."""

    def __init__(self, producer: Producer, topic: str) -> None:
        self.acknowledged: dict[int, Acknowledged] = {}
        self.acknowledged_records = 0
        self._producer = producer
        self._accumulator = producer.accumulator
        self._topic = topic
        self._queue = producer.accumulator.topic(topic)
        self._on_their_way: deque[AppendedRows] = deque()

    async def send_values(self, partition: int, values: Sequence[bytes]) -> None:
        """Records that are nothing but values, at a fraction of what `send` costs for each."""
        offsets = array("q", accumulate(map(len, values), initial=0))
        column = BinaryRows(b"".join(values), offsets, count=len(values), wide=True)
        rows = RecordRows(None, column, timestamp_ms=time.time_ns() // 1_000_000)
        sent = 0
        while sent < len(values):
            parts, sent = self._accumulator.append_rows(self._queue, partition, rows, None, sent, len(values))
            self._on_their_way.extend(parts)
            # Where no memory was free there is some as soon as anything is settled.
            await self.settle(MOST_BYTES_ON_THEIR_WAY if parts else self._accumulator.used_bytes - 1)

    async def send(self, records: Iterable[LineRecord], partition: int | None = None) -> None:
        """Records of any kind, to their keys' partitions unless one is given."""
        handles: list[SendHandle] = []
        try:
            for key, value, headers in records:
                # Not a comprehension: what was sent counts even if the next one fails.
                handles.append(
                    await self._producer.send(self._topic, value, key=key, partition=partition, headers=headers)
                )
        finally:
            self._on_their_way.extend(_by_batch(handles))
        await self.settle(MOST_BYTES_ON_THEIR_WAY)

    async def flush(self) -> None:
        """Waits until all is acknowledged or refused; raises the first refusal. It can be cut short and repeated."""
        try:
            await self._producer.flush()
        finally:
            failure = self._count_settled()
        if failure is not None:
            raise failure

    async def settle(self, most_bytes: int = 0) -> None:
        """Counts what is acknowledged, and waits until no more than so much is on its way; raises what was refused."""
        waiting = self._on_their_way
        while waiting:
            delivery = waiting[0].handle.delivery
            if delivery.state == PENDING and self._accumulator.used_bytes <= most_bytes:
                return
            await delivery.settled()
            self._count(waiting.popleft())

    def _count_settled(self) -> Exception | None:
        """Counts what is settled, also behind what is not; gives the first refusal."""
        failure: Exception | None = None
        for _ in range(len(self._on_their_way)):
            rows = self._on_their_way.popleft()
            if not rows.handle.delivery.wait(0):
                self._on_their_way.append(rows)
                continue
            try:
                self._count(rows)
            except Exception as error:
                failure = failure or error
        return failure

    def _count(self, rows: AppendedRows) -> None:
        handle, count = rows
        delivery = handle.delivery
        if delivery.state == DONE:
            self._acknowledge(delivery.partition, delivery.base_offset + handle.index, count)
            return
        # Split into smaller batches, or refused: here each record has a fate of its own.
        errors: list[Exception] = []
        for index in range(handle.index, handle.index + count):
            record = SendHandle(delivery, index, handle.timestamp_ms)
            error = record.exception(0)
            if error is None:
                self._acknowledge(delivery.partition, record.result(0).offset, 1)
            else:
                errors.append(error)
        if errors:
            # Those that only went down with others share one error; what is to blame has one of its own.
            shared = Counter(map(id, errors))
            raise min(errors, key=lambda error: shared[id(error)])

    def _acknowledge(self, partition: int, first_offset: int, count: int) -> None:
        self.acknowledged_records += count
        before = self.acknowledged.get(partition)
        self.acknowledged[partition] = Acknowledged(
            records=count + (before.records if before else 0),
            first_offset=before.first_offset if before else first_offset,
            last_offset=first_offset + count - 1,
        )


def _by_batch(handles: Sequence[SendHandle]) -> list[AppendedRows]:
    """Handles of records that were sent one after the other, counted by the batches that they went into."""
    counts = Counter(map(_delivery_of, handles))
    firsts = dict(zip(map(_delivery_of, reversed(handles)), reversed(handles), strict=True))
    return [AppendedRows(firsts[delivery], count) for delivery, count in counts.items()]
