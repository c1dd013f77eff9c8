"""A coroutine run on a client's thread: results, Ctrl-C, timeouts, forks, and the ways it ends."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from headwater.client.blocking.io_thread import IoThread
from headwater.client.errors import ClosedError, TimedOutError, WrongThreadError

from .scripts import output_of, run_script


@pytest.fixture
def io() -> Iterator[IoThread]:
    thread = IoThread("producer")
    yield thread
    thread.abandon()


async def doubled(number: int) -> int:
    await asyncio.sleep(0)
    return 2 * number


class Endless:
    """A coroutine that says when it has begun, and notes when it was cancelled."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.cancelled = threading.Event()

    async def wait(self) -> None:
        self.begun.set()
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise


def test_the_result_comes_to_the_caller(io: IoThread) -> None:
    assert io.run(doubled(21)) == 42


def test_an_error_comes_to_the_caller(io: IoThread) -> None:
    async def fails() -> None:
        raise LookupError("no such topic")

    with pytest.raises(LookupError, match="no such topic"):
        io.run(fails())
    assert io.run(doubled(1)) == 2


def test_many_threads_may_call_at_once(io: IoThread) -> None:
    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(lambda number: io.run(doubled(number)), range(500))) == [2 * n for n in range(500)]


def test_a_timeout_cancels_the_coroutine_and_leaves_the_thread_usable(io: IoThread) -> None:
    endless = Endless()
    with pytest.raises(TimedOutError, match=r"not done within 0\.05 s"):
        io.run(endless.wait(), timeout_s=0.05)
    assert endless.cancelled.is_set()
    assert io.run(doubled(4)) == 8


def test_ctrl_c_ends_the_wait_and_the_coroutine_but_not_the_thread() -> None:
    printed = output_of(
        """
        import asyncio, os, signal
        from headwater.client.blocking.io_thread import IoThread

        io = IoThread("consumer")
        async def endless():
            os.kill(os.getpid(), signal.SIGINT)
            try:
                await asyncio.sleep(1000)
            finally:
                print("cancelled")
        async def answer():
            return 42
        for _ in range(20):
            try:
                io.run(endless())
            except KeyboardInterrupt:
                print("interrupted", io.run(answer()))
        io.abandon()
        """
    )
    assert printed == "cancelled\ninterrupted 42\n" * 20


def test_a_call_of_a_callback_in_the_thread_itself_is_refused_not_hung(io: IoThread) -> None:
    async def calls_back() -> None:
        io.run(doubled(1))

    with pytest.raises(WrongThreadError, match="a callback of the producer cannot wait for the producer"):
        io.run(calls_back(), timeout_s=5)


def test_a_listener_runs_in_the_thread_that_waits_and_may_call_again(io: IoThread) -> None:
    def listener() -> tuple[int, int]:
        return threading.get_ident(), io.run(doubled(3))

    async def rebalance() -> tuple[int, int]:
        # Others that hand the work on, as timeouts do, make tasks of their own.
        return await asyncio.create_task(io.in_callers_thread(listener))

    assert io.run(rebalance()) == (threading.get_ident(), 6)


def test_what_a_listener_raises_comes_back_to_the_coroutine(io: IoThread) -> None:
    def listener() -> None:
        raise LookupError("listener")

    async def rebalance() -> str:
        try:
            await io.in_callers_thread(listener)
        except LookupError as error:
            return f"heard of it: {error}"
        return "heard nothing"

    assert io.run(rebalance()) == "heard of it: listener"


def test_a_listener_that_nobody_waits_for_does_not_stop_the_loop(io: IoThread) -> None:
    asked = threading.Event()
    free = threading.Event()

    ended = threading.Event()
    begun = threading.Event()
    tasks = []

    def listener() -> None:
        asked.set()
        free.wait(10)

    async def in_the_background() -> None:
        while not begun.is_set():
            await asyncio.sleep(0.001)
        await io.in_callers_thread(listener)
        ended.set()

    async def begin() -> None:
        tasks.append(asyncio.create_task(in_the_background()))

    io.run(begin())
    begun.set()
    assert asked.wait(10)
    assert io.run(doubled(5)) == 10
    free.set()
    assert ended.wait(10)


