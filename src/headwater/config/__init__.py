"""Every setting, once: name, type, default, range and words of each config, and the views that code reads.

Names are Apache Kafka 4.1's. Defaults are too, except where a config's doc says "Ours". Reads a file when
asked to, and touches nothing else; stdlib only, and quick to import.
"""

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
