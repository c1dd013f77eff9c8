"""The sender with its accumulator and numbers, through any story of a bad network: each record is written once and in
order, nothing overtakes what has to be sent again, and users are told the truth.

The rules that hold at every moment are in `model_cluster.py`; here are those at the end of a story.
"""

import asyncio
import functools
import unittest.mock
from dataclasses import dataclass, field
from typing import Any, Final

from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.client.errors import RefusedError, TimedOutError
from headwater.client.producer import outcomes, sender
from headwater.client.producer.idempotence import Sequences
from headwater.client.producer.settings import producer_settings
from headwater.client.producer.statistics import ProducerStatistics
from headwater.client.statistics import ClientStatistics
from headwater.protocol.kafka_types import ErrorCode
from unit.client.producer.forms import Core
from unit.client.producer.model_cluster import DEEDS, TOPIC, Fate, ModelCluster, VirtualLoop, value_of

PARTITIONS: Final = 2
REQUEST_TIMEOUT_MS: Final = 100
FOR_EVER_MS: Final = 3_600_000
MOST_RETRIES: Final = 2**31 - 1
PATIENCE_S: Final = 20
# The sender looks for what is late ten times within the delivery timeout, whatever it waits for: that is every 11 ms.
MOST_LATE_MS: Final = 12
# Up to four records go into a batch; where brokers take only small ones, those of three and four are split.
BATCH_BYTES: Final = 122
SMALL_BATCH_BYTES: Final = 95


NUMBERS_IN_DISORDER: Final = (ErrorCode.out_of_order_sequence_number, ErrorCode.unknown_producer_id)


@dataclass(frozen=True)
class Story:
    """What users do and what the network does, each in order; after that the network is well."""

    steps: list[tuple[str, int, int]]
    fates: list[Fate]
    most_in_flight: int = 5
    delivery_timeout_ms: int = FOR_EVER_MS
    largest_batch_bytes: int = 1 << 20
    linger_ms: int = 0
    retries: int = MOST_RETRIES


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(0, PARTITIONS - 1), st.integers(1, 12)),
        st.tuples(st.just("send"), st.integers(0, PARTITIONS - 1), st.integers(1, 12)),
        st.tuples(st.just("pause"), st.just(0), st.sampled_from([1, 2, 5, 20, 120])),
        st.tuples(st.just("send bad"), st.integers(0, PARTITIONS - 1), st.just(1)),
        st.tuples(st.just("forget"), st.integers(0, PARTITIONS - 1), st.just(0)),
    ),
    min_size=1,
    max_size=15,
)
# Some requests reach the broker only after the client has given them up.
DELAYS_MS = st.sampled_from([0, 1, 1, 2, 7, 30, REQUEST_TIMEOUT_MS + 20])
FATES = st.lists(st.builds(Fate, st.sampled_from(DEEDS), DELAYS_MS, DELAYS_MS), max_size=20)
STORIES = st.builds(
    Story,
    STEPS,
    FATES,
    most_in_flight=st.sampled_from([1, 2, 5, 5]),
    delivery_timeout_ms=st.sampled_from([REQUEST_TIMEOUT_MS + 10, FOR_EVER_MS, FOR_EVER_MS]),
    largest_batch_bytes=st.sampled_from([SMALL_BATCH_BYTES, 1 << 20, 1 << 20]),
    linger_ms=st.sampled_from([0, 5]),
    retries=st.sampled_from([1, 3, MOST_RETRIES, MOST_RETRIES]),
)


@dataclass
class Ending:
    """What the users of the records of one partition heard."""

    offsets: dict[int, int] = field(default_factory=dict)
    errors: dict[int, Any] = field(default_factory=dict)


