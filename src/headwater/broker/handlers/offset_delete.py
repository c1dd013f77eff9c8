"""OffsetDelete, v0: forgets a group's offsets of topics that no member is subscribed to.

A long request is decided in pieces (`services/commit_pieces.py`).
"""

from typing import TYPE_CHECKING, Any

from headwater.broker.services.commit_pieces import in_pieces, is_short
from headwater.protocol.kafka_types import NO_THROTTLE, ErrorCode

from kio.schema.offset_delete.v0.request import OffsetDeleteRequest  # isort: skip
from kio.schema.offset_delete.v0.response import OffsetDeleteResponse  # isort: skip

if TYPE_CHECKING:
    from headwater.broker.dispatch import RequestContext


def handle(context: "RequestContext", request: OffsetDeleteRequest) -> Any:
    """An error code for every partition, or one for the group."""

    def decide(piece: OffsetDeleteRequest) -> Any:
        return context.broker.groups.call(
            piece.group_id, lambda shard, waiter, now_ms: shard.delete_offsets(piece, now_ms), _refused
        )

    if is_short(request.topics):
        return decide(request)
    return in_pieces(request, request.topics, decide, OffsetDeleteResponse)


def _refused(error_code: ErrorCode) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(throttle_time=NO_THROTTLE, error_code=error_code, topics=())
