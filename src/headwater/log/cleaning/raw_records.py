"""Records of a batch gone through where they lie, and their timestamps written anew.

Compiled by Cython (pure Python mode) and correct without it; `raw_records.pxd` is its C side, for the map of offsets.
Every length was written by a stranger: nothing is read before it was compared with the end of the records.
"""
# mypy: disallow-untyped-decorators=False

from __future__ import annotations

from array import array

try:
    import cython
except ImportError:
    from headwater.protocol import without_cython as cython

if cython.compiled:
    from cython.cimports.cpython.array import array as c_array
    from cython.cimports.cpython.memoryview import PyMemoryView_GET_BUFFER

# Where in the description of a record is what. Declared so, a name is a C variable.
TIME_DELTA = cython.declare(cython.int, 0)
OFFSET_DELTA = cython.declare(cython.int, 1)
KEY_AT = cython.declare(cython.int, 2)
KEY_SIZE = cython.declare(cython.int, 3)
VALUE_SIZE = cython.declare(cython.int, 4)
AFTER_TIME = cython.declare(cython.int, 5)
RECORD_FIELDS = 6
"""How many numbers describe a record: room for these has to be given."""

_SMALLEST_RECORD_BYTES = cython.declare(cython.longlong, 7)
_FARTHEST_TIME_MS = cython.declare(cython.longlong, 2**62)


def shift_timestamps(records: memoryview, count: int, shift_ms: int) -> bytearray:
    """The same records for a batch whose base timestamp is smaller by `shift_ms`: every delta grows by it."""
    data: cython.p_uchar = octets(records)
    fields = array("q", bytes(8 * RECORD_FIELDS))
    record: cython.p_longlong = longs(fields)
    at: cython.longlong = 0
    end: cython.longlong = len(records)
    next_at: cython.longlong
    out = bytearray()
    for _ in range(count):
        next_at = read_record(data, at, end, 2**31 - 1, record)
        if next_at < 0:
            raise ValueError("records that do not parse cannot be given another base timestamp")
        delta = _varint(record[TIME_DELTA] + shift_ms)
        rest = records[record[AFTER_TIME] : next_at]
        # One byte of attributes comes first.
        out += _varint(1 + len(delta) + len(rest))
        out.append(0)
        out += delta
        out += rest
        at = next_at
    return out


def _varint(value: int) -> bytes:
    raw = value << 1 if value >= 0 else (-value << 1) - 1
    out = bytearray()
    while raw >= 0x80:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def integer(data: cython.p_uchar, at: cython.longlong, size: cython.int) -> cython.longlong:
    """The signed number in so many bytes, the highest first."""
    index: cython.int
    number: cython.longlong = data[at]
    number = (number ^ 0x80) - 0x80
    for index in range(1, size):
        number = number * 256 + data[at + index]
    return number


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def read_record(
    data: cython.p_uchar,
    at: cython.longlong,
    end: cython.longlong,
    last_delta: cython.longlong,
    record: cython.p_longlong,
) -> cython.longlong:
    """Describe the record at `at`, but not its headers; where the next one begins, -1 if it is not sound."""
    size: cython.longlong
    record_end: cython.longlong
    size, at = _number(data, at, end)
    record_end = at + size
    if size < _SMALLEST_RECORD_BYTES - 1 or record_end > end or at > end:
        return -1
    # One byte of attributes, of which none is in use, comes first.
    record[TIME_DELTA], at = _number(data, at + 1, record_end)
    record[AFTER_TIME] = at
    record[OFFSET_DELTA], at = _number(data, at, record_end)
    record[KEY_SIZE], at = _number(data, at, record_end)
    record[KEY_AT] = at
    if record[KEY_SIZE] > record_end - at:
        return -1
    if record[KEY_SIZE] > 0:
        at += record[KEY_SIZE]
    record[VALUE_SIZE], at = _number(data, at, record_end)
    if record[VALUE_SIZE] >= record_end - at or at > record_end:
        return -1
    if record[KEY_SIZE] < -1 or record[VALUE_SIZE] < -1:
        return -1
    if record[OFFSET_DELTA] < 0 or record[OFFSET_DELTA] > last_delta:
        return -1
    if record[TIME_DELTA] > _FARTHEST_TIME_MS or record[TIME_DELTA] < -_FARTHEST_TIME_MS:
        return -1
    return record_end


@cython.cfunc
@cython.nogil
@cython.inline
@cython.exceptval(check=False)
def _number(data: cython.p_uchar, at: cython.longlong, end: cython.longlong) -> tuple[cython.longlong, cython.longlong]:
    """The zig-zag number at `at` and the index after it, which is behind the end when there is no sound number.

    To read on from behind the end fails again, so a row of numbers needs one check, at its end.
    """
    raw: cython.ulonglong
    byte: cython.ulonglong
    shift: cython.int = 7
    if at >= end:
        return 0, end + 1
    raw = data[at]
    at += 1
    if raw < 0x80:
        return (raw >> 1) ^ -(raw & 1), at
    raw &= 0x7F
    while at < end and shift < 63:
        byte = data[at]
        at += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), at
        shift += 7
    return 0, end + 1


# The two below give C pointers when compiled and otherwise the objects themselves: both are indexed alike.


@cython.cfunc
@cython.exceptval(check=False)
def octets(view: object) -> cython.p_uchar:
    """The bytes behind a memoryview."""
    if cython.compiled:
        return cython.cast(cython.p_uchar, PyMemoryView_GET_BUFFER(view).buf)
    else:  # noqa: RET505
        return view


@cython.cfunc
@cython.exceptval(check=False)
def longs(numbers: object) -> cython.p_longlong:
    """The numbers of an array of type "q"."""
    if cython.compiled:
        return cython.cast(c_array, numbers).data.as_longlongs
    else:  # noqa: RET505
        return numbers
