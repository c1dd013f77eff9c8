"""The records that the lake's benchmark reads, and what a reader must find in them."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa

import headwater

VALUE_BYTES = 100
KEY_BYTES = 8
_ROWS_A_TABLE = 50_000
_NAMES = ("Ada", "Barbara", "Edsger", "Frances", "Grace", "Margaret", "Niklaus", "Tony")
_CITIES = ("Antwerp", "Bergen", "Cork", "Delft", "Essen", "Faro", "Ghent", "Haarlem")
_WORDS = ("leave it with the neighbour", "ring twice", "fragile", "call before you come", "second floor, left")

Totals = tuple[int, ...]
"""Counts and sums over all records of a topic, in the order of the questions that `lake_jobs.py` asks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """Some records, what they are in all, and where they go: to the partitions in turn."""

    keys: list[bytes]
    values: list[bytes]
    sums: Totals
    """Of fields, by record sums that only the writer of a record knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A topic with its records in it."""

    topic: str
    records: int
    totals: Totals


def plain_records(first: int, count: int) -> Records:
    """Values of 100 B that compress to about half, with keys of 8 B."""
    numbers = random.Random(first)
    values = [numbers.randbytes(VALUE_BYTES // 2).hex().encode() for _ in range(count)]
    keys = [b"%08d" % (number % 10**KEY_BYTES) for number in range(first, first + count)]
    return Records(keys=keys, values=values, sums=(KEY_BYTES * count, VALUE_BYTES * count))


def json_records(first: int, count: int) -> Records:
    """Orders: JSON of about 250 B with twelve fields, five of them in an object and in a list of objects."""
    numbers = random.Random(first)
    chance, choose = numbers.random, numbers.choice
    keys, values = [], []
    all_cents = all_pieces = all_letters = 0
    for number in range(first, first + count):
        cents, pieces = 100 + int(chance() * 1_000_000), 1 + int(chance() * 9)
        name = f"{choose(_NAMES)} {int(chance() * 100_000)}"
        at_ms = number % 86_400_000
        time = (
            f"2026-09-21T{at_ms // 3_600_000:02}:{at_ms // 60_000 % 60:02}:{at_ms // 1000 % 60:02}.{at_ms % 1000:03}Z"
        )
        keys.append(b"%08d" % (number % 10**KEY_BYTES))
        values.append(
            (
                f'{{"id":{number},"time":"{time}","kind":"order","amount":{cents // 100}.{cents % 100:02},'
                f'"currency":"EUR","paid":{"true" if chance() < 0.5 else "false"},'
                f'"customer":{{"id":{int(chance() * 1_000_000)},"name":"{name}","city":"{choose(_CITIES)}"}},'
                f'"items":[{{"sku":"A-{int(chance() * 1_000_000):06}","pieces":{pieces}}}],'
                f'"note":"{choose(_WORDS)}"}}'
            ).encode()
        )
        all_cents += cents
        all_pieces += pieces
        all_letters += len(name)
    identities = sum(range(first, first + count))
    return Records(keys=keys, values=values, sums=(identities, all_cents, all_pieces, all_letters))


def write(bootstrap: str, topic: str, make: Callable[[int, int], Records], *, records: int, partitions: int) -> Written:
    """Writes so many records to an empty topic. The first totals are their number and the sum of their offsets."""
    sums: Totals = ()
    with headwater.Producer(bootstrap, acks="all", **{"linger.ms": 20, "batch.size": 1 << 18}) as producer:
        for first, made in _portions(make, records):
            rows = range(first, first + len(made.values))
            table = pa.table(
                {
                    "key": pa.array(made.keys, pa.binary()),
                    "value": pa.array(made.values, pa.binary()),
                    "partition": pa.array([number % partitions for number in rows], pa.int32()),
                }
            )
            producer.send_arrow(topic, table, key="key", value="value", partition_by="partition")
            sums = tuple(a + b for a, b in zip(sums, made.sums, strict=True)) if sums else made.sums
        producer.flush()
    offsets = sum(number // partitions for number in range(records))
    return Written(topic=topic, records=records, totals=(records, offsets, *sums))


def _portions(make: Callable[[int, int], Records], records: int) -> Iterator[tuple[int, Records]]:
    for first in range(0, records, _ROWS_A_TABLE):
        yield first, make(first, min(_ROWS_A_TABLE, records - first))
