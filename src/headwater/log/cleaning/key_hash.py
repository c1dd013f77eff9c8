"""A hash of 16 bytes that stands for a key: SipHash-2-4 with a secret, so that nobody can choose keys that collide.

Compiled by Cython (pure Python mode) and correct without it; `key_hash.pxd` is its C side, for the map of offsets.
"""
# mypy: disallow-untyped-decorators=False

from __future__ import annotations

try:
    import cython
except ImportError:
    from headwater.protocol import without_cython as cython

if cython.compiled:
    from cython.cimports.libc.string import memcpy

# Declared so, a name is a C variable: quick, and invisible from Python.
_ALL_BITS = cython.declare(cython.ulonglong, 2**64 - 1)
# "somepseudorandomlygeneratedbytes", as SipHash's authors chose to begin.
_SIP_0 = cython.declare(cython.ulonglong, 0x736F6D6570736575)
_SIP_1 = cython.declare(cython.ulonglong, 0x646F72616E646F6D)
_SIP_2 = cython.declare(cython.ulonglong, 0x6C7967656E657261)
_SIP_3 = cython.declare(cython.ulonglong, 0x7465646279746573)


def hash_of_key(key: bytes, secret: bytes) -> bytes:
    """The 16 bytes that stand for a key."""
    octets: cython.p_uchar = key
    first, second = hash_key(
        octets,
        0,
        len(key),
        int.from_bytes(secret[:8], "little"),
        int.from_bytes(secret[8:], "little"),
    )
    hashed: bytes = first.to_bytes(8, "little") + second.to_bytes(8, "little")
    return hashed


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def hash_key(
    data: cython.p_uchar,
    at: cython.longlong,
    size: cython.longlong,
    secret_0: cython.ulonglong,
    secret_1: cython.ulonglong,
) -> tuple[cython.ulonglong, cython.ulonglong]:
    """SipHash-2-4 with a result of 128 bits."""
    end: cython.longlong = at + size
    word: cython.ulonglong
    shift: cython.int = 0
    first: cython.ulonglong
    v0: cython.ulonglong = secret_0 ^ _SIP_0
    v1: cython.ulonglong = secret_1 ^ _SIP_1 ^ 0xEE
    v2: cython.ulonglong = secret_0 ^ _SIP_2
    v3: cython.ulonglong = secret_1 ^ _SIP_3
    while end - at >= 8:
        word = _word(data, at)
        at += 8
        v3 ^= word
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
        v0 ^= word
    word = size & 0xFF
    word <<= 56
    while at < end:
        first = data[at]
        word |= first << shift
        shift += 8
        at += 1
    v3 ^= word
    v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    v0 ^= word
    v2 ^= 0xEE
    for _ in range(4):
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    first = v0 ^ v1 ^ v2 ^ v3
    v1 ^= 0xDD
    for _ in range(4):
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    return first, v0 ^ v1 ^ v2 ^ v3


@cython.cfunc
@cython.nogil
@cython.inline
@cython.exceptval(check=False)
def _round(
    v0: cython.ulonglong, v1: cython.ulonglong, v2: cython.ulonglong, v3: cython.ulonglong
) -> tuple[cython.ulonglong, cython.ulonglong, cython.ulonglong, cython.ulonglong]:
    # In C the numbers are of 64 bits anyway; without it the mask makes them so.
    mask: cython.ulonglong = _ALL_BITS
    v0 = (v0 + v1) & mask
    v2 = (v2 + v3) & mask
    v1 = ((v1 << 13) & mask | v1 >> 51) ^ v0
    v3 = ((v3 << 16) & mask | v3 >> 48) ^ v2
    v0 = (v0 << 32) & mask | v0 >> 32
    v2 = (v2 + v1) & mask
    v0 = (v0 + v3) & mask
    v1 = ((v1 << 17) & mask | v1 >> 47) ^ v2
    v3 = ((v3 << 21) & mask | v3 >> 43) ^ v0
    v2 = (v2 << 32) & mask | v2 >> 32
    return v0, v1, v2, v3


@cython.cfunc
@cython.nogil
@cython.inline
@cython.exceptval(check=False)
def _word(data: cython.p_uchar, at: cython.longlong) -> cython.ulonglong:
    word: cython.ulonglong = 0
    if cython.compiled:
        memcpy(cython.address(word), data + at, 8)
    else:
        word = int.from_bytes(data[at : at + 8], "little")
    return word
