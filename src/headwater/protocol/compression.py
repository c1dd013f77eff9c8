"""The codecs of record batches in Kafka's own framings, both ways, and what comes out is bounded.

A few hundred hostile bytes can stand for gigabytes. So the size of the output is worked out from the
headers of blocks (lz4, zstd) or their length prefixes (snappy), or watched (gzip), and beyond the limit
nothing is made.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import cramjam

if TYPE_CHECKING:
    from typing_extensions import Buffer

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)

_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_FLAGS_INDEPENDENT_64_KIB = b"\x60\x40\x82"
"""Version 1, blocks that do not refer to each other (Java reads no others), 64 KiB each; checksum."""
_LZ4_USUAL_HEADER = _LZ4_MAGIC + _LZ4_FLAGS_INDEPENDENT_64_KIB
_LZ4_BLOCK_BYTES = 1 << 16
_LZ4_DEFAULT_LEVEL = 9
_LZ4_HIGHEST_LEVEL = 12
_LZ4_STORED = 0x80000000
_LZ4_HIGHEST_RATIO = 255

_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_ZSTD_LARGEST_BLOCK_BYTES = 1 << 17

_GZIP_INPUT_BYTES = 1 << 16
_GZIP_OUTPUT_BYTES = 1 << 18

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK_BYTES = 32 * 1024
_SNAPPY_HIGHEST_RATIO = 64


class DecompressionError(ValueError):
    """Bytes that are not what the codec writes, or that would grow beyond the limit."""


class OutputLimitError(DecompressionError):
    """Bytes that would grow beyond the limit; nothing else is known to be wrong with them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Codec:
    """One way to compress the records of a batch. `levels` is None for a codec that has only one."""

    id: int
    name: str
    levels: range | None
    compress: Callable[[memoryview, int | None], Buffer]
    decompress: Callable[[memoryview, int], Buffer]


def compress(codec_id: int, data: Buffer, level: int | None = None) -> memoryview:
    """`data` compressed as Kafka's clients and brokers expect it; without a level, at Kafka's default."""
    codec = CODECS[codec_id]
    if level is not None and (codec.levels is None or level not in codec.levels):
        raise ValueError(f"{codec.name} has no compression level {level}; allowed: {_levels_in_words(codec)}")
    return memoryview(codec.compress(memoryview(data), level))


def decompress(codec_id: int, data: Buffer, limit_bytes: int) -> memoryview:
    """What was compressed to `data`; DecompressionError if that is not sound or more than `limit_bytes`."""
    if not 0 <= codec_id < len(CODECS):
        raise DecompressionError(f"compression codec {codec_id} is unknown")
    codec = CODECS[codec_id]
    try:
        return memoryview(codec.decompress(memoryview(data), limit_bytes))
    except (cramjam.DecompressionError, zlib.error, OverflowError) as error:
        raise DecompressionError(f"not sound {codec.name} data: {error}") from error


def decompress_onto(codec_id: int, data: Buffer, target: bytearray, at: int, limit_bytes: int) -> int:
    """The same into a buffer from `at` on, which is made longer where that is needed; where it ends there."""
    if codec_id == LZ4:
        try:
            end = _unlz4_onto(memoryview(data), target, at, limit_bytes)
        except cramjam.DecompressionError as error:
            raise DecompressionError(f"not sound lz4 data: {error}") from error
        if end is not None:
            return end
    content = decompress(codec_id, data, limit_bytes)
    target[at : at + len(content)] = content
    return at + len(content)


def _levels_in_words(codec: Codec) -> str:
    return "none" if codec.levels is None else f"{codec.levels.start} to {codec.levels.stop - 1}"


def _within(limit_bytes: int, size: int, codec_name: str) -> int:
    if size > limit_bytes:
        raise OutputLimitError(f"{codec_name} data may become {size} bytes; the limit is {limit_bytes}")
    return size


def _store(data: memoryview, level: int | None) -> Buffer:
    return data


def _unstore(data: memoryview, limit_bytes: int) -> Buffer:
    _within(limit_bytes, len(data), "uncompressed")
    return data


def _gzip(data: memoryview, level: int | None) -> Buffer:
    return cramjam.gzip.compress(data, level=6 if level is None or level < 0 else level)


