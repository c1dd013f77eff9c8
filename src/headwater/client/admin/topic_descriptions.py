"""Which topics there are, and what the cluster says of their partitions.

Named topics are described with DescribeTopicPartitions, page by page, where the broker serves it, since that names the
eligible leaders (KIP-966) and no answer grows without bound. Metadata tells the rest: all topics, topics by id, and
topics of brokers that are older.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from uuid import UUID

from headwater.client.admin.results import Results
from headwater.client.admin.routing import NOTHING, anywhere, ask_each, demand_version, refused_or
from headwater.client.client import Client
from headwater.client.errors import ClientError, RefusedError, UnsupportedError
from headwater.protocol.kafka_types import ErrorCode, TopicName

from kio.schema.describe_topic_partitions.v0.request import (  # isort: skip
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from kio.schema.describe_topic_partitions.v0.response import (  # isort: skip
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from kio.schema.metadata.v12.request import MetadataRequest, MetadataRequestTopic  # isort: skip
from kio.schema.metadata.v12.response import (  # isort: skip
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionDescription:
    """A partition; without a leader nobody can write or read it. What the broker does not tell is None."""

    partition: int
    leader: int | None
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]
    eligible_leaders: tuple[int, ...] | None = None
    last_known_eligible_leaders: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDescription:
    """A topic with its partitions in order; brokers before Kafka 2.8 give no id."""

    name: str
    topic_id: UUID | None
    internal: bool
    partitions: tuple[PartitionDescription, ...]

    @property
    def replication_factor(self) -> int:
        """How many brokers hold each partition, as its first tells."""
        return len(self.partitions[0].replicas) if self.partitions else 0


async def list_topics(client: Client, *, internal: bool = False) -> list[TopicDescription]:
    """Every topic by name; the brokers' own ones only if asked for."""
    answer = await client.retry(client.metadata)
    found = [_from_metadata(topic) for topic in answer.topics if topic.name is not None]
    return sorted((topic for topic in found if internal or not topic.internal), key=lambda topic: topic.name)


async def describe_topics(client: Client, topics: Collection[str | UUID]) -> Results[str | UUID, TopicDescription]:
    """What the cluster says of topics, named by name or id."""

    async def ask(_: None, rest: Sequence[str | UUID]) -> dict[str | UUID, TopicDescription | RefusedError]:
        found: dict[str | UUID, TopicDescription | RefusedError] = {}
        if names := [topic for topic in rest if isinstance(topic, str)]:
            found |= await _describe_named(client, names)
        if ids := [topic for topic in rest if isinstance(topic, UUID)]:
            found |= await _describe_by_id(client, ids)
        return found

    return await ask_each(client, topics, anywhere, ask, passing=NOTHING)


async def _describe_named(client: Client, names: Sequence[str]) -> dict[str | UUID, TopicDescription | RefusedError]:
    try:
        return await _describe_in_pages(client, names)
    except UnsupportedError:
        topics = (await client.metadata(names)).topics
    return {topic.name or "": _described(topic, f"topic {topic.name}") for topic in topics}


async def _describe_in_pages(client: Client, names: Sequence[str]) -> dict[str | UUID, TopicDescription | RefusedError]:
    found: dict[str, DescribeTopicPartitionsResponseTopic] = {}
    partitions: dict[str, list[PartitionDescription]] = {}
    cursor = None
    while True:
        request = DescribeTopicPartitionsRequest(
            topics=tuple(TopicRequest(name=TopicName(name)) for name in names), cursor=cursor
        )
        answer = await client.send(request, DescribeTopicPartitionsResponse)
        for topic in answer.topics:
            found[topic.name or ""] = topic
            partitions.setdefault(topic.name or "", []).extend(map(_partition, topic.partitions))
        if answer.next_cursor is None:
            break
        following = Cursor(topic_name=answer.next_cursor.topic_name, partition_index=answer.next_cursor.partition_index)
        if following == cursor:
            raise ClientError(f"the broker's pages about topics end nowhere: one after {cursor} begins there again")
        cursor = following
    return {
        name: refused_or(_description(topic, partitions[name]), f"topic {name}", topic.error_code)
        for name, topic in found.items()
    }


async def _describe_by_id(client: Client, ids: Sequence[UUID]) -> dict[str | UUID, TopicDescription | RefusedError]:
    request = MetadataRequest(
        topics=tuple(MetadataRequestTopic(topic_id=topic_id, name=None) for topic_id in ids),
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    )
    await demand_version(client, request, 12, "describe topics by their ids")
    answer = await client.send(request, MetadataResponse)
    return {
        topic.topic_id: _described(topic, f"topic {topic.topic_id}")
        for topic in answer.topics
        if topic.topic_id is not None
    }


def _described(topic: MetadataResponseTopic, subject: str) -> TopicDescription | RefusedError:
    if topic.error_code is not ErrorCode.none:
        return RefusedError(subject, topic.error_code)
    return _from_metadata(topic)


def _from_metadata(topic: MetadataResponseTopic) -> TopicDescription:
    return _description(topic, list(map(_partition, topic.partitions)))


def _description(
    topic: MetadataResponseTopic | DescribeTopicPartitionsResponseTopic, partitions: list[PartitionDescription]
) -> TopicDescription:
    return TopicDescription(
        name=topic.name or "",
        topic_id=topic.topic_id,
        internal=topic.is_internal,
        partitions=tuple(sorted(partitions, key=lambda partition: partition.partition)),
    )


def _partition(
    found: MetadataResponsePartition | DescribeTopicPartitionsResponsePartition,
) -> PartitionDescription:
    eligible = last_known = None
    if isinstance(found, DescribeTopicPartitionsResponsePartition):
        eligible, last_known = found.eligible_leader_replicas, found.last_known_elr
    return PartitionDescription(
        partition=int(found.partition_index),
        leader=int(found.leader_id) if found.leader_id >= 0 else None,
        leader_epoch=int(found.leader_epoch),
        replicas=tuple(map(int, found.replica_nodes)),
        isr=tuple(map(int, found.isr_nodes)),
        offline=tuple(map(int, found.offline_replicas)),
        eligible_leaders=None if eligible is None else tuple(map(int, eligible)),
        last_known_eligible_leaders=None if last_known is None else tuple(map(int, last_known)),
    )
