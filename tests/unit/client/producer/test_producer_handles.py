"""What a handle tells, to threads and on event loops, before and after its batch is settled."""

import asyncio
import gc
import logging
import os
import threading
import warnings
from collections.abc import Callable
from typing import Any

import pytest

from headwater.client.errors import ForkedError


def sent(core: Any, count: int = 3) -> tuple[Any, Any, list[Any]]:
    """An accumulator, the one batch in it as the sender has it, and the handles."""
    accumulator = core.accumulator_with()
    queue = accumulator.topic("orders")
    handles = [accumulator.append(queue, 4, None, b"v", None, 1000 + number) for number in range(count)]
    (ready,) = accumulator.ready(10**9)
    return accumulator, accumulator.drain(ready, 10**9), handles


def test_a_handle_tells_where_its_record_is(core: Any) -> None:
    accumulator, batch, handles = sent(core)
    assert [handle.done() for handle in handles] == [False] * 3
    accumulator.done(batch, 70)
    assert [handle.done() for handle in handles] == [True] * 3
    assert [tuple(handle.result()) for handle in handles] == [
        ("orders", 4, 70, 1000),
        ("orders", 4, 71, 1001),
        ("orders", 4, 72, 1002),
    ]
    assert handles[0].exception() is None


def test_the_broker_s_time_replaces_the_record_s_where_that_is_the_rule(core: Any) -> None:
    accumulator, batch, handles = sent(core)
    accumulator.done(batch, 70, 5555)
    assert handles[1].result().timestamp_ms == 5555


def test_without_an_answer_the_offset_is_unknown(core: Any) -> None:
    accumulator, batch, handles = sent(core)
    accumulator.done(batch, -1)
    assert [handle.result().offset for handle in handles] == [-1, -1, -1]


def test_a_failed_record_raises_its_own_error_or_its_batch_s(core: Any) -> None:
    accumulator, batch, handles = sent(core)
    accumulator.failed(batch, ValueError("the batch"), {1: KeyError("the record")})
    with pytest.raises(ValueError, match="the batch"):
        handles[0].result()
    with pytest.raises(KeyError, match="the record"):
        handles[1].result()
    assert isinstance(handles[2].exception(), ValueError)


def test_a_result_that_is_late_is_a_timeout_and_no_verdict(core: Any) -> None:
    accumulator, batch, handles = sent(core)
    with pytest.raises(TimeoutError, match="orders-4 is still on its way"):
        handles[0].result(timeout_s=0.001)
    accumulator.done(batch, 0)
    assert handles[0].result(timeout_s=0).offset == 0


def test_threads_wait_for_the_result(core: Any) -> None:
    accumulator, batch, handles = sent(core)
    offsets: list[int] = []
    threads = [
        threading.Thread(target=lambda handle=handle: offsets.append(handle.result(20).offset)) for handle in handles
    ]
    for thread in threads:
        thread.start()
    accumulator.done(batch, 5)
    for thread in threads:
        thread.join(20)
    assert sorted(offsets) == [5, 6, 7]


def test_a_thread_that_waits_outlasts_a_split(core: Any) -> None:
    accumulator, batch, handles = sent(core)
    offsets: list[int] = []
    thread = threading.Thread(target=lambda: offsets.append(handles[2].result(20).offset))
    thread.start()
    thread.join(0.02)
    assert thread.is_alive()
    first, second = accumulator.split(batch)
    for part in (first, second):
        accumulator.done(accumulator.drain(part.queue, 10**9), 0 if part is first else 40)
    thread.join(20)
    assert offsets == [40 + second.record_count - 1]


def test_handles_are_awaited_on_the_running_loop(core: Any) -> None:
    async def scenario() -> None:
        accumulator, batch, handles = sent(core)
        asyncio.get_running_loop().call_soon(accumulator.done, batch, 9)
        assert [metadata.offset for metadata in await asyncio.gather(*handles)] == [9, 10, 11]
        assert (await handles[0]).offset == 9, "and again, when it is long settled"

    asyncio.run(scenario())


def test_a_batch_settled_by_another_thread_wakes_the_loop(core: Any) -> None:
    async def scenario() -> None:
        accumulator, batch, handles = sent(core)
        thread = threading.Timer(0.01, accumulator.failed, (batch, ValueError("refused")))
        thread.start()
        with pytest.raises(ValueError, match="refused"):
            await asyncio.wait_for(_awaited(handles[0]), 20)
        thread.join()

    asyncio.run(scenario())


def test_who_stops_waiting_stops_nobody_else(core: Any) -> None:
    async def scenario() -> None:
        accumulator, batch, handles = sent(core)
        impatient = asyncio.ensure_future(handles[0])
        patient = asyncio.ensure_future(handles[0])
        await asyncio.sleep(0)
        impatient.cancel()
        with pytest.raises(asyncio.CancelledError):
            await impatient
        accumulator.done(batch, 3)
        assert (await patient).offset == 3

    asyncio.run(scenario())


