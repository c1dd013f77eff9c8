"""`send_arrow`: the rows of an Arrow table as records, encoded from its buffers without a Python object for each.

The only module of the producer that needs pyarrow, an extra of its own: `pip install headwater[arrow]`. What a row is
and where it goes is decided here; batches are the accumulator's business.
"""

from __future__ import annotations

import asyncio
import time
from array import array
from collections.abc import Awaitable, Callable, Generator, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from headwater.client.errors import RecordTooLargeError
from headwater.client.producer.accumulator import Accumulator, AppendedRows
from headwater.client.producer.handles import PENDING, SPLIT, Delivery, SendHandle
from headwater.client.producer.partitioners import partition_for_key, partitions_for_keys, rows_by_partition
from headwater.client.producer.sending import UnplacedRecord
from headwater.protocol.record_writing import BinaryRows, RecordRows, as_bytes, encoded_headers

try:
    import pyarrow as pa
    import pyarrow.compute as pc
except ImportError as error:
    raise ImportError("Arrow tables need pyarrow, which is not installed: pip install headwater[arrow]") from error

if TYPE_CHECKING:
    from headwater.client.producer.memory import RoomTicket

_ROWS_AT_ONCE: Final = 16_384
"""Rows that are encoded before others get their turn on the event loop, and before the partition changes."""

WaitForRoom = Callable[["RoomTicket"], Awaitable[None]]
"""Waits for a ticket's turn; raises when that takes too long."""


@dataclass(frozen=True, slots=True)
class SentRows:
    """Rows that one partition has taken. Others may have written between them: offsets need not be without gaps."""

    count: int
    first_offset: int
    last_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnNames:
    """Which column of a table is what."""

    key: str | None = None
    value: str | None = None
    partition_by: str | None = None
    timestamp: str | None = None
    headers: str | None = None


class ArrowHandle:
    """The rows of one `send_arrow` on their way: `result()` blocks, `await` waits on the running event loop."""

    def __init__(self) -> None:
        self._parts: list[AppendedRows] = []

    @property
    def count(self) -> int:
        """How many rows were sent."""
        return sum(count for _, count in self._parts)

    def done(self) -> bool:
        """Whether every row was written or has failed."""
        return all(_is_settled(part.handle.delivery) for part in self._parts)

    def result(self, timeout_s: float | None = None) -> dict[int, SentRows]:
        """The offsets and counts by partition; blocks until all are known and raises the first error among them.

        TimeoutError after `timeout_s` says nothing about the rows: they are still on their way.
        """
        ends_at = None if timeout_s is None else time.monotonic() + timeout_s
        for part in self._parts:
            left_s = None if ends_at is None else max(ends_at - time.monotonic(), 0.0)
            if not part.handle.delivery.wait(left_s):
                raise TimeoutError(f"rows are still on their way after {timeout_s} s")
        return self._outcome()

    def exception(self, timeout_s: float | None = None) -> Exception | None:
        """The first error among the rows, None if there is none; blocks until that is known."""
        try:
            self.result(timeout_s)
        except TimeoutError:
            raise
        except Exception as error:
            return error
        return None

    def __await__(self) -> Generator[Any, None, dict[int, SentRows]]:
        return self._settled().__await__()

    def add(self, parts: list[AppendedRows]) -> None:
        """Rows that went into batches."""
        self._parts += parts

    async def _settled(self) -> dict[int, SentRows]:
        for part in self._parts:
            await part.handle.delivery.settled()
        return self._outcome()

    def _outcome(self) -> dict[int, SentRows]:
        found: dict[int, SentRows] = {}
        for handle, count in self._parts:
            error = _error_in(handle.delivery, handle.index, count)
            if error is not None:
                raise error.with_traceback(None)
            last = SendHandle(handle.delivery, handle.index + count - 1, handle.timestamp_ms).result(0)
            before = found.get(last.partition)
            found[last.partition] = SentRows(
                count + (before.count if before else 0),
                before.first_offset if before else handle.result(0).offset,
                last.offset,
            )
        return dict(sorted(found.items()))


