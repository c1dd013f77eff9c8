"""The demo's old records: a topic that keeps the newest price of each article, and one that keeps clicks for a day.

Both are written, and then the broker does its work: the demo waits until it is done and reads what is left.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from headwater.cli.demo_broker import DemoError
from headwater.cli.demo_records import CLIENT_ID, read_partition
from headwater.client import Client
from headwater.client.admin.log_dirs import describe_log_dirs
from headwater.client.admin.topics import NewTopic, create_topics
from headwater.client.consumer.records import Record
from headwater.client.producer.producer import Producer
from headwater.types import TopicPartition

EAGER_BROKER: Final = {"log.cleaner.backoff.ms": 100, "log.retention.check.interval.ms": 100}
"""Settings of a broker that looks for old records all the time, as nobody wants to watch it wait."""
PRICES: Final = "prices"
CLICKS: Final = "clicks"
_ARTICLES: Final = range(500)
_ROUNDS: Final = 200
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


async def compact_prices(bootstrap: str) -> Compacted:
    """Writes many updates of few prices and waits for the cleaner; DemoError unless the newest of each is left."""
    async with Producer(bootstrap, client_id=CLIENT_ID) as producer:
        client = producer.client
        place = await _create(client, PRICES, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"})
        await _write(producer, PRICES, ((_article(n), _price(n, turn)) for turn in range(_ROUNDS) for n in _ARTICLES))
        bytes_before = await _size(client, place)
        # The cleaner leaves the segment alone that is being written: one more update begins another.
        await asyncio.sleep(2 * _SEGMENT_MS / 1000)
        await _write(producer, PRICES, [(_article(0), _price(0, _ROUNDS))])
        most_left = 2 * len(_ARTICLES)
        records = await _wait_for(bootstrap, place, lambda left: len(left) <= most_left, "the cleaner")
        bytes_after = await _size(client, place)
    expected = {_article(n): _price(n, _ROUNDS - 1) for n in _ARTICLES} | {_article(0): _price(0, _ROUNDS)}
    if {record.key: record.value for record in records} != expected:
        raise DemoError("compaction left other prices than the newest")
    return Compacted(
        updates=_ROUNDS * len(_ARTICLES) + 1,
        articles=len(_ARTICLES),
        left=len(records),
        bytes_before=bytes_before,
        bytes_after=bytes_after,
    )


async def expire_clicks(bootstrap: str) -> tuple[int, int]:
    """Writes clicks of last week and of today to a topic that keeps a day's: how many are gone, how many are left."""
    async with Producer(bootstrap, client_id=CLIENT_ID) as producer:
        place = await _create(producer.client, CLICKS, {"retention.ms": str(_DAY_MS)})
        for age_ms in (7 * _DAY_MS, 0):
            await _write(producer, CLICKS, [(None, b"click")] * _CLICKS, age_ms=age_ms)
    left = await _wait_for(bootstrap, place, lambda left: len(left) <= _CLICKS, "retention")
    if len(left) != _CLICKS:
        raise DemoError(f"{len(left):,} of today's {_CLICKS:,} clicks are left")
    return _CLICKS, len(left)


async def _write(
    producer: Producer, topic: str, records: Iterable[tuple[bytes | None, bytes]], *, age_ms: int = 0
) -> None:
    """Writes keys and values as if so long ago, and waits until they are acknowledged."""
    timestamp_ms = time.time_ns() // 1_000_000 - age_ms
    handles = [await producer.send(topic, value, key=key, timestamp_ms=timestamp_ms) for key, value in records]
    await producer.flush()
    for handle in handles:
        handle.result(0)


def _article(number: int) -> bytes:
    return b"article-%03d" % number


def _price(number: int, turn: int) -> bytes:
    return b'{"article": %d, "price": %d.%02d}' % (number, 10 + number + turn // 100, turn % 100)


async def _create(client: Client, name: str, configs: dict[str, str]) -> TopicPartition:
    topic = NewTopic(name, partitions=1, configs={"segment.ms": str(_SEGMENT_MS), **configs})
    (await create_topics(client, [topic])).or_raise()
    return TopicPartition(name, 0)


async def _size(client: Client, place: TopicPartition) -> int:
    """The bytes that a partition takes up, as the broker says."""
    log_dirs_of_brokers = (await describe_log_dirs(client, partitions=[place])).or_raise().values()
    return sum(replica.size_bytes for dirs in log_dirs_of_brokers for log_dir in dirs for replica in log_dir.replicas)


async def _wait_for(
    bootstrap: str, place: TopicPartition, is_done: Callable[[list[Record]], bool], who: str
) -> list[Record]:
    """Reads a partition again and again until there are few enough records."""
    give_up_s = time.monotonic() + _PATIENCE_S
    while not is_done(left := await read_partition(bootstrap, place)):
        if time.monotonic() > give_up_s:
            raise DemoError(f"{who} has not removed the old records of {place} within {_PATIENCE_S:g} s")
        await asyncio.sleep(_LOOK_INTERVAL_S)
    return left