@pytest.mark.parametrize("way", ["interrupt", "abandon"])
def test_another_thread_can_end_a_call(io: IoThread, way: str) -> None:
    endless = Endless()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(io.run, endless.wait())
        assert endless.begun.wait(10)
        getattr(io, way)()
        with pytest.raises(ClosedError, match="the producer was closed by another thread"):
            waiting.result(10)
    assert endless.cancelled.is_set()


def test_nothing_hangs_when_calls_race_with_the_end() -> None:
    """However late a call comes, it gets its answer or is told that the client is closed."""

    def calls_until_closed(io: IoThread) -> None:
        while True:
            io.run(doubled(1))

    for _ in range(20):
        io = IoThread("admin")
        with ThreadPoolExecutor(4) as pool:
            callers = [pool.submit(calls_until_closed, io) for _ in range(4)]
            io.run(asyncio.sleep(0.005))
            io.abandon()
            for caller in callers:
                assert isinstance(caller.exception(10), ClosedError)


def test_after_its_end_the_thread_is_gone_and_calls_say_so() -> None:
    io = IoThread("admin")
    io.abandon()
    assert "headwater-admin" not in {thread.name for thread in threading.enumerate()}
    with pytest.raises(ClosedError, match="the admin is closed; make a new one"):
        io.run(doubled(1))
    io.abandon()


def test_a_process_that_forgets_to_close_ends_all_the_same() -> None:
    printed = output_of(
        """
        import asyncio
        from headwater.client.blocking.io_thread import IoThread

        async def busy():
            while True:
                await asyncio.sleep(0)
        async def begin():
            global task
            task = asyncio.create_task(busy())
        io = IoThread("producer")
        io.run(begin())
        print("done")
        """
    )
    assert printed == "done\n"


def test_in_a_forked_child_a_call_is_refused_and_the_parent_goes_on() -> None:
    printed = output_of(
        """
        import asyncio, os, sys
        from headwater.client.blocking.io_thread import IoThread
        from headwater.client.errors import ForkedError

        async def answer():
            return 42
        io = IoThread("producer")
        assert io.run(answer()) == 42
        io.on_fork = lambda: print("told", flush=True)
        child = os.fork()
        if child == 0:
            try:
                io.run(answer())
            except ForkedError as error:
                print(error, flush=True)
            io.abandon()  # nothing of the parent's is touched
            with_new = IoThread("producer")
            print("a new one:", with_new.run(answer()), flush=True)
            with_new.abandon()
            sys.exit(7)
        _, status = os.waitpid(child, 0)
        print("child ended with", os.waitstatus_to_exitcode(status))
        print("parent goes on:", io.run(answer()))
        io.abandon()
        """
    )
    assert printed.splitlines() == [
        "told",
        "this producer belongs to the parent process, where its connections are; "
        "make a new one in the child process, after the fork",
        "a new one: 42",
        "child ended with 7",
        "parent goes on: 42",
    ]


def test_a_fork_while_calls_are_under_way_hangs_nobody() -> None:
    done = run_script(
        """
        import asyncio, os, threading, sys
        from headwater.client.blocking.io_thread import IoThread
        from headwater.client.errors import ClosedError, ForkedError

        async def answer():
            await asyncio.sleep(0)
            return 42
        io = IoThread("producer")
        stop = threading.Event()
        def call():
            while not stop.is_set():
                io.run(answer())
        threads = [threading.Thread(target=call) for _ in range(3)]
        for thread in threads:
            thread.start()
        for _ in range(20):
            child = os.fork()
            if child == 0:
                try:
                    io.run(answer())
                except ForkedError:
                    os._exit(0)
                os._exit(1)
            _, status = os.waitpid(child, 0)
            assert os.waitstatus_to_exitcode(status) == 0
        stop.set()
        for thread in threads:
            thread.join()
        io.abandon()
        """
    )
    assert done.returncode == 0, done.stderr
