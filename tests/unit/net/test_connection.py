"""Frames in, replies out, on real sockets: whole, in order, and within bounds whatever the client does."""

import asyncio
import contextlib
import logging
import os
import resource
import socket
import struct
import time
import tracemalloc
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.net.connection import PENDING, Connection, FileRange, ProtocolViolationError
from headwater.net.server import Server, TookLong

NOFILE = resource.getrlimit(resource.RLIMIT_NOFILE)
Handle = Callable[[Connection, memoryview], Any]


def framed(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def echo(connection: Connection, frame: memoryview) -> bytes:
    return framed(bytes(frame))


@asynccontextmanager
async def serving(
    handle: Handle, took_long: TookLong | None = None, **limits: int
) -> AsyncIterator[tuple[Server, str, int]]:
    server = Server(
        handle,
        max_frame_bytes=limits.get("max_frame_bytes", 1 << 20),
        max_idle_ms=limits.get("max_idle_ms", -1),
        took_long=took_long,
    )
    server.limit_connections(limits.get("max_connections", 1000), limits.get("max_connections_per_ip", 1000), {})
    host, port = server.listen("127.0.0.1", 0)
    try:
        yield server, host, port
    finally:
        server.close()


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    size = int.from_bytes(await reader.readexactly(4), "big")
    return await reader.readexactly(size)


@given(
    frames=st.lists(st.binary(max_size=300_000) | st.binary(max_size=50), max_size=6),
    cuts=st.lists(st.integers(1, 70_000), max_size=12),
)
@settings(max_examples=40, deadline=None)
def test_frames_arrive_whole_and_in_order_however_the_stream_is_cut(frames: list[bytes], cuts: list[int]) -> None:
    async def run() -> None:
        async with serving(echo) as (_, host, port):
            reader, writer = await asyncio.open_connection(host, port)
            stream = b"".join(framed(frame) for frame in frames)

            async def send() -> None:
                position = 0
                for cut in [*cuts, len(stream)]:
                    writer.write(stream[position : position + cut])
                    position += cut
                    await writer.drain()
                    await asyncio.sleep(0)

            sending = asyncio.ensure_future(send())
            for frame in frames:
                assert await asyncio.wait_for(read_frame(reader), 10) == frame
            await sending
            writer.close()

    uvloop.run(run())


@pytest.mark.parametrize("size", [0, 1, 16 * 1024 - 8, 16 * 1024 - 7, 2_500_000])
def test_a_reply_may_hold_byte_ranges_of_files(tmp_path: Path, size: int) -> None:
    content = os.urandom(3_000_000)
    (tmp_path / "data").write_bytes(content)

    async def run() -> None:
        with (tmp_path / "data").open("rb") as file:

            def answer(connection: Connection, frame: memoryview) -> list[Any]:
                head = (size + 4).to_bytes(4, "big") + b"<"
                return [head, FileRange(file, 100, size), b">", b"!!"]

            async with serving(answer) as (_, host, port):
                reader, writer = await asyncio.open_connection(host, port)
                writer.write(framed(b"a") + framed(b"b"))
                for _ in range(2):
                    assert await read_frame(reader) == b"<" + content[100 : size + 100] + b">!!"
                writer.close()

    uvloop.run(run())


@pytest.mark.parametrize("missing", [1, 100_000])
def test_a_reply_that_a_file_cuts_short_ends_the_connection(tmp_path: Path, missing: int) -> None:
    (tmp_path / "data").write_bytes(b"x" * 10)

    async def run() -> None:
        with (tmp_path / "data").open("rb") as file:
            async with serving(lambda *_: [b"<", FileRange(file, 0, 10 + missing), b">"]) as (_, host, port):
                reader, writer = await asyncio.open_connection(host, port)
                writer.write(framed(b"a"))
                assert await asyncio.wait_for(reader.read(), 10) == b"<" + b"x" * 10
                writer.close()

    uvloop.run(run())


def test_the_next_request_waits_until_a_pending_reply_has_left() -> None:
    async def run() -> None:
        seen: list[bytes] = []
        waiting: list[Connection] = []

        def handle(connection: Connection, frame: memoryview) -> Any:
            seen.append(bytes(frame))
            if bytes(frame) == b"wait":
                waiting.append(connection)
                return PENDING
            return framed(bytes(frame))

        async with serving(handle) as (_, host, port):
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(framed(b"wait") + framed(b"next"))
            await asyncio.sleep(0.05)
            writer.write(framed(b"third"))
            await asyncio.sleep(0.05)
            assert seen == [b"wait"]
            waiting[0].reply(framed(b"waited"))
            assert [await read_frame(reader) for _ in range(3)] == [b"waited", b"next", b"third"]
            writer.close()

    uvloop.run(run())


def test_a_client_that_goes_away_while_it_waits_is_noticed() -> None:
    async def run() -> None:
        gone = asyncio.Event()

        def handle(connection: Connection, frame: memoryview) -> Any:
            connection.on_close = gone.set
            return PENDING

        async with serving(handle) as (server, host, port):
            _, writer = await asyncio.open_connection(host, port)
            writer.write(framed(b"x"))
            await asyncio.sleep(0.05)
            writer.close()
            await asyncio.wait_for(gone.wait(), 5)
            assert not server.connections

    uvloop.run(run())


def test_a_client_that_does_not_read_its_replies_does_not_grow_the_broker() -> None:
    async def run() -> int:
        def handle(connection: Connection, frame: memoryview) -> bytes:
            return framed(bytes(1_000_000))

        async with serving(handle) as (_, host, port):
            sock = socket.create_connection((host, port))
            sock.setblocking(False)
            tracemalloc.start()
            for _ in range(200):
                try:
                    sock.send(framed(b"give me a megabyte") * 100)
                except BlockingIOError:
                    await asyncio.sleep(0.005)
            await asyncio.sleep(0.1)
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            sock.close()
            return peak

    assert uvloop.run(run()) < 8_000_000


@pytest.mark.parametrize("length", [-1, -(2**31), 2**31 - 1, (1 << 20) + 1])
def test_an_impossible_length_ends_that_connection_and_no_other(length: int) -> None:
    async def run() -> None:
        async with serving(echo) as (_, host, port):
            good_reader, good_writer = await asyncio.open_connection(host, port)
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(length.to_bytes(4, "big", signed=True) + b"x" * 100)
            assert await reader.read() == b""
            good_writer.write(framed(b"still here"))
            assert await read_frame(good_reader) == b"still here"
            writer.close()
            good_writer.close()

    uvloop.run(run())


def test_a_claimed_length_allocates_nothing_before_the_bytes_come() -> None:
    async def run() -> int:
        async with serving(echo, max_frame_bytes=100 << 20) as (_, host, port):
            tracemalloc.start()
            sockets = [socket.create_connection((host, port)) for _ in range(10)]
            for sock in sockets:
                sock.sendall((100 << 20).to_bytes(4, "big") + b"only this")
            await asyncio.sleep(0.2)
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            for sock in sockets:
                sock.close()
            return peak

    # A mebibyte of address space each at the most, not a hundred.
    assert uvloop.run(run()) < 12 << 20


def test_a_thousand_connections_that_claim_much_and_send_little_take_little() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(4096, NOFILE[0]), NOFILE[1]))

    async def run() -> int:
        async with serving(echo, max_frame_bytes=100 << 20, max_connections=2000, max_connections_per_ip=2000) as (
            server,
            host,
            port,
        ):
            tracemalloc.start()
            sockets = []
            for number in range(1000):
                sockets.append(socket.create_connection((host, port)))
                sockets[-1].sendall((100 << 20).to_bytes(4, "big") + b"only this")
                if number % 100 == 0:
                    await asyncio.sleep(0)
            while len(server.connections) < 1000:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.1)
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            for sock in sockets:
                sock.close()
            return peak

    try:
        assert uvloop.run(run()) < 1000 * 70_000
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, NOFILE)


