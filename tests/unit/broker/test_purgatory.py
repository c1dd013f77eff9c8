"""The purgatory: a waiting request is tried when its partition changes, ends in time, and leaves nothing behind."""

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable
from typing import Any, cast
from uuid import uuid4

from headwater.broker.services.partition import Partition, Topic
from headwater.broker.services.purgatory import Purgatory
from headwater.config import BrokerConfig, TopicConfig
from headwater.log.log import Log

FOR_EVER_S = 1000.0
SOON_S = 0.02


def new_partition(index: int = 0) -> Partition:
    """A partition without a log: the purgatory does not look at it."""
    config = TopicConfig.from_values({}, BrokerConfig.from_values({}))
    return Partition(Topic("t", uuid4(), {}, config), index, cast("Log", None), 0)


class Request:
    """A waiting request: counts its attempts and succeeds when it is ready, or when its time is up."""

    def __init__(self) -> None:
        self.ready = False
        self.attempts = 0
        self.timed_out = False
        self.then: Callable[[], None] | None = None

    def __call__(self, time_is_up: bool) -> bool:
        self.attempts += 1
        self.timed_out = time_is_up
        if self.then is not None:
            self.then()
        return self.ready or time_is_up


def run(test: Callable[[Purgatory], Awaitable[None]]) -> None:
    async def main() -> None:
        await test(Purgatory(asyncio.get_running_loop()))

    asyncio.run(main())


