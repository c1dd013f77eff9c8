"""The broker's topics as its group coordinator sees them."""

from collections.abc import Iterable
from uuid import UUID

from headwater.broker.services.topics import Topics


class BrokerTopics:
    """A `TopicDirectory` over the topics that this broker serves."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics

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
