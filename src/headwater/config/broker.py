"""The broker's view of the table: one immutable set of values, made from a file, a mapping or both.

Values come in layers, later ones win: the table's defaults, what was given at start (static), what was set
at run time for all brokers (cluster default), and for this broker. The layers are kept, because
DescribeConfigs tells them apart.
"""

from collections.abc import Iterable, Mapping
from os import PathLike
from typing import Final, Self

from headwater.config.broker_attributes import BrokerAttributes
from headwater.config.definitions import ConfigDef, ConfigValue
from headwater.config.errors import ConfigError
from headwater.config.files import read_file
from headwater.config.listeners import Listener, parse_listeners, parse_protocol_map
from headwater.config.registry import BROKER, TOPIC, broker_definition
from headwater.config.rules import check_broker, check_listeners, parse_connection_overrides, whole
from headwater.config.values import PlainValue, as_text, parse

_PARSED_FURTHER: Final = frozenset(
    {
        "node_id",
        "listeners",
        "advertised_listeners",
        "log_dirs",
        "inter_broker_listener_name",
        "max_connections_per_ip_overrides",
    }
)
_ATTRIBUTES: Final = tuple(
    (definition.attribute, definition.name)
    for definition in BROKER.values()
    if definition.attribute in BrokerAttributes.__annotations__ and definition.attribute not in _PARSED_FURTHER
)
_OF_SECURE_LISTENERS: Final = ("ssl.", "sasl.", "connections.max.reauth.ms")
_UNIT_MS: Final = {"minutes": 60_000, "hours": 3_600_000}


class BrokerConfig(BrokerAttributes):
    """All configs of one broker, checked. Immutable: every change makes a new one.

    >>> config = BrokerConfig.from_values({"num.partitions": 3})
    >>> config.num_partitions, config["log.retention.hours"]
    (3, 72)
    """

    static_values: Mapping[str, str]
    """What was given at start, as text."""
    cluster_values: Mapping[str, str]
    """What was set at run time for all brokers, as text."""
    dynamic_values: Mapping[str, str]
    """What was set at run time for this broker, as text."""
    topic_defaults: Mapping[str, ConfigValue]
    """Value of each topic config for a topic without overrides."""

    def __init__(
        self,
        static_values: Mapping[str, str],
        cluster_values: Mapping[str, str],
        dynamic_values: Mapping[str, str],
    ) -> None:
        values = {name: definition.default for name, definition in BROKER.items()}
        given: dict[str, str] = {**static_values, **cluster_values, **dynamic_values}
        for name, text in given.items():
            values[name] = parse(broker_definition(name), text)
        if "node.id" not in given and whole(values["broker.id"]) >= 0:
            values["node.id"] = values["broker.id"]
        elif "broker.id" not in given:
            values["broker.id"] = values["node.id"]
        _check_placeholders(given)
        check_broker(values)
        # Immutable for everybody else: `__setattr__` refuses, so the values go in underneath it.
        self.__dict__.update(
            _values=values,
            static_values=dict(static_values),
            cluster_values=dict(cluster_values),
            dynamic_values=dict(dynamic_values),
            topic_defaults=_topic_defaults(values),
            **{attribute: values[name] for attribute, name in _ATTRIBUTES},
            **_parsed_further(values),
        )

    @classmethod
    def from_values(cls, values: Mapping[str, PlainValue]) -> Self:
        """A config from Kafka names and values; what is not named has its default."""
        return cls({name: as_text(value).strip() for name, value in values.items()}, {}, {})

    @classmethod
    def from_file(cls, path: str | PathLike[str]) -> Self:
        """A config from a file with Kafka names: properties, or TOML if it is called `.toml`."""
        return cls.from_values(read_file(path))

    def merge(self, values: Mapping[str, PlainValue]) -> Self:
        """A config with `values` put over the ones given at start."""
        changes = {name: as_text(value).strip() for name, value in values.items()}
        return type(self)({**self.static_values, **changes}, self.cluster_values, self.dynamic_values)

    def with_dynamic(self, *, cluster: Mapping[str, str], broker: Mapping[str, str]) -> Self:
        """A config with other run-time layers over the same static one."""
        return type(self)(self.static_values, cluster, broker)

    def __getitem__(self, name: str) -> ConfigValue:
        """The value of any broker config, by its Kafka name."""
        values: Mapping[str, ConfigValue] = self.__dict__["_values"]
        return values[name] if name in values else broker_definition(name).default

    def ignored(self) -> tuple[str, ...]:
        """Names given at start that are known from Kafka and have no effect here."""
        return tuple(name for name in self.static_values if _is_ignored(name))

    def definitions(self) -> Iterable[ConfigDef]:
        """Every config that can be described: all but the internal ones, and whatever is set."""
        given = (*self.static_values, *self.cluster_values, *self.dynamic_values)
        public = (definition.name for definition in BROKER.values() if not definition.internal)
        return [broker_definition(name) for name in dict.fromkeys((*public, *given))]

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a BrokerConfig does not change; use merge or with_dynamic to set {name}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a BrokerConfig does not change; {name} cannot be deleted")

    def __repr__(self) -> str:
        # Names only: a value may be a password.
        return f"<BrokerConfig node_id={self.node_id} given={sorted(self.static_values)}>"


