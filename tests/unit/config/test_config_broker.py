"""What a broker's config promises: checked, immutable, and plain about mistakes."""

import pytest

from headwater.config import BROKER, TOPIC, BrokerConfig, ConfigError, UnknownConfigError, nearest


def test_defaults_that_are_ours() -> None:
    config = BrokerConfig.from_values({})
    assert config["log.retention.hours"] == 72
    assert config.auto_create_topics_enable is False
    assert config.delete_topic_enable is True
    assert config.log_dirs == ()


def test_the_command_line_wins_over_the_file() -> None:
    config = BrokerConfig.from_values({"num.partitions": "2", "background.threads": 4})
    merged = config.merge({"num.partitions": 5})
    assert (merged.num_partitions, merged.background_threads) == (5, 4)
    assert config.num_partitions == 2


def test_run_time_values_win_broker_over_cluster_over_static() -> None:
    config = BrokerConfig.from_values({"max.connections": 1, "background.threads": 1, "message.max.bytes": 1})
    config = config.with_dynamic(
        cluster={"max.connections": "2", "background.threads": "2"}, broker={"max.connections": "3"}
    )
    assert (config.max_connections, config.background_threads, config.message_max_bytes) == (3, 2, 1)


def test_a_config_does_not_change() -> None:
    config = BrokerConfig.from_values({})
    with pytest.raises(AttributeError, match="does not change"):
        config.num_partitions = 7
    with pytest.raises(AttributeError, match="does not change"):
        del config.num_partitions


def test_a_password_shows_up_nowhere() -> None:
    config = BrokerConfig.from_values({"ssl.key.password": "hunter2"})
    assert "hunter2" not in repr(config)
    assert config["ssl.key.password"] == "hunter2"


@pytest.mark.parametrize(
    ("values", "node_id"),
    [({}, 1), ({"node.id": 3}, 3), ({"broker.id": 4}, 4), ({"broker.id": -1, "node.id": 5}, 5)],
)
def test_node_id_and_broker_id_are_one_number(values: dict[str, int], node_id: int) -> None:
    config = BrokerConfig.from_values(values)
    assert config.node_id == node_id
    if "broker.id" not in values:
        assert config["broker.id"] == node_id


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("num.partition", "num.partitions"),
        ("num_partitions", "num.partitions"),
        ("Num.Partitions", "num.partitions"),
        ("log.retention.hour", "log.retention.hours"),
        ("retention.ms", "log.retention.ms"),
        ("max.message.bytes", "message.max.bytes"),
        ("listener", "listeners"),
    ],
)
def test_an_unknown_name_leads_to_the_nearest_known_one(name: str, expected: str) -> None:
    assert nearest(name)[0] == expected
    with pytest.raises(UnknownConfigError, match=f"Did you mean {expected}") as refusal:
        BrokerConfig.from_values({name: "1"})
    assert refusal.value.name == name
    assert refusal.value.nearest[0] == expected


def test_nearest_looks_in_the_table_asked_for() -> None:
    assert nearest("log.retention.hours", TOPIC)[0] == "retention.ms"
    assert nearest("cleanup.polic", TOPIC)[0] == "cleanup.policy"
    assert nearest("xyzzy") == ()


def test_a_name_like_no_other_is_refused_too() -> None:
    with pytest.raises(ConfigError, match="xyzzy is not a known broker config and none looks like it"):
        BrokerConfig.from_values({"xyzzy": 1})


def test_names_that_kafka_dropped_are_passed_over_or_say_what_to_do() -> None:
    assert BrokerConfig.from_values({"inter.broker.protocol.version": "3.9"}).ignored() == (
        "inter.broker.protocol.version",
    )
    with pytest.raises(ConfigError, match="it is part of listeners, as in listeners=PLAINTEXT"):
        BrokerConfig.from_values({"port": "9092"})