def test_a_connection_that_sent_large_frames_is_not_trusted_for_long() -> None:
    async def run() -> None:
        async with serving(echo, max_frame_bytes=100 << 20) as (server, host, port):
            connections = [await asyncio.open_connection(host, port) for _ in range(5)]
            for reader, writer in connections:
                writer.write(framed(bytes(1 << 20)))
                assert len(await read_frame(reader)) == 1 << 20
                writer.write((1 << 20).to_bytes(4, "big") + b"x")
            deadline = time.monotonic() + 5
            while not all(len(connection._buffer or b"") == 1 << 16 for connection in server.connections):
                assert time.monotonic() < deadline
                await asyncio.sleep(0.05)
            for reader, writer in connections:
                writer.write(bytes((1 << 20) - 1))
                assert await read_frame(reader) == b"x" + bytes((1 << 20) - 1)
                writer.close()

    uvloop.run(run())


def test_a_frame_may_be_refused_by_its_first_bytes() -> None:
    async def run() -> None:
        def check(size: int, start: memoryview) -> None:
            if bytes(start[:1]) == b"x":
                raise ProtocolViolationError(f"{size} bytes of x")

        server = Server(echo, max_frame_bytes=1 << 20, max_idle_ms=-1, check_frame=check, unchecked_frame_bytes=10)
        host, port = server.listen("127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(framed(b"x" * 10) + framed(b"y" * 11))
        assert [await read_frame(reader), await read_frame(reader)] == [b"x" * 10, b"y" * 11]
        writer.write((11).to_bytes(4, "big"))
        await asyncio.sleep(0.05)
        assert server.connections, "the length alone does not tell"
        writer.write(b"x")
        assert await asyncio.wait_for(reader.read(), 5) == b""
        writer.close()
        server.close()

    uvloop.run(run())


@pytest.mark.parametrize(
    ("start", "said"),
    [
        (b"\x16\x03\x01\x02\x00\x01", "it seems to speak TLS, and this listener speaks Kafka in plain text"),
        (b"GET / HTTP/1.1\r\n\r\n", "it seems to speak HTTP, and this listener speaks Kafka in plain text"),
        (b"\x7f\xff\xff\xff\x00\x03", "a frame of 2147483647 bytes; socket.request.max.bytes=1048576"),
    ],
)
def test_a_client_of_another_protocol_is_named(start: bytes, said: str, caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        async with serving(echo) as (_, host, port):
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(start)
            assert await asyncio.wait_for(reader.read(), 5) == b""
            writer.close()

    with caplog.at_level(logging.WARNING):
        uvloop.run(run())
    (line,) = caplog.messages
    assert line.endswith(said)


def test_a_handler_that_refuses_ends_the_connection() -> None:
    async def run() -> None:
        def handle(connection: Connection, frame: memoryview) -> Any:
            raise ProtocolViolationError("no")

        async with serving(handle) as (_, host, port):
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(framed(b"x"))
            assert await reader.read() == b""
            writer.close()

    uvloop.run(run())


def test_connections_beyond_the_limit_wait_until_one_ends() -> None:
    async def run() -> None:
        async with serving(echo, max_connections=2) as (server, host, port):
            first = [await asyncio.open_connection(host, port) for _ in range(2)]
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(framed(b"let me in"))
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(read_frame(reader), 0.2)
            assert len(server.connections) == 2
            first[0][1].close()
            assert await asyncio.wait_for(reader.readexactly(13), 5) == framed(b"let me in")
            for _, open_writer in [first[1], (reader, writer)]:
                open_writer.close()

    uvloop.run(run())


def test_too_many_connections_of_one_address_are_refused() -> None:
    async def run() -> None:
        async with serving(echo, max_connections_per_ip=1) as (_, host, port):
            first_reader, first_writer = await asyncio.open_connection(host, port)
            first_writer.write(framed(b"me"))
            assert await read_frame(first_reader) == b"me"
            reader, writer = await asyncio.open_connection(host, port)
            assert await reader.read() == b""
            writer.close()
            first_writer.close()

    uvloop.run(run())


def test_idle_connections_are_closed_whether_or_not_a_request_waits() -> None:
    async def run() -> None:
        dropped = asyncio.Event()

        def handle(connection: Connection, frame: memoryview) -> Any:
            connection.on_close = dropped.set
            return PENDING

        async with serving(handle, max_idle_ms=200) as (server, host, port):
            waiting_reader, waiting_writer = await asyncio.open_connection(host, port)
            waiting_writer.write(framed(b"wait"))
            idle_reader, idle_writer = await asyncio.open_connection(host, port)
            for reader in (idle_reader, waiting_reader):
                assert await asyncio.wait_for(reader.read(), 5) == b""
            assert dropped.is_set()
            assert not server.connections
            waiting_writer.close()
            idle_writer.close()

    uvloop.run(run())


def test_a_client_that_dribbles_a_frame_is_idle_and_one_that_makes_progress_is_not() -> None:
    async def run() -> None:
        async with serving(echo, max_idle_ms=300, max_frame_bytes=10 << 20) as (server, host, port):
            dribbling = socket.create_connection((host, port))
            reader, writer = await asyncio.open_connection(host, port)
            large = framed(bytes(20 * 70_000))
            dribbling.send(large[:4])
            for number in range(20):
                with contextlib.suppress(ConnectionError):
                    dribbling.send(b"x")
                writer.write(large[number * 70_000 : (number + 1) * 70_000])
                await asyncio.sleep(0.05)
            assert len(server.connections) == 1
            writer.write(large[-4:])
            assert await read_frame(reader) == large[4:]
            writer.close()
            dribbling.close()

    uvloop.run(run())


def spin(seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass


async def connected(host: str, port: int) -> socket.socket:
    """A socket whose connection the server has accepted."""
    sock = socket.create_connection((host, port))
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_sendall(sock, framed(b"hello"))
    assert await asyncio.get_running_loop().sock_recv(sock, 9) == framed(b"hello")
    return sock


def test_a_connection_with_many_requests_lets_others_be_served() -> None:
    seen: list[bytes] = []

    def handle(connection: Connection, frame: memoryview) -> bytes:
        seen.append(bytes(frame))
        if bytes(frame) == b"many":
            spin(0.0005)
        return framed(bytes(frame))

    async def run() -> None:
        async with serving(handle) as (_, host, port):
            greedy, modest = await connected(host, port), await connected(host, port)
            greedy.send(framed(b"many") * 1000)
            modest.send(framed(b"one"))
            assert await asyncio.get_running_loop().sock_recv(modest, 7) == framed(b"one")
            while seen.count(b"many") < 1000:
                await asyncio.sleep(0.01)
            answers = b""
            while len(answers) < 8000:
                answers += await asyncio.get_running_loop().sock_recv(greedy, 8000)
            assert answers == framed(b"many") * 1000
            greedy.close()
            modest.close()

    uvloop.run(run())
    # Two milliseconds are four of these requests.
    assert seen.index(b"one") < 20


def test_many_connections_with_many_requests_have_short_turns() -> None:
    seen: list[bytes] = []

    def handle(connection: Connection, frame: memoryview) -> bytes:
        seen.append(bytes(frame))
        if bytes(frame) == b"many":
            spin(0.0002)
        return framed(bytes(frame))

    async def run() -> None:
        async with serving(handle) as (_, host, port):
            greedy, modest = [await connected(host, port) for _ in range(50)], await connected(host, port)
            for sock in greedy:
                sock.send(framed(b"many") * 40)
            modest.send(framed(b"one"))
            assert await asyncio.get_running_loop().sock_recv(modest, 7) == framed(b"one")
            while seen.count(b"many") < 50 * 40:
                await asyncio.sleep(0.01)
            for sock in (*greedy, modest):
                sock.close()

    uvloop.run(run())
    # Turns of 2 ms each would be 500 requests.
    assert seen.index(b"one") < 250


def test_requests_that_wait_for_their_turn_are_served_although_the_client_hung_up() -> None:
    """As a producer with acks=0 does: it sends and is gone."""
    seen: list[bytes] = []

    def handle(connection: Connection, frame: memoryview) -> bytes | None:
        seen.append(bytes(frame))
        if bytes(frame) == b"many":
            spin(0.0005)
            return None
        return framed(bytes(frame))

    async def run() -> None:
        async with serving(handle) as (server, host, port):
            sock = await connected(host, port)
            sock.send(framed(b"many") * 200)
            sock.close()
            while server.connections:
                await asyncio.sleep(0.01)

    uvloop.run(run())
    assert seen.count(b"many") == 200


@pytest.mark.parametrize("is_reset", [False, True], ids=["closed", "reset"])
def test_a_client_that_goes_away_is_noticed_although_its_buffer_is_full(is_reset: bool) -> None:
    async def run() -> None:
        gone = asyncio.Event()

        def handle(connection: Connection, frame: memoryview) -> Any:
            connection.on_close = gone.set
            return PENDING

        async with serving(handle) as (server, host, port):
            sock = socket.create_connection((host, port))
            sock.setblocking(False)
            sock.send(framed(b"wait"))
            await asyncio.sleep(0.05)
            # More than a buffer, less than the system takes: the end must arrive behind it.
            sock.send(framed(b"behind") * 10_000)
            await asyncio.sleep(0.05)
            if is_reset:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            sock.close()
            await asyncio.wait_for(gone.wait(), 5)
            assert not server.connections

    uvloop.run(run())


def test_a_client_that_shut_its_side_loses_what_waits() -> None:
    async def run() -> None:
        gone = asyncio.Event()

        def handle(connection: Connection, frame: memoryview) -> Any:
            connection.on_close = gone.set
            return PENDING

        async with serving(handle) as (server, host, port):
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(framed(b"wait"))
            await asyncio.sleep(0.05)
            writer.write_eof()
            await asyncio.wait_for(gone.wait(), 5)
            assert await asyncio.wait_for(reader.read(), 5) == b""
            assert not server.connections
            writer.close()

    uvloop.run(run())


def test_a_client_that_shut_its_side_gets_the_replies_to_what_is_worked_on_and_behind_it() -> None:
    async def run() -> None:
        working: list[Connection] = []

        def handle(connection: Connection, frame: memoryview) -> Any:
            if bytes(frame) == b"work":
                working.append(connection)
                return PENDING
            return framed(bytes(frame))

        async with serving(handle) as (server, host, port):
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(framed(b"work") + framed(b"next"))
            writer.write_eof()
            await asyncio.sleep(0.1)
            assert server.connections
            working[0].reply(framed(b"worked"))
            assert await asyncio.wait_for(reader.read(), 5) == framed(b"worked") + framed(b"next")
            assert not server.connections
            writer.close()

    uvloop.run(run())


def test_requests_that_took_long_are_reported() -> None:
    reported: list[tuple[bytes, float]] = []

    def handle(connection: Connection, frame: memoryview) -> bytes:
        if bytes(frame) != b"quick":
            spin(0.02)
        if bytes(frame) == b"bad":
            raise ProtocolViolationError("no")
        return framed(bytes(frame))

    async def run() -> None:
        def note(connection: Connection, frame: memoryview, seconds: float) -> None:
            reported.append((bytes(frame), seconds))

        async with serving(handle, note) as (_, host, port):
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(framed(b"slow") + framed(b"bad"))
            await asyncio.wait_for(reader.read(), 5)
            writer.close()

    uvloop.run(run())
    assert [frame for frame, _ in reported] == [b"slow", b"bad"]
    assert all(seconds >= 0.02 for _, seconds in reported)
