"""The topic's view of the table: what its log and requests read, with the broker's defaults under it."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, Self, cast

from headwater.config.broker import BrokerConfig
from headwater.config.definitions import ConfigValue
from headwater.config.errors import ConfigError
from headwater.config.registry import topic_definition
from headwater.config.rules import check_not_above
from headwater.config.values import parse


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """All configs of one topic, checked; made by `from_values`.

    >>> TopicConfig.from_values({"retention.ms": "1000"}, BrokerConfig.from_values({})).retention_ms
    1000
    """

    segment_bytes: int
    segment_ms: int
    segment_jitter_ms: int
    segment_index_bytes: int
    index_interval_bytes: int
    preallocate: bool
    file_delete_delay_ms: int

    retention_ms: int
    retention_bytes: int
    cleanup_policy: frozenset[str]
    delete_retention_ms: int
    min_compaction_lag_ms: int
    max_compaction_lag_ms: int
    min_cleanable_dirty_ratio: float

    flush_messages: int
    flush_ms: int

    max_message_bytes: int
    message_timestamp_type: str
    message_timestamp_before_max_ms: int
    message_timestamp_after_max_ms: int
    compression_type: str
    compression_gzip_level: int
    compression_lz4_level: int
    compression_zstd_level: int

    min_insync_replicas: int
    unclean_leader_election_enable: bool
    leader_replication_throttled_replicas: tuple[str, ...]
    follower_replication_throttled_replicas: tuple[str, ...]

    @classmethod
    def from_values(cls, overrides: Mapping[str, str], broker: BrokerConfig) -> Self:
        """The config of a topic with these overrides on this broker; `ConfigError` for a wrong one."""
        values = effective_values(overrides, broker)
        chosen: dict[str, Any] = {field: values[name] for field, name in _FIELDS}
        chosen["cleanup_policy"] = frozenset(chosen["cleanup_policy"])
        if values["internal.segment.bytes"] is not None:
            chosen["segment_bytes"] = values["internal.segment.bytes"]
        return cls(**chosen)

    @property
    def compacts(self) -> bool:
        """Whether old records of a key give way to newer ones, so that every record needs a key."""
        return "compact" in self.cleanup_policy

    @property
    def deletes(self) -> bool:
        """Whether old segments are deleted by age and size."""
        return "delete" in self.cleanup_policy


_FIELDS: Final = tuple((field.name, field.name.replace("_", ".")) for field in fields(TopicConfig))


def effective_values(overrides: Mapping[str, str], broker: BrokerConfig) -> dict[str, ConfigValue]:
    """Every topic config by name, overrides over the broker's defaults, checked singly and together."""
    values = dict(broker.topic_defaults)
    for name, text in overrides.items():
        # Stored overrides come from JSON or the wire, where a missing value is null.
        if cast("str | None", text) is None:
            raise ConfigError(f"{name} has no value. Give one, or delete the override.")
        values[name] = parse(topic_definition(name), text)
    check_not_above(values, "min.compaction.lag.ms", "max.compaction.lag.ms")
    return values


def validate_topic_overrides(overrides: Mapping[str, str], broker: BrokerConfig | None = None) -> None:
    """Raise `ConfigError` unless a topic may have these overrides on this broker, or on one with defaults."""
    effective_values(overrides, broker if broker is not None else BrokerConfig.from_values({}))
