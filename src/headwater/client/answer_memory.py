"""Memory for large answers and columns, used again once nobody looks at it any more. No I/O.

Fresh memory costs a page fault for each 4 KiB, which is more than twice the work of receiving into memory that is
there. So the last few pieces are remembered after they were handed out. Whoever has an answer has a memoryview of it, a
slice of one, or an Arrow buffer over one, and as long as any of these lives, Python refuses to resize the memory under
it: that is how we know that it is still in use.
"""

from typing import Final

KEPT_BYTES: Final = 64 * 1024 * 1024
KEPT_PIECES: Final = 8
SMALLEST_KEPT_BYTES: Final = 256 * 1024
"""Smaller pieces are had quickly enough."""
_STEPS: Final = 16
_LARGEST_WASTE: Final = 4


class AnswerMemory:
    """Hands out memory that nobody else looks at.

    >>> memory = AnswerMemory()
    >>> first = memory.take(1_000_000)
    >>> seen = memoryview(first)[:10]
    >>> memory.take(1_000_000) is first
    False
    >>> del seen
    >>> memory.take(1_000_000) is first
    True
    """

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: list[bytearray] = []

    def take(self, size: int) -> bytearray:
        """Memory of at least `size` bytes, with whatever is in it."""
        return self.take_used(size) or self._take_fresh(size)

    def take_used(self, size: int) -> bytearray | None:
        """Memory of at least `size` bytes that was handed out before and is free now, if there is any that fits."""
        for piece in self._kept:
            if size <= len(piece) <= size * _LARGEST_WASTE and _nobody_looks_at(piece):
                return piece
        return None

    def _take_fresh(self, size: int) -> bytearray:
        if size < SMALLEST_KEPT_BYTES:
            return bytearray(size)
        # Rounded up, so that an answer that is a little larger fits the next time.
        step = (1 << size.bit_length()) // _STEPS
        piece = bytearray(-(-size // step) * step)
        self._kept.append(piece)
        while len(self._kept) > KEPT_PIECES or sum(map(len, self._kept)) > KEPT_BYTES:
            del self._kept[0]
        return piece


def _nobody_looks_at(piece: bytearray) -> bool:
    try:
        piece.append(piece.pop())
    except BufferError:
        return False
    return True