def _gunzip(data: memoryview, limit_bytes: int) -> Buffer:
    """In pieces: zlib works without the interpreter's lock, but joins what it made with it."""
    out = bytearray()
    at = 0
    while at < len(data):
        # A file of gzip may be a row of members.
        member = zlib.decompressobj(wbits=31)
        rest: Buffer = b""
        while not member.eof:
            if not rest:
                rest = data[at : at + _GZIP_INPUT_BYTES]
                at += len(rest)
                if not rest:
                    raise DecompressionError("gzip data ends too early")
            out += member.decompress(rest, min(_GZIP_OUTPUT_BYTES, limit_bytes - len(out) + 1))
            if len(out) > limit_bytes:
                raise OutputLimitError(f"gzip data grows beyond the limit of {limit_bytes} bytes")
            rest = member.unconsumed_tail
        at -= len(member.unused_data)
    if not at:
        raise DecompressionError("gzip data is empty")
    return out


def _snappy(data: memoryview, level: int | None) -> Buffer:
    """As Java's SnappyOutputStream does ("xerial" framing): a header, then blocks with their lengths."""
    out = bytearray(_XERIAL_HEADER)
    for start in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK_BYTES])
        out += len(block).to_bytes(4, "big")
        out += block
    return out


def _unsnappy(data: memoryview, limit_bytes: int) -> Buffer:
    """Both what Java writes and the bare block of some other clients."""
    if data[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return _unsnappy_block(data, limit_bytes)
    out = bytearray()
    at = len(_XERIAL_HEADER)
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        at += 4
        if size > len(data) - at:
            raise DecompressionError("snappy data ends within a block")
        out += _unsnappy_block(data[at : at + size], limit_bytes - len(out))
        at += size
    return out


def _unsnappy_block(block: memoryview, limit_bytes: int) -> Buffer:
    size = _within(limit_bytes, cramjam.snappy.decompress_raw_len(block), "snappy")
    if size > _SNAPPY_HIGHEST_RATIO * len(block):
        raise DecompressionError(f"{len(block)} bytes of snappy data cannot stand for {size}")
    return cramjam.snappy.decompress_raw(block)


def _lz4(data: memoryview, level: int | None) -> Buffer:
    """An lz4 frame like Java's. At Kafka's default level, 9, Java takes the fast compressor; so do we."""
    if level is not None and level != _LZ4_DEFAULT_LEVEL:
        # These frames have a checksum after each block, which Java knows but does not write.
        compressor = cramjam.lz4.Compressor(
            level=min(level, _LZ4_HIGHEST_LEVEL), content_checksum=False, block_linked=False
        )
        compressor.compress(bytes(data))
        return compressor.finish()
    out = bytearray(_LZ4_USUAL_HEADER)
    for start in range(0, len(data), _LZ4_BLOCK_BYTES):
        block = data[start : start + _LZ4_BLOCK_BYTES]
        packed = cramjam.lz4.compress_block(block, store_size=False)
        if len(packed) < len(block):
            out += len(packed).to_bytes(4, "little")
            out += packed
        else:
            out += (len(block) | _LZ4_STORED).to_bytes(4, "little")
            out += block
    out += bytes(4)
    return out


def _unlz4(data: memoryview, limit_bytes: int) -> Buffer:
    room = bytearray(min(_LZ4_BLOCK_BYTES, limit_bytes))
    end = _unlz4_onto(data, room, 0, limit_bytes)
    return _unlz4_frames(data, limit_bytes) if end is None else memoryview(room)[:end]


def _unlz4_onto(data: memoryview, target: bytearray, at: int, limit_bytes: int) -> int | None:
    """One frame without checksums, as Java, librdkafka and we write it, block by block: in half the time of a decoder
    of frames. Where it ends in the target; None for anything else, which the other one judges."""
    if data[: len(_LZ4_USUAL_HEADER)] != _LZ4_USUAL_HEADER:
        return None
    position = len(_LZ4_USUAL_HEADER)
    while word := int.from_bytes(data[position : position + 4], "little"):
        size = word & ~_LZ4_STORED
        block = data[position + 4 : position + 4 + size]
        largest = size if word & _LZ4_STORED else min(_LZ4_BLOCK_BYTES, size * _LZ4_HIGHEST_RATIO)
        limit_bytes -= largest
        if limit_bytes < 0 or len(block) < size:
            return None
        if len(target) < at + largest:
            target += bytes(at + largest - len(target))
        if word & _LZ4_STORED:
            target[at : at + size] = block
            at += size
        else:
            room = memoryview(target)[at : at + largest]
            at += cramjam.lz4.decompress_block_into(block, room, output_len=largest)
            room.release()
        position += 4 + size
    return at if position + 4 == len(data) else None


def _unlz4_frames(data: memoryview, limit_bytes: int) -> Buffer:
    _within(limit_bytes, sum(_lz4_block_bounds(data)), "lz4")
    return cramjam.lz4.decompress(data)


def _lz4_block_bounds(data: memoryview) -> Iterator[int]:
    """How large each block of the frames can become at most, by the headers alone."""
    at = 0
    while at < len(data):
        if data[at : at + 4] != _LZ4_MAGIC or len(data) - at < 7:
            raise DecompressionError("no lz4 frame where one should start")
        flags = data[at + 4]
        largest = 1 << (8 + 2 * (data[at + 5] >> 4 & 7))
        # Content size and dictionary id are optional parts of the header; its checksum ends it.
        at += 7 + (8 if flags & 0x08 else 0) + (4 if flags & 0x01 else 0)
        while True:
            word = int.from_bytes(data[at : at + 4], "little")
            at += 4
            if at > len(data):
                raise DecompressionError("lz4 data ends within a frame")
            if word == 0:
                break
            size = word & ~_LZ4_STORED
            yield size if word & _LZ4_STORED else min(largest, size * _LZ4_HIGHEST_RATIO)
            at += size + (4 if flags & 0x10 else 0)
        at += 4 if flags & 0x04 else 0


def _zstd(data: memoryview, level: int | None) -> Buffer:
    return cramjam.zstd.compress(data, level=3 if level is None else level)


def _unzstd(data: memoryview, limit_bytes: int) -> Buffer:
    _within(limit_bytes, sum(_zstd_block_bounds(data, limit_bytes)), "zstd")
    return cramjam.zstd.decompress(data)


def _zstd_block_bounds(data: memoryview, limit_bytes: int) -> Iterator[int]:
    """How large each block of the frames can become at most, by the headers alone."""
    at = 0
    while at < len(data):
        if int.from_bytes(data[at : at + 4], "little") >> 4 == 0x184D2A5:
            # A frame for others' metadata, to be skipped.
            at += 8 + int.from_bytes(data[at + 4 : at + 8], "little")
            continue
        if data[at : at + 4] != _ZSTD_MAGIC or len(data) - at < 6:
            raise DecompressionError("no zstd frame where one should start")
        descriptor = data[at + 4]
        single_segment = descriptor >> 5 & 1
        largest = _ZSTD_LARGEST_BLOCK_BYTES
        if not single_segment:
            window = data[at + 5]
            window_bytes = (1 << (10 + (window >> 3))) * (8 + (window & 7)) // 8
            largest = min(largest, _within(max(limit_bytes, 1 << 23), window_bytes, "zstd"))
        at += 5 + (1 - single_segment) + (0, 1, 2, 4)[descriptor & 3]
        at += (single_segment, 2, 4, 8)[descriptor >> 6]
        last = 0
        while not last:
            word = int.from_bytes(data[at : at + 3], "little")
            at += 3
            if at > len(data):
                raise DecompressionError("zstd data ends within a frame")
            last, kind, size = word & 1, word >> 1 & 3, word >> 3
            # Raw and run-length blocks say what they become; a run is one byte of input.
            yield size if kind < 2 else largest
            at += 1 if kind == 1 else size
        at += 4 if descriptor & 4 else 0


CODECS = (
    Codec(id=NONE, name="none", levels=None, compress=_store, decompress=_unstore),
    Codec(id=GZIP, name="gzip", levels=range(-1, 10), compress=_gzip, decompress=_gunzip),
    Codec(id=SNAPPY, name="snappy", levels=None, compress=_snappy, decompress=_unsnappy),
    Codec(id=LZ4, name="lz4", levels=range(1, 18), compress=_lz4, decompress=_unlz4),
    Codec(id=ZSTD, name="zstd", levels=range(-131072, 23), compress=_zstd, decompress=_unzstd),
)
"""Every codec, at the index that is its id."""

CODECS_BY_NAME = {codec.name: codec for codec in CODECS}
