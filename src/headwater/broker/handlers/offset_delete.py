"""OffsetDelete, v0: forgets a group's offsets of topics that no member is subscribed to."""

from typing import TYPE_CHECKING, Any

from headwater.protocol.kafka_types import NO_THROTTLE, ErrorCode

from kio.schema.offset_delete.v0.request import OffsetDeleteRequest  # isort: skip
from kio.schema.offset_delete.v0.response import OffsetDeleteResponse  # isort: skip

if TYPE_CHECKING:
    from headwater.broker.dispatch import RequestContext


def handle(context: "RequestContext", request: OffsetDeleteRequest) -> Any:
    """An error code for every partition, or one for the group."""
    return context.broker.groups.call(
        request.group_id, lambda shard, waiter, now_ms: shard.delete_offsets(request, now_ms), _refused
    )


def _refused(error_code: ErrorCode) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(throttle_time=NO_THROTTLE, error_code=error_code, topics=())
