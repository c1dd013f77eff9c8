"""FindCoordinator, v0 to v6: there is no coordinator yet, and it says so.

Up to v3 a request asks for one key and the answer holds one broker; v4 asks for many. Groups and transactions are not
served, so every key gets COORDINATOR_NOT_AVAILABLE, which clients take as "later". The API is served all the same
because librdkafka compresses with lz4 only when it is listed.
"""

from typing import TYPE_CHECKING

from headwater.protocol.kafka_types import NO_THROTTLE, BrokerId, ErrorCode, i32

from kio.schema.find_coordinator.v3.request import FindCoordinatorRequest as SingleRequest  # isort: skip
from kio.schema.find_coordinator.v3.response import FindCoordinatorResponse as SingleResponse  # isort: skip
from kio.schema.find_coordinator.v6.request import FindCoordinatorRequest  # isort: skip
from kio.schema.find_coordinator.v6.response import Coordinator, FindCoordinatorResponse  # isort: skip

if TYPE_CHECKING:
    from headwater.broker.dispatch import RequestContext

_REASON = "This broker has no coordinator for groups and transactions yet."
_GROUP, _TRANSACTION, _SHARE = 0, 1, 2
_FIRST_WITH_SHARE = 6


def VERSION(version: int) -> int:  # noqa: N802 -- the attribute that dispatch looks for
    """One key up to v3, many from v4 on."""
    return 3 if version <= 3 else 6


def handle(
    context: "RequestContext", request: SingleRequest | FindCoordinatorRequest
) -> SingleResponse | FindCoordinatorResponse:
    """COORDINATOR_NOT_AVAILABLE for every key of a kind that there is, INVALID_REQUEST for others."""
    kinds = (_GROUP, _TRANSACTION, _SHARE) if context.version >= _FIRST_WITH_SHARE else (_GROUP, _TRANSACTION)
    known = request.key_type in kinds
    error_code = ErrorCode.coordinator_not_available if known else ErrorCode.invalid_request
    reason = _REASON if known else f"There is no coordinator of type {request.key_type}."
    if isinstance(request, SingleRequest):
        return SingleResponse(
            throttle_time=NO_THROTTLE,
            error_code=error_code,
            error_message=reason,
            node_id=BrokerId(-1),
            host="",
            port=i32(-1),
        )
    return FindCoordinatorResponse(
        throttle_time=NO_THROTTLE,
        coordinators=tuple(
            Coordinator(
                key=key,
                node_id=BrokerId(-1),
                host="",
                port=i32(-1),
                error_code=error_code,
                error_message=reason,
            )
            for key in request.coordinator_keys
        ),
    )
