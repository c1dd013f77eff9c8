"""ConsumerGroupHeartbeat, v0 and v1: the whole of the consumer protocol (KIP-848) in one request.

A member joins, lives, takes and gives up partitions and leaves with it. In v0 the broker names the member, in v1 it
names itself; v1 adds subscription by a pattern.
"""

import asyncio
from typing import TYPE_CHECKING, Any

from headwater.broker.services.turns import Work
from headwater.protocol.kafka_types import NO_THROTTLE, ErrorCode, i32

from kio.schema.consumer_group_heartbeat.v1.request import ConsumerGroupHeartbeatRequest  # isort: skip
from kio.schema.consumer_group_heartbeat.v1.response import ConsumerGroupHeartbeatResponse  # isort: skip

if TYPE_CHECKING:
    from headwater.broker.dispatch import RequestContext


def handle(context: "RequestContext", request: ConsumerGroupHeartbeatRequest) -> Any:
    """The member's epoch and, when it changed, its assignment."""
    return _with_pattern(context, request) if request.subscribed_topic_regex else _beat(context, request)


def _with_pattern(context: "RequestContext", request: ConsumerGroupHeartbeatRequest) -> Work[Any]:
    """What the pattern matches is found out first, in slices; nothing comes between that and the decision."""
    yield from context.broker.topic_directory.learn(request.subscribed_topic_regex or "")
    answer = _beat(context, request)
    if isinstance(answer, asyncio.Future):
        answer = yield answer
    return answer


def _beat(context: "RequestContext", request: ConsumerGroupHeartbeatRequest) -> Any:
    caller = context.caller
    return context.broker.groups.call(
        request.group_id, lambda shard, waiter, now_ms: shard.consumer_heartbeat(request, caller, now_ms), _refused
    )


def _refused(error_code: ErrorCode) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        throttle_time=NO_THROTTLE, error_code=error_code, member_epoch=i32(0), heartbeat_interval=NO_THROTTLE
    )
