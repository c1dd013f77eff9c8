"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs."""

from collections.abc import Mapping
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from .actions import (
    APPEND,
    BROKER_RESOURCE,
    DELETE,
    SET,
    SUBTRACT,
    TOPIC_RESOURCE,
    Topic,
    alter_incrementally,
    create_topic,
    describe_configs,
    eventually,
    produce,
    topic_configs,
    unique_name,
    wait_for_config,
)
from .batches import batch
from .wire import Wire

FROM_TOPIC, FROM_DYNAMIC_BROKER, FROM_DYNAMIC_DEFAULT, FROM_FILE, FROM_DEFAULT = 1, 2, 3, 4, 5
BOOLEAN, STRING, INT, SHORT, LONG, DOUBLE, LIST = range(1, 8)


@pytest.fixture
def topic(wire: Wire) -> Topic:
    return create_topic(wire, configs={"retention.ms": "1000000", "cleanup.policy": "compact,delete"})


@pytest.fixture
def node(wire: Wire) -> str:
    return str(wire.send("metadata", topics=[]).brokers[0].node_id)


def test_trap_describe_configs_lists_every_config_of_a_topic(wire: Wire, topic: Topic) -> None:
    configs = topic_configs(wire, topic.name)
    assert set(configs) >= {
        "cleanup.policy",
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.type",
        "compression.zstd.level",
        "delete.retention.ms",
        "file.delete.delay.ms",
        "flush.messages",
        "flush.ms",
        "index.interval.bytes",
        "max.compaction.lag.ms",
        "max.message.bytes",
        "message.timestamp.after.max.ms",
        "message.timestamp.before.max.ms",
        "message.timestamp.type",
        "min.cleanable.dirty.ratio",
        "min.compaction.lag.ms",
        "min.insync.replicas",
        "preallocate",
        "retention.bytes",
        "retention.ms",
        "segment.bytes",
        "segment.index.bytes",
        "segment.jitter.ms",
        "segment.ms",
        "unclean.leader.election.enable",
    }


def test_values_say_where_they_come_from(wire: Wire, topic: Topic) -> None:
    configs = topic_configs(wire, topic.name)
    own, default = configs["retention.ms"], configs["segment.bytes"]
    assert (own.value, own.config_source, own.read_only, own.is_sensitive) == (
        "1000000",
        FROM_TOPIC,
        False,
        False,
    )
    assert (default.value, default.config_source) == ("1073741824", FROM_DEFAULT)


def test_synonyms_are_listed_from_the_nearest_to_the_default(wire: Wire, topic: Topic) -> None:
    synonyms = topic_configs(wire, topic.name, "max.message.bytes")["max.message.bytes"].synonyms
    assert [(one.name, one.value, one.source) for one in synonyms] == [("message.max.bytes", "1048588", FROM_DEFAULT)]
    synonyms = topic_configs(wire, topic.name, "cleanup.policy")["cleanup.policy"].synonyms
    assert [(one.name, one.value, one.source) for one in synonyms] == [
        ("cleanup.policy", "compact,delete", FROM_TOPIC),
        ("log.cleanup.policy", "delete", FROM_DEFAULT),
    ]


@pytest.mark.parametrize(
    ("config", "type_id", "value"),
    [
        ("cleanup.policy", LIST, "compact,delete"),
        ("compression.type", STRING, "producer"),
        ("flush.messages", LONG, "9223372036854775807"),
        ("index.interval.bytes", INT, "4096"),
        ("min.cleanable.dirty.ratio", DOUBLE, "0.5"),
        ("preallocate", BOOLEAN, "false"),
        ("message.timestamp.type", STRING, "CreateTime"),
        ("max.message.bytes", INT, "1048588"),
    ],
)
def test_types_values_and_documentation(wire: Wire, topic: Topic, config: str, type_id: int, value: str) -> None:
    entry = topic_configs(wire, topic.name, config)[config]
    assert (entry.config_type, entry.value) == (type_id, value)
    assert len(entry.documentation) > 20


def test_only_the_configs_asked_for_are_described(wire: Wire, topic: Topic) -> None:
    assert set(topic_configs(wire, topic.name, "retention.ms", "preallocate")) == {
        "retention.ms",
        "preallocate",
    }


