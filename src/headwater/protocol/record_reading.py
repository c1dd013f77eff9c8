"""From record to record over the bytes of a batch: what `record_decoding`, `column_building` and the client read with.

Compiled by Cython (pure Python mode) and correct without it; `record_reading.pxd` is its C side. Every length here was
written by a stranger: nothing is read before it was compared with the end of the records.
"""
# mypy: disallow-untyped-decorators=False

from __future__ import annotations

from typing import Any, Final, TypeAlias

from headwater.protocol import compression as codecs
from headwater.protocol.batches import BatchHeader, CorruptBatchError

try:
    import cython
except ImportError:
    from headwater.protocol import without_cython as cython

if cython.compiled:
    from cython.cimports.cpython.memoryview import PyMemoryView_GET_BUFFER

RecordHeaders: TypeAlias = tuple[tuple[str, bytes | None], ...]

DECOMPRESSED_LIMIT_BYTES: Final = 128 << 20
"""The most that the records of one batch may take when decompressed, unless the caller says otherwise."""

# Declared so, a name is a C variable: quick, and invisible from Python.
_SOUND = cython.declare(cython.int, 0)
_UNREADABLE = cython.declare(cython.int, 1)
_NO_TIME = cython.declare(cython.int, 2)
_OUT_OF_ORDER = cython.declare(cython.int, 3)
# What `find_problem` tells; `record_checking` has twins of them.
_WITHOUT_KEY = cython.declare(cython.int, 1)
_OUT_OF_TIME = cython.declare(cython.int, 2)
_SMALLEST_RECORD_BYTES = cython.declare(cython.longlong, 7)
# What the fields of a usual record take at most, but for the bytes of its key and value.
_USUAL_FIELDS_BYTES = cython.declare(cython.longlong, 16)
# A delta beyond this is nonsense, and added to a base that is below it too it never overflows.
_FARTHEST_TIME_MS = cython.declare(cython.longlong, 2**62)


class UnpackedTooLargeError(CorruptBatchError):
    """A batch whose records would take more room, once decompressed, than the caller allows."""


