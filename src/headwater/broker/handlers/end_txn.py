"""EndTxn, v0 to v5: a transaction commits or aborts.

The decision is durable when the answer leaves; the markers follow at once. v2 answers a fenced producer with
PRODUCER_FENCED. v5 (KIP-890) answers with the producer's next epoch: it rises at every end, so that nothing late of
this transaction can get into the next one.
"""

from typing import TYPE_CHECKING, Any

from headwater.protocol.kafka_types import NO_THROTTLE, ErrorCode

from kio.schema.end_txn.v5.request import EndTxnRequest  # isort: skip
from kio.schema.end_txn.v5.response import EndTxnResponse  # isort: skip

if TYPE_CHECKING:
    from headwater.broker.dispatch import RequestContext


def handle(context: "RequestContext", request: EndTxnRequest) -> Any:
    """NONE and from v5 on the next epoch, or why it cannot end so."""
    caller = context.caller
    return context.broker.transactions.call(
        request.transactional_id, lambda shard, waiter, now_ms: shard.end(request, caller, now_ms), _refused
    )


def _refused(error_code: ErrorCode) -> EndTxnResponse:
    return EndTxnResponse(throttle_time=NO_THROTTLE, error_code=error_code)
