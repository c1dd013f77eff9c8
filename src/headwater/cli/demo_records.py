"""The demo's records: what is written where, and whether exactly that comes back.

Every value is an order of 100 bytes with its number in it. Orders go to the partitions batch by batch in turn, so the
number that must stand at any offset can be computed, and nothing has to be remembered.
"""

import asyncio
import time
import zlib
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from headwater.cli.bulk_sending import BulkSender
from headwater.cli.demo_broker import DemoError
from headwater.client.consumer.consumer import Consumer
from headwater.client.consumer.records import Record
from headwater.client.producer.producer import Producer
from headwater.protocol.record_columns import RecordColumns
from headwater.types import TopicPartition

VALUE: Final = b'{"order":%10d,"item":"spring water, 6 x 0.75 litres","city":"Headwater Falls","source":"demo"}'
VALUE_BYTES: Final = len(VALUE % 0)
ORDER_NUMBER: Final = slice(9, 19)
"""Where in a value the order's number stands, padded with blanks."""

_BATCH_RECORDS: Final = 5_000
_BATCH_BYTES: Final = 61 + _BATCH_RECORDS * (VALUE_BYTES + 10)
"""What so many records take and one more does not."""
_PARTITION_FETCH_BYTES: Final = 4 * 1024 * 1024
_LOOK_S: Final = 0.1
_PATIENCE_S: Final = 15.0
CLIENT_ID: Final = "headwater-demo"