def test_an_empty_list_of_configs_asks_for_all(wire: Wire, topic: Topic) -> None:
    resource = {"resource_type": TOPIC_RESOURCE, "resource_name": topic.name, "configuration_keys": []}
    (result,) = wire.send("describe_configs", resources=[resource]).results
    assert {entry.name for entry in result.configs} == set(topic_configs(wire, topic.name))


def test_synonyms_and_documentation_come_only_when_asked_for(wire: Wire, topic: Topic) -> None:
    resource = {
        "resource_type": TOPIC_RESOURCE,
        "resource_name": topic.name,
        "configuration_keys": ["retention.ms"],
    }
    (entry,) = wire.send("describe_configs", resources=[resource]).results[0].configs
    assert (entry.synonyms, entry.documentation) == ((), None)


def describe_error(wire: Wire, resource_type: int, name: str) -> ErrorCode:
    resource = {"resource_type": resource_type, "resource_name": name, "configuration_keys": None}
    result = wire.send("describe_configs", resources=[resource]).results[0]
    assert result.configs == ()
    assert (result.resource_type, result.resource_name) == (resource_type, name)
    error: ErrorCode = result.error_code
    return error


def test_configs_of_what_does_not_exist(wire: Wire) -> None:
    assert describe_error(wire, TOPIC_RESOURCE, unique_name("absent")) is ErrorCode.unknown_topic_or_partition
    assert describe_error(wire, TOPIC_RESOURCE, "bad name") is ErrorCode.invalid_topic_exception
    assert describe_error(wire, BROKER_RESOURCE, "7654") is ErrorCode.invalid_request
    assert describe_error(wire, BROKER_RESOURCE, "one") is ErrorCode.invalid_request
    assert describe_error(wire, 77, "x") is ErrorCode.invalid_request


def test_the_brokers_configs(wire: Wire, node: str) -> None:
    configs = describe_configs(wire, BROKER_RESOURCE, node)
    partitions = configs["num.partitions"]
    assert (partitions.value, partitions.config_source, partitions.read_only) == ("2", FROM_FILE, True)
    assert [(one.name, one.value, one.source) for one in partitions.synonyms] == [
        ("num.partitions", "2", FROM_FILE),
        ("num.partitions", "1", FROM_DEFAULT),
    ]
    largest = configs["message.max.bytes"]
    assert (largest.value, largest.config_source, largest.read_only) == ("1048588", FROM_DEFAULT, False)
    assert configs["log.dirs"].value
    assert len(configs) > 50


def test_several_resources_in_one_request(wire: Wire, topic: Topic, node: str) -> None:
    resources = [
        {
            "resource_type": TOPIC_RESOURCE,
            "resource_name": topic.name,
            "configuration_keys": ["retention.ms"],
        },
        {"resource_type": BROKER_RESOURCE, "resource_name": node, "configuration_keys": ["num.partitions"]},
    ]
    results = wire.send("describe_configs", resources=resources).results
    got = {(result.resource_type, result.resource_name): len(result.configs) for result in results}
    assert got == {(TOPIC_RESOURCE, topic.name): 1, (BROKER_RESOURCE, node): 1}


def test_set_and_delete(wire: Wire, topic: Topic) -> None:
    answer = alter_incrementally(wire, topic.name, ("retention.ms", SET, "5000000"), ("flush.ms", SET, "777"))
    assert (answer.error_code, answer.error_message) == (ErrorCode.none, None)
    assert (answer.resource_type, answer.resource_name) == (TOPIC_RESOURCE, topic.name)
    wait_for_config(wire, topic.name, "retention.ms", "5000000")
    wait_for_config(wire, topic.name, "flush.ms", "777")
    assert alter_incrementally(wire, topic.name, ("flush.ms", DELETE, None)).error_code is ErrorCode.none
    wait_for_config(wire, topic.name, "flush.ms", "9223372036854775807")
    entry = topic_configs(wire, topic.name, "flush.ms", "retention.ms")
    assert entry["flush.ms"].config_source == FROM_DEFAULT
    assert entry["retention.ms"].value == "5000000", "other configs stay"


def test_trap_append_and_subtract_change_a_list(wire: Wire) -> None:
    topic = create_topic(wire)
    for operation, value, result in [
        (APPEND, "compact", "delete,compact"),
        (SUBTRACT, "delete", "compact"),
        (APPEND, "delete", "compact,delete"),
        (SUBTRACT, "compact", "delete"),
    ]:
        answer = alter_incrementally(wire, topic.name, ("cleanup.policy", operation, value))
        assert answer.error_code is ErrorCode.none, answer
        wait_for_config(wire, topic.name, "cleanup.policy", result)


