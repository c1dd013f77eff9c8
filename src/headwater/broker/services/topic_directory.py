"""The broker's topics as its group coordinator sees them."""

from collections.abc import Iterable, Sequence
from uuid import UUID

from headwater.broker.services.topics import Topics


class BrokerTopics:
    """A `TopicDirectory` over the topics that this broker serves."""

    def __init__(self, topics: Topics, rack: str | None) -> None:
        self._topics = topics
        self._racks = frozenset((rack,)) if rack else frozenset[str]()

    def partition_count(self, topic: str) -> int | None:
        """How many partitions a topic has, None when there is no such topic."""
        found = self._topics.by_name.get(topic)
        return None if found is None else len(found.partitions)

    def topic_id(self, topic: str) -> UUID | None:
        """A topic's id."""
        found = self._topics.by_name.get(topic)
        return None if found is None else found.topic_id

    def topic_name(self, topic_id: UUID) -> str | None:
        """A topic's name."""
        found = self._topics.by_id.get(topic_id.bytes)
        return None if found is None else found.name

    def topic_names(self) -> Iterable[str]:
        """All topics, internal ones too."""
        return self._topics.by_name.keys()

    def racks(self, topic: str) -> Sequence[frozenset[str]]:
        """The racks of each partition's replicas, by partition: this broker's, as it has them all."""
        return [self._racks] * (self.partition_count(topic) or 0)
