"""What a broker finds on its disks at the start: dirs, metadata and logs, made to agree with each other."""

import logging
import time
from collections.abc import Mapping
from pathlib import Path
from uuid import uuid4

from headwater.broker.services.journal import Journal
from headwater.cluster.changes import LeaderEpochRaised, LogDirsUsed, TopicCreated
from headwater.cluster.embedded import DamagedJournalError, EmbeddedStore
from headwater.config import BrokerConfig, ConfigError, TopicConfig
from headwater.log.checkpoints import CheckpointError
from headwater.log.filesystem import FileSystem
from headwater.log.log import Log
from headwater.log.log_dirs import LogDirError, LogDirs
from headwater.log.segment import CorruptSegmentError

logger = logging.getLogger(__name__)


class StartupError(Exception):
    """The broker cannot start; the message says why and what to do."""


def effective_config(static_config: BrokerConfig, dynamic: Mapping[str, Mapping[str, str]]) -> BrokerConfig:
    """The settings given at the start with the dynamic ones over them: by broker id as text, those of all under ''."""
    own = dynamic.get(str(static_config.node_id), {})
    return static_config.with_dynamic(cluster=dynamic.get("", {}), broker=own)


def _journal_lost(error: OSError) -> None:
    raise error


class Storage:
    """The opened data of a broker: `log_dirs` and the metadata `store`, and the config with its dynamic settings."""

    def __init__(self, static_config: BrokerConfig, fs: FileSystem | None = None) -> None:
        """Locks the data dirs, reads the metadata, opens every log: slow. StartupError when that cannot be.

        A dir that cannot be used is offline from the start, if there are others and the metadata is in one of them.
        """
        try:
            self.log_dirs = LogDirs.open(fs or FileSystem(), static_config.log_dirs, node_id=static_config.node_id)
            try:
                self.store = EmbeddedStore([Path(log_dir.path) for log_dir in self.log_dirs.working], FileSystem())
                self._check_journal()
                try:
                    self._open(static_config)
                except BaseException:
                    self.store.close()
                    raise
            except BaseException:
                self.log_dirs.abandon()
                raise
        except (LogDirError, DamagedJournalError, ConfigError, CheckpointError, CorruptSegmentError) as error:
            raise StartupError(str(error)) from error
        except OSError as error:
            raise StartupError(f"the data cannot be read: {error}; check log.dirs and its rights") from error

    def _check_journal(self) -> None:
        """A new journal beside one that cannot be read now would be the start of another history."""
        offline = [f"{log_dir.path}: {log_dir.failed}" for log_dir in self.log_dirs.dirs if log_dir.failed is not None]
        if offline and self.store.new:
            raise StartupError(
                f"the metadata of this broker is in none of the log dirs that can be used; these cannot:"
                f" {'; '.join(offline)}. Repair them, or take them out of log.dirs to begin without them"
            )

    def _open(self, static_config: BrokerConfig) -> None:
        image = self.store.open()
        self._check_dirs()
        self.config = effective_config(static_config, image.broker_configs)
        self.log_dirs.load(
            self._topic_config,
            now_ms=int(time.time() * 1000),
            producer_id_expiration_ms=self.config.producer_id_expiration_ms,
            threads_per_dir=self.config.num_recovery_threads_per_data_dir,
            deleted_ids=image.deleted_ids,
        )
        self._take_in_unknown_folders()
        self._raise_leader_epoch()
        if len(self.log_dirs.working) == len(self.log_dirs.dirs):
            # Else what is left of deleted topics in a dir that is offline would be taken in when it comes back.
            self.store.out_of_sight.update(image.deleted_ids)
            if self.store.is_long:
                Journal(self.store, _journal_lost).compact(self.log_dirs)

    def _topic_config(self, topic: str) -> TopicConfig:
        created = self.store.image.topics.get(topic)
        return TopicConfig.from_values(created.configs if created else {}, self.config)

    def _check_dirs(self) -> None:
        """A dir that is missing (an unmounted disk, a slip of the pen) must not make its partitions begin anew.

        One that is offline does not tell its id and may be any that is missing.
        """
        given = {log_dir.directory_id for log_dir in self.log_dirs.dirs if log_dir.directory_id}
        known = self.store.image.directory_ids
        missing = sorted(known - given)
        if len(missing) > sum(not log_dir.directory_id for log_dir in self.log_dirs.dirs):
            raise StartupError(
                f"log.dirs leaves out a dir of this broker (directory.id {', '.join(missing)} in its meta.properties):"
                f" put it back. To give up its partitions for good, remove the lines 'log-dirs-used' from"
                f" {self.store.path}."
            )
        if not given <= known:
            self.store.append(LogDirsUsed(directory_ids=tuple(sorted(given | known))))

    def _take_in_unknown_folders(self) -> None:
        """Partition folders that the metadata does not know are taken in as they are, which is how a folder that Apache
        Kafka wrote becomes ours."""
        found: dict[str, list[Log]] = {}
        for partition, log in self.log_dirs.logs.items():
            if partition.topic not in self.store.image.topics:
                found.setdefault(partition.topic, []).append(log)
        for topic, logs in sorted(found.items()):
            ids = {log.topic_id for log in logs if log.topic_id is not None}
            if len(ids) > 1:
                raise StartupError(
                    f"the partition folders of topic {topic} are of different topics ({ids}): move the wrong ones away"
                )
            partitions = max(log.topic_partition.partition for log in logs) + 1
            logger.warning("took in topic %s with %d partitions from its folders", topic, partitions)
            self.store.append(TopicCreated(name=topic, topic_id=ids.pop() if ids else uuid4(), partitions=partitions))

    def _raise_leader_epoch(self) -> None:
        """After an unclean stop clients may hold offsets that were lost: a new epoch lets them notice (KIP-320)."""
        logs = self.log_dirs.logs.values()
        if logs and not all(log_dir.was_clean for log_dir in self.log_dirs.dirs):
            newest = max(self.store.image.leader_epoch, *(log.latest_epoch for log in logs))
            self.store.append(LeaderEpochRaised(leader_epoch=newest + 1))
