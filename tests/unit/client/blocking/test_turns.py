"""A loop that another thread may stop between two steps."""

import asyncio
import threading
import time
from collections.abc import Iterator

import pytest

from headwater.client.blocking.io_thread import IoThread


@pytest.fixture
def io() -> Iterator[IoThread]:
    thread = IoThread("consumer", in_turns=True)
    yield thread
    thread.abandon()


def test_nothing_happens_on_the_loop_while_another_thread_has_the_turn(io: IoThread) -> None:
    steps = 0
    stop = threading.Event()

    async def works_on() -> None:
        nonlocal steps
        while not stop.is_set():
            # Two halves that belong together: whoever has the turn never sees one of them alone.
            steps += 1
            steps += 1
            await asyncio.sleep(0)

    tasks: list[asyncio.Task[None]] = []

    async def begin() -> None:
        tasks.append(asyncio.create_task(works_on()))

    io.run(begin())
    seen: set[int] = set()
    while len(seen) < 50:
        if io.turn.wanted:
            time.sleep(0)
            continue
        with io.turn.lock:
            before = steps
            for _ in range(20):
                assert steps == before
            assert steps % 2 == 0
            seen.add(steps)
    stop.set()


def test_calls_go_on_as_on_any_loop(io: IoThread) -> None:
    async def doubled(number: int) -> int:
        await asyncio.sleep(0.001)
        return 2 * number

    assert [io.run(doubled(number)) for number in range(10)] == list(range(0, 20, 2))
    with io.turn.lock:
        pass
    assert io.run(doubled(4)) == 8


def test_an_end_leaves_the_turn_to_whoever_wants_it(io: IoThread) -> None:
    io.abandon()
    assert io.turn.lock.acquire(timeout=5)
