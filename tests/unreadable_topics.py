"""Topics of a real broker with batches that none takes from a client: written into the segment while it is down."""

import struct
import zlib
from collections.abc import Mapping
from pathlib import Path

from fetched_logs import batch, resealed
from headwater import Admin, LocalBroker

RECORDS = 3
"""Each batch has so many offsets, readable or not."""


def sound(base: int) -> bytes:
    """Records that say where they are."""
    return batch(base, [b'{"id": %d}' % offset for offset in range(base, base + RECORDS)])


def damaged(base: int) -> bytes:
    """With a checksum that does not match."""
    return sound(base)[:-1] + b"?"


def with_records(base: int, section: bytes, codec: int = 0) -> bytes:
    """A header as it should be, checksum included, over anything that is said to be the records."""
    head = bytearray(sound(base)[:61]) + section
    struct.pack_into(">i", head, 8, len(head) - 12)
    struct.pack_into(">h", head, 21, codec)
    return resealed(head)


def half_readable(base: int) -> bytes:
    """Two records, and then none."""
    section = sound(base)[61:]
    return with_records(base, section[: 2 * len(section) // 3] + b"\xff" * (len(section) // 3))


def claims_two_billion(base: int) -> bytes:
    """As many records as a number can say, in the bytes of three."""
    head = bytearray(sound(base))
    struct.pack_into(">i", head, 57, 2**31 - 1)
    return resealed(head)


def bomb(base: int) -> bytes:
    """A few hundred KiB that stand for more than a batch may become."""
    packer = zlib.compressobj(9, wbits=31)
    part = bytes(1 << 20)
    section = b"".join([packer.compress(part) for _ in range(140)]) + packer.flush()
    return with_records(base, section, 1)


KINDS = {
    "checksum": damaged,
    "garbage": lambda base: with_records(base, b"\xff" * 60),
    "gzip": lambda base: with_records(base, b"no gzip at all, no", 1),
    "snappy": lambda base: with_records(base, b"\xff\xff\xff\xff\x0fxx", 2),
    "lz4": lambda base: with_records(base, b"\x04\x22\x4d\x18\x60\x40\x82\xff\xff\xff\x7f", 3),
    "zstd": lambda base: with_records(base, b"\x28\xb5\x2f\xfd\xff\xff\xff\xff", 4),
    "half": half_readable,
    "count": claims_two_billion,
    "bomb": bomb,
}
LOST = {"half": 1}
"""How many records of a kind cannot be read, where it is not all of them."""


def write_topics(data: Path, topics: Mapping[str, list[bytes]]) -> None:
    """Makes a broker's data dir with these topics of one partition each, and stops the broker cleanly."""
    with LocalBroker(data=data) as broker, Admin(broker.bootstrap) as admin:
        for topic in topics:
            admin.create_topic(topic, partitions=1)
    for topic, batches in topics.items():
        (segment,) = (data / f"{topic}-0").glob("*.log")
        with segment.open("ab") as file:
            file.write(b"".join(batches))


def between_sound_ones(kinds: list[str]) -> list[bytes]:
    """A sound batch, one of each kind with a sound one behind it."""
    batches = [sound(0)]
    for kind in kinds:
        batches.append(KINDS[kind](RECORDS * len(batches)))
        batches.append(sound(RECORDS * len(batches)))
    return batches


def readable_offsets(kinds: list[str]) -> list[int]:
    """What can be read of that."""
    gone = {offset for number, kind in enumerate(kinds) for offset in lost_offsets(number, kind)}
    return [offset for offset in range(RECORDS * (2 * len(kinds) + 1)) if offset not in gone]


def lost_offsets(number: int, kind: str) -> range:
    """What cannot be read in the unreadable batch of this number."""
    behind = RECORDS * (2 * number + 2)
    return range(behind - LOST.get(kind, RECORDS), behind)
