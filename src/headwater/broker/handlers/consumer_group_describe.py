"""ConsumerGroupDescribe, v0 and v1: groups of the consumer protocol (KIP-848). v1 tells what a member speaks."""

import dataclasses
from typing import TYPE_CHECKING

from headwater.broker.services.authorized_operations import GROUP_OPERATIONS, NOT_ASKED
from headwater.protocol.each import each
from headwater.protocol.errors import ApiError
from headwater.protocol.kafka_types import NO_THROTTLE, ErrorCode, i32

from kio.schema.consumer_group_describe.v1.request import ConsumerGroupDescribeRequest  # isort: skip
from kio.schema.consumer_group_describe.v1.response import ConsumerGroupDescribeResponse, DescribedGroup  # isort: skip
from kio.schema.types import GroupId  # isort: skip

if TYPE_CHECKING:
    from headwater.broker.dispatch import RequestContext


def handle(context: "RequestContext", request: ConsumerGroupDescribeRequest) -> ConsumerGroupDescribeResponse:
    """Every group asked for, or its error; once, however often it is named."""
    operations = i32(GROUP_OPERATIONS if request.include_authorized_operations else NOT_ASKED)
    return ConsumerGroupDescribeResponse(
        throttle_time=NO_THROTTLE,
        groups=each(
            lambda group_id: _with_operations(_describe(context, group_id), operations),
            dict.fromkeys(request.group_ids),
        ),
    )


def _with_operations(group: DescribedGroup, operations: i32) -> DescribedGroup:
    """What the client may do with the group, unless it is not there."""
    return group if group.error_code else dataclasses.replace(group, authorized_operations=operations)


def _describe(context: "RequestContext", group_id: GroupId) -> DescribedGroup:
    try:
        if not group_id:
            raise ApiError(ErrorCode.invalid_group_id)
        return context.broker.groups.running(group_id).shard.consumer_describe(group_id, context.now_ms)
    except ApiError as error:
        return DescribedGroup(
            error_code=error.code,
            group_id=group_id,
            group_state="",
            group_epoch=i32(0),
            assignment_epoch=i32(0),
            assignor_name="",
            members=(),
        )
