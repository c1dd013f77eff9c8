"""A consumer's settings have Kafka's names and defaults, and what is wrong with one is said."""

import pytest

from headwater.client.consumer.consumer import Consumer
from headwater.client.consumer.resets import EARLIEST, LATEST
from headwater.client.consumer.settings import consumer_settings
from headwater.config.errors import ConfigError


def test_defaults_are_those_of_kafka() -> None:
    found = consumer_settings({})
    assert (found.fetch_min_bytes, found.fetch_max_wait_ms, found.fetch_max_bytes) == (1, 500, 50 << 20)
    assert (found.max_partition_fetch_bytes, found.max_poll_records, found.check_crcs) == (1 << 20, 500, True)
    assert (found.session_timeout_ms, found.heartbeat_interval_ms, found.max_poll_interval_ms) == (45000, 3000, 300000)
    assert (found.enable_auto_commit, found.auto_commit_interval_ms, found.default_api_timeout_ms) == (
        True,
        5000,
        60000,
    )
    assert (found.auto_offset_reset, found.read_committed, found.group_protocol) == (LATEST, False, "classic")


def test_names_may_have_dots_and_values_may_be_text() -> None:
    found = consumer_settings(
        {"auto.offset.reset": "earliest", "max.poll.records": "7", "isolation_level": "read_committed"}
    )
    assert (found.auto_offset_reset, found.max_poll_records, found.read_committed) == (EARLIEST, 7, True)


def test_one_interceptor_needs_no_list() -> None:
    interceptor = object()
    assert consumer_settings({"interceptor_classes": interceptor}).interceptor_classes == (interceptor,)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"max_pol_records": 5}, "max.poll.records"),
        ({"max_poll_records": 0}, "at least 1"),
        ({"auto_offset_reset": "soonest"}, "earliest, latest, none or by_duration"),
        ({"auto_offset_reset": "by_duration:1 day"}, "P7D or PT1H30M"),
        ({"heartbeat_interval_ms": 45000}, "less than session.timeout.ms"),
        ({"isolation_level": "serializable"}, "one of read_committed, read_uncommitted"),
    ],
)
def test_a_wrong_setting_is_named_with_what_is_allowed(given: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        consumer_settings(given)


def test_without_a_broker_there_is_no_consumer() -> None:
    with pytest.raises(ConfigError, match="name a broker"):
        Consumer(topics=["orders"])
