"""Every setting, once: name, type, default, range and words of each config, and the views that code reads.

Names are Apache Kafka 4.1's. Defaults are too, except where a config's doc says "Ours". Reads a file when
asked to, and touches nothing else; stdlib only, and quick to import.
"""

from typing import TYPE_CHECKING, Final

from headwater.lazy_names import lazy_names

if TYPE_CHECKING:
    from headwater.config.alter import (
        AlterOperation,
        ConfigChange,
        alter_broker,
        alter_cluster_default,
        alter_topic,
        replace_broker,
        replace_cluster_default,
        replace_topic,
    )
    from headwater.config.broker import BrokerConfig
    from headwater.config.definitions import (
        Allowed,
        ConfigDef,
        ConfigType,
        ConfigValue,
        Importance,
        UpdateMode,
    )
    from headwater.config.describe import (
        ConfigEntry,
        ConfigSource,
        ConfigSynonym,
        describe_broker,
        describe_cluster_default,
        describe_topic,
    )
    from headwater.config.errors import ConfigError, ConfigRequestError, UnknownConfigError
    from headwater.config.files import parse_properties, parse_toml, read_file
    from headwater.config.listeners import Listener
    from headwater.config.registry import BROKER, TOPIC, broker_definition, nearest, topic_definition
    from headwater.config.topic import TopicConfig, validate_topic_overrides
    from headwater.config.values import PlainValue, as_text, format_value, parse

__all__ = [
    "BROKER",
    "TOPIC",
    "Allowed",
    "AlterOperation",
    "BrokerConfig",
    "ConfigChange",
    "ConfigDef",
    "ConfigEntry",
    "ConfigError",
    "ConfigRequestError",
    "ConfigSource",
    "ConfigSynonym",
    "ConfigType",
    "ConfigValue",
    "Importance",
    "Listener",
    "PlainValue",
    "TopicConfig",
    "UnknownConfigError",
    "UpdateMode",
    "alter_broker",
    "alter_cluster_default",
    "alter_topic",
    "as_text",
    "broker_definition",
    "describe_broker",
    "describe_cluster_default",
    "describe_topic",
    "format_value",
    "nearest",
    "parse",
    "parse_properties",
    "parse_toml",
    "read_file",
    "replace_broker",
    "replace_cluster_default",
    "replace_topic",
    "topic_definition",
    "validate_topic_overrides",
]

_HOMES: Final = {
    "BROKER": "headwater.config.registry",
    "TOPIC": "headwater.config.registry",
    "Allowed": "headwater.config.definitions",
    "AlterOperation": "headwater.config.alter",
    "BrokerConfig": "headwater.config.broker",
    "ConfigChange": "headwater.config.alter",
    "ConfigDef": "headwater.config.definitions",
    "ConfigEntry": "headwater.config.describe",
    "ConfigError": "headwater.config.errors",
    "ConfigRequestError": "headwater.config.errors",
    "ConfigSource": "headwater.config.describe",
    "ConfigSynonym": "headwater.config.describe",
    "ConfigType": "headwater.config.definitions",
    "ConfigValue": "headwater.config.definitions",
    "Importance": "headwater.config.definitions",
    "Listener": "headwater.config.listeners",
    "PlainValue": "headwater.config.values",
    "TopicConfig": "headwater.config.topic",
    "UnknownConfigError": "headwater.config.errors",
    "UpdateMode": "headwater.config.definitions",
    "alter_broker": "headwater.config.alter",
    "alter_cluster_default": "headwater.config.alter",
    "alter_topic": "headwater.config.alter",
    "as_text": "headwater.config.values",
    "broker_definition": "headwater.config.registry",
    "describe_broker": "headwater.config.describe",
    "describe_cluster_default": "headwater.config.describe",
    "describe_topic": "headwater.config.describe",
    "format_value": "headwater.config.values",
    "nearest": "headwater.config.registry",
    "parse": "headwater.config.values",
    "parse_properties": "headwater.config.files",
    "parse_toml": "headwater.config.files",
    "read_file": "headwater.config.files",
    "replace_broker": "headwater.config.alter",
    "replace_cluster_default": "headwater.config.alter",
    "replace_topic": "headwater.config.alter",
    "topic_definition": "headwater.config.registry",
    "validate_topic_overrides": "headwater.config.topic",
}

# Clients have tables of their own, and do without those of a broker.
__getattr__ = lazy_names(__name__, _HOMES)
