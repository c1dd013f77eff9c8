"""Input as lines: chunks of files and pipes, cut at a delimiter.

A pipe that has nothing more at the moment says so, and what was read goes out without waiting for more.
"""

import asyncio
import os
import stat
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

from headwater.cli.waiting import readable

CHUNK_BYTES: Final = 256 * 1024
MAX_LINE_BYTES: Final = 256 * 1024 * 1024
STDIN: Final = "-"


class LineTooLongError(Exception):
    """A line that no broker would take; its text says so."""


class Lines(NamedTuple):
    """Whole lines, the bytes they took, and whether the input pauses after them."""

    lines: list[bytes]
    size_bytes: int
    pause: bool


class LineCutter:
    """Cuts chunks into lines and keeps what is left over for the next.

    >>> cutter = LineCutter(b";")
    >>> cutter.cut(b"a;b;c"), cutter.cut(b"d;"), cutter.rest()
    ([b'a', b'b'], [b'cd'], b'')
    """

    def __init__(self, delimiter: bytes) -> None:
        self._delimiter = delimiter
        self._rest = bytearray()

    def cut(self, chunk: bytes) -> list[bytes]:
        """The lines that end in `chunk`."""
        # A delimiter of several bytes may lie across two chunks: look from a little before the new one.
        begin = max(0, len(self._rest) - len(self._delimiter) + 1)
        self._rest += chunk
        if self._rest.find(self._delimiter, begin) < 0:
            if len(self._rest) > MAX_LINE_BYTES:
                raise LineTooLongError(f"a line of more than {MAX_LINE_BYTES} bytes: is the delimiter right?")
            return []
        lines = bytes(self._rest).split(self._delimiter)
        self._rest = bytearray(lines.pop())
        return lines

    def rest(self) -> bytes:
        """What comes after the last delimiter."""
        return bytes(self._rest)


async def read_lines(paths: Sequence[str], delimiter: bytes) -> AsyncIterator[Lines]:
    """The lines of all files, one after the other; `-` is stdin. A last line needs no delimiter."""
    for path in paths:
        cutter = LineCutter(delimiter)
        async for chunk in _chunks(path):
            lines = cutter.cut(chunk)
            yield Lines(lines, len(chunk), pause=not chunk)
        rest = cutter.rest()
        if rest:
            yield Lines([rest], 0, pause=False)


def total_bytes(paths: Sequence[str]) -> int | None:
    """The size of all input, or None where a pipe or a terminal is part of it."""
    total = 0
    for path in paths:
        found = os.fstat(0) if path == STDIN else os.stat(path)
        if not stat.S_ISREG(found.st_mode):
            return None
        total += found.st_size
    return total


async def _chunks(path: str) -> AsyncIterator[bytes]:
    """Chunks as they come; an empty one says that there is nothing to read at the moment."""
    with _opened(path) as descriptor:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            while chunk := os.read(descriptor, CHUNK_BYTES):
                yield chunk
                await asyncio.sleep(0)  # answers of the broker are read between chunks
            return
        while True:
            if not readable(descriptor):
                yield b""
                await _readable(descriptor)
            chunk = os.read(descriptor, CHUNK_BYTES)
            if not chunk:
                return
            yield chunk
            await asyncio.sleep(0)


@contextmanager
def _opened(path: str) -> Iterator[int]:
    if path == STDIN:
        yield 0
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


async def _readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    try:
        loop.add_reader(descriptor, _resolve, ready)
    except PermissionError:
        return  # not a thing that can be waited for (/dev/null): a read does not block
    try:
        await ready
    finally:
        loop.remove_reader(descriptor)


def _resolve(ready: "asyncio.Future[None]") -> None:
    if not ready.done():
        ready.set_result(None)
