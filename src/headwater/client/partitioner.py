"""Which partition a key belongs to: murmur2, bit for bit what Java's default partitioner computes.

Compiled by Cython (pure Python mode) and correct without it: 64 bits hold every product before it is cut
to 32 bits.
"""

from __future__ import annotations

try:
    import cython
except ImportError:
    from headwater.protocol import without_cython as cython


def murmur2(data: bytes) -> int:
    """Java's `Utils.murmur2` as an unsigned 32-bit number.

    >>> murmur2(b"foobar")
    3504634814
    """
    octets: cython.p_uchar = data
    size: cython.Py_ssize_t = len(data)
    at: cython.Py_ssize_t = 0
    m: cython.ulonglong = 0x5BD1E995
    mask: cython.ulonglong = 0xFFFFFFFF
    h: cython.ulonglong = 0x9747B28C ^ size
    k: cython.ulonglong
    while size - at >= 4:
        k = octets[at + 3]
        k = (k << 8) | octets[at + 2]
        k = (k << 8) | octets[at + 1]
        k = (k << 8) | octets[at]
        k = (k * m) & mask
        k = ((k ^ (k >> 24)) * m) & mask
        h = ((h * m) & mask) ^ k
        at += 4
    if at < size:
        k = 0
        while size > at:
            size -= 1
            k = (k << 8) | octets[size]
        h = ((h ^ k) * m) & mask
    h = ((h ^ (h >> 13)) * m) & mask
    hashed: int = h ^ (h >> 15)
    return hashed


def partition_for_key(key: bytes, partitions: int) -> int:
    """The partition of `key` in a topic of so many partitions.

    >>> partition_for_key(b"foobar", 12)
    6
    """
    return (murmur2(key) & 0x7FFFFFFF) % partitions
