"""Who leads a partition now, as a broker tells that does not (KIP-951): in answers to Produce and Fetch.

Whoever is told goes to the new leader at once, without a question about the whole cluster. Reads bytes; asks nobody.
"""

from typing import NamedTuple

from headwater.protocol.errors import MalformedRequestError
from headwater.protocol.kafka_types import ErrorCode
from headwater.protocol.wire import Cursor
from headwater.types import TopicPartition

SAY_WHO_LEADS = frozenset({ErrorCode.not_leader_or_follower, ErrorCode.fenced_leader_epoch})
"""The errors that a hint comes with."""

_NODE_ENDPOINTS_TAG = 0
_SMALLEST_ENDPOINT_BYTES = 11


class NodeEndpoint(NamedTuple):
    """Where a broker listens that an answer names as the leader of some partition."""

    node_id: int
    host: str
    port: int
    rack: str | None


class LeaderHint(NamedTuple):
    """Who leads a partition, and since which epoch."""

    partition: TopicPartition
    node_id: int
    epoch: int


def read_endpoints(cursor: Cursor) -> list[NodeEndpoint]:
    """The tagged fields at the end of an answer, of which one tells where the leaders are that it names."""
    endpoints: list[NodeEndpoint] = []
    for _ in range(cursor.tag_count()):
        tag, size = cursor.uvarint(), cursor.uvarint()
        start = cursor.advance(size)
        if tag == _NODE_ENDPOINTS_TAG:
            cursor.position = start
            endpoints = []
            for _ in range(cursor.array(True, _SMALLEST_ENDPOINT_BYTES)):
                node_id, host, port = cursor.int32(), cursor.string(True) or "", cursor.int32()
                endpoints.append(NodeEndpoint(node_id, host, port, cursor.string(True)))
                cursor.tags(True)
            if cursor.position != start + size:
                raise MalformedRequestError(f"the endpoints at {start} are not as long as they claim: {size}")
    return endpoints
