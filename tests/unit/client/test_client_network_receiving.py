"""Receiving without the interpreter's lock: all that comes, and no longer wait than allowed."""

import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from both_forms import load_compiled, load_plain

MODULE = "headwater.client.receiving"
LONG_MS = 10_000

Receive = Callable[[int, memoryview, int], int]


@pytest.fixture(params=["compiled", "plain"])
def receive(request: pytest.FixtureRequest) -> Receive:
    load = load_compiled if request.param == "compiled" else load_plain
    found: Receive = load((MODULE,))[MODULE].receive
    return found


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    here, there = socket.socketpair()
    here.setblocking(False)
    with here, there:
        yield here, there


def test_what_comes_piece_by_piece_fills_the_room(receive: Receive, pair: tuple[socket.socket, socket.socket]) -> None:
    here, there = pair
    sent = bytes(range(256)) * 8_000
    room = bytearray(len(sent))
    sending = threading.Thread(target=there.sendall, args=(sent + b"more",))
    sending.start()
    assert receive(here.fileno(), memoryview(room), LONG_MS) == len(sent)
    sending.join()
    assert room == sent
    assert here.recv(100) == b"more"


def test_other_threads_go_on_while_it_waits(receive: Receive, pair: tuple[socket.socket, socket.socket]) -> None:
    here, there = pair
    there.send(b"1")
    received: list[int] = []
    room = memoryview(bytearray(2))
    receiving = threading.Thread(target=lambda: received.append(receive(here.fileno(), room, LONG_MS)))
    receiving.start()
    there.send(b"2")
    receiving.join()
    assert received == [2]


def test_where_nothing_comes_it_gives_up_in_time(receive: Receive, pair: tuple[socket.socket, socket.socket]) -> None:
    here, there = pair
    room = memoryview(bytearray(100))
    assert receive(here.fileno(), room, 0) == 0
    there.send(b"a part")
    began_s = time.monotonic()
    assert receive(here.fileno(), room, 10) == 6
    assert time.monotonic() - began_s >= 0.009
    assert bytes(room[:6]) == b"a part"


def test_an_end_is_left_to_whoever_reads_next(receive: Receive, pair: tuple[socket.socket, socket.socket]) -> None:
    here, there = pair
    room = memoryview(bytearray(100))
    there.send(b"the last")
    there.shutdown(socket.SHUT_WR)
    assert receive(here.fileno(), room, LONG_MS) == 8
    assert receive(here.fileno(), room, LONG_MS) == 0
    assert here.recv(100) == b""


def test_an_error_is_left_to_whoever_reads_next(receive: Receive) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    here = socket.create_connection(listener.getsockname())
    there, _ = listener.accept()
    with listener, here:
        here.setblocking(False)
        there.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        there.close()
        assert receive(here.fileno(), memoryview(bytearray(100)), LONG_MS) == 0
