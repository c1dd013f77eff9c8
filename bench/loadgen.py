"""The load generator: one thread, epoll, requests built beforehand. May not import anything of headwater.

Plain Python in Cython's pure mode: compiled (`compiled.py` does it) a request costs the client little more
than its system calls; uncompiled it does the same, slower. Latencies come from one clock in one process.
"""

import os
import select
import socket
import time
from array import array

import cython

_STALL_S = 20.0


class LoadError(RuntimeError):
    """The broker answered with an error code, closed a connection, or stopped answering."""


def _connect(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=_STALL_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setblocking(False)
    return connection


class _Lane:
    """One connection and the answer frame that is arriving on it."""

    def __init__(self, port: int, buffer_bytes: int) -> None:
        self.socket = _connect(port)
        self.buffer = bytearray(buffer_bytes)
        self.view = memoryview(self.buffer)
        self.have_bytes = 0
        self.sent_ns = 0

    def receive(self) -> int:
        """Reads what is there; the size of the first frame when it is whole, else 0."""
        try:
            got = self.socket.recv_into(self.view[self.have_bytes :] if self.have_bytes else self.view)
        except BlockingIOError:
            return 0
        if got == 0:
            raise LoadError("the broker closed a connection of the load generator")
        self.have_bytes += got
        return self.whole_frame()

    def whole_frame(self) -> int:
        """The size of the frame at the start of the buffer when all of it has arrived, else 0."""
        if self.have_bytes < 4:
            return 0
        size = 4 + int.from_bytes(self.view[:4])
        if size > len(self.buffer):
            raise LoadError(f"an answer of {size} bytes is larger than the load generator expects")
        return size if self.have_bytes >= size else 0

    def drop(self, size: int) -> None:
        """Forgets the first frame; what follows it moves to the front."""
        rest = self.have_bytes - size
        if rest:
            self.view[:rest] = bytes(self.view[size : self.have_bytes])
        self.have_bytes = rest


def _check(buffer: bytearray, position: int) -> None:
    code = int.from_bytes(buffer[position : position + 2], signed=True)
    if code:
        raise LoadError(f"the broker answered with error code {code}")


def closed_loop(
    port: int, requests: list[bytes], error_position: int, warm_s: float, run_s: float
) -> tuple[int, float, "array[int]"]:
    """One connection per request in `requests`: each sends it, waits for the answer, and sends it again.

    The first `warm_s` seconds are not counted. Returns the answers counted, the seconds they took, and the
    latencies in ns.
    """
    poller = select.epoll()
    lanes: dict[int, _Lane] = {}
    sends = {}
    for request in requests:
        lane = _Lane(port, 4096)
        descriptor = lane.socket.fileno()
        lanes[descriptor] = lane
        sends[descriptor] = (lane.socket.send, request)
        poller.register(descriptor, select.EPOLLIN)

    capacity: cython.Py_ssize_t = int((run_s + 1) * 250_000)
    storage = array("q", bytes(8 * capacity))
    latencies: cython.longlong[:] = storage
    count: cython.Py_ssize_t = 0
    clock = time.perf_counter_ns
    begin: cython.longlong = clock() + int(warm_s * 1e9)
    end: cython.longlong = begin + int(run_s * 1e9)
    now: cython.longlong = clock()
    last: cython.longlong = begin
    sent: cython.longlong

    for descriptor, lane in lanes.items():
        lane.sent_ns = clock()
        lane.socket.send(sends[descriptor][1])
    while now < end:
        events = poller.poll(_STALL_S)
        if not events:
            raise LoadError(f"no answer on any of {len(lanes)} connections for {_STALL_S:.0f} s")
        for descriptor, _ in events:
            lane = lanes[descriptor]
            if not lane.receive():
                continue
            now = clock()
            _check(lane.buffer, error_position)
            lane.have_bytes = 0
            sent = lane.sent_ns
            if now >= begin and now < end and count < capacity:
                latencies[count] = now - sent
                count += 1
                last = now
            send, request = sends[descriptor]
            lane.sent_ns = now
            if send(request) != len(request):
                raise LoadError("the broker stopped reading: a small request did not fit the socket buffer")
    for lane in lanes.values():
        lane.socket.close()
    poller.close()
    return count, (last - begin) / 1e9, storage[:count]


def _take_offsets(buffer: bytearray, error_position: int, expected: int) -> int:
    """The offset after the last whole batch in a Fetch answer of one partition (`wire.fetch_request`)."""
    _check(buffer, error_position)
    position: cython.Py_ssize_t = error_position + 2 + 8 + 8 + 8 + 1 + 4
    size: cython.Py_ssize_t = 0
    shift: cython.int = 0
    while True:
        byte = buffer[position]
        position += 1
        size |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    stop: cython.Py_ssize_t = position + size - 1
    following = expected
    while position + 27 <= stop:
        batch_size = 12 + int.from_bytes(buffer[position + 8 : position + 12])
        if position + batch_size > stop:
            break
        base_offset = int.from_bytes(buffer[position : position + 8])
        following = base_offset + int.from_bytes(buffer[position + 23 : position + 27]) + 1
        position += batch_size
    return following


def end_to_end(
    port: int,
    produce: bytes,
    produce_error_position: int,
    fetch: bytearray,
    fetch_offset_position: int,
    fetch_error_position: int,
    timer_fd: int,
    messages: int,
) -> "array[int]":
    """Sends a record at each tick of the timer while a second connection long-polls; ns from send to receipt.

    The topic must be empty: the offset at which a record comes back tells which one it is.
    """
    producer = _Lane(port, 1 << 16)
    consumer = _Lane(port, 4 << 20)
    produce_fd, fetch_fd = producer.socket.fileno(), consumer.socket.fileno()
    poller = select.epoll()
    for descriptor in (produce_fd, fetch_fd, timer_fd):
        poller.register(descriptor, select.EPOLLIN)

    sent = array("q", bytes(8 * messages))
    storage = array("q", bytes(8 * messages))
    sent_ns: cython.longlong[:] = sent
    latencies: cython.longlong[:] = storage
    to_send: cython.Py_ssize_t = 0
    received: cython.Py_ssize_t = 0
    following: cython.Py_ssize_t
    now: cython.longlong
    total: cython.Py_ssize_t = messages
    clock = time.perf_counter_ns

    consumer.socket.send(fetch)
    while received < total:
        events = poller.poll(_STALL_S)
        if not events:
            raise LoadError(f"no answer for {_STALL_S:.0f} s; {received} of {to_send} records came back")
        for descriptor, _ in events:
            if descriptor == fetch_fd:
                size = consumer.receive()
                if not size:
                    continue
                now = clock()
                following = _take_offsets(consumer.buffer, fetch_error_position, received)
                while received < following:
                    latencies[received] = now - sent_ns[received]
                    received += 1
                consumer.drop(size)
                fetch[fetch_offset_position : fetch_offset_position + 8] = received.to_bytes(8, "big")
                consumer.socket.send(fetch)
            elif descriptor == timer_fd:
                os.read(timer_fd, 8)
                if to_send < total:
                    sent_ns[to_send] = clock()
                    producer.socket.send(produce)
                    to_send += 1
            else:
                size = producer.receive()
                while size:
                    _check(producer.buffer, produce_error_position)
                    producer.drop(size)
                    size = producer.whole_frame()
    producer.socket.close()
    consumer.socket.close()
    poller.close()
    return storage
