"""One client's connection: frames in, replies out, one request at a time.

The socket is the broker's own, without an asyncio transport between: bytes are received into a buffer that the next
layer may write to (record batches are patched where they lie), and a reply may hold byte ranges of files, which the
kernel sends without their ever entering the process.

Rules:
- A reply leaves before the next request of the same connection is looked at, as in Kafka.
- A connection that has many requests waiting lets the others be served after a turn of the server's length.
- While a reply waits (long poll, slow client) at most one buffer of further requests is read, then reading stops:
  a client that does not read its replies cannot make the broker grow.
- A frame's buffer grows with the bytes that arrived, not with the length that the client claims. A frame that is larger
  than its API may send is refused when its first bytes are there.
- A client that hangs up is noticed at once. A request that waits is dropped with it; one that is being worked on, and
  those received behind it, are served to the end, as in Kafka.
"""

import asyncio
import logging
import os
import socket
import struct
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import Any, Final, Protocol

from headwater.net.buffers import SMALLEST, BufferPool
from headwater.net.endings import Endings

logger = logging.getLogger(__name__)

PENDING: Final = object()
"""What a handler returns when the reply comes later, through `Connection.reply`."""

_LARGE_BUFFER_BYTES: Final = 1024 * 1024
_GROWTH: Final = 4
"""How many times the bytes received a buffer may have; without it large frames would be copied too often."""
_PROGRESS_BYTES: Final = 64 * 1024
"""An incomplete frame is activity when so many of its bytes have come: less is a client that clings to a connection."""
LONG_S: Final = 0.01
"""Requests that took longer are reported: the watchdog names them when a turn of the loop was too long."""
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
    endings: Endings
    unchecked_frame_bytes: int
    turn_s: float
    """How long a connection may go on with the requests that it has before it has to `await_turn`."""

    def handle(self, connection: "Connection", frame: memoryview) -> Any:
        """Answers one request: the reply (bytes, or a list of bytes and file ranges), None for no reply, or PENDING."""

    def check_frame(self, size: int, start: memoryview) -> None:
        """Refuses a frame of `size` bytes that is too large for what it is, by as much of it as has arrived.

        Asked for frames of more than `unchecked_frame_bytes` and for negative sizes. Raises ProtocolViolationError.
        """

    def await_turn(self, connection: "Connection") -> None:
        """Calls the connection's `take_turn` after others were served."""

    def took_long(self, connection: "Connection", frame: memoryview, seconds: float) -> None:
        """Hears of a request that held the event loop."""

    def spare_room(self, connection: "Connection") -> None:
        """Hears of a buffer that is much too large. Most are filled soon: it is asked for back when it is not."""

    def closed(self, connection: "Connection") -> None:
        """Forgets a connection."""


class ProtocolViolationError(Exception):
    """The client sent something that cannot be answered; the connection ends."""


