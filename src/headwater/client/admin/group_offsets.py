"""The offsets that groups have committed: reading them, setting them, and forgetting them.

Those of many groups are asked for with one request to each coordinator, group by group where it is too old for that.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias, TypeVar

from headwater.client.admin.results import Results, for_each
from headwater.client.admin.routing import (
    ask_each,
    coordinators,
    demand_success,
    demand_version,
    left_out,
    numbers_by_topic,
    place_of,
)
from headwater.client.client import Client
from headwater.client.coordinators import Coordinated, Coordinator, find_coordinator
from headwater.client.errors import ClientError, RefusedError
from headwater.protocol.kafka_types import ErrorCode, TopicName, i32, i64
from headwater.types import TopicPartition

from kio.schema.offset_commit.v9.request import (  # isort: skip
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kio.schema.offset_commit.v9.response import OffsetCommitResponse  # isort: skip
from kio.schema.offset_delete.v0.request import (  # isort: skip
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kio.schema.offset_delete.v0.response import OffsetDeleteResponse  # isort: skip
from kio.schema.offset_fetch.v7.request import OffsetFetchRequest as OffsetFetchRequestForOne  # isort: skip
from kio.schema.offset_fetch.v7.request import OffsetFetchRequestTopic  # isort: skip
from kio.schema.offset_fetch.v7.response import OffsetFetchResponse as OffsetFetchResponseForOne  # isort: skip
from kio.schema.offset_fetch.v7.response import OffsetFetchResponseTopic  # isort: skip
from kio.schema.offset_fetch.v9.request import (  # isort: skip
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kio.schema.offset_fetch.v9.response import OffsetFetchResponse, OffsetFetchResponseTopics  # isort: skip
from kio.schema.types import GroupId  # isort: skip

T = TypeVar("T")

_FIRST_WITH_STABLE = 7
_FIRST_WITH_MANY_GROUPS = 8


class CommittedOffset(NamedTuple):
    """What a group has committed for a partition: the next offset to read, and whatever the consumer noted there."""

    offset: int
    metadata: str = ""
    leader_epoch: int | None = None


Committed: TypeAlias = dict[TopicPartition, CommittedOffset]


async def list_groups_offsets(
    client: Client,
    groups: Collection[str] | Mapping[str, Collection[TopicPartition] | None],
    *,
    require_stable: bool = False,
) -> Results[str, dict[TopicPartition, CommittedOffset]]:
    """What each group has committed, in all partitions or in those that the mapping names for it.

    A partition without a committed offset is left out, and a group that is not there has none at all. With
    `require_stable`, offsets that an open transaction is about to change are waited for.
    """
    wanted = groups if isinstance(groups, Mapping) else dict.fromkeys(groups)

    async def ask(coordinator: Coordinator, group_ids: Sequence[str]) -> dict[str, Committed | ClientError]:
        broker = coordinator.broker
        together = OffsetFetchRequest(
            groups=tuple(
                OffsetFetchRequestGroup(
                    group_id=GroupId(group_id), topics=_topics_to_ask(OffsetFetchRequestTopics, wanted[group_id])
                )
                for group_id in group_ids
            ),
            require_stable=require_stable,
        )
        if (await client.connection(broker)).version_for(together) >= _FIRST_WITH_MANY_GROUPS:
            answer = await client.send(together, OffsetFetchResponse, to=broker)
            return {each.group_id: _committed(each.group_id, each.error_code, each.topics) for each in answer.groups}

        async def ask_one(group_id: str) -> Committed:
            return await _fetch_one(client, broker, group_id, wanted[group_id], require_stable)

        return await for_each(group_ids, ask_one)

    return await ask_each(client, wanted, coordinators(client, Coordinated.GROUP), ask)


async def alter_group_offsets(
    client: Client, group_id: str, offsets: Mapping[TopicPartition, int | CommittedOffset]
) -> Results[TopicPartition, None]:
    """Commits as no member: a broker takes that only while the group has none."""
    request = OffsetCommitRequest(
        group_id=GroupId(group_id),
        member_id="",
        topics=tuple(
            OffsetCommitRequestTopic(
                name=TopicName(topic),
                partitions=tuple(_commit(number, offsets[TopicPartition(topic, number)]) for number in numbers),
            )
            for topic, numbers in numbers_by_topic(offsets).items()
        ),
    )

    async def ask(coordinator: int) -> dict[TopicPartition, ErrorCode]:
        answer = await client.send(request, OffsetCommitResponse, to=coordinator)
        return _codes(
            (topic.name, item.partition_index, item.error_code) for topic in answer.topics for item in topic.partitions
        )

    return await _change(client, group_id, offsets, ask)


async def delete_group_offsets(
    client: Client, group_id: str, partitions: Collection[TopicPartition]
) -> Results[TopicPartition, None]:
    """Forgets what a group has committed for partitions of topics that none of its members reads."""
    request = OffsetDeleteRequest(
        group_id=GroupId(group_id),
        topics=tuple(
            OffsetDeleteRequestTopic(
                name=TopicName(topic),
                partitions=tuple(OffsetDeleteRequestPartition(partition_index=i32(number)) for number in numbers),
            )
            for topic, numbers in numbers_by_topic(partitions).items()
        ),
    )

    async def ask(coordinator: int) -> dict[TopicPartition, ErrorCode]:
        answer = await client.send(request, OffsetDeleteResponse, to=coordinator)
        demand_success(f"group {group_id}", answer.error_code)
        return _codes(
            (topic.name, item.partition_index, item.error_code) for topic in answer.topics for item in topic.partitions
        )

    return await _change(client, group_id, partitions, ask)


async def _fetch_one(
    client: Client, broker: int, group_id: str, partitions: Collection[TopicPartition] | None, require_stable: bool
) -> Committed:
    topics = _topics_to_ask(OffsetFetchRequestTopic, partitions)
    request = OffsetFetchRequestForOne(group_id=GroupId(group_id), topics=topics, require_stable=require_stable)
    if require_stable:
        await demand_version(client, request, _FIRST_WITH_STABLE, "wait for stable offsets", at=broker)
    answer = await client.send(request, OffsetFetchResponseForOne, to=broker)
    found = _committed(group_id, answer.error_code, answer.topics)
    if isinstance(found, RefusedError):
        raise found
    return found


def _topics_to_ask(kind: Callable[..., T], partitions: Collection[TopicPartition] | None) -> tuple[T, ...] | None:
    """What a request asks for; None is everything."""
    if partitions is None:
        return None
    return tuple(
        kind(name=TopicName(topic), partition_indexes=tuple(map(i32, numbers)))
        for topic, numbers in numbers_by_topic(partitions).items()
    )


def _committed(
    group_id: str, code: ErrorCode, topics: Iterable[OffsetFetchResponseTopic | OffsetFetchResponseTopics]
) -> Committed | RefusedError:
    """What an answer tells of one group, or what is wrong with that group."""
    if code is not ErrorCode.none:
        return RefusedError(f"group {group_id}", code)
    found = {}
    for topic in topics:
        for item in topic.partitions:
            partition = TopicPartition(topic.name, int(item.partition_index))
            if item.error_code is not ErrorCode.none:
                return RefusedError(place_of(partition), item.error_code)
            if item.committed_offset >= 0:
                epoch = int(item.committed_leader_epoch)
                found[partition] = CommittedOffset(
                    int(item.committed_offset), item.metadata or "", epoch if epoch >= 0 else None
                )
    return found


async def _change(
    client: Client,
    group_id: str,
    partitions: Collection[TopicPartition],
    ask: Callable[[int], Awaitable[dict[TopicPartition, ErrorCode]]],
) -> Results[TopicPartition, None]:
    """Changes offsets of one group; tried again as a whole while any of them may still succeed."""

    async def ask_coordinator() -> Results[TopicPartition, None]:
        codes = await ask((await find_coordinator(client, Coordinated.GROUP, group_id)).broker)
        results: Results[TopicPartition, None] = Results()
        for partition in partitions:
            code = codes.get(partition)
            error = left_out(partition) if code is None else _refusal(group_id, partition, code)
            if isinstance(error, RefusedError) and error.retriable:
                raise error
            results[partition] = error
        return results

    return await client.retry(ask_coordinator) if partitions else Results()


def _refusal(group_id: str, partition: TopicPartition, code: ErrorCode) -> RefusedError | None:
    return None if code is ErrorCode.none else RefusedError(f"group {group_id}, {place_of(partition)}", code)


def _codes(items: Iterable[tuple[str, int, ErrorCode]]) -> dict[TopicPartition, ErrorCode]:
    return {TopicPartition(topic, int(number)): code for topic, number, code in items}


def _commit(number: int, offset: int | CommittedOffset) -> OffsetCommitRequestPartition:
    offset = CommittedOffset(offset) if isinstance(offset, int) else offset
    return OffsetCommitRequestPartition(
        partition_index=i32(number),
        committed_offset=i64(offset.offset),
        committed_leader_epoch=i32(-1 if offset.leader_epoch is None else offset.leader_epoch),
        committed_metadata=offset.metadata,
    )
