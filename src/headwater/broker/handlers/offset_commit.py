"""OffsetCommit, v2 to v9: a group's positions.

v2 to v4 may ask for a retention time of their own. v6 adds leader epochs, v7 static members, v9 members of consumer
groups with their epochs. A long commit is decided in pieces (`services/commit_pieces.py`).
"""

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from headwater.broker.services.commit_pieces import in_pieces, is_short
from headwater.protocol.kafka_types import NO_THROTTLE, ErrorCode
from headwater.protocol.messages import convert

from kio.schema.offset_commit.v4.request import OffsetCommitRequest as RequestWithRetention  # isort: skip
from kio.schema.offset_commit.v9.request import OffsetCommitRequest  # isort: skip
from kio.schema.offset_commit.v9.response import (  # isort: skip
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from headwater.broker.dispatch import RequestContext

_LAST_WITH_RETENTION: Final = 4
_MILLISECOND: Final = timedelta(milliseconds=1)


def VERSION(version: int) -> int:  # noqa: N802 -- the dispatcher looks for this name
    """The oldest versions have a field that newer ones lost."""
    return 4 if version <= _LAST_WITH_RETENTION else 9


def handle(context: "RequestContext", given: RequestWithRetention | OffsetCommitRequest) -> Any:
    """An error code for every partition."""
    caller, retention_ms = context.caller, None
    if isinstance(given, RequestWithRetention) and given.retention_time >= timedelta(0):
        retention_ms = given.retention_time // _MILLISECOND

    def decide(piece: RequestWithRetention | OffsetCommitRequest) -> Any:
        request = convert(piece, OffsetCommitRequest)
        return context.broker.groups.call(
            request.group_id,
            lambda shard, waiter, now_ms: shard.commit_offsets(request, caller, now_ms, retention_ms),
            lambda error_code: _refused(request, error_code),
        )

    return decide(given) if is_short(given.topics) else in_pieces(given, given.topics, decide, OffsetCommitResponse)


def _refused(request: OffsetCommitRequest, error_code: ErrorCode) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        throttle_time=NO_THROTTLE,
        topics=tuple(
            OffsetCommitResponseTopic(
                name=topic.name,
                partitions=tuple(
                    OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=error_code)
                    for partition in topic.partitions
                ),
            )
            for topic in request.topics
        ),
    )
