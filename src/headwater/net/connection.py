"""One client's connection: frames in, replies out, one request at a time.

The socket is the broker's own, without an asyncio transport between: bytes are received into a buffer that the next
layer may write to (record batches are patched where they lie), and a reply may hold byte ranges of files, which the
kernel sends without their ever entering the process.

Rules:
- A reply leaves before the next request of the same connection is looked at, as in Kafka.
- While a reply waits (long poll, slow client) at most one buffer of further requests is read, then reading stops:
  a client that does not read its replies cannot make the broker grow.
- A frame's buffer grows with the bytes that arrived, not with the length that the client claims.
"""

import asyncio
import logging
import os
import socket
import struct
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol

from headwater.net.buffers import SMALLEST, BufferPool

logger = logging.getLogger(__name__)

PENDING: Final = object()
"""What a handler returns when the reply comes later, through `Connection.reply`."""

_TRUSTED_FRAME_BYTES: Final = 1024 * 1024
_SEND_LIMIT_BYTES: Final = 4 * 1024 * 1024
_ONE_SEND_BYTES: Final = 16 * 1024
"""Up to here a copy costs less than the system calls that avoid it."""
_LENGTH: Final = struct.Struct(">i")


class OpenFile(Protocol):
    """A file that stays open while it is referred to."""

    def fileno(self) -> int:
        """The descriptor to send from."""


class FileRange:
    """A byte range of a file inside a reply. The kernel sends it; `position` and `size` say what is left to send."""

    __slots__ = ("file", "position", "size")

    def __init__(self, file: OpenFile, position: int, size: int) -> None:
        self.file = file
        self.position = position
        self.size = size


class Host(Protocol):
    """What a connection needs of the server it belongs to."""

    loop: asyncio.AbstractEventLoop
    buffers: BufferPool
    scratch: memoryview
    max_frame_bytes: int

    def handle(self, connection: "Connection", frame: memoryview) -> Any:
        """Answers one request: the reply (bytes, or a list of bytes and file ranges), None for no reply, or PENDING."""

    def closed(self, connection: "Connection") -> None:
        """Forgets a connection."""


class ProtocolViolationError(Exception):
    """The client sent something that cannot be answered; the connection ends."""


