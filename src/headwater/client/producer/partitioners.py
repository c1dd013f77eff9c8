"""Which partition a key belongs to: murmur2, bit for bit what Java's default partitioner computes.

For one key, or for a column of them at once. Compiled by Cython (pure Python mode) and correct without it, with
`partitioners.pxd` as its C side: 64 bits hold every product before it is cut to 32 bits.
"""
# mypy: disallow-untyped-decorators=False

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

try:
    import cython
except ImportError:
    from headwater.protocol import without_cython as cython

if TYPE_CHECKING or not cython.compiled:
    from headwater.protocol.raw_memory import ints, longs
    from headwater.protocol.record_writing import BinaryRows
else:
    from cython.cimports.headwater.protocol.raw_memory import ints, longs
    from cython.cimports.headwater.protocol.record_writing import BinaryRows


def murmur2(data: bytes) -> cython.uint:
    """Java's `Utils.murmur2` as an unsigned 32-bit number.

    >>> murmur2(b"foobar")
    3504634814
    """
    return _murmur2(data, 0, len(data))


def partition_for_key(key: bytes, partitions: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """The partition of `key` in a topic of so many partitions.

    >>> partition_for_key(b"foobar", 12)
    6
    """
    return (_murmur2(key, 0, len(key)) & 0x7FFFFFFF) % partitions


def partitions_for_keys(keys: BinaryRows, partitions: int, without_key: int) -> array[int]:
    """The partition of each key of a column, as 32-bit numbers; `without_key` for a null."""
    count: cython.Py_ssize_t = keys.count
    modulus: cython.ulonglong = partitions
    found = array("i", bytes(4 * count))
    target: cython.p_int = ints(found)
    fallback: cython.int = without_key
    row: cython.Py_ssize_t
    size: cython.longlong
    for row in range(count):
        size = keys.size(row)
        if size < 0:
            target[row] = fallback
        else:
            target[row] = (_murmur2(keys.octets, keys.offset(row), size) & 0x7FFFFFFF) % modulus
    return found


def rows_by_partition(chosen: array[int], partitions: int) -> list[memoryview]:
    """For each partition its rows in their order, as 64-bit numbers; `chosen` has the partition of each row."""
    if chosen.typecode != "i":
        raise ValueError("the partitions of rows are 32-bit numbers")
    count: cython.Py_ssize_t = len(chosen)
    limit: cython.Py_ssize_t = partitions
    source: cython.p_int = ints(chosen)
    ends = array("q", bytes(8 * (partitions + 1)))
    next_of: cython.p_longlong = longs(ends)
    picks = array("q", bytes(8 * count))
    target: cython.p_longlong = longs(picks)
    row: cython.Py_ssize_t
    number: cython.Py_ssize_t
    for row in range(count):
        number = source[row]
        if number < 0 or number >= limit:
            raise ValueError(f"row {row} was given partition {number} of {partitions}")
        next_of[number + 1] += 1
    for number in range(limit):
        next_of[number + 1] += next_of[number]
    # Each partition's place to write to begins where it begins, and ends where the next one does.
    for row in range(count):
        number = source[row]
        target[next_of[number]] = row
        next_of[number] += 1
    view = memoryview(picks)
    return [view[0 if number == 0 else ends[number - 1] : ends[number]] for number in range(partitions)]


@cython.cfunc
@cython.exceptval(check=False)
def _murmur2(octets: cython.p_uchar, at: cython.longlong, size: cython.longlong) -> cython.uint:
    end: cython.longlong = at + size
    m: cython.ulonglong = 0x5BD1E995
    mask: cython.ulonglong = 0xFFFFFFFF
    h: cython.ulonglong = 0x9747B28C ^ size
    k: cython.ulonglong
    while end - at >= 4:
        k = octets[at + 3]
        k = (k << 8) | octets[at + 2]
        k = (k << 8) | octets[at + 1]
        k = (k << 8) | octets[at]
        k = (k * m) & mask
        k = ((k ^ (k >> 24)) * m) & mask
        h = ((h * m) & mask) ^ k
        at += 4
    if at < end:
        k = 0
        while end > at:
            end -= 1
            k = (k << 8) | octets[end]
        h = ((h ^ k) * m) & mask
    h = ((h ^ (h >> 13)) * m) & mask
    return h ^ (h >> 15)