class RecordReader:
    """Goes from record to record over bytes that may hold anything; describes the record that it stands on.

    A size of -1 is a null; nothing else below 0 gets through. Its C attributes and methods are declared in
    `record_reading.pxd`.
    """

    def __init__(self, section: memoryview) -> None:
        self.view = section
        self.data = address(section)
        self.position = 0
        self.at = 0
        self.end = len(section)
        self.records_count = self.remaining = 0
        self.base_offset = self.last_offset_delta = 0
        self.base_timestamp_ms = self.append_time_ms = 0
        self.takes_append_time = False
        self.fault = _SOUND
        self.timestamp_delta = self.offset_delta = 0
        self.previous_delta = self.largest_ms = -1
        self.key_at = self.value_at = self.headers_at = 0
        self.key_size = self.value_size = -1
        self.headers_count = 0

    def advance(self) -> cython.bint:
        """Steps to the next record. False at the end or where the bytes make no sense; `finish` knows."""
        data: cython.p_uchar = self.data
        at: cython.longlong
        end: cython.longlong
        size: cython.longlong
        if self.remaining <= 0:
            return False
        self.fault = _UNREADABLE
        size, at = number(data, self.at, self.end, 5)
        end = at + size
        if size < 0 or end > self.end:
            return False
        # One byte of attributes, of which none is in use, comes first.
        self.timestamp_delta, at = number(data, at + 1, end, 10)
        self.offset_delta, at = number(data, at, end, 5)
        self.key_size, at = number(data, at, end, 5)
        self.key_at = at
        if self.key_size > 0:
            at += self.key_size
        self.value_size, at = number(data, at, end, 5)
        self.value_at = at
        if self.value_size > 0:
            at += self.value_size
        self.headers_at = at
        self.headers_count, at = number(data, at, end, 5)
        if self.headers_count != 0:
            at = _skip_headers(data, at, end, self.headers_count)
        # A number that could not be read has left `at` behind the end, and so have sizes that lie.
        if at != end or self.key_size < -1 or self.value_size < -1:
            return False
        if self.offset_delta < 0 or self.offset_delta > self.last_offset_delta:
            return False
        if self.timestamp_delta > _FARTHEST_TIME_MS or self.timestamp_delta < -_FARTHEST_TIME_MS:
            self.fault = _NO_TIME
            return False
        self.fault = _SOUND
        self.at = at
        self.remaining -= 1
        return True

    def find_problem(
        self,
        without_gaps: cython.bint,
        needs_key: cython.bint,
        earliest_ms: cython.longlong,
        latest_ms: cython.longlong,
    ) -> cython.int:
        """Steps to the next record that breaks a rule and says which; 0 at the end or where the bytes make no sense.

        Offsets must rise, `without_gaps` by one from nought on. `largest_ms` is kept up to date.
        """
        time_ms: cython.longlong
        problem: cython.int = 0
        while True:
            if without_gaps:
                self.skip_usual(needs_key, earliest_ms, latest_ms)
            if not self.advance():
                return 0
            if self.offset_delta <= self.previous_delta or (
                without_gaps and self.offset_delta != self.previous_delta + 1
            ):
                self.fault = _OUT_OF_ORDER
                return 0
            self.previous_delta = self.offset_delta
            time_ms = self.base_timestamp_ms + self.timestamp_delta
            if time_ms > self.largest_ms:
                self.largest_ms = time_ms
            if needs_key and self.key_size < 0:
                problem = _WITHOUT_KEY
            elif (time_ms < earliest_ms or time_ms > latest_ms) and time_ms != -1:
                problem = _OUT_OF_TIME
            if problem != 0:
                return problem

    def skip_usual(
        self, needs_key: cython.bint, earliest_ms: cython.longlong, latest_ms: cython.longlong
    ) -> cython.bint:
        """Passes over records that are as most are: small numbers, no headers, the next offset, nothing against a rule.

        Stops before any other, of which `advance` is the judge; takes half of its time. A record of that kind that is
        shorter than `_USUAL_FIELDS_BYTES` is left to it too, so that fields are read without looking for the end.
        """
        data: cython.p_uchar = self.data
        end: cython.longlong = self.end - _USUAL_FIELDS_BYTES
        at: cython.longlong = self.at
        start: cython.longlong = at
        stop: cython.longlong
        raw: cython.longlong
        time_ms: cython.longlong
        expected: cython.longlong = self.previous_delta + 1
        last: cython.longlong = self.last_offset_delta
        remaining: cython.longlong = self.remaining
        largest_ms: cython.longlong = self.largest_ms
        while remaining > 0 and at < end and expected <= last:
            start = at
            raw = data[at]
            at += 1
            if raw >= 0x80:
                raw = (raw & 0x7F) | data[at] << 7
                at += 1
                if raw >= 0x4000:
                    raw = (raw & 0x3FFF) | data[at] << 14
                    at += 1
            stop = at + (raw >> 1)
            if raw >= 0x200000 or raw & 1 or stop > self.end:
                break
            at += 1
            raw = data[at]
            at += 1
            if raw >= 0x80:
                raw = (raw & 0x7F) | data[at] << 7
                at += 1
                if raw >= 0x4000:
                    raw = (raw & 0x3FFF) | data[at] << 14
                    at += 1
                    if raw >= 0x200000:
                        break
            time_ms = self.base_timestamp_ms + ((raw >> 1) ^ -(raw & 1))
            raw = data[at]
            at += 1
            if raw >= 0x80:
                raw = (raw & 0x7F) | data[at] << 7
                at += 1
                if raw >= 0x4000:
                    raw = (raw & 0x3FFF) | data[at] << 14
                    at += 1
            # The key's size: one byte, and -1 for none. An offset of four bytes is not the expected one doubled.
            if raw != expected << 1 or raw >= 0x200000 or data[at] >= 0x80:
                break
            raw = data[at]
            at += 1
            if raw & 1:
                if raw != 1 or needs_key:
                    break
            else:
                at += raw >> 1
            if at >= end:
                break
            raw = data[at]
            at += 1
            if raw >= 0x80:
                raw = (raw & 0x7F) | data[at] << 7
                at += 1
                if raw >= 0x4000:
                    raw = (raw & 0x3FFF) | data[at] << 14
                    at += 1
                    if raw >= 0x200000:
                        break
            if raw & 1:
                if raw != 1:
                    break
            else:
                at += raw >> 1
            if at + 1 != stop or data[at] != 0:
                break
            if (time_ms < earliest_ms or time_ms > latest_ms) and time_ms != -1:
                break
            if time_ms > largest_ms:
                largest_ms = time_ms
            at = start = stop
            expected += 1
            remaining -= 1
        self.at = start
        self.previous_delta = expected - 1
        self.remaining = remaining
        self.largest_ms = largest_ms
        return True

    def offset(self) -> cython.longlong:
        """Of the record that it stands on."""
        return self.base_offset + self.offset_delta

    def timestamp_ms(self) -> cython.longlong:
        """Of the record that it stands on: the producer's time or the broker's, as the batch says."""
        if self.takes_append_time:
            return self.append_time_ms
        return self.base_timestamp_ms + self.timestamp_delta

    def headers_size(self) -> cython.longlong:
        """Of the headers with their number, or 0 if there are none."""
        return self.at - self.headers_at if self.headers_count else 0

    def finish(self) -> cython.bint:
        """CorruptBatchError unless every record was read and nothing is left."""
        if self.fault != _SOUND:
            index = self.records_count - self.remaining
            if self.fault == _OUT_OF_ORDER:
                index -= 1
                raise CorruptBatchError(self.position, f"record {index} has offset delta {self.offset_delta}")
            what = f"is {self.timestamp_delta} ms away" if self.fault == _NO_TIME else "does not parse"
            raise CorruptBatchError(self.position, f"record {index} of {self.records_count} {what}")
        if self.at != self.end:
            raise CorruptBatchError(self.position, f"{self.end - self.at} bytes are left behind the last record")
        return True


