"""The codecs write what Kafka's clients read, read what they write, and no few bytes become too many."""

import gzip
import random
import struct
from contextlib import suppress

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.protocol.compression import (
    CODECS,
    CODECS_BY_NAME,
    GZIP,
    LZ4,
    NONE,
    SNAPPY,
    ZSTD,
    Codec,
    DecompressionError,
    compress,
    decompress,
    decompress_onto,
)

LIMIT_BYTES = 1 << 20
COMPRESSING = [GZIP, SNAPPY, LZ4, ZSTD]
TEXT = b"a line of some log, much like the one before it\n" * 6000
NOISE = random.Random(7).randbytes(200_000)


def test_codecs_have_kafkas_ids_and_names() -> None:
    assert [(codec.id, codec.name) for codec in CODECS] == list(enumerate(["none", "gzip", "snappy", "lz4", "zstd"]))
    assert CODECS_BY_NAME["lz4"].id == LZ4


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name)
@pytest.mark.parametrize("data", [b"", b"x", TEXT, NOISE, TEXT + NOISE], ids=["empty", "one", "text", "noise", "both"])
def test_what_goes_in_comes_out(codec: Codec, data: bytes) -> None:
    codec_id = codec.id
    packed = compress(codec_id, data)
    assert decompress(codec_id, packed, LIMIT_BYTES) == data
    assert decompress(codec_id, memoryview(bytearray(b"..") + packed)[2:], LIMIT_BYTES) == data
    if codec_id != NONE and data == TEXT:
        assert len(packed) < len(data) / 10


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name)
@pytest.mark.parametrize("room_bytes", [0, 10, 1 << 20], ids=["no room", "too little room", "room"])
@pytest.mark.parametrize("data", [b"", b"x", TEXT, NOISE, TEXT + NOISE], ids=["empty", "one", "text", "noise", "both"])
def test_a_buffer_is_written_from_a_place_on_and_grows(codec: Codec, room_bytes: int, data: bytes) -> None:
    target = bytearray(b"before" + bytes(room_bytes))
    end = decompress_onto(codec.id, compress(codec.id, data), target, 6, LIMIT_BYTES)
    assert target[:end] == b"before" + data
    # Nothing holds on to it.
    target += b"more"


def test_lz4_frames_in_a_row_are_all_read() -> None:
    packed = bytes(compress(LZ4, TEXT)) + bytes(compress(LZ4, b"end"))
    assert decompress(LZ4, packed, LIMIT_BYTES) == TEXT + b"end"
    target = bytearray()
    assert target[: decompress_onto(LZ4, packed, target, 0, LIMIT_BYTES)] == TEXT + b"end"


def test_lz4_data_that_is_cut_anywhere_is_refused() -> None:
    packed = compress(LZ4, TEXT[:100_000] + NOISE[:70_000])
    for size in [*range(1, 60), *range(61, len(packed), 997), len(packed) - 1]:
        with pytest.raises(DecompressionError):
            decompress_onto(LZ4, packed[:size], bytearray(), 0, LIMIT_BYTES)


@settings(deadline=None)
@given(codec_id=st.sampled_from(COMPRESSING), data=st.binary(max_size=3000), times=st.integers(1, 50))
def test_anything_goes_in_and_comes_out(codec_id: int, data: bytes, times: int) -> None:
    assert decompress(codec_id, compress(codec_id, data * times), LIMIT_BYTES) == data * times


@pytest.mark.parametrize(
    ("codec_id", "level"),
    [(GZIP, -1), (GZIP, 1), (GZIP, 9), (LZ4, 1), (LZ4, 9), (LZ4, 17), (ZSTD, -5), (ZSTD, 22)],
)
def test_levels_of_kafka_are_taken(codec_id: int, level: int) -> None:
    assert decompress(codec_id, compress(codec_id, TEXT, level), LIMIT_BYTES) == TEXT


@pytest.mark.parametrize(
    ("codec_id", "level", "allowed"),
    [
        (GZIP, 10, "-1 to 9"),
        (LZ4, 0, "1 to 17"),
        (ZSTD, 23, "-131072 to 22"),
        (SNAPPY, 1, "none"),
        (NONE, 1, "none"),
    ],
)
def test_a_level_that_does_not_exist_is_named(codec_id: int, level: int, allowed: str) -> None:
    with pytest.raises(ValueError, match=f"no compression level {level}; allowed: {allowed}"):
        compress(codec_id, TEXT, level)


def test_a_higher_level_makes_it_smaller() -> None:
    text = b"".join(b"%d %s\n" % (i * 7919 % 1000, NOISE[i : i + 3].hex().encode()) for i in range(5000))
    for codec_id, low, high in ((GZIP, 1, 9), (LZ4, 9, 12), (ZSTD, 1, 19)):
        assert len(compress(codec_id, text, high)) < len(compress(codec_id, text, low))


def test_lz4_frames_are_of_the_kind_that_java_reads() -> None:
    frame = bytes(compress(LZ4, TEXT))
    assert frame[:7] == bytes.fromhex("04224d18604082")
    assert frame[-4:] == bytes(4)
    assert bytes(cramjam.lz4.decompress(frame)) == TEXT


