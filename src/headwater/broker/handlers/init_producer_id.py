"""InitProducerId, v0 to v5: an id and epoch for an idempotent or transactional producer.

Without a transactional id: an id that no other ever had, with epoch 0 (v3 lets a producer name the id and epoch it has;
it gets a new one all the same, as in Apache). With one: the id's own, with an epoch that shuts out earlier instances; a
transaction that one of them left open is aborted first. v4 answers a fenced producer with PRODUCER_FENCED.
"""

from typing import TYPE_CHECKING, cast

from headwater.protocol.errors import ApiError
from headwater.protocol.kafka_types import NO_THROTTLE, ErrorCode, ProducerId, i16

from kio.schema.init_producer_id.v5.request import InitProducerIdRequest  # isort: skip
from kio.schema.init_producer_id.v5.response import InitProducerIdResponse  # isort: skip

if TYPE_CHECKING:
    from headwater.broker.dispatch import RequestContext


async def handle(context: "RequestContext", request: InitProducerIdRequest) -> InitProducerIdResponse:
    """A producer id and epoch, or why there is none."""
    broker, transactional_id = context.broker, request.transactional_id
    if (request.producer_id == -1) != (request.producer_epoch == -1):
        return _refused(ErrorCode.invalid_request)
    try:
        if transactional_id is None:
            return _response(ErrorCode.none, await broker.producer_ids.next(), 0)
        await broker.producer_ids.make_ready()
    except ApiError:
        # No room for the metadata: clients take this for passing, and no storage error here.
        return _refused(ErrorCode.coordinator_load_in_progress)
    caller = context.caller
    answer = broker.transactions.call(
        transactional_id, lambda shard, waiter, now_ms: shard.init_producer_id(request, caller, now_ms), _refused
    )
    return cast(InitProducerIdResponse, await context.settle(answer))


def _refused(error_code: ErrorCode) -> InitProducerIdResponse:
    return _response(error_code, -1, -1)


def _response(error_code: ErrorCode, producer_id: int, producer_epoch: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        throttle_time=NO_THROTTLE,
        error_code=error_code,
        producer_id=ProducerId(producer_id),
        producer_epoch=i16(producer_epoch),
    )
