"""Batches into records, one at a time, for a person or a rule. (All at once as columns: `record_columns`.)

Compiled by Cython (pure Python mode) and correct without it. What a stranger wrote is checked by `record_reading`, and
no room is made for more than the bytes can hold.
"""
# mypy: disallow-untyped-decorators=False

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from headwater.protocol import compression as codecs
from headwater.protocol.batches import HEADER_SIZE, NO_TIMESTAMP, BatchHeader, CorruptBatchError, octets
from headwater.protocol.record_reading import DECOMPRESSED_LIMIT_BYTES, RecordHeaders

try:
    import cython
except ImportError:
    from headwater.protocol import without_cython as cython

if cython.compiled:
    from cython.cimports.headwater.protocol.record_reading import RecordReader, octets_at, open_batch, read_headers
else:
    from headwater.protocol.record_reading import RecordReader, octets_at, open_batch, read_headers

if TYPE_CHECKING:
    from typing_extensions import Buffer

# Declared so, a name is a C variable: quick, and invisible from Python.
_NO_TIMESTAMP = cython.declare(cython.longlong, NO_TIMESTAMP)
_EARLIEST_MS = cython.declare(cython.longlong, 1 - 2**63)
_LATEST_MS = cython.declare(cython.longlong, 2**63 - 1)


@cython.final
@cython.cclass
class Record:
    """One record, with its place and time in the partition."""

    offset: int = cython.declare(cython.longlong, visibility="public")
    timestamp_ms: int = cython.declare(cython.longlong, visibility="public")
    key: bytes | None = cython.declare(object, visibility="public")
    value: bytes | None = cython.declare(object, visibility="public")
    headers: RecordHeaders = cython.declare(object, visibility="public")

    def __init__(
        self,
        offset: int,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: RecordHeaders = (),
    ) -> None:
        self.offset = offset
        self.timestamp_ms = timestamp_ms
        self.key = key
        self.value = value
        self.headers = headers

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Record):
            return NotImplemented
        return (self.offset, self.timestamp_ms, self.key, self.value, self.headers) == (
            other.offset,
            other.timestamp_ms,
            other.key,
            other.value,
            other.headers,
        )

    def __hash__(self) -> int:
        return hash((self.offset, self.timestamp_ms, self.key, self.value))

    def __repr__(self) -> str:
        return (
            f"Record(offset={self.offset}, timestamp_ms={self.timestamp_ms}, key={self.key!r}, "
            f"value={self.value!r}, headers={self.headers!r})"
        )


class RecordProblem(NamedTuple):
    """Why the record at `batch_index` in its batch is refused; `reason` is 'null key' or 'timestamp'."""

    batch_index: int
    reason: str
    message: str


def decode_records(buffer: Buffer, header: BatchHeader, *, limit_bytes: int = DECOMPRESSED_LIMIT_BYTES) -> list[Record]:
    """The records of one batch; CorruptBatchError if they are not what the header promises."""
    reader: RecordReader = open_batch(octets(buffer), header, limit_bytes)
    record: Record
    records: list[Record] = []
    while reader.advance():
        record = Record.__new__(Record)
        record.offset = reader.offset()
        record.timestamp_ms = reader.timestamp_ms()
        record.key = octets_at(reader.data, reader.key_at, reader.key_size)
        record.value = octets_at(reader.data, reader.value_at, reader.value_size)
        record.headers = read_headers(reader.data, reader.headers_at, reader.end) if reader.headers_count else ()
        records.append(record)
    reader.finish()
    return records


def validate_records(
    buffer: Buffer,
    header: BatchHeader,
    *,
    require_keys: bool,
    min_timestamp_ms: int | None,
    max_timestamp_ms: int | None,
    limit_bytes: int = DECOMPRESSED_LIMIT_BYTES,
) -> list[RecordProblem]:
    """What a topic's rules have against the records of a producer's batch; nothing if they may be appended.

    CorruptBatchError if they do not parse or do not take one offset after the other. A record without a time
    passes.
    """
    index: cython.longlong = 0
    time_ms: cython.longlong
    needs_key: cython.bint = require_keys
    earliest_ms: cython.longlong = _EARLIEST_MS if min_timestamp_ms is None else min_timestamp_ms
    latest_ms: cython.longlong = _LATEST_MS if max_timestamp_ms is None else max_timestamp_ms
    problems: list[RecordProblem] = []
    reader: RecordReader = open_batch(octets(buffer), header, limit_bytes)
    while reader.advance():
        if reader.offset_delta != index:
            raise CorruptBatchError(header.position, f"record {index} has offset delta {reader.offset_delta}")
        if needs_key and reader.key_size < 0:
            problems.append(RecordProblem(index, "null key", "a compacted topic takes only records with keys"))
        time_ms = reader.timestamp_ms()
        if time_ms != _NO_TIMESTAMP and (time_ms < earliest_ms or time_ms > latest_ms):
            words = _out_of_range(time_ms, min_timestamp_ms, max_timestamp_ms)
            problems.append(RecordProblem(index, "timestamp", words))
        index += 1
    reader.finish()
    return problems


def records_section(buffer: Buffer, header: BatchHeader, *, limit_bytes: int = DECOMPRESSED_LIMIT_BYTES) -> memoryview:
    """The bytes of the records of a batch, decompressed where needed."""
    reader: RecordReader = open_batch(octets(buffer), header, limit_bytes)
    section: memoryview = reader.view
    return section


def unpack_section(
    buffer: Buffer,
    header: BatchHeader,
    target: bytearray,
    at: int,
    *,
    limit_bytes: int = DECOMPRESSED_LIMIT_BYTES,
) -> int:
    """Decompress the records of a batch into a buffer from `at` on, which is made longer where needed; their end there.

    For whoever goes through many batches: `records_section` takes new memory for each.
    """
    section = octets(buffer)[header.position + HEADER_SIZE : header.position + header.size]
    try:
        return codecs.decompress_onto(header.compression, section, target, at, limit_bytes)
    except codecs.DecompressionError as error:
        raise CorruptBatchError(header.position, str(error)) from error


def _out_of_range(time_ms: int, min_timestamp_ms: int | None, max_timestamp_ms: int | None) -> str:
    earliest = "-" if min_timestamp_ms is None else min_timestamp_ms
    latest = "-" if max_timestamp_ms is None else max_timestamp_ms
    return f"timestamp {time_ms} is out of the range that the topic takes, [{earliest}, {latest}]"