def test_lz4_frames_of_other_kinds_are_read() -> None:
    linked = bytes(cramjam.lz4.compress(TEXT))
    assert not linked[4] & 0x20
    assert decompress(LZ4, linked, LIMIT_BYTES) == TEXT
    assert decompress(LZ4, linked + bytes(compress(LZ4, b"more")), LIMIT_BYTES) == TEXT + b"more"


def test_snappy_is_framed_like_javas_and_read_without_frames_too() -> None:
    framed = bytes(compress(SNAPPY, TEXT))
    assert framed[:16] == b"\x82SNAPPY\0\0\0\0\1\0\0\0\1"
    (first_block,) = struct.unpack_from(">i", framed, 16)
    assert bytes(cramjam.snappy.decompress_raw(framed[20 : 20 + first_block])) == TEXT[: 32 * 1024]
    assert decompress(SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT)), LIMIT_BYTES) == TEXT


def test_gzip_and_zstd_may_come_in_pieces() -> None:
    pieces = gzip.compress(b"one ") + gzip.compress(b"two")
    assert bytes(decompress(GZIP, pieces, LIMIT_BYTES)) == b"one two"
    skipped = struct.pack("<II", 0x184D2A50, 3) + b"..."
    frames = bytes(cramjam.zstd.compress(b"one ")) + skipped + bytes(cramjam.zstd.compress(b"two"))
    assert bytes(decompress(ZSTD, frames, LIMIT_BYTES)) == b"one two"


@pytest.mark.parametrize("codec_id", COMPRESSING)
def test_the_limit_holds_to_the_byte_or_the_block(codec_id: int) -> None:
    packed = compress(codec_id, bytes(3_000_000))
    assert len(decompress(codec_id, packed, 3_000_000 + (1 << 17))) == 3_000_000
    with pytest.raises(DecompressionError, match="limit"):
        decompress(codec_id, packed, 2_999_999)


def zstd_runs(blocks: int) -> bytes:
    """A frame of runs: four bytes of it stand for 128 KiB."""
    block = (1 << 17 << 3 | 1 << 1).to_bytes(3, "little") + b"x"
    return b"\x28\xb5\x2f\xfd\x00\x58" + block * blocks + b"\x01\x00\x00"


def lz4_runs(blocks: int) -> bytes:
    """A frame of 4 MiB blocks, each of them a long run."""
    run = b"\x1fx\x01\x00" + b"\xff" * 16400 + b"\x00"
    return bytes.fromhex("04224d18607073") + (struct.pack("<I", len(run)) + run) * blocks + bytes(4)


@pytest.mark.parametrize(
    ("codec_id", "bomb"),
    [
        (ZSTD, zstd_runs(100_000)),
        (LZ4, lz4_runs(100)),
        (GZIP, gzip.compress(bytes(64 << 20), 1)),
        (GZIP, gzip.compress(bytes(1 << 19)) * 100),
        (SNAPPY, b"\xff\xff\xff\xff\x0f" + b"x"),
        (SNAPPY, b"\xff\xff\x3f" + b"x"),
        (SNAPPY, b"\x82SNAPPY\0\0\0\0\1\0\0\0\1" + (b"\0\0\0\6" + b"\xff\xff\x3f" + b"abc") * 100),
        (ZSTD, b"\x28\xb5\x2f\xfd\x00\xff" + b"\x01\x00\x00"),
    ],
    ids=[
        "zstd",
        "lz4",
        "gzip",
        "gzip in pieces",
        "snappy 4 GiB",
        "snappy 1 MiB of one byte",
        "xerial",
        "zstd window",
    ],
)
def test_a_bomb_does_not_go_off(codec_id: int, bomb: bytes) -> None:
    with pytest.raises(DecompressionError):
        decompress(codec_id, bomb, LIMIT_BYTES)


def test_small_bombs_are_just_data() -> None:
    assert len(decompress(ZSTD, zstd_runs(7), LIMIT_BYTES)) == 7 << 17


@settings(deadline=None, max_examples=200)
@given(codec_id=st.sampled_from([*COMPRESSING, 5, -1]), data=st.binary(max_size=200))
def test_any_bytes_are_decompressed_or_refused(codec_id: int, data: bytes) -> None:
    with suppress(DecompressionError):
        assert len(decompress(codec_id, data, LIMIT_BYTES)) <= LIMIT_BYTES


@settings(deadline=None, max_examples=400)
@given(
    codec_id=st.sampled_from(COMPRESSING),
    data=st.binary(max_size=300),
    times=st.integers(1, 400),
    changes=st.lists(st.tuples(st.integers(0, 2**20), st.integers(0, 255)), min_size=1, max_size=4),
    cut=st.integers(0, 30),
)
def test_harmed_data_is_decompressed_or_refused(
    codec_id: int, data: bytes, times: int, changes: list[tuple[int, int]], cut: int
) -> None:
    packed = bytearray(compress(codec_id, data * times))
    for at, value in changes:
        packed[at % len(packed)] = value
    with suppress(DecompressionError):
        assert len(decompress(codec_id, packed[: len(packed) - cut], LIMIT_BYTES)) <= LIMIT_BYTES
