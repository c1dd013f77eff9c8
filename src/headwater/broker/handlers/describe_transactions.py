"""DescribeTransactions, v0: transactional ids in full: producer, state, timeout, begin, partitions."""

from typing import TYPE_CHECKING

from headwater.coordinator.transaction.listing import undescribed
from headwater.protocol.each import each
from headwater.protocol.errors import ApiError, ErrorCode
from headwater.protocol.kafka_types import NO_THROTTLE
from headwater.protocol.transaction_descriptions import DescribeTransactionsResponse, TransactionState

from kio.schema.describe_transactions.v0.request import DescribeTransactionsRequest  # isort: skip

if TYPE_CHECKING:
    from headwater.broker.dispatch import RequestContext


def handle(context: "RequestContext", request: DescribeTransactionsRequest) -> DescribeTransactionsResponse:
    """Every id asked for, or its error; once, however often it is named."""
    return DescribeTransactionsResponse(
        throttle_time=NO_THROTTLE,
        transaction_states=each(
            lambda transactional_id: _describe(context, transactional_id), dict.fromkeys(request.transactional_ids)
        ),
    )


def _describe(context: "RequestContext", transactional_id: str) -> TransactionState:
    try:
        if not transactional_id:
            raise ApiError(ErrorCode.invalid_request)
        return context.broker.transactions.running(transactional_id).shard.describe(transactional_id)
    except ApiError as error:
        return undescribed(transactional_id, error.code)
