"""Every reader of record batches: what a producer sends, what a consumer gets, and what a cleaner and a start find.

The first byte of an input says whether length, magic and checksum are put right first, so that more of the inputs reach
what lies behind those checks; and whether the batch is compressed anew, which does the same for what is in it.
"""

import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from crc32c import crc32c

from conformance.crafted_batches import crafted, mutated
from headwater.log.cleaning.offset_map import OffsetMap
from headwater.log.cleaning.raw_records import shift_timestamps
from headwater.log.producer_state import read_markers
from headwater.protocol import compression
from headwater.protocol.errors import ApiError
from headwater.protocol.records import (
    HEADER_SIZE,
    BatchHeader,
    CorruptBatchError,
    RefusedBatchError,
    RefusedRecordsError,
    check_batches,
    check_produced,
    check_records,
    check_stored_records,
    decode_columns,
    decode_records,
    patch_max_timestamp,
    recompress,
    records_section,
    scan_headers,
)

_LIMIT_BYTES: Final = 4 << 20
_PUT_RIGHT, _PACK = 1, 2


def one_input(data: bytes) -> None:
    """Reads `data` in every way; AssertionError when two of them do not agree."""
    if not data:
        return
    batch = bytearray(data[1:])
    if data[0] & _PACK and len(batch) > HEADER_SIZE:
        batch[HEADER_SIZE:] = compression.compress(batch[22] % 5, batch[HEADER_SIZE:])
        batch[22] = batch[22] & ~7 | batch[22] % 5
    if data[0] & _PUT_RIGHT and len(batch) >= HEADER_SIZE:
        struct.pack_into(">i", batch, 8, len(batch) - 12)
        batch[16] = 2
        struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
    _as_produced(batch)
    headers = _or_none(lambda: scan_headers(batch, 0, len(batch)))
    _or_none(lambda: check_batches(batch, 0, len(batch), strict=False))
    columns = _or_none(lambda: decode_columns(batch, 0, len(batch), limit_bytes=_LIMIT_BYTES))
    if headers is None:
        return
    records = [record for header in headers for record in _as_stored(batch, header) or ()]
    if columns is not None:
        assert set(columns.offsets.tolist()) <= {record.offset for record in records}
    _or_none(lambda: read_markers(batch, headers))
    _as_cleaned(batch, headers)


def seeds() -> list[bytes]:
    """Batches of every kind and codec, sound and not."""
    found = [bytes([_PUT_RIGHT]) + each.data for each in (*crafted(), *mutated(200, seed=3))]
    plain = [each.data for each in crafted() if each.name.startswith("none: ")]
    for codec in range(5):
        packed = (data[:22] + bytes([codec]) + data[23:] for data in plain)
        found += [bytes([_PUT_RIGHT | _PACK]) + data for data in packed]
    return [*found, b"\0" + plain[0] * 3]


def _as_produced(batch: bytearray) -> None:
    """What may be appended can be read by everything, and again when its times were put right."""
    try:
        header = check_produced(batch, 0, len(batch))
        largest_ms = check_records(batch, header, False, None, None, _LIMIT_BYTES)
    except (CorruptBatchError, RefusedBatchError, RefusedRecordsError):
        return
    sent = bytearray(batch)
    patch_max_timestamp(sent, header, largest_ms)
    (again,) = check_batches(sent, 0, len(sent))
    assert check_stored_records(sent, again, limit_bytes=_LIMIT_BYTES) == largest_ms
    records = decode_records(sent, again, limit_bytes=_LIMIT_BYTES)
    assert [record.offset for record in records] == list(range(again.records_count))
    assert max(-1, *(record.timestamp_ms for record in records)) == largest_ms
    columns = decode_columns(sent, 0, len(sent), limit_bytes=_LIMIT_BYTES)
    assert columns.offsets.tolist() == [record.offset for record in records]
    assert [columns.values[index] for index in range(len(columns))] == [record.value for record in records]
    plain = recompress(sent, again, 0)
    (stored,) = check_batches(plain, 0, len(plain))
    assert decode_records(plain, stored) == records


def _as_stored(batch: bytearray, header: BatchHeader) -> list[Any] | None:
    records: list[Any] | None = _or_none(lambda: decode_records(batch, header, limit_bytes=_LIMIT_BYTES))
    largest_ms = _or_none(lambda: check_stored_records(batch, header, limit_bytes=_LIMIT_BYTES))
    assert largest_ms is None or records is not None
    section = _or_none(lambda: records_section(batch, header, limit_bytes=_LIMIT_BYTES))
    if section is not None:
        with suppress(ValueError):
            shift_timestamps(section, max(0, min(header.records_count, 1_000)), 5)
    return records


def _as_cleaned(batch: bytearray, headers: list[BatchHeader]) -> None:
    chosen = [header for header in headers if header.base_offset >= 0][:20]
    if not chosen or chosen != headers[: len(chosen)]:
        return
    offsets = OffsetMap(slots=1 << 10, limit=900, secret=bytes(16))
    with suppress(CorruptBatchError, ValueError):
        offsets.add(memoryview(batch), chosen, bytearray(len(chosen)), 0)
        offsets.settle(0)
        offsets.filter(memoryview(batch), chosen, bytearray(len(chosen)), 1_700_000_000_000)


def _or_none(read: Callable[[], Any]) -> Any:
    """What was read, None for bytes that are no record batches."""
    try:
        return read()
    except (CorruptBatchError, ApiError):
        return None
