"""The tables say what Apache Kafka 4.1 says, but for the differences named here."""

import json
import os
import statistics
import subprocess
import sys
import typing
from pathlib import Path

import pytest

from headwater.config import (
    BROKER,
    TOPIC,
    BrokerConfig,
    ConfigDef,
    ConfigType,
    TopicConfig,
    format_value,
    parse,
)
from headwater.config.broker_attributes import BrokerAttributes

KAFKA = json.loads(Path(__file__).with_name("kafka_4_1_configs.json").read_text())
TABLES = {"broker": BROKER, "topic": TOPIC}

DIFFERENT_DEFAULTS = {
    ("broker", "auto.create.topics.enable"): "false",
    ("broker", "log.retention.hours"): "72",
    ("broker", "log.dir"): None,
    ("broker", "socket.receive.buffer.bytes"): "-1",
    ("broker", "socket.send.buffer.bytes"): "-1",
    ("broker", "node.id"): "1",
    ("broker", "process.roles"): "broker",
    ("topic", "retention.ms"): str(72 * 3_600_000),
}
DIFFERENT_RULES = {
    ("broker", "authorizer.class.name"): "empty, as Java authorizers cannot run here",
    ("topic", "remote.storage.enable"): "false, as there is no remote storage here",
    # Kafka states these and does not hold itself to them: its own default is the empty list.
    ("broker", "controller.quorum.voters"): "any value of its type",
    ("broker", "controller.quorum.bootstrap.servers"): "any value of its type",
}
MORE_NAMES = {
    # Kafka takes these too; its table just does not list them.
    "allow.everyone.if.no.acl.found",
    "super.users",
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
}
ALL = [(scope, name) for scope, facts in KAFKA.items() for name in facts]


def ours(scope: str, name: str) -> ConfigDef:
    return TABLES[scope][name]


def test_every_name_of_kafka_is_known_and_only_the_listed_ones_are_added() -> None:
    assert set(BROKER) - set(KAFKA["broker"]) == MORE_NAMES
    assert set(KAFKA["broker"]) <= set(BROKER)
    assert set(TOPIC) == set(KAFKA["topic"])


def test_types_are_kafkas() -> None:
    wrong = {key for key in ALL if ours(*key).type.name != KAFKA[key[0]][key[1]]["type"]}
    assert wrong == set()


def test_defaults_are_kafkas_except_the_deliberate_ones() -> None:
    def shown(definition: ConfigDef) -> str | None:
        return format_value(definition, definition.default)

    different = {key: shown(ours(*key)) for key in ALL if shown(ours(*key)) != KAFKA[key[0]][key[1]]["default"]}
    assert different == DIFFERENT_DEFAULTS


def test_a_deliberate_default_says_so_in_its_doc() -> None:
    for scope, name in DIFFERENT_DEFAULTS:
        doc = ours(scope, name).doc
        assert "Ours" in doc or "Kafka has no default" in doc, name


def kafkas_rule_in_our_words(rule: str | None, config_type: str) -> str:
    if rule is None or rule == "non-null string":
        return "any value of its type"
    if rule == "non-empty string":
        return "a text that is not empty"
    if rule.startswith("[partitionId]"):
        return "* or a list of partition:broker pairs"
    any_case = rule.startswith("(case insensitive)")
    inner, _, other = rule.removeprefix("(case insensitive) ").partition("]")
    parts = inner.lstrip("[").split(",...") if ",..." in inner else [inner.lstrip("[")]
    if ",..." not in inner:
        opening = "a list of" if config_type == "LIST" else "one of"
        return f"{opening} {parts[0]}{' (in any case)' if any_case else ''}"
    low, high = parts[0], parts[1].lstrip(",")
    return (f"between {low} and {high}" if high else f"at least {low}") + other.replace(" or", ", or")


