"""Settings of clients: names and values are checked against a table, unset ones take the table's default.

Reads no file and makes no client. The tables are `tables/producer.py`, `consumer.py` and `admin.py`, each with the rows
of `tables/client_common.py`.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from headwater.config.definitions import ConfigDef, ConfigType
from headwater.config.errors import ConfigError
from headwater.config.tables.admin import ADMIN_ROWS
from headwater.config.tables.client_common import CLIENT_COMMON
from headwater.config.tables.consumer import CONSUMER_ROWS
from headwater.config.tables.producer import PRODUCER_ROWS
from headwater.config.values import as_text, parse


def _by_name(*tables: Iterable[ConfigDef]) -> Mapping[str, ConfigDef]:
    return {definition.name: definition for table in tables for definition in table}


PRODUCER: Final = _by_name(CLIENT_COMMON, PRODUCER_ROWS)
CONSUMER: Final = _by_name(CLIENT_COMMON, CONSUMER_ROWS)
ADMIN: Final = _by_name(CLIENT_COMMON, ADMIN_ROWS)

_OPENSSL: Final = (
    "TLS is OpenSSL's here, by Python's ssl module; leave it out, or give a context of your own as "
    "security=headwater.client.security.Security(tls=...)"
)
_JAVA_ONLY: Final = {
    "ssl.truststore.password": "a store of certificates is PEM here, which has no password; leave it out",
    "ssl.keystore.password": "a key store is PEM here, in which the key alone may have a password: ssl.key.password",
    "ssl.provider": _OPENSSL,
    "ssl.keymanager.algorithm": _OPENSSL,
    "ssl.trustmanager.algorithm": _OPENSSL,
    "ssl.secure.random.implementation": _OPENSSL,
    "ssl.engine.factory.class": _OPENSSL,
    "security.providers": _OPENSSL,
}
"""What only Java's clients can do, and what to do instead."""

_KINDS: Final = {id(PRODUCER): "producer", id(CONSUMER): "consumer", id(ADMIN): "admin client"}


class Resolved(dict[str, Any]):
    """A value for every config of a client, by its name as a Python attribute, and which of them were asked for."""

    def __init__(self, defaults: Mapping[str, Any]) -> None:
        super().__init__(defaults)
        self.asked: set[str] = set()
        """Attributes whose value was given; all others have the table's default."""


def resolve(table: Mapping[str, ConfigDef], given: Mapping[str, object]) -> Resolved:
    """A value for every config of `table`, by its name as a Python attribute: `linger.ms` is `linger_ms`.

    `given` may name a config either way, and give its value as text too, as a file would. None is the default. What a
    table calls a class is an object here, such as a function that serializes: it is taken as it is.

    >>> resolve(PRODUCER, {"linger.ms": "20", "acks": 1})["linger_ms"]
    20
    """
    resolved = Resolved({definition.attribute: definition.default for definition in table.values()})
    seen: set[str] = set()
    for name, value in given.items():
        definition = table.get(name.replace("_", "."))
        if definition is None:
            raise _not_taken(name.replace("_", "."), table)
        if definition.name in seen:
            raise ConfigError(f"{definition.name} is given twice, with dots and with underscores. Remove one of them.")
        seen.add(definition.name)
        if value is not None:
            resolved[definition.attribute] = _value(definition, value)
            resolved.asked.add(definition.attribute)
    return resolved


def _not_taken(name: str, table: Mapping[str, ConfigDef]) -> ConfigError:
    if name.startswith("sasl."):
        return ConfigError(
            f"{name} is not taken yet: mechanisms of SASL come with a later release. Until then give a function that "
            "authenticates a fresh connection, as security=headwater.client.security.Security(sasl=...)."
        )
    if name in _JAVA_ONLY:
        return ConfigError(f"{name} is not taken: {_JAVA_ONLY[name]}.")
    # Only a mistake pays for this import.
    from headwater.config.registry import unknown

    return unknown(name, table, _KINDS.get(id(table), "client"))


def _value(definition: ConfigDef, value: object) -> Any:
    if definition.type is ConfigType.CLASS:
        return value
    if isinstance(value, (str, bool, int, float)):
        return parse(definition, as_text(value))
    if definition.type is ConfigType.LIST and isinstance(value, Iterable):
        items = tuple(value)
        if all(isinstance(item, str) for item in items):
            return parse(definition, as_text(items))
    raise ConfigError(f"{definition.name} = {value!r} is not allowed: it must be {definition.allowed.text}.")