class Connection:
    """See the module's docstring. All methods run on the event loop's thread.

    `on_close` is called when the connection ends while a request is PENDING. A request that has it may be dropped,
    which happens as soon as the client hangs up; without it the connection is kept until the reply.
    """

    __slots__ = (
        "_buffer", "_counted", "_end", "_handle", "_has_ended", "_has_hung_up", "_has_yielded", "_large_frames",
        "_out", "_reading", "_scratch", "_start", "_unchecked_bytes", "_view", "_writing", "busy", "closed", "host",
        "last_active", "on_close", "peer", "sock",
    )  # fmt: skip

    def __init__(self, host: Host, sock: socket.socket, peer: str) -> None:
        self.host = host
        self.sock = sock
        self._handle = host.handle
        self._scratch = host.scratch
        self._unchecked_bytes = host.unchecked_frame_bytes
        self.peer = peer
        self.busy = False
        self.closed = False
        self.last_active = monotonic()
        self.on_close: Callable[[], object] | None = None
        self._buffer: bytearray | None = None
        self._view: memoryview | None = None
        self._start = 0
        self._end = 0
        self._counted = 0
        self._large_frames = False
        self._out: deque[Any] = deque()
        self._reading = True
        self._writing = False
        self._has_yielded = False
        self._has_hung_up = False
        self._has_ended = False
        host.loop.add_reader(sock, self._readable)

    def reply(self, reply: Any) -> None:
        """Sends the reply to the request that was left PENDING and goes on with the requests behind it."""
        if self.closed:
            return
        self.busy = False
        self.on_close = None
        self.last_active = monotonic()
        if reply is not None:
            self._send(reply)
        self._resume()

    def may_drop(self, on_close: Callable[[], object]) -> None:
        """The request that is PENDING waits for others, or has not been begun: without its client it is given up."""
        self.on_close = on_close
        if self._has_hung_up:
            self.host.loop.call_soon(self._drop_waiting)

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
        else:
            self.host.endings.forget(self.sock.fileno())
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
        if self._has_yielded:
            return
        view = self._view
        if view is None:
            if self._large_frames or self.busy or self._out:
                view = self._lend(_LARGE_BUFFER_BYTES if self._large_frames else SMALLEST)
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
            self._stream_ended()
            return
        self._end += received
        self._process(view)

    def _process(self, view: memoryview) -> None:
        """Handles the whole frames in `view` between start and end, then keeps or moves what is left."""
        start, end = self._start, self._end
        needed = 0
        now = monotonic()
        until = now + self.host.turn_s
        frame: memoryview | None = None
        try:
            while not self.busy and not self._out and end - start >= 4:
                size = _LENGTH.unpack_from(view, start)[0]
                stop = start + 4 + size
                if size < 0 or size > self._unchecked_bytes:
                    self.host.check_frame(size, view[start + 4 : min(stop, end)])
                if stop > end:
                    needed = 4 + size
                    break
                if now > until:
                    self._has_yielded = True
                    self.host.await_turn(self)
                    break
                frame = view[start + 4 : stop]
                answer = self._handle(self, frame)
                start = stop
                if answer is PENDING:
                    self.busy = not self.closed
                elif answer is not None:
                    self._send(answer)
                before, now = now, monotonic()
                if now - before > LONG_S:
                    self.host.took_long(self, frame, now - before)
                if self.closed:
                    return
        except ProtocolViolationError as error:
            seconds = monotonic() - now
            if seconds > LONG_S and frame is not None:
                self.host.took_long(self, frame, seconds)
            self.close(str(error))
            return
        left = end - start
        if start != self._start or left - self._counted >= _PROGRESS_BYTES:
            self.last_active = now
            self._counted = left
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
        room = max(min(needed, max(SMALLEST, _GROWTH * left)), left)
        if self._buffer is None or len(self._buffer) < room:
            view, start, end = self._move(view, start, end, max(room, left + 1))
        elif start and (needed > len(self._buffer) - start or end == len(self._buffer)):
            view[:left] = bytes(view[start:end])
            start, end = 0, left
        self._start, self._end = start, end
        if self.has_spare_room:
            self.host.spare_room(self)
        if end == len(view) and self._reading and (self.busy or self._out):
            self._stop_reading()

    @property
    def has_spare_room(self) -> bool:
        """Whether the buffer is much larger than what it holds: an earlier frame needed it, or one was hoped for."""
        size = 0 if self._buffer is None else len(self._buffer)
        return size > SMALLEST and size > 2 * _GROWTH * (self._end - self._start)

    def give_spare_room(self) -> None:
        """Goes on with a smaller buffer, if this one is still too large."""
        if self.has_spare_room and self._view is not None:
            left = self._end - self._start
            self._move(self._view, self._start, self._end, _GROWTH * left)
            self._start, self._end = 0, left

    def _move(self, view: memoryview, start: int, end: int, size: int) -> tuple[memoryview, int, int]:
        """Brings what is held to another buffer, which has at least this size."""
        left = end - start
        fresh = self.host.buffers.lend(size)
        memoryview(fresh)[:left] = view[start:end]
        if self._buffer is not None:
            self.host.buffers.take_back(self._buffer)
        self._buffer, self._view = fresh, memoryview(fresh)
        return self._view, 0, left

    def _stop_reading(self) -> None:
        self._reading = False
        self.host.loop.remove_reader(self.sock)
        self.host.endings.watch(self.sock.fileno(), self._hung_up)

    def _hung_up(self, is_broken: bool) -> None:
        """The client closed its side while nothing is read: what it sent before may still be in the socket."""
        self._has_hung_up = True
        if is_broken or self.on_close is not None:
            self.close()

    def _stream_ended(self) -> None:
        """All that the client sent was received. Nobody waits for others for its sake, but what it asked is done."""
        self._has_hung_up = self._has_ended = True
        if self._reading:
            self._stop_reading()
        self._end_when_done()

    def _end_when_done(self) -> None:
        if self.on_close is not None or not (self.busy or self._out or self._has_yielded):
            self.close()

    def _drop_waiting(self) -> None:
        if self.on_close is not None:
            self.close()

    def take_turn(self) -> None:
        """Goes on with the requests that are left from its last turn."""
        self._has_yielded = False
        self._resume()

    def _resume(self) -> None:
        """Goes on after a reply has left, or when it is this connection's turn: frames that are there come first."""
        if self.closed or self.busy or self._out or self._has_yielded:
            return
        if self._view is not None and self._end > self._start:
            self._process(self._view)
        if self.closed or self._has_yielded:
            return
        if self._has_ended:
            self._end_when_done()
        elif not (self._reading or self.busy or self._out):
            self._reading = True
            self.host.endings.forget(self.sock.fileno())
            self.host.loop.add_reader(self.sock, self._readable)

    def _lend(self, size: int) -> memoryview:
        self._buffer = self.host.buffers.lend(size)
        self._view = memoryview(self._buffer)
        self._start = self._end = 0
        return self._view

    def _release(self) -> None:
        self._start = self._end = self._counted = 0
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
        self.last_active = monotonic()
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