class TableSender:
    """Sends tables to one topic of so many partitions."""

    def __init__(self, accumulator: Accumulator, topic: str, partitions: int, wait_for_room: WaitForRoom) -> None:
        self._accumulator = accumulator
        self._topic = topic
        self._queue = accumulator.topic(topic)
        self._partitions = partitions
        self._wait_for_room = wait_for_room
        self._turn = time.time_ns() % partitions

    async def send(
        self, table: pa.Table | pa.RecordBatch, names: ColumnNames, handle: ArrowHandle, *, ignore_keys: bool
    ) -> None:
        """Puts every row into a batch of its partition, and tells `handle` of each batch."""
        for name in (names.key, names.value, names.partition_by, names.timestamp):
            if name is not None and name not in table.schema.names:
                raise KeyError(f"the table has no column {name!r}: it has {', '.join(table.schema.names)}")
        if names.key is None and names.value is None:
            raise ValueError("send_arrow needs to know which column is the value, the key, or both")
        for batch in _slices(table):
            rows = _record_rows(batch, names)
            chosen = self._chosen(batch, names, rows.keys if not ignore_keys else None)
            if chosen is None:
                await self._send_in_turn(rows, handle)
                continue
            for partition, picks in enumerate(rows_by_partition(chosen, self._partitions)):
                await self._append(partition, rows, picks, 0, len(picks), handle)

    def _chosen(self, batch: pa.RecordBatch, names: ColumnNames, keys: BinaryRows | None) -> array[int] | None:
        """The partition of each row; None where nothing decides it."""
        if names.partition_by is not None:
            column = batch.column(names.partition_by)
            if pa.types.is_integer(column.type):
                return _numbers(column, names.partition_by, self._partitions)
            keys = _binary_rows(column, names.partition_by)
        if keys is None:
            return None
        self._turn = (self._turn + 1) % self._partitions
        return partitions_for_keys(keys, self._partitions, self._turn)

    async def _send_in_turn(self, rows: RecordRows, handle: ArrowHandle) -> None:
        """Rows that may go anywhere go to all partitions, in pieces."""
        piece = -(-rows.count // self._partitions)
        for start in range(0, rows.count, piece):
            self._turn = (self._turn + 1) % self._partitions
            await self._append(self._turn, rows, None, start, min(start + piece, rows.count), handle)

    async def _append(
        self, partition: int, rows: RecordRows, picks: memoryview | None, start: int, stop: int, handle: ArrowHandle
    ) -> None:
        accumulator = self._accumulator
        while start < stop:
            try:
                parts, start = accumulator.append_rows(self._queue, partition, rows, picks, start, stop)
                handle.add(parts)
                if start < stop and not parts:
                    with accumulator.line_up(accumulator.room_needed_for(rows, picks, start)) as ticket:
                        await self._wait_for_room(ticket)
                        parts, start = accumulator.append_rows(self._queue, partition, rows, picks, start, stop, ticket)
                        handle.add(parts)
            except RecordTooLargeError as error:
                raise RecordTooLargeError(f"{error}; {handle.count} rows of the table are sent already") from None
        await asyncio.sleep(0)


def rows_with_headers(
    table: pa.Table | pa.RecordBatch, names: ColumnNames, topic: str, partitions: int
) -> Iterator[UnplacedRecord]:
    """Each row as a record, for tables that have headers."""
    now_ms = time.time_ns() // 1_000_000
    for batch in _slices(table):
        nothing = [None] * batch.num_rows
        named = (names.key, names.value, names.partition_by)
        columns = [nothing if name is None else batch.column(name).to_pylist() for name in named]
        times = nothing if names.timestamp is None else _times(batch.column(names.timestamp)).to_pylist()
        listed = batch.column(names.headers).to_pylist()
        for key, value, chooser, time_ms, headers in zip(*columns, times, listed, strict=True):
            yield UnplacedRecord(
                topic,
                _content(key),
                _content(value),
                partition_for_key(_content(chooser) or b"", partitions)
                if isinstance(chooser, bytes | str)
                else chooser,
                now_ms if time_ms is None else time_ms,
                encoded_headers([(header["key"], header["value"]) for header in headers or ()]),
                None,
            )


def _content(given: Any) -> bytes | None:
    return given.encode() if isinstance(given, str) else as_bytes(given)


def _slices(table: pa.Table | pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The table in pieces of a size that does not hold up others for long; nothing is copied."""
    whole = pa.Table.from_batches([table]) if isinstance(table, pa.RecordBatch) else table
    return (batch for batch in whole.to_batches(max_chunksize=_ROWS_AT_ONCE) if batch.num_rows)


def _record_rows(batch: pa.RecordBatch, names: ColumnNames) -> RecordRows:
    times = None if names.timestamp is None else _times(batch.column(names.timestamp))
    return RecordRows(
        None if names.key is None else _binary_rows(batch.column(names.key), names.key),
        None if names.value is None else _binary_rows(batch.column(names.value), names.value),
        timestamp_ms=time.time_ns() // 1_000_000,
        timestamps_ms=None if times is None else memoryview(times.buffers()[1])[times.offset * 8 :],
    )


def _binary_rows(column: pa.Array, name: str) -> BinaryRows:
    """A column of bytes or text by its buffers; other layouts of the same are cast, anything else is an error."""
    kinds = pa.types
    wide = kinds.is_large_binary(column.type) or kinds.is_large_string(column.type)
    if not wide and not kinds.is_binary(column.type) and not kinds.is_string(column.type):
        try:
            if kinds.is_dictionary(column.type):
                column = column.dictionary_decode()
            if not (kinds.is_binary(column.type) or kinds.is_string(column.type)):
                if not (_is_bytes_otherwise(column.type) or kinds.is_null(column.type)):
                    raise pa.ArrowInvalid
                column = column.cast(pa.binary())
        except pa.ArrowInvalid:
            raise TypeError(
                f"the column {name!r} is of type {column.type}; a record's key and value are binary or string: cast it"
            ) from None
    validity, offsets, data = column.buffers()
    return BinaryRows(
        data, offsets, validity if column.null_count else None, count=len(column), first=column.offset, wide=wide
    )


def _is_bytes_otherwise(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_fixed_size_binary(kind) or types.is_binary_view(kind) or types.is_string_view(kind))


def _numbers(column: pa.Array, name: str, partitions: int) -> array[int]:
    """A column of partition numbers, checked."""
    if column.null_count:
        raise ValueError(f"the column {name!r} has nulls: it names the partition of each row")
    bounds = pc.min_max(column).as_py()
    if bounds["min"] < 0 or bounds["max"] >= partitions:
        raise ValueError(
            f"the column {name!r} names partitions from {bounds['min']} to {bounds['max']} of {partitions}"
        )
    numbers = column.cast(pa.int32())
    return array("i", bytes(memoryview(numbers.buffers()[1])[numbers.offset * 4 : (numbers.offset + len(column)) * 4]))


def _times(column: pa.Array) -> pa.Array:
    """A column of timestamps, or of whole numbers, as milliseconds; now where it has none."""
    kind = column.type
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        column = column.cast(pa.timestamp("ms", getattr(kind, "tz", None)), safe=False)
    elif not pa.types.is_integer(kind):
        raise TypeError(f"timestamps are of type timestamp or whole milliseconds, not {kind}")
    return column.cast(pa.int64()).fill_null(time.time_ns() // 1_000_000)


def _is_settled(delivery: Delivery) -> bool:
    return delivery.state != PENDING and all(_is_settled(part) for _, part in delivery.parts)


def _error_in(delivery: Delivery, index: int, count: int) -> Exception | None:
    """The first error among the records `index` to `index + count`, wherever their batch was split to."""
    if delivery.state != SPLIT:
        return delivery.error
    ends = [first for first, _ in delivery.parts[1:]] + [index + count]
    for (first, part), end in zip(delivery.parts, ends, strict=True):
        low, high = max(index, first), min(index + count, max(end, first))
        if low < high:
            error = _error_in(part, low - first, high - low)
            if error is not None:
                return error
    return None