def test_trap_appending_what_is_there_and_subtracting_what_is_not_changes_nothing(wire: Wire) -> None:
    topic = create_topic(wire)
    assert alter_incrementally(wire, topic.name, ("cleanup.policy", APPEND, "delete")).error_code is ErrorCode.none
    assert alter_incrementally(wire, topic.name, ("cleanup.policy", SUBTRACT, "compact")).error_code is ErrorCode.none
    assert topic_configs(wire, topic.name, "cleanup.policy")["cleanup.policy"].value == "delete"


@pytest.mark.parametrize("operation", [APPEND, SUBTRACT])
def test_trap_append_and_subtract_are_refused_where_there_is_no_list(wire: Wire, topic: Topic, operation: int) -> None:
    answer = alter_incrementally(wire, topic.name, ("retention.ms", operation, "5"))
    assert answer.error_code is ErrorCode.invalid_config
    assert answer.error_message
    assert topic_configs(wire, topic.name, "retention.ms")["retention.ms"].value == "1000000"


@pytest.mark.parametrize("operation", [SET, APPEND, SUBTRACT])
def test_a_null_value_is_an_invalid_request(wire: Wire, topic: Topic, operation: int) -> None:
    answer = alter_incrementally(wire, topic.name, ("cleanup.policy", operation, None))
    assert answer.error_code is ErrorCode.invalid_request


def test_the_same_config_twice_is_an_invalid_request(wire: Wire, topic: Topic) -> None:
    answer = alter_incrementally(wire, topic.name, ("flush.ms", SET, "1"), ("flush.ms", SET, "2"))
    assert answer.error_code is ErrorCode.invalid_request


def test_an_unknown_operation_is_refused(wire: Wire, topic: Topic) -> None:
    """With whatever error: Apache blames itself."""
    assert alter_incrementally(wire, topic.name, ("flush.ms", 9, "1")).error_code is not ErrorCode.none


@pytest.mark.parametrize(
    ("config", "value"), [("no.such.config", "1"), ("retention.ms", "soon"), ("cleanup.policy", "x")]
)
def test_a_bad_value_is_refused_and_nothing_of_the_resource_is_changed(
    wire: Wire, topic: Topic, config: str, value: str
) -> None:
    answer = alter_incrementally(wire, topic.name, ("flush.ms", SET, "99"), (config, SET, value))
    assert answer.error_code is ErrorCode.invalid_config
    assert config in answer.error_message
    assert topic_configs(wire, topic.name, "flush.ms")["flush.ms"].config_source == FROM_DEFAULT


def test_a_change_can_be_tried_without_doing_it(wire: Wire, topic: Topic) -> None:
    answer = alter_incrementally(wire, topic.name, ("retention.ms", SET, "1"), validate_only=True)
    assert answer.error_code is ErrorCode.none
    answer = alter_incrementally(wire, topic.name, ("retention.ms", SET, "soon"), validate_only=True)
    assert answer.error_code is ErrorCode.invalid_config
    assert topic_configs(wire, topic.name, "retention.ms")["retention.ms"].value == "1000000"


def test_configs_of_an_unknown_topic_cannot_be_changed(wire: Wire) -> None:
    answer = alter_incrementally(wire, unique_name("absent"), ("flush.ms", SET, "1"))
    assert answer.error_code is ErrorCode.unknown_topic_or_partition


def test_deleting_a_config_that_is_not_set_is_no_error(wire: Wire, topic: Topic) -> None:
    assert alter_incrementally(wire, topic.name, ("flush.ms", DELETE, None)).error_code is ErrorCode.none


def test_a_change_takes_effect_at_once(wire: Wire, topic: Topic) -> None:
    assert produce(wire, topic, batch(bytes(100))).error_code is ErrorCode.invalid_record, "it compacts"
    alter_incrementally(wire, topic.name, ("cleanup.policy", SET, "delete"), ("max.message.bytes", SET, "150"))
    eventually(lambda: produce(wire, topic, batch(bytes(10))).error_code is ErrorCode.none, "the new policy")
    assert produce(wire, topic, batch(bytes(200))).error_code is ErrorCode.message_too_large


def alter(wire: Wire, name: str, configs: Mapping[str, str | None], *, validate_only: bool = False) -> Any:
    entries = [{"name": key, "value": value} for key, value in configs.items()]
    resource = {"resource_type": TOPIC_RESOURCE, "resource_name": name, "configs": entries}
    return wire.send("alter_configs", resources=[resource], validate_only=validate_only).responses[0]


