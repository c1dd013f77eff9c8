"""Rules between configs: values that are fine each by itself and wrong together. Only checks."""

from collections.abc import Mapping, Sequence
from typing import Final

from headwater.config.definitions import ConfigValue
from headwater.config.errors import ConfigError
from headwater.config.listeners import Listener

Values = Mapping[str, ConfigValue]

_NOT_ABOVE: Final = (
    ("group.min.session.timeout.ms", "group.max.session.timeout.ms"),
    ("group.consumer.min.session.timeout.ms", "group.consumer.session.timeout.ms"),
    ("group.consumer.session.timeout.ms", "group.consumer.max.session.timeout.ms"),
    ("group.consumer.min.heartbeat.interval.ms", "group.consumer.heartbeat.interval.ms"),
    ("group.consumer.heartbeat.interval.ms", "group.consumer.max.heartbeat.interval.ms"),
    ("group.consumer.heartbeat.interval.ms", "group.consumer.session.timeout.ms"),
    ("replica.fetch.wait.max.ms", "replica.socket.timeout.ms"),
    ("replica.fetch.wait.max.ms", "replica.lag.time.max.ms"),
    ("log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"),
)
"""Pairs of which the first must not be greater than the second."""

_AT_LEAST: Final = (
    ("log.roll.ms", 1),
    ("log.roll.jitter.ms", 0),
    ("log.flush.interval.ms", 0),
)
"""Lowest values where Kafka's table states none and its start refuses less all the same."""

_CLEANER_BYTES_PER_THREAD: Final = 1024 * 1024


def check_broker(values: Values) -> None:
    """Raise for a combination of broker configs that cannot work."""
    for lower, upper in _NOT_ABOVE:
        check_not_above(values, lower, upper)
    for name, low in _AT_LEAST:
        value = values[name]
        if value is not None and whole(value) < low:
            raise ConfigError(f"{name} = {value} is not allowed: it must be at least {low}.")
    for name in ("log.retention.ms", "log.retention.minutes", "log.retention.hours"):
        if values[name] == 0:
            raise ConfigError(f"{name} = 0 is not allowed: it must be at least 1, or -1 to keep records for ever.")
    _check_identity(values)
    _check_limits(values)
    _check_cleaner(values)


def check_listeners(values: Values, listeners: Sequence[Listener], advertised: Sequence[Listener] | None) -> None:
    """Raise for listeners that cannot be opened or reached; `advertised` is None where it is unset."""
    if not listeners:
        raise ConfigError(
            "listeners names only those of a controller (see controller.listener.names), and a broker needs "
            "one of its own. Add one, as in listeners=PLAINTEXT://:9092."
        )
    places = [(listener.host, listener.port) for listener in listeners if listener.port]
    if len(set(places)) < len(places):
        raise ConfigError("listeners names the same host and port twice. Give each listener a port of its own.")
    names = {listener.name for listener in listeners}
    for listener in advertised or ():
        if listener.name not in names:
            raise ConfigError(
                f"advertised.listeners names {listener.name}, which is not among the listeners "
                f"{', '.join(sorted(names))}. Add it to listeners, or remove it."
            )
        if listener.host in ("0.0.0.0", "::"):  # noqa: S104 (refused, not bound)
            raise ConfigError(
                f"advertised.listeners = {listener} is not allowed: nobody can connect to {listener.host}. "
                "Name the host that clients reach this broker by."
            )
    inter_broker = values["inter.broker.listener.name"]
    if inter_broker is not None and str(inter_broker).upper() not in names:
        raise ConfigError(
            f"inter.broker.listener.name = {inter_broker!r} is not allowed: it must be one of the listeners "
            f"{', '.join(sorted(names))}."
        )


def check_not_above(values: Values, lower: str, upper: str) -> None:
    """Raise where the value of `lower` is greater than that of `upper`."""
    if whole(values[lower]) > whole(values[upper]):
        raise ConfigError(f"{lower} = {values[lower]} is not allowed: it must not be above {upper} = {values[upper]}.")


def whole(value: ConfigValue) -> int:
    """A value that its table says is a whole number."""
    if isinstance(value, int):
        return value
    raise TypeError(f"{value!r} was parsed as something other than a whole number")


def _check_identity(values: Values) -> None:
    node, broker = values["node.id"], values["broker.id"]
    if whole(broker) >= 0 and node != broker:
        raise ConfigError(f"node.id = {node} and broker.id = {broker} differ: both name the same number. Remove one.")
    roles = values["process.roles"]
    if isinstance(roles, tuple) and roles and "broker" not in roles:
        raise ConfigError(
            f"process.roles = {','.join(roles)!r} is not allowed: this process is always a broker. "
            "Add broker to it, or remove the line."
        )


def _check_limits(values: Values) -> None:
    queued, request = whole(values["queued.max.request.bytes"]), whole(values["socket.request.max.bytes"])
    if 0 < queued < request:
        raise ConfigError(
            f"queued.max.request.bytes = {queued} is not allowed: it must be -1 or at least "
            f"socket.request.max.bytes = {request}, or the largest request could never be read."
        )
    codec = whole(values["offsets.topic.compression.codec"])
    if not 0 <= codec <= 4:
        raise ConfigError(f"offsets.topic.compression.codec = {codec} is not allowed: it must be between 0 and 4.")
    parse_connection_overrides(str(values["max.connections.per.ip.overrides"]))


def _check_cleaner(values: Values) -> None:
    memory, threads = whole(values["log.cleaner.dedupe.buffer.size"]), whole(values["log.cleaner.threads"])
    if values["log.cleaner.enable"] and memory < threads * _CLEANER_BYTES_PER_THREAD:
        raise ConfigError(
            f"log.cleaner.dedupe.buffer.size = {memory} is not allowed: it must be at least 1 MiB for each "
            f"of log.cleaner.threads = {threads}."
        )


def parse_connection_overrides(text: str) -> dict[str, int]:
    """`max.connections.per.ip.overrides` as a mapping from host to its limit."""
    limits: dict[str, int] = {}
    for item in filter(None, (item.strip() for item in text.split(","))):
        host, _, limit = (part.strip() for part in item.rpartition(":"))
        if not host or not (limit.isascii() and limit.isdigit()):
            raise ConfigError(
                f"max.connections.per.ip.overrides = {text!r} is not allowed: {item!r} must be host:count."
            )
        limits[host] = int(limit)
    return limits