def test_names_for_one_listener_are_the_names_behind_them() -> None:
    config = BrokerConfig.from_values(
        {
            "listener.name.internal.ssl.keystore.location": "/k.pem",
            "listener.name.internal.plain.sasl.jaas.config": "module",
            "listener.name.internal.max.connections": "7",
        }
    )
    assert config["listener.name.internal.max.connections"] == 7
    assert config["listener.name.internal.ssl.keystore.location"] == "/k.pem"
    assert config["listener.name.other.max.connections"] is None
    with pytest.raises(ConfigError, match=r"listener\.name\.internal\.max\.connections = 'x'"):
        config.merge({"listener.name.internal.max.connections": "x"})
    with pytest.raises(UnknownConfigError):
        config.merge({"listener.name.internal.max.connection": "7"})


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("PLAINTEXT://:9092", ["PLAINTEXT://:9092"]),
        ("plaintext://localhost:0", ["PLAINTEXT://localhost:0"]),
        ("PLAINTEXT://[::1]:9092 , SSL://h:9093", ["PLAINTEXT://[::1]:9092", "SSL://h:9093"]),
        ("PLAINTEXT://a:0,SSL://a:0", ["PLAINTEXT://a:0", "SSL://a:0"]),
    ],
)
def test_listeners_are_names_hosts_and_ports(text: str, shown: list[str]) -> None:
    assert [str(listener) for listener in BrokerConfig.from_values({"listeners": text}).listeners] == shown


def test_an_ipv6_host_loses_its_brackets_and_gets_its_protocol() -> None:
    config = BrokerConfig.from_values(
        {"listeners": "INSIDE://[::1]:1", "listener.security.protocol.map": "inside:sasl_ssl"}
    )
    assert config.listeners == (("INSIDE", "SASL_SSL", "::1", 1),)
    assert config.inter_broker_listener_name == "INSIDE"


WRONG_COMBINATIONS: list[tuple[dict[str, str | int], str]] = [
    ({"listeners": ""}, "at least one NAME://host:port"),
    ({"listeners": "localhost:9092"}, "'localhost:9092' is not an address"),
    ({"listeners": "PLAINTEXT://localhost"}, "is not an address"),
    ({"listeners": "PLAINTEXT://localhost:70000"}, "is not an address"),
    ({"listeners": "PLAINTEXT://::1:9092"}, "brackets"),
    ({"listeners": "INSIDE://:9092"}, "listener.security.protocol.map"),
    ({"listeners": "PLAINTEXT://a:1,PLAINTEXT://a:2"}, "a name of its own"),
    ({"listeners": "PLAINTEXT://a:1,SSL://a:1"}, "a port of its own"),
    ({"listeners": "C://:1", "controller.listener.names": "C"}, "only those of a controller"),
    ({"advertised.listeners": "SSL://a:1"}, "not among the listeners PLAINTEXT"),
    ({"advertised.listeners": "PLAINTEXT://0.0.0.0:1"}, "nobody can connect"),
    ({"listener.security.protocol.map": "A:TLS"}, "NAME:PROTOCOL"),
    ({"inter.broker.listener.name": "SSL"}, "one of the listeners PLAINTEXT"),
    ({"node.id": 1, "broker.id": 2}, "Remove one"),
    ({"process.roles": "controller"}, "always a broker"),
    ({"authorizer.class.name": "a.B"}, "Java authorizers cannot run here"),
    ({"log.retention.minutes": 0}, "or -1 to keep records for ever"),
    ({"log.roll.ms": 0}, "at least 1"),
    ({"queued.max.request.bytes": 1000}, "socket.request.max.bytes"),
    ({"group.min.session.timeout.ms": 2_000_000}, "must not be above group.max.session.timeout.ms"),
    ({"replica.fetch.wait.max.ms": 60_000}, "replica.socket.timeout.ms"),
    ({"log.cleaner.min.compaction.lag.ms": 2, "log.cleaner.max.compaction.lag.ms": 1}, "must not be above"),
    ({"offsets.topic.compression.codec": 9}, "between 0 and 4"),
    ({"log.cleaner.threads": 1000}, "1 MiB"),
    ({"max.connections.per.ip.overrides": "localhost"}, "host:count"),
]


@pytest.mark.parametrize(("values", "words"), WRONG_COMBINATIONS, ids=str)
def test_what_cannot_work_is_refused_at_once(values: dict[str, str | int], words: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        BrokerConfig.from_values(values)
    assert words in str(refusal.value)


def test_limits_for_single_hosts_are_read() -> None:
    config = BrokerConfig.from_values({"max.connections.per.ip.overrides": "h:5, 127.0.0.1:7"})
    assert config.max_connections_per_ip_overrides == {"h": 5, "127.0.0.1": 7}


def test_every_known_name_can_be_given_with_its_default() -> None:
    from headwater.config import format_value

    texts = {name: format_value(definition, definition.default) for name, definition in BROKER.items()}
    config = BrokerConfig.from_values({name: text for name, text in texts.items() if text is not None})
    assert config.num_partitions == 1
