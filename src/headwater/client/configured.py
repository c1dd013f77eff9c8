"""From settings by Kafka's names to what connections are made with. The only reader of the configs about security."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final

from headwater.client.security import Security
from headwater.client.settings import ConnectionSettings
from headwater.config.errors import ConfigError

_NAMES: Final = frozenset(field.name for field in fields(ConnectionSettings)) - {"client_id", "security"}


def connection_settings(values: Mapping[str, Any], *, client_id: str) -> ConnectionSettings:
    """The settings about connections among those that `config.client.resolve` gave; `client_id` stands in for none."""
    given = {name: values[name] for name in _NAMES if name in values}
    return ConnectionSettings(client_id=values["client_id"] or client_id, security=_security(values), **given)


def _security(values: Mapping[str, Any]) -> Security:
    protocol = str(values["security_protocol"]).upper()
    given = values["security"]
    if given is not None:
        if not isinstance(given, Security):
            raise ConfigError(f"security = {given!r} is not allowed: it must be a headwater.client.security.Security.")
        return given
    if protocol.startswith("SASL"):
        raise ConfigError(
            f"security.protocol = {protocol} needs a mechanism, and those come with a later release: until then give "
            "one as security=Security(sasl=...), a function that authenticates a fresh connection."
        )
    if protocol != "SSL":
        return Security()
    # Only who asks for TLS pays for this import.
    from headwater.client.tls_settings import tls_context

    return Security(tls=tls_context(values))
