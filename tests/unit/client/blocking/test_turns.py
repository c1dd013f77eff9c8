"""A loop that another thread may stop between two steps."""

import asyncio
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from headwater.client.blocking.io_thread import IoThread
from headwater.client.blocking.turns import Turn, TurnLoop


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
        io.turn.let_the_loop_go_first()
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


def test_what_comes_is_received_while_another_thread_has_the_turn(io: IoThread) -> None:
    here, there = socket.socketpair()
    received = threading.Event()
    left_to_the_loop: list[bytes] = []

    def receive() -> bool:
        assert here.recv(100) == b"answer"
        received.set()
        return True

    async def register() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, TurnLoop)
        loop.add_reader(here, lambda: left_to_the_loop.append(here.recv(100)))
        loop.receivers[here.fileno()] = receive

    async def unregister() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, TurnLoop)
        loop.receivers[here.fileno()] = lambda: False

    io.run(register())
    with here, there:
        with io.turn.lock:
            there.send(b"answer")
            assert received.wait(5)
        io.run(unregister())
        assert left_to_the_loop == []
        there.send(b"more")
        while not left_to_the_loop:
            io.run(asyncio.sleep(0.001))
        assert left_to_the_loop == [b"more"]


def test_who_wants_the_turn_again_lets_the_loop_go_first() -> None:
    turn = Turn()
    order: list[str] = []

    def loop() -> None:
        turn.take_for_the_loop()
        order.append("loop")
        turn.lock.release()

    def other() -> None:
        turn.let_the_loop_go_first()
        with turn.lock:
            order.append("other")

    turn.lock.acquire()
    threads = [threading.Thread(target=loop), threading.Thread(target=other)]
    threads[0].start()
    while not turn._gate.locked():
        time.sleep(0.001)
    threads[1].start()
    threads[1].join(0.02)
    turn.lock.release()
    for thread in threads:
        thread.join(5)
    assert order == ["loop", "other"]
