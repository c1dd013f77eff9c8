"""The topics of this broker: names and ids to partitions, and the changes they go through.

A change is made durable first (`store`), then on disk (`log_dirs`), then visible; a crash between leaves something that
the next start completes. Whoever changes something holds `changing` from its first look on; look-ups never wait.
Partitions whose log dir is offline are there without a log; they are not made anew elsewhere.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from uuid import UUID, uuid4

from headwater.broker.services.journal import Journal
from headwater.broker.services.partition import Partition, Topic
from headwater.broker.services.purgatory import Purgatory
from headwater.broker.services.threads import run_to_end
from headwater.cluster.changes import Change, PartitionsAdded, TopicConfigured, TopicCreated, TopicDeleted
from headwater.config import BrokerConfig, TopicConfig
from headwater.log.disk_errors import is_passing
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
        store: Journal,
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
        """Every partition of every topic, but those that are offline."""
        return [each for topic in self.by_name.values() for each in topic.partitions if not each.is_offline]

    def high_watermarks(self) -> dict[TopicPartition, int]:
        """The high watermark of every partition that is not offline, for the checkpoint."""
        return {partition.log.topic_partition: partition.high_watermark for partition in self.partitions()}

    def load(self) -> None:
        """Takes up the topics of the store with the logs that are there; creates what a crash left undone."""
        for created in self._store.image.topics.values():
            topic = self._make(created)
            self._publish(topic, [self._log_at_start(topic, index) for index in range(created.partitions)])

    def _log_at_start(self, topic: Topic, index: int) -> Log | None:
        dirs, name = self._log_dirs, TopicPartition(topic.name, index)
        if name not in dirs.logs and len(dirs.working) < len(dirs.dirs):
            # It lies in the dir that is offline, or may: a second one elsewhere would be found empty, or in its way.
            return None
        try:
            return self._log(topic, index)
        except OSError as error:
            logger.error("partition %s is offline until the next start, as it could not be made: %s", name, error)
            return None

    async def create(self, name: str, partitions: int, overrides: dict[str, str]) -> Topic:
        """Makes a new topic. Name, partitions and settings were found good before."""
        created = TopicCreated(name=name, topic_id=uuid4(), partitions=partitions, configs=dict(overrides))
        undo = TopicDeleted(name=name, topic_id=created.topic_id)
        topic = self._make(created)
        logs = await run_to_end(lambda: self._make_durable(topic, range(partitions), created, undo))
        self._publish(topic, logs)
        self._tell_listeners(None)
        logger.info("created topic %s with %d partitions", name, partitions)
        return topic

    async def add_partitions(self, topic: Topic, total: int) -> None:
        """Grows a topic to `total` partitions."""
        present = len(topic.partitions)
        if total <= present:
            raise ApiError(ErrorCode.invalid_partitions, f"topic {topic.name!r} has {present} partitions")
        added, undo = (PartitionsAdded(name=topic.name, partitions=count) for count in (total, present))
        logs = await run_to_end(lambda: self._make_durable(topic, range(present, total), added, undo))
        self._publish(topic, logs)
        self._tell_listeners(None)

    def _make_durable(self, topic: Topic, indexes: range, change: Change, undo: Change) -> list[Log | None]:
        """The logs of new partitions; None where the log dir failed. Without room for all there is none of them."""
        self._store.append(change)
        logs: list[Log | None] = []
        for index in indexes:
            try:
                logs.append(self._log(topic, index))
            except OSError as error:
                if is_passing(error):
                    self._delete_logs([TopicPartition(topic.name, made) for made in indexes], 0)
                    self._store.append(undo)
                    reason = f"partition {index} of topic {topic.name!r} cannot be made: {error.strerror}"
                    raise ApiError(ErrorCode.kafka_storage_error, reason) from error
                logs.append(None)
        return logs

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
        if await run_to_end(lambda: self._delete_logs(names, topic.config.file_delete_delay_ms)):
            self._store.out_of_sight(topic.topic_id)
        logger.info("deleted topic %s", topic.name)

    def _tell_listeners(self, deleted: str | None) -> None:
        for listener in self.listeners:
            listener(deleted)

    def _delete_logs(self, names: list[TopicPartition], delay_ms: int) -> bool:
        """Whether nothing is left under their names."""
        remove_from_ms = int(time.time() * 1000) + delay_ms
        out_of_sight = [self._log_dirs.delete(name, remove_from_ms=remove_from_ms) for name in names]
        return all(out_of_sight)

    def reconfigure_all(self) -> None:
        """The broker's own settings changed: topics that inherit from them follow."""
        for topic in self.by_name.values():
            self._reconfigure(topic)

    def _make(self, created: TopicCreated) -> Topic:
        overrides = dict(created.configs)
        return Topic(created.name, created.topic_id, overrides, TopicConfig.from_values(overrides, self._config()))

    def _log(self, topic: Topic, index: int) -> Log:
        log = self._log_dirs.create(
            TopicPartition(topic.name, index),
            config=topic.config,
            topic_id=topic.topic_id,
            now_ms=int(time.time() * 1000),
            producer_id_expiration_ms=self._config().producer_id_expiration_ms,
        )
        try:
            log.leader_epochs.begin(self._store.image.leader_epoch, log.log_end_offset)
        except OSError as error:
            self._log_dirs.notice(log, error)
            raise
        return log

    def _publish(self, topic: Topic, logs: list[Log | None]) -> None:
        for log in logs:
            epoch = self._store.image.leader_epoch
            if log is not None:
                log.config = topic.config
                epoch = max(log.latest_epoch, epoch)
                if log.is_closed:
                    # Its dir failed before it could be seen.
                    log = None
            topic.partitions.append(Partition(topic, len(topic.partitions), log, epoch))
        self.by_name[topic.name] = topic
        self.by_id[topic.id_bytes] = topic

    def _reconfigure(self, topic: Topic) -> None:
        topic.config = TopicConfig.from_values(topic.overrides, self._config())
