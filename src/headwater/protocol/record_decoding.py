"""Batches into records, one at a time, for a person or a rule. (All at once as columns: `record_columns`.)

Compiled by Cython (pure Python mode) and correct without it. What a stranger wrote is checked by `record_reading`, and
no room is made for more than the bytes can hold.
"""
# mypy: disallow-untyped-decorators=False

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.protocol import compression as codecs
from headwater.protocol.batches import HEADER_SIZE, BatchHeader, CorruptBatchError, octets
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