def test_alter_configs_replaces_all_that_was_set(wire: Wire, topic: Topic) -> None:
    answer = alter(wire, topic.name, {"flush.ms": "777"})
    assert (answer.error_code, answer.resource_name) == (ErrorCode.none, topic.name)
    wait_for_config(wire, topic.name, "flush.ms", "777")
    configs = topic_configs(wire, topic.name)
    assert {name for name, entry in configs.items() if entry.config_source == FROM_TOPIC} == {"flush.ms"}


def test_alter_configs_can_be_tried_and_refuses_bad_values(wire: Wire, topic: Topic) -> None:
    assert alter(wire, topic.name, {"flush.ms": "777"}, validate_only=True).error_code is ErrorCode.none
    assert alter(wire, topic.name, {"flush.ms": "x"}).error_code is ErrorCode.invalid_config
    assert alter(wire, topic.name, {"no.such.config": "x"}).error_code is ErrorCode.invalid_config
    assert alter(wire, unique_name("absent"), {"flush.ms": "1"}).error_code is ErrorCode.unknown_topic_or_partition
    assert topic_configs(wire, topic.name, "retention.ms")["retention.ms"].value == "1000000"


def test_a_dynamic_config_of_the_broker_is_changed_and_deleted(wire: Wire, node: str) -> None:
    topic = create_topic(wire)
    set_ = alter_incrementally(wire, node, ("log.retention.ms", SET, "123456789"), resource_type=BROKER_RESOURCE)
    assert set_.error_code is ErrorCode.none, set_
    wait_for_config(wire, node, "log.retention.ms", "123456789", resource_type=BROKER_RESOURCE)
    entry = describe_configs(wire, BROKER_RESOURCE, node, "log.retention.ms")["log.retention.ms"]
    assert (entry.config_source, entry.read_only) == (FROM_DYNAMIC_BROKER, False)
    assert (entry.synonyms[0].name, entry.synonyms[0].source) == ("log.retention.ms", FROM_DYNAMIC_BROKER)
    of_topic = topic_configs(wire, topic.name, "retention.ms")["retention.ms"]
    assert (of_topic.value, of_topic.config_source) == ("123456789", FROM_DYNAMIC_BROKER)
    gone = alter_incrementally(wire, node, ("log.retention.ms", DELETE, None), resource_type=BROKER_RESOURCE)
    assert gone.error_code is ErrorCode.none
    eventually(
        lambda: (
            describe_configs(wire, BROKER_RESOURCE, node, "log.retention.ms")["log.retention.ms"].config_source
            == FROM_DEFAULT
        ),
        "the deletion",
    )


def test_a_default_for_all_brokers_stands_behind_the_brokers_own(wire: Wire, node: str) -> None:
    alter_incrementally(wire, "", ("log.flush.interval.ms", SET, "5555555"), resource_type=BROKER_RESOURCE)
    wait_for_config(wire, node, "log.flush.interval.ms", "5555555", resource_type=BROKER_RESOURCE)
    entry = describe_configs(wire, BROKER_RESOURCE, node, "log.flush.interval.ms")["log.flush.interval.ms"]
    assert entry.config_source == FROM_DYNAMIC_DEFAULT
    of_cluster = describe_configs(wire, BROKER_RESOURCE, "")
    assert of_cluster["log.flush.interval.ms"].value == "5555555"
    alter_incrementally(wire, "", ("log.flush.interval.ms", DELETE, None), resource_type=BROKER_RESOURCE)
    eventually(lambda: "log.flush.interval.ms" not in describe_configs(wire, BROKER_RESOURCE, ""), "the deletion")


def test_a_read_only_config_of_the_broker_cannot_be_changed(wire: Wire, node: str) -> None:
    answer = alter_incrementally(wire, node, ("log.dirs", SET, "/elsewhere"), resource_type=BROKER_RESOURCE)
    assert answer.error_code is ErrorCode.invalid_request
    assert "log.dirs" in answer.error_message


def test_configs_of_another_broker_cannot_be_changed(wire: Wire) -> None:
    answer = alter_incrementally(wire, "7654", ("log.retention.ms", SET, "1"), resource_type=BROKER_RESOURCE)
    assert answer.error_code is not ErrorCode.none
