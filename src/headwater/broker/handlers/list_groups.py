"""ListGroups, v0 to v5: the groups of this broker; v4 filters by state, v5 by type. Both ignore case."""

from typing import TYPE_CHECKING

from headwater.broker.services.turns import Work
from headwater.protocol.errors import ApiError
from headwater.protocol.kafka_types import NO_THROTTLE, ErrorCode

from kio.schema.list_groups.v5.request import ListGroupsRequest  # isort: skip
from kio.schema.list_groups.v5.response import ListedGroup, ListGroupsResponse  # isort: skip

if TYPE_CHECKING:
    from headwater.broker.dispatch import RequestContext


def handle(context: "RequestContext", request: ListGroupsRequest) -> Work[ListGroupsResponse]:
    """The groups that the filters let through; an error while some are still being loaded."""
    states = {state.lower() for state in request.states_filter}
    types = {kind.lower() for kind in request.types_filter}
    try:
        shards = [running.shard for running in context.broker.groups.all_running()]
    except ApiError as error:
        return _response(error.code, ())
    listed = []
    for shard in shards:
        for group in shard.list_groups():
            if (not states or group.group_state.lower() in states) and (not types or group.group_type.lower() in types):
                listed.append(group)
            yield None
    return _response(ErrorCode.none, tuple(listed))


def _response(error_code: ErrorCode, groups: tuple[ListedGroup, ...]) -> ListGroupsResponse:
    return ListGroupsResponse(throttle_time=NO_THROTTLE, error_code=error_code, groups=groups)
