"""The topics of this broker: names and ids to partitions, and the changes they go through.

A change is made durable first (`store`), then on disk (`log_dirs`), then visible; a crash between leaves something that
the next start completes. Whoever changes something holds `changing` from its first look on; look-ups never wait.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from uuid import UUID, uuid4

from headwater.broker.services.partition import Partition, Topic
from headwater.broker.services.purgatory import Purgatory
from headwater.broker.services.threads import run_to_end
from headwater.cluster.changes import PartitionsAdded, TopicConfigured, TopicCreated, TopicDeleted
from headwater.cluster.embedded import EmbeddedStore
from headwater.config import BrokerConfig, TopicConfig
from headwater.log.log import Log
from headwater.log.log_dirs import LogDirs
from headwater.protocol.errors import ApiError, ErrorCode
from headwater.types import TopicPartition

logger = logging.getLogger(__name__)


class Topics:
    """See the module's docstring."""

    def __init__(
        self,
        config: Callable[[], BrokerConfig],
        store: EmbeddedStore,
        log_dirs: LogDirs,
        purgatory: Purgatory,
    ) -> None:
        self._config = config
        self._store = store
        self._log_dirs = log_dirs
        self._purgatory = purgatory
        self.changing = asyncio.Lock()
        """Held from the look at a topic or its settings to the end of the change that rests on it: without it two
        requests could both find a name free, or one lose the other's change."""
        self.listeners: list[Callable[[str | None], None]] = []
        """Called on the loop after topics or partitions were added (None) or a topic was deleted (its name)."""
        self.by_name: dict[str, Topic] = {}
        self.by_id: dict[bytes, Topic] = {}

    def partition(self, topic: str | bytes, index: int) -> Partition:
        """A partition of a topic given by name or by the 16 bytes of its id."""
        found = self.by_name.get(topic) if isinstance(topic, str) else self.by_id.get(topic)
        if found is None:
            if isinstance(topic, bytes):
                raise ApiError(ErrorCode.unknown_topic_id, f"no topic has the id {UUID(bytes=topic)}")
            raise ApiError(ErrorCode.unknown_topic_or_partition, f"there is no topic {topic!r}")
        if not 0 <= index < len(found.partitions):
            raise ApiError(ErrorCode.unknown_topic_or_partition, f"topic {found.name!r} has no partition {index}")
        return found.partitions[index]

    def has_partition(self, topic: str, index: int) -> bool:
        """Whether there is such a partition."""
        found = self.by_name.get(topic)
        return found is not None and 0 <= index < len(found.partitions)

    def colliding(self, name: str) -> str | None:
        """A topic whose name metrics could not tell from `name`, or None."""
        return self._store.image.colliding_topic(name)

    def partitions(self) -> list[Partition]:
        """Every partition of every topic."""
        return [partition for topic in self.by_name.values() for partition in topic.partitions]

    def high_watermarks(self) -> dict[TopicPartition, int]:
        """The high watermark of every partition, for the checkpoint."""
        return {partition.log.topic_partition: partition.high_watermark for partition in self.partitions()}

    def load(self) -> None:
        """Takes up the topics of the store with the logs that are there; creates what a crash left undone."""
        for created in self._store.image.topics.values():
            topic = self._make(created)
            logs = [self._log(topic, index) for index in range(created.partitions)]
            self._publish(topic, logs)

    async def create(self, name: str, partitions: int, overrides: dict[str, str]) -> Topic:
        """Makes a new topic. Name, partitions and settings were found good before."""
        created = TopicCreated(name=name, topic_id=uuid4(), partitions=partitions, configs=dict(overrides))
        topic = self._make(created)

        def make_durable() -> list[Log]:
            self._store.append(created)
            return [self._log(topic, index) for index in range(partitions)]

        self._publish(topic, await run_to_end(make_durable))
        self._tell_listeners(None)
        logger.info("created topic %s with %d partitions", name, partitions)
        return topic

    async def add_partitions(self, topic: Topic, total: int) -> None:
        """Grows a topic to `total` partitions."""
        if total <= len(topic.partitions):
            raise ApiError(ErrorCode.invalid_partitions, f"topic {topic.name!r} has {len(topic.partitions)} partitions")

        def make_durable() -> list[Log]:
            self._store.append(PartitionsAdded(name=topic.name, partitions=total))
            return [self._log(topic, index) for index in range(len(topic.partitions), total)]

        self._publish(topic, await run_to_end(make_durable))
        self._tell_listeners(None)

    async def configure(self, topic: Topic, overrides: dict[str, str]) -> None:
        """Replaces a topic's own settings; they take effect at once."""
        configured = TopicConfigured(name=topic.name, configs=overrides)
        await run_to_end(lambda: self._store.append(configured))
        topic.overrides = overrides
        self._reconfigure(topic)

    async def delete(self, topic: Topic) -> None:
        """Takes a topic away. Its files wait `file.delete.delay.ms` before they go."""
        deleted = TopicDeleted(name=topic.name, topic_id=topic.topic_id)
        await run_to_end(lambda: self._store.append(deleted))
        del self.by_name[topic.name]
        del self.by_id[topic.id_bytes]
        for partition in topic.partitions:
            self._purgatory.touched(partition)
        self._tell_listeners(topic.name)
        names = [TopicPartition(topic.name, partition.index) for partition in topic.partitions]
        await run_to_end(lambda: self._delete_logs(names, topic.config.file_delete_delay_ms))
        logger.info("deleted topic %s", topic.name)

    def _tell_listeners(self, deleted: str | None) -> None:
        for listener in self.listeners:
            listener(deleted)

    def _delete_logs(self, names: list[TopicPartition], delay_ms: int) -> None:
        remove_from_ms = int(time.time() * 1000) + delay_ms
        for name in names:
            self._log_dirs.delete(name, remove_from_ms=remove_from_ms)

    def reconfigure_all(self) -> None:
        """The broker's own settings changed: topics that inherit from them follow."""
        for topic in self.by_name.values():
            self._reconfigure(topic)

    def _make(self, created: TopicCreated) -> Topic:
        overrides = dict(created.configs)
        return Topic(created.name, created.topic_id, overrides, TopicConfig.from_values(overrides, self._config()))

    def _log(self, topic: Topic, index: int) -> Log:
        return self._log_dirs.create(
            TopicPartition(topic.name, index),
            config=topic.config,
            topic_id=topic.topic_id,
            now_ms=int(time.time() * 1000),
            producer_id_expiration_ms=self._config().producer_id_expiration_ms,
        )

    def _publish(self, topic: Topic, logs: list[Log]) -> None:
        for log in logs:
            log.config = topic.config
            epoch = max(log.latest_epoch, self._store.image.leader_epoch)
            topic.partitions.append(Partition(topic, len(topic.partitions), log, epoch))
        self.by_name[topic.name] = topic
        self.by_id[topic.id_bytes] = topic

    def _reconfigure(self, topic: Topic) -> None:
        topic.config = TopicConfig.from_values(topic.overrides, self._config())
