"""OffsetCommit and OffsetFetch as a consumer sends and reads them. Decides nothing."""

from collections import defaultdict
from collections.abc import Sequence

from headwater.client.consumer.group_link import OFFSETS, GroupLink
from headwater.client.consumer.membership import GroupMetadata, OffsetAndMetadata, Offsets
from headwater.protocol.kafka_types import ErrorCode, TopicName, i32, i64
from headwater.types import TopicPartition

from kio.schema.offset_commit.v9.request import (  # isort: skip
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kio.schema.offset_fetch.v7 import request as one_group  # isort: skip
from kio.schema.offset_fetch.v7.response import OffsetFetchResponse as OneGroupResponse  # isort: skip
from kio.schema.offset_fetch.v9.request import (  # isort: skip
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kio.schema.offset_fetch.v9.response import OffsetFetchResponse  # isort: skip
from kio.schema.types import GroupId  # isort: skip

_OFFSET_FETCH_KEY = 9
_FIRST_WITH_GROUPS = 8

Committed = dict[TopicPartition, OffsetAndMetadata | None]


def commit_request(member: GroupMetadata, offsets: Offsets) -> OffsetCommitRequest:
    """A commit of `offsets` in the name of `member`."""
    topics: defaultdict[str, list[OffsetCommitRequestPartition]] = defaultdict(list)
    for (topic, partition), committed in offsets.items():
        if committed.offset < 0:
            raise ValueError(f"offset {committed.offset} of partition {topic}-{partition} cannot be committed")
        topics[topic].append(
            OffsetCommitRequestPartition(
                partition_index=i32(partition),
                committed_offset=i64(committed.offset),
                committed_leader_epoch=i32(committed.leader_epoch),
                committed_metadata=committed.metadata,
            )
        )
    return OffsetCommitRequest(
        group_id=GroupId(member.group_id),
        generation_id_or_member_epoch=i32(member.generation_id),
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        topics=tuple(
            OffsetCommitRequestTopic(name=TopicName(topic), partitions=tuple(partitions))
            for topic, partitions in topics.items()
        ),
    )


async def read_committed_offsets(
    link: GroupLink, partitions: Sequence[TopicPartition], member: GroupMetadata | None
) -> Committed | ErrorCode:
    """What the group has committed, or the first error that the coordinator names.

    Offsets of a transaction that is still open are not given out: the answer is UNSTABLE_OFFSET_COMMIT instead.
    """
    topics: defaultdict[str, list[i32]] = defaultdict(list)
    for topic, partition in partitions:
        topics[topic].append(i32(partition))
    connection = await link.connection(OFFSETS)
    _, newest = connection.supported(_OFFSET_FETCH_KEY)
    if newest >= _FIRST_WITH_GROUPS:
        return await _ask_new(link, topics, member)
    return await _ask_old(link, topics)


async def _ask_new(
    link: GroupLink, topics: dict[str, list[i32]], member: GroupMetadata | None
) -> Committed | ErrorCode:
    group = OffsetFetchRequestGroup(
        group_id=GroupId(link.group_id),
        member_id=None if member is None else member.member_id,
        member_epoch=i32(-1 if member is None else member.generation_id),
        topics=tuple(
            OffsetFetchRequestTopics(name=TopicName(topic), partition_indexes=tuple(numbers))
            for topic, numbers in topics.items()
        ),
    )
    request = OffsetFetchRequest(groups=(group,), require_stable=True)
    answer = (await link.send(request, OffsetFetchResponse, lane=OFFSETS)).groups[0]
    return _read(answer.error_code, answer.topics)


async def _ask_old(link: GroupLink, topics: dict[str, list[i32]]) -> Committed | ErrorCode:
    request = one_group.OffsetFetchRequest(
        group_id=GroupId(link.group_id),
        topics=tuple(
            one_group.OffsetFetchRequestTopic(name=TopicName(topic), partition_indexes=tuple(numbers))
            for topic, numbers in topics.items()
        ),
        require_stable=True,
    )
    answer = await link.send(request, OneGroupResponse, lane=OFFSETS)
    return _read(answer.error_code, answer.topics)


def _read(code: ErrorCode, topics: Sequence[object]) -> Committed | ErrorCode:
    if code is not ErrorCode.none:
        return code
    found: Committed = {}
    for topic in topics:
        for partition in topic.partitions:  # type: ignore[attr-defined]
            if partition.error_code is not ErrorCode.none:
                return ErrorCode(partition.error_code)
            place = TopicPartition(str(topic.name), int(partition.partition_index))  # type: ignore[attr-defined]
            offset = int(partition.committed_offset)
            found[place] = (
                OffsetAndMetadata(offset, int(partition.committed_leader_epoch), partition.metadata or "")
                if offset >= 0
                else None
            )
    return found
