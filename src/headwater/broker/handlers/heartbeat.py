"""Heartbeat, v0 to v4: a member of a classic group is alive, and hears whether a rebalance is on. v3: static ones.

While the group is being loaded the answer is no error, as in Apache: a member must not leave for that.
"""

from typing import TYPE_CHECKING, Any

from headwater.coordinator.group.classic_responses import heartbeat_response
from headwater.protocol.kafka_types import ErrorCode

from kio.schema.heartbeat.v4.request import HeartbeatRequest  # isort: skip
from kio.schema.heartbeat.v4.response import HeartbeatResponse  # isort: skip

if TYPE_CHECKING:
    from headwater.broker.dispatch import RequestContext


def handle(context: "RequestContext", request: HeartbeatRequest) -> Any:
    """NONE, or what the member has to do."""
    caller = context.caller
    return context.broker.groups.call(
        request.group_id, lambda shard, waiter, now_ms: shard.heartbeat(request, caller, now_ms), _refused
    )


def _refused(error_code: ErrorCode) -> HeartbeatResponse:
    loading = error_code is ErrorCode.coordinator_load_in_progress
    return heartbeat_response(ErrorCode.none if loading else error_code)
