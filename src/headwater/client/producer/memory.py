"""The memory that waiting batches may take together, and the line of those who wait for some of it.

First come, first served: while somebody stands in line nobody else is given memory, and what is handed to the first is
theirs until they use it or give it back. Not thread-safe: the accumulator calls it under its lock. Compiled by Cython
(pure Python mode) and correct without it; `memory.pxd` is its C side.
"""
# mypy: disallow-untyped-decorators=False

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable

try:
    import cython
except ImportError:
    from headwater.protocol import without_cython as cython


class RoomTicket:
    """A place in the line for memory. It is used with `Accumulator.append(..., ticket=...)` or given back: always one
    of the two, best by a `with` block.

    >>> with accumulator.line_up(size_bytes) as ticket:  # doctest: +SKIP
    ...     if ticket.wait(timeout_s):
    ...         handle = accumulator.append(queue, 0, key, value, None, timestamp_ms, ticket=ticket)
    """

    __slots__ = ("_event", "_future", "_give_back", "granted", "size_bytes")

    def __init__(self, size_bytes: int, give_back: Callable[[RoomTicket], None]) -> None:
        self.size_bytes = size_bytes
        self.granted = False
        self._give_back = give_back
        self._event: threading.Event | None = threading.Event()
        self._future: asyncio.Future[None] | None = None

    def wait(self, timeout_s: float | None) -> bool:
        """Blocks this thread until it is this one's turn; False when the time is over before that."""
        assert self._event is not None
        return self._event.wait(timeout_s)

    def future(self, loop: asyncio.AbstractEventLoop) -> asyncio.Future[None]:
        """Resolved when it is this one's turn. Called on the loop's own thread."""
        self._future = loop.create_future()
        # Set before the look at `granted`, so that a grant from another thread sees the one or the other.
        if self.granted:
            self._future.set_result(None)
        return self._future

    def wake(self) -> None:
        """Tells whoever waits that it is granted."""
        assert self._event is not None
        self._event.set()
        future = self._future
        if future is not None:
            # A loop that was closed meanwhile has nobody waiting.
            with contextlib.suppress(RuntimeError):
                future.get_loop().call_soon_threadsafe(_resolve, future)

    def __enter__(self) -> RoomTicket:
        return self

    def __exit__(self, *error: object) -> None:
        self._give_back(self)


class BufferMemory:
    """Counts bytes up to `total_bytes`. Its C attributes are declared in `memory.pxd`."""

    def __init__(self, total_bytes: int) -> None:
        self.total_bytes: int = total_bytes
        self.used_bytes: int = 0
        self.line: deque[RoomTicket] = deque()

    def take(self, size_bytes: cython.longlong) -> cython.bint:
        """Takes so much if it is free and nobody waits."""
        if self.line or self.used_bytes + size_bytes > self.total_bytes:
            return False
        self.used_bytes += size_bytes
        return True

    def leave_line(self, ticket: RoomTicket) -> None:
        """Whatever the ticket was worth is free again, and its place in the line is the next one's."""
        if ticket.granted:
            self.used_bytes -= ticket.size_bytes
            ticket.size_bytes = 0
        elif ticket in self.line:
            self.line.remove(ticket)

    def grant(self, granted: list[RoomTicket]) -> None:
        """Hands free memory to those first in line and adds them to `granted`: to be woken, once the lock is free."""
        while self.line and self.used_bytes + self.line[0].size_bytes <= self.total_bytes:
            ticket = self.line.popleft()
            self.used_bytes += ticket.size_bytes
            ticket.granted = True
            granted.append(ticket)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
