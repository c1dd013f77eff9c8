"""LeaveGroup, v0 to v5: members go. Up to v2 one by its id, from v3 several, also static ones by their instance ids."""

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, cast

from headwater.broker.services.turns import Work
from headwater.coordinator.group.classic_responses import leave_error
from headwater.protocol.kafka_types import ErrorCode

from kio.schema.leave_group.v2.request import LeaveGroupRequest as SingleRequest  # isort: skip
from kio.schema.leave_group.v5.request import LeaveGroupRequest, MemberIdentity  # isort: skip
from kio.schema.leave_group.v5.response import LeaveGroupResponse, MemberResponse  # isort: skip

if TYPE_CHECKING:
    from headwater.broker.dispatch import RequestContext

_PIECE: Final = 200


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

    def decide(piece: LeaveGroupRequest) -> Any:
        return context.broker.groups.call(
            piece.group_id, lambda shard, waiter, now_ms: shard.leave(piece, caller, now_ms), leave_error
        )

    return decide(several) if len(several.members) <= _PIECE else _in_pieces(several, decide)


def _in_pieces(request: LeaveGroupRequest, decide: Callable[[LeaveGroupRequest], Any]) -> Work[LeaveGroupResponse]:
    """Takes very many out a few at a time: each time is a decision of its own."""
    left: list[MemberResponse] = []
    for first in range(0, len(request.members), _PIECE):
        answer = decide(dataclasses.replace(request, members=request.members[first : first + _PIECE]))
        if not isinstance(answer, LeaveGroupResponse):
            answer = yield answer
        if answer.error_code is not ErrorCode.none:
            return cast(LeaveGroupResponse, answer)
        left += answer.members
        yield None
    return cast(LeaveGroupResponse, dataclasses.replace(answer, members=tuple(left)))
