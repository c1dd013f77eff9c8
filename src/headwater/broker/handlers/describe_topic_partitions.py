"""DescribeTopicPartitions, v0: topics in order of name, page by page (KIP-966).

No topics asked for means all of them. The answer holds at most `response_partition_limit` partitions, and
not more than `max.request.partition.size.limit`; `next_cursor` says where the next request goes on.
A partition that is offline has no leader, and no error either, as in Apache.
Left out: eligible leader replicas, which take more than one replica; their lists are empty.
"""

import heapq
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from kio.schema.describe_topic_partitions.v0.request import DescribeTopicPartitionsRequest
from kio.schema.describe_topic_partitions.v0.response import (
    Cursor,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

from headwater.broker.services.authorized_operations import TOPIC_OPERATIONS
from headwater.broker.services.partition import Partition, Topic
from headwater.broker.services.turns import Work
from headwater.cluster.image import INTERNAL_TOPICS, topic_name_problem
from headwater.protocol.each import each
from headwater.protocol.kafka_types import NO_THROTTLE, BrokerId, ErrorCode, TopicName, i32

if TYPE_CHECKING:
    from headwater.broker.dispatch import RequestContext

_NOBODY: Final = BrokerId(-1)
_SORTED_AT_ONCE: Final = 5_000


def handle(context: "RequestContext", request: DescribeTopicPartitionsRequest) -> Work[DescribeTopicPartitionsResponse]:
    """One page, from the cursor on."""
    broker, cursor = context.broker, request.cursor
    known = broker.topics.by_name
    asked = set()
    for wanted in request.topics:
        asked.add(wanted.name)
        yield None
    first_name = cursor.topic_name if cursor is not None else ""
    if cursor is not None and (cursor.partition_index < 0 or (asked and first_name not in asked)):
        return _refusal(request)
    limit = max(min(broker.config.max_request_partition_size_limit, request.response_partition_limit), 1)
    found: list[DescribeTopicPartitionsResponseTopic] = []
    names = yield from _in_order([name for name in (asked or known) if name >= first_name])
    for name in names:
        yield None
        if limit == 0:
            return _page(tuple(found), Cursor(topic_name=TopicName(name), partition_index=i32(0)))
        topic = known.get(name)
        if topic is None:
            found.append(_unknown(name))
            continue
        start = cursor.partition_index if cursor is not None and name == first_name else 0
        chosen = topic.partitions[start : start + limit]
        found.append(_topic(broker.node_id, topic, chosen))
        limit -= len(chosen)
        if start + len(chosen) < len(topic.partitions):
            return _page(tuple(found), Cursor(topic_name=TopicName(name), partition_index=i32(start + len(chosen))))
    return _page(tuple(found), None)


def _in_order(names: list[str]) -> Work[Iterable[str]]:
    """Steps to the names in order: sorting 100,000 at once takes longer than others should wait."""
    some = []
    for first in range(0, len(names), _SORTED_AT_ONCE):
        some.append(sorted(names[first : first + _SORTED_AT_ONCE]))
        yield None
    return heapq.merge(*some)


def _page(
    topics: tuple[DescribeTopicPartitionsResponseTopic, ...], next_cursor: Cursor | None
) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(throttle_time=NO_THROTTLE, topics=topics, next_cursor=next_cursor)


def _refusal(request: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
    """A cursor that points to no partition or to a topic that was not asked for."""
    return _page(
        each(
            lambda topic: DescribeTopicPartitionsResponseTopic(
                error_code=ErrorCode.invalid_request, name=topic.name, topic_id=None, partitions=()
            ),
            request.topics,
        ),
        None,
    )


def _topic(node_id: int, topic: Topic, partitions: list[Partition]) -> DescribeTopicPartitionsResponseTopic:
    leader = BrokerId(node_id)
    return DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.none,
        name=TopicName(topic.name),
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=each(lambda partition: _row(leader, partition), partitions),
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _row(leader: BrokerId, partition: Partition) -> DescribeTopicPartitionsResponsePartition:
    return DescribeTopicPartitionsResponsePartition(
        error_code=ErrorCode.none,
        partition_index=i32(partition.index),
        leader_id=_NOBODY if partition.is_offline else leader,
        leader_epoch=i32(partition.leader_epoch),
        replica_nodes=(leader,),
        isr_nodes=(leader,),
        eligible_leader_replicas=(),
        last_known_elr=(),
        offline_replicas=(leader,) if partition.is_offline else (),
    )


def _unknown(name: str) -> DescribeTopicPartitionsResponseTopic:
    invalid = topic_name_problem(name) is not None
    return DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.invalid_topic_exception if invalid else ErrorCode.unknown_topic_or_partition,
        name=TopicName(name),
        topic_id=None,
        is_internal=name in INTERNAL_TOPICS,
        partitions=(),
        topic_authorized_operations=TOPIC_OPERATIONS,
    )
