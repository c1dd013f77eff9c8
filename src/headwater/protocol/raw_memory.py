"""What compiled loops do to memory, and what stands for it in plain Python: pointers into arrays, and copies of bytes.

Compiled modules take these from `raw_memory.pxd`, which puts them inline. Nothing is checked there: whoever calls has
made the room.
"""

from array import array


def ints(numbers: "array[int]") -> "array[int]":
    """The 32-bit numbers of an array: a C pointer when compiled, else the array itself. Both are indexed alike."""
    return numbers


def longs(numbers: "array[int]") -> "array[int]":
    """The same for 64-bit numbers."""
    return numbers


def doubles(numbers: "array[float]") -> "array[float]":
    """The same for floats of 64 bits."""
    return numbers


def copy(target: bytearray, to: int, source: bytes | bytearray | memoryview, at: int, size: int) -> None:
    """Copies `size` bytes from `source` at `at` to `target` at `to`."""
    target[to : to + size] = source[at : at + size]