Progress = Callable[[int], None]
"""Told how many records are done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Which order stands where."""

    topic: str
    records: int
    partitions: int

    @property
    def batch_records(self) -> int:
        """Records in a batch; of few records every partition still gets some."""
        return min(_BATCH_RECORDS, -(-self.records // self.partitions))

    def count_in(self, partition: int) -> int:
        """How many records a partition gets."""
        batches, rest = divmod(self.records, self.batch_records)
        rounds, turn = divmod(batches, self.partitions)
        return (rounds + (partition < turn)) * self.batch_records + (rest if partition == turn else 0)

    def orders(self, partition: int, offset: int, count: int) -> list[int]:
        """The orders that stand at `count` offsets from `offset` on.

        >>> Plan(topic="orders", records=8, partitions=2).orders(1, 0, 4)
        [4, 5, 6, 7]
        """
        orders: list[int] = []
        while len(orders) < count:
            batch, within = divmod(offset + len(orders), self.batch_records)
            first = (batch * self.partitions + partition) * self.batch_records + within
            orders.extend(range(first, first + min(self.batch_records - within, count - len(orders))))
        return orders


@dataclass(frozen=True, slots=True, kw_only=True)
class Leg:
    """One way of the records, in or out; `checksums` are CRC-32s of all value bytes of each partition in order."""

    records: int
    seconds: float
    checksums: Mapping[int, int]

    @property
    def records_per_s(self) -> float:
        """The rate in records."""
        return self.records / max(self.seconds, 1e-9)

    @property
    def bytes_per_s(self) -> float:
        """The rate in bytes of values."""
        return self.records_per_s * VALUE_BYTES


async def write_all(bootstrap: str, plan: Plan, progress: Progress) -> Leg:
    """Writes every record, acknowledged with acks=all by an idempotent producer."""
    settings = {"client_id": CLIENT_ID, "batch_size": _BATCH_BYTES, "linger_ms": 0}
    async with Producer(bootstrap, **settings) as producer:
        await producer.wait_for_topic(plan.topic)
        sender = BulkSender(producer, plan.topic)
        checksums = dict.fromkeys(range(plan.partitions), 0)
        started_s = time.perf_counter()
        for batch, first in enumerate(range(0, plan.records, plan.batch_records)):
            partition = batch % plan.partitions
            values = [VALUE % order for order in range(first, min(first + plan.batch_records, plan.records))]
            checksums[partition] = zlib.crc32(b"".join(values), checksums[partition])
            await sender.send_values(partition, values)
            await asyncio.sleep(0)  # answers of the broker are read between batches
            progress(sender.acknowledged_records)
        await sender.flush()
        progress(sender.acknowledged_records)
        return Leg(records=plan.records, seconds=time.perf_counter() - started_s, checksums=checksums)


async def read_all(bootstrap: str, plan: Plan, progress: Progress) -> Leg:
    """Reads every record and checks each one's offset and order; DemoError at the first that is wrong."""
    reader = _Reader(plan)
    places = [TopicPartition(plan.topic, partition) for partition in range(plan.partitions)]
    async with reading(bootstrap, places, max_partition_fetch_bytes=_PARTITION_FETCH_BYTES) as consumer:
        await _demand_all_written(consumer, plan, places)
        started_s = last_news_s = time.perf_counter()
        while reader.records < plan.records:
            parts = await consumer.poll_columns(_LOOK_S)
            for _, partition, columns in parts:
                reader.take(partition, columns)
            now_s = time.perf_counter()
            if parts:
                last_news_s = now_s
            elif now_s - last_news_s > _PATIENCE_S:
                raise DemoError(f"the broker sent nothing for {_PATIENCE_S:g} s, with {reader.records:,} records read")
            progress(reader.records)
        return Leg(records=reader.records, seconds=time.perf_counter() - started_s, checksums=reader.checksums)


def reading(bootstrap: str, places: Iterable[TopicPartition], **settings: Any) -> Consumer:
    """A consumer at the start of these partitions."""
    consumer = Consumer(bootstrap, client_id=CLIENT_ID, auto_offset_reset="earliest", **settings)
    consumer.assign(places)
    return consumer


async def read_partition(bootstrap: str, place: TopicPartition, *, at_least: int = 0, **settings: Any) -> list[Record]:
    """The records of a partition up to its end as it is now, or so many of them and perhaps a few more."""
    records: list[Record] = []
    async with reading(bootstrap, [place], **settings) as consumer:
        end = (await consumer.end_offsets([place]))[place]
        while await consumer.position(place) < end and not 0 < at_least <= len(records):
            records += await consumer.poll(_LOOK_S)
    return records


def demand_same_bytes(written: Leg, read: Leg) -> None:
    """Every byte of every value must be as it was."""
    for partition, checksum in written.checksums.items():
        if read.checksums.get(partition, 0) != checksum:
            raise DemoError(f"the values of partition {partition} came back with other bytes than were written")


async def _demand_all_written(consumer: Consumer, plan: Plan, places: Sequence[TopicPartition]) -> None:
    for place, end in (await consumer.end_offsets(places)).items():
        if end != plan.count_in(place.partition):
            raise DemoError(
                f"partition {place.partition} ends at offset {end:,}, although "
                f"{plan.count_in(place.partition):,} records were written to it"
            )


@dataclass(slots=True)
class _Reader:
    """How far each partition was read, and what came."""

    plan: Plan
    records: int = 0
    next_offsets: dict[int, int] = field(default_factory=dict)
    checksums: dict[int, int] = field(default_factory=dict)

    def take(self, partition: int, columns: RecordColumns) -> None:
        offset = self.next_offsets.get(partition, 0)
        count, data = len(columns), bytes(columns.values.data)
        if columns.offsets != array("q", range(offset, offset + count)):
            raise DemoError(f"the offsets of partition {partition} from {offset:,} on have a gap or a repetition")
        if len(data) != count * VALUE_BYTES:
            raise DemoError(f"the values of partition {partition} from offset {offset:,} on have another length")
        found = _orders_in(data)
        expected = self.plan.orders(partition, offset, count)
        if found != expected:
            place = next(at for at, pair in enumerate(zip(found, expected, strict=True)) if pair[0] != pair[1])
            raise DemoError(
                f"offset {offset + place:,} of partition {partition} holds order {found[place]:,}, "
                f"but order {expected[place]:,} was written there"
            )
        self.records += count
        self.next_offsets[partition] = offset + count
        self.checksums[partition] = zlib.crc32(data, self.checksums.get(partition, 0))


def _orders_in(data: bytes) -> list[int]:
    """The numbers in values that lie end to end; -1 for one that is no number."""
    first, last = ORDER_NUMBER.start, ORDER_NUMBER.stop
    texts = [data[at + first : at + last] for at in range(0, len(data), VALUE_BYTES)]
    try:
        return [int(text) for text in texts]
    except ValueError:
        return [int(text) if text.strip().isdigit() else -1 for text in texts]
