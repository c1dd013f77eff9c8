"""ListTransactions, v0 to v2: the transactional ids of this broker. v1 filters by duration, v2 by a pattern."""

from typing import TYPE_CHECKING

from headwater.broker.services.turns import Work
from headwater.coordinator.transaction.listing import TransactionFilter
from headwater.protocol.errors import ApiError
from headwater.protocol.kafka_types import NO_THROTTLE, ErrorCode

from kio.schema.list_transactions.v2.request import ListTransactionsRequest  # isort: skip
from kio.schema.list_transactions.v2.response import ListTransactionsResponse, TransactionState  # isort: skip

if TYPE_CHECKING:
    from headwater.broker.dispatch import RequestContext


def handle(context: "RequestContext", request: ListTransactionsRequest) -> Work[ListTransactionsResponse]:
    """What the filters let through; an error while some are still being loaded."""
    unknown: tuple[str, ...] = ()
    try:
        wanted = TransactionFilter.from_request(request)
        unknown, now_ms = wanted.unknown_states, context.now_ms
        shards = [running.shard for running in context.broker.transactions.all_running()]
    except ApiError as error:
        return _response(error.code, unknown, ())
    listed = []
    for shard in shards:
        for found in shard.list_transactions(wanted, now_ms):
            if found is not None:
                listed.append(found)
            yield None
    return _response(ErrorCode.none, unknown, tuple(listed))


def _response(
    error_code: ErrorCode, unknown: tuple[str, ...], listed: tuple[TransactionState, ...]
) -> ListTransactionsResponse:
    return ListTransactionsResponse(
        throttle_time=NO_THROTTLE, error_code=error_code, unknown_state_filters=unknown, transaction_states=listed
    )
