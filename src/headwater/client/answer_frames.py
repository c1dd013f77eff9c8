"""Cuts the bytes that a broker sends into answers, each in memory of its own. No I/O.

Answers that come whole are copied out of a scratch buffer: they are small. A larger one gets memory of its own as soon
as its length is known, and the rest of it is received right there. A length is only a claim: a mebibyte is believed at
once, more when that much has come, when this broker has sent an answer of such a size before, or when memory of that
size is left from earlier answers.
"""

import struct
from collections.abc import Sequence
from typing import Final

from headwater.client.answer_memory import AnswerMemory

MAX_ANSWER_BYTES: Final = 512 * 1024 * 1024
SCRATCH_BYTES: Final = 64 * 1024
TRUSTED_BYTES: Final = 1024 * 1024
SMALLEST_ANSWER_BYTES: Final = 4
"""A correlation id and nothing else."""
_LENGTH: Final = struct.Struct(">i")
_LENGTH_BYTES: Final = 4


class BadLengthError(Exception):
    """A length that no answer can have: whatever is at the other end, it does not speak Kafka's protocol."""


class AnswerFrames:
    """What has been received so far, and where the next bytes go.

    >>> frames = AnswerFrames()
    >>> frames.room()[:8] = (4).to_bytes(4) + (7).to_bytes(4)
    >>> [bytes(answer) for answer in frames.received(8)]
    [b'\\x00\\x00\\x00\\x07']
    """

    __slots__ = ("_frame", "_have", "_memory", "_scratch", "_scratch_used", "_size", "_trusted")

    def __init__(self) -> None:
        self._scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._scratch_used = 0
        self._memory = AnswerMemory()
        self._frame: memoryview | None = None
        self._have = 0
        self._size = 0
        self._trusted = TRUSTED_BYTES

    @property
    def answer_begun(self) -> bool:
        """Whether part of an answer has come and the rest is on its way."""
        return self._frame is not None

    def room(self) -> memoryview:
        """Where the next bytes must be written; never empty."""
        if self._frame is None:
            return self._scratch[self._scratch_used :]
        return self._frame[self._have :]

    def received(self, count: int) -> Sequence[memoryview]:
        """Takes `count` bytes written to `room()`; returns the answers complete by now, without their lengths."""
        if self._frame is None:
            return self._cut(self._scratch_used + count)
        self._have += count
        if self._have < len(self._frame):
            return ()
        if self._have < self._size:
            self._frame = self._with_room(self._size, self._frame)
            return ()
        whole, self._frame = self._frame, None
        self._trusted = max(self._trusted, self._size)
        return (whole,)

    def _cut(self, end: int) -> list[memoryview]:
        """The answers in the first `end` bytes of the scratch buffer; what is left begins an answer or a length."""
        scratch, start = self._scratch, 0
        whole = []
        while end - start >= _LENGTH_BYTES:
            (size,) = _LENGTH.unpack_from(scratch, start)
            if not SMALLEST_ANSWER_BYTES <= size <= MAX_ANSWER_BYTES:
                raise BadLengthError(f"an answer of {size} bytes")
            start += _LENGTH_BYTES
            if end - start < size:
                self._begin(size, scratch[start:end])
                start = end
                break
            whole.append(memoryview(bytearray(scratch[start : start + size])))
            start += size
        self._scratch_used = end - start
        if start and self._scratch_used:
            scratch[: self._scratch_used] = bytes(scratch[start:end])
        return whole

    def _begin(self, size: int, beginning: memoryview) -> None:
        self._size, self._have = size, len(beginning)
        self._frame = self._with_room(min(size, self._trusted), beginning)

    def _with_room(self, size: int, beginning: memoryview) -> memoryview:
        """Memory for `size` bytes of the answer, or for all of it where that costs nothing; what has come is in it."""
        used = self._memory.take_used(self._size)
        room = memoryview(self._memory.take(size))[:size] if used is None else memoryview(used)[: self._size]
        room[: self._have] = beginning
        return room
