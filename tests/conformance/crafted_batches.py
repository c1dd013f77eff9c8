"""Record batches that no honest producer writes, each wrong in one way, and real ones with harmed bytes.

Every batch has the right checksum: what is wrong must be found by looking inside.
"""

import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass

import crc32c

from headwater.protocol.compression import compress

from .batches import CODECS, now_ms, sized, varint

_OVERLONG_VARINT = b"\x80\x80\x80\x80\x80\x01"
_OVERLONG_VARLONG = b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01"


@dataclass(frozen=True, slots=True)
class Crafted:
    """A batch and the name of what is wrong with it."""

    name: str
    data: bytes


def record(
    delta: int,
    *,
    attributes: bytes = b"\0",
    timestamp: bytes = b"\0",
    offset: bytes | None = None,
    key: bytes | None = None,
    value: bytes | None = None,
    headers: bytes = b"\0",
    tail: bytes = b"",
    length: int | bytes | None = None,
    length_error: int = 0,
) -> bytes:
    """One record; each part may be replaced by other bytes."""
    key = sized(b"key") if key is None else key
    value = sized(b"a value") if value is None else value
    content = attributes + timestamp + (varint(delta) if offset is None else offset) + key + value + headers + tail
    if isinstance(length, bytes):
        return length + content
    return varint(len(content) + length_error if length is None else length) + content


def seal(
    body: bytes,
    *,
    count: int = 3,
    last_delta: int | None = None,
    codec: int = 0,
    attributes: int = 0,
    base_time_ms: int | None = None,
    max_time_ms: int | None = None,
    producer: tuple[int, int, int] = (-1, -1, -1),
    packed: bytes | None = None,
    base_offset: int = 0,
) -> bytes:
    """A batch of these records with this header, and the checksum that belongs to it."""
    base_time_ms = now_ms() if base_time_ms is None else base_time_ms
    max_time_ms = base_time_ms if max_time_ms is None else max_time_ms
    last_delta = count - 1 if last_delta is None else last_delta
    content = bytes(compress(codec, body)) if packed is None else packed
    fields = (attributes | codec, last_delta, base_time_ms, max_time_ms, *producer, count)
    covered = struct.pack(">hiqqqhii", *fields) + content
    head = struct.pack(">qiibI", base_offset, 9 + len(covered), -1, 2, crc32c.crc32c(covered))
    return head + covered


def with_right_checksum(batch: bytes) -> bytes:
    """The same with length and checksum made to fit."""
    fixed = bytearray(batch)
    struct.pack_into(">i", fixed, 8, len(fixed) - 12)
    struct.pack_into(">I", fixed, 17, crc32c.crc32c(bytes(fixed[21:])))
    return bytes(fixed)


