"""SyncGroup, v0 to v5: the leader brings the assignment of a classic group, every member takes its part.

v3 adds static members, v5 the protocol's type and name, checked against the group's.
"""

from typing import TYPE_CHECKING, Any

from headwater.protocol.kafka_types import NO_THROTTLE, ErrorCode

from kio.schema.sync_group.v5.request import SyncGroupRequest  # isort: skip
from kio.schema.sync_group.v5.response import SyncGroupResponse  # isort: skip

if TYPE_CHECKING:
    from headwater.broker.dispatch import RequestContext


def handle(context: "RequestContext", request: SyncGroupRequest) -> Any:
    """The member's assignment, when the leader has brought it."""
    caller = context.caller
    return context.broker.groups.call(
        request.group_id, lambda shard, waiter, now_ms: shard.sync(request, caller, waiter, now_ms), _refused
    )


def _refused(error_code: ErrorCode) -> SyncGroupResponse:
    return SyncGroupResponse(throttle_time=NO_THROTTLE, error_code=error_code, assignment=b"")
