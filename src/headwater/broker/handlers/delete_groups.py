"""DeleteGroups, v0 to v2: groups without members go, and their offsets with them. Each fails or succeeds on its own."""

from typing import TYPE_CHECKING, cast

from headwater.protocol.kafka_types import NO_THROTTLE, ErrorCode

from kio.schema.delete_groups.v2.request import DeleteGroupsRequest  # isort: skip
from kio.schema.delete_groups.v2.response import DeletableGroupResult, DeleteGroupsResponse  # isort: skip
from kio.schema.types import GroupId  # isort: skip

if TYPE_CHECKING:
    from headwater.broker.dispatch import RequestContext


async def handle(context: "RequestContext", request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    """Deletes one group after another."""
    pace, results = context.pace, []
    for group_id in dict.fromkeys(request.groups_names):
        await pace.pause()
        results.append(DeletableGroupResult(group_id=group_id, error_code=await _delete(context, group_id)))
    return DeleteGroupsResponse(throttle_time=NO_THROTTLE, results=tuple(results))


async def _delete(context: "RequestContext", group_id: GroupId) -> ErrorCode:
    answer = context.broker.groups.call(
        group_id, lambda shard, waiter, now_ms: shard.delete_group(group_id, now_ms), lambda error_code: error_code
    )
    return cast(ErrorCode, await context.settle(answer))
