"""Record batches made and read by hand, wrong ones too, with no code of the broker under test.

Only uncompressed records can be read here; for compressed batches there are the headers, and real clients.
"""

import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass

import crc32c

_HEADER = struct.Struct(">qiibIhiqqqhii")
_CRC_FROM = 21
LOG_APPEND_TIME = 0x08
# A moment that is clearly not now, and too young for any retention to take it away.
AN_HOUR_AGO_MS = time.time_ns() // 1_000_000 - 3_600_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What a producer says and a consumer gets."""

    value: bytes | None = b"v"
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int = -1
    offset: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The header of a batch, and where it lay."""

    base_offset: int
    size_bytes: int
    leader_epoch: int
    magic: int
    crc_is_right: bool
    attributes: int
    last_offset: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int
    body: bytes

    @property
    def codec(self) -> str:
        return CODECS[self.attributes & 7]

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def batch(
    *records: Record | bytes,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    magic: int = 2,
    attributes: int = 0,
    crc: int | None = None,
) -> bytes:
    """An uncompressed batch as a producer sends it; records without a timestamp get the present."""
    made = [record if isinstance(record, Record) else Record(value=record) for record in records]
    times = [now_ms() if record.timestamp_ms < 0 else record.timestamp_ms for record in made]
    body = b"".join(
        _encode_record(record, delta, at - times[0]) for delta, (record, at) in enumerate(zip(made, times, strict=True))
    )
    after_crc = (
        struct.pack(
            ">hiqqqhii",
            attributes,
            len(made) - 1,
            times[0],
            max(times),
            producer_id,
            producer_epoch,
            base_sequence,
            len(made),
        )
        + body
    )
    crc = crc32c.crc32c(after_crc) if crc is None else crc
    return struct.pack(">qiibI", 0, 9 + len(after_crc), -1, magic, crc) + after_crc


def read_batches(data: bytes | None) -> list[Batch]:
    """The whole batches in these bytes; a cut one at the end is left out, as clients do."""
    found: list[Batch] = []
    data, position = data or b"", 0
    while position + _HEADER.size <= len(data):
        fields = _HEADER.unpack_from(data, position)
        end = position + 12 + fields[1]
        if end > len(data):
            break
        crc = crc32c.crc32c(data[position + _CRC_FROM : end])
        found.append(
            Batch(
                base_offset=fields[0],
                size_bytes=end - position,
                leader_epoch=fields[2],
                magic=fields[3],
                crc_is_right=crc == fields[4],
                attributes=fields[5],
                last_offset=fields[0] + fields[6],
                base_timestamp_ms=fields[7],
                max_timestamp_ms=fields[8],
                producer_id=fields[9],
                producer_epoch=fields[10],
                base_sequence=fields[11],
                count=fields[12],
                body=data[position + _HEADER.size : end],
            )
        )
        position = end
    return found


def read_records(data: bytes | None) -> list[Record]:
    """All records of the whole batches in these bytes, offsets and timestamps as a consumer sees them."""
    return [record for one in read_batches(data) for record in _decode_records(one)]


def values(data: bytes | None) -> list[bytes | None]:
    """Only the values."""
    return [record.value for record in read_records(data)]


def _decode_records(one: Batch) -> list[Record]:
    assert one.codec == "none", "compressed batches are for the clients to read"
    records, position = [], 0
    for _ in range(one.count):
        _, position = _read_varint(one.body, position)
        position += 1
        timestamp_delta, position = _read_varint(one.body, position)
        offset_delta, position = _read_varint(one.body, position)
        key, position = _read_bytes(one.body, position)
        value, position = _read_bytes(one.body, position)
        count, position = _read_varint(one.body, position)
        headers = []
        for _ in range(count):
            name, position = _read_bytes(one.body, position)
            content, position = _read_bytes(one.body, position)
            headers.append(((name or b"").decode(), content))
        at = one.max_timestamp_ms if one.is_log_append_time else one.base_timestamp_ms + timestamp_delta
        offset = one.base_offset + offset_delta
        records.append(Record(key=key, value=value, headers=tuple(headers), timestamp_ms=at, offset=offset))
    return records


def _encode_record(record: Record, offset_delta: int, timestamp_delta: int) -> bytes:
    parts = [b"\0", varint(timestamp_delta), varint(offset_delta), sized(record.key), sized(record.value)]
    parts.append(varint(len(record.headers)))
    for name, content in record.headers:
        parts += [sized(name.encode()), sized(content)]
    return _with_length(parts)


def _with_length(parts: Sequence[bytes]) -> bytes:
    content = b"".join(parts)
    return varint(len(content)) + content


def sized(content: bytes | None) -> bytes:
    return varint(-1) if content is None else varint(len(content)) + content


def varint(number: int) -> bytes:
    rest = (number << 1) ^ (number >> 63)
    rest &= (1 << 64) - 1
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), position


def _read_bytes(data: bytes, position: int) -> tuple[bytes | None, int]:
    size, position = _read_varint(data, position)
    if size < 0:
        return None, position
    return data[position : position + size], position + size
