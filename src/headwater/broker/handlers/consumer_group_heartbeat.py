"""ConsumerGroupHeartbeat, v0 and v1: the whole of the consumer protocol (KIP-848) in one request.

A member joins, lives, takes and gives up partitions and leaves with it. In v0 the broker names the member, in v1 it
names itself; v1 adds subscription by a pattern.
"""

from typing import TYPE_CHECKING, Any

from headwater.protocol.kafka_types import NO_THROTTLE, ErrorCode, i32

from kio.schema.consumer_group_heartbeat.v1.request import ConsumerGroupHeartbeatRequest  # isort: skip
from kio.schema.consumer_group_heartbeat.v1.response import ConsumerGroupHeartbeatResponse  # isort: skip

if TYPE_CHECKING:
    from headwater.broker.dispatch import RequestContext


def handle(context: "RequestContext", request: ConsumerGroupHeartbeatRequest) -> Any:
    """The member's epoch and, when it changed, its assignment."""
    caller = context.caller
    return context.broker.groups.call(
        request.group_id, lambda shard, waiter, now_ms: shard.consumer_heartbeat(request, caller, now_ms), _refused
    )


def _refused(error_code: ErrorCode) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        throttle_time=NO_THROTTLE, error_code=error_code, member_epoch=i32(0), heartbeat_interval=NO_THROTTLE
    )
