"""What DescribeConfigs answers: every value with its source and the ones that it stands over.

Knows no wire format; the numbers of the enums are the protocol's, so that a handler copies them.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import IntEnum
from itertools import dropwhile
from typing import NamedTuple

from headwater.config.broker import BrokerConfig
from headwater.config.definitions import ConfigDef, ConfigType, ConfigValue
from headwater.config.registry import BROKER, TOPIC, broker_definition
from headwater.config.topic import effective_values
from headwater.config.values import format_value


class ConfigSource(IntEnum):
    """Where a value comes from; the numbers are the protocol's."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5


class ConfigSynonym(NamedTuple):
    """One of the values in play for a config. The first of them counts."""

    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    """One config of a resource, as a client may see it; the value of a sensitive one is None."""

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    sensitive: bool
    type: ConfigType
    doc: str
    synonyms: tuple[ConfigSynonym, ...]


def describe_topic(
    overrides: Mapping[str, str], broker: BrokerConfig, names: Collection[str] | None = None
) -> list[ConfigEntry]:
    """The configs of a topic by name; only those in `names` where given, unknown names left out."""
    values = effective_values(overrides, broker)
    return [
        _topic_entry(definition, values[definition.name], overrides, broker)
        for definition in _selected(TOPIC.values(), names)
        if not definition.internal or definition.name in overrides
    ]


def describe_broker(broker: BrokerConfig, names: Collection[str] | None = None) -> list[ConfigEntry]:
    """The configs of a broker by name; only those in `names` where given, unknown names left out."""
    return [
        _broker_entry(definition, broker[definition.name], tuple(_broker_synonyms(definition, broker)))
        for definition in _selected(broker.definitions(), names)
    ]


def describe_cluster_default(
    cluster_values: Mapping[str, str], names: Collection[str] | None = None
) -> list[ConfigEntry]:
    """The configs set at run time for all brokers: what Kafka calls the broker resource without a name."""
    source = ConfigSource.DYNAMIC_DEFAULT_BROKER
    entries = []
    for definition in _selected(map(broker_definition, cluster_values), names):
        text = None if definition.sensitive else cluster_values[definition.name]
        synonym = ConfigSynonym(name=definition.name, value=text, source=source)
        entries.append(_entry(definition, text, source, (synonym,)))
    return entries


def _selected(definitions: Iterable[ConfigDef], names: Collection[str] | None) -> list[ConfigDef]:
    wanted = [definition for definition in definitions if names is None or definition.name in names]
    return sorted(wanted, key=lambda definition: definition.name)


def _topic_entry(
    definition: ConfigDef, value: ConfigValue, overrides: Mapping[str, str], broker: BrokerConfig
) -> ConfigEntry:
    text = format_value(definition, value)
    synonyms: list[ConfigSynonym] = []
    if definition.name in overrides:
        synonyms.append(ConfigSynonym(name=definition.name, value=text, source=ConfigSource.TOPIC))
    if definition.synonyms:
        synonyms += _from_first_named(definition.synonyms[0], _synonyms(definition.synonyms, broker))
    source = synonyms[0].source if synonyms else ConfigSource.DEFAULT
    return _entry(definition, text, source, tuple(synonyms))


def _broker_entry(definition: ConfigDef, value: ConfigValue, synonyms: tuple[ConfigSynonym, ...]) -> ConfigEntry:
    # A value that stands in under another name does not say where this one comes from.
    sources = [synonym.source for synonym in synonyms if synonym.name == definition.name]
    source = sources[0] if sources else ConfigSource.DEFAULT
    return _entry(definition, format_value(definition, value), source, synonyms)


def _entry(
    definition: ConfigDef, value: str | None, source: ConfigSource, synonyms: tuple[ConfigSynonym, ...]
) -> ConfigEntry:
    return ConfigEntry(
        name=definition.name,
        value=value,
        source=source,
        read_only=definition.read_only,
        sensitive=definition.sensitive,
        type=definition.type,
        doc=definition.doc,
        synonyms=synonyms,
    )


def _broker_synonyms(definition: ConfigDef, broker: BrokerConfig) -> Iterator[ConfigSynonym]:
    return _from_first_named(definition.name, _synonyms((definition.name, *definition.synonyms), broker))


def _from_first_named(name: str, synonyms: Iterator[ConfigSynonym]) -> Iterator[ConfigSynonym]:
    """As Kafka lists them: nothing before the first that is called `name`, so nothing at all when that one is unset."""
    return dropwhile(lambda synonym: synonym.name != name, synonyms)


def _synonyms(names: tuple[str, ...], broker: BrokerConfig) -> Iterator[ConfigSynonym]:
    """Every value given for one of `names`: run-time before static before default, then by order of names."""
    layers = (
        (ConfigSource.DYNAMIC_BROKER, broker.dynamic_values),
        (ConfigSource.DYNAMIC_DEFAULT_BROKER, broker.cluster_values),
        (ConfigSource.STATIC_BROKER, broker.static_values),
    )
    definitions = [broker_definition(name) for name in names]
    for source, layer in layers:
        for definition in definitions:
            if definition.name in layer:
                text = None if definition.sensitive else layer[definition.name]
                yield ConfigSynonym(name=definition.name, value=text, source=source)
    for definition in definitions:
        default = BROKER[definition.name].default if definition.name in BROKER else None
        if default is not None:
            text = format_value(definition, default)
            yield ConfigSynonym(name=definition.name, value=text, source=ConfigSource.DEFAULT)
