"""The demo's transactions: a group reads orders and writes an invoice for each, its position and the invoices in one.

The first try is given up half-way, as a crash would; the second goes through. Whoever reads with `read_committed` sees
each order's invoice once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from headwater.cli.demo_broker import DemoError
from headwater.cli.demo_records import CLIENT_ID, read_partition
from headwater.client.admin.group_offsets import list_groups_offsets
from headwater.client.admin.topics import NewTopic, create_topics
from headwater.client.producer.producer import Producer
from headwater.types import TopicPartition

GROUP: Final = "billing"
INVOICES: Final = "invoices"
TRANSACTIONAL_ID: Final = "billing-1"
_MOST_ORDERS: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Billed:
    """What the billing came to."""

    orders: int
    seen_uncommitted: int
    seen_committed: int


async def bill_orders(bootstrap: str, orders_topic: str) -> Billed:
    """Bills the first orders of partition 0, once in vain and once for good; DemoError when it does not add up."""
    place = TopicPartition(orders_topic, 0)
    orders = (await read_partition(bootstrap, place, at_least=_MOST_ORDERS))[:_MOST_ORDERS]
    invoices = [b'{"invoice for":%b}' % order.value for order in orders]
    async with Producer(bootstrap, client_id=CLIENT_ID, transactional_id=TRANSACTIONAL_ID) as producer:
        client = producer.client
        (await create_topics(client, [NewTopic(INVOICES, partitions=1)])).or_raise()
        await producer.init_transactions()
        await _bill(producer, place, invoices)
        await producer.abort_transaction()
        if (await list_groups_offsets(client, [GROUP])).one(GROUP):
            raise DemoError("the group's position moved with a transaction that was aborted")
        await _bill(producer, place, invoices)
        await producer.commit_transaction()
        committed = (await list_groups_offsets(client, [GROUP])).one(GROUP).get(place)
    target = TopicPartition(INVOICES, 0)
    billed = Billed(
        orders=len(orders),
        seen_uncommitted=len(await read_partition(bootstrap, target)),
        seen_committed=len(await read_partition(bootstrap, target, isolation_level="read_committed")),
    )
    position = committed and committed.offset
    if (billed.seen_committed, billed.seen_uncommitted, position) != (len(orders), 2 * len(orders), len(orders)):
        raise DemoError(f"{billed}, and the group stands at {position}: each order must be billed once")
    return billed


async def _bill(producer: Producer, place: TopicPartition, invoices: Sequence[bytes]) -> None:
    """Invoices and the group's position in one transaction, which is left open."""
    await producer.begin_transaction()
    handles = [await producer.send(INVOICES, invoice) for invoice in invoices]
    await producer.flush()
    for handle in handles:
        handle.result(0)
    await producer.send_offsets_to_transaction({place: len(invoices)}, GROUP)
