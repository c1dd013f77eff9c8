"""Changing configs while the broker runs, by Kafka's rules."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.config import (
    AlterOperation,
    BrokerConfig,
    ConfigChange,
    ConfigError,
    ConfigRequestError,
    UnknownConfigError,
    alter_broker,
    alter_cluster_default,
    alter_topic,
    replace_broker,
    replace_cluster_default,
    replace_topic,
)

SET, DELETE, APPEND, SUBTRACT = AlterOperation
DEFAULTS = BrokerConfig.from_values({})


def change(operation: AlterOperation, name: str, value: str | None = None) -> ConfigChange:
    return ConfigChange(name=name, operation=operation, value=value)


@pytest.mark.parametrize(
    ("before", "operation", "value", "after"),
    [
        (None, APPEND, "compact", "delete,compact"),
        ("compact", APPEND, "delete", "compact,delete"),
        ("compact", APPEND, "compact", "compact"),
        ("", APPEND, "compact", "compact"),
        ("compact,delete", SUBTRACT, "delete", "compact"),
        ("compact", SUBTRACT, "delete", "compact"),
        (None, SUBTRACT, "delete", ""),
        ("compact,delete", SUBTRACT, "compact,delete", ""),
    ],
)
def test_lists_grow_and_shrink_from_the_value_in_force(
    before: str | None, operation: AlterOperation, value: str, after: str
) -> None:
    overrides = {} if before is None else {"cleanup.policy": before}
    changed = alter_topic(overrides, [change(operation, "cleanup.policy", value)], DEFAULTS)
    assert changed == {"cleanup.policy": after}


def test_an_append_starts_from_what_the_broker_says() -> None:
    broker = BrokerConfig.from_values({"log.cleanup.policy": "compact"})
    changed = alter_topic({}, [change(APPEND, "cleanup.policy", "delete")], broker)
    assert changed == {"cleanup.policy": "compact,delete"}


def test_set_and_delete_leave_the_rest_and_the_old_mapping_alone() -> None:
    overrides = {"retention.ms": "1", "segment.ms": "2"}
    changed = alter_topic(overrides, [change(SET, "retention.ms", " 5 "), change(DELETE, "segment.ms")], DEFAULTS)
    assert changed == {"retention.ms": "5"}
    assert overrides == {"retention.ms": "1", "segment.ms": "2"}


def test_anything_may_be_deleted_even_a_name_that_nobody_knows() -> None:
    assert alter_topic({"old.name": "1"}, [change(DELETE, "old.name")], DEFAULTS) == {}
    assert alter_topic({}, [change(DELETE, "no.such.name")], DEFAULTS) == {}


@pytest.mark.parametrize(
    ("wrong", "error", "words"),
    [
        (change(APPEND, "retention.ms", "1"), ConfigError, "APPEND needs a list, and retention.ms is none"),
        (change(SUBTRACT, "retention.ms", "1"), ConfigError, "SUBTRACT needs a list"),
        (change(SET, "retention.ms", "-5"), ConfigError, "at least -1"),
        (change(APPEND, "cleanup.policy", "burn"), ConfigError, "a list of compact, delete"),
        (change(SET, "retention.m", "1"), UnknownConfigError, "retention.ms"),
        (change(SET, "retention.ms"), ConfigRequestError, "SET needs one"),
        (change(APPEND, "cleanup.policy"), ConfigRequestError, "APPEND needs one"),
    ],
)
def test_wrong_changes_of_a_topic_are_refused(wrong: ConfigChange, error: type[ConfigError], words: str) -> None:
    with pytest.raises(error) as refusal:
        alter_topic({}, [wrong], DEFAULTS)
    assert words in str(refusal.value)


def test_the_whole_outcome_is_judged() -> None:
    with pytest.raises(ConfigError, match="must not be above"):
        alter_topic({"max.compaction.lag.ms": "1"}, [change(SET, "min.compaction.lag.ms", "2")], DEFAULTS)


def test_one_request_names_a_config_once() -> None:
    with pytest.raises(ConfigRequestError, match=r"retention\.ms is named twice"):
        alter_topic({}, [change(SET, "retention.ms", "1"), change(DELETE, "retention.ms")], DEFAULTS)


def test_replacing_drops_what_is_not_named() -> None:
    assert replace_topic({"segment.ms": "5"}, DEFAULTS) == {"segment.ms": "5"}
    with pytest.raises(ConfigRequestError):
        replace_topic({"segment.ms": None}, DEFAULTS)
    broker = DEFAULTS.with_dynamic(cluster={"max.connections": "1"}, broker={"max.connections": "2"})
    assert replace_broker(broker, {"message.max.bytes": "3"}).dynamic_values == {"message.max.bytes": "3"}
    replaced = replace_cluster_default(broker, {})
    assert (replaced.cluster_values, replaced.max_connections) == ({}, 2)


def test_a_broker_changes_while_it_runs() -> None:
    broker = alter_broker(DEFAULTS, [change(SET, "max.connections", "5")])
    assert broker.max_connections == 5
    broker = alter_cluster_default(broker, [change(SET, "max.connections", "6"), change(SET, "log.retention.ms", "9")])
    assert broker.max_connections == 5
    assert broker["log.retention.ms"] == 9
    broker = alter_broker(broker, [change(DELETE, "max.connections")])
    assert broker.max_connections == 6


def test_lists_of_a_broker_grow_from_their_default() -> None:
    broker = alter_cluster_default(DEFAULTS, [change(APPEND, "log.cleanup.policy", "compact")])
    assert broker.cluster_values == {"log.cleanup.policy": "delete,compact"}


def test_what_needs_a_restart_or_one_broker_is_refused() -> None:
    with pytest.raises(ConfigRequestError, match=r"num\.partitions cannot be changed while the broker runs"):
        alter_broker(DEFAULTS, [change(SET, "num.partitions", "3")])
    with pytest.raises(ConfigRequestError, match="cannot be set for all brokers at once"):
        alter_cluster_default(DEFAULTS, [change(SET, "listeners", "PLAINTEXT://:1")])
    assert alter_broker(DEFAULTS, [change(DELETE, "num.partitions")]).num_partitions == 1


def test_a_combination_that_cannot_work_is_refused_at_run_time_too() -> None:
    with pytest.raises(ConfigError, match="or -1 to keep records for ever"):
        alter_broker(DEFAULTS, [change(SET, "log.retention.ms", "0")])


@given(
    st.lists(
        st.tuples(st.sampled_from([APPEND, SUBTRACT]), st.sampled_from(["compact", "delete", "compact,delete"])),
        max_size=8,
    )
)
def test_any_row_of_appends_and_subtracts_keeps_a_list_without_duplicates(
    steps: list[tuple[AlterOperation, str]],
) -> None:
    overrides: dict[str, str] = {}
    expected = {"delete"}
    for operation, value in steps:
        overrides = alter_topic(overrides, [change(operation, "cleanup.policy", value)], DEFAULTS)
        given_items = set(value.split(","))
        expected = expected | given_items if operation is APPEND else expected - given_items
        items = [item for item in overrides["cleanup.policy"].split(",") if item]
        assert len(items) == len(set(items))
        assert set(items) == expected
