"""Topics, configs and the cluster: one function per thing an operator does.

Calls that take several topics return one `Outcome` for each: one failure does not hide the others' success.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TypeVar

from headwater.client.client import Client, duration
from headwater.client.errors import RefusedError
from headwater.client.thin.outcomes import Outcome
from headwater.protocol.kafka_types import ErrorCode, TopicName, i8, i16, i32
from headwater.types import TopicPartition

from kio.schema.alter_replica_log_dirs.v2.request import (  # isort: skip
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from kio.schema.alter_replica_log_dirs.v2.response import AlterReplicaLogDirsResponse  # isort: skip
from kio.schema.create_partitions.v3.request import (  # isort: skip
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from kio.schema.create_partitions.v3.response import CreatePartitionsResponse  # isort: skip
from kio.schema.create_topics.v7.request import (  # isort: skip
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from kio.schema.create_topics.v7.response import CreatableTopicResult, CreateTopicsResponse  # isort: skip
from kio.schema.delete_topics.v5.request import DeleteTopicsRequest  # isort: skip
from kio.schema.delete_topics.v5.response import DeleteTopicsResponse  # isort: skip
from kio.schema.describe_cluster.v1.request import DescribeClusterRequest  # isort: skip
from kio.schema.describe_cluster.v1.response import DescribeClusterResponse  # isort: skip
from kio.schema.describe_configs.v4.request import (  # isort: skip
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from kio.schema.describe_configs.v4.response import (  # isort: skip
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from kio.schema.describe_log_dirs.v4.request import (  # isort: skip
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from kio.schema.describe_log_dirs.v4.response import DescribeLogDirsResponse, DescribeLogDirsResult  # isort: skip
from kio.schema.incremental_alter_configs.v1.request import (  # isort: skip
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kio.schema.incremental_alter_configs.v1.response import IncrementalAlterConfigsResponse  # isort: skip
from kio.schema.metadata.v12.response import MetadataResponseTopic  # isort: skip

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic to create; -1 leaves a number to the broker's defaults."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)


class ResourceType(IntEnum):
    """What a config belongs to, by the protocol's numbers."""

    TOPIC = 2
    BROKER = 4


class AlterOperation(IntEnum):
    """What to do with one config, by the protocol's numbers."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigChange:
    """One step of an incremental change; DELETE has no value."""

    operation: AlterOperation
    name: str
    value: str | None = None


async def create_topics(
    client: Client, topics: Sequence[NewTopic], *, validate_only: bool = False
) -> list[Outcome[CreatableTopicResult]]:
    """Creates topics; the value is what the broker made of each."""
    request = CreateTopicsRequest(
        topics=tuple(
            CreatableTopic(
                name=TopicName(topic.name),
                num_partitions=i32(topic.partitions),
                replication_factor=i16(topic.replication_factor),
                assignments=(),
                configs=tuple(CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()),
            )
            for topic in topics
        ),
        timeout=duration(client.timeout_s),
        validate_only=validate_only,
    )
    answer = await client.send_to_controller(request, CreateTopicsResponse)
    return [_outcome(item.name, item, item.error_code, item.error_message) for item in answer.topics]


async def delete_topics(client: Client, names: Sequence[str]) -> list[Outcome[None]]:
    """Deletes topics with all their records."""
    request = DeleteTopicsRequest(
        topic_names=tuple(TopicName(name) for name in names), timeout=duration(client.timeout_s)
    )
    answer = await client.send_to_controller(request, DeleteTopicsResponse)
    return [_outcome(item.name or "", None, item.error_code, item.error_message) for item in answer.responses]


async def add_partitions(client: Client, topic: str, total: int) -> None:
    """Raises a topic's partitions to `total`; raises `RefusedError` when the broker does not."""
    request = CreatePartitionsRequest(
        topics=(CreatePartitionsTopic(name=TopicName(topic), count=i32(total), assignments=None),),
        timeout=duration(client.timeout_s),
        validate_only=False,
    )
    answer = await client.send_to_controller(request, CreatePartitionsResponse)
    for item in answer.results:
        _demand_success(f"topic {item.name}", item.error_code, item.error_message)


async def list_topics(client: Client) -> list[MetadataResponseTopic]:
    """Every topic, internal ones too, by name."""
    return sorted((await client.metadata()).topics, key=lambda topic: topic.name or "")


