"""LeaveGroup, v0 to v5: members go. Up to v2 one by its id, from v3 several, also static ones by their instance ids."""

from typing import TYPE_CHECKING, Any

from headwater.coordinator.group.classic_responses import leave_error

from kio.schema.leave_group.v2.request import LeaveGroupRequest as SingleRequest  # isort: skip
from kio.schema.leave_group.v5.request import LeaveGroupRequest, MemberIdentity  # isort: skip

if TYPE_CHECKING:
    from headwater.broker.dispatch import RequestContext


def VERSION(version: int) -> int:  # noqa: N802 -- the dispatcher looks for this name
    """One member up to v2, several from v3 on."""
    return 2 if version <= 2 else 5


def handle(context: "RequestContext", request: SingleRequest | LeaveGroupRequest) -> Any:
    """Takes the members out of their group; each may fail on its own."""
    caller = context.caller
    several = (
        LeaveGroupRequest(group_id=request.group_id, members=(MemberIdentity(member_id=request.member_id),))
        if isinstance(request, SingleRequest)
        else request
    )
    return context.broker.groups.call(
        request.group_id, lambda shard, waiter, now_ms: shard.leave(several, caller, now_ms), leave_error
    )