def test_a_task_that_waits_outlasts_a_split(core: Any) -> None:
    async def scenario() -> None:
        accumulator, batch, handles = sent(core)
        waiting = [asyncio.ensure_future(handle) for handle in handles]
        flushed = asyncio.ensure_future(batch.delivery.settled())
        await asyncio.sleep(0)
        first, second = accumulator.split(batch)
        accumulator.done(accumulator.drain(first.queue, 10**9), 10)
        await asyncio.wait([waiting[0]])
        assert not waiting[2].done()
        assert not flushed.done(), "half of the batch is still on its way"
        accumulator.done(accumulator.drain(second.queue, 10**9), 20)
        assert (await waiting[2]).offset == 20 + second.record_count - 1
        await flushed

    asyncio.run(scenario())


def test_callbacks_run_in_order_with_their_records_outcomes(core: Any) -> None:
    accumulator = core.accumulator_with()
    queue = accumulator.topic("t")
    calls: list[Any] = []
    handles = [
        accumulator.append(queue, 0, None, b"v", None, 0, lambda error, metadata: calls.append((error, metadata)))
        for _ in range(2)
    ]
    handles[0].add_done_callback(lambda handle: calls.append(handle))
    batch = accumulator.drain(accumulator.ready(10**9)[0], 10**9)
    accumulator.done(batch, 30)
    assert calls == [(None, handles[0].result()), (None, handles[1].result()), handles[0]]
    handles[1].add_done_callback(calls.append)
    assert calls[-1] is handles[1], "too late to wait, it is called at once"


def test_a_callback_that_raises_harms_no_other(core: Any, caplog: pytest.LogCaptureFixture) -> None:
    accumulator = core.accumulator_with()
    queue = accumulator.topic("t")
    calls: list[Any] = []

    def careless(error: Any, metadata: Any) -> None:
        raise RuntimeError("oops")

    accumulator.append(queue, 0, None, b"v", None, 0, careless)
    accumulator.append(queue, 0, None, b"v", None, 0, lambda error, metadata: calls.append(error))
    batch = accumulator.drain(accumulator.ready(10**9)[0], 10**9)
    error = ValueError("refused")
    with caplog.at_level(logging.ERROR):
        accumulator.failed(batch, error)
    assert calls == [error]
    assert "oops" in caplog.text


def test_a_callback_may_send_again(core: Any) -> None:
    accumulator = core.accumulator_with()
    queue = accumulator.topic("t")
    again: list[Any] = []
    accumulator.append(
        queue, 0, None, b"v", None, 0, lambda *_: again.append(accumulator.append(queue, 0, None, b"again", None, 0))
    )
    accumulator.done(accumulator.drain(accumulator.ready(10**9)[0], 10**9), 0)
    assert again[0] is not None
    assert accumulator.pending_records == 1


def test_a_handle_that_is_kept_does_not_keep_the_batch(core: Any) -> None:
    accumulator, batch, handles = sent(core)
    accumulator.done(batch, 0)
    del batch
    gc.collect()
    assert not [each for each in gc.get_objects() if type(each) is core.batch_building.Batch and each.topic == "orders"]
    assert handles[0].result().offset == 0


async def _awaited(handle: Any) -> Any:
    return await handle


def in_a_child(ask: Callable[[], object]) -> str:
    """What asking gives in a child process that is forked off now; an error as its type and words."""
    reads, writes = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of any fork beside threads
        child = os.fork()
    if child == 0:
        try:
            found = repr(ask())
        except BaseException as error:  # whatever it is, the child ends here
            found = f"{type(error).__name__}: {error}"
        os.write(writes, found.encode())
        os._exit(0)
    os.close(writes)
    os.waitpid(child, 0)
    with os.fdopen(reads) as told:
        return told.read()


def test_a_child_process_is_told_that_the_parent_settles_what_it_has_sent(core: Any) -> None:
    accumulator, batch, handles = sent(core)
    delivery = handles[0].delivery

    async def awaited() -> object:
        return await handles[0]

    for ask in (
        lambda: handles[0].result(5),
        lambda: handles[0].exception(5),
        lambda: handles[0].add_done_callback(print),
        lambda: asyncio.run(awaited()),
        lambda: delivery.wait(5),
    ):
        assert in_a_child(ask) == (
            f"{ForkedError.__name__}: a record for orders-4 was sent by the parent process, which alone hears of it; "
            "ask its handle there, or make a new producer in the child process, after the fork"
        )
    assert in_a_child(handles[0].done) == "False"
    accumulator.done(batch, 70)
    assert in_a_child(lambda: handles[0].result().offset) == "70"
    assert handles[0].result().offset == 70


def test_the_handle_of_rows_tells_a_child_process_what_it_told_the_parent(core: Any) -> None:
    arrow = pytest.importorskip("headwater.client.producer.arrow", exc_type=ImportError)
    accumulator, batch, handles = sent(core)
    rows = arrow.ArrowHandle()
    rows.add([core.accumulator.AppendedRows(handles[0], 3)])
    assert in_a_child(rows.done) == "False"
    accumulator.split(batch)
    (ready,) = accumulator.ready(10**9)
    accumulator.done(accumulator.drain(ready, 10**9), 70)
    assert in_a_child(rows.done) == "False", "half of the rows are still on their way"
    accumulator.done(accumulator.drain(ready, 10**9), 71)
    assert (rows.done(), in_a_child(rows.done)) == (True, "True")
