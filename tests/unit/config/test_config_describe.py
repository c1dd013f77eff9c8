"""DescribeConfigs: every value with where it comes from and what it stands over."""

from headwater.config import (
    BrokerConfig,
    ConfigSource,
    ConfigSynonym,
    ConfigType,
    describe_broker,
    describe_cluster_default,
    describe_topic,
)

BROKER = BrokerConfig.from_values(
    {"log.retention.hours": 100, "max.connections": 9, "ssl.key.password": "hunter2", "super.users": "User:a"}
).with_dynamic(cluster={"max.connections": "8", "message.max.bytes": "100000"}, broker={"max.connections": "7"})


def synonym(name: str, value: str | None, source: ConfigSource) -> ConfigSynonym:
    return ConfigSynonym(name=name, value=value, source=source)


def test_a_topic_override_stands_over_the_brokers_values() -> None:
    entry = {entry.name: entry for entry in describe_topic({"max.message.bytes": " 5"}, BROKER)}["max.message.bytes"]
    assert (entry.value, entry.source, entry.type) == ("5", ConfigSource.TOPIC, ConfigType.INT)
    assert (entry.read_only, entry.sensitive) == (False, False)
    assert entry.synonyms == (
        synonym("max.message.bytes", "5", ConfigSource.TOPIC),
        synonym("message.max.bytes", "100000", ConfigSource.DYNAMIC_DEFAULT_BROKER),
        synonym("message.max.bytes", "1048588", ConfigSource.DEFAULT),
    )
    assert entry.doc.startswith("Largest record batch")


def test_a_topic_value_from_a_second_synonym_is_listed_as_kafka_lists_it() -> None:
    """Kafka shows no synonym when the first one, here log.retention.ms, is unset; the value counts all the same."""
    entry = describe_topic({}, BROKER, {"retention.ms"})[0]
    assert (entry.value, entry.source, entry.synonyms) == ("360000000", ConfigSource.DEFAULT, ())


def test_a_topic_value_without_anything_behind_it_is_a_default() -> None:
    entry = describe_topic({}, BROKER, {"leader.replication.throttled.replicas"})[0]
    assert (entry.value, entry.source, entry.synonyms) == ("", ConfigSource.DEFAULT, ())


def test_only_asked_names_are_described_and_unknown_ones_left_out() -> None:
    names = [entry.name for entry in describe_topic({}, BROKER, ["segment.ms", "cleanup.policy", "nonsense"])]
    assert names == ["cleanup.policy", "segment.ms"]


def test_internal_configs_show_only_when_set() -> None:
    assert not describe_topic({}, BROKER, ["internal.segment.bytes"])
    assert describe_topic({"internal.segment.bytes": "14"}, BROKER, ["internal.segment.bytes"])[0].value == "14"
    names = {entry.name for entry in describe_broker(BROKER)}
    assert "super.users" in names
    assert "allow.everyone.if.no.acl.found" not in names


def test_a_broker_value_lists_every_layer() -> None:
    entry = describe_broker(BROKER, ["max.connections"])[0]
    assert (entry.value, entry.source, entry.read_only) == ("7", ConfigSource.DYNAMIC_BROKER, False)
    assert entry.synonyms == (
        synonym("max.connections", "7", ConfigSource.DYNAMIC_BROKER),
        synonym("max.connections", "8", ConfigSource.DYNAMIC_DEFAULT_BROKER),
        synonym("max.connections", "9", ConfigSource.STATIC_BROKER),
        synonym("max.connections", "2147483647", ConfigSource.DEFAULT),
    )


def test_a_broker_value_under_another_name_does_not_pass_for_this_one() -> None:
    entry = describe_broker(BROKER, ["log.retention.ms"])[0]
    assert (entry.value, entry.source, entry.synonyms) == (None, ConfigSource.DEFAULT, ())


def test_what_needs_a_restart_is_read_only() -> None:
    entry = describe_broker(BROKER, ["num.partitions"])[0]
    assert (entry.value, entry.source, entry.read_only) == ("1", ConfigSource.DEFAULT, True)


def test_secrets_have_no_value_anywhere() -> None:
    entry = describe_broker(BROKER, ["ssl.key.password"])[0]
    assert (entry.value, entry.sensitive, entry.source) == (None, True, ConfigSource.STATIC_BROKER)
    assert entry.synonyms == (synonym("ssl.key.password", None, ConfigSource.STATIC_BROKER),)
    assert "hunter2" not in repr(describe_broker(BROKER))


def test_the_cluster_default_holds_only_what_was_set_there() -> None:
    entries = describe_cluster_default(BROKER.cluster_values)
    assert [(entry.name, entry.value, entry.source) for entry in entries] == [
        ("max.connections", "8", ConfigSource.DYNAMIC_DEFAULT_BROKER),
        ("message.max.bytes", "100000", ConfigSource.DYNAMIC_DEFAULT_BROKER),
    ]