class HeaderReader:
    """Goes from header to header of one record, whose bytes a RecordReader has checked."""

    def __init__(self) -> None:
        self.remaining = 0
        self.at = self.end = 0
        self.name_at = self.name_size = self.content_at = self.content_size = 0

    def start(self, data: cython.p_uchar, at: cython.longlong, end: cython.longlong) -> cython.void:
        """Stands before the first header; `at` is where their number is."""
        self.data = data
        self.end = end
        self.remaining, self.at = number(data, at, end, 5)

    def advance(self) -> cython.bint:
        """Steps to the next header; False behind the last."""
        if self.remaining <= 0:
            return False
        self.remaining -= 1
        self.name_size, self.name_at = number(self.data, self.at, self.end, 5)
        self.content_size, self.content_at = number(self.data, self.name_at + self.name_size, self.end, 5)
        self.at = self.content_at + self.content_size if self.content_size > 0 else self.content_at
        return True


def open_batch(view: memoryview, header: BatchHeader, limit_bytes: cython.longlong) -> RecordReader:
    """A reader that stands before the first record of the batch, decompressed where needed.

    `view` is what `octets` gave.
    """
    start, end, codec, records_count, base_offset, last_delta, base_time_ms, append_time_ms = header.layout()
    if end > len(view):
        raise ValueError(f"a buffer of {len(view)} bytes does not hold {header!r}")
    section = view[start:end]
    if codec:
        section = _decompress(codec, section, limit_bytes, header)
    reader: RecordReader = RecordReader(section)
    reader.position = header.position
    reader.records_count = reader.remaining = records_count
    reader.base_offset = base_offset
    reader.last_offset_delta = last_delta
    reader.base_timestamp_ms = base_time_ms
    reader.takes_append_time = append_time_ms is not None
    reader.append_time_ms = append_time_ms or 0
    if reader.records_count * _SMALLEST_RECORD_BYTES > reader.end:
        raise CorruptBatchError(header.position, f"{records_count} records in {reader.end} bytes")
    return reader