def _is_ignored(name: str) -> bool:
    """Whether a config has no effect in a broker whose listeners speak plaintext, as all of ours do."""
    definition = broker_definition(name)
    # One that is meant for a listener names the config behind it.
    behind = name if name in BROKER else "".join(definition.synonyms)
    return definition.ignored or behind.startswith(_OF_SECURE_LISTENERS)


def _check_placeholders(given: Mapping[str, str]) -> None:
    """Kafka's config providers would put something else in the place of `${…}`; nothing does so here."""
    if "config.providers" in given:
        for name, text in given.items():
            if "${" in text and not _is_ignored(name):
                raise ConfigError(
                    f"{name} = {text!r} is not allowed: values are not fetched from config.providers here. "
                    "Write the value into the file."
                )


def _parsed_further(values: Mapping[str, ConfigValue]) -> dict[str, object]:
    listeners, advertised = _listeners(values)
    check_listeners(values, listeners, advertised)
    directories = values["log.dirs"] or values["log.dir"] or ""
    protocol = str(values["security.inter.broker.protocol"])
    speaking = [listener.name for listener in listeners if listener.security_protocol == protocol]
    return {
        "node_id": values["node.id"],
        "listeners": listeners,
        "advertised_listeners": advertised,
        "log_dirs": tuple(item.strip() for item in str(directories).split(",") if item.strip()),
        "inter_broker_listener_name": str(
            values["inter.broker.listener.name"] or (speaking[0] if speaking else listeners[0].name)
        ).upper(),
        "max_connections_per_ip_overrides": parse_connection_overrides(str(values["max.connections.per.ip.overrides"])),
    }


def _listeners(
    values: Mapping[str, ConfigValue],
) -> tuple[tuple[Listener, ...], tuple[Listener, ...] | None]:
    """The broker's own listeners and what it advertises for them, without a KRaft controller's."""
    controllers = [name.strip().upper() for name in str(values["controller.listener.names"] or "").split(",")]
    protocols = {name: "PLAINTEXT" for name in controllers if name}
    protocols |= parse_protocol_map(str(values["listener.security.protocol.map"]))
    listeners = parse_listeners("listeners", str(values["listeners"]), protocols)
    own = tuple(listener for listener in listeners if listener.name not in controllers)
    text = values["advertised.listeners"]
    if not text:
        return own, None
    advertised = parse_listeners("advertised.listeners", str(text), protocols)
    return own, tuple(listener for listener in advertised if listener.name not in controllers)


def _topic_defaults(values: Mapping[str, ConfigValue]) -> dict[str, ConfigValue]:
    return {name: _topic_default(definition, values) for name, definition in TOPIC.items()}


def _topic_default(definition: ConfigDef, values: Mapping[str, ConfigValue]) -> ConfigValue:
    """The first synonym that is set decides; hours and minutes become milliseconds."""
    for synonym in definition.synonyms:
        value = values[synonym]
        if value is not None:
            unit_ms = _UNIT_MS.get(synonym.rpartition(".")[2], 1)
            return value if unit_ms == 1 else max(-1, whole(value) * unit_ms)
    return definition.default
