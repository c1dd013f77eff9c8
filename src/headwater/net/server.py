"""The listener: accepts connections within their limits and closes the idle ones."""

import asyncio
import contextlib
import errno
import logging
import socket
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

from headwater.net.buffers import BufferPool
from headwater.net.connection import Connection, ProtocolViolationError
from headwater.net.endings import Endings

logger = logging.getLogger(__name__)

_SCRATCH_BYTES: Final = 256 * 1024
_BACKLOG: Final = 1024
_ACCEPTS_PER_EVENT: Final = 64
_TURN_S: Final = 0.002
_SPARE_ROOM_CHECK_S: Final = 0.5
_UNLIMITED: Final = 2**31 - 1
_MOST_KEPT_FREE: Final = 1000
_TLS_HANDSHAKE: Final = b"\x16\x03"
_HTTP_METHODS: Final = (b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE", b"OPTI", b"CONN", b"PRI ")

Handler = Callable[[Connection, memoryview], Any]
FrameCheck = Callable[[int, memoryview], None]
TookLong = Callable[[Connection, memoryview, float], None]


class Server:
    """Listens on one address. `handle` answers a frame (see `connection.Host`).

    `check_frame` may refuse a frame of more than `unchecked_frame_bytes` by its size and its first bytes, before the
    rest is received; `took_long` hears of requests that held the event loop.
    """

    def __init__(
        self,
        handle: Handler,
        *,
        max_frame_bytes: int,
        max_idle_ms: int,
        check_frame: FrameCheck | None = None,
        unchecked_frame_bytes: int = _UNLIMITED,
        took_long: TookLong | None = None,
        send_buffer_bytes: int = -1,
        receive_buffer_bytes: int = -1,
    ) -> None:
        self.handle = handle
        self.loop = asyncio.get_running_loop()
        self.buffers = BufferPool()
        self.scratch = memoryview(bytearray(_SCRATCH_BYTES))
        self.endings = Endings(self.loop)
        self.unchecked_frame_bytes = min(max_frame_bytes, unchecked_frame_bytes)
        self._max_frame_bytes = max_frame_bytes
        self._check_frame = check_frame
        self._took_long = took_long
        self.connections: set[Connection] = set()
        self.turn_s = _TURN_S
        self._awaiting_turn: list[Connection] = []
        self._with_spare_room: set[Connection] = set()
        self._max_idle_s = max_idle_ms / 1000
        self._socket_buffers = (
            (socket.SO_SNDBUF, send_buffer_bytes),
            (socket.SO_RCVBUF, receive_buffer_bytes),
        )
        self._per_ip: Counter[str] = Counter()
        self._listener: socket.socket | None = None
        self._accepting = False
        self._kept_free, self._open_files = 0, _UNLIMITED
        self._idle_check: asyncio.TimerHandle | None = None
        self.limit_connections(_UNLIMITED, _UNLIMITED, {})

    def limit_connections(self, in_all: int, per_address: int, overrides: Mapping[str, int]) -> None:
        """How many connections there may be, in all and from one address; `overrides` has other limits by address.

        May be called at any time; connections that are there stay.
        """
        self._max_connections = in_all
        self._max_per_ip = per_address
        self._max_per_ip_overrides = overrides
        if self._listener is not None and len(self.connections) < in_all:
            self._accept_on()

    def listen(self, host: str, port: int) -> tuple[str, int]:
        """Binds and starts to accept; returns the address, whose port is the system's choice for port 0."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, port))
            listener.listen(_BACKLOG)
            listener.setblocking(False)
        except OSError:
            listener.close()
            raise
        self._listener = listener
        self._open_files = _open_files_limit()
        self._kept_free = min(self._open_files // 4, _MOST_KEPT_FREE)
        self._accept_on()
        self._idle_check = self.loop.call_later(self._idle_interval_s(), self._close_idle)
        address: tuple[str, int] = listener.getsockname()[:2]
        return address

    def close(self) -> None:
        """Stops listening and ends every connection."""
        if self._idle_check is not None:
            self._idle_check.cancel()
        self._accept_off()
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        for connection in list(self.connections):
            connection.close()
        self.endings.close()

    def check_frame(self, size: int, start: memoryview) -> None:
        """Refuses a frame that is larger than any, or than those of its kind."""
        if size < 0 or size > self._max_frame_bytes:
            other = _other_protocol(size)
            hint = f"; it seems to speak {other}, and this listener speaks Kafka in plain text" if other else ""
            raise ProtocolViolationError(
                f"a frame of {size} bytes; socket.request.max.bytes={self._max_frame_bytes}{hint}"
            )
        if self._check_frame is not None:
            self._check_frame(size, start)

    def await_turn(self, connection: Connection) -> None:
        """The more connections have many requests, the shorter is the turn of each: all turns together stay short."""
        if not self._awaiting_turn:
            self.loop.call_soon(self._give_turns)
        self._awaiting_turn.append(connection)
        self.turn_s = _TURN_S / (1 + len(self._awaiting_turn))

    def _give_turns(self) -> None:
        connections, self._awaiting_turn, self.turn_s = self._awaiting_turn, [], _TURN_S
        for connection in connections:
            connection.take_turn()

    def took_long(self, connection: Connection, frame: memoryview, seconds: float) -> None:
        """Passes on that a request held the event loop."""
        if self._took_long is not None:
            self._took_long(connection, frame, seconds)

    def spare_room(self, connection: Connection) -> None:
        """Asks soon for what is not needed: a client that sent a large frame once must not hold a large buffer."""
        if not self._with_spare_room:
            self.loop.call_later(_SPARE_ROOM_CHECK_S, self._take_spare_room)
        self._with_spare_room.add(connection)

    def _take_spare_room(self) -> None:
        connections, self._with_spare_room = self._with_spare_room, set()
        for connection in connections:
            connection.give_spare_room()

    def closed(self, connection: Connection) -> None:
        """A connection ended: there may be room for another."""
        self.connections.discard(connection)
        host = _host_of(connection.peer)
        self._per_ip[host] -= 1
        if not self._per_ip[host]:
            del self._per_ip[host]
        if len(self.connections) < self._max_connections:
            self._accept_on()

    def _accept_on(self) -> None:
        if not self._accepting and self._listener is not None:
            self._accepting = True
            self.loop.add_reader(self._listener, self._accept)

    def _accept_off(self) -> None:
        if self._accepting and self._listener is not None:
            self._accepting = False
            self.loop.remove_reader(self._listener)

    def _accept(self) -> None:
        assert self._listener is not None
        for _ in range(_ACCEPTS_PER_EVENT):
            if len(self.connections) >= self._max_connections:
                # As in Kafka: who comes now waits in the backlog until a connection ends.
                logger.warning("max.connections=%d reached: new connections wait", self._max_connections)
                self._accept_off()
                return
            try:
                sock, address = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._accept_failed(error)
                return
            if self._takes_a_files_place(sock):
                sock.close()
                self._accept_failed(OSError(errno.EMFILE, "the files left are kept for data"))
                return
            self._welcome(sock, address[0], address[1])

    def _takes_a_files_place(self, sock: socket.socket) -> bool:
        """Whether clients have so many of the files that may be open that logs would soon find none.

        The system gives out the smallest number that is free, so a large one says how many are open. A quarter is the
        clients' in any case, as there may be very many logs.
        """
        return sock.fileno() >= self._open_files - self._kept_free and len(self.connections) >= self._kept_free

    def _accept_failed(self, error: OSError) -> None:
        if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
            raise error
        logger.error("cannot accept a connection: %s; trying again in a second (raise `ulimit -n`?)", error)
        self._accept_off()
        self.loop.call_later(1.0, self._accept_on)

    def _welcome(self, sock: socket.socket, host: str, port: int) -> None:
        limit = self._max_per_ip_overrides.get(host, self._max_per_ip)
        if self._per_ip[host] >= limit:
            logger.warning("refused %s: it has max.connections.per.ip=%d connections", host, limit)
            sock.close()
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if host.startswith("127.") or host == "::1":
            _stop_pacing(sock)
        for option, size in self._socket_buffers:
            if size > 0:
                sock.setsockopt(socket.SOL_SOCKET, option, size)
        self._per_ip[host] += 1
        self.connections.add(Connection(self, sock, f"{host}:{port}"))

    def _idle_interval_s(self) -> float:
        return min(max(self._max_idle_s / 10, 0.05), 30.0) if self._max_idle_s >= 0 else 30.0

    def _close_idle(self) -> None:
        """Ends what has been idle for too long, as in Kafka also while a request of it waits for others."""
        if self._max_idle_s >= 0:
            oldest = time.monotonic() - self._max_idle_s
            for connection in list(self.connections):
                if connection.last_active < oldest:
                    logger.debug("closed the connection of %s: idle", connection.peer)
                    connection.close()
        self._idle_check = self.loop.call_later(self._idle_interval_s(), self._close_idle)


def _open_files_limit() -> int:
    """How many files this process may have open."""
    with contextlib.suppress(ImportError, OSError):
        import resource

        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return _UNLIMITED if limit == resource.RLIM_INFINITY else min(limit, _UNLIMITED)
    return _UNLIMITED


def _stop_pacing(sock: socket.socket) -> None:
    """BBR spaces packets out with timers; over loopback, where nothing is congested, they cost a third of a send."""
    with contextlib.suppress(OSError, AttributeError):
        if sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).startswith(b"bbr"):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")


def _other_protocol(size: int) -> str | None:
    """What a client speaks whose first four bytes, taken as a length, are this; None where nothing is known."""
    start = (size & 0xFFFFFFFF).to_bytes(4, "big")
    return "TLS" if start.startswith(_TLS_HANDSHAKE) else "HTTP" if start in _HTTP_METHODS else None


def _host_of(peer: str) -> str:
    return peer.rpartition(":")[0]