def test_ranges_and_choices_are_kafkas_except_the_deliberate_ones() -> None:
    different = {}
    for scope, name in ALL:
        fact = KAFKA[scope][name]
        if ours(scope, name).allowed.text != kafkas_rule_in_our_words(fact["allowed"], fact["type"]):
            different[scope, name] = ours(scope, name).allowed.text
    assert different == DIFFERENT_RULES


def test_importance_update_modes_and_internal_marks_are_kafkas() -> None:
    for scope, name in ALL:
        definition, fact = ours(scope, name), KAFKA[scope][name]
        assert definition.importance.value == fact["importance"], name
        assert definition.update.value == fact.get("update", "per-topic"), name
        assert definition.internal == fact["internal"], name


def test_synonyms_are_kafkas() -> None:
    wrong = {key for key in ALL if list(ours(*key).synonyms) != KAFKA[key[0]][key[1]]["synonyms"]}
    assert wrong == set()


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_every_default_satisfies_its_own_rule_and_survives_being_written_down(
    table: dict[str, ConfigDef],
) -> None:
    for definition in table.values():
        text = format_value(definition, definition.default)
        if text is not None:
            assert parse(definition, text) == definition.default, definition.name


def test_every_config_is_explained_in_a_sentence_or_a_few() -> None:
    for definition in (*BROKER.values(), *TOPIC.values()):
        assert definition.doc.endswith("."), definition.name
        assert 15 < len(definition.doc) < 300, definition.name
        assert definition.doc[0].isupper(), definition.name


PYTHON_TYPES: dict[ConfigType, object] = {
    ConfigType.BOOLEAN: bool,
    ConfigType.SHORT: int,
    ConfigType.INT: int,
    ConfigType.LONG: int,
    ConfigType.DOUBLE: float,
    ConfigType.STRING: str,
    ConfigType.LIST: tuple[str, ...],
}
PARSED_FURTHER = {
    "listeners",
    "advertised_listeners",
    "log_dirs",
    "inter_broker_listener_name",
    "max_connections_per_ip_overrides",
}


def test_attributes_of_a_broker_config_have_the_types_of_the_table() -> None:
    by_attribute = {definition.attribute: definition for definition in BROKER.values()}
    config = BrokerConfig.from_values({})
    for attribute, annotation in typing.get_type_hints(BrokerAttributes).items():
        definition = by_attribute[attribute]
        assert not definition.ignored, attribute
        if attribute in PARSED_FURTHER:
            continue
        expected = PYTHON_TYPES[definition.type]
        if definition.default is None:
            expected = typing.Optional[expected]  # noqa: UP045 (a type made at run time)
        assert annotation == expected, attribute
        assert getattr(config, attribute) == config[definition.name], attribute


def test_attributes_of_a_topic_config_have_the_types_of_the_table() -> None:
    by_attribute = {definition.attribute: definition for definition in TOPIC.values()}
    hints = typing.get_type_hints(TopicConfig)
    assert hints.pop("cleanup_policy") == frozenset[str]
    for attribute, annotation in hints.items():
        assert annotation == PYTHON_TYPES[by_attribute[attribute].type], attribute
    left_out = set(by_attribute) - set(hints) - {"cleanup_policy", "internal_segment_bytes", "remote_storage_enable"}
    assert all(by_attribute[attribute].ignored for attribute in left_out)


def test_the_package_imports_in_half_the_time_of_asyncio(tmp_path: Path) -> None:
    """On top of asyncio and dataclasses, which every process that uses it has loaded anyway."""
    program = (
        "import time\nbefore = time.process_time()\n"
        "import asyncio, dataclasses\nbetween = time.process_time()\n"
        "from headwater.config import *\nafter = time.process_time()\n"
        "print((after - between) / (between - before))"
    )
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(tmp_path)

    def share_of_asyncio() -> float:
        command = [sys.executable, "-c", program]
        run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        return float(run.stdout)

    share_of_asyncio()  # compiles
    assert statistics.median(share_of_asyncio() for _ in range(7)) < 0.5
