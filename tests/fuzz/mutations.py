"""Harms bytes the way a fuzzer does: flips, cuts, repeats, lengths that lie, and pieces of other inputs."""

from random import Random
from typing import Final

LARGEST_INPUT_BYTES: Final = 1 << 20
_MOST_STEPS: Final = 4
_LONGEST_PIECE: Final = 64
_NUMBERS: Final = (0, 1, -1, -2, 127, 128, 255, 256, 32_767, -32_768, 65_535, 2**31 - 1, -(2**31), 2**32 - 1, 2**63 - 1)
_VARINTS: Final = (
    b"\x00",
    b"\x01",
    b"\x7f",
    b"\xff\x01",
    b"\xff\xff\xff\xff\x07",
    b"\xff\xff\xff\xff\x0f",
    b"\x80\x80\x80\x80\x00",
    b"\xff" * 9 + b"\x01",
    b"\xff" * 12,
)


def harmed(data: bytes, other: bytes, chance: Random) -> bytes:
    """`data` after one to four harms; some of them take a piece of `other`."""
    harm = bytearray(data)
    for _ in range(chance.randint(1, _MOST_STEPS)):
        _STEPS[chance.randrange(len(_STEPS))](harm, other, chance)
    return bytes(harm[:LARGEST_INPUT_BYTES])


def _flip(harm: bytearray, other: bytes, chance: Random) -> None:
    if harm:
        harm[chance.randrange(len(harm))] ^= 1 << chance.randrange(8)


def _replace(harm: bytearray, other: bytes, chance: Random) -> None:
    if harm:
        harm[chance.randrange(len(harm))] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))


def _number(harm: bytearray, other: bytes, chance: Random) -> None:
    size = chance.choice((2, 4, 8))
    number = chance.choice(_NUMBERS) & ((1 << 8 * size) - 1)
    at = chance.randint(0, len(harm))
    harm[at : at + size] = number.to_bytes(size, chance.choice(("big", "little")))


def _varint(harm: bytearray, other: bytes, chance: Random) -> None:
    at = chance.randint(0, len(harm))
    harm[at : at + chance.randint(0, 2)] = chance.choice(_VARINTS)


def _cut(harm: bytearray, other: bytes, chance: Random) -> None:
    del harm[chance.randint(0, len(harm)) :]


def _delete(harm: bytearray, other: bytes, chance: Random) -> None:
    at = chance.randint(0, len(harm))
    del harm[at : at + chance.randint(1, _LONGEST_PIECE)]


def _repeat(harm: bytearray, other: bytes, chance: Random) -> None:
    at = chance.randint(0, len(harm))
    piece = harm[at : at + chance.randint(1, _LONGEST_PIECE)]
    harm[at:at] = piece * chance.choice((1, 2, 50))


def _splice(harm: bytearray, other: bytes, chance: Random) -> None:
    at, start = chance.randint(0, len(harm)), chance.randint(0, len(other))
    harm[at : at + chance.randint(0, _LONGEST_PIECE)] = other[start : start + chance.randint(1, _LONGEST_PIECE)]


_STEPS: Final = (_flip, _flip, _replace, _number, _number, _varint, _varint, _cut, _delete, _repeat, _splice)