def _bodies() -> Iterator[tuple[str, bytes]]:
    """Records of a batch that counts three; each row is wrong in one way, or strange and fine."""
    first, second, third = record(0), record(1), record(2)
    yield "fine", first + second + third
    yield "garbage", random.Random(15).randbytes(60)
    yield "noughts", bytes(60)
    yield "all ones", b"\xff" * 60
    yield "fewer records than counted", first + second
    yield "more records than counted", first + second + third + record(3)
    yield "one byte behind the records", first + second + third + b"\0"
    yield "the last record is cut", (first + second + third)[:-3]
    yield "a length beyond the end", first + second + record(2, length=1000)
    yield "a length that is too small", first + record(1, length_error=-1) + third
    yield "a length that is too large", first + second + record(2, length_error=1) + b"\0"
    yield "padding within a record", first + record(1, tail=b"\0\0") + third
    yield "a negative length", first + second + record(2, length=-1)
    yield "a length of nought", first + second + record(2, length=0)
    yield "an overlong length", first + second + record(2, length=_OVERLONG_VARINT)
    yield "a key of size -2", first + second + record(2, key=varint(-2))
    yield "a key of size -1000000", first + second + record(2, key=varint(-1_000_000))
    yield "a key beyond the record", first + second + record(2, key=varint(500) + b"key")
    yield "a key of two gibibytes", first + second + record(2, key=varint(2**31 - 1) + b"key")
    yield "a value of size -2", first + second + record(2, value=varint(-2))
    yield "a value beyond the record", first + second + record(2, value=varint(500) + b"v")
    yield "a value that reaches into the next record", first + record(1, value=varint(12) + b"v") + third
    yield "a negative number of headers", first + second + record(2, headers=varint(-1))
    yield "more headers than there are", first + second + record(2, headers=varint(5) + sized(b"h") + sized(b"x"))
    yield "two gibi headers", first + second + record(2, headers=varint(2**31 - 1))
    yield "fewer headers than there are", first + second + record(2, headers=varint(0) + sized(b"h") + sized(b"x"))
    yield "a header without a name", first + second + record(2, headers=varint(1) + varint(-1) + sized(b"x"))
    yield "a header's name beyond the record", first + second + record(2, headers=varint(1) + varint(99) + sized(b"x"))
    yield "a header's value of size -2", first + second + record(2, headers=varint(1) + sized(b"h") + varint(-2))
    yield "a header's value beyond", first + second + record(2, headers=varint(1) + sized(b"h") + varint(99) + b"x")
    yield "a header's name that is not UTF-8", first + second + record(2, headers=varint(1) + sized(b"\xff") + b"\1")
    yield "a header with a null value", first + second + record(2, headers=varint(1) + sized(b"h") + b"\1")
    yield "a null key and a null value", first + second + record(2, key=b"\1", value=b"\1")
    yield "offsets that begin at one", record(1) + record(2) + record(3)
    yield "offsets with a gap", first + record(1) + record(3)
    yield "the same offset twice", first + first + third
    yield "offsets backwards", third + second + first
    yield "a negative offset", record(-1) + second + third
    yield "an offset of two gibi", first + second + record(2**31 - 1)
    yield "an overlong offset", first + second + record(2, offset=_OVERLONG_VARINT)
    yield "an overlong time", first + second + record(2, timestamp=_OVERLONG_VARLONG)
    yield "a time far ahead", first + second + record(2, timestamp=varint(2**40))
    yield "a time that overflows", first + second + record(2, timestamp=varint(2**63 - 1))
    yield "a time before 1970", first + second + record(2, timestamp=varint(-(2**42)))
    yield "a time that underflows", first + second + record(2, timestamp=varint(-(2**63)))
    yield "attributes of a record", first + second + record(2, attributes=b"\xff")
    yield "the codec bits of a record", first + second + record(2, attributes=b"\1")
    yield "no records", b""


def _headers() -> Iterator[tuple[str, bytes]]:
    """Batches of three sound records with a strange header."""
    body = record(0) + record(1) + record(2)
    now = now_ms()
    yield "two gibi records", seal(body, count=2**31 - 1)
    yield "two gibi offsets", seal(body, last_delta=2**31 - 1)
    yield "a negative count", seal(body, count=-1)
    yield "a count of nought", seal(body, count=0)
    yield "a count of nought in no records", seal(b"", count=0)
    yield "a count of nought in one offset", seal(b"", count=0, last_delta=0)
    yield "a negative last offset", seal(body, last_delta=-5)
    yield "one record more than offsets", seal(body, last_delta=1)
    yield "one offset more than records", seal(body, last_delta=3)
    yield "a base offset", seal(body, base_offset=5)
    yield "a negative base offset", seal(body, base_offset=-5)
    yield "the largest of base offsets", seal(body, base_offset=2**63 - 1)
    yield "a largest time at the end of time", seal(body, max_time_ms=2**63 - 1)
    yield "a largest time that is too small", seal(body, max_time_ms=5)
    yield "a largest time of -1", seal(body, max_time_ms=-1)
    yield "a negative largest time", seal(body, max_time_ms=-(2**63))
    yield "no times", seal(body, base_time_ms=-1)
    yield "times below -1", seal(body, base_time_ms=-5)
    yield "times at the beginning of time", seal(body, base_time_ms=-(2**63))
    yield "times at the end of time", seal(body, base_time_ms=2**63 - 1)
    yield "the broker's own time", seal(body, attributes=0x08)
    yield "a transaction without a producer", seal(body, attributes=0x10)
    yield "a marker", seal(body, attributes=0x20)
    yield "a delete horizon", seal(body, attributes=0x40, base_time_ms=now)
    yield "an attribute without a meaning", seal(body, attributes=0x80)
    yield "attributes in the second byte", seal(body, attributes=0x0100)
    yield "all attributes but the codec", seal(body, attributes=0x7FC8 & ~0x38)
    for codec in (5, 6, 7):
        yield f"codec {codec}", seal(body, attributes=codec)
    yield "a producer without a sequence", seal(body, producer=(4_000_001, 0, -1))
    yield "a producer with a negative sequence", seal(body, producer=(4_000_002, 0, -7))
    yield "a producer with a negative epoch", seal(body, producer=(4_000_003, -3, 0))
    yield "a negative producer", seal(body, producer=(-7, 0, 0))
    yield "a sequence without a producer", seal(body, producer=(-1, -1, 12))
    yield "a sequence that wraps", seal(body, producer=(4_000_004, 0, 2**31 - 2))


