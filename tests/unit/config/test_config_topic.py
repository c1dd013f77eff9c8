"""A topic's config: its overrides, over what its broker says, over the defaults."""

import dataclasses

import pytest

from headwater.config import BrokerConfig, ConfigError, TopicConfig, validate_topic_overrides

DEFAULTS = BrokerConfig.from_values({})
DAY_MS = 24 * 3_600_000


def test_a_topic_without_overrides_has_our_defaults() -> None:
    topic = TopicConfig.from_values({}, DEFAULTS)
    assert topic.retention_ms == 3 * DAY_MS
    assert topic.segment_bytes == 2**30
    assert topic.segment_ms == 7 * DAY_MS
    assert topic.index_interval_bytes == 4096
    assert topic.cleanup_policy == {"delete"}
    assert topic.flush_ms == topic.flush_messages == 2**63 - 1
    assert topic.compression_type == "producer"
    assert topic.max_message_bytes == 1_048_588
    assert (topic.compacts, topic.deletes) == (False, True)


@pytest.mark.parametrize(
    ("broker", "retention_ms"),
    [
        ({"log.retention.hours": 1}, 3_600_000),
        ({"log.retention.hours": 1, "log.retention.minutes": 2}, 120_000),
        ({"log.retention.hours": 1, "log.retention.minutes": 2, "log.retention.ms": 3}, 3),
        ({"log.retention.hours": -1}, -1),
        ({"log.retention.minutes": -1}, -1),
    ],
)
def test_the_finest_retention_that_is_set_decides(broker: dict[str, int], retention_ms: int) -> None:
    assert TopicConfig.from_values({}, BrokerConfig.from_values(broker)).retention_ms == retention_ms


def test_broker_configs_reach_the_topic_under_its_own_names() -> None:
    broker = BrokerConfig.from_values(
        {
            "message.max.bytes": 7,
            "log.roll.hours": 2,
            "log.roll.jitter.hours": 1,
            "log.flush.scheduler.interval.ms": 9,
            "log.cleanup.policy": "compact,delete",
            "log.cleaner.min.cleanable.ratio": 0.25,
            "log.message.timestamp.type": "LogAppendTime",
            "log.index.size.max.bytes": 1000,
        }
    )
    topic = TopicConfig.from_values({}, broker)
    assert topic.max_message_bytes == 7
    assert topic.segment_ms == 2 * 3_600_000
    assert topic.segment_jitter_ms == 3_600_000
    assert topic.flush_ms == 9
    assert topic.cleanup_policy == {"compact", "delete"}
    assert topic.min_cleanable_dirty_ratio == 0.25
    assert topic.message_timestamp_type == "LogAppendTime"
    assert topic.segment_index_bytes == 1000


def test_overrides_win_over_the_broker() -> None:
    broker = BrokerConfig.from_values({"log.retention.ms": 5, "min.insync.replicas": 2})
    topic = TopicConfig.from_values({"retention.ms": "6"}, broker)
    assert (topic.retention_ms, topic.min_insync_replicas) == (6, 2)


def test_run_time_changes_of_the_broker_reach_its_topics() -> None:
    broker = DEFAULTS.with_dynamic(cluster={"log.retention.ms": "5"}, broker={"message.max.bytes": "6"})
    topic = TopicConfig.from_values({}, broker)
    assert (topic.retention_ms, topic.max_message_bytes) == (5, 6)


def test_a_topic_config_is_a_value() -> None:
    topic = TopicConfig.from_values({}, DEFAULTS)
    assert topic == TopicConfig.from_values({"segment.bytes": str(2**30)}, DEFAULTS)
    assert dataclasses.replace(topic, segment_bytes=100).segment_bytes == 100
    with pytest.raises(dataclasses.FrozenInstanceError):
        topic.segment_bytes = 1  # type: ignore[misc]


def test_tests_may_ask_for_tiny_segments() -> None:
    assert TopicConfig.from_values({"internal.segment.bytes": "14"}, DEFAULTS).segment_bytes == 14


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"retention": "1"}, "retention is not a known topic config. Did you mean"),
        ({"log.retention.ms": "1"}, "Did you mean retention.ms"),
        ({"segment.bytes": "1"}, "at least 1048576"),
        (
            {"min.compaction.lag.ms": "2", "max.compaction.lag.ms": "1"},
            "must not be above max.compaction.lag.ms",
        ),
        ({"remote.storage.enable": "true"}, "no remote storage"),
        ({"message.timestamp.difference.max.ms": "1"}, "message.timestamp.before.max.ms"),
    ],
)
def test_wrong_overrides_are_refused(overrides: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        validate_topic_overrides(overrides)
    assert words in str(refusal.value)


def test_overrides_are_judged_together_with_the_brokers_values() -> None:
    broker = BrokerConfig.from_values({"log.cleaner.max.compaction.lag.ms": 10})
    validate_topic_overrides({"min.compaction.lag.ms": "20"})
    with pytest.raises(ConfigError, match="must not be above"):
        validate_topic_overrides({"min.compaction.lag.ms": "20"}, broker)


def test_a_missing_value_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"retention\.ms has no value"):
        validate_topic_overrides({"retention.ms": None})  # type: ignore[dict-item]
