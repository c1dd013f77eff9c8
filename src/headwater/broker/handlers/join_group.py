"""JoinGroup, v0 to v9: a member comes into a classic group, or comes again, and waits for the rebalance.

v1 adds the rebalance timeout (before, the session timeout is both), v4 sends a new member away once with its id
(KIP-394), v5 adds static members, v7 the protocol type in the answer, v8 a reason, v9 tells a static leader that
nothing has to be assigned (KIP-814).
"""

import dataclasses
from typing import TYPE_CHECKING, Any, Final

from headwater.coordinator.group.classic_responses import join_error

from kio.schema.join_group.v9.request import JoinGroupRequest  # isort: skip
from kio.schema.join_group.v9.response import JoinGroupResponse  # isort: skip

if TYPE_CHECKING:
    from headwater.broker.dispatch import RequestContext

_FIRST_WITH_REBALANCE_TIMEOUT: Final = 1
_FIRST_WITH_NULL_PROTOCOL: Final = 7


def handle(context: "RequestContext", request: JoinGroupRequest) -> Any:
    """The member's place in the group, when the rebalance is through."""
    caller = context.caller
    if context.version < _FIRST_WITH_REBALANCE_TIMEOUT:
        request = dataclasses.replace(request, rebalance_timeout=request.session_timeout)
    return context.broker.groups.call(
        request.group_id,
        lambda shard, waiter, now_ms: shard.join(request, caller, waiter, now_ms),
        lambda error_code: join_error(error_code, request.member_id),
    )


def adapt(response: JoinGroupResponse, version: int) -> JoinGroupResponse:
    """Old versions have an empty name where newer ones have none."""
    if response.protocol_name is None and version < _FIRST_WITH_NULL_PROTOCOL:
        return dataclasses.replace(response, protocol_name="")
    return response