async def one_turn() -> None:
    """Lets the loop do what was put off to the end of this turn."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)


def test_a_change_of_the_partition_completes_the_request_that_waits_for_it() -> None:
    async def test(purgatory: Purgatory) -> None:
        partition, request = new_partition(), Request()
        purgatory.wait([partition], FOR_EVER_S, request)
        assert len(purgatory) == 1
        assert request.attempts == 0, "nothing is tried before something happens"
        request.ready = True
        purgatory.touched(partition)
        assert request.attempts == 0, "not in the midst of the append"
        await one_turn()
        assert (request.attempts, request.timed_out) == (1, False)
        assert (len(purgatory), partition.waiters) == (0, set())
        purgatory.touched(partition)
        await one_turn()
        assert request.attempts == 1, "it is over"

    run(test)


def test_a_request_that_is_not_satisfied_waits_on() -> None:
    async def test(purgatory: Purgatory) -> None:
        partition, request = new_partition(), Request()
        purgatory.wait([partition], FOR_EVER_S, request)
        for _ in range(3):
            purgatory.touched(partition)
            await one_turn()
        assert request.attempts == 3
        assert len(purgatory) == 1
        request.ready = True
        purgatory.touched(partition)
        await one_turn()
        assert len(purgatory) == 0

    run(test)


def test_time_that_is_up_ends_the_wait() -> None:
    async def test(purgatory: Purgatory) -> None:
        partition, request, patient = new_partition(), Request(), Request()
        purgatory.wait([partition], SOON_S, request)
        purgatory.wait([partition], FOR_EVER_S, patient)
        await asyncio.sleep(5 * SOON_S)
        assert (request.attempts, request.timed_out) == (1, True)
        assert patient.attempts == 0
        assert len(purgatory) == 1
        assert len(partition.waiters) == 1

    run(test)


def test_a_completed_request_is_not_ended_again_by_its_timer() -> None:
    async def test(purgatory: Purgatory) -> None:
        partition, request = new_partition(), Request()
        request.ready = True
        purgatory.wait([partition], SOON_S, request)
        purgatory.touched(partition)
        await asyncio.sleep(5 * SOON_S)
        assert (request.attempts, request.timed_out) == (1, False)

    run(test)


def test_a_request_waits_for_any_of_its_partitions() -> None:
    async def test(purgatory: Purgatory) -> None:
        partitions = [new_partition(index) for index in range(3)]
        for touched in partitions:
            request = Request()
            request.ready = True
            purgatory.wait(partitions, FOR_EVER_S, request)
            purgatory.touched(touched)
            await one_turn()
            assert request.attempts == 1
            assert [each.waiters for each in partitions] == [set(), set(), set()]

    run(test)


def test_only_those_who_watch_the_partition_are_tried() -> None:
    async def test(purgatory: Purgatory) -> None:
        busy, quiet = new_partition(0), new_partition(1)
        watching, elsewhere = Request(), Request()
        purgatory.wait([busy], FOR_EVER_S, watching)
        purgatory.wait([quiet], FOR_EVER_S, elsewhere)
        purgatory.touched(busy)
        await one_turn()
        assert (watching.attempts, elsewhere.attempts) == (1, 0)

    run(test)


def test_many_changes_in_one_turn_complete_a_request_once() -> None:
    async def test(purgatory: Purgatory) -> None:
        partitions, request = [new_partition(0), new_partition(1)], Request()
        request.ready = True
        purgatory.wait(partitions, FOR_EVER_S, request)
        for partition in partitions * 3:
            purgatory.touched(partition)
        await one_turn()
        assert request.attempts == 1
        assert len(purgatory) == 0

    run(test)


def test_many_changes_in_one_turn_are_one_attempt() -> None:
    """A burst of appends does not cost a try for each of them."""

    async def test(purgatory: Purgatory) -> None:
        partition, request = new_partition(), Request()
        purgatory.wait([partition], FOR_EVER_S, request)
        for _ in range(100):
            purgatory.touched(partition)
        await one_turn()
        assert request.attempts == 1

    run(test)


def test_a_cancelled_request_is_never_tried() -> None:
    async def test(purgatory: Purgatory) -> None:
        partition, request = new_partition(), Request()
        waiter = purgatory.wait([partition], SOON_S, request)
        purgatory.touched(partition)
        purgatory.cancel(waiter)
        purgatory.cancel(waiter)
        assert len(purgatory) == 0
        await asyncio.sleep(5 * SOON_S)
        assert request.attempts == 0

    run(test)


def test_a_request_may_be_cancelled_by_another_that_completes_before_it() -> None:
    """As when the answer to one client finds its connection broken."""

    async def test(purgatory: Purgatory) -> None:
        partition, requests = new_partition(), [Request(), Request()]
        waiters = [purgatory.wait([partition], FOR_EVER_S, request) for request in requests]
        for request, other in zip(requests, reversed(waiters), strict=True):
            request.ready = True
            request.then = lambda other=other: purgatory.cancel(other)
        purgatory.touched(partition)
        await one_turn()
        assert sorted(request.attempts for request in requests) == [0, 1]
        assert len(purgatory) == 0

    run(test)


def test_a_change_made_by_an_attempt_is_seen_too() -> None:
    async def test(purgatory: Purgatory) -> None:
        first, second = new_partition(0), new_partition(1)
        causing, waiting = Request(), Request()
        causing.ready = waiting.ready = True
        causing.then = lambda: purgatory.touched(second)
        purgatory.wait([first], FOR_EVER_S, causing)
        purgatory.wait([second], FOR_EVER_S, waiting)
        purgatory.touched(first)
        await asyncio.sleep(SOON_S)
        assert waiting.attempts == 1

    run(test)


def test_a_new_wait_in_an_attempt_is_not_tried_by_the_same_change() -> None:
    """A client asks again as soon as it is answered: that must not go round in circles."""

    async def test(purgatory: Purgatory) -> None:
        partition, request = new_partition(), Request()
        request.ready = True
        request.then = lambda: None if request.attempts > 5 else again()

        def again() -> None:
            purgatory.wait([partition], FOR_EVER_S, request)

        again()
        purgatory.touched(partition)
        await one_turn()
        assert request.attempts == 1
        assert len(purgatory) == 1

    run(test)


def test_an_attempt_that_fails_does_not_keep_the_others_waiting() -> None:
    async def test(purgatory: Purgatory) -> None:
        failures: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
        partition, other_partition = new_partition(0), new_partition(1)

        def broken(time_is_up: bool) -> bool:
            raise OSError("the disk is gone")

        others = [Request() for _ in range(20)]
        for number, request in enumerate(others):
            request.ready = True
            purgatory.wait([partition], FOR_EVER_S, request)
            if number % 5 == 0:
                purgatory.wait([partition], FOR_EVER_S, broken)
        elsewhere = Request()
        elsewhere.ready = True
        purgatory.wait([other_partition], FOR_EVER_S, elsewhere)
        purgatory.touched(partition)
        purgatory.touched(other_partition)
        await asyncio.sleep(SOON_S)
        assert [request.attempts for request in (*others, elsewhere)] == [1] * 21

    run(test)


def test_touching_a_partition_that_nobody_watches_costs_nothing() -> None:
    async def test(purgatory: Purgatory) -> None:
        partition = new_partition()
        for _ in range(1000):
            purgatory.touched(partition)
        await one_turn()
        assert len(purgatory) == 0

    run(test)


def test_ten_thousand_wait_and_all_are_woken_and_forgotten() -> None:
    async def test(purgatory: Purgatory) -> None:
        partitions = [new_partition(index) for index in range(10)]
        requests = [Request() for _ in range(10_000)]
        for number, request in enumerate(requests):
            purgatory.wait([partitions[number % 10]], FOR_EVER_S, request)
        assert len(purgatory) == 10_000
        for request in requests:
            request.ready = True
        for partition in partitions:
            purgatory.touched(partition)
        await one_turn()
        assert {request.attempts for request in requests} == {1}
        assert len(purgatory) == 0
        assert all(not partition.waiters for partition in partitions)
        gone = [weakref.ref(request) for request in requests]
        requests.clear()
        del request
        gc.collect()
        # uvloop and asyncio drop cancelled timers in bulk: what they still hold must not hold our requests.
        assert sum(ref() is not None for ref in gone) == 0

    run(test)
