"""The demo's Arrow lane: the orders again, this time as tables, added up by pyarrow, and the totals sent as a table."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from headwater.cli.demo_broker import DemoError
from headwater.cli.demo_records import CLIENT_ID, ORDER_NUMBER, Plan, reading
from headwater.client.admin.topics import NewTopic, create_topics
from headwater.client.producer.producer import Producer
from headwater.types import TopicPartition

TOTALS: Final = "totals"
_LOOK_S: Final = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Added:
    """What the tables held, by partition, and how long they took to come."""

    rows: int
    seconds: float
    orders: Mapping[int, int]
    sums: Mapping[int, int]

    @property
    def rows_per_s(self) -> float:
        """The rate in rows."""
        return self.rows / max(self.seconds, 1e-9)


async def add_up(bootstrap: str, plan: Plan) -> Added:
    """Reads every order as Arrow and adds up their numbers; DemoError when they are not those that were written."""
    places = [TopicPartition(plan.topic, partition) for partition in range(plan.partitions)]
    parts: list[pa.Table] = []
    rows, seconds = 0, 0.0
    async with reading(bootstrap, places) as consumer:
        while rows < plan.records:
            started_s = time.perf_counter()
            table = await consumer.poll_arrow(_LOOK_S)
            seconds += time.perf_counter() - started_s
            if not table.num_rows:
                raise DemoError(f"no table came for {_LOOK_S:g} s, with {rows:,} rows read")
            rows += table.num_rows
            parts.append(_by_partition(table))
    grouped = pa.concat_tables(parts).group_by("partition").aggregate([("number_count", "sum"), ("number_sum", "sum")])
    found = {line["partition"]: line for line in grouped.sort_by("partition").to_pylist()}
    added = Added(
        rows=rows,
        seconds=seconds,
        orders={partition: line["number_count_sum"] for partition, line in found.items()},
        sums={partition: line["number_sum_sum"] for partition, line in found.items()},
    )
    if sum(added.sums.values()) != plan.records * (plan.records - 1) // 2 or rows != plan.records:
        raise DemoError(f"the tables held {rows:,} orders whose numbers do not add up")
    return added


async def send_totals(bootstrap: str, added: Added) -> int:
    """Sends a row for each partition, in one call; how many were written."""
    text = [f'{{"orders":{added.orders[partition]},"sum":{total}}}' for partition, total in added.sums.items()]
    table = pa.table({"partition": [str(partition) for partition in added.sums], "total": text})
    async with Producer(bootstrap, client_id=CLIENT_ID) as producer:
        (await create_topics(producer.client, [NewTopic(TOTALS, partitions=1)])).or_raise()
        sent = await (await producer.send_arrow(TOTALS, table, key="partition", value="total"))
    return sum(part.count for part in sent.values())


def _by_partition(table: pa.Table) -> pa.Table:
    """A row for each partition: how many orders a table holds, and the sum of their numbers."""
    digits = pc.binary_slice(table["value"], ORDER_NUMBER.start, ORDER_NUMBER.stop)
    numbers = pc.utf8_trim_whitespace(digits.cast(pa.string())).cast(pa.int64())
    numbered = pa.table({"partition": table["partition"], "number": numbers})
    return numbered.group_by("partition").aggregate([("number", "count"), ("number", "sum")])