async def describe_topics(client: Client, names: Sequence[str]) -> list[Outcome[MetadataResponseTopic]]:
    """What the cluster says about each of `names`."""
    answer = await client.metadata(names)
    found = {topic.name: topic for topic in answer.topics}
    return [_outcome(name, found[TopicName(name)], found[TopicName(name)].error_code, None) for name in names]


async def describe_configs(
    client: Client, resource: ResourceType, names: Sequence[str]
) -> dict[str, tuple[DescribeConfigsResourceResult, ...]]:
    """Every config of each named topic or broker, with sources and synonyms."""
    request = DescribeConfigsRequest(
        resources=tuple(
            DescribeConfigsResource(resource_type=i8(resource), resource_name=name, configuration_keys=None)
            for name in names
        ),
        include_synonyms=True,
        include_documentation=True,
    )
    answer = await client.send(request, DescribeConfigsResponse, to=_home_of(resource, names))
    for item in answer.results:
        _demand_success(f"{resource.name.lower()} {item.resource_name}", item.error_code, item.error_message)
    return {item.resource_name: item.configs for item in answer.results}


async def alter_configs(
    client: Client,
    resource: ResourceType,
    name: str,
    changes: Sequence[ConfigChange],
    *,
    validate_only: bool = False,
) -> None:
    """Applies all of `changes` or none."""
    configs = tuple(
        AlterableConfig(name=change.name, config_operation=i8(change.operation), value=change.value)
        for change in changes
    )
    request = IncrementalAlterConfigsRequest(
        resources=(AlterConfigsResource(resource_type=i8(resource), resource_name=name, configs=configs),),
        validate_only=validate_only,
    )
    answer = await client.send(request, IncrementalAlterConfigsResponse, to=_home_of(resource, [name]))
    for item in answer.responses:
        subject = f"{resource.name.lower()} {name or 'default'}"
        _demand_success(subject, item.error_code, item.error_message)


async def describe_cluster(client: Client) -> DescribeClusterResponse:
    """Cluster id, controller and brokers with their racks."""
    request = DescribeClusterRequest(include_cluster_authorized_operations=False)
    answer = await client.send(request, DescribeClusterResponse)
    _demand_success("cluster", answer.error_code, answer.error_message)
    return answer


async def describe_log_dirs(
    client: Client, broker: int, partitions: Collection[TopicPartition] | None = None
) -> tuple[DescribeLogDirsResult, ...]:
    """The log dirs of one broker, with these partitions in them, or every one."""
    topics = None
    if partitions is not None:
        topics = tuple(
            DescribableLogDirTopic(topic=TopicName(topic), partitions=tuple(indexes))
            for topic, indexes in _by_topic(partitions).items()
        )
    answer = await client.send(DescribeLogDirsRequest(topics=topics), DescribeLogDirsResponse, to=broker)
    _demand_success(f"broker {broker}", answer.error_code, None)
    return answer.results


async def alter_replica_log_dirs(
    client: Client, broker: int, log_dir: str, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, ErrorCode]:
    """Lets a broker begin to move partitions to one of its log dirs; what it says to each."""
    topics = tuple(
        AlterReplicaLogDirTopic(name=TopicName(topic), partitions=tuple(indexes))
        for topic, indexes in _by_topic(partitions).items()
    )
    request = AlterReplicaLogDirsRequest(dirs=(AlterReplicaLogDir(path=log_dir, topics=topics),))
    answer = await client.send(request, AlterReplicaLogDirsResponse, to=broker)
    return {
        TopicPartition(topic.topic_name, result.partition_index): result.error_code
        for topic in answer.results
        for result in topic.partitions
    }


def _by_topic(partitions: Collection[TopicPartition]) -> dict[str, list[i32]]:
    indexes: dict[str, list[i32]] = {}
    for topic, index in partitions:
        indexes.setdefault(topic, []).append(i32(index))
    return indexes


def _home_of(resource: ResourceType, names: Sequence[str]) -> int | None:
    """A broker's own configs are known to that broker only; everything else to all of them."""
    if resource is ResourceType.BROKER and len(names) == 1 and names[0].isdigit():
        return int(names[0])
    return None


def _outcome(name: str, value: T, code: ErrorCode, message: str | None) -> Outcome[T]:
    if code is ErrorCode.none:
        return Outcome(name=name, value=value)
    return Outcome(name=name, error=RefusedError(f"topic {name}", code, message))


def _demand_success(subject: str, code: ErrorCode, message: str | None) -> None:
    if code is not ErrorCode.none:
        raise RefusedError(subject, code, message)
