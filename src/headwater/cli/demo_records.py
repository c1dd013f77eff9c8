"""The demo's records: what is written where, and whether exactly that comes back.

Every value is an order of 100 bytes with its number in it. Orders go to the partitions batch by batch in turn, so the
number that must stand at any offset can be computed, and nothing has to be remembered.
"""

import time
import zlib
from array import array
from collections.abc import Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final

from headwater.cli.demo_broker import DemoError
from headwater.client import Client
from headwater.client.thin.fetcher import Fetched, Fetcher
from headwater.client.thin.offsets import Spot, list_offsets
from headwater.client.thin.producer import BatchProducer, now_ms
from headwater.protocol.records import decode_columns
from headwater.types import TopicPartition

VALUE: Final = b'{"order":%10d,"item":"spring water, 6 x 0.75 litres","city":"Headwater Falls","source":"demo"}'
VALUE_BYTES: Final = len(VALUE % 0)
_NUMBER: Final = slice(9, 19)
"""Where in a value the order's number stands, padded with blanks."""

_BATCH_RECORDS: Final = 5_000
_PATIENCE_S: Final = 15.0

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


async def write_all(client: Client, plan: Plan, progress: Progress) -> Leg:
    """Writes every record, acknowledged with acks=all by an idempotent producer."""
    producer = BatchProducer(client, plan.topic)
    await producer.start()
    checksums = dict.fromkeys(range(plan.partitions), 0)
    started_s = time.perf_counter()
    for batch, first in enumerate(range(0, plan.records, plan.batch_records)):
        partition = batch % plan.partitions
        values = [VALUE % order for order in range(first, min(first + plan.batch_records, plan.records))]
        checksums[partition] = zlib.crc32(b"".join(values), checksums[partition])
        timestamp_ms = now_ms()
        await producer.send(partition, [(None, value, (), timestamp_ms) for value in values])
        progress(producer.acknowledged_records)
    await producer.flush()
    progress(producer.acknowledged_records)
    return Leg(records=plan.records, seconds=time.perf_counter() - started_s, checksums=checksums)


async def read_all(client: Client, plan: Plan, progress: Progress) -> Leg:
    """Reads every record and checks each one's offset and order; DemoError at the first that is wrong."""
    await _demand_all_written(client, plan)
    reader = _Reader(plan)
    fetcher = Fetcher(client, plan.topic, {p: 0 for p in range(plan.partitions) if plan.count_in(p)})
    started_s = last_news_s = time.perf_counter()
    async with aclosing(fetcher.batches()) as answers:
        async for answer in answers:
            for fetched in answer:
                reader.take(fetched)
                if reader.next_offsets[fetched.partition] >= plan.count_in(fetched.partition):
                    fetcher.stop_reading(fetched.partition)
            now_s = time.perf_counter()
            if answer:
                last_news_s = now_s
            elif now_s - last_news_s > _PATIENCE_S:
                raise DemoError(f"the broker sent nothing for {_PATIENCE_S:g} s, with {reader.records:,} records read")
            progress(reader.records)
    return Leg(records=reader.records, seconds=time.perf_counter() - started_s, checksums=reader.checksums)


def demand_same_bytes(written: Leg, read: Leg) -> None:
    """Every byte of every value must be as it was."""
    for partition, checksum in written.checksums.items():
        if read.checksums.get(partition, 0) != checksum:
            raise DemoError(f"the values of partition {partition} came back with other bytes than were written")


async def _demand_all_written(client: Client, plan: Plan) -> None:
    places = [TopicPartition(plan.topic, partition) for partition in range(plan.partitions)]
    for place, (end, _) in (await list_offsets(client, places, Spot.LATEST)).items():
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

    def take(self, fetched: Fetched) -> None:
        partition = fetched.partition
        offset = self.next_offsets.get(partition, 0)
        columns = decode_columns(
            fetched.buffer, 0, len(fetched.buffer), headers=fetched.batches, from_offset=fetched.first_offset
        )
        count, data = len(columns), columns.values.data
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


def _orders_in(data: bytearray) -> list[int]:
    """The numbers in values that lie end to end; -1 for one that is no number."""
    first, last = _NUMBER.start, _NUMBER.stop
    texts = [data[at + first : at + last] for at in range(0, len(data), VALUE_BYTES)]
    try:
        return [int(text) for text in texts]
    except ValueError:
        return [int(text) if text.strip().isdigit() else -1 for text in texts]
