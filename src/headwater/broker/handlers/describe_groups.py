"""DescribeGroups, v0 to v6: classic groups and their members.

v3 tells the authorized operations, v4 static members' instance ids. v6 answers GROUP_ID_NOT_FOUND for a group that is
not there, earlier versions describe it as Dead.
"""

import dataclasses
from typing import TYPE_CHECKING

from headwater.broker.services.authorized_operations import GROUP_OPERATIONS, NOT_ASKED
from headwater.protocol.each import each
from headwater.protocol.errors import ApiError
from headwater.protocol.kafka_types import NO_THROTTLE, i32

from kio.schema.describe_groups.v6.request import DescribeGroupsRequest  # isort: skip
from kio.schema.describe_groups.v6.response import DescribedGroup, DescribeGroupsResponse  # isort: skip
from kio.schema.types import GroupId  # isort: skip

if TYPE_CHECKING:
    from headwater.broker.dispatch import RequestContext


def handle(context: "RequestContext", request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    """Every group asked for, or its error; once, however often it is named."""
    operations = i32(GROUP_OPERATIONS if request.include_authorized_operations else NOT_ASKED)
    return DescribeGroupsResponse(
        throttle_time=NO_THROTTLE,
        groups=each(
            lambda group_id: _with_operations(_describe(context, group_id), operations), dict.fromkeys(request.groups)
        ),
    )


def _with_operations(group: DescribedGroup, operations: i32) -> DescribedGroup:
    """What the client may do with the group, unless it is not there."""
    return group if group.error_code else dataclasses.replace(group, authorized_operations=operations)


def _describe(context: "RequestContext", group_id: GroupId) -> DescribedGroup:
    try:
        return context.broker.groups.running(group_id).shard.describe(group_id, context.version)
    except ApiError as error:
        return DescribedGroup(
            error_code=error.code, group_id=group_id, group_state="", protocol_type="", protocol_data="", members=()
        )