async def play(story: Story, core: Core, cluster: ModelCluster, endings: list[Ending]) -> None:
    """Lets a story happen, and waits until every user has heard how it ended."""
    loop: Any = asyncio.get_running_loop()
    chosen = producer_settings(
        {
            "linger_ms": story.linger_ms,
            "max_in_flight_requests_per_connection": story.most_in_flight,
            "request_timeout_ms": REQUEST_TIMEOUT_MS,
            "delivery_timeout_ms": story.delivery_timeout_ms,
            "retry_backoff_ms": 10,
            "retries": story.retries,
        }
    )
    running: sender.Sender
    accumulator = core.accumulator_with(
        batch_size=BATCH_BYTES,
        linger_ms=story.linger_ms,
        retry_backoff_ms=10,
        retry_backoff_max_ms=40,
        wake=lambda: running.wake(),
        clock_ms=loop.now_ms,
    )
    client: Any = cluster
    statistics = ProducerStatistics(ClientStatistics("model"), accumulator)
    sequences = Sequences(transactional=False)
    running = sender.Sender(client, accumulator, chosen, client, statistics, sequences=sequences, transactions=None)
    queue, sent = accumulator.topic(TOPIC), 0

    def settled(partition: int, number: int, sent_ms: int, error: Exception | None, metadata: Any) -> None:
        cluster.unsettled[partition].remove(number)
        if loop.now_ms() > sent_ms + story.delivery_timeout_ms + MOST_LATE_MS:
            cluster.violations.append(f"the user of {number} waits longer than the delivery timeout")
        if error is None:
            endings[partition].offsets[number] = metadata.offset
        else:
            endings[partition].errors[number] = error

    for step, partition, amount in story.steps:
        if step == "pause":
            await asyncio.sleep(amount / 1000)
        elif step == "forget":
            # Only when nothing is on its way, as a broker that has forgotten can tell no copy.
            await until_settled(cluster.unsettled[partition])
            cluster.forget_producer(partition)
        else:
            for number in range(sent, sent + amount):
                value = value_of(number, is_bad=step == "send bad")
                cluster.unsettled[partition].add(number)
                on_delivery = functools.partial(settled, partition, number, loop.now_ms())
                assert accumulator.append(queue, partition, None, value, None, 0, on_delivery) is not None
            sent += amount
    for unsettled in cluster.unsettled:
        await until_settled(unsettled)
    await running.stop()


async def until_settled(unsettled: set[int]) -> None:
    """Waits for that, and until what is under way without anybody waiting for it has arrived as well."""
    async with asyncio.timeout(PATIENCE_S):
        while unsettled:
            await asyncio.sleep(0.02)
    await asyncio.sleep(3)


def check(story: Story, core: Core) -> ModelCluster:
    """Plays a story and looks at its end."""
    cluster = ModelCluster(
        PARTITIONS, story.fates, largest_batch_bytes=story.largest_batch_bytes, most_in_flight=story.most_in_flight
    )
    endings = [Ending() for _ in range(PARTITIONS)]
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        loop: Any = runner.get_loop()
        loop.set_exception_handler(lambda _, context: cluster.violations.append(repr(context)))
        with (
            unittest.mock.patch.object(sender, "monotonic_ms", loop.now_ms),
            unittest.mock.patch.object(outcomes, "monotonic_ms", loop.now_ms),
        ):
            runner.run(play(story, core, cluster, endings))
    assert not cluster.violations
    has_bad = any(step == "send bad" for step, _, _ in story.steps)
    for log, ending in zip(cluster.logs, endings, strict=True):
        assert log.numbers == sorted(set(log.numbers)), "each once and in order"
        assert ending.offsets == {number: log.numbers.index(number) for number in ending.offsets}
        for number, error in ending.errors.items():
            if isinstance(error, RefusedError) and error.code is ErrorCode.invalid_record:
                assert has_bad
                assert number not in log.numbers
            else:
                assert story.delivery_timeout_ms < FOR_EVER_MS or story.retries < MOST_RETRIES
                # Its time ended while nobody answered; or that or its retries with an answer that has it sent again.
                assert isinstance(error, TimedOutError) or error.retriable or error.code in NUMBERS_IN_DISORDER
    return cluster


def test_each_record_is_written_once_and_in_order_whatever_happens_on_the_way(core: Core) -> None:
    @settings(max_examples=200, deadline=None)
    @given(STORIES)
    def any_story(story: Story) -> None:
        check(story, core)

    any_story()


def test_what_is_behind_a_batch_that_was_given_up_is_not_written_twice(core: Core) -> None:
    """The broker may have what was given up after a refusal, by an attempt before, and so what came behind it."""
    both_are_written = [Fate("refuse_after_append"), Fate("lose_answer", there_ms=5)]
    story = Story([("send", 0, 8)], [*both_are_written, Fate("refuse")], retries=1)
    assert check(story, core).logs[0].numbers == list(range(8))


def test_what_was_given_up_may_arrive_late_and_what_is_behind_it_is_not_written_twice(core: Core) -> None:
    """Two requests reach the broker after the client's patience; the time of the first one's record ends in between."""
    known = [("send", 0, 1), ("pause", 0, 20)]
    steps = [*known, ("send", 0, 1), ("pause", 0, 20), ("pause", 0, 20), ("send", 0, 1)]
    story = Story(steps, [Fate("serve"), Fate("serve", 120, 0)], most_in_flight=2, delivery_timeout_ms=110)
    assert check(story, core).logs[0].numbers == [0, 1, 2]


def test_what_follows_a_first_batch_that_was_refused_is_not_taken_before_it(core: Core) -> None:
    """A leader that has not heard of the topic yet knows no producer there, and takes any number for the first."""
    story = Story([("send", 0, 8)], [Fate("refuse"), Fate("serve")], most_in_flight=5)
    assert check(story, core).logs[0].numbers == list(range(8))
