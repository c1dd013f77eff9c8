"""Frames in, replies out, on real sockets: whole, in order, and within bounds whatever the client does."""

import asyncio
import os
import socket
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
from headwater.net.server import Server

Handle = Callable[[Connection, memoryview], Any]


def framed(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def echo(connection: Connection, frame: memoryview) -> bytes:
    return framed(bytes(frame))


@asynccontextmanager
async def serving(handle: Handle, **limits: int) -> AsyncIterator[tuple[Server, str, int]]:
    server = Server(
        handle, max_frame_bytes=limits.get("max_frame_bytes", 1 << 20), max_idle_ms=limits.get("max_idle_ms", -1)
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


def test_idle_connections_are_closed_and_busy_ones_are_not() -> None:
    async def run() -> None:
        def handle(connection: Connection, frame: memoryview) -> Any:
            return PENDING

        async with serving(handle, max_idle_ms=200) as (server, host, port):
            _, busy_writer = await asyncio.open_connection(host, port)
            busy_writer.write(framed(b"work"))
            idle_reader, idle_writer = await asyncio.open_connection(host, port)
            assert await asyncio.wait_for(idle_reader.read(), 5) == b""
            assert len(server.connections) == 1
            busy_writer.close()
            idle_writer.close()

    uvloop.run(run())
