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
from headwater.client.consumer.corrupt_batches import (
    CorruptBatch,
    OnCorrupt,
    ReadingRules,
    announced_base,
    claimed_next,
    header_of_sound_size,
    offset_behind,
    skip,
)
from headwater.client.consumer.visibility import Visibility
from headwater.client.errors import CorruptRecordError, RecordError
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
"""One `take_columns`, and one `take`, ends after the batch that brings the records to this size, decompressed."""

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
    `end_offset` and `end_epoch` are what they will be behind the last batch, if all of it can be read. What cannot be
    read is a CorruptRecordError, after all that comes before it was handed out, each time that it is asked for; or it
    is skipped, if the rules say so. Then the answer may end earlier than it seemed: what is behind a batch that cannot
    be read is asked for again where this answer does not show it, and where the end of a transaction may be lost.

    `fetch_offset` is what was asked for, `log_end` the end of the log by the broker's word in the same answer (-1 if it
    gave none), and `opened_bytes` the size of all batches that were opened so far, decompressed.
    """

    topic: str = cython.declare(object, visibility="readonly")
    partition: int = cython.declare(cython.int, visibility="readonly")
    next_offset: int = cython.declare(cython.longlong, visibility="readonly")
    leader_epoch: int | None = cython.declare(object, visibility="readonly")
    end_offset: int = cython.declare(cython.longlong, visibility="readonly")
    end_epoch: int | None = cython.declare(object, visibility="readonly")
    opened_bytes: int = cython.declare(cython.longlong, visibility="readonly")
    log_end: int = cython.declare(cython.longlong, visibility="readonly")
    rules: ReadingRules = cython.declare(object, visibility="readonly")
    fetch_offset: int = cython.declare(cython.longlong, visibility="public")
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
    # What is wrong behind the last batch, and where; and with headers of batches whose size makes sense.
    _failure: CorruptBatchError | None
    _failure_at: cython.Py_ssize_t
    _lies: dict[int, CorruptBatchError]
    _last_lies: cython.bint

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
        on_corrupt: OnCorrupt | None = None,
        log_end: int = -1,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.next_offset = fetch_offset
        self.leader_epoch = None
        self._buffer = octets(buffer)
        self._end = end
        self.rules = ReadingRules(check_crcs, limit_bytes, on_corrupt)
        self.log_end = log_end
        self.opened_bytes = 0
        self.fetch_offset = fetch_offset
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

    @property
    def ends_surely(self) -> bool:
        """Whether `end_offset` is where the next fetch begins, whatever may be wrong inside of the batches."""
        if self._failure is not None or self._last_lies:
            return False
        return self.log_end < 0 or self.end_offset <= self.log_end

    @property
    def ends_too_early(self) -> bool:
        """Whether all batches end before what was asked for: more of such answers lead nowhere."""
        return self._failure is None and not self._last_lies and self.end_offset <= self.fetch_offset

    def _find_batches(self, start: int, end: int) -> None:
        """Goes over the headers of all whole batches, or of those before one whose size makes no sense."""
        headers: list[BatchHeader] = []
        self._failure = None
        self._last_lies = False
        self._lies = {}
        self.end_offset = self.next_offset
        self.end_epoch = None
        at = start
        before: BatchHeader | None = None
        while True:
            try:
                header = next_header(self._buffer, at, end)
            except CorruptBatchError as error:
                header = self._in_spite_of(error, at, end)
            if header is None:
                break
            if before is not None and header.base_offset <= before.last_offset:
                self._note_overlap(before, header)
            headers.append(header)
            before = header
            at += header.size
        if not headers and self._failure is None and start < end:
            self._failure = CorruptBatchError(start, f"{end - start} bytes hold no whole batch; fetch more at once")
        self._failure_at = at
        if headers:
            self._set_end(headers)
        headers.reverse()
        self._upcoming = headers
        self._header = headers.pop() if headers else None

    def _in_spite_of(self, error: CorruptBatchError, at: int, end: int) -> BatchHeader | None:
        """The header that makes no sense, where at least its size does: then what is behind it can be found."""
        header = header_of_sound_size(self._buffer, at, end)
        if header is None:
            self._failure = error
        else:
            self._lies[at] = error
        return header

    def _note_overlap(self, before: BatchHeader, header: BatchHeader) -> None:
        """Of two batches with the same offsets one lies. Brokers give base offsets, clients write last offsets."""
        if before.position in self._lies:
            return
        if before.base_offset < header.base_offset:
            words = f"it claims offsets up to {before.last_offset}, and the next batch begins at {header.base_offset}"
            self._lies[before.position] = CorruptBatchError(before.position, words)
        elif header.position not in self._lies:
            words = f"its base offset is {header.base_offset}, and the batch before it begins at {before.base_offset}"
            self._lies[header.position] = CorruptBatchError(header.position, words)

    def _set_end(self, headers: Sequence[BatchHeader]) -> None:
        """Behind the last batch whose header makes sense; behind one that makes none only if that may be skipped."""
        sound = headers
        if self._lies:
            sound = [header for header in headers if header.position not in self._lies]
            if self.rules.skip is None:
                first_lie = min(self._lies)
                sound = [header for header in headers if header.position < first_lie]
        self._last_lies = len(sound) == 0 or sound[len(sound) - 1] is not headers[len(headers) - 1]
        if sound:
            last = sound[len(sound) - 1]
            self.end_offset = max(self.next_offset, last.next_offset)
            self.end_epoch = _known_epoch(last)

    def take(
        self,
        max_records: int,
        key_deserializer: Deserializer | None = None,
        value_deserializer: Deserializer | None = None,
    ) -> list[Record]:
        """Up to so many records, from where the last call stopped; none means that there are no more."""
        records: list[Record] = []
        limit: cython.longlong = max_records
        most_opened: cython.longlong = self.opened_bytes + COLUMNS_BYTES
        try:
            while len(records) < limit and (self.opened_bytes < most_opened or not records) and self._open():
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
        reader: RecordReader
        while self._reader is None:
            header = self._header
            if header is None:
                if self._failure is None:
                    return False
                self._stumble(None, self._failure)
                continue
            try:
                if self._passes_over(header):
                    self._go_behind(header)
                else:
                    reader = open_batch(self._buffer, header, self._limit_bytes)
                    self.opened_bytes += reader.end
                    self._reader = reader
                    self._set_origin(header)
            except CorruptBatchError as error:
                following = self._base_behind(header)
                if following is not None and following <= self.next_offset:
                    # Nothing of it is wanted: it was passed over before, or is older than what is read.
                    self._header = self._upcoming.pop()
                else:
                    self._stumble(header, error)
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
                self._stumble(header, error, not reader.fault)
                return True
            self._reader = None
            self._go_behind(header)
        return True

    def _passes_over(self, header: BatchHeader) -> bool:
        """Whether there is nothing to see in a batch, which is checked here and once."""
        if self._lies and header.position in self._lies:
            raise self._lies[header.position]
        if self._check_crcs and not crc_is_valid(self._buffer, header):
            raise CorruptBatchError(header.position, "the checksum does not match the bytes")
        self.leader_epoch = _known_epoch(header)
        if self._visibility is not None and header.producer_id >= 0 and self._visibility.hides(self._buffer, header):
            return True
        return header.is_control or header.records_count == 0 or header.next_offset <= self.next_offset

    def _stumble(self, header: BatchHeader | None, error: CorruptBatchError, all_handed_out: bool = False) -> None:
        """Raises what is wrong with a batch, or skips the rest of it: from the first record that cannot be read.

        None stands for what is behind the last batch whose size makes sense. When all records were handed out
        before the error, nothing is lost.
        """
        rules: ReadingRules = self.rules
        last = header is None or not self._upcoming
        following = None if header is None else self._base_behind(header)
        if following is not None and not all_handed_out:
            behind = max(following, self.next_offset)
        elif all_handed_out:
            behind = self.next_offset
        elif rules.skip is not None and last and self.next_offset > self.fetch_offset:
            # Asked for again, it comes first, and with it what is behind.
            self._end_here(self.next_offset)
            return
        else:
            at = self._failure_at if header is None else header.position
            behind = offset_behind(self.next_offset, claimed_next(self._buffer, at, self._end), self.log_end)
        batch = self._described(header, error, behind)
        if rules.skip is None:
            raise CorruptRecordError(batch) from error
        skip(rules.skip, batch)
        self._reader = None
        if last or (self._visibility is not None and behind > self.fetch_offset):
            # The end of an aborted transaction may have been in there: the broker is asked again which there are.
            self._end_here(behind)
        else:
            self.next_offset = behind
            self._header = self._upcoming.pop()

    def _base_behind(self, header: BatchHeader) -> int | None:
        """Where the next batch says that it begins, if that may be; one that is cut counts if it moves us on."""
        base: int | None
        if self._upcoming:
            base = self._upcoming[len(self._upcoming) - 1].base_offset
        else:
            base = announced_base(self._buffer, header.position + header.size, self._end)
            if base is not None and base <= self.next_offset:
                base = None
        if base is not None and (base <= header.base_offset or 0 <= self.log_end < base):
            return None
        return base

    def _described(self, header: BatchHeader | None, error: CorruptBatchError, behind: int) -> CorruptBatch:
        start, end, reason = self._failure_at, self._end, error.reason
        if header is not None:
            start, end = header.position, header.position + header.size
        if header is not None and start not in self._lies:
            reason = f"its batch, offsets {header.base_offset} to {header.last_offset}: {error.reason}"
        partition = TopicPartition(self.topic, self.partition)
        return CorruptBatch(
            partition=partition,
            first_offset=self.next_offset,
            next_offset=behind,
            reason=reason,
            raw=bytes(self._buffer[start:end]),
        )

    def _end_here(self, offset: int) -> None:
        """What is left of the answer is not looked at."""
        self.next_offset = self.end_offset = offset
        self.end_epoch = self.leader_epoch
        self._reader = self._header = self._failure = None
        self._last_lies = False
        self._upcoming = []

    def _go_behind(self, header: BatchHeader) -> None:
        self._header = self._upcoming.pop() if self._upcoming else None
        if self._header is None and 0 <= self.log_end < header.next_offset:
            # The log has grown since the broker looked, or the batch lies: the next answer shows it.
            self.end_offset = self.next_offset = max(self.next_offset, self.fetch_offset + 1)
        else:
            # Compaction takes records, never offsets: the last one of a batch may be gone.
            self.next_offset = max(self.next_offset, header.next_offset)

    def _set_origin(self, header: BatchHeader) -> None:
        kind = TimestampType.LOG_APPEND_TIME if header.is_log_append_time else TimestampType.CREATE_TIME
        if self._origin.leader_epoch != self.leader_epoch or self._origin.timestamp_type is not kind:
            self._origin = _Origin(self.topic, self.partition, self.leader_epoch, kind)

    def _error(self, offset: int, reason: str) -> RecordError:
        return RecordError(TopicPartition(self.topic, self.partition), offset, reason)


def _known_epoch(header: BatchHeader) -> int | None:
    return header.leader_epoch if header.leader_epoch >= 0 else None
