"""AddOffsetsToTxn, v0 to v4: a transaction is going to commit offsets of a group.

What is added is the partition of `__consumer_offsets` that the group belongs to. v2 answers a fenced producer with
PRODUCER_FENCED.
"""

from typing import TYPE_CHECKING, Any

from headwater.protocol.kafka_types import NO_THROTTLE
from headwater.types import TopicPartition

from kio.schema.add_offsets_to_txn.v4.request import AddOffsetsToTxnRequest  # isort: skip
from kio.schema.add_offsets_to_txn.v4.response import AddOffsetsToTxnResponse  # isort: skip

if TYPE_CHECKING:
    from headwater.broker.dispatch import RequestContext


async def handle(context: "RequestContext", request: AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse:
    """NONE, or why the transaction cannot take it."""
    broker, caller = context.broker, context.caller
    group_partition = TopicPartition(broker.groups.topic, broker.groups.partition_of(request.group_id))
    error_code: Any = await context.settle(
        broker.transactions.call(
            request.transactional_id,
            lambda shard, waiter, now_ms: shard.add_partitions(
                request.transactional_id,
                request.producer_id,
                request.producer_epoch,
                frozenset((group_partition,)),
                caller,
                now_ms,
            ),
            lambda error_code: error_code,
        )
    )
    return AddOffsetsToTxnResponse(throttle_time=NO_THROTTLE, error_code=error_code)
