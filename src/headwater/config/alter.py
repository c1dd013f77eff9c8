"""Changing overrides: the operations of IncrementalAlterConfigs, and the whole replacement of AlterConfigs.

Pure: what is set now comes in, what shall be set comes out, checked. Nothing is stored here.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple

from headwater.config.broker import BrokerConfig
from headwater.config.definitions import ConfigDef, ConfigType, ConfigValue, UpdateMode
from headwater.config.errors import ConfigError, ConfigRequestError
from headwater.config.registry import broker_definition, topic_definition
from headwater.config.topic import effective_values
from headwater.config.values import format_value, parse


class AlterOperation(IntEnum):
    """What to do with a config; the numbers are the protocol's."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigChange(NamedTuple):
    """One operation on one config; DELETE needs no value."""

    name: str
    operation: AlterOperation = AlterOperation.SET
    value: str | None = None


def alter_topic(overrides: Mapping[str, str], changes: Iterable[ConfigChange], broker: BrokerConfig) -> dict[str, str]:
    """The overrides of a topic after `changes`. APPEND and SUBTRACT start from the value in force."""
    changed = _altered(overrides, changes, topic_definition, broker.topic_defaults.__getitem__)
    effective_values(changed, broker)
    return changed


def replace_topic(values: Mapping[str, str | None], broker: BrokerConfig) -> dict[str, str]:
    """The overrides of a topic whose old ones all give way to `values`."""
    return alter_topic({}, _as_sets(values), broker)


def alter_broker(broker: BrokerConfig, changes: Iterable[ConfigChange]) -> BrokerConfig:
    """The config of this broker after changes at run time that are meant for it alone."""
    changed = _altered(broker.dynamic_values, changes, _broker_level, broker.__getitem__)
    return broker.with_dynamic(cluster=broker.cluster_values, broker=changed)


def alter_cluster_default(broker: BrokerConfig, changes: Iterable[ConfigChange]) -> BrokerConfig:
    """The config of this broker after changes at run time that are meant for all brokers."""
    common = broker.with_dynamic(cluster=broker.cluster_values, broker={})
    changed = _altered(broker.cluster_values, changes, _cluster_level, common.__getitem__)
    return broker.with_dynamic(cluster=changed, broker=broker.dynamic_values)


def replace_broker(broker: BrokerConfig, values: Mapping[str, str | None]) -> BrokerConfig:
    """The config of this broker whose own run-time values all give way to `values`."""
    bare = broker.with_dynamic(cluster=broker.cluster_values, broker={})
    return alter_broker(bare, _as_sets(values))


def replace_cluster_default(broker: BrokerConfig, values: Mapping[str, str | None]) -> BrokerConfig:
    """The config of this broker after the run-time values for all brokers all gave way to `values`."""
    bare = broker.with_dynamic(cluster={}, broker=broker.dynamic_values)
    return alter_cluster_default(bare, _as_sets(values))


def _as_sets(values: Mapping[str, str | None]) -> list[ConfigChange]:
    return [ConfigChange(name=name, value=value) for name, value in values.items()]


def _broker_level(name: str) -> ConfigDef:
    definition = broker_definition(name)
    if definition.read_only:
        raise ConfigRequestError(
            f"{name} cannot be changed while the broker runs. Put it into the config file and restart."
        )
    return definition


def _cluster_level(name: str) -> ConfigDef:
    definition = _broker_level(name)
    if definition.update is UpdateMode.PER_BROKER:
        raise ConfigRequestError(f"{name} cannot be set for all brokers at once. Set it for each broker.")
    return definition


def _altered(
    current: Mapping[str, str],
    changes: Iterable[ConfigChange],
    find: Callable[[str], ConfigDef],
    in_force: Callable[[str], ConfigValue],
) -> dict[str, str]:
    changed = dict(current)
    seen: set[str] = set()
    for change in changes:
        if change.name in seen:
            raise ConfigRequestError(f"{change.name} is named twice in one request. Name each config once.")
        seen.add(change.name)
        if change.operation is AlterOperation.DELETE:
            # Whatever is set may go, whether or not its name is known: so a wrong one is got rid of.
            changed.pop(change.name, None)
            continue
        definition = find(change.name)
        before = changed.get(change.name)
        if before is None:
            before = format_value(definition, in_force(change.name))
        changed[change.name] = _new_text(definition, change, before or "")
        parse(definition, changed[change.name])
    return changed


def _new_text(definition: ConfigDef, change: ConfigChange, before: str) -> str:
    name, operation, value = change
    if value is None:
        raise ConfigRequestError(f"{name} has no value, and {operation.name} needs one.")
    if operation is AlterOperation.SET:
        return value.strip()
    if definition.type is not ConfigType.LIST:
        raise ConfigError(f"{operation.name} needs a list, and {name} is none. Use SET with the whole value.")
    items, given = _items(before), _items(value)
    if operation is AlterOperation.APPEND:
        return ",".join(dict.fromkeys((*items, *given)))
    return ",".join(item for item in items if item not in given)


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]
