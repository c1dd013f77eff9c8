"""What a fetch brought of one partition, handed out as records or as columns.

No I/O, and nothing is decoded before it is asked for. Compiled by Cython (pure Python mode) and correct without it;
what a stranger wrote is checked by `protocol.record_reading`.
"""
# mypy: disallow-untyped-decorators=False

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from headwater.client.answer_memory import AnswerMemory
from headwater.client.consumer.visibility import Visibility
from headwater.client.errors import RecordError
from headwater.protocol.batches import BatchHeader, CorruptBatchError, crc_is_valid, next_header, octets
from headwater.protocol.column_building import ColumnsBuilder
from headwater.protocol.record_columns import RecordColumns, as_columns
from headwater.protocol.record_reading import DECOMPRESSED_LIMIT_BYTES, RecordHeaders, decode_headers
from headwater.types import TopicPartition

try:
    import cython
except ImportError:
    from headwater.protocol import without_cython as cython

if cython.compiled:
    from cython.cimports.headwater.client.consumer.gc_tracking import PyObject_GC_Track, PyObject_GC_UnTrack
    from cython.cimports.headwater.protocol.record_reading import RecordReader, octets_at, open_batch
else:
    from headwater.protocol.record_reading import RecordReader, octets_at, open_batch

if TYPE_CHECKING:
    from typing_extensions import Buffer

Deserializer: TypeAlias = Callable[[bytes], Any]
"""Makes of the bytes of a key or a value what the user gets; nulls are not shown to it."""

COLUMNS_BYTES = 256 << 20
"""One `take_columns` ends after the batch that brings the records to this size, decompressed."""

_MOST_RECORDS = cython.declare(cython.longlong, 2**62)


class TimestampType(enum.IntEnum):
    """Whose clock gave a record its time: the producer's or the broker's."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


@cython.final
@cython.cclass
class _Origin:
    """What the records of a batch have in common: one reference instead of four."""

    topic: str
    partition: int
    leader_epoch: int | None
    timestamp_type: TimestampType

    def __init__(self, topic: str, partition: int, leader_epoch: int | None, timestamp_type: TimestampType) -> None:
        self.topic = topic
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.timestamp_type = timestamp_type


@cython.final
@cython.cclass
class Record:
    """A record as a consumer hands it out. It cannot be changed, and its headers are decoded when asked for.

    `key` and `value` are bytes or None, or what deserializers made of them. `leader_epoch` is None where unknown.
    """

    offset: int = cython.declare(cython.longlong, visibility="readonly")
    timestamp_ms: int = cython.declare(cython.longlong, visibility="readonly")
    key: Any = cython.declare(object, visibility="readonly")
    value: Any = cython.declare(object, visibility="readonly")
    _origin: _Origin
    # The tuple that it is for the user, or the bytes that it is made from.
    _headers: bytes | RecordHeaders

    def __init__(
        self,
        topic: str,
        partition: int,
        offset: int,
        timestamp_ms: int,
        timestamp_type: TimestampType = TimestampType.CREATE_TIME,
        key: Any = None,
        value: Any = None,
        headers: RecordHeaders = (),
        leader_epoch: int | None = None,
    ) -> None:
        self._origin = _Origin(topic, partition, leader_epoch, timestamp_type)
        self.offset = offset
        self.timestamp_ms = timestamp_ms
        self.key = key
        self.value = value
        self._headers = headers

    @property
    def topic(self) -> str:
        """The name of its topic."""
        return self._origin.topic

    @property
    def partition(self) -> int:
        """The partition that it was read from."""
        return self._origin.partition

    @property
    def timestamp_type(self) -> TimestampType:
        """Whose clock `timestamp_ms` is from."""
        return self._origin.timestamp_type

    @property
    def leader_epoch(self) -> int | None:
        """The epoch of the leader that wrote it."""
        return self._origin.leader_epoch

    @property
    def headers(self) -> RecordHeaders:
        """Names and contents, in the order that they were sent in."""
        if isinstance(self._headers, bytes):
            self._headers = decode_headers(self._headers)
        return self._headers

    def _fields(self) -> tuple[Any, ...]:
        """In the order of the constructor's arguments."""
        return (
            self.topic,
            self.partition,
            self.offset,
            self.timestamp_ms,
            self.timestamp_type,
            self.key,
            self.value,
            self.headers,
            self.leader_epoch,
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Record):
            return NotImplemented
        mine: tuple[Any, ...] = self._fields()
        return mine == other._fields()

    def __hash__(self) -> int:
        return hash((self.topic, self.partition, self.offset))

    def __reduce__(self) -> tuple[type[Record], tuple[Any, ...]]:
        return Record, self._fields()

    def __repr__(self) -> str:
        return (
            f"Record(topic={self.topic!r}, partition={self.partition}, offset={self.offset}, "
            f"timestamp_ms={self.timestamp_ms}, timestamp_type={self.timestamp_type.name}, key={self.key!r}, "
            f"value={self.value!r}, headers={self.headers!r}, leader_epoch={self.leader_epoch})"
        )