class Connection:
    """See the module's docstring. All methods run on the event loop's thread."""

    __slots__ = (
        "_buffer", "_end", "_handle", "_large_frames", "_max_frame_bytes", "_out", "_reading", "_scratch", "_start",
        "_time", "_view", "_writing", "busy", "closed", "host", "last_active", "on_close", "peer", "sock",
    )  # fmt: skip

    def __init__(self, host: Host, sock: socket.socket, peer: str) -> None:
        self.host = host
        self.sock = sock
        self._handle = host.handle
        self._time = host.loop.time
        self._scratch = host.scratch
        self._max_frame_bytes = host.max_frame_bytes
        self.peer = peer
        self.busy = False
        self.closed = False
        self.last_active = host.loop.time()
        self.on_close: Callable[[], None] | None = None
        self._buffer: bytearray | None = None
        self._view: memoryview | None = None
        self._start = 0
        self._end = 0
        self._large_frames = False
        self._out: deque[Any] = deque()
        self._reading = True
        self._writing = False
        host.loop.add_reader(sock, self._readable)

    def reply(self, reply: Any) -> None:
        """Sends the reply to the request that was left PENDING and goes on with the requests behind it."""
        if self.closed:
            return
        self.busy = False
        self.on_close = None
        self.last_active = self.host.loop.time()
        if reply is not None:
            self._send(reply)
        self._resume()

    def give_frame(self) -> bytearray | None:
        """Leaves the buffer with the frame in hand to a handler that answers later, which returns it to the pool.

        None when it is the server's own, for which frames are too short to be worth it: the handler copies.
        """
        buffer, self._buffer, self._view = self._buffer, None, None
        return buffer

    def close(self, reason: str = "") -> None:
        """Ends the connection. What was not sent is dropped; a waiting request is told through `on_close`."""
        if self.closed:
            return
        self.closed = True
        if reason:
            logger.warning("closed the connection of %s: %s", self.peer, reason)
        if self._reading:
            self.host.loop.remove_reader(self.sock)
        if self._writing:
            self.host.loop.remove_writer(self.sock)
        self.sock.close()
        self._out.clear()
        self._release()
        if self.on_close is not None:
            self.on_close()
            self.on_close = None
        self.host.closed(self)

    def _readable(self) -> None:
        view = self._view
        if view is None:
            if self._large_frames or self.busy or self._out:
                view = self._lend(_TRUSTED_FRAME_BYTES if self._large_frames else SMALLEST)
            else:
                view = self._scratch
        try:
            received = self.sock.recv_into(view[self._end :] if self._end else view)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self.close("" if isinstance(error, ConnectionError) else str(error))
            return
        if received == 0:
            self.close()
            return
        self.last_active = self._time()
        self._end += received
        self._process(view)

    def _process(self, view: memoryview) -> None:
        """Handles the whole frames in `view` between start and end, then keeps or moves what is left."""
        start, end = self._start, self._end
        needed = 0
        try:
            while not self.busy and not self._out and end - start >= 4:
                size = _LENGTH.unpack_from(view, start)[0]
                if size < 0 or size > self._max_frame_bytes:
                    limit = self._max_frame_bytes
                    raise ProtocolViolationError(f"a frame of {size} bytes; socket.request.max.bytes={limit}")
                stop = start + 4 + size
                if stop > end:
                    needed = 4 + size
                    break
                answer = self._handle(self, view[start + 4 : stop])
                start = stop
                if answer is PENDING:
                    self.busy = not self.closed
                elif answer is not None:
                    self._send(answer)
                if self.closed:
                    return
        except ProtocolViolationError as error:
            self.close(str(error))
            return
        if start == end and self._buffer is None:
            self._start = self._end = 0
        else:
            self._keep(view, start, end, needed)

    def _keep(self, view: memoryview, start: int, end: int, needed: int) -> None:
        """Holds on to the bytes of an incomplete or waiting frame; gives the buffer back when there are none."""
        left = end - start
        if needed:
            self._large_frames = needed > len(self.host.scratch)
        if left == 0:
            self._release()
            return
        # A frame up to a mebibyte gets its room at once; a longer one as fast as its bytes really come.
        room = min(needed, max(_TRUSTED_FRAME_BYTES, 2 * left))
        if self._buffer is None or len(self._buffer) < max(room, left):
            old_buffer = self._buffer
            fresh = self.host.buffers.lend(max(room, left + 1))
            memoryview(fresh)[:left] = view[start:end]
            self._buffer, self._view = fresh, memoryview(fresh)
            if old_buffer is not None:
                self.host.buffers.take_back(old_buffer)
            start, end = 0, left
        elif start and (needed > len(self._buffer) - start or end == len(self._buffer)):
            view[:left] = bytes(view[start:end])
            start, end = 0, left
        self._start, self._end = start, end
        if end == len(self._buffer) and self._reading and (self.busy or self._out):
            self._reading = False
            self.host.loop.remove_reader(self.sock)

    def _resume(self) -> None:
        """Goes on reading after a reply has left; frames that came meanwhile are handled first."""
        if self.closed or self.busy or self._out:
            return
        if self._view is not None and self._end > self._start:
            self._process(self._view)
        if not (self.closed or self._reading or self.busy or self._out):
            self._reading = True
            self.host.loop.add_reader(self.sock, self._readable)

    def _lend(self, size: int) -> memoryview:
        self._buffer = self.host.buffers.lend(size)
        self._view = memoryview(self._buffer)
        self._start = self._end = 0
        return self._view

    def _release(self) -> None:
        self._start = self._end = 0
        if self._buffer is not None:
            self._view = None
            self.host.buffers.take_back(self._buffer)
            self._buffer = None

    def _send(self, reply: Any) -> None:
        whole = reply if type(reply) is bytes else _in_one(reply)
        if whole is not None:
            try:
                sent = self.sock.send(whole)
            except (BlockingIOError, InterruptedError):
                sent = 0
            except OSError:
                self.close()
                return
            if sent == len(whole):
                return
            self._out.append(memoryview(whole)[sent:])
        else:
            self._out.extend(reply)
            self._drain()
        if self._out and not self.closed:
            self._writing = True
            self.host.loop.add_writer(self.sock, self._writable)

    def _writable(self) -> None:
        self.last_active = self.host.loop.time()
        self._drain()
        if not self._out and not self.closed:
            self._writing = False
            self.host.loop.remove_writer(self.sock)
            self._resume()

    def _drain(self) -> None:
        """Sends as much of the waiting replies as the socket takes."""
        out = self._out
        budget = _SEND_LIMIT_BYTES
        try:
            while out and budget > 0:
                part = out[0]
                if isinstance(part, (bytes, memoryview)):
                    sent = self.sock.send(part, socket.MSG_MORE if len(out) > 1 else 0)
                    if sent < len(part):
                        out[0] = memoryview(part)[sent:]
                    else:
                        out.popleft()
                else:
                    sent = os.sendfile(self.sock.fileno(), part.file.fileno(), part.position, part.size)
                    if sent == 0:
                        self.close("a log file is shorter than its index says; the reply was cut off")
                        return
                    part.position += sent
                    part.size -= sent
                    if part.size == 0:
                        out.popleft()
                budget -= sent
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self.close("" if isinstance(error, ConnectionError) else f"sending failed: {error}")


def _in_one(parts: list[bytes | FileRange]) -> bytes | None:
    """A small reply in one piece; None when it is large, or when a file has not what it should."""
    size = sum([part.size if isinstance(part, FileRange) else len(part) for part in parts])
    if size > _ONE_SEND_BYTES:
        return None
    try:
        pieces = [
            os.pread(part.file.fileno(), part.size, part.position) if isinstance(part, FileRange) else part
            for part in parts
        ]
    except OSError:
        return None
    whole = b"".join(pieces)
    return whole if len(whole) == size else None
