"""OffsetFetch: what a group has committed.

A partition without an offset has offset and leader epoch -1 and empty metadata. Where stable offsets are required (v7),
one that a transaction is about to change is UNSTABLE_OFFSET_COMMIT. An offset that was committed for an earlier topic
of the same name is none.
"""

from collections.abc import Collection
from typing import Final

from headwater.coordinator.group.group import Group
from headwater.coordinator.group.offsets import CommittedOffsets
from headwater.coordinator.group.records import OffsetKey, OffsetValue
from headwater.coordinator.outcome import TopicDirectory
from headwater.protocol.each import each
from headwater.protocol.errors import ApiError, ErrorCode
from headwater.protocol.kafka_types import TopicName, i32, i64

from kio.schema.offset_fetch.v9.request import OffsetFetchRequestGroup  # isort: skip
from kio.schema.offset_fetch.v9.response import (  # isort: skip
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)

_NONE: Final = -1


def fetch_offsets(
    request: OffsetFetchRequestGroup,
    *,
    group: Group | None,
    offsets: CommittedOffsets,
    topics: TopicDirectory,
    require_stable: bool,
) -> OffsetFetchResponseGroup:
    """The offsets of the partitions asked for, or of all that have one."""
    if group is not None:
        try:
            group.check_offset_fetch(member_id=request.member_id, member_epoch=request.member_epoch)
        except ApiError as error:
            return OffsetFetchResponseGroup(group_id=request.group_id, topics=(), error_code=error.code)
    if request.topics is None:
        wanted: dict[str, list[int]] = {}
        for key, _ in offsets.of_group(request.group_id):
            wanted.setdefault(key.topic, []).append(key.partition)
        asked: Collection[tuple[str, Collection[int]]] = wanted.items()
    else:
        asked = each(lambda topic: (topic.name, topic.partition_indexes), request.topics)

    def topic(asked: tuple[str, Collection[int]]) -> OffsetFetchResponseTopics:
        name, partitions = asked
        return OffsetFetchResponseTopics(
            name=TopicName(name),
            partitions=each(
                lambda index: _fetched(OffsetKey(request.group_id, name, index), offsets, topics, require_stable),
                partitions,
            ),
        )

    return OffsetFetchResponseGroup(
        group_id=request.group_id,
        topics=each(topic, asked),
    )


def _fetched(
    key: OffsetKey, offsets: CommittedOffsets, topics: TopicDirectory, require_stable: bool
) -> OffsetFetchResponsePartitions:
    if require_stable and offsets.is_pending(key):
        return _partition(key.partition, None, ErrorCode.unstable_offset_commit)
    value = offsets.get(key.group, key.topic, key.partition)
    if value is not None and value.topic_id is not None and topics.topic_id(key.topic) not in (None, value.topic_id):
        value = None
    return _partition(key.partition, value, ErrorCode.none)


def _partition(partition: int, value: OffsetValue | None, code: ErrorCode) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=i32(partition),
        committed_offset=i64(_NONE if value is None else value.offset),
        committed_leader_epoch=i32(_NONE if value is None else value.leader_epoch),
        metadata="" if value is None else value.metadata,
        error_code=code,
    )
