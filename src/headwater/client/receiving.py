"""Receives from a socket without the interpreter's lock, so that another thread can work meanwhile.

An event loop that has a place for it (`blocking.turns`) lets connections register here what they do when something has
come: that is done before the loop takes its turn. Compiled by Cython (pure Python mode) and correct without it.
"""
# mypy: disallow-untyped-decorators=False

from __future__ import annotations

import os
import select
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

try:
    import cython
except ImportError:
    from headwater.protocol import without_cython as cython

if cython.compiled:
    from cython.cimports.cpython.memoryview import PyMemoryView_GET_BUFFER
    from cython.cimports.headwater.client.sockets import MSG_DONTWAIT, readable_within, recv

if TYPE_CHECKING:
    import asyncio

Receivers: TypeAlias = "dict[int, Callable[[], bool]]"
"""By file descriptor, what to call when something has come; True if it took that, and the transport need not."""


def receivers_of(loop: asyncio.AbstractEventLoop) -> Receivers | None:
    """Where to register on a loop that receives ahead; None for all other loops."""
    found: Receivers | None = getattr(loop, "receivers", None)
    return found


def receive(fd: int, room: memoryview, patience_ms: int) -> int:
    """Fills `room` with what comes; how many bytes did, before nothing more came for so long.

    None also means that the connection has ended or is broken: whoever reads it next hears about it.
    """
    have: cython.Py_ssize_t = 0
    size: cython.Py_ssize_t = len(room)
    received: int
    if cython.compiled:
        at: cython.p_uchar = cython.cast(cython.p_uchar, PyMemoryView_GET_BUFFER(room).buf)
        number: cython.int = fd
        patience: cython.int = patience_ms
        with cython.nogil:
            have = _receive(number, at, size, patience)
    else:
        while have < size and (count := _read(fd, room[have:], patience_ms)):
            have += count
    received = have
    return received


def _read(fd: int, room: memoryview, patience_ms: int) -> int:
    """What one call gives, after a wait where needed; 0 at the end, after an error or when it takes too long."""
    try:
        return os.readv(fd, [room])
    except BlockingIOError:
        readable = select.poll()
        readable.register(fd, select.POLLIN)
        return _read(fd, room, patience_ms) if readable.poll(patience_ms) else 0
    except OSError:
        return 0


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _receive(
    fd: cython.int, room: cython.p_uchar, size: cython.Py_ssize_t, patience_ms: cython.int
) -> cython.Py_ssize_t:
    have: cython.Py_ssize_t = 0
    count: cython.Py_ssize_t
    while have < size:
        count = recv(fd, room + have, size - have, MSG_DONTWAIT)
        if count > 0:
            have += count
        elif count == 0 or not readable_within(fd, patience_ms):
            break
    return have
