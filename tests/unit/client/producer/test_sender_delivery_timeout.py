"""`delivery.timeout.ms` is kept whatever the sender waits for, and it does not wake up for nothing meanwhile."""

import asyncio
import unittest.mock
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest

from headwater.client.errors import TimedOutError
from headwater.client.producer import outcomes, sender
from headwater.client.producer.idempotence import Sequences
from headwater.client.producer.settings import producer_settings
from headwater.client.producer.statistics import ProducerStatistics
from headwater.client.statistics import ClientStatistics
from unit.client.producer.forms import Core
from unit.client.producer.model_cluster import TOPIC, Fate, ModelCluster, ModelConnection, VirtualLoop, value_of

DELIVERY_TIMEOUT_MS: Final = 5_000
PATIENCE_MS: Final = 500
"""What the sender allows itself, at most."""
REFUSED: Final = Fate("refuse")
UNANSWERED: Final = Fate("serve", 3_600_000)


class Clock:
    """The time of a loop, and how often the sender has asked for it: once a turn."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self.turns = 0

    def now_ms(self) -> int:
        self.turns += 1
        return self._loop.now_ms()


class UnreachableCluster(ModelCluster):
    """Its leaders are known, and no connection to them is ever had."""

    async def connection(self, broker: int) -> ModelConnection:
        await asyncio.sleep(3_600)
        return await super().connection(broker)


@contextmanager
def virtual_time() -> Iterator[tuple[asyncio.Runner, Clock]]:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        loop: Any = runner.get_loop()
        clock = Clock(loop)
        with (
            unittest.mock.patch.object(sender, "monotonic_ms", clock.now_ms),
            unittest.mock.patch.object(outcomes, "monotonic_ms", loop.now_ms),
        ):
            yield runner, clock


async def time_to_fail_ms(
    core: Core, client: Any, nudged_at_ms: Iterable[int], *, linger_ms: int, backoff_ms: int
) -> int:
    """How long a record's user waits, when the sender is woken at those times for nothing."""
    loop: Any = asyncio.get_running_loop()
    chosen = producer_settings(
        {"delivery_timeout_ms": DELIVERY_TIMEOUT_MS, "request_timeout_ms": 3_000, "linger_ms": linger_ms}
    )
    running: sender.Sender
    accumulator = core.accumulator_with(
        linger_ms=linger_ms,
        retry_backoff_ms=backoff_ms,
        retry_backoff_max_ms=backoff_ms,
        wake=lambda: running.wake(),
        clock_ms=loop.now_ms,
    )
    statistics = ProducerStatistics(ClientStatistics("model"), accumulator)
    sequences = Sequences(transactional=False)
    running = sender.Sender(client, accumulator, chosen, client, statistics, sequences=sequences, transactions=None)
    for nudged_ms in nudged_at_ms:
        loop.call_later(nudged_ms / 1000, running.nudge)
    began_ms: int = loop.now_ms()
    handle = accumulator.append(accumulator.topic(TOPIC), 0, None, value_of(0), None, 0)
    with pytest.raises(TimedOutError):
        await handle
    ended_ms: int = loop.now_ms()
    await running.stop()
    return ended_ms - began_ms


@pytest.mark.parametrize(
    ("fate", "linger_ms", "backoff_ms"),
    [(REFUSED, 0, 3_700), (REFUSED, 1_200, 3_700), (UNANSWERED, 0, 3_700), (UNANSWERED, 0, 100)],
)
def test_a_batch_fails_at_the_end_of_its_time_and_nothing_turns_idly_until_then(
    core: Core, fate: Fate, linger_ms: int, backoff_ms: int
) -> None:
    """Also where the pause before its next attempt is longer than what is left, or its last attempt is unanswered."""
    cluster = ModelCluster(1, [fate] * 10, largest_batch_bytes=1 << 20, most_in_flight=5)
    # Late batches are looked for right before there is one: the next look is half a second later.
    nudged_at_ms = [DELIVERY_TIMEOUT_MS - 20]
    with virtual_time() as (runner, clock):
        took_ms = runner.run(time_to_fail_ms(core, cluster, nudged_at_ms, linger_ms=linger_ms, backoff_ms=backoff_ms))
    assert DELIVERY_TIMEOUT_MS <= took_ms <= DELIVERY_TIMEOUT_MS + PATIENCE_MS
    assert clock.turns <= 12


def test_a_batch_that_no_broker_takes_fails_in_time_however_often_the_sender_is_woken(core: Core) -> None:
    cluster = UnreachableCluster(1, [], largest_batch_bytes=1 << 20, most_in_flight=5)
    # Each a little before a look.
    nudged_at_ms = range(PATIENCE_MS - 10, 2 * DELIVERY_TIMEOUT_MS, PATIENCE_MS - 10)
    with virtual_time() as (runner, _):
        took_ms = runner.run(time_to_fail_ms(core, cluster, nudged_at_ms, linger_ms=0, backoff_ms=100))
    assert DELIVERY_TIMEOUT_MS <= took_ms <= DELIVERY_TIMEOUT_MS + PATIENCE_MS
