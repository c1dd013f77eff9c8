"""Notices that a client hung up although nothing is read from it at the moment.

A connection whose buffer is full reads no more until its request is answered, so it would meet the end of the stream
only then, which may be minutes later. The kernel can report the end by itself (EPOLLRDHUP), which the event loop cannot
be asked for: hence a second epoll, whose descriptor the loop watches. Where there is no epoll (outside Linux) nothing
is reported, and the idle limit ends such a connection.
"""

import asyncio
import contextlib
import select
from collections.abc import Callable
from typing import Final

_EVENTS_AT_ONCE: Final = 256

Ended = Callable[[bool], None]
"""Told that the client sends no more; the argument says that it does not receive either."""


class Endings:
    """The sockets of one server that are watched for their end."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._watched: dict[int, Ended] = {}
        self._epoll = select.epoll() if hasattr(select, "epoll") else None
        if self._epoll is not None:
            loop.add_reader(self._epoll.fileno(), self._look)

    def watch(self, descriptor: int, ended: Ended) -> None:
        """Calls `ended` when the client shuts its side, and again when the connection is broken."""
        if self._epoll is not None:
            self._watched[descriptor] = ended
            self._epoll.register(descriptor, select.EPOLLRDHUP)

    def forget(self, descriptor: int) -> None:
        """Ends the watch, if there is one. To be called before the socket is closed."""
        if self._watched.pop(descriptor, None) is not None and self._epoll is not None:
            self._epoll.unregister(descriptor)

    def close(self) -> None:
        """Watches nothing any more."""
        if self._epoll is not None:
            self._loop.remove_reader(self._epoll.fileno())
            self._epoll.close()
            self._epoll = None
        self._watched.clear()

    def _look(self) -> None:
        if self._epoll is None:
            return
        for descriptor, events in self._epoll.poll(0, _EVENTS_AT_ONCE):
            ended = self._watched.get(descriptor)
            if ended is None:
                continue
            # The half-closed state lasts: once is enough. That the connection broke is reported in any case.
            with contextlib.suppress(OSError):
                self._epoll.modify(descriptor, 0)
            ended(bool(events & (select.EPOLLERR | select.EPOLLHUP)))
