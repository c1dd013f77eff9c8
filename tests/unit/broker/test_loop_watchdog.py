"""Turns of the loop that are too long are counted and told, with the requests that are responsible."""

import asyncio
import contextlib
import logging
import re
import struct
import time
from collections.abc import AsyncIterator

import pytest
import uvloop

from headwater.broker.services import loop_watchdog
from headwater.broker.services.loop_watchdog import OTHER, LoopWatchdog
from headwater.net.connection import Connection
from headwater.net.server import Server

METADATA_V9 = struct.pack(">hh", 3, 9) + b"and the rest"


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine may be busy: what counts here is far above what it does by itself."""
    monkeypatch.setattr(loop_watchdog, "_LIMIT_S", 0.5)


def hold(seconds: float) -> None:
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass


@contextlib.asynccontextmanager
async def watching(*under_way: str) -> AsyncIterator[LoopWatchdog]:
    watchdog = LoopWatchdog(lambda: iter(under_way))
    watchdog.start()
    await asyncio.sleep(0.05)
    try:
        yield watchdog
        await asyncio.sleep(0.05)
    finally:
        watchdog.stop()


def test_a_turn_that_a_request_held_is_counted_and_told_with_its_api(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> LoopWatchdog:
        async with watching() as watchdog:
            server = Server(handle, max_frame_bytes=1000, max_idle_ms=-1, took_long=watchdog.request_took)
            host, port = server.listen("127.0.0.1", 0)
            _, writer = await asyncio.open_connection(host, port)
            writer.write(struct.pack(">i", len(METADATA_V9)) + METADATA_V9)
            while not watchdog.long_turns:
                await asyncio.sleep(0.01)
            writer.close()
            server.close()
        return watchdog

    def handle(connection: Connection, frame: memoryview) -> None:
        hold(0.6)

    with caplog.at_level(logging.WARNING):
        watchdog = uvloop.run(run())
    assert watchdog.long_turns == {"metadata": 1}
    assert watchdog.worst_s >= 0.6
    assert watchdog.worst_held_s >= 0.55
    (line,) = caplog.messages
    assert "nobody was served for" in line
    assert "metadata v9 (16 bytes) of 127.0.0.1:" in line


def test_a_turn_without_a_long_request_is_counted_with_what_is_in_work(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> LoopWatchdog:
        async with watching("create_topics v7 (20 bytes) of 127.0.0.1:1") as watchdog:
            asyncio.get_running_loop().call_soon(hold, 0.6)
        return watchdog

    with caplog.at_level(logging.WARNING):
        watchdog = uvloop.run(run())
    assert watchdog.long_turns == {OTHER: 1}
    (line,) = caplog.messages
    assert line.endswith("no single request took long; in work: create_topics v7 (20 bytes) of 127.0.0.1:1")


async def wait_in_the_loop() -> LoopWatchdog:
    async with watching() as watchdog:
        time.sleep(0.6)
    return watchdog


def test_time_that_others_had_the_processor_is_told_apart_and_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        watchdog = uvloop.run(wait_in_the_loop())
    assert watchdog.long_turns == {OTHER: 1}
    assert watchdog.worst_s >= 0.55
    assert watchdog.worst_held_s < 0.25
    (told,) = [record for record in caplog.records if "nobody was served" in record.message]
    assert told.levelno == logging.DEBUG
    assert told.message.endswith("this process waited for a processor or a disk")


def test_a_long_wait_is_a_warning(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_watchdog, "_WAIT_LIMIT_S", 0.5)
    with caplog.at_level(logging.WARNING):
        uvloop.run(wait_in_the_loop())
    (line,) = caplog.messages
    assert re.search(r"\(\d+ ms of work here, the rest waiting for a processor or a disk\): no single request", line)


def test_lines_are_few_however_many_turns_are_long(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_watchdog, "_LIMIT_S", 0.05)

    async def run() -> LoopWatchdog:
        async with watching() as watchdog:
            for _ in range(5):
                hold(0.1)
                await asyncio.sleep(0.03)
            monkeypatch.setattr(loop_watchdog, "_LOG_INTERVAL_S", 0)
            hold(0.1)
        return watchdog

    with caplog.at_level(logging.WARNING):
        watchdog = uvloop.run(run())
    assert watchdog.long_turns.total() >= 6
    first, second, *_ = caplog.messages
    assert "more such" not in first
    assert re.search(r"; [4-9] more such pauses since the last line$", second)
