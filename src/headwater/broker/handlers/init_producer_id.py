"""InitProducerId, v0 to v5: an id for an idempotent producer that no other ever had, with epoch 0.

v3 lets a producer name the id and epoch it has; without a transactional id it gets a new one all the same,
as in Apache.
Left out: transactional producers, which need a transaction coordinator. They are told UNSUPPORTED_VERSION:
of the codes that fit, it is the one that clients in every language take as final instead of trying again
for ever.
"""

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from kio.schema.init_producer_id.v5.request import InitProducerIdRequest
from kio.schema.init_producer_id.v5.response import InitProducerIdResponse

from headwater.protocol.kafka_types import NO_THROTTLE, ErrorCode, ProducerId, i16

if TYPE_CHECKING:
    from headwater.broker.dispatch import RequestContext

_MILLISECOND: Final = timedelta(milliseconds=1)


async def handle(context: "RequestContext", request: InitProducerIdRequest) -> InitProducerIdResponse:
    """A new producer id, or why there is none."""
    error_code = _problem(request, context.broker.config.transaction_max_timeout_ms)
    if error_code is not ErrorCode.none:
        return _response(error_code, -1, -1)
    return _response(ErrorCode.none, await context.broker.next_producer_id(), 0)


def _problem(request: InitProducerIdRequest, max_timeout_ms: int) -> ErrorCode:
    if (request.producer_id == -1) != (request.producer_epoch == -1):
        return ErrorCode.invalid_request
    if request.transactional_id is None:
        return ErrorCode.none
    if not request.transactional_id:
        return ErrorCode.invalid_request
    if not 0 < request.transaction_timeout // _MILLISECOND <= max_timeout_ms:
        return ErrorCode.invalid_transaction_timeout
    return ErrorCode.unsupported_version


def _response(error_code: ErrorCode, producer_id: int, producer_epoch: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        throttle_time=NO_THROTTLE,
        error_code=error_code,
        producer_id=ProducerId(producer_id),
        producer_epoch=i16(producer_epoch),
    )