def _streams(codec: int) -> Iterator[tuple[str, bytes]]:
    """Three sound records whose compressed bytes are not sound."""
    body = record(0) + record(1) + record(2, value=sized(b"0123456789" * 40))
    packed = bytes(compress(codec, body))
    yield "nothing", b""
    yield "one byte", packed[:1]
    yield "its first half", packed[: len(packed) // 2]
    yield "all but one byte", packed[:-1]
    yield "all but five bytes", packed[:-5]
    yield "a byte more", packed + b"\0"
    yield "garbage behind", packed + b"garbage behind it"
    yield "itself twice", packed + packed
    yield "no magic", b"\0\0\0\0" + packed[4:]
    yield "not packed at all", body
    for at in (4, 5, 6, len(packed) // 2, len(packed) - 6, len(packed) - 2):
        yield f"another byte {at}", packed[:at] + bytes([packed[at] ^ 0x55]) + packed[at + 1 :]


def crafted() -> list[Crafted]:
    """Every kind, in every codec where that makes a difference."""
    found = [Crafted(f"header: {name}", data) for name, data in _headers()]
    for codec, codec_name in enumerate(CODECS):
        found += [Crafted(f"{codec_name}: {name}", seal(body, codec=codec)) for name, body in _bodies()]
        if codec:
            found += [
                Crafted(f"{codec_name} stream: {name}", seal(b"", codec=codec, packed=packed))
                for name, packed in _streams(codec)
            ]
    return found


def mutated(count: int, *, seed: int) -> Iterator[Crafted]:
    """Real batches of every codec with a few bytes changed, cut or added, behind a checksum that fits."""
    chance = random.Random(seed)
    originals = [(codec, _real(chance, codec)) for codec in range(len(CODECS)) for _ in range(8)]
    for number in range(count):
        codec, original = chance.choice(originals)
        data = bytearray(original)
        # Mostly the records; the header has few fields and has its own cases.
        for _ in range(chance.choice((1, 1, 1, 2, 4))):
            _harm(chance, data, chance.randrange(61, len(data)) if chance.random() < 0.9 else chance.randrange(21, 61))
        # A transactional batch decides what is said of the whole request.
        data[22] &= ~0x10
        yield Crafted(f"seed {seed} number {number} ({CODECS[codec]})", with_right_checksum(bytes(data)))


def _harm(chance: random.Random, data: bytearray, at: int) -> None:
    at = min(at, len(data) - 1)
    kind = chance.randrange(5) if at >= 61 else 0
    if kind <= 1:
        data[at] ^= 1 << chance.randrange(8)
    elif kind == 2:
        data[at] = chance.choice((0, 1, 2, 0x7F, 0x80, 0xFF))
    elif kind == 3 and len(data) > 70:
        del data[at : at + chance.randrange(1, 4)]
    else:
        data[at:at] = chance.randbytes(chance.randrange(1, 4))


def _real(chance: random.Random, codec: int) -> bytes:
    parts, count = [], chance.randrange(1, 12)
    for delta in range(count):
        headers = [
            sized(b"name%d" % number) + sized(chance.randbytes(chance.randrange(6)))
            for number in range(chance.choice((0, 0, 1, 3)))
        ]
        key = chance.choice((varint(-1), sized(b"key%d" % delta), sized(b"")))
        value = chance.choice((varint(-1), sized(b"value " * chance.randrange(1, 30)), sized(chance.randbytes(90))))
        heads = varint(len(headers)) + b"".join(headers)
        parts.append(record(delta, timestamp=varint(chance.randrange(-50, 50)), key=key, value=value, headers=heads))
    return seal(b"".join(parts), count=count, codec=codec)