def read_headers(data: cython.p_uchar, at: cython.longlong, end: cython.longlong) -> RecordHeaders:
    """The headers whose number is at `at`, which a RecordReader has checked."""
    reader: HeaderReader = HeaderReader()
    reader.start(data, at, end)
    headers = []
    while reader.advance():
        name: bytes = octets_at(data, reader.name_at, reader.name_size)
        headers.append((name.decode("utf-8", "replace"), octets_at(data, reader.content_at, reader.content_size)))
    return tuple(headers)


def decode_headers(section: bytes) -> RecordHeaders:
    """The headers of a record from their bytes, as a RecordReader has checked them; none in no bytes."""
    view = memoryview(section)
    return read_headers(address(view), 0, len(view)) if section else ()


def _decompress(codec: int, section: memoryview, limit_bytes: int, header: BatchHeader) -> memoryview:
    try:
        return codecs.decompress(codec, section, limit_bytes)
    except codecs.OutputLimitError as error:
        raise UnpackedTooLargeError(header.position, str(error)) from error
    except codecs.DecompressionError as error:
        raise CorruptBatchError(header.position, str(error)) from error


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _skip_headers(
    data: cython.p_uchar, at: cython.longlong, end: cython.longlong, count: cython.longlong
) -> cython.longlong:
    """The index after so many headers, or one behind the end when they are not sound."""
    size: cython.longlong
    while count > 0:
        size, at = number(data, at, end, 5)
        if size < 0:
            return end + 1
        size, at = number(data, at + size, end, 5)
        if size < -1 or at > end:
            return end + 1
        if size > 0:
            at += size
        count -= 1
    return at if count == 0 else end + 1


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def number(
    data: cython.p_uchar, at: cython.longlong, end: cython.longlong, longest: cython.int
) -> tuple[cython.longlong, cython.longlong]:
    """The zig-zag number at `at`, of at most `longest` bytes, and the index after it.

    The index is behind the end when there is no sound number before `end`; to read on from there fails
    again, so a row of numbers needs one check, at its end.
    """
    raw: cython.ulonglong
    byte: cython.ulonglong
    length: cython.int
    if at >= end:
        return 0, end + 1
    raw = data[at]
    if raw >= 0x80:
        raw &= 0x7F
        length = 1
        while True:
            if length == longest or at + length >= end:
                return 0, end + 1
            byte = data[at + length]
            # The last byte has room for the last bits of 32 or of 64, and no more.
            if length == longest - 1 and byte > (0x0F if longest == 5 else 0x01):
                return 0, end + 1
            raw |= (byte & 0x7F) << (7 * length)
            length += 1
            if byte < 0x80:
                break
        at += length - 1
    return (raw >> 1) ^ -(raw & 1), at + 1


def octets_at(data: cython.p_uchar, at: cython.longlong, size: cython.longlong) -> Any:
    """A copy of the bytes there; None for the size of a null."""
    if size < 0:
        return None
    if cython.compiled:
        return data[at : at + size]
    else:  # noqa: RET505
        return bytes(data[at : at + size])


def address(view: memoryview) -> cython.p_uchar:
    """The bytes behind a view: a C pointer when compiled, else the view itself. Both are indexed alike."""
    if cython.compiled:
        return cython.cast(cython.p_uchar, PyMemoryView_GET_BUFFER(view).buf)
    else:  # noqa: RET505
        return view