@cython.final
@cython.cclass
class FetchedBatches:
    """What one fetch brought of one partition and was not handed out yet: the whole batches in `[start, end)`.

    `aborted` are the broker's pairs of producer id and first offset, None for readers of uncommitted records.
    Markers of transactions and what belongs to aborted ones are passed over. Part of a batch at the end is ignored.

    `next_offset` is where to read on, `leader_epoch` that of the last batch that was opened (None: unknown);
    `end_offset` and `end_epoch` are what they will be behind the last batch. What cannot be read is a RecordError,
    after all that comes before it was handed out, each time that it is asked for.
    """

    topic: str = cython.declare(object, visibility="readonly")
    partition: int = cython.declare(cython.int, visibility="readonly")
    next_offset: int = cython.declare(cython.longlong, visibility="readonly")
    leader_epoch: int | None = cython.declare(object, visibility="readonly")
    end_offset: int = cython.declare(cython.longlong, visibility="readonly")
    end_epoch: int | None = cython.declare(object, visibility="readonly")
    _buffer: memoryview
    _end: cython.Py_ssize_t
    _check_crcs: cython.bint
    _limit_bytes: cython.longlong
    _visibility: Visibility | None
    # The last batch comes first.
    _upcoming: list[BatchHeader]
    # The batch that is open, with a reader in it, or the next to open; None behind the last.
    _header: BatchHeader | None
    _reader: RecordReader | None
    _origin: _Origin
    # What is wrong behind the last batch.
    _failure: CorruptBatchError | None

    def __init__(
        self,
        topic: str,
        partition: int,
        buffer: Buffer,
        start: int,
        end: int,
        fetch_offset: int,
        aborted: Sequence[tuple[int, int]] | None = None,
        check_crcs: bool = True,
        limit_bytes: int = DECOMPRESSED_LIMIT_BYTES,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.next_offset = fetch_offset
        self.leader_epoch = None
        self._buffer = octets(buffer)
        self._end = end
        self._check_crcs = check_crcs
        self._limit_bytes = limit_bytes
        self._visibility = Visibility(aborted) if aborted else None
        self._reader = None
        self._origin = _Origin(topic, partition, None, TimestampType.CREATE_TIME)
        self._find_batches(start, end)

    @property
    def exhausted(self) -> bool:
        """Whether nothing is left, not even a batch to pass over."""
        return self._header is None and self._failure is None

    @property
    def bytes_left(self) -> int:
        """How many bytes of the answer were not looked at yet."""
        return 0 if self._header is None else self._end - self._header.position

    def _find_batches(self, start: int, end: int) -> None:
        """Goes over the headers of all whole batches, or of those before one that makes no sense."""
        headers: list[BatchHeader] = []
        self._failure = None
        self.end_offset = self.next_offset
        self.end_epoch = None
        at = start
        try:
            while (header := next_header(self._buffer, at, end)) is not None:
                headers.append(header)
                at += header.size
        except CorruptBatchError as error:
            self._failure = error
        else:
            if not headers and start < end:
                self._failure = CorruptBatchError(start, f"{end - start} bytes hold no whole batch; fetch more at once")
        if headers:
            last = headers[len(headers) - 1]
            self.end_offset = max(self.next_offset, last.next_offset)
            self.end_epoch = _known_epoch(last)
        headers.reverse()
        self._upcoming = headers
        self._header = headers.pop() if headers else None

    def take(
        self,
        max_records: int,
        key_deserializer: Deserializer | None = None,
        value_deserializer: Deserializer | None = None,
    ) -> list[Record]:
        """Up to so many records, from where the last call stopped; none means that there are no more."""
        records: list[Record] = []
        limit: cython.longlong = max_records
        try:
            while len(records) < limit and self._open():
                if key_deserializer is None and value_deserializer is None:
                    self._take_bytes(records, limit)
                else:
                    self._take_objects(records, limit, key_deserializer, value_deserializer)
                self._close()
        except RecordError:
            if not records:
                raise
        return records

    def take_columns(self, max_records: int | None = None, memory: AnswerMemory | None = None) -> RecordColumns:
        """The same as columns. Without a limit, all up to COLUMNS_BYTES: call again until `exhausted`.

        With `memory`, values go into what is free there.
        """
        expected = min(self.bytes_left, COLUMNS_BYTES) if max_records is None else 0
        builder = ColumnsBuilder(expected, None if memory is None else memory.take(expected))
        limit: cython.longlong = _MOST_RECORDS if max_records is None else max_records
        try:
            while builder.rows < limit and builder.size_bytes < COLUMNS_BYTES and self._open():
                self.next_offset = builder.append(self._reader, self.next_offset, limit - builder.rows)
                self._close()
        except RecordError:
            if not builder.rows:
                raise
        return as_columns(builder, self.next_offset)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _take_bytes(self, records: list[Record], limit: cython.longlong) -> cython.int:
        """Records of the open batch as they are, until there are `limit`."""
        reader: RecordReader = self._reader
        origin: _Origin = self._origin
        next_offset: cython.longlong = self.next_offset
        room: cython.longlong = limit - len(records)
        offset: cython.longlong
        record: Record
        while room > 0 and reader.advance():
            offset = reader.base_offset + reader.offset_delta
            # An answer begins with the batch that holds the offset, not with its record.
            if offset < next_offset:
                continue
            record = Record.__new__(Record)
            record._origin = origin
            record.offset = offset
            if reader.takes_append_time:
                record.timestamp_ms = reader.append_time_ms
            else:
                record.timestamp_ms = reader.base_timestamp_ms + reader.timestamp_delta
            record.key = octets_at(reader.data, reader.key_at, reader.key_size)
            record.value = octets_at(reader.data, reader.value_at, reader.value_size)
            if reader.headers_count:
                record._headers = octets_at(reader.data, reader.headers_at, reader.at - reader.headers_at)
            else:
                record._headers = ()
            if cython.compiled:
                # Bytes refer to nothing: the garbage collector, which comes by often, need not look at it.
                PyObject_GC_UnTrack(cython.cast(cython.p_void, record))
            records.append(record)
            next_offset = offset + 1
            room -= 1
        self.next_offset = next_offset
        return 0

    @cython.cfunc
    def _take_objects(
        self,
        records: list[Record],
        limit: cython.longlong,
        key_deserializer: Deserializer | None,
        value_deserializer: Deserializer | None,
    ) -> cython.bint:
        """The same with deserializers; a record that one of them does not take stays the next one."""
        reader: RecordReader = self._reader
        record: Record
        at: cython.longlong
        remaining: cython.longlong
        while len(records) < limit:
            at, remaining = reader.at, reader.remaining
            taken: int = len(records)
            self._take_bytes(records, taken + 1)
            if len(records) == taken:
                break
            record = records[taken]
            try:
                if key_deserializer is not None and record.key is not None:
                    record.key = key_deserializer(record.key)
                if value_deserializer is not None and record.value is not None:
                    record.value = value_deserializer(record.value)
                if cython.compiled:
                    PyObject_GC_Track(cython.cast(cython.p_void, record))
            except Exception as error:
                del records[taken]
                reader.at, reader.remaining = at, remaining
                self.next_offset = record.offset
                raise self._error(record.offset, f"a deserializer failed on it: {error!r}") from error
        return True

    @cython.cfunc
    def _open(self) -> cython.bint:
        """Opens the next batch with something to see, unless one is open; False when there is none."""
        while self._reader is None:
            header = self._header
            if header is None:
                if self._failure is not None:
                    raise self._error(self.next_offset, self._failure.reason) from self._failure
                return False
            try:
                if self._passes_over(header):
                    self._go_behind(header)
                else:
                    self._reader = open_batch(self._buffer, header, self._limit_bytes)
                    self._set_origin(header)
            except CorruptBatchError as error:
                raise self._batch_error(header, error) from error
        return True

    @cython.cfunc
    def _close(self) -> cython.bint:
        """Goes behind the open batch if all of it was taken."""
        reader: RecordReader = self._reader
        header = self._header
        if header is not None and (reader.fault or reader.remaining == 0):
            try:
                reader.finish()
            except CorruptBatchError as error:
                raise self._batch_error(header, error) from error
            self._reader = None
            self._go_behind(header)
        return True

    def _passes_over(self, header: BatchHeader) -> bool:
        """Whether there is nothing to see in a batch, which is checked here and once."""
        if self._check_crcs and not crc_is_valid(self._buffer, header):
            raise CorruptBatchError(header.position, "the checksum does not match the bytes")
        self.leader_epoch = _known_epoch(header)
        if self._visibility is not None and header.producer_id >= 0 and self._visibility.hides(self._buffer, header):
            return True
        return header.is_control or header.records_count == 0 or header.next_offset <= self.next_offset

    def _go_behind(self, header: BatchHeader) -> None:
        # Compaction takes records, never offsets: the last one of a batch may be gone.
        self.next_offset = max(self.next_offset, header.next_offset)
        self._header = self._upcoming.pop() if self._upcoming else None

    def _set_origin(self, header: BatchHeader) -> None:
        kind = TimestampType.LOG_APPEND_TIME if header.is_log_append_time else TimestampType.CREATE_TIME
        if self._origin.leader_epoch != self.leader_epoch or self._origin.timestamp_type is not kind:
            self._origin = _Origin(self.topic, self.partition, self.leader_epoch, kind)

    def _batch_error(self, header: BatchHeader, error: CorruptBatchError) -> RecordError:
        offset = max(self.next_offset, header.base_offset)
        return self._error(offset, f"its batch, offsets {header.base_offset} to {header.last_offset}: {error.reason}")

    def _error(self, offset: int, reason: str) -> RecordError:
        return RecordError(TopicPartition(self.topic, self.partition), offset, reason)


def _known_epoch(header: BatchHeader) -> int | None:
    return header.leader_epoch if header.leader_epoch >= 0 else None
