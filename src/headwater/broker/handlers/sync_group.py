"""SyncGroup, v0 to v5: the leader brings the assignment of a classic group, every member takes its part.

v3 adds static members, v5 the protocol's type and name, checked against the group's.
"""

from typing import TYPE_CHECKING, Any

from headwater.coordinator.group.classic_responses import sync_error

from kio.schema.sync_group.v5.request import SyncGroupRequest  # isort: skip

if TYPE_CHECKING:
    from headwater.broker.dispatch import RequestContext


def handle(context: "RequestContext", request: SyncGroupRequest) -> Any:
    """The member's assignment, when the leader has brought it."""
    caller = context.caller
    return context.broker.groups.call(
        request.group_id, lambda shard, waiter, now_ms: shard.sync(request, caller, waiter, now_ms), sync_error
    )
