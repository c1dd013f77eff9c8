"""A partition as the broker serves it: its log, its leader epoch, and who waits for it."""

import itertools
import time
from typing import TYPE_CHECKING, Final, NoReturn, cast
from uuid import UUID

from headwater.broker.services.append_rules import AppendRules
from headwater.cluster.image import INTERNAL_TOPICS
from headwater.config import TopicConfig
from headwater.log.log import Log
from headwater.log.log_types import AppendInfo
from headwater.protocol.errors import ApiError, ErrorCode
from headwater.protocol.records import parse_header

if TYPE_CHECKING:
    from headwater.broker.services.purgatory import Waiter


class OfflineLog:
    """In the place of a log whose dir is offline: whoever wants anything of it hears KAFKA_STORAGE_ERROR.

    So those who serve partitions need not ask first, and nothing is slower while all is well.
    """

    def __init__(self, partition: str) -> None:
        self._partition = partition

    def __getattr__(self, name: str) -> NoReturn:
        raise ApiError(ErrorCode.kafka_storage_error, f"the log dir of {self._partition} is offline")


class Partition:
    """One partition that this broker leads. It is the only replica, so what is written is committed.

    Without a log it is offline: nobody leads it until the broker finds its log dir in order at a start.
    """

    __slots__ = ("flushed_s", "index", "is_offline", "leader_epoch", "log", "topic", "waiters")

    def __init__(self, topic: "Topic", index: int, log: Log | None, leader_epoch: int) -> None:
        self.topic = topic
        self.index = index
        self.leader_epoch = leader_epoch
        self.flushed_s = time.monotonic()
        self.waiters: set[Waiter] = set()
        self.is_offline = False
        if log is None:
            self.go_offline()
        else:
            self.log = log

    def go_offline(self) -> None:
        """Its log dir failed."""
        self.is_offline = True
        self.log = cast(Log, OfflineLog(f"{self.topic.name}-{self.index}"))

    @property
    def high_watermark(self) -> int:
        """The offset up to which records are committed."""
        return self.log.log_end_offset

    def readable_up_to(self, isolation_level: int) -> int:
        """The offset before which a consumer may read: the last stable one for read_committed (1)."""
        return self.log.last_stable_offset if isolation_level == 1 else self.log.log_end_offset

    def append(self, batch: bytearray, *, now_ms: int) -> AppendInfo:
        """Appends a batch of the broker's own making: a coordinator's records, or a marker."""
        header = parse_header(batch, 0, len(batch))
        return self.log.append_as_leader(
            memoryview(batch),
            0,
            len(batch),
            [header],
            leader_epoch=self.leader_epoch,
            now_ms=now_ms,
            verify_producer=False,
        )


_serials: Final = itertools.count(1)


class Topic:
    """A topic and its partitions, by index."""

    __slots__ = ("_config", "append_rules", "id_bytes", "name", "overrides", "partitions", "serial", "topic_id")

    def __init__(self, name: str, topic_id: UUID, overrides: dict[str, str], config: TopicConfig) -> None:
        self.name = name
        self.serial = next(_serials)
        """Higher than that of every topic that came before it."""
        self.topic_id = topic_id
        self.id_bytes = topic_id.bytes
        self.overrides = overrides
        self.partitions: list[Partition] = []
        self.config = config

    @property
    def config(self) -> TopicConfig:
        """The settings in force; replaced as a whole, here and in the logs."""
        return self._config

    @config.setter
    def config(self, config: TopicConfig) -> None:
        self._config = config
        self.append_rules = AppendRules(config, internal=self.name in INTERNAL_TOPICS)
        for partition in self.partitions:
            partition.log.config = config
