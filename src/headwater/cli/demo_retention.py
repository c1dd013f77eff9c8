"""The demo's old records: a topic that keeps the newest price of each article, and one that keeps clicks for a day.

Both are written, and then the broker does its work: the demo waits until it is done and reads what is left.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from headwater.cli.demo_broker import DemoError
from headwater.client import Client
from headwater.client.thin.admin import NewTopic, create_topics, describe_cluster, describe_log_dirs
from headwater.client.thin.fetcher import Fetcher
from headwater.client.thin.offsets import Spot, list_offsets
from headwater.client.thin.producer import BatchProducer, now_ms
from headwater.protocol.records import decode_records
from headwater.types import TopicPartition

EAGER_BROKER: Final = {"log.cleaner.backoff.ms": 100, "log.retention.check.interval.ms": 100}
"""Settings of a broker that looks for old records all the time, as nobody wants to watch it wait."""
PRICES: Final = "prices"
CLICKS: Final = "clicks"
_ARTICLES: Final = 500
_ROUNDS: Final = 200
_ROUNDS_A_BATCH: Final = 10
_CLICKS: Final = 1000
_DAY_MS: Final = 86_400_000
_SEGMENT_MS: Final = 50
_PATIENCE_S: Final = 30.0
_LOOK_INTERVAL_S: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    """What compaction made of the price updates."""

    updates: int
    articles: int
    left: int
    bytes_before: int
    bytes_after: int


async def compact_prices(client: Client) -> Compacted:
    """Writes many updates of few prices and waits for the cleaner; DemoError unless the newest of each is left."""
    place = await _create(client, PRICES, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"})
    producer = BatchProducer(client, PRICES)
    await producer.start()
    for first in range(0, _ROUNDS, _ROUNDS_A_BATCH):
        rounds, timestamp_ms = range(first, first + _ROUNDS_A_BATCH), now_ms()
        await producer.send(
            0, [(_article(n), _price(n, turn), (), timestamp_ms) for turn in rounds for n in range(_ARTICLES)]
        )
    await producer.flush()
    bytes_before = await _size(client, place)
    # The cleaner leaves the segment alone that is being written: one more update begins another.
    await asyncio.sleep(2 * _SEGMENT_MS / 1000)
    await producer.send(0, [(_article(0), _price(0, _ROUNDS), (), now_ms())])
    await producer.flush()
    most_left = 2 * _ARTICLES
    records = await _wait_for(client, place, lambda left: len(left) <= most_left, "the cleaner")
    expected = {_article(n): _price(n, _ROUNDS - 1) for n in range(_ARTICLES)} | {_article(0): _price(0, _ROUNDS)}
    if dict(records) != expected:
        raise DemoError("compaction left other prices than the newest")
    return Compacted(
        updates=_ROUNDS * _ARTICLES + 1,
        articles=_ARTICLES,
        left=len(records),
        bytes_before=bytes_before,
        bytes_after=await _size(client, place),
    )


async def expire_clicks(client: Client) -> tuple[int, int]:
    """Writes clicks of last week and of today to a topic that keeps a day's: how many are gone, how many are left."""
    place = await _create(client, CLICKS, {"retention.ms": str(_DAY_MS)})
    producer = BatchProducer(client, CLICKS)
    await producer.start()
    for age_ms in (7 * _DAY_MS, 0):
        await producer.send(0, [(None, b"click", (), now_ms() - age_ms)] * _CLICKS)
        await producer.flush()
    left = await _wait_for(client, place, lambda left: len(left) <= _CLICKS, "retention")
    if len(left) != _CLICKS:
        raise DemoError(f"{len(left):,} of today's {_CLICKS:,} clicks are left")
    return _CLICKS, len(left)


def _article(number: int) -> bytes:
    return b"article-%03d" % number


def _price(number: int, turn: int) -> bytes:
    return b'{"article": %d, "price": %d.%02d}' % (number, 10 + number + turn // 100, turn % 100)


async def _create(client: Client, name: str, configs: dict[str, str]) -> TopicPartition:
    topic = NewTopic(name=name, partitions=1, configs={"segment.ms": str(_SEGMENT_MS), **configs})
    for outcome in await create_topics(client, [topic]):
        if outcome.error is not None:
            raise outcome.error
    return TopicPartition(name, 0)


async def _size(client: Client, place: TopicPartition) -> int:
    """The bytes that a partition takes up, as the broker says."""
    (broker,) = (await describe_cluster(client)).brokers
    return sum(
        replica.partition_size
        for log_dir in await describe_log_dirs(client, broker.broker_id, [place])
        for topic in log_dir.topics
        for replica in topic.partitions
    )


_Records = list[tuple[bytes | None, bytes | None]]
_Check = Callable[[_Records], bool]


async def _wait_for(client: Client, place: TopicPartition, is_done: _Check, who: str) -> _Records:
    """Reads a partition again and again until there are few enough records."""
    give_up_s = time.monotonic() + _PATIENCE_S
    while not is_done(left := await _read(client, place)):
        if time.monotonic() > give_up_s:
            raise DemoError(f"{who} has not removed the old records of {place} within {_PATIENCE_S:g} s")
        await asyncio.sleep(_LOOK_INTERVAL_S)
    return left


async def _read(client: Client, place: TopicPartition) -> _Records:
    """All keys and values of a partition."""
    records: _Records = []
    ((start, _),) = (await list_offsets(client, [place], Spot.EARLIEST)).values()
    ((end, _),) = (await list_offsets(client, [place], Spot.LATEST)).values()
    fetcher = Fetcher(client, place.topic, {place.partition: start})
    async with aclosing(fetcher.batches()) as answers:
        async for answer in answers:
            for fetched in answer:
                for batch in fetched.batches:
                    records += [(record.key, record.value) for record in decode_records(fetched.buffer, batch)]
                if fetched.next_offset >= end:
                    fetcher.stop_reading(place.partition)
    return records
