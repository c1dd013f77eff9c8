"""OffsetFetch, v1 to v9: the committed positions of groups.

Up to v7 a request asks for one group, from v8 for many. From v2 on "all topics" is null and errors have a place of
their own; v5 adds leader epochs, v7 `require_stable` (an offset that an open transaction may change is
UNSTABLE_OFFSET_COMMIT), v9 members of consumer groups with their epochs. A group that is asked for twice in the same
words is answered once.
"""

from typing import TYPE_CHECKING, Any, Final

from headwater.protocol.each import each
from headwater.protocol.errors import ApiError
from headwater.protocol.kafka_types import NO_THROTTLE, ErrorCode, i32, i64
from headwater.protocol.messages import convert

from kio.schema.offset_fetch.v7.request import OffsetFetchRequest as SingleRequest  # isort: skip
from kio.schema.offset_fetch.v7.response import OffsetFetchResponse as SingleResponse  # isort: skip
from kio.schema.offset_fetch.v7.response import OffsetFetchResponsePartition, OffsetFetchResponseTopic  # isort: skip
from kio.schema.offset_fetch.v9.request import (  # isort: skip
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kio.schema.offset_fetch.v9.response import OffsetFetchResponse, OffsetFetchResponseGroup  # isort: skip

if TYPE_CHECKING:
    from headwater.broker.dispatch import RequestContext

_FIRST_WITH_GROUP_ERROR: Final = 2


def VERSION(version: int) -> int:  # noqa: N802 -- the dispatcher looks for this name
    """One group up to v7, many from v8 on."""
    return 7 if version <= 7 else 9


def handle(context: "RequestContext", request: SingleRequest | OffsetFetchRequest) -> Any:
    """The offsets, or an error for a group as a whole."""
    if isinstance(request, OffsetFetchRequest):
        asked_for = dict.fromkeys(request.groups)
        groups = each(lambda group: _fetch(context, group, request.require_stable), asked_for)
        return OffsetFetchResponse(throttle_time=NO_THROTTLE, groups=groups)
    topics = request.topics
    asked = OffsetFetchRequestGroup(
        group_id=request.group_id,
        topics=None if topics is None else each(lambda topic: convert(topic, OffsetFetchRequestTopics), topics),
    )
    return _single(context, request, _fetch(context, asked, request.require_stable))


def _fetch(context: "RequestContext", group: OffsetFetchRequestGroup, require_stable: bool) -> OffsetFetchResponseGroup:
    try:
        running = context.broker.groups.running(group.group_id)
    except ApiError as error:
        return OffsetFetchResponseGroup(group_id=group.group_id, topics=(), error_code=error.code)
    return running.shard.fetch_offsets(group, require_stable, context.now_ms)


def _single(context: "RequestContext", request: SingleRequest, group: OffsetFetchResponseGroup) -> SingleResponse:
    """v1 has no place for the error of a group: every partition asked for gets it."""
    if group.error_code is not ErrorCode.none and context.version < _FIRST_WITH_GROUP_ERROR:
        topics = each(
            lambda topic: OffsetFetchResponseTopic(
                name=topic.name,
                partitions=each(lambda index: _failed(index, group.error_code), topic.partition_indexes),
            ),
            request.topics or (),
        )
    else:
        topics = each(lambda topic: convert(topic, OffsetFetchResponseTopic), group.topics)
    return SingleResponse(throttle_time=NO_THROTTLE, topics=topics, error_code=group.error_code)


def _failed(index: i32, error_code: ErrorCode) -> OffsetFetchResponsePartition:
    return OffsetFetchResponsePartition(
        partition_index=index, committed_offset=i64(-1), metadata="", error_code=error_code
    )
