"""FindCoordinator, v0 to v6: who coordinates a group or a transactional id. It is this broker.

Up to v3 a request asks for one key and the answer holds one broker (v1: with an error's message); v4 asks for many.
The internal topic is made the first time someone asks. Nobody coordinates what belongs to a partition of it that is
offline (COORDINATOR_NOT_AVAILABLE). v6 knows coordinators of share groups, which are not served. A key that is asked
for twice is answered once.
"""

from typing import TYPE_CHECKING, Any, Final

from headwater.broker.services.coordination import AnyCoordinator
from headwater.protocol.each import each
from headwater.protocol.errors import ApiError
from headwater.protocol.kafka_types import NO_THROTTLE, BrokerId, ErrorCode, i32

from kio.schema.find_coordinator.v3.request import FindCoordinatorRequest as SingleRequest  # isort: skip
from kio.schema.find_coordinator.v3.response import FindCoordinatorResponse as SingleResponse  # isort: skip
from kio.schema.find_coordinator.v6.request import FindCoordinatorRequest  # isort: skip
from kio.schema.find_coordinator.v6.response import Coordinator, FindCoordinatorResponse  # isort: skip

if TYPE_CHECKING:
    from headwater.broker.dispatch import RequestContext

_GROUP, _TRANSACTION = 0, 1
_NOBODY: Final = -1


def VERSION(version: int) -> int:  # noqa: N802 -- the attribute that dispatch looks for
    """One key up to v3, many from v4 on."""
    return 3 if version <= 3 else 6


def handle(context: "RequestContext", request: SingleRequest | FindCoordinatorRequest) -> Any:
    """This broker's address for every key; the answer waits while the internal topic is being made."""
    broker = context.broker
    coordinator: AnyCoordinator
    if request.key_type == _GROUP:
        coordinator = broker.groups
    elif request.key_type == _TRANSACTION:
        coordinator = broker.transactions
    else:
        return _answer(
            context, request, ApiError(ErrorCode.invalid_request, f"no coordinator of type {request.key_type}")
        )
    if coordinator.has_topic:
        return _answer(context, request, coordinator)
    return _answer_after_creation(context, request, coordinator)


async def _answer_after_creation(
    context: "RequestContext", request: SingleRequest | FindCoordinatorRequest, coordinator: AnyCoordinator
) -> SingleResponse | FindCoordinatorResponse:
    try:
        await coordinator.make_topic()
    except ApiError as error:
        reason = f"the internal topic cannot be made: {error.message}"
        return _answer(context, request, ApiError(ErrorCode.coordinator_not_available, reason))
    return _answer(context, request, coordinator)


def _answer(
    context: "RequestContext",
    request: SingleRequest | FindCoordinatorRequest,
    coordinator: AnyCoordinator | ApiError,
) -> SingleResponse | FindCoordinatorResponse:
    if isinstance(request, SingleRequest):
        found = _coordinator(context, request.key, coordinator)
        return SingleResponse(
            throttle_time=NO_THROTTLE,
            error_code=found.error_code,
            error_message=found.error_message,
            node_id=found.node_id,
            host=found.host,
            port=found.port,
        )
    return FindCoordinatorResponse(
        throttle_time=NO_THROTTLE,
        coordinators=each(lambda key: _coordinator(context, key, coordinator), dict.fromkeys(request.coordinator_keys)),
    )


def _coordinator(context: "RequestContext", key: str, coordinator: AnyCoordinator | ApiError) -> Coordinator:
    broker = context.broker
    error = coordinator if isinstance(coordinator, ApiError) else None
    if not isinstance(coordinator, ApiError) and coordinator.is_offline(key):
        error = ApiError(ErrorCode.coordinator_not_available, f"the log dir of the coordinator of {key!r} is offline")
    return Coordinator(
        key=key,
        node_id=BrokerId(broker.node_id if error is None else _NOBODY),
        host=broker.host if error is None else "",
        port=i32(broker.port if error is None else _NOBODY),
        error_code=ErrorCode.none if error is None else error.code,
        error_message="" if error is None else error.message,
    )
