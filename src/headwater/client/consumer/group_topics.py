"""The topics a group is about, as the client's picture of the cluster shows them."""

import uuid
from collections.abc import Iterable

from headwater.client.client import Client
from headwater.client.consumer.assignors import PartitionRacks
from headwater.client.consumer.subscription import SubscriptionState
from headwater.client.errors import ClientError
from headwater.protocol.kafka_types import ErrorCode

from kio.schema.metadata.v12.request import MetadataRequest, MetadataRequestTopic  # isort: skip
from kio.schema.metadata.v12.response import MetadataResponse  # isort: skip


def racks_of(client: Client, topics: Iterable[str]) -> dict[str, PartitionRacks]:
    """For every known topic the racks of each partition's replicas; brokers that are away count as nowhere."""
    rack_of = {node: broker.rack for node, broker in client.brokers.items() if broker.rack}
    known = {topic: client.known_topics[topic] for topic in topics if topic in client.known_topics}
    return {
        topic: tuple(
            frozenset(rack_of[int(node)] for node in picture.partitions[number].replica_nodes if int(node) in rack_of)
            for number in sorted(picture.partitions)
        )
        for topic, picture in known.items()
    }


def match_pattern(client: Client, subscription: SubscriptionState, *, exclude_internal: bool) -> bool:
    """Applies a subscription by pattern to the topics there are; whether it wants other topics now."""
    return subscription.match(
        topic for topic, picture in client.known_topics.items() if not (exclude_internal and picture.is_internal)
    )


class TopicNames:
    """Names of topics by id: from the picture of the cluster, else asked for."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._names: dict[uuid.UUID, str] = {}

    async def of(self, topic_ids: Iterable[uuid.UUID]) -> dict[uuid.UUID, str] | None:
        """The name of each; None while the cluster does not know one of them yet, or any more."""
        wanted = set(topic_ids)
        if not wanted.issubset(self._names):
            for name, picture in self._client.known_topics.items():
                if picture.topic_id is not None:
                    self._names[picture.topic_id] = name
        if missing := wanted.difference(self._names):
            await self._ask(missing)
        return {topic_id: self._names[topic_id] for topic_id in wanted} if wanted.issubset(self._names) else None

    async def _ask(self, topic_ids: Iterable[uuid.UUID]) -> None:
        request = MetadataRequest(
            topics=tuple(MetadataRequestTopic(topic_id=topic_id, name=None) for topic_id in topic_ids),
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=False,
        )
        try:
            answer = await self._client.send(request, MetadataResponse)
        except ClientError as error:
            if not self._client.may_pass(error):
                raise
            return
        for topic in answer.topics:
            if topic.error_code is ErrorCode.none and topic.topic_id is not None and topic.name is not None:
                self._names[topic.topic_id] = str(topic.name)
