"""Topics made, deleted and given more partitions. The controller does it, whichever broker it is."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from uuid import UUID

from headwater.client.admin.results import Results
from headwater.client.admin.routing import AT_THE_CONTROLLER, anywhere, ask_each, demand_version, refused_or
from headwater.client.client import Client, duration
from headwater.client.errors import RefusedError
from headwater.protocol.kafka_types import BrokerId, TopicName, i16, i32

from kio.schema.create_partitions.v3.request import (  # isort: skip
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from kio.schema.create_partitions.v3.response import CreatePartitionsResponse  # isort: skip
from kio.schema.create_topics.v7.request import (  # isort: skip
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from kio.schema.create_topics.v7.response import CreatableTopicResult, CreateTopicsResponse  # isort: skip
from kio.schema.delete_topics.v5.request import DeleteTopicsRequest as DeleteTopicsByName  # isort: skip
from kio.schema.delete_topics.v5.response import DeleteTopicsResponse as DeletedByName  # isort: skip
from kio.schema.delete_topics.v6.request import DeleteTopicsRequest, DeleteTopicState  # isort: skip
from kio.schema.delete_topics.v6.response import DeleteTopicsResponse  # isort: skip

Replicas = Sequence[int]
"""The brokers that are to hold a partition; the first is to lead it."""


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create. What is left out the broker decides; `assignments` say where each partition is to lie.

    >>> NewTopic("orders", partitions=3, configs={"cleanup.policy": "compact"}).partitions
    3
    """

    name: str
    _: KW_ONLY
    partitions: int | None = None
    replication_factor: int | None = None
    configs: Mapping[str, str] = field(default_factory=dict)
    assignments: Mapping[int, Replicas] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.assignments and (self.partitions is not None or self.replication_factor is not None):
            raise ValueError(
                f"topic {self.name}: assignments say already how many partitions and replicas there are; "
                "leave partitions and replication_factor out"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedTopic:
    """What the broker made; old brokers tell neither numbers nor configs."""

    name: str
    topic_id: UUID | None
    partitions: int | None
    replication_factor: int | None
    configs: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class NewPartitions:
    """How many partitions a topic is to have in all; `assignments` say where those that are new are to lie."""

    total: int
    assignments: Sequence[Replicas] | None = None


async def create_topics(
    client: Client, topics: Collection[NewTopic], *, validate_only: bool = False
) -> Results[str, CreatedTopic]:
    """Creates topics, or with `validate_only` says whether they could be created."""

    async def ask(_: None, names: Sequence[str]) -> dict[str, CreatedTopic | RefusedError]:
        request = CreateTopicsRequest(
            topics=tuple(_creatable(topic) for topic in topics if topic.name in names),
            timeout=duration(client.timeout_s),
            validate_only=validate_only,
        )
        answer = await client.send_to_controller(request, CreateTopicsResponse)
        return {
            item.name: refused_or(_created(item), f"topic {item.name}", item.error_code, item.error_message)
            for item in answer.topics
        }

    return await ask_each(client, [topic.name for topic in topics], anywhere, ask, passing=AT_THE_CONTROLLER)


async def delete_topics(client: Client, topics: Collection[str | UUID]) -> Results[str | UUID, None]:
    """Deletes topics, named by name or id, with all their records."""

    async def ask(_: None, rest: Sequence[str | UUID]) -> dict[str | UUID, RefusedError | None]:
        found: dict[str | UUID, RefusedError | None] = {}
        if names := [topic for topic in topics if topic in rest and isinstance(topic, str)]:
            found |= await _delete_by_name(client, names)
        if ids := [topic for topic in topics if topic in rest and isinstance(topic, UUID)]:
            found |= await _delete_by_id(client, ids)
        return found

    return await ask_each(client, topics, anywhere, ask, passing=AT_THE_CONTROLLER)


async def create_partitions(
    client: Client, topics: Mapping[str, int | NewPartitions], *, validate_only: bool = False
) -> Results[str, None]:
    """Raises the number of partitions of topics; it cannot be lowered."""

    async def ask(_: None, names: Sequence[str]) -> dict[str, RefusedError | None]:
        request = CreatePartitionsRequest(
            topics=tuple(_grown(name, topics[name]) for name in names),
            timeout=duration(client.timeout_s),
            validate_only=validate_only,
        )
        answer = await client.send_to_controller(request, CreatePartitionsResponse)
        return {
            item.name: refused_or(None, f"topic {item.name}", item.error_code, item.error_message)
            for item in answer.results
        }

    return await ask_each(client, topics, anywhere, ask, passing=AT_THE_CONTROLLER)


def _creatable(topic: NewTopic) -> CreatableTopic:
    return CreatableTopic(
        name=TopicName(topic.name),
        num_partitions=i32(-1 if topic.partitions is None else topic.partitions),
        replication_factor=i16(-1 if topic.replication_factor is None else topic.replication_factor),
        assignments=tuple(
            CreatableReplicaAssignment(partition_index=i32(number), broker_ids=_brokers(replicas))
            for number, replicas in topic.assignments.items()
        ),
        configs=tuple(CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()),
    )


def _created(item: CreatableTopicResult) -> CreatedTopic:
    return CreatedTopic(
        name=item.name,
        topic_id=item.topic_id,
        partitions=int(item.num_partitions) if item.num_partitions >= 0 else None,
        replication_factor=int(item.replication_factor) if item.replication_factor >= 0 else None,
        configs={config.name: config.value for config in item.configs or ()},
    )


async def _delete_by_name(client: Client, names: Collection[str]) -> dict[str | UUID, RefusedError | None]:
    # Version 5 is the newest that holds names alone, which every broker serves.
    request = DeleteTopicsByName(topic_names=tuple(map(TopicName, names)), timeout=duration(client.timeout_s))
    answer = await client.send_to_controller(request, DeletedByName)
    return {
        item.name or "": refused_or(None, f"topic {item.name}", item.error_code, item.error_message)
        for item in answer.responses
    }


async def _delete_by_id(client: Client, ids: Collection[UUID]) -> dict[str | UUID, RefusedError | None]:
    states = tuple(DeleteTopicState(name=None, topic_id=topic_id) for topic_id in ids)
    request = DeleteTopicsRequest(topics=states, timeout=duration(client.timeout_s))
    await demand_version(client, request, 6, "delete topics by their ids")
    answer = await client.send_to_controller(request, DeleteTopicsResponse)
    return {
        item.topic_id: refused_or(None, f"topic {item.topic_id}", item.error_code, item.error_message)
        for item in answer.responses
        if item.topic_id is not None
    }


def _grown(name: str, wish: int | NewPartitions) -> CreatePartitionsTopic:
    wish = NewPartitions(wish) if isinstance(wish, int) else wish
    assignments = None
    if wish.assignments is not None:
        assignments = tuple(CreatePartitionsAssignment(broker_ids=_brokers(r)) for r in wish.assignments)
    return CreatePartitionsTopic(name=TopicName(name), count=i32(wish.total), assignments=assignments)


def _brokers(replicas: Replicas) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, replicas))
