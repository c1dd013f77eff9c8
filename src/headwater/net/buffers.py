"""Receive buffers that are lent to connections while a frame is incomplete, and come back afterwards."""

from typing import Final

SMALLEST: Final = 64 * 1024
_LARGEST_KEPT: Final = 8 * 1024 * 1024
_KEPT_BYTES: Final = 64 * 1024 * 1024


class BufferPool:
    """Buffers in powers of two. What is kept for reuse is bounded; what is lent is bounded by what was received."""

    def __init__(self) -> None:
        self._free: dict[int, list[bytearray]] = {}
        self._kept_bytes = 0

    def lend(self, size: int) -> bytearray:
        """A buffer of at least `size` bytes with whatever is in it."""
        capacity = SMALLEST if size <= SMALLEST else 1 << (size - 1).bit_length()
        free = self._free.get(capacity)
        if free:
            self._kept_bytes -= capacity
            return free.pop()
        return bytearray(capacity)

    def take_back(self, buffer: bytearray) -> None:
        """Keeps `buffer` for the next one, unless enough is kept."""
        capacity = len(buffer)
        if capacity <= _LARGEST_KEPT and self._kept_bytes + capacity <= _KEPT_BYTES:
            self._kept_bytes += capacity
            self._free.setdefault(capacity, []).append(buffer)
